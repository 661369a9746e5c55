"""Reports: one self-contained file with escaped text; numbers and plots."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from covey.sim.reports import (
    Figure,
    Report,
    ReportError,
    Section,
    Table,
    Tile,
    bars,
    lines,
    number,
    write_report,
)

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
    png = lines({"a": [(1, 2.0), (3, None), (2, 1.0)], "b": [(1, 1.0)]}, x="x", y="y")
    section = Section(
        "A <b> & more",
        ["Set `price < $limit`; 3 > 2."],
        [Figure(png, 'a "plot"')],
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
    assert base64.b64decode(embedded[0].partition(",")[2]) == png
    for text in ("Title <x>", "A <b> & more", "<script>", "price < $limit", "1,234,567", "-", "counts"):
        assert text in reader.text
    assert "<script" not in path.read_text()
    assert re.search(r"<td class=n>1,23[45]</td>", path.read_text())


def test_the_same_data_gives_the_same_plot() -> None:
    first, second = (
        bars(["b1", "b2"], {"events": [1.0, None], "control": [2.0, 3.0]}, y="messages") for _ in range(2)
    )
    assert first == second
    assert first.startswith(PNG)
    assert lines({"a": [(1, 1.0)]}, x="", y="", log_x=True, log_y=True).startswith(PNG)


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
