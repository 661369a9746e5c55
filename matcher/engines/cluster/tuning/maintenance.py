"""Maintenance of a hashing configuration while subscriptions and events change (Fabret et al. 2001, 4).

- The *benefit margin* of a cluster is how many checks per event better access predicates could save: all of
  its checks, measured with the sampled events.
- The *power* of a table that does not exist is how many of these checks it would save.
- The *benefit* of a table is how many checks more there would be without it.

Tables of too little benefit are deleted, and their rows move to the best table left. Then tables of
sufficient power are created for clusters of too large a margin, and take the rows that they serve better.
Rows of one structure move together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from math import inf

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.cluster.layout.arrays import ACCESS, SIGN_TEMPLATE
from covey.matcher.engines.cluster.tuning.configuration import Configuration
from covey.matcher.engines.cluster.tuning.costs import CHECK, Equalities, Schema, table_cost
from covey.matcher.engines.cluster.tuning.statistics import Statistics
from covey.matcher.engines.cluster.tuning.steps import Steps, in_steps

LARGEST_MARGIN = 0.05  # checks per event in a cluster before better access predicates are sought (BM_max)
LEAST_POWER = 1.25
LEAST_BENEFIT = 0.75
"""What a new table must save, and an old one saves at least, times its cost (the paper's P_min and B_min)."""
FIRST_EVENTS, MOST_EVENTS = 1 << 11, 1 << 20  # until the first review; at most between two, or one per row
WORSE = 1.25  # a search is due when margins have grown by this factor
_CHANGED = 8  # one subscription in this many, added or removed, makes a review due
_SETS = 64
_PER_STRUCTURE = 2  # units that Python takes for one structure


@dataclass(slots=True)
class Maintenance:
    """When to review the configuration: measure margins, and search if these have grown."""

    due: int = FIRST_EVENTS
    interval: int = FIRST_EVENTS
    turnover: int = 0
    settled: float = -1.0  # checks per event when a search found nothing better, or -1

    def is_due(self, events: int, turnover: int, rows: int) -> bool:
        """Whether enough events were matched, or rows added and removed, since the last review."""
        if events < FIRST_EVENTS // 2:
            return False
        return events >= self.due or self._is_changed(turnover, rows)

    def is_search_due(self, checks: float, turnover: int, rows: int) -> bool:
        """Whether so many checks per event, in clusters of too large a margin, are worth a search."""
        return self._is_changed(turnover, rows) or self.settled < 0 or checks > WORSE * self.settled

    def reviewed(self, events: int, turnover: int, rows: int, *, improved: bool) -> None:
        """Schedule the next review: soon after an improvement, else later each time; at most one per as many
        events as there are rows, since a review costs about as much.
        """
        soon = max(2 * FIRST_EVENTS, rows)
        self.interval = soon if improved else max(soon, min(4 * self.interval, MOST_EVENTS))
        self.due, self.turnover = events + self.interval, turnover

    def _is_changed(self, turnover: int, rows: int) -> bool:
        return _CHANGED * (turnover - self.turnover) > rows


@dataclass(slots=True)
class _Structure:
    """Signatures with equalities on the same columns, in tables of one schema."""

    equal: frozenset[int]
    schema: Schema
    rows: int
    checks: float  # per event, in clusters of too large a margin


Price = Callable[[Schema], float]  # what a table costs every event, in checks


def _pricing(data: Equalities) -> Price:
    moves = dict(zip(data.columns, data.moves.tolist(), strict=True))
    distinct = dict(zip(data.columns, data.distinct.tolist(), strict=True))
    rows = float(data.rows.sum())

    def price(schema: Schema) -> float:
        buckets = min(float(np.prod([distinct.get(column, 1.0) for column in schema])), rows)
        moved = sum(moves.get(column, 0.0) for column in schema)
        return table_cost(len(schema), moved, buckets) / CHECK

    return price


def improved(
    configuration: Configuration, statistics: Statistics, checks: npt.NDArray[np.float64]
) -> Steps[Configuration | None]:
    """A better configuration, if any; `checks` per event by signature, in clusters of too large a margin."""
    data = statistics.equalities
    passed = dict(zip(data.columns, data.selectivity.tolist(), strict=True))
    price = _pricing(data)
    schemas = {schema: _reached(schema, passed) for schema in configuration.schemas}
    structures = yield from _structures(configuration, statistics, checks)
    deleted = yield from _delete(schemas, structures, passed, price)
    created = yield from _create(schemas, structures, passed, price)
    if not deleted and not created:
        return None
    better = configuration.changed(schemas)
    better.make_room((yield from better.all_uses(statistics.lines, statistics.numbers)))
    return better


def _reached(schema: Schema, passed: dict[int, float]) -> float:
    return float(np.prod([passed.get(column, 1.0) for column in schema]))


def _structures(
    configuration: Configuration, statistics: Statistics, checks: npt.NDArray[np.float64]
) -> Steps[list[_Structure]]:
    structures: dict[tuple[frozenset[int], Schema], _Structure] = {}
    for units, items in in_steps(list(statistics.signatures.items())):
        for signature, use in items:
            equal = use.equal_columns
            schema = configuration.templates[statistics.lines[signature, SIGN_TEMPLATE]].schema
            one = structures.setdefault((equal, schema), _Structure(equal, schema, 0, 0.0))
            one.rows += use.rows
            one.checks += float(checks[signature]) if signature < len(checks) else 0.0
        yield units
    return list(structures.values())


def _delete(
    schemas: dict[Schema, float],
    structures: list[_Structure],
    passed: dict[int, float],
    price: Price,
) -> Steps[bool]:
    """Delete schemas of too little benefit; returns whether there were any."""
    deleted = False
    for schema in sorted(schemas, key=lambda s: (schemas[s], s)):
        benefit, next_best = 0.0, []
        for one in structures:
            if one.schema == schema:
                others = [(p, s) for s, p in schemas.items() if s != schema and one.equal.issuperset(s)]
                single = min(one.equal)  # what is left to a structure that no schema serves
                best = min(others, default=(passed.get(single, 1.0), (single,)))
                benefit += one.rows * (best[0] - schemas[schema])
                next_best.append((one, best[1]))
        yield _PER_STRUCTURE * len(structures)
        if benefit < LEAST_BENEFIT * price(schema):
            del schemas[schema]
            deleted = True
            for one, other in next_best:
                one.schema = other
    return deleted


def _create(
    schemas: dict[Schema, float],
    structures: list[_Structure],
    passed: dict[int, float],
    price: Price,
) -> Steps[bool]:
    """Add schemas of sufficient power, the greatest first; returns whether there were any."""
    candidates: dict[Schema, None] = {}
    for one in sorted(structures, key=lambda s: -s.checks)[: 16 * _SETS]:
        if one.checks > 0:
            for column in sorted(one.equal - set(one.schema)):
                if len(one.schema) < ACCESS:
                    candidates[tuple(sorted((*one.schema, column)))] = None
            if len(one.schema) < 2:
                for pair in combinations(sorted(one.equal), 2):
                    candidates[pair] = None
    created = False
    while len(schemas) < _SETS:
        best, power, most = Schema(), 0.0, -inf
        for schema in candidates:
            if schema not in schemas:
                saved = _power(schema, structures, passed)
                if (saved - price(schema), schema) > (most, best):
                    best, power, most = schema, saved, saved - price(schema)
                yield _PER_STRUCTURE * len(structures)
        if not best or power < LEAST_POWER * price(best):
            return created
        schemas[best] = _reached(best, passed)
        created = True
        for one in structures:
            left = _checks_left(best, one, passed)
            if left < one.checks:
                one.checks, one.schema = left, best
    return created


def _power(schema: Schema, structures: list[_Structure], passed: dict[int, float]) -> float:
    return sum(
        max(0.0, one.checks - _checks_left(schema, one, passed)) for one in structures if one.checks > 0
    )


def _checks_left(schema: Schema, one: _Structure, passed: dict[int, float]) -> float:
    if not one.equal.issuperset(schema):
        return one.checks
    if set(schema) >= set(one.schema):
        return one.checks * _reached(tuple(set(schema) - set(one.schema)), passed)
    return one.rows * _reached(schema, passed)
