"""The rows of the cluster engine: in buckets by access predicate, under a hashing configuration (Fabret et
al. 2001, 2-4).

Rows that are added wait until the next match. Then they are placed; or, when there are twice as many as
when the configuration was chosen, cuts and configuration are chosen anew and all rows are placed again, which
costs a constant per row. The store owns the arrays, measures statistics and applies the configuration that
`tuning` computes from them. Invariant: kernels find room for at least one more of everything.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.plan import Shape
from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys, largest_key
from covey.matcher.engines.cluster import match_kernels as m
from covey.matcher.engines.cluster import placing_kernels as k
from covey.matcher.engines.cluster import row_bounds_kernels as b
from covey.matcher.engines.cluster import sample_kernels as s
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.code_kernels import HASHED
from covey.matcher.engines.cluster.layout.coding import Coding
from covey.matcher.engines.cluster.layout.leaf_arrays import FILLED, LEAF
from covey.matcher.engines.cluster.leaves.leaves import empty_leaves, is_sparse
from covey.matcher.engines.cluster.report import render_store
from covey.matcher.engines.cluster.room import (
    empty_arrays,
    trimmed,
    with_columns,
    with_more,
    with_signature,
    with_table,
)
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
from covey.matcher.engines.rows.store import RowStore
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
_KEPT_TESTS = 8
"""Tests of a row whose codes are kept while rows are placed anew."""
_NARROW, _LONG = 0, 1
"""Variants of signatures: bounds on int64 in 32 bits, or in 64. The former saves 20 % of bytes on W0, W2."""


class ClusterStore(RowStore):
    """Rows by access predicate; `policy` limits the configuration, `threads` share a batch."""

    arrays: a.StoreArrays

    def __init__(self, event_type: EventType, policy: Policy, threads: int = 1) -> None:
        super().__init__(event_type)
        self._tops = np.array([largest_key(kind) for kind in event_type.kinds], dtype=np.int64)
        self._policy = policy
        self.configuration = first_configuration(policy)
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
        self._cut_columns: set[int] = set()
        self._waiting: list[Numbers] = []
        self._unassigned: dict[int, None] = {}  # signatures without a template
        self._words = Runs()
        self._workers = [Worker() for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._scratch = np.zeros(HASHED + 16, dtype=np.int64)
        self.arrays = empty_arrays(self._tops)._replace(reaches=range_classes(1))
        self._clear()

    # --- rows -------------------------------------------------------------------------------------

    def _resize_rows(self, size: int) -> None:
        old = self.arrays
        self.arrays = old._replace(
            rows=grown(old.rows, size, -1), ids=grown(old.ids, size), where=grown(old.where, size, a.ABSENT)
        )

    def signature(
        self, columns: tuple[int, ...], shapes: tuple[int, ...] = (), variant: int = _NARROW
    ) -> int:
        shapes = shapes or (Shape.BOTH,) * len(columns)
        number = self.signatures.find(columns, shapes, variant)
        if number is None:
            number = self.signatures.add(columns, shapes, variant)
            self._write_signature(number)
        return number

    def _write_signature(self, signature: int) -> None:
        columns, shapes = self.signatures.columns[signature], self.signatures.shapes[signature]
        long_kinds = [Kind.FLOAT64, Kind.TIMESTAMP]
        if self.signatures.variants[signature] == _LONG:
            long_kinds.append(Kind.INT64)
        kinds = self.event_type.kinds  # of attributes; derived columns are bools
        tests: list[int] = []
        words = 0
        for column, shape in zip(columns, shapes, strict=True):
            is_long = column < len(kinds) and kinds[column] in long_kinds
            tests += (column, int(shape), words, is_long)
            words += (1 + is_long) * (2 if shape == Shape.BOTH else 1)
        self.arrays = with_signature(self.arrays, signature, len(columns))
        self._scratch = np.zeros(HASHED + 2 * self.arrays.signatures.shape[1], dtype=np.int64)
        line = self.arrays.signatures[signature]
        line[:] = 0
        line[a.SIGN_TESTS : a.SIGN_TESTS + len(tests)] = tests
        line[a.SIGN_SIZE], line[a.SIGN_WORDS] = len(columns), words
        if columns and max(columns) >= len(self.arrays.coding):
            self.arrays = with_columns(self.arrays, max(max(columns) + 1, 2 * len(self.arrays.coding)))
            self._moves = grown(self._moves, len(self.arrays.coding))
        self._unassigned[signature] = None

    def insert(self, rows: Numbers, signature: int, lows: Keys, highs: Keys) -> None:
        """As `RowStore.insert`; rows with a bound that needs 64 bits get the signature with room for it."""
        is_long = np.empty(len(rows), dtype=np.bool_)
        if not b.find_long_bounds(self.arrays.signatures, signature, lows, highs, is_long):
            self._insert(rows, signature, lows, highs)
            return
        columns, shapes = self.signatures.columns[signature], self.signatures.shapes[signature]
        for variant in (_NARROW, _LONG):
            positions = np.flatnonzero(is_long == variant)
            if len(positions):
                number = self.signature(columns, shapes, variant)
                self.insert_chosen(rows, number, lows, highs, positions)
        self.signatures.release(signature, 0)

    def _insert(self, rows: Numbers, signature: int, lows: Keys, highs: Keys) -> None:
        self._sign(rows, signature)
        if not len(rows):
            return
        arrays = self.arrays
        places = self._words.allocate(len(rows), max(int(arrays.signatures[signature, a.SIGN_WORDS]), 1))
        if self._words.top > len(arrays.bounds):
            size = max(self._words.top, len(arrays.bounds) * 5 // 4)
            self.arrays = arrays = arrays._replace(bounds=grown(arrays.bounds, size))
        b.insert_rows(arrays.rows, arrays.where, arrays.signatures, arrays.bounds, rows, places, lows, highs)
        columns = self.signatures.columns[signature]
        if any(c < a.NARROW_COLUMNS and c not in self._cut_columns for c in columns):
            self._uncut += len(rows)
        self._waiting.append(rows)
        if len(self._waiting) > _MOST_WAITING:  # as when subscriptions come and go, and no events
            waiting = np.unique(np.concatenate(self._waiting))
            self._waiting = [waiting[self.arrays.where[waiting, a.PLACE] == a.WAITING]]
        self._row_count += len(rows)
        self._turnover += len(rows)

    def remove(self, rows: Numbers) -> None:
        done = 0
        while (done := k.remove_rows(self.arrays, rows, done)) < len(rows):
            self._make_room()
        self._row_count -= len(rows)
        self._removed += len(rows)
        self._turnover += len(rows)
        for signature, count in self._count_signatures(rows):
            words = int(self.arrays.signatures[signature, a.SIGN_WORDS])
            chosen = rows if count == len(rows) else rows[self.signatures_of(rows) == signature]
            self._words.free(self.arrays.rows[chosen, ROW_PLACE].astype(np.int64), max(words, 1))
        self._release_signatures(rows)

    def write_parts(self, rows: Numbers, parts: list[int], values: Keys) -> None:
        arrays, numbers = self.arrays, np.array(parts, dtype=np.int64)
        if b.write_bounds(arrays.rows, arrays.signatures, arrays.bounds, rows, numbers, values, self._moves):
            self._write_long(rows, parts, values)
        self._written += len(rows)
        self._update(rows)

    def _write_long(self, rows: Numbers, parts: list[int], values: Keys) -> None:
        """Insert again those of these rows that have no room for a new bound."""
        for signature, chosen, lows, highs in self._with_parts(rows, parts, values):
            is_long = np.empty(len(chosen), dtype=np.bool_)
            if b.find_long_bounds(self.arrays.signatures, signature, lows, highs, is_long):
                columns, shapes = self.signatures.columns[signature], self.signatures.shapes[signature]
                self.remove(chosen[is_long])
                number = self.signature(columns, shapes, _LONG)
                self.insert_chosen(chosen, number, lows, highs, np.flatnonzero(is_long))

    def _update(self, rows: Numbers) -> None:
        """Move rows to where their new bounds belong; most stay, with new codes."""
        done = 0
        while True:
            done = k.update_rows(self.arrays, rows, done, self._scratch)
            if done == len(rows):
                return
            self._make_room()

    def read(self, rows: Numbers, tests: int) -> tuple[Keys, Keys]:
        lows = np.empty((tests, len(rows)), dtype=np.int64)
        highs = np.empty((tests, len(rows)), dtype=np.int64)
        b.read_bounds(self.arrays, rows, lows, highs)
        return lows, highs

    def mark_string_ids(self, is_string: npt.NDArray[np.bool_], live: npt.NDArray[np.bool_]) -> None:
        b.mark_string_ids(self.arrays, is_string, self.row_top, live)

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
            self._assign(list(self._unassigned))
            waiting = np.concatenate(self._waiting)
            self._place(waiting, self._scratch, np.empty((0, 0), dtype=np.uint16), waiting, k.AT_ONCE)
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
        self._cut_columns = set(np.flatnonzero(counts).tolist())
        self.arrays = self.arrays._replace(coding=coding.lines, cuts=coding.cuts)
        ranges = self._sample_ranges()
        self.arrays = self.arrays._replace(reaches=range_classes(ranges.widest()))
        statistics = self._statistics(samples, counts, ranges)
        chosen = choose and self._policy.chooses_schemas
        schemas = choose_schemas(self._policy, statistics) if chosen else self.configuration.schemas
        self.configuration = plan(self._policy, statistics, schemas)
        self._assign(self.signatures.in_use())
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
        self.configuration = better
        lines = self.arrays.signatures
        before = lines[:, a.SIGN_TEMPLATE].copy()
        self._assign(self.signatures.in_use())
        moved = lines[:, a.SIGN_TEMPLATE] != before
        live = np.flatnonzero(self.arrays.where[: self.row_top, a.PLACE] != a.ABSENT)
        rows = live[moved[self.arrays.rows[live, ROW_SIGNATURE]]]
        if 2 * len(rows) > self._row_count:
            self._configure(choose=False)  # which chooses hashed ranges and first tests as well
        else:
            self._update(rows)

    def _assign(self, signatures: list[int]) -> None:
        """Give signatures their templates."""
        self.configuration.assign(self.arrays.signatures, np.array(signatures, dtype=np.int64))
        self._unassigned.clear()

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
        s.sample_ranges(self.arrays, rows, self._scratch, ranges)
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
            s.count_probes(self.arrays, keys, self.codes(keys), buffers.probe, buffers.queue, probed)
            s.count_checks(self.arrays, probed, LARGEST_MARGIN * len(keys), checks)
            checks /= len(keys)
        return checks

    # --- placing ----------------------------------------------------------------------------------

    def _place_all(self) -> None:
        """Place all rows anew, so that those of a bucket lie together."""
        self._removed = 0
        self._clear()
        where = self.arrays.where[: self.row_top]
        where[where[:, a.PLACE] >= 0, a.PLACE] = a.WAITING
        rows = np.flatnonzero(where[:, a.PLACE] == a.WAITING)
        tests = max((len(self.signatures.columns[n]) for n in self.signatures.in_use()), default=0)
        codes = np.empty((len(rows), 2 * min(tests, _KEPT_TESTS)), dtype=np.uint16)
        targets = np.full(len(rows), a.NONE, dtype=np.int64)
        self._place(rows, targets, codes, rows, k.COUNT)
        in_leaves = int(np.count_nonzero(targets >= k.IN_LEAVES))
        if in_leaves:
            leaves = empty_leaves(self.configuration.leaves, self.arrays.coding, in_leaves)
            self.arrays = self.arrays._replace(leaves=leaves)
        order = np.argsort(targets, kind="stable")
        self._place(rows[order], targets[order], codes, order, k.PUT)
        self.arrays.leaves.state[FILLED] = LEAF

    def _clear(self) -> None:
        state = self.arrays.state
        self._probes = 1  # the most buckets that an event may search
        state[:] = 0
        state[[a.BLOCK_FREE, a.BUCKET_FREE]] = a.NONE
        self.arrays.free[:] = a.NONE
        self.arrays.places[:] = a.NONE
        leaves = empty_leaves(self.configuration.leaves, self.arrays.coding, 0)
        self.arrays = self.arrays._replace(leaves=leaves)

    def _place(
        self, rows: Numbers, targets: Numbers, codes: npt.NDArray[np.uint16], order: Numbers, stage: int
    ) -> None:
        """Place rows that wait; see `placing_kernels.place_rows`."""
        done = 0
        while True:
            done = k.place_rows(self.arrays, rows, targets, codes, order, done, stage, self._scratch)
            if done == len(rows):
                return
            self._make_room()

    def _make_room(self) -> None:
        """Make the table that a kernel misses, or room for more of everything."""
        state = self.arrays.state
        schema = int(state[a.MISSING_TABLE])
        if schema == a.NONE:
            self.arrays = with_more(self.arrays)
            return
        ordered = not self._policy.propagation
        self.arrays, probes = with_table(self.arrays, schema, self.configuration, ordered=ordered)
        self._probes += probes
        state[a.MISSING_TABLE] = a.NONE

    def _trim(self) -> None:
        """Shrink arrays with much room; they grow in steps."""
        size = self.row_top + self.row_top // SPARE + 16
        if size < len(self.arrays.ids):
            self._resize_rows(size)
        self.arrays = trimmed(self.arrays, self._words.top, len(self.signatures.columns))

    # --- matching ---------------------------------------------------------------------------------

    def codes(self, keys: Keys) -> npt.NDArray[np.uint16]:
        """The codes of events' keys."""
        codes = np.empty((len(keys), min(keys.shape[1], a.NARROW_COLUMNS)), dtype=np.uint16)
        if keys.shape[1] > len(self.arrays.coding):  # derived columns without codes yet
            self.arrays = with_columns(self.arrays, keys.shape[1])
        m.code_events(self.arrays.coding, self.arrays.cuts, keys, codes)
        width = max(self.configuration.leaves, default=-1) + 1
        if width > codes.shape[1]:  # bitmaps of derived columns that nothing tests any more: all rows pass
            codes = np.pad(codes, ((0, 0), (0, width - codes.shape[1])))
        return codes

    def match(self, keys: Keys, *, shared: bool, ordered: bool) -> tuple[Numbers, Numbers]:
        self.prepare()
        self._events.add(keys)
        if self._pool is None or len(keys) < _FEWEST_SHARED * len(self._workers):
            return self._match_part(self._workers[0], keys, shared, ordered)
        parts = np.array_split(keys, len(self._workers))
        answers = list(
            self._pool.map(lambda w, part: self._match_part(w, part, shared, ordered), self._workers, parts)
        )
        ends = np.cumsum([0, *(offsets[-1] for offsets, _ in answers)])
        offsets = [offsets[1:] + end for (offsets, _), end in zip(answers, ends, strict=False)]
        zero = np.zeros(1, dtype=np.int64)
        return np.concatenate([zero, *offsets]), np.concatenate([ids for _, ids in answers])

    def _match_part(self, worker: Worker, keys: Keys, shared: bool, ordered: bool) -> tuple[Numbers, Numbers]:
        self._fit_buffers(worker)
        codes = self.codes(keys)
        offsets = np.zeros(len(keys) + 1, dtype=np.int64)
        if shared:
            worker.fit_seen(len(self.arrays.ids))
        out = worker.answer()
        done = 0
        while True:
            done = m.match_events(
                self.arrays, keys, codes, done, self._policy.lookahead, shared, ordered,
                worker.buffers, offsets, out,
            )  # fmt: skip
            if done == len(keys):
                break
            out = worker.enlarge(int(offsets[done]))
        ids = out[: offsets[-1]]
        worker.room = max(1024, len(ids) * 5 // 4)
        return offsets, ids if 4 * len(ids) > len(out) else ids.copy()

    def _fit_buffers(self, worker: Worker) -> None:
        worker.fit(self._probes, self.arrays.leaves)

    def match_bits(self, keys: Keys, bits: npt.NDArray[np.uint64], interfaces: int) -> None:
        self.prepare()
        self._events.add(keys)
        self._fit_buffers(self._workers[0])
        m.match_bits(self.arrays, keys, self.codes(keys), interfaces, self._workers[0].buffers, bits)

    # --- inspection -------------------------------------------------------------------------------

    def structure_bytes(self) -> dict[str, int]:
        arrays = self.arrays
        parts: dict[str, tuple[npt.NDArray[Any], ...]] = {
            "bounds": (arrays.bounds,),
            "slots and directories": (arrays.bytes,),
            "access index": (arrays.places, arrays.buckets, arrays.blocks),
            "codes": (arrays.coding, arrays.cuts),
            "signatures and tables": (arrays.signatures, arrays.tables),
            "places of rows": (arrays.where,),
            "leaves": tuple(arrays.leaves),
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
