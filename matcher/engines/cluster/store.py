"""The rows of the cluster engine: in buckets by access predicate, under a hashing configuration (Fabret et
al. 2001, 2-4).

Rows that are added wait until the next match. Then they are placed; or, when there are twice as many as
when the configuration was chosen, cuts and configuration are chosen anew and all rows are placed again, which
costs a constant per row. The store owns the rows, measures statistics and applies the configuration that
`tuning` computes from them; an `Arrangement` owns the places of rows.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.plan import Shape
from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys, largest_key
from covey.matcher.engines.cluster import match_kernels as m
from covey.matcher.engines.cluster import placing_kernels as k
from covey.matcher.engines.cluster import row_bounds_kernels as b
from covey.matcher.engines.cluster import sample_kernels as s
from covey.matcher.engines.cluster.arrangement import Arrangement
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.coding import Coding
from covey.matcher.engines.cluster.leaves.leaves import is_sparse
from covey.matcher.engines.cluster.report import render_store
from covey.matcher.engines.cluster.room import empty_arrays
from covey.matcher.engines.cluster.tuning.configuration import Configuration
from covey.matcher.engines.cluster.tuning.maintenance import LARGEST_MARGIN, Maintenance, improved
from covey.matcher.engines.cluster.tuning.planning import choose_schemas, first_configuration, plan
from covey.matcher.engines.cluster.tuning.policy import Policy
from covey.matcher.engines.cluster.tuning.statistics import (
    EventSample,
    RangeSample,
    SignatureUse,
    Statistics,
    equalities,
)
from covey.matcher.engines.cluster.worker import Worker
from covey.matcher.engines.rows.arrays import SPARE, Numbers, Runs, grown
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.engines.rows.store import ALL, RowStore
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.int64 import LAST

_FEW = 64
_SAMPLES = 1 << 18
_SAMPLED_ROWS = 4096
_RENEWED, _MANY = 4, 1 << 16
"""Cuts are chosen anew after this many changes per row, and so many more: bounds may have drifted."""
_MOST_WAITING = 1 << 14
"""Insertions between two matches after which rows that were removed are dropped from those waiting."""
_SCATTERED = 4
"""Rows are placed anew after one in this many, and some more, is removed: its successors lie scattered."""
_FEWEST_SHARED = 64
"""Events per thread from which on sharing a batch pays."""
_PREFERRED = (a.FOUR_BYTES, a.TWO_BYTES, a.ONE_BYTE, a.EIGHT_BYTES)
"""Variants of a signature that new rows get, if rows have them: few variants are worth some bytes."""

_NO_IDS = np.zeros(0, dtype=np.int64)
_NO_BITS = np.zeros((0, 1), dtype=np.uint64)

_Answer = TypeVar("_Answer")


class ClusterStore(RowStore):
    """Rows by access predicate; `policy` limits the configuration, `threads` share a batch."""

    def __init__(self, event_type: EventType, policy: Policy, threads: int = 1) -> None:
        super().__init__(event_type)
        self._tops = np.array([largest_key(kind) for kind in event_type.kinds], dtype=np.int64)
        self._policy = policy
        self._maintenance = Maintenance() if policy.maintains else None
        self._events = EventSample()
        self._moves = np.zeros(len(event_type.names), dtype=np.int64)
        """How many new values equalities on each column got."""
        self._turnover = 0
        """Rows ever inserted, and removed."""
        self._row_count = 0
        self._changed_before = 0  # the turnover when cuts were chosen
        self._configured = 0
        self._written = 0
        self._removed = 0
        self._uncut = 0  # rows inserted since, with tests on columns that have no cuts yet
        self._waiting: list[Numbers] = []
        self._bound_bytes = Runs()
        self._workers = [Worker() for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        arrays = empty_arrays(self._tops)._replace(reaches=range_classes(1))
        self._arrangement = Arrangement(arrays, first_configuration(policy), ordered=not policy.propagation)

    @property
    def arrays(self) -> a.StoreArrays:  # type: ignore[override]
        """All arrays."""
        return self._arrangement.arrays

    @property
    def configuration(self) -> Configuration:
        """The hashing configuration."""
        return self._arrangement.configuration

    # --- rows -------------------------------------------------------------------------------------

    def _resize_rows(self, size: int) -> None:
        old = self.arrays
        self._replace(
            rows=grown(old.rows, size, -1), ids=grown(old.ids, size), where=grown(old.where, size, a.ABSENT)
        )

    def _replace(self, **arrays: Any) -> None:
        """Replace arrays by row."""
        self._arrangement.arrays = self.arrays._replace(**arrays)

    def signature(self, columns: tuple[int, ...], shapes: tuple[int, ...] = (), plan: int = 0) -> int:
        """As `RowStore.signature`; one of its variants, for rows that `insert` gives others if need be."""
        shapes = shapes or (Shape.BOTH,) * len(columns)
        numbers = self.signatures.find(columns, shapes, plan)
        for variant in _PREFERRED if numbers else ():
            if variant in numbers:
                return numbers[variant]
        return self._add_signature(columns, shapes, plan, a.ONE_BYTE)

    def _add_signature(
        self, columns: tuple[int, ...], shapes: tuple[int, ...], plan: int, variant: int
    ) -> int:
        number = self.signatures.add(columns, shapes, plan, variant)
        self._write_signature(number)
        return number

    def _write_signature(self, signature: int) -> None:
        columns, shapes = self.signatures.columns[signature], self.signatures.shapes[signature]
        widths = {Kind.FLOAT64: 8, Kind.TIMESTAMP: 8, Kind.BOOL: 1}
        kinds = self.event_type.kinds  # of attributes; behind them are ranks and derived bools
        tests: list[int] = []
        size = 0
        for column, shape in zip(columns, shapes, strict=True):
            derived = Kind.INT64 if shape == Shape.EQUAL else Kind.BOOL
            kind = kinds[column] if column < len(kinds) else derived
            width = widths.get(kind, 1 << self.signatures.variants[signature])
            if len(kinds) <= column < len(kinds) + kinds.count(Kind.STRING):
                width = 8
            tests += (column, int(shape), size, width, kind not in widths)
            size += width * (2 if shape == Shape.BOTH else 1)
        self._arrangement.write_signature(signature, columns, size, tests)
        self._moves = grown(self._moves, max(len(self._moves), len(self.arrays.coding)))

    def insert(self, rows: Numbers, signature: int, lows: Keys, highs: Keys) -> None:
        """As `RowStore.insert`; rows whose bounds this variant of the signature does not hold get another,
        and those that need no eight bytes as well.
        """
        widths = np.empty(len(rows), dtype=np.uint8)
        highest = b.find_widths(self.arrays.signatures, signature, lows, highs, widths)
        variant, wide = self.signatures.variants[signature], widths == a.EIGHT_BYTES
        if wide.all() if variant == a.EIGHT_BYTES else highest <= variant:
            self._insert(rows, signature, lows, highs)
            return
        columns, shapes = self.signatures.columns[signature], self.signatures.shapes[signature]
        plan = int(self.signatures.plans[signature])
        for positions in (np.flatnonzero(~wide), np.flatnonzero(wide)):
            if len(positions):
                needed = int(widths[positions].max())
                if needed < variant < a.EIGHT_BYTES:
                    needed = variant
                number = self.signatures.find(columns, shapes, plan).get(needed)
                if number is None:
                    number = self._add_signature(columns, shapes, plan, needed)
                self.insert_chosen(rows, number, lows, highs, positions)
        self.signatures.release(signature, 0)

    def _insert(self, rows: Numbers, signature: int, lows: Keys, highs: Keys) -> None:
        self._sign(rows, signature)
        if not len(rows):
            return
        arrays = self.arrays
        places = self._bound_bytes.allocate(
            len(rows), max(int(arrays.signatures[signature, a.SIGN_BYTES]), 1)
        )
        top = self._bound_bytes.top + a.BOUND_BYTES
        if top > len(arrays.bounds):
            size = max(top, len(arrays.bounds) * 5 // 4)
            self._replace(bounds=grown(arrays.bounds, size))
            arrays = self.arrays
        b.insert_rows(arrays.rows, arrays.where, arrays.signatures, arrays.bounds, rows, places, lows, highs)
        columns = self.signatures.columns[signature]
        if any(c < a.NARROW_COLUMNS and c not in self._arrangement.cut_columns for c in columns):
            self._uncut += len(rows)
        self._waiting.append(rows)
        if len(self._waiting) > _MOST_WAITING:  # as when subscriptions come and go, and no events
            waiting = np.unique(np.concatenate(self._waiting))
            self._waiting = [waiting[self.arrays.where[waiting, a.PLACE] == a.WAITING]]
        self._row_count += len(rows)
        self._turnover += len(rows)

    def remove(self, rows: Numbers) -> None:
        self._arrangement.remove(rows)
        self._row_count -= len(rows)
        self._removed += len(rows)
        self._turnover += len(rows)
        for signature, count in self._count_signatures(rows):
            size = int(self.arrays.signatures[signature, a.SIGN_BYTES])
            chosen = rows if count == len(rows) else rows[self.signatures_of(rows) == signature]
            self._bound_bytes.free(self.arrays.rows[chosen, ROW_PLACE].astype(np.int64), max(size, 1))
        self._release_signatures(rows)

    def write_parts(self, rows: Numbers, parts: list[int], values: Keys) -> None:
        arrays, numbers = self.arrays, np.array(parts, dtype=np.int64)
        if b.write_bounds(arrays.rows, arrays.signatures, arrays.bounds, rows, numbers, values, self._moves):
            self._widen(rows, parts, values)
        self._written += len(rows)
        self._arrangement.update(rows)

    def _widen(self, rows: Numbers, parts: list[int], values: Keys) -> None:
        """Insert again those of these rows that have no room for a new bound."""
        for signature, chosen, lows, highs in self._with_parts(rows, parts, values):
            widths = np.empty(len(chosen), dtype=np.uint8)
            variant = self.signatures.variants[signature]
            if b.find_widths(self.arrays.signatures, signature, lows, highs, widths) > variant:
                columns, shapes = self.signatures.columns[signature], self.signatures.shapes[signature]
                plan, positions = int(self.signatures.plans[signature]), np.flatnonzero(widths > variant)
                self.remove(chosen[positions])
                number = self.signature(columns, shapes, plan)
                self.insert_chosen(chosen, number, lows, highs, positions)

    def read(self, rows: Numbers, tests: int) -> tuple[Keys, Keys]:
        lows = np.empty((tests, len(rows)), dtype=np.int64)
        highs = np.empty((tests, len(rows)), dtype=np.int64)
        b.read_bounds(self.arrays, rows, lows, highs)
        return lows, highs

    # --- tuning -----------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Place rows that wait, and retune if that is due; every match begins with it."""
        has_doubled = self._row_count > 2 * self._configured + _FEW
        changed = self._written + self._turnover - self._changed_before
        has_drifted = changed > _RENEWED * self._configured + _MANY
        uncut = self._uncut > _FEW + self._configured // _FEW
        if has_doubled or has_drifted or uncut or is_sparse(self.arrays.leaves):
            self._configure(choose=has_doubled)
        elif self._waiting:
            self._arrangement.place(np.concatenate(self._waiting))
        self._waiting.clear()
        if _SCATTERED * self._removed > self._row_count + _MANY // 4:
            self._place_all()
            self._trim()
        maintenance = self._maintenance
        if maintenance and maintenance.is_due(self._events.count, self._turnover, self._row_count):
            self._maintain(maintenance)

    def _configure(self, *, choose: bool) -> None:
        """Choose cuts and a configuration, with new schemas if `choose`, and place all rows; cost: about a
        microsecond per row.
        """
        self._configured, self._written, self._uncut = self._row_count, 0, 0
        self._changed_before = self._turnover
        samples, counts = self._sample_bounds()
        tops = np.full(max(len(counts), len(self.arrays.coding)), LAST, dtype=np.int64)
        tops[: len(self._tops)] = self._tops
        coding = Coding.of(samples, counts, self._row_count, tops)
        arrangement = self._arrangement
        arrangement.cut_columns = frozenset(np.flatnonzero(counts).tolist())
        self._replace(coding=coding.lines, cuts=coding.cuts)
        ranges = self._sample_ranges()
        self._replace(reaches=range_classes(ranges.widest()))
        statistics = self._statistics(samples, counts, ranges)
        chosen = choose and self._policy.chooses_schemas
        schemas = choose_schemas(self._policy, statistics) if chosen else self.configuration.schemas
        arrangement.configuration = plan(self._policy, statistics, schemas)
        arrangement.assign(self.signatures.in_use())
        self._place_all()
        self._trim()

    def _maintain(self, maintenance: Maintenance) -> None:
        """Look for a better configuration, and move the rows that it concerns."""
        checks = self._margins()
        total, better = float(checks.sum()), None
        if maintenance.is_search_due(total, self._turnover, self._row_count):
            statistics = self._statistics(*self._sample_bounds(), self._sample_ranges())
            better = improved(self.configuration, statistics, checks)
            maintenance.settled = total if better is None else -1.0
        maintenance.reviewed(self._events.count, self._turnover, self._row_count, improved=better is not None)
        if better is None:
            return
        self._arrangement.configuration = better
        lines = self.arrays.signatures
        before = lines[:, a.SIGN_TEMPLATE].copy()
        self._arrangement.assign(self.signatures.in_use())
        moved = lines[:, a.SIGN_TEMPLATE] != before
        live = np.flatnonzero(self.arrays.where[: self.row_top, a.PLACE] != a.ABSENT)
        rows = live[moved[self.arrays.rows[live, ROW_SIGNATURE]]]
        if 2 * len(rows) > self._row_count:
            self._configure(choose=False)  # which chooses hashed ranges and first tests as well
        else:
            self._arrangement.update(rows)

    def _columns_in_use(self) -> int:
        """One more than the highest column that has codes and that rows test."""
        tested = (c + 1 for columns in self.signatures.columns for c in columns if c < a.NARROW_COLUMNS)
        return max(len(self._tops), *tested, 0)

    def _sample_bounds(self) -> tuple[Keys, Numbers]:
        """Some of the bounds on each column c, [c, :counts[c]], and the counts."""
        columns = self._columns_in_use()
        samples = np.empty((columns, min(_SAMPLES, 2 * self._row_count + 1)), dtype=np.int64)
        counts = np.zeros(columns, dtype=np.int64)
        step = max(1, self._row_count // (_SAMPLES // 2))
        s.sample_bounds(self.arrays, self.row_top, step, samples, counts)
        return samples, counts

    def _sample_ranges(self) -> RangeSample:
        step = max(1, self.row_top // _SAMPLED_ROWS)
        rows = np.arange(0, self.row_top, step, dtype=np.int64)
        rows = rows[self.arrays.where[rows, a.PLACE] != a.ABSENT]
        ranges = np.zeros((len(rows), 7), dtype=np.int64)
        s.sample_ranges(self.arrays, rows, self._arrangement.scratch, ranges)
        return RangeSample(self.signatures_of(rows), ranges)

    def _statistics(self, samples: Keys, counts: Numbers, ranges: RangeSample) -> Statistics:
        uses = {
            number: SignatureUse(
                self.signatures.columns[number],
                self.signatures.shapes[number],
                self.signatures.row_counts[number],
            )
            for number in self.signatures.in_use()
        }
        moves = self._moves / max(self._events.count, 1)
        equal = equalities(uses, samples, counts, self._events, moves)
        return Statistics(uses, self.arrays.signatures, equal, ranges, self.arrays.reaches)

    def _margins(self) -> npt.NDArray[np.float64]:
        """Checks per event by signature, in clusters whose benefit margin is too large."""
        keys = self._events.keys(self._columns_in_use())
        probed = np.zeros(len(self.arrays.buckets), dtype=np.int64)
        checks = np.zeros(max(len(self.signatures.row_counts), 1), dtype=np.float64)
        if len(keys):
            self._fit_buffers(self._workers[0])
            buffers = self._workers[0].buffers
            s.count_probes(
                self.arrays, keys, self._arrangement.codes(keys), buffers.probe, buffers.queue, probed
            )
            s.count_checks(self.arrays, probed, LARGEST_MARGIN * len(keys), checks)
            checks /= len(keys)
        return checks

    # --- placing ----------------------------------------------------------------------------------

    def _place_all(self) -> None:
        """Place all rows anew, so that those of a bucket lie together."""
        self._removed = 0
        self._arrangement.clear()
        where = self.arrays.where[: self.row_top]
        where[where[:, a.PLACE] >= 0, a.PLACE] = a.WAITING
        rows = np.flatnonzero(where[:, a.PLACE] == a.WAITING)
        tests = max((len(self.signatures.columns[n]) for n in self.signatures.in_use()), default=0)
        self._arrangement.place_together(rows, tests)

    def _trim(self) -> None:
        """Shrink arrays with much room; they grow in steps."""
        size = self.row_top + self.row_top // SPARE + 16
        if size < len(self.arrays.ids):
            self._resize_rows(size)
        self._arrangement.trim(self._bound_bytes.top, len(self.signatures.columns))

    # --- matching ---------------------------------------------------------------------------------

    def begin_match(self, keys: Keys) -> None:
        self.prepare()
        self._events.add(keys)

    def ids(self, keys: Keys, *, shared: bool) -> tuple[Numbers, Numbers]:
        parts = self._split(keys)
        if len(parts) == 1:
            return self._ids_of(self._workers[0], keys, shared)
        answers = self._map(lambda w, part: self._ids_of(w, part, shared), parts)
        ends = np.cumsum([0, *(offsets[-1] for offsets, _ in answers)])
        offsets = [offsets[1:] + end for (offsets, _), end in zip(answers, ends, strict=False)]
        zero = np.zeros(1, dtype=np.int64)
        return np.concatenate([zero, *offsets]), np.concatenate([ids for _, ids in answers])

    def counts(self, keys: Keys, *, shared: bool, most: int = ALL) -> Numbers:
        def count(worker: Worker, part: Keys) -> Numbers:
            offsets = np.zeros(len(part) + 1, dtype=np.int64)
            self._search(worker, part, m.COUNTS, most, shared, offsets, _NO_BITS)
            return offsets[1:]

        return np.concatenate(self._map(count, self._split(keys)))

    def set_interfaces(self, keys: Keys, bits: npt.NDArray[np.uint64], in_use: int) -> None:
        def set_part(worker: Worker, part: Keys, part_bits: npt.NDArray[np.uint64]) -> None:
            offsets = np.zeros(len(part) + 1, dtype=np.int64)
            self._search(worker, part, m.INTERFACES, in_use, False, offsets, part_bits)

        parts = self._split(keys)
        self._map(set_part, parts, np.array_split(bits, len(parts)))

    def _split(self, keys: Keys) -> list[Keys]:
        """The events of each worker."""
        if len(keys) < _FEWEST_SHARED * len(self._workers):
            return [keys]
        return np.array_split(keys, len(self._workers))

    def _map(self, search: Callable[..., _Answer], parts: list[Keys], *more: list[Any]) -> list[_Answer]:
        """The answers of the workers to their parts, each searched by a thread of its own."""
        if self._pool is None or len(parts) == 1:
            return [search(self._workers[0], parts[0], *(each[0] for each in more))]
        return list(self._pool.map(search, self._workers, parts, *more))

    def _ids_of(self, worker: Worker, keys: Keys, shared: bool) -> tuple[Numbers, Numbers]:
        offsets = np.zeros(len(keys) + 1, dtype=np.int64)
        out = self._search(worker, keys, m.IDS, ALL, shared, offsets, _NO_BITS)
        ids = out[: offsets[-1]]
        worker.room = max(1024, len(ids) * 5 // 4)
        return offsets, ids if 4 * len(ids) > len(out) else ids.copy()

    def _search(
        self,
        worker: Worker,
        keys: Keys,
        product: int,
        most: int,
        shared: bool,
        offsets: Numbers,
        bits: npt.NDArray[np.uint64],
    ) -> Numbers:
        """One search, as `match_kernels.match_events`; returns the memory of ids."""
        self._fit_buffers(worker)
        codes = self._arrangement.codes(keys)
        if shared:
            worker.fit_seen(len(self.arrays.ids))
        out = worker.answer() if product == m.IDS else _NO_IDS
        done = 0
        while True:
            done = m.match_events(
                self.arrays, keys, codes, done, product, most, self._policy.lookahead, shared,
                worker.buffers, offsets, out, bits,
            )  # fmt: skip
            if done == len(keys):
                return out
            out = worker.enlarge(int(offsets[done]))

    def _fit_buffers(self, worker: Worker) -> None:
        worker.fit(self._arrangement.probes, self.arrays.leaves)

    # --- inspection -------------------------------------------------------------------------------

    def structure_bytes(self) -> dict[str, int]:
        parts: dict[str, tuple[npt.NDArray[Any], ...]] = {
            "bounds": (self.arrays.bounds,),
            "places of rows": (self.arrays.where,),
            **self._arrangement.parts(),
        }
        return {name: sum(array.nbytes for array in each) for name, each in parts.items()}

    def render(self, columns: Columns) -> list[str]:
        self.prepare()
        return render_store(self.arrays, self.signatures, self.configuration, columns)


def range_classes(widest: int) -> Keys:
    """The reach of every class of ranges: half an octave apart, `widest` one of them at an even place. The
    last two, one even and one odd, reach across all codes, so that every range has a class.
    """
    middle = 1 << k.CLASS_BITS - 1
    reaches = np.array([ceil(widest * 2.0 ** ((i - middle) / 2)) for i in range(2 * middle)], dtype=np.int64)
    reaches[-2:] = np.maximum(reaches[-2:], a.NEVER)
    return reaches
