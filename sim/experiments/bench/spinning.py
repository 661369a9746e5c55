"""An operator of a known cost, for benchmarks: it spins for so many microseconds of real time per event."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter_ns

import pyarrow as pa

from covey.matcher import EventType
from covey.matcher.errors import CoveyError
from covey.matcher.evaluation.problem import TRUE, Int64s, Truths
from covey.matcher.events.event_type import Kind
from covey.matcher.operators.named_operator import NamedOperator, Parameter, Takes
from covey.matcher.operators.table import register, unregister

NAME = "spin"
REGIONS = 20
EVENT_TYPE = EventType("frame", {"number": "int64", "region": "int64"})
"""`number` is the event's number, `region` one of REGIONS, which a cheap predicate tests."""


class Spinning:
    """`spin(number, p)`: the truth of predicate p for the event of that number, from a table, after
    `cost_us` of real time. It counts the events and calls that it was asked for.
    """

    def __init__(self, truths: Truths, cost_us: float) -> None:
        self._truths = truths
        self._cost_ns = cost_us * 1_000
        self.events = self.calls = 0
        self.operator = NamedOperator(
            NAME,
            (
                Parameter("number", frozenset({Kind.INT64}), Takes.ATTRIBUTE),
                Parameter("predicate", frozenset({Kind.INT64}), Takes.CONSTANT),
            ),
            self._evaluate,
            "Spins, then looks its answer up.",
            cost_us=cost_us,
        )

    def _evaluate(self, numbers: pa.Array, predicate: int) -> pa.Array:
        end = perf_counter_ns() + self._cost_ns * len(numbers)
        self.events += len(numbers)
        self.calls += 1
        answers = self._truths[predicate, numbers.to_numpy()] == TRUE
        while perf_counter_ns() < end:
            pass
        return pa.array(answers)

    @contextmanager
    def registered(self) -> Iterator[None]:
        """It is the operator `spin` of this process meanwhile. `CoveyError` where another has the name."""
        register(self.operator)
        try:
            yield
        finally:
            unregister(NAME)


def call_texts(count: int) -> str:
    """A conjunction of calls of `spin`, with the variables $p0, $p1, ..."""
    if count < 1:
        raise CoveyError(f"{count} calls: expected at least 1")
    return " and ".join(f"{NAME}(number, $p{place})" for place in range(count))


def regions(events: Int64s) -> Int64s:
    """The region of each event, by its number."""
    return events * 7 % REGIONS
