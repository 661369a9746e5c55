"""The rows of the cluster engine: in buckets by access predicate, under a hashing configuration (Fabret et
al. 2001, 2-4).

Rows that are added wait until the next match. Then they are placed; or, when there are twice as many as
when the configuration was chosen, codes and configuration are chosen anew and all rows are placed again,
which so costs a constant per row. Invariant: kernels find room for at least one more of everything.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from math import ceil, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.plan import Shape
from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import LAST, Keys, largest_key
from covey.matcher.engine import MAX_INTERFACE
from covey.matcher.engines.cluster import arrays as a
from covey.matcher.engines.cluster import bounds_kernels as b
from covey.matcher.engines.cluster import match_kernels as m
from covey.matcher.engines.cluster import placing_kernels as k
from covey.matcher.engines.cluster.code_kernels import HASHED
from covey.matcher.engines.cluster.coding import Coding
from covey.matcher.engines.cluster.leaves import arrays as f
from covey.matcher.engines.cluster.leaves.leaves import empty_leaves, is_sparse, leaf_buffers, with_room
from covey.matcher.engines.cluster.tuning.planning import Planner
from covey.matcher.engines.cluster.tuning.statistics import EventSample
from covey.matcher.engines.cluster.worker import Worker
from covey.matcher.engines.rows import kernels as r
from covey.matcher.engines.rows.store import SPARE, Numbers, RowStore, Stretches, grown
from covey.matcher.events.event_type import EventType, Kind

_FEW = 64
_SAMPLES = 1 << 18
_RENEWED, _MANY = 4, 1 << 16
"""Codes are chosen anew after so many changes per row, and so many more: bounds may have drifted."""
_MOST_WAITING = 1 << 14
"""Insertions between two matches from which on rows that wait and those that have gone are told apart."""
_SCATTERED = 4
"""Rows are placed anew after one in so many, and some more, is gone: what comes instead lies scattered."""
_FEWEST_SHARED = 64
"""Events per thread from which on sharing a batch pays."""
_KEPT_TESTS = 8
"""Tests of a row whose codes are kept while rows are placed anew."""


class ClusterStore(RowStore):
    """Rows by access predicate; `planner` chooses the configuration, `threads` share a batch."""

    def __init__(self, event_type: EventType, planner: Planner, threads: int = 1) -> None:
        super().__init__(event_type)
        self._tops = np.array([largest_key(kind) for kind in event_type.kinds], dtype=np.int64)
        self.planner = planner
        self.configuration = planner.first()
        self.events = EventSample()
        self.moves = np.zeros(len(event_type.names), dtype=np.int64)
        """How many new values equalities on each column got."""
        self.turnover = 0
        """Rows ever added, and removed."""
        self._changed_before = 0  # the turnover when codes were chosen
        self.count = 0
        self._configured = 0
        self._written = 0
        self._removed = 0
        self._uncoded = 0  # rows added since, with tests on columns that have no cuts yet
        self._coded: set[int] = set()  # columns whose bounds were looked at when cuts were chosen
        self._waiting: list[Numbers] = []
        self._unassigned: dict[int, None] = {}  # signatures that have no template yet
        self._words = Stretches()
        self.workers = [Worker() for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self.scratch = np.zeros(HASHED + 16, dtype=np.int64)
        coding = Coding.without_cuts(self._tops)
        self.store = a.Store(
            state=np.zeros(a.STATE, dtype=np.int64),
            free=np.full(a.FREE_LISTS, a.NONE, dtype=np.int64),
            capacities=np.tile(np.array(a.CAPACITIES, dtype=np.int64), a.NARROW + 1),
            tables=np.zeros((16, a.TABLE_FIELDS), dtype=np.int64),
            signatures=np.zeros((16, a.SIGN_TESTS + 4 * a.TEST_FIELDS), dtype=np.int32),
            places=np.full(64, a.NONE, dtype=np.int32),
            buckets=np.zeros((16, a.BUCKET_KEYS + a.ACCESS), dtype=np.int64),
            blocks=np.zeros((16, a.BLOCK_FIELDS), dtype=np.int32),
            **_pool(3 * a.LARGEST_BLOCK, np.zeros(0, dtype=np.uint8)),
            bounds=np.zeros(64, dtype=np.int32),
            coding=coding.lines,
            cuts=coding.cuts,
            reaches=ladder(1),
            rows=self.arrays.rows,
            ids=self.arrays.ids,
            where=np.full((len(self.arrays.ids), 2), a.ABSENT, dtype=np.int32),
            keys=np.zeros(a.ACCESS + 2, dtype=np.int64),
            sorting=np.zeros(a.MOST, dtype=np.int64),
            leaves=empty_leaves((), coding.lines, 0),
        )
        self._clear()

    # --- rows -------------------------------------------------------------------------------------

    def shapes(self, signature: int) -> tuple[int, ...]:
        """The shapes of a signature's tests."""
        return self.shapes_of[signature] or (Shape.BOTH,) * len(self.columns_of[signature])

    def is_live(self, rows: Numbers) -> npt.NDArray[np.bool_]:
        """Which of these rows are in the store."""
        live: npt.NDArray[np.bool_] = self.store.where[rows, a.PLACE] != a.ABSENT
        return live

    def _new_signature(self, signature: int) -> None:
        columns, shapes = self.columns_of[signature], self.shapes(signature)
        long_kinds = (Kind.FLOAT64, Kind.TIMESTAMP, *([Kind.INT64] if self.is_long[signature] else []))
        kinds = self.event_type.kinds  # of attributes; other columns are true or false
        width = a.SIGN_TESTS + a.TEST_FIELDS * len(columns)
        old = self.store.signatures
        if signature >= len(old) or width > old.shape[1]:
            lines = max(len(old), signature + 1, 2 * len(old) if signature >= len(old) else 0)
            wider = np.zeros((lines, max(width, old.shape[1])), dtype=np.int32)
            wider[: len(old), : old.shape[1]] = old
            self.store = self.store._replace(signatures=wider)
            self.scratch = np.zeros(HASHED + 2 * wider.shape[1], dtype=np.int64)
        tests: list[int] = []
        words = 0
        for column, shape in zip(columns, shapes, strict=True):
            long = column < len(kinds) and kinds[column] in long_kinds
            tests += (column, int(shape), words, long)
            words += (1 + long) * (2 if shape == Shape.BOTH else 1)
        line = self.store.signatures[signature]
        line[:] = 0
        line[a.SIGN_TESTS : a.SIGN_TESTS + len(tests)] = tests
        line[a.SIGN_SIZE], line[a.SIGN_WORDS] = len(columns), words
        if columns and max(columns) >= len(self.store.coding):
            more = grown(self.store.coding, max(max(columns) + 1, 2 * len(self.store.coding)))
            more[len(self.store.coding) :, a.CODE_TOP] = LAST
            self.store = self.store._replace(coding=more)
            self.moves = grown(self.moves, len(more))
        self._unassigned[signature] = None

    def insert(self, rows: Numbers, signature: int, lows: Keys, highs: Keys) -> None:
        """As `RowStore.insert`; rows with a bound that does not fit its word go to the signature that has
        room for it.
        """
        beyond = np.empty(len(rows), dtype=np.bool_)
        if not b.find_long(self.store.signatures, signature, lows, highs, beyond):
            super().insert(rows, signature, lows, highs)
            return
        columns, shapes = self.columns_of[signature], self.shapes_of[signature]
        for long in (False, True):
            chosen = np.flatnonzero(beyond == long)
            if len(chosen):
                self.insert_part(rows, self.signature(columns, shapes, long=long), lows, highs, chosen)
        self._leave_signature(signature, 0)

    def _insert(self, rows: Numbers, columns: Keys, lows: Keys, highs: Keys) -> None:
        if not len(rows):
            return
        signature = int(self.arrays.rows[rows[0], r.ROW_SIGNATURE])
        line = self.store.signatures[signature]
        places = self._words.take(len(rows), max(int(line[a.SIGN_WORDS]), 1))
        if self._words.top > len(self.store.bounds):
            size = max(self._words.top, len(self.store.bounds) * 5 // 4)
            self.store = self.store._replace(bounds=grown(self.store.bounds, size))
        b.insert_rows(
            self.store.rows,
            self.store.where,
            self.store.signatures,
            self.store.bounds,
            rows,
            places,
            lows,
            highs,
        )
        if any(c < a.NARROW_COLUMNS and c not in self._coded for c in self.columns_of[signature]):
            self._uncoded += len(rows)
        self._waiting.append(rows)
        if len(self._waiting) > _MOST_WAITING:  # as when subscriptions come and go, and no events
            rows = np.unique(np.concatenate(self._waiting))
            self._waiting = [rows[self.store.where[rows, a.PLACE] == a.WAITING]]
        self.count += len(rows)
        self.turnover += len(rows)

    def _remove(self, rows: Numbers) -> None:
        done = 0
        while (done := k.remove_rows(self.store, rows, done)) < len(rows):
            self._make_room()
        self.count -= len(rows)
        self._removed += len(rows)
        self.turnover += len(rows)
        for signature, count in self._count_signatures(rows):
            words = int(self.store.signatures[signature, a.SIGN_WORDS])
            chosen = rows if count == len(rows) else rows[self.signatures_of(rows) == signature]
            self._words.give(self.arrays.rows[chosen, r.ROW_PLACE].astype(np.int64), max(words, 1))

    def write_parts(self, rows: Numbers, parts: list[int], values: Keys) -> None:
        """Give rows several bounds, values[p, i] for parts[p]: 1 + 2t is test t's low end, 2 + 2t its high
        end, in this order.
        """
        s, numbers = self.store, np.array(parts, dtype=np.int64)
        if b.write_bounds(s.rows, s.signatures, s.bounds, rows, numbers, values, self.moves):
            self._write_long(rows, parts, values)
        self._written += len(rows)
        self.settle(rows)

    def _write_long(self, rows: Numbers, parts: list[int], values: Keys) -> None:
        """Put those of these rows in again that have no room for a new bound."""
        for signature, here, lows, highs in self._with_parts(rows, parts, values):
            beyond = np.empty(len(here), dtype=np.bool_)
            if b.find_long(self.store.signatures, signature, lows, highs, beyond):
                columns, shapes = self.columns_of[signature], self.shapes_of[signature]
                self.remove(here[beyond])
                long = self.signature(columns, shapes, long=True)
                self.insert_part(here, long, lows, highs, np.flatnonzero(beyond))

    def settle(self, rows: Numbers) -> None:
        """Bring rows to where their new bounds belong; most stay, with new codes."""
        done = 0
        while True:
            done = k.settle_rows(self.store, rows, done, self.scratch)
            if done == len(rows):
                return
            self._make_room()

    def _change(self, rows: Numbers, test: int, lows: Keys, highs: Keys) -> None:
        raise AssertionError("the cluster engine writes bounds at once")

    def _read(self, rows: Numbers, tests: int) -> tuple[Keys, Keys]:
        lows = np.empty((tests, len(rows)), dtype=np.int64)
        highs = np.empty((tests, len(rows)), dtype=np.int64)
        b.read_bounds(self.store, rows, lows, highs)
        return lows, highs

    def _grow_rows(self, size: int) -> None:
        where = grown(self.store.where, size, a.ABSENT)
        self.store = self.store._replace(rows=self.arrays.rows, ids=self.arrays.ids, where=where)

    # --- placing ----------------------------------------------------------------------------------

    def _prepare(self) -> None:
        grown_much = self.count > 2 * self._configured + _FEW
        changed = self._written + self.turnover - self._changed_before
        drifted = changed > _RENEWED * self._configured + _MANY
        sparse = is_sparse(self.store.leaves)
        if grown_much or drifted or sparse or self._uncoded > _FEW + self._configured // _FEW:
            self.configure(anew=grown_much)
        elif self._waiting:
            self._assign(list(self._unassigned))
            self._place(np.concatenate(self._waiting))
        self._waiting.clear()
        if _SCATTERED * self._removed > self.count + _MANY // 4:
            self.place_all()
            self._trim()
        if self.planner.is_due(self):
            self.maintain()

    def configure(self, *, anew: bool = True) -> None:
        """Choose codes, and where it is to be `anew` a hashing configuration, for what there is now, and
        place all rows; cost: about a microsecond per row.
        """
        self._configured, self._written, self._uncoded = self.count, 0, 0
        self._changed_before = self.turnover
        samples, counts = self.sample()
        tops = np.full(max(len(counts), len(self.store.coding)), LAST, dtype=np.int64)
        tops[: len(self._tops)] = self._tops
        coding = Coding.of(samples, counts, self.count, tops)
        self._coded = set(np.flatnonzero(counts).tolist())
        self.store = self.store._replace(coding=coding.lines, cuts=coding.cuts)
        self.store = self.store._replace(reaches=ladder(self.planner.widest(self)))
        self.configuration = self.planner.plan(self, samples, counts, anew)
        self._assign(self._live_signatures())
        self.place_all()
        self._trim()

    def _live_signatures(self) -> list[int]:
        return [signature for signature, rows in enumerate(self.signature_rows) if rows]

    def _assign(self, signatures: list[int]) -> None:
        """Give signatures their templates."""
        self.configuration.assign(self.store.signatures, np.array(signatures, dtype=np.int64))
        self._unassigned.clear()

    def maintain(self) -> None:
        """Let the planner look for a better configuration, and move the rows that it concerns."""
        found = self.planner.improve(self)
        if found is None:
            return
        self.configuration = found
        lines = self.store.signatures
        before = lines[:, a.SIGN_TEMPLATE].copy()
        self._assign(self._live_signatures())
        moved = lines[:, a.SIGN_TEMPLATE] != before
        live = np.flatnonzero(self.is_live(np.arange(self.row_top)))
        rows = live[moved[self.arrays.rows[live, r.ROW_SIGNATURE]]]
        if 2 * len(rows) > self.count:
            self.configure(anew=False)  # also which ranges are hashed, and what comes first
        else:
            self.settle(rows)

    def columns_in_use(self) -> int:
        """One more than the highest column that has codes and that rows test."""
        return max(len(self._tops), *(c + 1 for cs in self.columns_of for c in cs if c < a.NARROW_COLUMNS), 0)

    def sample(self) -> tuple[Keys, Numbers]:
        """Some of the bounds on each column c, [c, :counts[c]], and the counts."""
        columns = self.columns_in_use()
        samples = np.empty((columns, min(_SAMPLES, 2 * self.count + 1)), dtype=np.int64)
        counts = np.zeros(columns, dtype=np.int64)
        b.sample_bounds(self.store, self.row_top, max(1, self.count // (_SAMPLES // 2)), samples, counts)
        return samples, counts

    def _trim(self) -> None:
        """Give back what there is room for beyond a little; it grows in steps."""
        self.trim_rows()
        s, state = self.store, self.store.state
        sizes = {
            "bounds": (self._words.top, 64),
            "buckets": (int(state[a.BUCKET_TOP]), 16),
            "blocks": (int(state[a.BLOCK_TOP]), 16),
            "signatures": (len(self.columns_of), 16),
        }
        for name, (used, least) in sizes.items():
            size = used + used // SPARE + least
            if size < len(getattr(s, name)):
                change: dict[str, Any] = {name: grown(getattr(s, name), size)}
                self.store = s = s._replace(**change)
        leaves = int(s.leaves.state[f.LEAF_TOP]) * (SPARE + 1) // SPARE + 1
        if leaves < len(s.leaves.lines):
            self.store = s = s._replace(leaves=with_room(s.leaves, leaves))
        units = int(state[a.UNIT_TOP]) * (SPARE + 1) // SPARE
        units += 3 * (a.LARGEST_BLOCK + int(state[a.LARGEST_DIRECTORY]))
        if units < len(s.longs):
            self.store = s._replace(**_pool(units, s.bytes))

    def place_all(self) -> None:
        """Place all rows anew, so that they lie together."""
        self._removed = 0
        self._clear()
        where = self.store.where[: self.row_top]
        where[where[:, a.PLACE] >= 0, a.PLACE] = a.WAITING
        rows = np.flatnonzero(where[:, a.PLACE] == a.WAITING)
        tests = max((len(self.columns_of[s]) for s in self._live_signatures()), default=0)
        codes = np.empty((len(rows), 2 * min(tests, _KEPT_TESTS)), dtype=np.uint16)
        belongs = np.full(len(rows), a.NONE, dtype=np.int64)
        self._place_some(rows, belongs, codes, rows, k.COUNT)
        in_leaves = int(np.count_nonzero(belongs >= k.IN_LEAVES))
        if in_leaves:
            leaves = empty_leaves(self.configuration.leaves, self.store.coding, in_leaves)
            self.store = self.store._replace(leaves=leaves)
        order = np.argsort(belongs, kind="stable")
        self._place_some(rows[order], belongs[order], codes, order, k.PUT)
        self.store.leaves.state[f.FILLED] = f.LEAF

    def _clear(self) -> None:
        state = self.store.state
        self._probes = 1  # the most buckets that an event may look into
        state[:] = 0
        state[[a.BLOCK_FREE, a.BUCKET_FREE]] = a.NONE
        self.store.free[:] = a.NONE
        self.store.places[:] = a.NONE
        leaves = empty_leaves(self.configuration.leaves, self.store.coding, 0)
        self.store = self.store._replace(leaves=leaves)

    def _place(self, rows: Numbers) -> None:
        """Place rows that wait where they belong."""
        self._place_some(rows, self.scratch, np.empty((0, 0), dtype=np.uint16), rows, k.AT_ONCE)

    def _place_some(
        self, rows: Numbers, belongs: Numbers, codes: npt.NDArray[np.uint16], order: Numbers, stage: int
    ) -> None:
        done = 0
        while True:
            done = k.place_rows(self.store, rows, belongs, codes, order, done, stage, self.scratch)
            if done == len(rows):
                return
            self._make_room()

    def _make_room(self) -> None:
        s, state = self.store, self.store.state
        if state[a.WANTED] != a.NONE:
            self._make_table(int(state[a.WANTED]))
            state[a.WANTED] = a.NONE
            return
        units, margin = len(s.longs), 2 * a.LARGEST_BLOCK + 3 * int(state[a.LARGEST_DIRECTORY])
        if state[a.UNIT_TOP] + margin > units:
            self.store = s = s._replace(**_pool(max(units * 9 // 8, units + margin), s.bytes))
        if state[a.BLOCK_TOP] >= len(s.blocks):
            self.store = s = s._replace(blocks=grown(s.blocks, len(s.blocks) * 5 // 4 + 16))
        if state[a.BUCKET_TOP] >= len(s.buckets):
            self.store = s = s._replace(buckets=grown(s.buckets, len(s.buckets) * 5 // 4 + 16))
        if s.leaves.state[f.LEAF_FREE] == a.NONE and s.leaves.state[f.LEAF_TOP] >= len(s.leaves.lines):
            self.store = s = s._replace(leaves=with_room(s.leaves, len(s.leaves.lines) * 5 // 4 + 1))
        if 2 * state[a.PLACES_USED] >= len(s.places):
            live = int(s.tables[: state[a.TABLES], a.TABLE_BUCKETS].sum() + state[a.TABLES])
            places = np.full(max(64, 1 << (4 * live).bit_length()), a.NONE, dtype=np.int32)
            self.store = s._replace(places=places)
            k.rehash(self.store)

    def _make_table(self, code: int) -> None:
        """A table for the access schema of a code (`cluster_kernels.find_schema`)."""
        bits = k.COLUMN_BITS + k.CLASS_BITS
        ranged = [code >> bits, code] if code >> 2 * bits else []
        template = self.configuration.templates[code >> 2 * bits if ranged else code]
        head, order = (template.head[0], template.head[1]) if template.head else (a.NONE, a.NONE)
        parts = [(column, a.NONE, 0) for column in template.schema]
        for part in ranged:
            column = (part >> k.CLASS_BITS & (1 << k.COLUMN_BITS) - 1) - 1
            chosen = part & (1 << k.CLASS_BITS) - 1
            if column >= 0:
                reach = int(self.store.reaches[chosen])
                shift = reach.bit_length() - 1 - (2 if template.ranges == 1 else 0)
                parts.append((column, reach, max(0, shift)))
        number = int(self.store.state[a.TABLES])
        if number >= len(self.store.tables):
            self.store = self.store._replace(tables=grown(self.store.tables, 2 * number))
        line = self.store.tables[number]
        line[:] = 0
        line[a.TABLE_CODE], line[a.TABLE_WIDTH], line[a.TABLE_TESTS] = code, len(parts), template.tests
        line[a.TABLE_HEAD], line[a.TABLE_ORDER] = head, order if self.planner.ordered else a.NONE
        for at, fields in enumerate(parts):
            start = a.TABLE_PARTS + a.PART_FIELDS * at
            line[start : start + a.PART_FIELDS] = fields
        self._probes += prod((reach >> shift) + 2 for _, reach, shift in parts if reach != a.NONE)
        self.store.state[a.TABLES] = number + 1
        self.store.places[:] = a.NONE
        k.rehash(self.store)

    # --- matching ---------------------------------------------------------------------------------

    def codes(self, keys: Keys) -> npt.NDArray[np.uint16]:
        codes = np.empty((len(keys), min(keys.shape[1], a.NARROW_COLUMNS)), dtype=np.uint16)
        if keys.shape[1] > len(self.store.coding):  # derived columns that nothing tests with codes yet
            more = grown(self.store.coding, keys.shape[1])
            more[len(self.store.coding) :, a.CODE_TOP] = LAST
            self.store = self.store._replace(coding=more)
        m.code_events(self.store.coding, self.store.cuts, keys, codes)
        width = max(self.configuration.leaves, default=-1) + 1
        if width > codes.shape[1]:  # bitmaps of derived columns that nothing tests any more: all rows pass
            codes = np.pad(codes, ((0, 0), (0, width - codes.shape[1])))
        return codes

    def match(self, keys: Keys, *, shared: bool, ordered: bool) -> tuple[Numbers, Numbers]:
        """CSR offsets and ids of the subscriptions that each event's keys match, each id once."""
        self._prepare()
        self.events.note(keys)
        if self._pool is None or len(keys) < _FEWEST_SHARED * len(self.workers):
            return self._match_part(self.workers[0], keys, shared, ordered)
        parts = np.array_split(keys, len(self.workers))
        answers = list(
            self._pool.map(lambda w, part: self._match_part(w, part, shared, ordered), self.workers, parts)
        )
        ends = np.cumsum([0, *(offsets[-1] for offsets, _ in answers)])
        offsets = [offsets[1:] + end for (offsets, _), end in zip(answers, ends, strict=False)]
        zero = np.zeros(1, dtype=np.int64)
        return np.concatenate([zero, *offsets]), np.concatenate([ids for _, ids in answers])

    def _match_part(self, worker: Worker, keys: Keys, shared: bool, ordered: bool) -> tuple[Numbers, Numbers]:
        self._prepare_buffers(worker)
        codes = self.codes(keys)
        offsets = np.zeros(len(keys) + 1, dtype=np.int64)
        if shared and len(worker.seen) <= len(self.arrays.ids):
            worker.seen = np.zeros(len(self.arrays.ids) + 1, dtype=np.int64)
        out = worker.answer()
        done = 0
        while True:
            done = m.match_events(
                self.store, keys, codes, done, self.planner.ahead, shared, ordered,
                worker.seen, worker.buffers, offsets, out,
            )  # fmt: skip
            if done == len(keys):
                break
            out = worker.enlarge(int(offsets[done]))
        found = out[: offsets[-1]]
        worker.room = max(1024, len(found) * 5 // 4)
        return offsets, found if 4 * len(found) > len(out) else found.copy()

    def _prepare_buffers(self, worker: Worker) -> None:
        buffers, leaves = worker.buffers, self.store.leaves
        if len(buffers.queue) < self._probes:
            queue = np.zeros((self._probes, m.QUEUE_FIELDS), dtype=np.int64)
            worker.buffers = buffers = buffers._replace(queue=queue)
        if len(buffers.leaf.listed) <= len(leaves.lines) or len(buffers.leaf.lines) < len(leaves.columns):
            worker.buffers = buffers._replace(leaf=leaf_buffers(leaves))

    def match_bits(
        self, keys: Keys, bits: npt.NDArray[np.uint64], interfaces: int = MAX_INTERFACE + 1
    ) -> None:
        """Set the bits of the interfaces that each event matches; `interfaces` is how many are in use."""
        self._prepare()
        self.events.note(keys)
        self._prepare_buffers(self.workers[0])
        m.match_bits(self.store, keys, self.codes(keys), interfaces, self.workers[0].buffers, bits)

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        raise AssertionError("the cluster engine finds ids at once")

    # --- what a structure says --------------------------------------------------------------------

    def mark_codes(self, is_string: npt.NDArray[np.bool_], live: npt.NDArray[np.bool_]) -> None:
        """Mark the string codes that rows name."""
        b.mark_codes(self.store, is_string, self.row_top, live)

    def structure_bytes(self) -> dict[str, int]:
        """What the structure takes, in bytes, by part."""
        s = self.store
        parts: dict[str, tuple[npt.NDArray[Any], ...]] = {
            "bounds": (s.bounds,),
            "slots and directories": (s.bytes,),
            "access index": (s.places, s.buckets, s.blocks),
            "codes": (s.coding, s.cuts),
            "signatures and tables": (s.signatures, s.tables),
            "places of rows": (s.where,),
            "leaves": tuple(s.leaves),
        }
        return {name: sum(array.nbytes for array in arrays) for name, arrays in parts.items()}

    def render(self, columns: Columns) -> list[str]:
        """The structure: a line per access schema, with what its rows test first where that is one column,
        and one per signature.
        """
        self._prepare()
        totals: dict[str, list[int]] = {}
        for line in self.store.tables[: self.store.state[a.TABLES]].tolist():
            parts = line[a.TABLE_PARTS :][: a.PART_FIELDS * line[a.TABLE_WIDTH]]
            pairs = list(zip(parts[:: a.PART_FIELDS], parts[a.PART_REACH :: a.PART_FIELDS], strict=True))
            names = [
                f"{columns.describe(column)}{' near' if reach != a.NONE else ''}" for column, reach in pairs
            ]
            words = f"table ({', '.join(names) or 'no access predicate'})"
            if line[a.TABLE_HEAD] != a.NONE:
                words += f" before {columns.describe(line[a.TABLE_HEAD])}"
            total = totals.setdefault(words, [0, 0])
            total[0] += line[a.TABLE_BUCKETS]
            total[1] += line[a.TABLE_ROWS]
        lines = [
            f"{words}: {_some(buckets, 'bucket')}, {_some(rows, 'row')}"
            for words, (buckets, rows) in totals.items()
            if rows
        ]
        leaves = self.store.leaves.state
        if leaves[f.LEAF_ROWS]:
            used_by = zip(self.columns_of, self.signature_rows, strict=True)
            live = {column for tested, count in used_by if count for column in tested}
            names = [columns.describe(column) for column in self.configuration.leaves if column in live]
            used, rows = int(leaves[f.LEAVES_USED]), int(leaves[f.LEAF_ROWS])
            words = f"bitmaps ({', '.join(names)}) of {leaves[f.BINS]} bins"
            lines.append(f"{words}: {_some(used, 'leaf', 'leaves')}, {_some(rows, 'row')}")
        tests: dict[tuple[int, ...], int] = {}
        for tested, rows in zip(self.columns_of, self.signature_rows, strict=True):
            tests[tested] = tests.get(tested, 0) + rows
        for tested, rows in tests.items():
            if rows:
                names = [columns.describe(column) for column in tested]
                lines.append(f"tests ({', '.join(names) or 'nothing to test'}): {_some(rows, 'row')}")
        return lines


def ladder(widest: int) -> Keys:
    """The reach of every class of ranges: half an octave apart, `widest` one of them at an even place. The
    last two, one even and one odd, reach across all codes, so that every range has a class.
    """
    middle = 1 << k.CLASS_BITS - 1
    reaches = np.array([ceil(widest * 2.0 ** ((i - middle) / 2)) for i in range(2 * middle)], dtype=np.int64)
    reaches[-2:] = np.maximum(reaches[-2:], a.NEVER)
    return reaches


def _some(count: int, thing: str, things: str = "") -> str:
    return f"{count} {thing if count == 1 else things or thing + 's'}"


def _pool(units: int, old: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """The pool with room for so many units, as the store has it."""
    data = grown(old, 8 * units)
    views = {"shorts": np.uint16, "words": np.int32, "longs": np.int64}
    return {"bytes": data, **{name: data.view(kind) for name, kind in views.items()}}
