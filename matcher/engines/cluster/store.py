"""The rows of the cluster engine, their bounds above all; a `Placement` decides where they are."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.plan import Shape
from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.schema_columns import SchemaColumns
from covey.matcher.engines.cluster import match_kernels as m
from covey.matcher.engines.cluster import row_bounds_kernels as b
from covey.matcher.engines.cluster.arrangement import Arrangement
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.arrays import LEAF, LEAF_ROWS
from covey.matcher.engines.cluster.leaves.search_kernels import COUNTS, IDS, INTERFACES, SLICE, search_leaves
from covey.matcher.engines.cluster.placement import Placement
from covey.matcher.engines.cluster.report import render_store
from covey.matcher.engines.cluster.tuning.configuration import Configuration, Policy
from covey.matcher.engines.cluster.worker import MOST_FEW, FewSearch, Worker
from covey.matcher.engines.rows.arrays import SPARE, Numbers, Runs, grown, resized, wide
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.engines.rows.store import ALL, RowStore
from covey.matcher.events.event_type import EventType, Kind

_FEWEST_SHARED = 64  # events per thread from which on sharing a batch pays
_PREFERRED = (a.FOUR_BYTES, a.TWO_BYTES, a.ONE_BYTE, a.EIGHT_BYTES)
"""Variants of a signature for new rows, if rows have them: few variants are worth some bytes."""

_NO_IDS = np.zeros(0, dtype=np.int64)
_NO_BITS = np.zeros((0, 1), dtype=np.uint64)

_Answer = TypeVar("_Answer")


class ClusterStore(RowStore):
    """Rows by access predicate; `policy` limits the configuration, `threads` share a batch."""

    def __init__(self, event_type: EventType, policy: Policy, threads: int = 1) -> None:
        super().__init__(event_type)
        self._policy = policy
        self._bound_bytes = Runs("bytes of bounds")
        self._kept_search: FewSearch | None = None
        self._workers = [Worker() for _ in range(threads)]
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        tops = self.schema.tops()
        self.placement = Placement(tops, policy, self.signatures, self._row_numbers, self._workers[0])

    def widen(self, event_type: EventType, schema: SchemaColumns) -> None:
        super().widen(event_type, schema)
        self.placement.widen(schema.tops())

    @property
    def arrays(self) -> a.StoreArrays:  # type: ignore[override]
        """The arrays of the arrangement where rows are placed."""
        return self.placement.arrangement.arrays

    @property
    def configuration(self) -> Configuration:
        return self.placement.arrangement.configuration

    # --- rows -------------------------------------------------------------------------------------

    def _resize_rows(self, size: int) -> None:
        old = self.arrays
        self.placement.replace(
            rows=grown(old.rows, size, -1), ids=grown(old.ids, size), where=grown(old.where, size, a.ABSENT)
        )

    def widen_ids(self) -> None:
        self.placement.replace(ids=wide(self.arrays.ids))

    def signature(self, columns: tuple[int, ...], shapes: tuple[int, ...] = (), plan: int = 0) -> int:
        """As `RowStore.signature`; some variant, from which `insert` moves rows to others if need be."""
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
        self._write_signatures([number])
        return number

    def _write_signatures(self, signatures: list[int]) -> None:
        columns, shapes = self.signatures.columns[signatures[0]], self.signatures.shapes[signatures[0]]
        widths = {Kind.FLOAT64: 8, Kind.TIMESTAMP: 8, Kind.BOOL: 1}
        kinds = self.schema.kinds  # of attributes; the others are ranks and derived bools
        tests: list[int] = []
        size = 0
        for column, shape in zip(columns, shapes, strict=True):
            kind = kinds.get(column, Kind.INT64 if shape == Shape.EQUAL else Kind.BOOL)
            width = widths.get(kind, 1 << self.signatures.variants[signatures[0]])
            if self.schema.is_of_ranks(column):
                width = 8
            tests += (column, int(shape), size, width, kind not in widths)
            size += width * (2 if shape == Shape.BOTH else 1)
        self.placement.write_signatures(signatures, size, tests)

    def insert(self, rows: Numbers, signature: int, lows: Keys, highs: Keys) -> None:
        """As `RowStore.insert`; rows get another variant if this one cannot hold their bounds, or wastes
        bytes.
        """
        widths = np.empty(len(rows), dtype=np.uint8)
        highest = b.find_widths(self.arrays.signatures, signature, lows, highs, widths)
        variant = self.signatures.variants[signature]
        if highest <= variant < a.EIGHT_BYTES:
            self._insert(rows, signature, lows, highs)
            return
        wide = widths == a.EIGHT_BYTES
        if variant == a.EIGHT_BYTES and wide.all():
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

    def insert_alike(
        self,
        rows: Numbers,
        columns: list[tuple[int, ...]],
        shapes: tuple[int, ...],
        plans: list[int],
        of_plan: Numbers,
        lows: Keys,
        highs: Keys,
    ) -> None:
        probe = self.signature(columns[0], shapes, plans[0])
        widths = np.empty(len(rows), dtype=np.uint8)
        b.find_widths(self.arrays.signatures, probe, lows, highs, widths)
        wide = widths == a.EIGHT_BYTES
        needed = np.zeros(len(plans), dtype=np.uint8)
        np.maximum.at(needed, of_plan[~wide], widths[~wide])
        has_narrow = np.bincount(of_plan[~wide], minlength=len(plans)) > 0
        chosen: dict[int, list[int]] = {}  # the plans whose rows get a variant
        for n, (variant, narrow) in enumerate(zip(needed.tolist(), has_narrow.tolist(), strict=True)):
            if narrow:
                known = self.signatures.find(columns[n], shapes, plans[n])
                usable = [each for each in _PREFERRED[:3] if each in known and each >= variant]
                chosen.setdefault(usable[0] if usable else variant, []).append(n)
        if wide.any():
            chosen.setdefault(a.EIGHT_BYTES, []).extend(np.unique(of_plan[wide]).tolist())
        for variant, members in chosen.items():
            place = np.full(len(plans), a.NONE, dtype=np.int64)
            place[members] = np.arange(len(members))
            of_member = place[of_plan]
            is_mine = (of_member >= 0) & (wide == (variant == a.EIGHT_BYTES))
            numbers = self._variants([(columns[n], shapes, plans[n]) for n in members], variant)
            if is_mine.all():
                self._insert_alike(rows, numbers, of_member, lows, highs)
            else:
                mine = np.flatnonzero(is_mine)
                low, high = np.ascontiguousarray(lows[:, mine]), np.ascontiguousarray(highs[:, mine])
                self._insert_alike(rows[mine], numbers, of_member[mine], low, high)
        if self.signatures.row_counts[probe] == 0:
            self.signatures.release(probe, 0)

    def _variants(
        self, signed: list[tuple[tuple[int, ...], tuple[int, ...], int]], variant: int
    ) -> list[int]:
        """The numbers of a variant of signatures (columns, shapes, plan) of equal shapes."""
        numbers, new = [], []
        for each in signed:
            number = self.signatures.find(*each).get(variant)
            if number is None:
                number = self.signatures.add(*each, variant)
                new.append(number)
            numbers.append(number)
        if new:
            self._write_signatures(new)
        return numbers

    def _insert_alike(
        self, rows: Numbers, signatures: list[int], of_signature: Numbers, lows: Keys, highs: Keys
    ) -> None:
        places = self._places(len(rows), signatures[0])
        self.arrays.rows[rows, ROW_SIGNATURE] = np.array(signatures)[of_signature]
        counts = np.bincount(of_signature, minlength=len(signatures))
        for signature, count in zip(signatures, counts.tolist(), strict=True):
            self.signatures.row_counts[signature] += count
        self._write_rows(rows, places, signatures, counts, lows, highs)

    def _insert(self, rows: Numbers, signature: int, lows: Keys, highs: Keys) -> None:
        places = self._places(len(rows), signature)
        self._sign(rows, signature)
        if not len(rows):
            return
        self._write_rows(rows, places, [signature], np.array([len(rows)]), lows, highs)

    def _write_rows(
        self, rows: Numbers, places: Numbers, signatures: list[int], counts: Numbers, lows: Keys, highs: Keys
    ) -> None:
        """Write the bounds of rows, which then wait; counts[i] of them have signatures[i]."""
        arrays = self.arrays
        b.insert_rows(arrays.rows, arrays.where, arrays.signatures, arrays.bounds, rows, places, lows, highs)
        self.placement.insert(rows, signatures, counts)

    def _places(self, count: int, signature: int) -> Numbers:
        """Places for the bounds of so many rows; allocates none if it raises."""
        size = max(int(self.arrays.signatures[signature, a.SIGN_BYTES]), 1)
        self._fit_bounds(count, size)
        return self._bound_bytes.allocate(count, size)

    def _fit_bounds(self, count: int, size: int) -> None:
        needed, room = self._bound_bytes.top_after(count, size) + a.BOUND_BYTES, len(self.arrays.bounds)
        if needed > room:
            self.placement.replace(bounds=resized(self.arrays.bounds, max(needed, room * 9 // 8)))

    def remove(self, rows: Numbers) -> None:
        self.placement.remove(rows)
        for signature, count in self._count_signatures(rows):
            size = int(self.arrays.signatures[signature, a.SIGN_BYTES])
            chosen = rows if count == len(rows) else rows[self.signatures_of(rows) == signature]
            self._bound_bytes.free(self.arrays.rows[chosen, ROW_PLACE].astype(np.int64), max(size, 1))
        self._release_signatures(rows)

    def write_parts(self, rows: Numbers, parts: list[int], values: Keys) -> None:
        arrays, numbers = self.arrays, np.array(parts, dtype=np.int64)
        moves = self.placement.moves
        if b.write_bounds(arrays.rows, arrays.signatures, arrays.bounds, rows, numbers, values, moves):
            self._widen(rows, parts, values)
        self.placement.update(rows)

    def _widen(self, rows: Numbers, parts: list[int], values: Keys) -> None:
        """Insert rows anew whose bounds no longer fit."""
        for signature, chosen, lows, highs in self._with_parts(rows, parts, values):
            widths = np.empty(len(chosen), dtype=np.uint8)
            variant = self.signatures.variants[signature]
            if b.find_widths(self.arrays.signatures, signature, lows, highs, widths) > variant:
                columns, shapes = self.signatures.columns[signature], self.signatures.shapes[signature]
                plan, positions = int(self.signatures.plans[signature]), np.flatnonzero(widths > variant)
                self._fit_bounds(len(positions), 16 * len(columns))  # raises before rows are taken out
                self.remove(chosen[positions])
                number = self.signature(columns, shapes, plan)
                self.insert_chosen(chosen, number, lows, highs, positions)

    def read(self, rows: Numbers, tests: int) -> tuple[Keys, Keys]:
        lows = np.empty((tests, len(rows)), dtype=np.int64)
        highs = np.empty((tests, len(rows)), dtype=np.int64)
        b.read_bounds(self.arrays, rows, lows, highs)
        return lows, highs

    # --- matching ---------------------------------------------------------------------------------

    def begin_match(self, keys: Keys) -> None:
        placement, events = self.placement, len(keys)
        if events <= placement.unchecked:
            placement.unchecked -= events
        else:
            self._prepare(events)
            self._kept_search = None
        placement.events.add(keys)

    def _few_search(self, keys: Keys, shared: bool) -> FewSearch | None:
        """A search for a few events, kept while no row may have changed; None where it does not find all
        rows.
        """
        search, placement = self._kept_search, self.placement
        if search is not None and search.width == keys.shape[1] and (search.shared or not shared):
            return search
        if placement.former is not None or placement.was_interrupted:
            return None
        search = FewSearch.of(
            placement.arrangement, self._workers[0], keys, shared=shared, lookahead=self._policy.lookahead
        )
        self._kept_search = search if placement.unchecked else None
        return search

    def _prepare(self, events: int) -> None:
        if self.placement.prepare(events):
            self._trim()

    def _trim(self) -> None:
        size = self.row_top + self.row_top // SPARE + 16
        if size < len(self.arrays.ids):
            self._resize_rows(size)
        top = self._bound_bytes.top + a.BOUND_BYTES
        if top + top // SPARE + 64 < len(self.arrays.bounds):
            self.placement.replace(bounds=resized(self.arrays.bounds, top + top // SPARE))

    def ids(self, keys: Keys, *, shared: bool) -> tuple[Numbers, Numbers]:
        search = self._few_search(keys, shared) if 0 < len(keys) <= MOST_FEW else None
        few = None if search is None else search.ids(self.placement.arrangement.arrays, keys)
        if few is not None:
            return few
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
            if shared and len(self.placement.searched) > 1:  # rows of one may be in both arrangements
                return np.diff(self._ids_of(worker, part, shared)[0])
            counts = np.zeros(len(part), dtype=np.int64)
            for each in self.placement.searched:
                offsets = np.zeros(len(part) + 1, dtype=np.int64)
                self._search(each, worker, part, COUNTS, most, shared, offsets, _NO_BITS)
                counts += offsets[1:]
            return counts

        return np.concatenate(self._map(count, self._split(keys)))

    def set_interfaces(self, keys: Keys, bits: npt.NDArray[np.uint64], in_use: int) -> None:
        search = self._few_search(keys, False) if 0 < len(keys) <= MOST_FEW else None
        if search is not None:
            search.set_interfaces(self.placement.arrangement.arrays, keys, bits, in_use)
            return

        def set_part(worker: Worker, part: Keys, part_bits: npt.NDArray[np.uint64]) -> None:
            for each in self.placement.searched:
                offsets = np.zeros(len(part) + 1, dtype=np.int64)
                self._search(each, worker, part, INTERFACES, in_use, False, offsets, part_bits)

        parts = self._split(keys)
        # np.array_split takes as long as the search of one event
        self._map(set_part, parts, np.array_split(bits, len(parts)) if len(parts) > 1 else [bits])

    def _split(self, keys: Keys) -> list[Keys]:
        """The events of each worker; first places rows if a lack of memory interrupted that."""
        if self.placement.was_interrupted:
            self._prepare(0)
        if len(keys) < _FEWEST_SHARED * len(self._workers):
            return [keys]
        return np.array_split(keys, len(self._workers))

    def _map(self, search: Callable[..., _Answer], parts: list[Keys], *more: list[Any]) -> list[_Answer]:
        """The workers' answers to their parts, each on a thread of its own."""
        if self._pool is None or len(parts) == 1:
            return [search(self._workers[0], parts[0], *(each[0] for each in more))]
        return list(self._pool.map(search, self._workers, parts, *more))

    def _ids_of(self, worker: Worker, keys: Keys, shared: bool) -> tuple[Numbers, Numbers]:
        answers = []
        for each in self.placement.searched:
            offsets = np.zeros(len(keys) + 1, dtype=np.int64)
            out = self._search(each, worker, keys, IDS, ALL, shared, offsets, _NO_BITS)
            ids = out[: offsets[-1]]
            worker.room = max(1024, len(ids) * 5 // 4)
            answers.append((offsets, ids if 4 * len(ids) > len(out) else ids.copy()))
        return answers[0] if len(answers) == 1 else _joined(answers[0], answers[1], distinct=shared)

    def _search(
        self,
        arrangement: Arrangement,
        worker: Worker,
        keys: Keys,
        product: int,
        most: int,
        shared: bool,
        offsets: Numbers,
        bits: npt.NDArray[np.uint64],
    ) -> Numbers:
        """As `match_kernels.match_events`; returns the memory of ids."""
        leaves = arrangement.arrays.leaves
        if worker.fitted is not leaves or worker.probes != arrangement.probes:
            worker.fit(arrangement.probes, leaves)
        codes = arrangement.codes(keys)
        if shared:
            worker.fit_seen(len(self.arrays.ids))
        out = worker.answer() if product == IDS else _NO_IDS
        left = np.empty(len(keys), dtype=np.int64)
        left.fill(most)  # np.full takes twice as long
        ahead = worker.ahead * self._policy.lookahead
        in_leaves = leaves.state[LEAF_ROWS] > 0
        for first in range(0, len(keys), SLICE if in_leaves else max(len(keys), 1)):
            done, stop = first, min(first + SLICE, len(keys)) if in_leaves else len(keys)
            if in_leaves:
                self._search_leaves(
                    arrangement.arrays, worker, keys, codes, first, stop, product, shared, left, bits
                )
            while True:
                done = m.match_events(
                    arrangement.arrays, keys, codes, done, stop, product, most, ahead, shared,
                    worker.buffers, left, offsets, out, bits,
                )  # fmt: skip
                if done == stop:
                    break
                left[done:stop] = most
                out = worker.enlarge(int(offsets[done]))
        return out

    def _search_leaves(
        self,
        arrays: a.StoreArrays,
        worker: Worker,
        keys: Keys,
        codes: npt.NDArray[np.uint16],
        first: int,
        stop: int,
        product: int,
        shared: bool,
        left: Numbers,
        bits: npt.NDArray[np.uint64],
    ) -> None:
        collects = product == IDS or (shared and product == COUNTS)
        if collects:
            worker.fit_matches(2 * LEAF * (stop - first))
        turn = 0
        while turn >= 0:
            turn = search_leaves(
                arrays, keys, codes, first, stop, turn, product, collects, worker.leaf,
                worker.buffers.leaf, left, bits,
            )  # fmt: skip
            if turn >= 0:
                worker.fit_matches(2 * len(worker.leaf.ids))

    # --- inspection -------------------------------------------------------------------------------

    def structure_bytes(self) -> dict[str, int]:
        sizes = {"bounds": self.arrays.bounds.nbytes, "places of rows": self.arrays.where.nbytes}
        for each in self.placement.searched:
            for name, parts in each.parts().items():
                sizes[name] = sizes.get(name, 0) + sum(part.nbytes for part in parts)
        return sizes

    def render(self, columns: Columns) -> list[str]:
        self._prepare(0)
        arrays = [each.arrays for each in self.placement.searched]
        return render_store(arrays, self.signatures, self.configuration, columns)


def _joined(
    one: tuple[Numbers, Numbers], other: tuple[Numbers, Numbers], *, distinct: bool
) -> tuple[Numbers, Numbers]:
    """Both answers to the same events; `distinct`: an id in both comes once."""
    offsets = one[0] + other[0]
    ids = np.empty(offsets[-1], dtype=np.int64)
    m.join_answers(*one, *other, distinct, offsets, ids)
    return offsets, ids[: offsets[-1]]
