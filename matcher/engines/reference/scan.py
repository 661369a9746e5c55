"""The scan: a linear pass over all subscriptions, the baseline of every other engine.

Nothing is indexed, so nothing degrades, whatever the subscriptions; cost is linear in their number. Narrow
codes of bounds, vector comparison of one column after the other, and an early end where few rows are left
(`scan_kernels.py`). Invariant: a row is either arranged, its codes in its group's columns, or young; its
exact bounds are stored in both cases. Rows are arranged anew when more than one in 32 is young.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.schema_columns import SchemaColumns
from covey.matcher.engines.reference import scan_kernels as k
from covey.matcher.engines.reference.reference_store import ReferenceStore
from covey.matcher.engines.reference.scan_cuts import ColumnCuts, cuts_of_columns
from covey.matcher.engines.rows.arrays import Numbers, Runs, grown
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.events.event_type import EventType
from covey.matcher.events.int64 import FIRST, LAST

ABSENT, YOUNG, ARRANGED = 0, 1, 2
_FEW_YOUNG = 256
_SMALL_GROUP = 64
_KIND_BITS = 2
_CODE_BITS = 21  # of (column, kind), so that three are one number
_ORDER_OF_KINDS = np.array(
    [0, 1, 2, 2], dtype=np.int64
)  # equalities first, then ranges, then one-sided tests


@dataclass(slots=True)
class _Tests:
    """The tests of many rows, one after the other: `starts[i]` is the first of row i's."""

    rows: Numbers
    sizes: Numbers
    starts: Numbers
    columns: Numbers
    lows: Keys
    highs: Keys


@dataclass(slots=True)
class _Arrangement:
    """Groups being built: members by position among the rows arranged, `top` of them; parts of the pool,
    `size` bytes.
    """

    groups: Numbers
    members: list[Numbers]
    parts: list[npt.NDArray[np.uint8]]
    top: int
    size: int


class ScanStore(ReferenceStore):
    """Rows in groups of equal first tests, as codes, and their exact bounds."""

    def __init__(self, event_type: EventType) -> None:
        super().__init__(event_type)
        self._tops = self.schema.tops()
        self._bounds: Keys = np.zeros((64, 2), dtype=np.int64)
        self._runs = Runs("bounds")
        self._state: npt.NDArray[np.uint8] = np.zeros(len(self.arrays.ids), dtype=np.uint8)
        self._where: npt.NDArray[np.int32] = np.full((len(self.arrays.ids), 2), -1, dtype=np.int32)
        self._counts = {YOUNG: 0, ARRANGED: 0}
        self._young: npt.NDArray[np.int32] | None = None
        self._flat_signatures: tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]] | None = None
        self._coding: list[ColumnCuts | None] = []
        nothing = np.zeros(0, dtype=np.int64)
        empty = _Arrangement(np.zeros((0, k.GROUP_FIELDS), dtype=np.int64), [], [], 0, 0)
        self._scan = self._arranged(empty, _Tests(*[nothing] * 6), nothing, 0)

    def widen(self, event_type: EventType, schema: SchemaColumns) -> None:
        super().widen(event_type, schema)
        self._tops = schema.tops()

    # --- rows -------------------------------------------------------------------------------------

    def _insert(self, rows: Numbers, columns: Keys, lows: Keys, highs: Keys) -> None:
        tests = len(columns)
        places = self._runs.allocate(len(rows), max(tests, 1))
        if self._runs.top > len(self._bounds):
            self._bounds = grown(self._bounds, max(self._runs.top, len(self._bounds) * 3 // 2))
        for t in range(tests):
            self._bounds[places + t, 0], self._bounds[places + t, 1] = lows[t], highs[t]
        self.arrays.rows[rows, ROW_PLACE] = places
        self._become_young(rows)
        self._flat_signatures = None

    def _remove(self, rows: Numbers) -> None:
        self._leave(rows)
        self._state[rows] = ABSENT
        self._runs.free(
            self.arrays.rows[rows, ROW_PLACE].astype(np.int64),
            max(self.tests_of(rows), 1),
        )

    def _become_young(self, rows: Numbers) -> None:
        self._state[rows] = YOUNG
        self._counts[YOUNG] += len(rows)
        self._young = None

    def _leave(self, rows: Numbers) -> None:
        arranged = rows[self._state[rows] == ARRANGED]
        self._scan.members[self._where[arranged, 1]] = -1
        self._counts[ARRANGED] -= len(arranged)
        self._counts[YOUNG] -= len(rows) - len(arranged)
        if len(arranged) < len(rows):
            self._young = None

    def _change(self, rows: Numbers, test: int, lows: Keys, highs: Keys) -> None:
        places = self.arrays.rows[rows, ROW_PLACE].astype(np.int64) + test
        self._bounds[places, 0], self._bounds[places, 1] = lows[test], highs[test]
        arranged = np.flatnonzero(self._state[rows] == ARRANGED)
        if not len(arranged):
            return
        columns = self.signatures.columns[int(self.arrays.rows[rows[0], ROW_SIGNATURE])]
        groups = self._where[rows[arranged], 0]
        for group in np.unique(groups).tolist():
            chosen = arranged[groups == group]
            fits = self._rewrite(group, columns, test, rows[chosen], lows[test, chosen], highs[test, chosen])
            unfit = rows[chosen[~fits]]
            if len(unfit):
                self._leave(unfit)
                self._become_young(unfit)

    def _rewrite(
        self, group: int, columns: tuple[int, ...], test: int, rows: Numbers, lows: Keys, highs: Keys
    ) -> npt.NDArray[np.bool_]:
        """Write new codes of a test where the group's codes can express them; returns for which rows."""
        column = columns[test]
        line = self._scan.groups[group]
        slots = [
            line[s : s + k.SLOT_FIELDS]
            for s in range(
                k.GROUP_SLOT, k.GROUP_SLOT + int(line[k.GROUP_SLOTS]) * k.SLOT_FIELDS, k.SLOT_FIELDS
            )
            if line[s + k.SLOT_COLUMN] == column
        ]
        if columns.count(column) > 1:
            return np.zeros(len(rows), dtype=np.bool_)
        if not slots:
            self._rewrite_tails(rows, column, lows, highs)
            return np.ones(len(rows), dtype=np.bool_)
        coding = self._coding[column]
        assert coding is not None
        _, kind, width, low_at, high_at = slots[0].tolist()
        fits: npt.NDArray[np.bool_] = _kinds(lows, highs, self._tops_of(column)) == kind
        if kind != k.BELOW:
            fits &= coding.has_cuts(lows) | (lows > highs)
        if kind != k.ABOVE:
            fits &= coding.has_cuts(highs + 1) | (lows > highs)
        low_codes, high_codes = coding.codes(lows[fits], highs[fits])
        positions = self._where[rows[fits], 1] - line[k.GROUP_FIRST]
        pools: dict[int, npt.NDArray[Any]] = {
            1: self._scan.bytes,
            2: self._scan.shorts,
            4: self._scan.words,
        }
        pool = pools[width]
        if kind != k.BELOW:
            pool[low_at + positions] = low_codes
        if kind not in (k.ABOVE, k.EQUAL):
            pool[high_at + positions] = high_codes
        return fits

    def _rewrite_tails(self, rows: Numbers, column: int, lows: Keys, highs: Keys) -> None:
        members = self._where[rows, 1]
        at, ends = self._scan.starts[members], self._scan.starts[members + 1]
        while len(at) and not (here := self._scan.tails[at, 0] == column).all():
            at = np.where(here, at, np.minimum(at + 1, ends - 1))
        self._scan.tails[at, 1], self._scan.tails[at, 2] = lows, highs

    def read(self, rows: Numbers, tests: int) -> tuple[Keys, Keys]:
        places = self.arrays.rows[rows, ROW_PLACE][None, :] + np.arange(tests)[:, None]
        return np.ascontiguousarray(self._bounds[places, 0]), np.ascontiguousarray(self._bounds[places, 1])

    def _resize_rows(self, size: int) -> None:
        super()._resize_rows(size)
        self._state = grown(self._state, size)
        self._where = grown(self._where, size, -1)

    # --- arranging --------------------------------------------------------------------------------

    def _prepare(self) -> None:
        if self._counts[YOUNG] > max(_FEW_YOUNG, self._counts[ARRANGED] >> 5):
            self._arrange()
        if self._young is None:
            self._young = np.flatnonzero(self._state[: self.row_top] == YOUNG).astype(np.int32)
        if self._flat_signatures is None:
            sizes = np.array([0, *map(len, self.signatures.columns)], dtype=np.int64)
            flat = [column for columns in self.signatures.columns for column in columns]
            self._flat_signatures = np.cumsum(sizes).astype(np.int32), np.array([*flat, 0], dtype=np.int32)
        starts, columns = self._flat_signatures
        self._scan = self._scan._replace(
            bounds=self._bounds, signatures=starts, columns=columns, young=self._young
        )

    def _arrange(self) -> None:
        tests = self._tests(np.flatnonzero(self._state[: self.row_top] != ABSENT))
        self._coding = cuts_of_columns(tests.columns, tests.lows, tests.highs, self._tops_of(tests.columns))
        kinds = self._put_in_order(tests)
        heads = np.zeros(len(tests.rows), dtype=np.int64)
        for slot in range(k.SLOTS):
            has = tests.sizes > slot
            at = tests.starts[has] + slot
            heads <<= _CODE_BITS
            heads[has] |= (tests.columns[at] << _KIND_BITS | kinds[at]) + 1
        slots = k.SLOTS
        keys, group_of = np.unique(heads, return_inverse=True)
        while slots and len(tests.rows) < _SMALL_GROUP * len(keys):
            slots -= 1
            heads >>= _CODE_BITS
            keys, group_of = np.unique(heads, return_inverse=True)
        order = np.argsort(group_of, kind="stable")
        ends = np.cumsum(np.bincount(group_of, minlength=len(keys)))
        arrangement = _Arrangement(np.zeros((len(keys), k.GROUP_FIELDS), dtype=np.int64), [], [], 0, 0)
        for g, key in enumerate(keys.tolist()):
            members = order[ends[g - 1] if g else 0 : ends[g]]
            codes = [key >> _CODE_BITS * slot & 2**_CODE_BITS - 1 for slot in range(slots - 1, -1, -1)]
            first = [((code - 1) >> _KIND_BITS, (code - 1) & (2**_KIND_BITS - 1)) for code in codes if code]
            self._fill_group(arrangement, g, first, tests, members)
        self._state[tests.rows] = ARRANGED
        self._counts = {YOUNG: 0, ARRANGED: len(tests.rows)}
        self._young = None
        self._scan = self._arranged(arrangement, tests, order, slots)

    def _tests(self, rows: Numbers) -> _Tests:
        lengths = np.array([0, *map(len, self.signatures.columns)], dtype=np.int64)
        sizes = lengths[1:][self.arrays.rows[rows, ROW_SIGNATURE]]
        starts = np.cumsum(sizes) - sizes
        within = np.arange(int(sizes.sum())) - np.repeat(starts, sizes)
        places = np.repeat(self.arrays.rows[rows, ROW_PLACE], sizes) + within
        firsts = np.cumsum(lengths)
        flat = np.array([column for columns in self.signatures.columns for column in columns], dtype=np.int64)
        columns = flat[np.repeat(firsts[self.arrays.rows[rows, ROW_SIGNATURE]], sizes) + within]
        return _Tests(rows, sizes, starts, columns, self._bounds[places, 0], self._bounds[places, 1])

    def _put_in_order(self, tests: _Tests) -> Numbers:
        """Sort the tests of every row by kind, and within a kind by how many rows have them, which makes few
        groups. Returns the kind of every test.
        """
        kinds = _kinds(tests.lows, tests.highs, self._tops_of(tests.columns))
        known, position, counts = np.unique(
            tests.columns << _KIND_BITS | kinds, return_inverse=True, return_counts=True
        )
        rank = np.empty(len(known), dtype=np.int64)
        rank[np.lexsort((known, -counts, _ORDER_OF_KINDS[known & (2**_KIND_BITS - 1)]))] = np.arange(
            len(known)
        )
        ranks = rank[position.reshape(-1)]
        order = np.arange(len(ranks))
        for size in np.unique(tests.sizes).tolist():
            at = tests.starts[tests.sizes == size][:, None] + np.arange(size)
            order[at] = np.take_along_axis(at, np.argsort(ranks[at], axis=1, kind="stable"), axis=1)
        tests.columns, tests.lows, tests.highs = tests.columns[order], tests.lows[order], tests.highs[order]
        return kinds[order]

    def _fill_group(
        self, arrangement: _Arrangement, g: int, slots: list[tuple[int, int]], tests: _Tests, members: Numbers
    ) -> None:
        """Give a group its members and the codes of their first tests."""
        line, rows = arrangement.groups[g], tests.rows[members]
        room = -(-len(members) // k.STEP) * k.STEP
        line[: k.GROUP_SLOT] = arrangement.top, room, len(slots)
        self._where[rows, 0], self._where[rows, 1] = g, arrangement.top + np.arange(len(rows))
        arrangement.members += [members, np.full(room - len(members), -1, dtype=np.int64)]
        arrangement.top += room
        for s, (column, kind) in enumerate(slots):
            coding = self._coding[column]
            assert coding is not None
            at = tests.starts[members] + s
            low_codes, high_codes = coding.codes(tests.lows[at], tests.highs[at])
            width, places = coding.width, [0, 0]
            for end, codes in enumerate((low_codes, high_codes)):
                if kind == k.BELOW if end == 0 else kind in (k.ABOVE, k.EQUAL):
                    continue
                arrangement.size += -arrangement.size % width
                places[end] = arrangement.size // width
                data = np.zeros(room, dtype=f"u{width}")
                data[: len(codes)] = codes
                arrangement.parts.append(data.view(np.uint8))
                arrangement.size += data.nbytes
            first = k.GROUP_SLOT + s * k.SLOT_FIELDS
            line[first : first + k.SLOT_FIELDS] = column, kind, width, *places

    def _tops_of(self, columns: int | Numbers) -> Keys:
        padded = np.concatenate([self._tops, [LAST]])
        return padded[np.minimum(columns, len(self._tops))]

    def _arranged(self, arrangement: _Arrangement, tests: _Tests, order: Numbers, slots: int) -> k.Scan:
        coding = np.zeros((max(len(self._coding), len(self._tops)), 3), dtype=np.int64)
        cuts: list[Keys] = [np.zeros(0, dtype=np.int64)]
        size = 0
        for column, chosen in enumerate(self._coding):
            if chosen is not None:
                coding[column] = chosen.linear, chosen.base if chosen.linear else size, chosen.count
                cuts.append(chosen.cuts)
                size += len(chosen.cuts)
        pool = np.concatenate([*arrangement.parts, np.zeros(k.STEP, dtype=np.uint8)])
        places = np.concatenate([np.zeros(0, dtype=np.int64), *arrangement.members])
        over = np.where(places < 0, 0, np.maximum(tests.sizes[places] - slots, 0)) if len(order) else places
        starts = np.concatenate([[0], np.cumsum(over)])
        owners = places[over > 0]
        at = np.repeat(tests.starts[owners] + slots, over[over > 0])
        at += np.arange(len(at)) - np.repeat(starts[:-1][over > 0], over[over > 0])
        return k.Scan(
            groups=arrangement.groups,
            members=np.where(places < 0, -1, tests.rows[places] if len(order) else places).astype(np.int32),
            starts=starts.astype(np.int32),
            tails=np.stack([tests.columns[at], tests.lows[at], tests.highs[at]], axis=1),
            bytes=pool,
            shorts=pool.view(np.uint16),
            words=pool.view(np.uint32),
            coding=coding,
            cuts=np.concatenate(cuts),
            tops=self._tops_of(np.arange(len(coding))),
            bounds=self._bounds,
            signatures=np.zeros(1, dtype=np.int32),
            columns=np.zeros(1, dtype=np.int32),
            young=np.zeros(0, dtype=np.int32),
        )

    # --- matching ---------------------------------------------------------------------------------

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        words = np.zeros(k.BLOCK // 8, dtype=np.uint64)
        codes = np.zeros(len(self._scan.coding), dtype=np.int64)
        if keys.shape[1] < len(codes):  # columns of rows that are gone
            keys = np.pad(keys, ((0, 0), (0, len(codes) - keys.shape[1])))
        done: int = k.scan_events(
            self._scan,
            self.arrays.rows,
            keys,
            start,
            self.row_top,
            codes,
            words.view(np.uint8),
            words,
            offsets,
            found,
        )
        return done

    def structure_bytes(self) -> dict[str, int]:
        s = self._scan
        return {
            "codes": s.bytes.nbytes,
            "cuts": s.cuts.nbytes + s.coding.nbytes,
            "members": s.members.nbytes + s.starts.nbytes + s.groups.nbytes,
            "tails": s.tails.nbytes,
            "bounds": self._bounds.nbytes,
            "places": self._where.nbytes + self._state.nbytes,
        }

    def render(self, columns: Columns) -> list[str]:
        names = ("= ", "in ", "<= ", ">= ")
        lines = []
        for line in self._scan.groups[:100]:
            slots = [
                f"{columns.describe(int(line[s + k.SLOT_COLUMN]))} {names[line[s + k.SLOT_KIND]]}"
                f"u{8 * line[s + k.SLOT_WIDTH]}"
                for s in range(
                    k.GROUP_SLOT, k.GROUP_SLOT + int(line[k.GROUP_SLOTS]) * k.SLOT_FIELDS, k.SLOT_FIELDS
                )
            ]
            lines.append(f"group ({', '.join(slots) or 'nothing in common'}): {line[k.GROUP_COUNT]} places")
        if len(self._scan.groups) > len(lines):
            lines.append(f"and {len(self._scan.groups) - len(lines)} groups more")
        return [*lines, f"not arranged yet: {self._counts[YOUNG]} rows"]


def _kinds(lows: Keys, highs: Keys, tops: Keys) -> Numbers:
    kinds = np.where(lows == FIRST, k.BELOW, np.where(highs == tops, k.ABOVE, k.RANGE))
    return np.where(lows > highs, k.RANGE, np.where(lows == highs, k.EQUAL, kinds)).astype(np.int64)


class ScanEngine(RowEngine):
    """Looks at every subscription; see the module."""

    name: ClassVar[str] = "scan"

    def _new_store(self) -> ScanStore:
        return ScanStore(self.event_type)
