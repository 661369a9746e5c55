"""Waiting callers have at most half of the loop's time, by a clock that only served ones advance."""

import asyncio
import gc
from collections.abc import Callable

import pytest

from covey.overlay.transport import event_loop
from covey.overlay.transport.event_loop import WaitingLine


class VirtualLoop:
    """Runs due callbacks in the order of time; a callback may take time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.failures: list[dict[str, object]] = []
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def call_soon(self, call: Callable[[], None]) -> None:
        self.call_later(0.0, call)

    def call_later(self, delay: float, call: Callable[[], None]) -> None:
        self._count += 1
        self._due.append((self.now + delay, self._count, call))

    def call_exception_handler(self, context: dict[str, object]) -> None:
        self.failures.append(context)

    def run(self) -> list[tuple[float, float]]:
        """The start and end of each call."""
        calls = []
        while self._due:
            self._due.sort()
            due, _, call = self._due.pop(0)
            self.now = max(self.now, due)
            began = self.now
            call()
            calls.append((began, self.now))
        return calls


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> VirtualLoop:
    virtual = VirtualLoop()
    monkeypatch.setattr(event_loop.asyncio, "get_running_loop", lambda: virtual)
    monkeypatch.setattr(event_loop.time, "perf_counter", lambda: virtual.now)
    return virtual


def test_many_who_wait_leave_half_of_the_time_to_others(loop: VirtualLoop) -> None:
    line, served = WaitingLine(), list[int]()

    def serve(number: int, turns: int) -> None:
        loop.now += 0.000_2
        served.append(number)
        if turns > 1:
            line.join(lambda: serve(number, turns - 1))

    for number in range(100):
        line.join(lambda number=number: serve(number, 5))
    calls = loop.run()
    assert served == [*range(100)] * 5, "one after the other"
    worked = sum(ended - began for began, ended in calls)
    assert worked == pytest.approx(0.1)
    assert loop.now >= 2 * worked - 0.002
    assert max(ended - began for began, ended in calls) <= 0.001_3


def test_a_few_wait_for_one_turn_of_the_loop(loop: VirtualLoop) -> None:
    line = WaitingLine()
    for _ in range(3):
        line.join(lambda: None)
    assert len(loop.run()) == 1
    assert loop.now == 0.0


def test_a_failure_keeps_nobody_from_his_turn(loop: VirtualLoop) -> None:
    line, served = WaitingLine(), list[str]()
    line.join(lambda: 1 // 0)
    line.join(lambda: served.append("b"))
    loop.run()
    assert served == ["b"]
    assert isinstance(loop.failures[0]["exception"], ZeroDivisionError)


def test_what_is_computed_in_the_line_returns_and_raises() -> None:
    async def main() -> None:
        line = WaitingLine()
        assert await asyncio.gather(line.run(lambda: 1), line.run(lambda: 2)) == [1, 2]
        with pytest.raises(ZeroDivisionError):
            await line.run(lambda: 1 // 0)

    asyncio.run(main())


def test_young_objects_are_collected_after_each_slice(loop: VirtualLoop) -> None:
    """Else all objects of a flood of sessions, which frees as many old ones, would be scanned at once."""
    line, young = WaitingLine(), list[object]()

    def serve() -> None:
        loop.now += 0.001
        young.append([])

    gc.collect()
    line.join(serve)
    loop.run()
    assert not any(each is young[0] for each in gc.get_objects(0))
