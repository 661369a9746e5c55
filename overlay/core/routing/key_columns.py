"""Columns of a key table: attributes of the last events of keys, so that a moved box is compared with all
keys at once, and who has these events.

    columns[attribute]   int64   by row: the key of the value (`matcher/encoding/keys.py`)
    bits                 uint64  by row: a bit per holder, a neighbour by its name or a view by its uid

Only numbers, times and bools that filters of views compare have columns, updated when read. An engine was
rejected: it takes 10 ms for 100,000 keys and a box, columns under 1 ms.

Invariant: a bit without a holder is 0 in every row; of the two bits of a holder that has lost what it had at
most one is set. Cost: a few operations on arrays per batch, whatever the number of holders.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.covering.cuts import LINES, point_of
from covey.matcher.encoding.keys import float_keys
from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import FIRST, LAST, MISSING, NAN_KEY

if TYPE_CHECKING:
    from covey.matcher.covering.cuts import Cut, Cuts
    from covey.matcher.covering.region import Region
    from covey.matcher.events.batch import EventBatch


Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Parts = Iterable[tuple["EventBatch", Int64s, Int64s]]
"""Batches, positions in each, and the rows of these events."""

_NUMERIC = (Kind.INT64, Kind.FLOAT64, Kind.TIMESTAMP, Kind.BOOL)


class KeyColumns:
    """`current[attribute]` is the batch up to which it was read."""

    def __init__(self) -> None:
        self.current: dict[str, int] = {}
        self._columns: dict[str, Int64s] = {}

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in self._columns.values())

    def resize(self, rows: int) -> None:
        for name, column in self._columns.items():
            self._columns[name] = np.append(column, np.full(rows - len(column), MISSING, np.int64))

    def read(self, attribute: str, kind: Kind, rows: int, parts: Parts, current: int) -> None:
        """Copy values of events into a column of `rows` rows."""
        column = self._columns.get(attribute)
        if column is None:
            column = self._columns[attribute] = np.full(rows, MISSING, np.int64)
        for batch, places, own in parts:
            column[own] = _keys(batch, attribute, kind, places)
        self.current[attribute] = current

    def inside(self, region: Region, rows: Int64s) -> tuple[Int64s, bool]:
        """The rows that may be in a region, and whether these are exact. Read its attributes before; one
        without a column bounds nothing."""
        if region.conjunctions is None:
            return rows, False
        inside, exact = np.zeros(len(rows), np.bool_), True
        for conjunction in region.conjunctions:
            within = np.ones(len(rows), np.bool_)
            for attribute, cuts in conjunction.cuts.items():
                if attribute in self._columns:
                    missing = LINES[region.event_type.attributes[attribute]].missing
                    within &= _between(self._columns[attribute][rows], cuts, missing)
                else:
                    exact = False
            inside |= within
            exact = exact and not conjunction.atoms
        return rows[inside], exact


def compared(region: Region) -> dict[str, Kind]:
    """The attributes of a region that can have columns."""
    kinds = region.event_type.attributes
    names = {name for conjunction in region.conjunctions or () for name in conjunction.cuts}
    return {name: kinds[name] for name in sorted(names) if kinds[name] in _NUMERIC}


def _between(keys: Int64s, cuts: Cuts, missing: Cut) -> Bools:
    inside = np.zeros(len(keys), np.bool_)
    for low, high in zip(cuts[::2], cuts[1::2], strict=True):
        if low > LAST or high <= missing:
            continue
        inside |= (keys >= max(low, FIRST)) & (keys <= max(min(high - 1, LAST), MISSING))
        if low <= missing:
            inside |= keys == MISSING
    return inside


def _keys(batch: EventBatch, attribute: str, kind: Kind, places: Int64s) -> Int64s:
    if batch.event_type.attributes.get(attribute) is not kind:
        return np.full(len(places), MISSING, np.int64)
    if batch.columns is not None:
        values, line = batch.columns.values(batch.event_type.index(attribute)), LINES[kind]
        chosen = [values[place] for place in places.tolist()]
        keys = [MISSING if value is None else point_of(line, value) for value in chosen]
        return np.array(keys, np.int64)
    column = batch.record_batch.column(attribute).take(pa.array(places))
    absent = column.is_null().to_numpy(zero_copy_only=False)
    if kind is Kind.FLOAT64:
        floats = column.fill_null(0.0).to_numpy(zero_copy_only=False)
        found: Int64s = np.where(np.isnan(floats), NAN_KEY, float_keys(floats))
    else:
        found = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).copy()
    found[absent] = MISSING
    return found


Holder = TypeVar("Holder", bound=Hashable)
Bits = npt.NDArray[np.uint64]
"""uint64[rows, words]"""

_ONE = np.uint64(1)


class Holders(Generic[Holder]):
    def __init__(self) -> None:
        self.bits: dict[Holder, int] = {}
        self._former: dict[Holder, int] = {}
        """A second bit of holders that have lost what they had: where it may yet arrive."""
        self._holders: dict[int, Holder] = {}
        self._free: list[int] = []
        self._held: Bits = np.zeros((0, 1), np.uint64)

    def __len__(self) -> int:
        return len(self.bits)

    def resize(self, rows: int) -> None:
        held = np.zeros((rows, self._held.shape[1]), np.uint64)
        held[: len(self._held)] = self._held
        self._held = held

    def add(self, holder: Holder) -> int:
        """The bit of a holder; a new one has nothing."""
        bit = self.bits.get(holder)
        if bit is None:
            bit = self.bits[holder] = self._new_bit(holder)
        return bit

    def _new_bit(self, holder: Holder) -> int:
        bit = self._free.pop() if self._free else len(self._holders)
        self._holders[bit] = holder
        if bit >= 64 * self._held.shape[1]:
            self._held = np.hstack([self._held, np.zeros_like(self._held)])
        return bit

    def lose(self, holder: Holder) -> None:
        """A holder has lost what it had, but may still receive it."""
        bit = self.bits.get(holder)
        if bit is not None:
            former = self._former.get(holder)
            if former is None:
                former = self._former[holder] = self._new_bit(holder)
            has = self._held[:, bit >> 6] >> np.uint64(bit & 63) & _ONE
            self._held[:, former >> 6] |= has << np.uint64(former & 63)
            self._held[:, bit >> 6] &= ~(_ONE << np.uint64(bit & 63))

    def discard(self, holder: Holder) -> None:
        """A holder has nothing any more, nor will receive it."""
        for bit in (self.bits.pop(holder, None), self._former.pop(holder, None)):
            if bit is not None:
                del self._holders[bit]
                self._free.append(bit)
                self._held[:, bit >> 6] &= ~(_ONE << np.uint64(bit & 63))

    def mark(self, holder: Holder, rows: Int64s) -> None:
        """The holder has the last events of these keys."""
        bit = self.add(holder)
        self._held[rows, bit >> 6] |= _ONE << np.uint64(bit & 63)
        former = self._former.get(holder)
        if former is not None:
            self._held[rows, former >> 6] &= ~(_ONE << np.uint64(former & 63))

    def has(self, holder: Holder, rows: Int64s) -> npt.NDArray[np.bool_]:
        """bool[rows]: whether the holder has the last event."""
        bit = self.bits.get(holder)
        if bit is None:
            return np.zeros(len(rows), np.bool_)
        has: npt.NDArray[np.bool_] = (self._held[rows, bit >> 6] >> np.uint64(bit & 63) & _ONE) > 0
        return has

    def none(self, count: int) -> Bits:
        return np.zeros((count, self._held.shape[1]), np.uint64)

    def advance(self, rows: Int64s, receivers: Bits) -> Bits:
        """Apply new events of these keys (row -1: no key), in order, with the receivers of each: afterwards
        the receivers of the last event of each key have it. Returns, at that event, the holders of an earlier
        one that do not receive it."""
        left = np.zeros_like(receivers)
        events = np.flatnonzero(rows >= 0)
        if not len(events):
            return left
        order = events[np.argsort(rows[events], kind="stable")]
        edges = np.flatnonzero(np.diff(rows[order]))
        first, last = np.append(0, edges + 1), order[np.append(edges, len(order) - 1)]
        before = self._held[rows[last]] | np.bitwise_or.reduceat(receivers[order], first, axis=0)
        left[last] = before & ~receivers[last]
        for holder, former in self._former.items():
            bit = self.bits[holder]
            has = before[:, bit >> 6] >> np.uint64(bit & 63) & _ONE
            left[last, former >> 6] &= ~(has << np.uint64(former & 63))
        self._held[rows[last]] = receivers[last]
        return left

    def clear(self, rows: Int64s) -> Bits:
        """Remove and return the holders of these keys, each key once."""
        held: Bits = self._held[rows]
        self._held[rows] = 0
        return held

    def divided(self, bits: Bits) -> Iterator[tuple[Holder, Int64s]]:
        """Each holder with some bit set, in order of bits, and its events."""
        some = np.bitwise_or.reduce(bits, axis=0) if len(bits) else np.zeros(0, np.uint64)
        for word in np.flatnonzero(some).tolist():
            rest = int(some[word])
            while rest:
                bit = (rest & -rest).bit_length() - 1
                rest &= rest - 1
                events = np.flatnonzero(bits[:, word] >> np.uint64(bit) & _ONE)
                yield self._holders[64 * word + bit], events


class NumberedHolders(Holders[int]):
    """Holders that are numbers, for looking up many at once."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers: Int64s = np.zeros(0, np.int64)
        self._bit_of: Int64s = np.zeros(0, np.int64)

    def add(self, holder: int) -> int:
        new = holder not in self.bits
        bit = super().add(holder)
        if new:
            at = int(np.searchsorted(self._numbers, holder))
            self._numbers = np.insert(self._numbers, at, holder)
            self._bit_of = np.insert(self._bit_of, at, bit)
        return bit

    def discard(self, holder: int) -> None:
        if holder in self.bits:
            at = int(np.searchsorted(self._numbers, holder))
            self._numbers, self._bit_of = np.delete(self._numbers, at), np.delete(self._bit_of, at)
        super().discard(holder)

    def among(self, numbers: Int64s) -> npt.NDArray[np.bool_]:
        return self._found(numbers) >= 0

    def of_pairs(self, count: int, events: npt.NDArray[np.int32], numbers: Int64s) -> Bits:
        """Bits for `count` events, from pairs of an event and a number; other numbers are ignored."""
        bits = self.none(count)
        bit = self._found(numbers)
        events, bit = events[bit >= 0], bit[bit >= 0]
        np.bitwise_or.at(bits, (events, bit >> 6), _ONE << (bit & 63).astype(np.uint64))
        return bits

    def _found(self, numbers: Int64s) -> Int64s:
        at = np.searchsorted(self._numbers, numbers)
        known = np.append(self._numbers, -1)[at] == numbers
        found: Int64s = np.where(known, np.append(self._bit_of, -1)[at], -1)
        return found
