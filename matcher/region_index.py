"""An index of regions by covering: which of many regions may cover a given one, and which may it cover?

A region that restricts an attribute has a *hull* there, the smallest interval of cuts that holds the
attribute of all its events; a region covers another only if each of its hulls holds the other's. So each
region becomes a vector of int64: per attribute the low cut and the complement of the high one (`~high`, which
falls as the cut grows), or the least number twice where it does not restrict the attribute. *To cover is then
to be nowhere greater.* A string has two further columns: a checksum and its complement where the region names
a single string. Cuts that are no int64 are rounded, always in the same direction for all; so the answers are
candidates, and the caller asks `covers_region`.

The vectors lie in blocks of at most `BLOCK`, near ones together: a block that overflows is cut in two at the
median of the column in which it spreads most (a k-d tree). Answering looks at every block's zone, some
nanoseconds each, and at the vectors of those blocks that can hold an answer. Measured with boxes of a city of
which none covers another, on a busy core: 4 µs per question among 1,000, 9 µs among 100,000.

Invariant: every id that was put and not taken is in one block, under the vector of its region. Regions
without vectors, those that accept nothing and trees over the cap of the normal form, are candidates always.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from zlib import crc32

import numpy as np
import numpy.typing as npt

from covey.matcher.compiling import compile_kernels
from covey.matcher.event_type import EventType, Kind
from covey.matcher.intervals import LINES, Cuts, only_string
from covey.matcher.region import Region
from covey.matcher.values import INT64_MAX, INT64_MIN

BLOCK = 128
"""With 64 a question among 100,000 took 16 µs, with 32 28 µs: the zones are most of it."""

_Vector = npt.NDArray[np.int64]


class _Leaf:
    __slots__ = ("block", "parent")

    def __init__(self, block: int, parent: _Fork | None) -> None:
        self.block = block
        self.parent = parent


class _Fork:
    """Vectors less than `threshold` in `column` lie below, the others above."""

    __slots__ = ("above", "below", "column", "parent", "threshold")

    def __init__(
        self, column: int, threshold: int, below: _Leaf | _Fork, above: _Leaf | _Fork, parent: _Fork | None
    ) -> None:
        self.column = column
        self.threshold = threshold
        self.below = below
        self.above = above
        self.parent = parent


class RegionIndex:
    """Regions of one event type under int64 ids."""

    def __init__(self) -> None:
        from covey.matcher import region_kernels  # Numba is loaded only where there is much to search

        compile_kernels()
        self._kernels = region_kernels
        self._regions: dict[int, Region] = {}
        self._plain: dict[int, None] = {}
        self._reset({})

    def _reset(self, columns: dict[str, int]) -> None:
        """No vectors, and these columns: the first of each attribute."""
        self._columns = columns
        self._layout: list[tuple[str, bool]] = []
        self._width = 0
        if columns:
            event_type = next(iter(self._regions.values())).event_type
            kinds = event_type.attributes
            self._layout = [(attribute, kinds[attribute] is Kind.STRING) for attribute in columns]
            self._width = sum(_width(event_type, attribute) for attribute in columns)
        self._zones = np.zeros((1 + 2 * self._width, 4), np.int64)
        self._held = np.zeros(4, np.int64)
        self._ids = np.zeros((4, BLOCK), np.int64)
        self._rows = np.zeros((4, BLOCK, self._width), np.int64)
        self._blocks = 0
        self._free: list[int] = []
        self._leaves: dict[int, _Leaf] = {}
        self._root: _Leaf | _Fork | None = None
        self._vector: _Vector = np.zeros(self._width, np.int64)
        self._bytes = self._vector.view(np.uint8).data
        self._numbers: list[int] = []
        self._pack = struct.Struct(f"{self._width}q").pack_into
        self._of: Region | None = None
        self._whole = False
        self._out: _Vector = np.zeros(BLOCK, np.int64)

    # --- changes --------------------------------------------------------------------------------------------

    def put(self, identity: int, region: Region) -> None:
        """Add a region, or give an id another one. A few microseconds."""
        self._regions[identity] = region
        if not region.conjunctions:
            self._withdraw(identity)
            self._plain[identity] = None
            return
        if self._plain:
            self._plain.pop(identity, None)
        if self._encode(region):
            self._place(identity)
        else:
            self._extend(region)

    def take(self, identity: int) -> None:
        """Remove an id that is there."""
        del self._regions[identity]
        self._withdraw(identity)
        self._plain.pop(identity, None)
        if not self._regions:
            self._reset({})

    def _withdraw(self, identity: int) -> None:
        leaf = self._leaves.pop(identity, None)
        if leaf is None:
            return
        if not self._kernels.take(self._zones, self._ids, self._rows, leaf.block, identity):
            self._drop(leaf)

    def _extend(self, region: Region) -> None:
        """Have columns for all that a region restricts: everything is put anew."""
        columns, width = dict(self._columns), self._width
        for attribute in _hulls(region):
            if attribute not in columns:
                columns[attribute] = width
                width += _width(region.event_type, attribute)
        self._reset(columns)
        for identity, known in self._regions.items():
            if identity not in self._plain:
                self._encode(known)
                self._place(identity)

    def _place(self, identity: int) -> None:
        """Put an id where the vector that was computed last belongs."""
        numbers = self._numbers
        here = self._root
        if here is None:
            here = self._root = _Leaf(self._new_block(), None)
        while here.__class__ is _Fork:
            here = here.below if numbers[here.column] < here.threshold else here.above
        assert isinstance(here, _Leaf)
        before = self._leaves.get(identity)
        if before is not here:
            if before is not None:
                self._withdraw(identity)  # the way to this leaf may become shorter by that, not another
            if self._zones[0, here.block] == BLOCK:
                self._split(here)
                self._place(identity)
                return
            self._leaves[identity] = here
        self._kernels.put(self._zones, self._ids, self._rows, here.block, identity, self._vector)

    # --- the tree -------------------------------------------------------------------------------------------

    def _new_block(self) -> int:
        if self._free:
            return self._free.pop()
        if self._blocks == len(self._ids):
            self._zones = np.concatenate([self._zones, np.zeros_like(self._zones)], axis=1)
            self._held = np.zeros(2 * len(self._held), np.int64)
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._blocks += 1
        return self._blocks - 1

    def _split(self, leaf: _Leaf) -> None:
        """Cut a full block in two."""
        column = self._widest(leaf.block)
        values = np.sort(self._rows[leaf.block, :, column])
        distinct = np.flatnonzero(values[1:] > values[:-1]) + 1
        # Where all are equal, what comes goes elsewhere.
        cut = int(distinct[np.argmin(np.abs(distinct - BLOCK // 2))]) if len(distinct) else BLOCK
        threshold = int(values[cut]) if cut < BLOCK else int(values[0])
        above = _Leaf(self._new_block(), None)
        fork = _Fork(column, threshold, leaf, above, leaf.parent)
        self._replace(leaf, fork)
        leaf.parent = above.parent = fork
        if cut == BLOCK:
            return
        rows = self._rows[leaf.block].copy()
        for place, identity in enumerate(self._ids[leaf.block].tolist()):
            row = rows[place]
            if row[column] >= threshold:
                self._kernels.take(self._zones, self._ids, self._rows, leaf.block, identity)
                self._kernels.put(self._zones, self._ids, self._rows, above.block, identity, row)
                self._leaves[identity] = above

    def _widest(self, block: int) -> int:
        """The column in which a block spreads most, measured by all blocks.

        A column whose partner is the same for all, one end of one-sided intervals, counts a quarter: half of
        all questions lie on either side of a cut there.
        """
        width = self._width
        zones = self._zones[:, : self._blocks].astype(np.float64)
        whole = zones[1 + width :].max(axis=1) - zones[1 : 1 + width].min(axis=1)
        spread = zones[1 + width :, block] - zones[1 : 1 + width, block]
        share = spread / np.maximum(whole, 1.0)
        partner = share.reshape(-1, 2)[:, ::-1].ravel()
        return int(np.argmax(np.where(partner > 0.0, share, share / 4)))

    def _replace(self, old: _Leaf | _Fork, new: _Leaf | _Fork) -> None:
        parent = old.parent
        new.parent = parent
        if parent is None:
            self._root = new
        elif parent.below is old:
            parent.below = new
        else:
            parent.above = new

    def _drop(self, leaf: _Leaf) -> None:
        """A leaf is empty: its sibling takes their parent's place."""
        self._free.append(leaf.block)
        if leaf.parent is None:
            self._root = None
        else:
            self._replace(leaf.parent, leaf.parent.above if leaf.parent.below is leaf else leaf.parent.below)

    # --- questions ------------------------------------------------------------------------------------------

    def may_cover(self, region: Region) -> Iterable[int]:
        """The ids of regions that may cover this one, itself among them if it is there.

        In an order that the history alone decides. All of them, for a region without a vector.
        """
        if not region.conjunctions:
            return list(self._regions)
        self._encode(region)
        return self._ask(self._kernels.not_above)

    def may_be_covered(self, region: Region) -> Iterable[int]:
        """The ids of regions that this one may cover, itself among them if it is there."""
        if region.conjunctions is None:
            return list(self._regions)
        if not region.conjunctions:
            return list(self._plain)
        if not self._encode(region):
            return list(self._plain)
        return self._ask(self._kernels.not_below)

    def _ask(self, kernel: Callable[..., int]) -> list[int]:
        if len(self._out) < len(self._regions):
            self._out = np.zeros(2 * len(self._regions), np.int64)
        found = kernel(self._zones, self._ids, self._rows, self._blocks, self._vector, self._held, self._out)
        answer: list[int] = self._out[:found].tolist()
        if self._plain:
            answer += self._plain
        return answer

    def _encode(self, region: Region) -> bool:
        """Write a region's vector into the buffer; false if it restricts what there is no column for."""
        if region is self._of:
            return self._whole
        hulls = _hulls(region)
        missing = len(hulls)
        numbers: list[int] = []
        for attribute, text in self._layout:
            hull = hulls.get(attribute)
            if hull is None:
                numbers += _UNRESTRICTED_TEXT if text else _UNRESTRICTED
                continue
            missing -= 1
            if text:
                numbers += _text_columns(hull[0], hull[-1])
            else:
                numbers += (hull[0], ~hull[-1])
        try:
            self._pack(self._bytes, 0, *numbers)
        except struct.error:  # cuts beyond int64
            numbers = [max(INT64_MIN, min(number, INT64_MAX)) for number in numbers]
            self._pack(self._bytes, 0, *numbers)
        self._numbers = numbers
        self._of = region
        self._whole = not missing
        return self._whole

    @property
    def blocks(self) -> int:
        """How many blocks hold vectors."""
        return self._blocks - len(self._free)

    def __contains__(self, identity: int) -> bool:
        return identity in self._regions

    def __iter__(self) -> Iterator[int]:
        return iter(self._regions)

    def __len__(self) -> int:
        return len(self._regions)


def _width(event_type: EventType, attribute: str) -> int:
    return 4 if event_type.attributes[attribute] is Kind.STRING else 2


def _hulls(region: Region) -> Mapping[str, Cuts]:
    """For each attribute that every conjunction restricts, cuts of which the first is lowest, the last
    highest.
    """
    found = region.conjunctions
    assert found
    if len(found) == 1:
        return found[0].cuts
    hulls: dict[str, Cuts] = {}
    for attribute in found[0].cuts:
        box = region.box_of(attribute)
        if box is not None:
            hulls[attribute] = box
    return hulls


_UNRESTRICTED = (INT64_MIN, INT64_MIN)
_UNRESTRICTED_TEXT = (INT64_MIN,) * 4
_NO_STRING = LINES[Kind.STRING].missing


@lru_cache(maxsize=4096)
def _text_columns(low: str, high: str) -> tuple[int, int, int, int]:
    only = only_string((low, high), 0)
    checksum = INT64_MIN if only is None else crc32(only.encode("utf-8", "surrogatepass"))
    complement = INT64_MIN if only is None else ~checksum
    return _text_number(low), ~_text_number(high), checksum, complement


def _text_number(cut: str) -> int:
    """The first characters of a cut as a number: greater cuts never have smaller numbers."""
    if cut == _NO_STRING:
        return -1
    head = cut[:8].encode("utf-8", "surrogatepass")[:7]
    return int.from_bytes(head.ljust(7, b"\0"), "big")
