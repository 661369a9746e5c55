"""A broker's log lines have names and bounds, also per peer."""

import ast
import json
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from covey.overlay.core.warnings import WarningKind
from covey.overlay.node.logs import (
    LINES,
    LINES_OF_A_KIND,
    LINES_OF_A_SUBJECT,
    JsonFormatter,
    LogLimit,
    PlainFormatter,
)

OVERLAY = Path(__file__).resolve().parents[3] / "overlay"
SOURCES = [
    *sorted((OVERLAY / "node").glob("*.py")),
    *sorted((OVERLAY / "transport").glob("*.py")),
    OVERLAY / "scraping.py",
    OVERLAY.parent / "matcher/jit/kernel_loader.py",
]
METHODS = ("debug", "info", "warning", "error", "critical", "exception", "log")


def templates() -> Iterator[tuple[str, str]]:
    """The texts of all lines, with the file."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            owner = ast.unparse(node.func.value)
            if node.func.attr in METHODS and owner in ("log", "self._logger"):
                text = node.args[1 if node.func.attr == "log" else 0]
                assert isinstance(text, ast.Constant), f"{path}:{node.lineno}: expected a text"
                yield str(text.value), path.name


def test_every_line_has_an_event_and_names_for_its_arguments() -> None:
    found = dict(templates())
    assert {text: file for text, file in found.items() if text not in LINES} == {}
    assert [text for text in LINES if text not in found] == []
    for text, (event, *names) in LINES.items():
        assert re.fullmatch(r"[a-z_]+", event)
        assert len(names) == len(re.findall(r"%[^%\s]*?[a-z]", text)), text
        assert len(set(names)) == len(names)


def record(text: str, *arguments: object) -> logging.LogRecord:
    made = logging.LogRecord("covey.broker", logging.INFO, "", 0, text, arguments, None)
    made.created = 1_700_000_000.25
    return made


def test_a_plain_line_has_its_time_in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    line = PlainFormatter("b1").format(record("%s disconnected: %s", "broker/b2", "it left"))
    assert line == "2023-11-14T22:13:20.250Z b1 INFO broker/b2 disconnected: it left"


def test_a_json_line_has_its_event_and_its_arguments() -> None:
    text = "%s disconnected: %s"
    line = JsonFormatter("b1").format(record(text, 'client/"x"\n', ValueError("two\nlines")))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "INFO",
        "broker": "b1",
        "event": "disconnected",
        "message": 'client/"x"\n disconnected: two\nlines',
        "interface": 'client/"x"\n',
        "reason": "two\nlines",
    }


def test_a_warning_about_an_interface_has_the_event_of_its_kind() -> None:
    made = record("%s: %s", "client/c", "it waits")
    made.event = WarningKind.HALF_FULL
    line = json.loads(JsonFormatter("b1").format(made))
    assert (line["event"], line["interface"], line["reason"]) == ("half_full", "client/c", "it waits")
    assert not {*WarningKind} & {event for event, *_ in LINES.values()}
    text = " ".join((OVERLAY.parent / "docs" / "operations.md").read_text().split())
    assert ", ".join(f"`{kind}`" for kind in WarningKind) in text
    sources = "".join(path.read_text() for path in (OVERLAY / "core").rglob("*.py"))
    assert [kind for kind in WarningKind if f"WarningKind.{kind.name}" not in sources] == []


def test_a_peer_writes_neither_long_lines_nor_lines_of_others() -> None:
    made = record("%s disconnected: %s", "client/c", "\n2023 b1 INFO stopped\x1b[2J" + "x" * 10**6)
    plain, line = PlainFormatter("b1").format(made), JsonFormatter("b1").format(made)
    assert len(plain) < 2_200
    assert len(line) < 4_500
    assert r"client/c disconnected: \n2023 b1 INFO stopped\x1b[2Jxxx" in plain
    assert plain.isprintable()
    assert plain.endswith("xxx... (1,000,048 characters)")
    try:
        raise ValueError("x" * 10**6)
    except ValueError as error:
        made = logging.LogRecord("asyncio", logging.ERROR, "", 0, "x", (), (type(error), error, None))
    assert len(PlainFormatter("b1").format(made)) < 11_000


def test_json_lines_of_other_libraries_and_exceptions_are_lines_too() -> None:
    try:
        raise ValueError("wrong")
    except ValueError as error:
        made = logging.LogRecord("asyncio", logging.ERROR, "", 0, "x", (), (type(error), error, None))
    line = json.loads(JsonFormatter("b1").format(made))
    assert (line["event"], line["message"]) == ("other", "x")
    assert line["exception"].endswith("ValueError: wrong")


class Limited:
    """A logger with a limit, by a clock of its own."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.log = logging.Logger("limited")
        self.lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())  # type: ignore[method-assign]
        self.log.addHandler(handler)
        self.limit = LogLimit(self.log, clock=lambda: self.now_s, defer=self.defer)
        self.log.addFilter(self.limit)

    def defer(self, seconds: float, call: Callable[[], None]) -> None:
        self.due.append((self.now_s + seconds, call))

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        for due in [due for due in self.due if due[0] <= self.now_s]:
            self.due.remove(due)
            due[1]()


@pytest.fixture
def limited() -> Limited:
    return Limited()


def test_a_client_with_many_wrong_updates_writes_few_lines_and_their_number(limited: Limited) -> None:
    for i in range(10_000):
        limited.log.warning("%s: refused: %s", "client/wrong", f"update {i}")
        if i % 100 == 0:
            limited.log.warning("%s: refused: %s", f"client/{i // 2_000}", "once in a while")
    assert len(limited.lines) == LINES_OF_A_SUBJECT + 5 * LINES_OF_A_SUBJECT
    limited.advance(10)
    assert limited.lines[60:] == [
        "client/wrong: 9990 more lines within 10 s, not written: %s: refused: %s",
        *(f"client/{i}: 10 more lines within 10 s, not written: %s: refused: %s" for i in range(5)),
    ]
    assert not limited.due
    limited.log.warning("%s: refused: %s", "client/wrong", "again")
    assert limited.lines[-1] == "client/wrong: refused: again"


def test_names_that_change_do_not_help(limited: Limited) -> None:
    for i in range(5_000):
        limited.log.info("%s connected", f"client/{i}")
    assert len(limited.lines) == LINES_OF_A_KIND
    limited.advance(10)
    assert limited.lines[-1] == "others: 4900 more lines within 10 s, not written: %s connected"


def test_the_end_of_a_broker_and_other_kinds_are_written(limited: Limited) -> None:
    for i in range(100):
        limited.log.critical("%s", i)
        limited.log.info("stopping")
    limited.log.warning("%s broke the protocol", "client/a")
    assert len(limited.lines) == 100 + LINES_OF_A_SUBJECT + 1


def test_errors_are_limited_since_a_peer_may_cause_them(limited: Limited) -> None:
    for _ in range(1_000):
        limited.log.error("the handler of %s failed", "/x")
    assert len(limited.lines) == LINES_OF_A_SUBJECT
    assert limited.limit.suppressed == {"ERROR": 990}


def test_the_next_line_ends_a_window_where_no_timer_does(limited: Limited) -> None:
    for _ in range(LINES_OF_A_SUBJECT + 1):
        limited.log.info("stopping")
    limited.now_s += 20
    limited.log.info("stopped")
    assert limited.lines[-2:] == ["in all: 1 more lines within 10 s, not written: stopping", "stopped"]
