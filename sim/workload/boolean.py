"""Filters that are not conjunctions, by shape: the parameters of Bittner and Hinze 2005, section 3."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import prod

import numpy as np
import pyarrow as pa

from covey.matcher import EventBatch, EventType, parse
from covey.sim.workload.workload import Column, SubscriptionGroup, Workload

_VALUES = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Shape:
    """A conjunction of `common` predicates and of alternations, each predicate on its own attribute.

    An alternation has the number of predicates of each of its branches: (1, 1) is `(x or y)`, (2, 2, 2) is
    `(x and y or z and u or v and w)`.
    """

    common: int
    alternations: tuple[tuple[int, ...], ...] = ()

    @property
    def predicates(self) -> int:
        """|p|: predicates per subscription."""
        return self.common + sum(map(sum, self.alternations))

    @property
    def conjunctions(self) -> int:
        """S_s: conjunctions of the disjunctive normal form."""
        return prod(map(len, self.alternations))

    @property
    def shared(self) -> float:
        """s_p: conjunctions that contain a predicate, on average."""
        total = self.common * self.conjunctions
        for branches in self.alternations:
            total += sum(branches) * self.conjunctions // len(branches)
        return total / self.predicates

    @property
    def least(self) -> int:
        """|p_min|: predicates that have to hold for the filter to match."""
        return self.common + sum(map(min, self.alternations))

    @property
    def operators(self) -> int:
        """|op|: inner nodes of the filter's tree; an operator of several operands counts once."""
        inner = sum(1 + sum(branch > 1 for branch in branches) for branches in self.alternations)
        return inner + (self.common + len(self.alternations) > 1)

    def text(self, width: int) -> str:
        """The filter on attributes a0, a1, ...: predicate i is an interval of `width` that starts at $vi."""
        numbers = iter(range(self.predicates))

        def conjunction(size: int) -> str:
            tests = (f"a{i} between $v{i} and $v{i} + {width}" for i in islice(numbers, size))
            return " and ".join(tests)

        parts = [conjunction(self.common)] if self.common else []
        parts += [f"({' or '.join(map(conjunction, branches))})" for branches in self.alternations]
        return " and ".join(parts)


def branching(predicates: int, conjunctions: int, shared: float) -> Shape:
    """One alternation of `conjunctions` branches such that s^r, the share of conjunctions with a predicate,
    is as near to `shared` as possible; it is at least 1 / S_s."""
    if conjunctions == 1:
        return Shape(predicates)
    wanted = round((1 - shared) * predicates * conjunctions / (conjunctions - 1))
    within = min(max(wanted, conjunctions), predicates)
    return Shape(predicates - within, (_split(within, conjunctions),))


def with_least(predicates: int, alternations: int, least: int) -> Shape:
    """Alternations of a predicate with a conjunction, hence 2 ** alternations conjunctions, such that `least`
    predicates have to hold: the paper's |p_min|."""
    longer = _split(predicates - least, alternations)
    return Shape(least - alternations, tuple((1, length) for length in longer))


def _split(predicates: int, into: int) -> tuple[int, ...]:
    length, longer = divmod(predicates, into)
    return (length + 1,) * longer + (length,) * (into - longer)


def pairs(predicates: int, alternations: int) -> Shape:
    """Alternations of two predicates each, hence 2 ** alternations conjunctions."""
    return Shape(predicates - 2 * alternations, ((1, 1),) * alternations)


@dataclass(frozen=True)
class Boolean(Workload):
    """Subscriptions of one shape.

    `fulfilled` is the probability that an event fulfils a predicate, p_e / (|s| |p|); `redundancy`, 0 up to
    but not including 1, the share of predicates that another subscription has too (r_p). Raises `ValueError`
    for an invalid parameter.
    """

    name: str = "boolean"
    description: str = "Bittner and Hinze 2005, section 3"
    shape: Shape = Shape(10)
    fulfilled: float = 0.02
    redundancy: float = 0.0
    event_type: EventType = field(init=False)

    def __post_init__(self) -> None:
        if self.shape.common < 0 or self.shape.predicates < 1:
            raise ValueError(f"shape {self.shape}: expected at least one predicate")
        if not 0 < self.fulfilled < 1:
            raise ValueError(f"fulfilled {self.fulfilled}: expected a probability between 0 and 1")
        if not 0 <= self.redundancy < 1:
            raise ValueError(f"redundancy {self.redundancy}: expected 0 <= redundancy < 1")
        names = {f"a{i}": "int64" for i in range(self.shape.predicates)}
        object.__setattr__(self, "event_type", EventType("Boolean", names))

    def _groups(self, count: int, rng: np.random.Generator) -> Iterator[SubscriptionGroup]:
        text = self.shape.text(int(self.fulfilled * _VALUES))
        values = {f"v{i}": self._starts(count, rng) for i in range(self.shape.predicates)}
        yield SubscriptionGroup(parse(text, self.event_type), np.arange(count, dtype=np.int64), values)

    def _starts(self, count: int, rng: np.random.Generator) -> Column:
        """Starts of one predicate's intervals; `redundancy` determines the number of distinct ones."""
        distinct = max(1, round(count * (1 - self.redundancy)))
        pool = rng.integers(0, int(_VALUES * (1 - self.fulfilled)), size=distinct)
        return rng.permutation(np.resize(pool, count))

    def _events(self, count: int, rng: np.random.Generator) -> EventBatch:
        columns = [pa.array(rng.integers(0, _VALUES, size=count)) for _ in self.event_type.names]
        records = pa.RecordBatch.from_arrays(columns, schema=self.event_type.arrow_schema)
        return EventBatch.from_arrow(self.event_type, records)

    def _moves(self, group: SubscriptionGroup, rng: np.random.Generator) -> dict[str, Column]:
        return {"v0": self._starts(len(group), rng)}
