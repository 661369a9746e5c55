"""The scan: a linear pass over all subscriptions, the baseline of every other engine (`scan_kernels.py`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.reference import scan_kernels as k
from covey.matcher.engines.reference.reference_store import ReferenceStore, Tests
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.events.int64 import FIRST, MISSING

_SMALL_GROUP = 64
_KIND_BITS = 2
_CODE_BITS = 21  # of (column, kind), so that three are one number
_ORDER_OF_KINDS = np.array([0, 1, 2, 2])  # equalities first, then ranges, then one-sided tests
_LINEAR = 65_000
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class ColumnCuts:
    """The cuts of a column, every lo and every hi + 1 of its tests; an open end needs none. A key's code is
    the number of cuts <= it, so `lo <= key <= hi` is `code(lo) <= code(key) <= code(hi + 1) - 1`. If
    *linear*, all `count` integers from `base` on are cuts, and coding is a subtraction; else `cuts` has them,
    ascending.
    """

    linear: bool = False
    base: int = 0
    count: int = 0
    cuts: Keys = field(default_factory=lambda: _NONE)

    @classmethod
    def of(cls, lows: Keys, highs: Keys, tops: Keys) -> ColumnCuts:
        """The cuts of intervals; tops[i] is the key of the largest value of interval i's column."""
        holds = lows <= highs
        starts = lows[holds & ((lows > FIRST) | (lows == highs))]
        ends = highs[holds & ((highs < tops) | (lows == FIRST))] + 1
        cuts = np.sort(np.concatenate([starts, ends]))  # np.unique takes ten times as long with float keys
        if not len(cuts):
            return cls()
        cuts = cuts[np.concatenate([[True], cuts[1:] != cuts[:-1]])]
        span = int(cuts[-1]) - int(cuts[0]) + 1  # as Python integers: it may exceed 64 bits
        if span <= _LINEAR and cuts[0] > MISSING:
            return cls(True, int(cuts[0]), span)
        return cls(False, 0, len(cuts), cuts)

    @property
    def width(self) -> int:
        """Bytes per code."""
        return 1 if self.count < 2**8 else 2 if self.count < 2**16 else 4

    def code(self, keys: Keys) -> Numbers:
        if self.linear:
            return np.clip(keys, self.base - 1, self.base + self.count - 1) - self.base + 1
        order = np.argsort(keys)  # sorted keys find the cuts in the cache: five times as fast
        codes = np.empty(len(keys), dtype=np.int64)
        codes[order] = np.searchsorted(self.cuts, keys[order], side="right")
        return codes

    def codes(self, lows: Keys, highs: Keys) -> tuple[Numbers, Numbers]:
        """The codes of intervals; (1, 0) for an empty one."""
        empty = lows > highs
        return np.where(empty, 1, self.code(lows)), np.where(empty, 0, self.code(highs + 1) - 1)


class ScanStore(ReferenceStore):
    def _build(self, tests: Tests) -> npt.NDArray[np.int32]:
        coding = self._cuts(tests)
        kinds, columns, lows, highs = self._put_in_order(tests)
        heads = np.zeros(len(tests.rows), dtype=np.int64)
        for slot in range(k.SLOTS):
            has = tests.sizes > slot
            at = tests.starts[has] + slot
            heads <<= _CODE_BITS
            heads[has] |= (columns[at] << _KIND_BITS | kinds[at]) + 1
        slots = k.SLOTS
        keys, group_of = np.unique(heads, return_inverse=True)
        while slots and len(tests.rows) < _SMALL_GROUP * len(keys):
            slots -= 1
            heads >>= _CODE_BITS
            keys, group_of = np.unique(heads, return_inverse=True)
        order = np.argsort(group_of, kind="stable")
        ends = np.cumsum(np.bincount(group_of, minlength=len(keys)))
        groups = np.zeros((len(keys), k.GROUP_FIELDS), dtype=np.int64)
        placed: list[Numbers] = [_NONE]
        pool: list[npt.NDArray[np.uint8]] = []
        size = 0
        for g, key in enumerate(keys.tolist()):
            members = order[ends[g - 1] if g else 0 : ends[g]]
            room = -(-len(members) // k.STEP) * k.STEP
            line = groups[g]
            line[k.GROUP_COUNT] = room
            placed.append(np.append(members, np.full(room - len(members), -1, dtype=np.int64)))
            codes = [key >> _CODE_BITS * slot & 2**_CODE_BITS - 1 for slot in range(slots - 1, -1, -1)]
            for s, code in enumerate(filter(None, codes)):
                column, kind = (code - 1) >> _KIND_BITS, (code - 1) & (2**_KIND_BITS - 1)
                cuts, at, places = coding[column], tests.starts[members] + s, [0, 0]
                for end, each in enumerate(cuts.codes(lows[at], highs[at])):
                    if kind == k.BELOW if end == 0 else kind in (k.ABOVE, k.EQUAL):
                        continue
                    data = np.zeros(-(-room * cuts.width // k.STEP) * k.STEP, dtype=np.uint8)
                    data.view(f"u{cuts.width}")[: len(each)] = each
                    places[end] = size // cuts.width
                    pool.append(data)
                    size += len(data)
                first = k.GROUP_SLOT + s * k.SLOT_FIELDS
                line[first : first + k.SLOT_FIELDS] = column, kind, cuts.width, *places
                line[k.GROUP_SLOTS] = s + 1
        groups[:, k.GROUP_FIRST] = np.cumsum(groups[:, k.GROUP_COUNT]) - groups[:, k.GROUP_COUNT]
        order = np.concatenate(placed)
        over = np.where(order < 0, 0, np.maximum(np.append(tests.sizes, 0)[order] - slots, 0))
        tails = np.repeat(np.append(tests.starts, 0)[order] + slots - np.cumsum(over) + over, over)
        tails += np.arange(len(tails))
        table, cut_keys = self._coding_table(coding)
        data = np.concatenate([*pool, np.zeros(k.STEP, dtype=np.uint8)])
        self._scan = k.Scan(
            groups=groups,
            starts=np.append(0, np.cumsum(over)).astype(np.int32),
            tails=np.stack([columns[tails], lows[tails], highs[tails]], axis=1),
            bytes=data,
            shorts=data.view(np.uint16),
            words=data.view(np.uint32),
            coding=table,
            cuts=cut_keys,
            tops=self.tops_of(np.arange(len(table))),
        )
        return np.where(order < 0, -1, np.append(tests.rows, -1)[order]).astype(np.int32)

    def _cuts(self, tests: Tests) -> list[ColumnCuts]:
        width = int(tests.columns.max(initial=-1)) + 1
        order = np.argsort(tests.columns, kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(tests.columns, minlength=width))[:-1]) if width else []
        tops = self.tops_of(tests.columns)
        return [ColumnCuts.of(tests.lows[at], tests.highs[at], tops[at]) for at in parts]

    @staticmethod
    def _coding_table(coding: list[ColumnCuts]) -> tuple[Numbers, Keys]:
        table, size = np.zeros((len(coding), 3), dtype=np.int64), 0
        for line, cuts in zip(table, coding, strict=True):
            line[:] = cuts.linear, cuts.base if cuts.linear else size, cuts.count
            size += len(cuts.cuts)
        return table, np.concatenate([_NONE, *(cuts.cuts for cuts in coding)])

    def _put_in_order(self, tests: Tests) -> tuple[Numbers, Numbers, Keys, Keys]:
        """Kinds, columns and bounds; each row's tests by kind, then by frequency, to make few groups."""
        kinds = _kinds(tests.lows, tests.highs, self.tops_of(tests.columns))
        known, position, counts = np.unique(
            tests.columns << _KIND_BITS | kinds, return_inverse=True, return_counts=True
        )
        rank = np.empty(len(known), dtype=np.int64)
        rank[np.lexsort((known, -counts, _ORDER_OF_KINDS[known & (2**_KIND_BITS - 1)]))] = np.arange(
            len(known)
        )
        order = np.lexsort((rank[position.reshape(-1)], tests.owners))
        return kinds[order], tests.columns[order], tests.lows[order], tests.highs[order]

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        words = np.zeros(k.BLOCK // 8, dtype=np.uint64)
        codes = np.zeros(len(self._scan.coding), dtype=np.int64)
        done: int = k.scan_events(
            self._scan,
            self.rows(),
            keys,
            start,
            self._most_matches(),
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
            **super().structure_bytes(),
            "codes": s.bytes.nbytes,
            "cuts": s.cuts.nbytes + s.coding.nbytes,
            "members": s.starts.nbytes + s.groups.nbytes,
            "tails": s.tails.nbytes,
        }

    def render(self, columns: Columns) -> list[str]:
        names = ("= ", "in ", "<= ", ">= ")
        lines = []
        for line in self._scan.groups[:100]:
            slots = line[k.GROUP_SLOT :].reshape(-1, k.SLOT_FIELDS)[: line[k.GROUP_SLOTS]]
            text = ", ".join(
                f"{columns.describe(int(column))} {names[kind]}u{8 * width}"
                for column, kind, width, *_ in slots.tolist()
            )
            lines.append(f"group ({text or 'nothing in common'}): {line[k.GROUP_COUNT]} places")
        if len(self._scan.groups) > len(lines):
            lines.append(f"and {len(self._scan.groups) - len(lines)} groups more")
        return [*lines, self.summary()]


def _kinds(lows: Keys, highs: Keys, tops: Keys) -> Numbers:
    kinds = np.where(lows == FIRST, k.BELOW, np.where(highs == tops, k.ABOVE, k.RANGE))
    return np.where(lows > highs, k.RANGE, np.where(lows == highs, k.EQUAL, kinds)).astype(np.int64)


class ScanEngine(RowEngine):
    name: ClassVar[str] = "scan"

    def _new_store(self) -> ScanStore:
        return ScanStore(self.event_type)
