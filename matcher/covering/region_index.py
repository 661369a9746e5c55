"""An index of regions by covering: candidates for regions that cover a given one, and for regions it covers.

A region becomes a few *boxes*, an interval of cuts per attribute. A region covers another only if one of its
boxes holds the first box of the other, which is chosen to be small. A box becomes a vector of int64: per
attribute the low cut and the complement of the high one (`~high`, which falls as the cut grows), or the least
number twice if the attribute is unrestricted. A box holds another only if its vector is nowhere greater,
which a tree answers (`vector_tree.py`). A string has two more columns: a checksum and its complement if the
box is a single string. Calls have two columns, the greatest of their keys and the complement of the least
(`call_atoms.keys_of`): a conjunction holds another only if the other has the keys of all its calls. Cuts
outside int64 are rounded, always in the same direction; so callers test candidates with `holds_region`.

Invariant: an id's first box is in the tree under the id, its other boxes under numbers below zero; or the id
is *plain*, always a candidate: its region accepts nothing, is a tree over the cap of the normal form, or came
when no region restricted anything."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice, product
from typing import TYPE_CHECKING
from zlib import crc32

import numpy as np
import numpy.typing as npt

from covey.matcher.covering.call_atoms import keys_of
from covey.matcher.covering.conjunction import Conjunction
from covey.matcher.covering.cuts import LINES, Cuts, only_string
from covey.matcher.covering.region import Region
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.events.int64 import INT64_MAX, INT64_MIN
from covey.matcher.expressions.expression import Predicate
from covey.matcher.jit.compiling import compile_kernels

if TYPE_CHECKING:
    from covey.matcher.covering.vector_tree import VectorTree


_NONE = -1
_FIRST_ROOM = 64


class VectorTable:
    """A `VectorTree` without kernels: its searches compare all vectors."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.vector = np.zeros(width, np.int64)
        self._columns = np.zeros((width, _FIRST_ROOM), np.int64)
        self._ids = np.zeros(_FIRST_ROOM, np.int64)
        self._places: dict[int, int] = {}

    def put(self, identity: int) -> None:
        place = self._places.setdefault(identity, len(self._places))
        if place == len(self._ids):
            self._ids = np.concatenate([self._ids, np.zeros_like(self._ids)])
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)], axis=1)
        self._ids[place] = identity
        self._columns[:, place] = self.vector

    def take(self, identity: int) -> None:
        place, last = self._places.pop(identity), len(self._places)
        if place != last:
            moved = int(self._ids[last])
            self._places[moved] = place
            self._ids[place] = moved
            self._columns[:, place] = self._columns[:, last]

    def widen(self, columns: int) -> None:
        self._columns = np.concatenate(
            [self._columns, np.full((columns, len(self._ids)), INT64_MIN, np.int64)], axis=0
        )
        self.width += columns
        self.vector = np.zeros(self.width, np.int64)

    def ask(self, covering: bool, covered: bool, exclude: int = _NONE) -> tuple[Iterable[int], Iterable[int]]:
        return (
            self._nowhere(np.greater, exclude) if covering else (),
            self._nowhere(np.less, exclude) if covered else (),
        )

    def _nowhere(self, differs: np.ufunc, exclude: int) -> list[int]:
        count = len(self._places)
        outside: npt.NDArray[np.bool_] = np.zeros(count, np.bool_)
        for column, value in zip(self._columns, self.vector, strict=True):
            outside |= differs(column[:count], value)
        ids: list[int] = self._ids[:count][~outside].tolist()
        return [identity for identity in ids if identity != exclude]

    @property
    def blocks(self) -> int:
        return 1 if self._places else 0

    def __contains__(self, identity: int) -> bool:
        return identity in self._places

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


_NOBODY = -1
_FIRST_NUMBER = -1
_MOST_BOXES = 8
_Box = Mapping[str, Cuts]


class RegionIndex:
    """Regions of one event type under ids >= 0; if not `compiled`, a search compares all vectors, without
    kernels."""

    def __init__(self, *, compiled: bool = True) -> None:
        self.compiled = compiled
        self._new_tree: type[VectorTree] | type[VectorTable] = VectorTable
        if compiled:
            # Numba is loaded only where there is much to search.
            from covey.matcher.covering import vector_tree

            compile_kernels()
            self._new_tree = vector_tree.VectorTree
        self._reset()

    def _reset(self) -> None:
        self._plain: dict[int, None] = {}
        self._others: dict[int, list[int]] = {}  # box numbers of an id, after the first box
        self._owners: dict[int, int] = {}  # the id by box number
        self._numbers = _FIRST_NUMBER
        self._layout: dict[str, bool] = {}
        """The attributes with columns, in their order, and whether they are strings; calls as `_CALLS`."""
        self._tree: VectorTree | VectorTable = self._new_tree(0)
        self._buffer = self._tree.vector.view(np.uint8).data
        self._pack = struct.Struct("").pack_into
        self._of: tuple[Region | None, Sequence[_Box]] = (None, ())
        self._encoded: _Box | None = None
        self._whole = False

    # --- changes --------------------------------------------------------------------------------------------

    def put(self, identity: int, region: Region) -> None:
        """Add a region, or replace the region of an id. A few microseconds per box."""
        boxes = self._boxes(region)
        for box in boxes:
            if not self._encode(box):
                self._extend(region.event_type, box)
        if not boxes or not self._layout:
            if identity in self._tree:
                self._tree.take(identity)
                self._put_others(identity, ())
            self._plain[identity] = None
            return
        if self._plain:
            self._plain.pop(identity, None)
        if len(boxes) > 1 or identity in self._others:
            self._put_others(identity, boxes[1:])
        self._encode(boxes[0])
        self._tree.put(identity)

    def _put_others(self, identity: int, boxes: Sequence[_Box]) -> None:
        numbers = self._others.pop(identity, [])
        while len(numbers) > len(boxes):
            number = numbers.pop()
            self._tree.take(number)
            del self._owners[number]
        while len(numbers) < len(boxes):
            self._numbers -= 1
            numbers.append(self._numbers)
            self._owners[self._numbers] = identity
        for number, box in zip(numbers, boxes, strict=True):
            self._encode(box)
            self._tree.put(number)
        if numbers:
            self._others[identity] = numbers

    def move(
        self, identity: int, region: Region, covering: bool, covered: bool
    ) -> tuple[Iterable[int], Iterable[int]]:
        """As `put`; then the answers of `may_cover`, if `covering`, and of `may_be_covered`, if `covered`,
        without the id itself."""
        self.put(identity, region)
        if self._plain or self._owners:
            return self._ask(region, covering, covered, identity)
        return self._tree.ask(covering, covered, identity)

    def take(self, identity: int) -> None:
        """Remove an id, which must be in the index."""
        if identity in self._tree:
            self._tree.take(identity)
            self._put_others(identity, ())
        else:
            del self._plain[identity]
        if not len(self):
            self._reset()

    def _extend(self, event_type: EventType, box: _Box) -> None:
        width = self._tree.width
        for attribute in box:
            if attribute not in self._layout:
                self._layout[attribute] = event_type.attributes.get(attribute) is Kind.STRING
                width += 4 if self._layout[attribute] else 2
        if len(self._tree):
            self._tree.widen(width - self._tree.width)
        else:
            self._tree = self._new_tree(width)
        self._pack = struct.Struct(f"{width}q").pack_into
        self._buffer = self._tree.vector.view(np.uint8).data
        self._encoded = None

    # --- questions ------------------------------------------------------------------------------------------

    def may_cover(self, region: Region, exclude: int = _NOBODY) -> Iterable[int]:
        """Ids other than `exclude` whose regions may cover this one; their order depends on the history
        alone."""
        return self._ask(region, True, False, exclude)[0]

    def may_be_covered(self, region: Region, exclude: int = _NOBODY) -> Iterable[int]:
        """Ids other than `exclude` whose regions this one may cover."""
        return self._ask(region, False, True, exclude)[1]

    def around(self, region: Region, exclude: int = _NOBODY) -> tuple[Iterable[int], Iterable[int]]:
        """Both answers, at little more than the cost of one."""
        return self._ask(region, True, True, exclude)

    def _ask(
        self, region: Region, covering: bool, covered: bool, exclude: int
    ) -> tuple[Iterable[int], Iterable[int]]:
        boxes = self._boxes(region)
        if not boxes:
            every = [identity for identity in self if identity != exclude]
            plain = [identity for identity in self._plain if identity != exclude]
            return every, every if region.conjunctions is None else plain
        # No region restricts an attribute without a column: a box that does covers none.
        whole = self._encode(boxes[0])
        above, below = self._tree.ask(covering, covered and whole, exclude)
        if covered and len(boxes) > 1:
            below = [*below]
            for box in boxes[1:]:
                if self._encode(box):
                    below += self._tree.ask(False, True, exclude)[1]
            below = dict.fromkeys(below)
        if self._owners:
            owners = dict.fromkeys([self._owners.get(number, number) for number in above])
            above = [identity for identity in owners if identity != exclude]
            below = [identity for identity in below if identity >= 0]
        if self._plain:
            plain = [identity for identity in self._plain if identity != exclude]
            return [*above, *plain], [*below, *plain]
        return above, below

    def _boxes(self, region: Region) -> Sequence[_Box]:
        last, boxes = self._of
        if last is not region:
            boxes = _boxes_of(region)
            self._of = region, boxes
        return boxes

    def _encode(self, box: _Box) -> bool:
        """Write a box's vector into the buffer; false if the box restricts an attribute without a column."""
        if box is self._encoded:
            return self._whole
        missing = len(box)
        numbers: list[int] = []
        for attribute, text in self._layout.items():
            cuts = box.get(attribute)
            if cuts is None:
                numbers += _UNRESTRICTED_TEXT if text else _UNRESTRICTED
                continue
            missing -= 1
            if text:
                numbers += _text_columns(cuts[0], cuts[-1])
            else:
                numbers += (cuts[0], ~cuts[-1])
        try:
            self._pack(self._buffer, 0, *numbers)
        except struct.error:  # cuts outside int64
            numbers = [max(INT64_MIN, min(number, INT64_MAX)) for number in numbers]
            self._pack(self._buffer, 0, *numbers)
        self._encoded = box
        self._whole = not missing
        return self._whole

    @property
    def blocks(self) -> int:
        return self._tree.blocks

    def __contains__(self, identity: int) -> bool:
        return identity in self._tree or identity in self._plain

    def __iter__(self) -> Iterator[int]:
        return chain((identity for identity in self._tree if identity >= 0), self._plain)

    def __len__(self) -> int:
        return len(self._tree) - len(self._owners) + len(self._plain)


def _boxes_of(region: Region) -> Sequence[_Box]:
    """The boxes of a region, per attribute the first and last cut; none for an empty region or a tree. A
    region with more than `_MOST_BOXES` has the first box, then a hull per conjunction, or one hull of all of
    them."""
    conjunctions = region.conjunctions
    if not conjunctions:
        return ()
    if len(conjunctions) == 1 and not conjunctions[0].atoms:  # nearly always
        cuts = conjunctions[0].cuts
        for each in cuts.values():
            if len(each) > 2:
                break
        else:
            return (cuts,)
    smallest_first = sorted(conjunctions, key=_points, reverse=True)
    boxes = list(islice(chain.from_iterable(map(_intervals, smallest_first)), _MOST_BOXES + 1))
    if len(boxes) <= _MOST_BOXES:
        return boxes
    if len(conjunctions) < _MOST_BOXES:
        return [boxes[0], *[{**each.cuts, **_keys([each])} for each in conjunctions]]
    common = {name: region.box_of(name) for name in conjunctions[0].cuts}
    return [boxes[0], {name: hull for name, hull in common.items() if hull} | _keys(conjunctions)]


def _points(conjunction: Conjunction) -> tuple[int, int]:
    """The number of attributes with single values, and of all restricted ones."""
    cuts = conjunction.cuts.values()
    single = [
        only_string(each, 0) is not None if isinstance(each[0], str) else each[1] - each[0] == 1
        for each in cuts
    ]
    return sum(single), len(single)


def _intervals(conjunction: Conjunction) -> Iterator[_Box]:
    """A box per choice of intervals; at least `_MOST_BOXES` + 1 boxes if there are so many choices."""
    keys = _keys([conjunction])
    choices = [
        [cuts[at : at + 2] for at in range(0, min(len(cuts), 2 * _MOST_BOXES + 2), 2)]
        for cuts in conjunction.cuts.values()
    ]
    for chosen in product(*choices):
        yield {**dict(zip(conjunction.cuts, chosen, strict=True)), **keys}


def _keys(conjunctions: Sequence[Conjunction]) -> dict[str, Cuts]:
    """The greatest and the least key that every conjunction has; empty if there is none."""
    common: set[int] | None = None
    for conjunction in conjunctions:
        keys = {key for atom in conjunction.atoms if not isinstance(atom, Predicate) for key in keys_of(atom)}
        common = keys if common is None else common & keys
        if not common:
            return {}
    return {_CALLS: (max(common), min(common))} if common else {}


_CALLS = ""  # the columns of calls, among the attributes
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
