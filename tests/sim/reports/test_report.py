"""Reports: one self-contained file with escaped text; numbers and plots."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from covey.sim.experiments.papers import Verdict
from covey.sim.reports import (
    Bars,
    Curves,
    Figure,
    Report,
    ReportError,
    Section,
    Table,
    Tile,
    number,
    png,
    write_report,
)
from covey.sim.reports.colours import KNOWN, PALETTE, styles
from covey.sim.scenario.systems import SYSTEMS

PNG = b"\x89PNG\r\n\x1a\n"


class Reader(HTMLParser):
    """Unclosed tags, attributes that refer to other files, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_report_is_one_self_contained_file(tmp_path: Path) -> None:
    plot = Curves("x", "y", {"a": [(1, 2.0), (2, 1.0)], "b": [(1, 1.0, 0.5, 2.0)]})
    section = Section(
        "A <b> & more",
        ["Set `price < $limit`; 3 > 2."],
        [Figure(plot, 'a "plot"')],
        [Table(["run", "events/s"], [["<script>", 1234.5], ["b", None]], "counts")],
        [Tile("missed", 0, good=True)],
    )
    path = tmp_path / "report.html"
    write_report(path, Report("Title <x>", [section] * 3, ["lead"], [Tile("rate", 1_234_567)]))
    reader = Reader()
    reader.feed(path.read_text())
    assert reader.open == []
    assert all(link.startswith(("data:image/png;base64,", "#s")) for link in reader.links)
    embedded = [link for link in reader.links if link.startswith("data:")]
    assert base64.b64decode(embedded[0].partition(",")[2]) == png(plot)
    for text in ("Title <x>", "A <b> & more", "<script>", "price < $limit", "1,234,567", "-", "counts"):
        assert text in reader.text
    assert "<script" not in path.read_text()
    assert re.search(r"<td class=n>1,23[45]</td>", path.read_text())


def test_the_same_data_gives_the_same_plot() -> None:
    first, second = (
        png(Bars("messages", ["b1", "b2"], {"events": [1.0, None], "control": [2.0, (3.0, 2.5, 3.5)]}))
        for _ in range(2)
    )
    assert first == second
    assert first.startswith(PNG)
    assert png(Curves("", "", {"a": [(1, 1.0)]}, log_x=True, log_y=True)).startswith(PNG)
    assert png(Bars("", ["b1"], {"a": [1.0]}, dots=True, log=True)).startswith(PNG)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (0, "0"),
        (1234567, "1,234,567"),
        (1234.4, "1,234"),
        (12.34, "12.3"),
        (1.234, "1.23"),
        (0.01234, "0.0123"),
        (2.0, "2"),
        (-0.5, "-0.5"),
        (True, "yes"),
        ("text", "text"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
    ],
)
def test_numbers_are_rounded_and_separated(value: object, shown: str) -> None:
    assert number(value) == shown


def test_a_report_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReportError, match="cannot be written: No such file"):
        write_report(tmp_path / "no" / "where.html", Report("t", []))


def test_a_name_has_one_style_on_every_page() -> None:
    known = ("siena-parametric", "siena-subscribe-first", "rete-parametric", "covey-parametric", "paper")
    alone = {name: styles([name])[name] for name in known}
    assert styles([*known, "something else"]).items() >= alone.items()
    assert len(set(alone.values())) == len(known)
    assert {s for s in SYSTEMS if s not in KNOWN} == set()
    assert len({(KNOWN[s].colour, KNOWN[s].marker) for s in SYSTEMS}) == len(SYSTEMS)
    for name, base in {"chain, rete-parametric": "rete-parametric", "counting S_s=4": "counting"}.items():
        assert styles([name])[name].colour == KNOWN[base].colour
    unknown = [f"broker {n}" for n in range(len(PALETTE))]
    assert {style.colour for style in styles(unknown).values()} == set(PALETTE)
    assert styles(unknown) == {name: styles(unknown[::-1])[name] for name in unknown}


@pytest.mark.parametrize(
    ("here", "paper", "low", "verdict"),
    [
        (7.3, 8.0, 6.0, "reached"),
        (7.1, 8.0, None, "same direction, smaller"),
        (1.2, 8.0, 0.9, "differs"),
        (0.8, 8.0, None, "differs"),
        (None, 8.0, None, "not measured"),
    ],
)
def test_a_factor_is_reached_smaller_or_differs(
    here: float | None, paper: float, low: float | None, verdict: str
) -> None:
    assert Verdict.of_factor(here, paper, low).value == verdict
