"""An operator of a known cost, for benchmarks: it spins for so many microseconds of real time per event."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter_ns

import pyarrow as pa

from covey.matcher import EventType
from covey.matcher.errors import InputError
from covey.matcher.evaluation.chainwise import ChainTable, Naive
from covey.matcher.evaluation.problem import FALSE, TRUE, Int64s, Truths
from covey.matcher.events.event_type import Kind
from covey.matcher.operators.named_operator import NamedOperator, Parameter, Takes
from covey.matcher.operators.table import register, unregister

NAME = "spin"
REGIONS = 20
EVENT_TYPE = EventType("frame", {"number": "int64", "region": "int64"})
"""`number` is the event's number, `region` one of REGIONS, which a cheap predicate tests."""


@dataclass(frozen=True, slots=True)
class OperatorsPlan:
    """What is matched: subscriptions of 3 to 5 calls, out of `calls` distinct ones of Zipf popularity."""

    subscriptions: int = 1_000
    calls: int = 200
    events: int = 64
    """Per batch; one batch per round."""
    rounds: int = 5
    cost_us: float = 100.0
    matching: float = 0.002
    seed: int = 0

    def __post_init__(self) -> None:
        """`InputError` for numbers that are too small."""
        for name, least in (("subscriptions", 1), ("calls", 5), ("events", 1), ("rounds", 1), ("cost_us", 0)):
            if getattr(self, name) < least:
                raise InputError(f"{name} {getattr(self, name)}: expected at least {least}")


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
        answers = self._truths[predicate, numbers.to_numpy()] == TRUE
        self.calls += 1
        self.spin(len(numbers))
        return pa.array(answers)

    def spin(self, events: int) -> None:
        """Spend the time of one predicate for so many events, and count them."""
        end = perf_counter_ns() + self._cost_ns * events
        self.events += events
        while perf_counter_ns() < end:
            pass

    @contextmanager
    def registered(self) -> Iterator[None]:
        """It is the operator `spin` of this process meanwhile. `CoveyError` where another has the name."""
        register(self.operator)
        try:
            yield
        finally:
            unregister(NAME)


class Alone(Naive):
    """Each subscription by itself: no answer is used twice. A repeated question spins once more."""

    def __init__(self, spinning: Spinning) -> None:
        self._spinning = spinning

    def decide_chain(self, table: ChainTable, chain: int, rows: Int64s) -> Truths:
        predicates, left = table.predicates(chain), rows
        for predicate in predicates.tolist():
            before = self._spinning.events
            answers = table.ask(predicate, left)
            self._spinning.spin(len(left) - (self._spinning.events - before))
            left = left[answers != FALSE]
            if not len(left):
                break
        truths: Truths = table.known(predicates, rows).min(axis=0)
        return truths


def call_texts(count: int) -> str:
    """A conjunction of calls of `spin`, with the variables $p0, $p1, ..."""
    if count < 1:
        raise InputError(f"{count} calls: expected at least 1")
    return " and ".join(f"{NAME}(number, $p{place})" for place in range(count))


def regions(events: Int64s) -> Int64s:
    """The region of each event, by its number."""
    return events * 7 % REGIONS
