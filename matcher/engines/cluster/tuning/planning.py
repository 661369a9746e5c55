"""Choosing a hashing configuration for what a store holds.

- `static`: the greedy choice of schemas under a space bound (Fabret et al. 2001, 3.3), from the statistics
  of the moment, together with ranges as access predicates.
- `dynamic`: maintenance alone, from single equalities on, by the statistics that the engine keeps (their 4).
- `propagation`: one equality per access predicate, the most selective, and no ranges (their 2), rows
  searched one after the other; `propagation_lookahead`: in blocks that are fetched ahead, as in all other
  kinds.
- `adaptive`: the greedy choice whenever the engine has doubled, and maintenance in between.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.plan import Shape
from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.cluster import bounds_kernels as b
from covey.matcher.engines.cluster.arrays import ACCESS, NARROW_COLUMNS
from covey.matcher.engines.cluster.leaves.leaves import MOST_COLUMNS
from covey.matcher.engines.cluster.tuning.configuration import Configuration, Head, head_of
from covey.matcher.engines.cluster.tuning.costs import (
    Equalities,
    Schema,
    best_schemas,
    leaf_cost,
    range_costs,
)
from covey.matcher.engines.cluster.tuning.maintenance import Maintenance
from covey.matcher.engines.cluster.tuning.statistics import equalities
from covey.matcher.engines.rows.kernels import ROW_SIGNATURE
from covey.matcher.errors import CoveyError

if TYPE_CHECKING:
    from covey.matcher.engines.cluster.store import ClusterStore

MOST_SCHEMAS = 64
"""Tables of equalities; an event is looked up in each."""
_SPACE = 1 << 20
_SPACE_PER_ROW = 64
_ALIKE, _APART = 48, 192
"""Rows that an event reaches and that test the same column first, from which on they stand together: where
most of a schema's rows do, and where that makes one more table to look into.
"""
_SAMPLED = 4096
_FEWEST_IN_LEAVES = 4096
_SELDOM = 64
"""A column has bitmaps when one row in so many tests it."""
_Live = dict[int, tuple[tuple[int, ...], tuple[int, ...], int]]
"""Columns, shapes and rows of signatures, by number."""


KINDS = ("adaptive", "static", "dynamic", "propagation", "propagation_lookahead")


class Planner:
    """Chooses configurations; `kind` is one of `KINDS`, else `CoveyError`."""

    def __init__(self, kind: str = "adaptive") -> None:
        if kind not in KINDS:
            raise CoveyError(f"configuration {kind!r}: expected one of {', '.join(KINDS)}")
        self.kind = kind.removesuffix("_lookahead")
        self.ahead = kind != "propagation"
        self.ordered = self.kind != "propagation"
        """Whether large buckets are kept in order, which the paper's algorithm does not."""
        self._maintenance = Maintenance() if kind in ("adaptive", "dynamic") else None

    def first(self) -> Configuration:
        """The configuration of an empty store."""
        return Configuration(ranges={(): 0 if self.kind == "propagation" else 1})

    def is_due(self, store: ClusterStore) -> bool:
        """Whether it is time to look for a better configuration."""
        return self._maintenance is not None and self._maintenance.is_due(store)

    def improve(self, store: ClusterStore) -> Configuration | None:
        """A better configuration, if maintenance finds one."""
        assert self._maintenance is not None
        found = self._maintenance.improve(store, lambda: _statistics(store, *store.sample()))
        if found is not None:
            live = np.array(list(_signatures(store)), dtype=np.int64)
            found.make_room(found.uses(store.store.signatures, live))
        return found

    def widest(self, store: ClusterStore) -> int:
        """The width in codes that nearly all rows' narrowest ranges stay within, at least 1."""
        _, found = _sample(store)
        widths = found[:, [1, 4]][found[:, [0, 3]] >= 0]
        return int(np.quantile(widths, 0.999) * 1.02) + 1 if len(widths) else 1

    def plan(
        self, store: ClusterStore, samples: Keys, counts: npt.NDArray[np.int64], anew: bool
    ) -> Configuration:
        """A configuration for the rows of a store, given samples[c, :counts[c]] of the bounds on each
        column; where it is not to be `anew`, or grows by maintenance alone, with the schemas that there
        are.
        """
        live = _signatures(store)
        data = _statistics(store, samples, counts)
        width = 1 if self.kind == "propagation" else ACCESS
        space = _SPACE + _SPACE_PER_ROW * float(data.rows.sum())
        most = inf if self.kind == "propagation" else MOST_SCHEMAS
        if anew and self.kind != "dynamic":
            schemas = best_schemas(data, space, int(min(most, 10_000)), width)
        else:
            schemas = list(store.configuration.schemas)
        passed = dict(zip(data.columns, data.selectivity.tolist(), strict=True))
        reached: dict[Schema, float] = {s: float(np.prod([passed.get(c, 1.0) for c in s])) for s in schemas}
        made = Configuration(dict(reached))
        uses = made.uses(store.store.signatures, np.array(list(live), dtype=np.int64))
        rows: dict[Schema, int] = {}
        heads: dict[tuple[Schema, Head], int] = {}
        schema_of = np.zeros(len(store.signature_rows), dtype=np.int64)
        numbers: dict[Schema, int] = {}
        for (number, (*_, count)), use in zip(live.items(), uses, strict=True):
            schema = made.schema_of(use)
            rows[schema] = rows.get(schema, 0) + count
            schema_of[number] = numbers.setdefault(schema, len(numbers))
            head = head_of(use)
            if head is not None:
                heads[schema, head] = heads.get((schema, head), 0) + count
        for schema in rows:
            if schema not in reached:
                reached[schema] = float(np.prod([passed.get(c, 1.0) for c in schema]))
        ranges, least = self._ranges(store, rows, reached, schema_of, list(numbers))
        leaves = self._leaves(store, live, least.get((), 0.0))
        alike = {
            (schema, head)
            for (schema, head), count in heads.items()
            if count * reached[schema] >= (_ALIKE if 2 * count > rows[schema] else _APART)
        }
        made = replace(made, ranges=ranges, heads=frozenset(alike), leaves=leaves)
        made.make_room(uses)
        return made

    def _ranges(
        self,
        store: ClusterStore,
        rows: dict[Schema, int],
        reached: dict[Schema, float],
        schema_of: npt.NDArray[np.int64],
        schemas: list[Schema],
    ) -> tuple[dict[Schema, int], dict[Schema, float]]:
        """How many ranges the rows of each schema hash; what they then cost every event, in nanoseconds."""
        if self.kind == "propagation":
            return dict.fromkeys([*schemas, ()], 0), {}
        sample, found = _sample(store)
        of_row = schema_of[store.arrays.rows[sample, ROW_SIGNATURE]]
        ranges: dict[Schema, int] = {(): 1}
        least: dict[Schema, float] = {}
        for number, schema in enumerate(schemas):
            mine = found[of_row == number]
            if not len(mine) or len(schema) >= ACCESS:
                ranges[schema] = 0
                continue
            present = mine[:, [0, 3]] >= 0
            widths = np.where(present, mine[:, [2, 5]] / 2.0**16, 1.0)
            classes = np.searchsorted(store.store.reaches, mine[:, [1, 4]])
            one = np.column_stack([mine[:, 0], classes[:, 0]])
            two = np.column_stack([mine[:, [0, 3]], (classes + 1) // 2])
            tables = [0, len(np.unique(one, axis=0)), len(np.unique(two, axis=0))]
            costs = range_costs(rows[schema], reached[schema], widths, tables)
            ranges[schema] = int(np.argmin(costs))
            least[schema] = min(costs)
        return ranges, least

    def _leaves(self, store: ClusterStore, live: _Live, hashed: float) -> tuple[int, ...]:
        """The columns to have bitmaps, if rows without equalities shall stand in leaves; `hashed` is what
        they cost every event where they do not.
        """
        tested: dict[int, int] = {}
        rows, members = 0, np.zeros(len(store.signature_rows), dtype=np.bool_)
        for number, (columns, shapes, count) in live.items():
            if Shape.EQUAL not in shapes:
                members[number], rows = True, rows + count
                for column in set(columns):
                    tested[column] = tested.get(column, 0) + count
        if rows < _FEWEST_IN_LEAVES or self.kind == "propagation":
            return ()
        often = sorted(
            (c for c, count in tested.items() if c < NARROW_COLUMNS and _SELDOM * count >= rows),
            key=lambda column: (-tested[column], column),
        )[:MOST_COLUMNS]
        sample, found = _sample(store)
        mine = found[members[store.arrays.rows[sample, ROW_SIGNATURE]]]
        if not often or not len(mine):
            return ()
        narrowest = np.where(mine[:, 0] >= 0, mine[:, 2] / 2.0**16, 1.0)
        cost = leaf_cost(rows, len(often), float(narrowest.mean()), float(mine[:, 6].mean()) / 2.0**30)
        return tuple(sorted(often)) if cost < hashed else ()


def _signatures(store: ClusterStore) -> _Live:
    """Columns, shapes and rows of the signatures that rows have, by number."""
    return {
        number: (store.columns_of[number], store.shapes(number), rows)
        for number, rows in enumerate(store.signature_rows)
        if rows
    }


def _statistics(store: ClusterStore, samples: Keys, counts: npt.NDArray[np.int64]) -> Equalities:
    moves = store.moves / max(store.events.seen, 1)
    return equalities(_signatures(store), samples, counts, store.events, moves)


def _sample(store: ClusterStore) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Some rows, and their narrowest ranges as `sample_ranges` gives them."""
    total = store.row_top
    sample = np.arange(0, total, max(1, total // _SAMPLED), dtype=np.int64)
    sample = sample[store.is_live(sample)]
    found = np.zeros((len(sample), 7), dtype=np.int64)
    b.sample_ranges(store.store, sample, store.scratch, found)
    return sample, found
