"""What one peer can have a broker write to its log is bounded."""

import logging
from collections.abc import Callable

import pytest

from covey.overlay.node.log_limit import LINES, LINES_OF_A_KIND, LogLimit


class Limited:
    """A logger with a limit, in a time of its own."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.log = logging.Logger("limited")
        self.lines: list[str] = []
        handler = logging.Handler()
        handler.emit = lambda record: self.lines.append(record.getMessage())
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
    assert len(limited.lines) == LINES + 5 * LINES
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
    assert len(limited.lines) == 100 + LINES + 1


def test_errors_are_limited_since_a_peer_may_cause_them(limited: Limited) -> None:
    for _ in range(1_000):
        limited.log.error("the handler of %s failed", "/x")
    assert len(limited.lines) == LINES
    assert limited.limit.suppressed == {"ERROR": 990}


def test_the_next_line_ends_a_window_where_no_timer_does(limited: Limited) -> None:
    for _ in range(LINES + 1):
        limited.log.info("stopping")
    limited.now_s += 20
    limited.log.info("stopped")
    assert limited.lines[-2:] == ["in all: 1 more lines within 10 s, not written: stopping", "stopped"]
