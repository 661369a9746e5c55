"""Keeping a hashing configuration good while subscriptions and events change (Fabret et al. 2001, 4).

- The *benefit margin* of a cluster is the number of checks per event that better access predicates could
  save: what an event checks in it. It is measured: sampled events are looked up, and each counts for the
  clusters it reaches.
- The *power* of a table that does not exist is how many of these checks it would save.
- The *benefit* of a table is how many checks more there would be without it.

Tables of too little benefit go, and their rows to the best table left. Then tables of sufficient power are
made, for clusters whose margin is too large, and rows that they serve better move there. Rows of one
structure move together, so that an update in place never has to ask where its row came from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.plan import Shape
from covey.matcher.engines.cluster import arrays as a
from covey.matcher.engines.cluster import match_kernels as m
from covey.matcher.engines.cluster.tuning.configuration import Configuration
from covey.matcher.engines.cluster.tuning.costs import CHECK, Equalities, Schema, table_cost

if TYPE_CHECKING:
    from covey.matcher.engines.cluster.store import ClusterStore

LARGEST_MARGIN = 0.05
"""Checks per event in one cluster from which on it wants better access predicates (the paper's BM_max)."""
LEAST_POWER = 1.25
LEAST_BENEFIT = 0.75
"""What a new table must save, and an old one saves at least, times what it costs (the paper's P_min and
B_min).
"""
FIRST_EVENTS, MOST_EVENTS = 1 << 11, 1 << 20
"""Events until the first look, and the most between two looks, unless there are more subscriptions."""
WORSE = 1.25
"""Margins that have grown by less since the last look are not looked into: a look has its price."""
_CHANGED = 8
"""One subscription in so many added or removed makes maintenance due."""
_SETS = 64


@dataclass(slots=True)
class _Structure:
    """Signatures with equalities on the same columns, in tables of one schema."""

    equal: frozenset[int]
    schema: Schema
    rows: int
    checks: float  # per event, in clusters of too large a margin


@dataclass(slots=True)
class Maintenance:
    """When to look, and what to change."""

    due: int = FIRST_EVENTS
    interval: int = FIRST_EVENTS
    turnover: int = 0
    settled: float = -1.0
    """Checks per event in clusters of too large a margin when nothing better was found, or -1."""

    def is_due(self, store: ClusterStore) -> bool:
        """Whether enough events came, or subscriptions changed, since the last time."""
        if store.events.seen < FIRST_EVENTS // 2:
            return False
        return store.events.seen >= self.due or self._changed(store)

    def _changed(self, store: ClusterStore) -> bool:
        return _CHANGED * (store.turnover - self.turnover) > store.count

    def improve(self, store: ClusterStore, statistics: Callable[[], Equalities]) -> Configuration | None:
        """A better configuration, or None; the next look comes soon if there is one, else much later."""
        found, checks = None, margins(store)
        total = float(checks.sum())
        if self._changed(store) or self.settled < 0 or total > WORSE * self.settled:
            found = _improved(store, statistics(), checks)
            self.settled = -1.0 if found is not None else total
        # A look costs about as much as an event per subscription, so it comes no oftener than they do.
        soon = max(2 * FIRST_EVENTS, store.count)
        self.interval = soon if found is not None else max(soon, min(4 * self.interval, MOST_EVENTS))
        self.due = store.events.seen + self.interval
        self.turnover = store.turnover
        return found


Price = Callable[[Schema], float]
"""What a table costs every event, in checks."""


def _pricing(data: Equalities) -> Price:
    moves = dict(zip(data.columns, data.moves.tolist(), strict=True))
    distinct = dict(zip(data.columns, data.distinct.tolist(), strict=True))
    rows = float(data.rows.sum())

    def price(schema: Schema) -> float:
        buckets = min(float(np.prod([distinct.get(column, 1.0) for column in schema])), rows)
        moved = sum(moves.get(column, 0.0) for column in schema)
        return table_cost(len(schema), moved, buckets) / CHECK

    return price


def _improved(store: ClusterStore, data: Equalities, checks: npt.NDArray[np.float64]) -> Configuration | None:
    passed = dict(zip(data.columns, data.selectivity.tolist(), strict=True))
    price = _pricing(data)
    schemas = {schema: _through(schema, passed) for schema in store.configuration.schemas}
    structures = _structures(store, checks)
    deleted = _delete(schemas, structures, passed, price)
    created = _create(schemas, structures, passed, price)
    if not deleted and not created:
        return None
    return store.configuration.changed(schemas)


def _through(schema: Schema, passed: dict[int, float]) -> float:
    return float(np.prod([passed.get(column, 1.0) for column in schema]))


def _structures(store: ClusterStore, checks: npt.NDArray[np.float64]) -> list[_Structure]:
    found: dict[tuple[frozenset[int], Schema], _Structure] = {}
    for signature, rows in enumerate(store.signature_rows):
        if rows:
            pairs = zip(store.columns_of[signature], store.shapes(signature), strict=True)
            equal = frozenset(column for column, shape in pairs if shape == Shape.EQUAL)
            schema = store.configuration.templates[store.store.signatures[signature, a.SIGN_TEMPLATE]].schema
            one = found.setdefault((equal, schema), _Structure(equal, schema, 0, 0.0))
            one.rows += rows
            one.checks += float(checks[signature])
    return list(found.values())


def margins(store: ClusterStore) -> npt.NDArray[np.float64]:
    """Checks per event by signature, in clusters whose benefit margin is too large."""
    keys = store.events.keys(store.columns_in_use())
    hits = np.zeros(len(store.store.buckets), dtype=np.int64)
    checks = np.zeros(max(len(store.signature_rows), 1), dtype=np.float64)
    if len(keys):
        m.reach_buckets(store.store, keys, store.codes(keys), store.workers[0].buffers.probe, hits)
        least = LARGEST_MARGIN * len(keys)
        m.weigh_signatures(store.store, hits, least, checks)
        checks /= len(keys)
    return checks


def _delete(
    schemas: dict[Schema, float],
    structures: list[_Structure],
    passed: dict[int, float],
    price: Price,
) -> bool:
    """Leave out schemas of too little benefit; returns whether there were any."""
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
) -> bool:
    """Add schemas of sufficient power, those of the greatest first; returns whether there are any."""
    candidates: dict[Schema, None] = {}
    for one in sorted(structures, key=lambda s: -s.checks)[: 16 * _SETS]:
        if one.checks > 0:
            for column in sorted(one.equal - set(one.schema)):
                if len(one.schema) < a.ACCESS:
                    candidates[tuple(sorted((*one.schema, column)))] = None
            if len(one.schema) < 2:
                for pair in combinations(sorted(one.equal), 2):
                    candidates[pair] = None
    created = False
    while len(schemas) < _SETS:
        best, power = max(
            ((s, _power(s, structures, passed)) for s in candidates if s not in schemas),
            key=lambda item: (item[1] - price(item[0]), item[0]),
            default=((), 0.0),
        )
        if not best or power < LEAST_POWER * price(best):
            return created
        schemas[best] = _through(best, passed)
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
    """The checks per event of a structure in a table of this schema."""
    if not one.equal.issuperset(schema):
        return one.checks
    if set(schema) >= set(one.schema):
        return one.checks * _through(tuple(set(schema) - set(one.schema)), passed)
    return one.rows * _through(schema, passed)
