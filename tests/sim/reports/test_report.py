"""Reports: one self-contained file with escaped text; numbers and plots."""

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from covey.matcher.errors import CoveyError
from covey.sim.metrics.across import parameters
from covey.sim.reports import (
    Badge,
    Bars,
    Curves,
    Figure,
    Origin,
    Report,
    Section,
    Table,
    Tile,
    mean_interval,
    number,
    png,
    write_report,
)
from covey.sim.reports.colours import KNOWN, PALETTE, styles
from covey.sim.reports.content import coinciding, compact, widths
from covey.sim.scenario.scenario import SYSTEMS

PNG = b"\x89PNG\r\n\x1a\n"


class Reader(HTMLParser):
    """Unclosed tags, attributes that refer to other files, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link"):
            self.open.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open[-1:] != ["script"]:
            self.text += data


def test_a_report_is_one_self_contained_file(tmp_path: Path) -> None:
    plot = Curves("x", "y", {"a": [(1, 2.0), (2, 1.0)], "b": [(1, 1.0, 0.5, 2.0)]})
    section = Section(
        "A <b> & more",
        ["Set `price < $limit`; 3 > 2."],
        [Figure(plot, 'a "plot"')],
        [Table(["run", "events/s", "missed"], [["<script>", 1234.5, 0], ["b", None, 0]], "counts")],
        Badge("differs", False),
    )
    origin = Origin("2 runs", (1, 2), {"brokers": 5}, command="covey sim <file>")
    tiles, terms = [Tile("rate", 1_234_567), Tile("missed", 0, good=True)], [("<term>", "meaning")]
    path = tmp_path / "report.html"
    write_report(path, Report("Title <x>", ["It <holds>."], origin, [section] * 3, tiles, ["note"], terms))
    reader = Reader()
    reader.feed(path.read_text())
    assert reader.open == []
    assert all(link.startswith(("data:text/csv;base64,", "data:,", "#s")) for link in reader.links)
    data = base64.b64decode(next(each for each in reader.links if "csv" in each).partition(",")[2]).decode()
    assert data == "series,x,y,low,high\na,1,2.0,,\na,2,1.0,,\nb,1,1.0,0.5,2.0\n"
    for text in ("Title <x>", "A <b> & more", "<script>", "price < $limit", "1,234,567", "counts", "differs"):
        assert text in reader.text
    for text in ("It <holds>.", "covey sim <file>", "1, 2", "<term>", "The same in all rows: missed 0."):
        assert text in reader.text
    assert re.search(r"<td class=n>1,23[45]</td>", path.read_text())
    assert path.stat().st_size < 2_000_000


def test_what_is_the_same_in_all_rows_is_a_sentence() -> None:
    rows = [["a", 1, 0, None, "x"], ["b", 2, 0, None, "x"]]
    columns = ["run", "rate", "missed", "delay", "load"]
    assert compact(columns, rows) == (
        ["run", "rate"],
        [["a", 1], ["b", 2]],
        "The same in all rows: missed 0, load x. Unknown in all rows: delay.",
    )
    assert compact(columns, rows[:1]) == (columns, rows[:1], "")


def test_how_static_runs_resubscribe_is_no_parameter_where_the_routing_says_it() -> None:
    static = {"scenario": {"routing": "static", "resubscribe": "unsubscribe-first"}}
    parametric = {"scenario": {"routing": "parametric", "resubscribe": "subscribe-first"}}
    other = {"scenario": {"routing": "static", "resubscribe": "subscribe-first"}}
    assert parameters([static, parametric]) == [{"routing": "static"}, {"routing": "parametric"}]
    ways = [{"resubscribe": "unsubscribe-first"}, {"resubscribe": "subscribe-first"}]
    assert parameters([static, other]) == ways
    assert all("resubscribe" in each for each in parameters([static, parametric, other]))


def test_a_mean_has_the_interval_of_student() -> None:
    assert mean_interval([4.0]) == (4.0, 4.0, 4.0)
    assert mean_interval([4.0, 1.0]) == (2.5, 1.0, 4.0), "of two, the range"
    assert mean_interval([0.0, 0.0, 9.0])[1] == 0.0, "nothing below zero"
    assert mean_interval([1.0, 2.0, 3.0, 4.0, 5.0]) == pytest.approx((3.0, 1.0368, 4.9632), abs=1e-3)
    assert mean_interval([0.0, 1.0] * 50) == pytest.approx((0.5, 0.4015, 0.5985), abs=1e-3)
    with pytest.raises(ValueError, match="expected at least one"):
        mean_interval([])


def test_curves_that_hide_each_other_are_named_and_differ_in_width() -> None:
    series = {"a": [(1, 2.0), (2, 4.0)], "b": [(1, 2.01), (2, 3.99)], "c": [(1, 2.0), (2, 5.0)]}
    plot = Curves("x", "y", series)
    assert coinciding(plot) == [("a", "b")]
    assert widths(plot) == {"a": 5.0, "b": 2.0, "c": 2.0}


def test_a_logarithmic_axis_leaves_out_what_has_no_place_on_it() -> None:
    curves = Curves("x", "y", {"a": [(0, 1.0), (1, 0.0), (2, 3.0, -1.0, 5.0)]}, log_x=True, log_y=True)
    assert curves.marks("a") == [(2, 3.0, 0.3, 5.0)]
    assert len(curves.rows()[1]) == 3
    bars = Bars("y", ["g", "h"], {"a": [0.0, (2.0, 1.0, 3.0)]}, dots=True, log=True)
    assert bars.marks("a") == [(1.0, 2.0, 1.0, 3.0)]


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
    with pytest.raises(CoveyError, match="cannot be written: No such file"):
        write_report(tmp_path / "no" / "where.html", Report("t", [], Origin("", ()), []))


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
