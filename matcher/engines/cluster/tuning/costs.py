"""What matching costs under a hashing configuration, and the greedy choice of one (Fabret et al. 2001, 3).

An event pays for every table, and for checking a subscription as often as it satisfies its access predicate:

    cost = sum over tables (RETRIEVE + HASH * width + MISS, where it is large)
         + sum over subscriptions nu(access predicate) * CHECK

nu of a conjunction is the product over its attributes. Rows that move with their values pay for the moves.
`best_schemas` adds, step by step, the table with the greatest benefit per unit of space, while there is
benefit and space; last, it removes tables that others have made superfluous.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.cluster.layout.arrays import ACCESS, LEAF
from covey.matcher.engines.cluster.tuning.schema_kernels import add_savings
from covey.matcher.engines.cluster.tuning.steps import STEP, Steps, parts

RETRIEVE, HASH, CHECK, MOVE = 25.0, 5.0, 1.5, 300.0
"""Nanoseconds: access to a table, one more attribute, checking a subscription, re-inserting one."""
GUARD, COMBINE, RECORD = 1.0, 6.0, 15.0
"""Nanoseconds: comparing the guard of a leaf, combining a bitmap, checking a row that bitmaps let through."""
MISS = 130.0  # nanoseconds more for a table whose buckets take more than CACHED bytes
BUCKET_BYTES = 80
TABLE_BYTES = 256
CACHED = 1 << 19
PROBES = 6  # cells that an event looks up in a table of one hashed range
_PAIRS = 160  # of attributes that are considered, the most frequent first

_COUNTED_PER_UNIT = 256  # groups counted for a schema in the time that placing a row takes

Schema = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Equalities:
    """Groups of rows that have equalities on the same columns: has[g, c] on columns[c], rows[g] of them.
    `selectivity[c]` is the probability that an event satisfies an equality on the column, `distinct[c]` how
    many different ones there are, `moves[c]` how many new values they get per event.
    """

    columns: tuple[int, ...]
    has: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.float64]
    selectivity: npt.NDArray[np.float64]
    distinct: npt.NDArray[np.float64]
    moves: npt.NDArray[np.float64]


@dataclass(slots=True)
class _Candidates:
    sets: list[tuple[int, ...]]  # access schemas
    usable: npt.NDArray[np.bool_]  # [schemas, groups]
    passed: npt.NDArray[np.float64]  # part of events per access predicate
    fixed: npt.NDArray[np.float64]  # nanoseconds per event
    distinct: npt.NDArray[np.float64]  # access predicates
    saved: npt.NDArray[np.float64]  # checks per event, given the other tables
    moved: npt.NDArray[np.float64]  # rows that it would take up

    @classmethod
    def of(
        cls, sets: Sequence[tuple[int, ...]], data: Equalities, through: npt.NDArray[np.float64]
    ) -> Steps[_Candidates]:
        member = np.zeros((len(sets), len(data.columns)), dtype=np.float32)
        for number, chosen in enumerate(sets):
            member[number, list(chosen)] = 1.0
        usable = (member @ (~data.has).astype(np.float32).T) == 0
        passed = np.array([np.prod(data.selectivity[list(chosen)]) for chosen in sets])
        distinct = np.array([min(np.prod(data.distinct[list(chosen)]), 1e12) for chosen in sets])
        fixed = np.zeros(len(sets))
        candidates = cls(
            list(sets), usable, passed, fixed, distinct, np.zeros(len(sets)), np.zeros(len(sets))
        )
        yield usable.size // _COUNTED_PER_UNIT
        yield from candidates.count(np.arange(len(through)), through, data.rows, 1.0)
        able = usable @ data.rows
        for number, chosen in enumerate(sets):
            moves = data.moves[list(chosen)].sum()
            fixed[number] = table_cost(len(chosen), moves, min(able[number], distinct[number]))
        return candidates

    def extend(self, more: _Candidates) -> None:
        self.sets += more.sets
        self.usable = np.concatenate([self.usable, more.usable])
        self.passed = np.concatenate([self.passed, more.passed])
        self.fixed = np.concatenate([self.fixed, more.fixed])
        self.distinct = np.concatenate([self.distinct, more.distinct])
        self.saved = np.concatenate([self.saved, more.saved])
        self.moved = np.concatenate([self.moved, more.moved])

    def count(
        self,
        groups: npt.NDArray[np.int64],
        through: npt.NDArray[np.float64],
        rows: npt.NDArray[np.float64],
        sign: float,
    ) -> Steps[None]:
        """Add what each would save of these groups; `sign` -1 subtracts it, before `through` decreases."""
        size = max(1, STEP * _COUNTED_PER_UNIT // max(len(groups), 1))
        for start, stop in parts(0, len(self.sets), size):
            part = slice(start, stop)
            saved, moved = self.saved[part], self.moved[part]
            add_savings(self.usable[part], self.passed[part], groups, through, rows, sign, saved, moved)
            yield (stop - start) * len(groups) // _COUNTED_PER_UNIT


def table_cost(width: int, moves: float, buckets: float) -> float:
    """Nanoseconds per event for a table of `width` equalities and so many buckets; `moves` are per event."""
    missed = MISS if buckets * BUCKET_BYTES > CACHED else 0.0
    return RETRIEVE + HASH * width + MOVE * moves + missed


def checking_cost(passed: npt.NDArray[np.float64], rows: npt.NDArray[np.float64]) -> float:
    """Nanoseconds per event for checking groups of so many rows, of which an event reaches these parts."""
    return float((passed * rows).sum()) * CHECK


def best_schemas(data: Equalities, space: float, most: int, width: int = ACCESS) -> Steps[list[Schema]]:
    """The access schemas to have tables for: `most` of up to `width` columns, within `space` bytes."""
    singles: list[Schema] = [(c,) for c in range(len(data.columns))]
    if not singles:
        return []
    known: set[Schema] = set(singles)
    through = np.ones(len(data.rows))
    candidates = yield from _Candidates.of(singles, data, through)
    if width > 1:
        together = data.has.astype(np.float64).T @ (data.has * data.rows[:, None])
        pairs = [pair for pair in combinations(range(len(singles)), 2) if together[pair] > 0]
        pairs.sort(key=lambda pair: (-together[pair], pair))
        known |= set(pairs[:_PAIRS])
        if pairs:
            candidates.extend((yield from _Candidates.of(pairs[:_PAIRS], data, through)))
    chosen: list[int] = []
    left = space
    while len(chosen) < most:
        benefit = candidates.saved * CHECK - candidates.fixed
        room = TABLE_BYTES + BUCKET_BYTES * np.minimum(candidates.moved, candidates.distinct)
        value = np.where((benefit > 0) & (room <= left), benefit / room, 0.0)
        value[chosen] = 0.0
        best = int(np.argmax(value))
        if value[best] <= 0:
            break
        chosen.append(best)
        left -= float(room[best])
        groups = np.flatnonzero(candidates.usable[best] & (through > candidates.passed[best]))
        yield from candidates.count(groups, through, data.rows, -1.0)
        through[groups] = candidates.passed[best]
        yield from candidates.count(groups, through, data.rows, 1.0)
        base = candidates.sets[best]
        if len(base) < width:
            wider = [tuple(sorted({*base, c})) for c in range(len(singles)) if c not in base]
            fresh = [s for s in wider if s not in known]
            known |= set(fresh)
            if fresh:
                candidates.extend((yield from _Candidates.of(fresh, data, through)))
    kept = yield from _without_superfluous(candidates, chosen, data.rows)
    return [tuple(data.columns[c] for c in candidates.sets[s]) for s in kept]


def _without_superfluous(
    candidates: _Candidates, chosen: list[int], rows: npt.NDArray[np.float64]
) -> Steps[list[int]]:
    """Remove tables, one by one, whose rows others take up for less than the table costs."""

    def cost(schemas: list[int]) -> float:
        passed = np.where(candidates.usable[schemas], candidates.passed[schemas, None], 1.0)
        least = passed.min(axis=0) if schemas else np.ones(len(rows))
        return float(candidates.fixed[schemas].sum()) + checking_cost(least, rows)

    kept = list(chosen)
    now = cost(kept)
    for schema in chosen:
        without = [other for other in kept if other != schema]
        less = cost(without)
        yield len(chosen) * len(rows) // _COUNTED_PER_UNIT
        if less <= now:
            kept, now = without, less
    return kept


def range_costs(
    rows: float, reached: float, widths: npt.NDArray[np.float64], tables: Sequence[int]
) -> list[float]:
    """Nanoseconds per event where none, one and two ranges of every row are hashed, for `rows` rows of which
    an event reaches the part `reached`. `widths[i]` are sampled rows' two narrowest ranges as parts of all (1
    for none); `tables[n]` is how many tables n hashed ranges take.
    """
    left = rows * reached * CHECK
    one = np.minimum(1.0, 1.5 * widths[:, 0])
    two = np.minimum(1.0, 3.0 * widths[:, 0]) * np.minimum(1.0, 3.0 * widths[:, 1])
    return [
        left,
        left * float(one.mean()) + tables[1] * PROBES * (RETRIEVE + HASH),
        left * float(two.mean()) + tables[2] * 4 * (RETRIEVE + 2 * HASH),
    ]


def leaf_cost(rows: float, columns: int, narrowest: float, passed: float) -> float:
    """Nanoseconds per event for `rows` rows in leaves with so many bitmaps; `narrowest` is the mean width of
    their narrowest range, `passed` the part of them that bitmaps let through.
    """
    leaves = rows / LEAF
    looked_into = leaves * min(1.0, narrowest + columns / leaves)
    return leaves * GUARD + looked_into * columns * COMBINE + rows * passed * RECORD
