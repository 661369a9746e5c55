"""Filters, values and interfaces of subscriptions by id, as the user gave them; engines keep only bounds.

An entry takes about 30 bytes, and 9 per value (`words.py`); a filter is stored once for all its
subscriptions. Filters whose variables have equal names and families share a *layout*, and are read and
written together.

    words, types  [ values of one subscription, in the order of its filter's variables | ... ]"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.bounds import Values, check_columns
from covey.matcher.embedded.words import TEXT, Texts, Types, Words, values_of, word_of, write_column
from covey.matcher.engine import IdArray
from covey.matcher.engines.rows.arrays import Ids, Numbers, Runs, grown, positions_by_value
from covey.matcher.engines.rows.ids import IdMap
from covey.matcher.events.value_columns import taken
from covey.matcher.expressions.expression import Scalar
from covey.matcher.expressions.values import Family
from covey.matcher.filters.filter import Filter
from covey.matcher.load import Load

Layout = tuple[tuple[str, Family], ...]  # the variables of a filter, in order
_SMALLEST = 16
_FREE = -1


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription with its present values."""

    id: int
    filter: Filter
    values: dict[str, Scalar]
    interface: int


@dataclass(slots=True)
class _FilterUse:
    filter: Filter
    layout: int
    subscriptions: int = 0


class SubscriptionTable:
    """Subscriptions by id; callers check what they add and update."""

    def __init__(self) -> None:
        self._map = IdMap()
        self._entries, self._runs = Runs("subscriptions"), Runs("values")
        self._ids: IdArray = np.zeros(_SMALLEST, dtype=np.int64)
        self._filter_numbers: npt.NDArray[np.int32] = np.full(_SMALLEST, _FREE, dtype=np.int32)
        self._starts: Numbers = np.zeros(_SMALLEST, dtype=np.int64)
        self._interfaces: npt.NDArray[np.uint16] = np.zeros(_SMALLEST, dtype=np.uint16)
        self._words: Words = np.zeros(_SMALLEST, dtype=np.int64)
        self._types: Types = np.zeros(_SMALLEST, dtype=np.uint8)
        self.texts = Texts()
        self._uses: list[_FilterUse | None] = []
        self._layout_by_filter: npt.NDArray[np.int32] = np.zeros(_SMALLEST, dtype=np.int32)
        self._free_uses: list[int] = []
        self._numbers: dict[Filter, int] = {}
        self.layouts: list[Layout] = []
        self._layout_numbers: dict[Layout, int] = {}

    def __len__(self) -> int:
        return len(self._map)

    @property
    def _id_halves(self) -> Ids:
        return self._ids.view(np.int32).reshape(-1, 2)

    # --- changes ----------------------------------------------------------------------------------

    def add(self, load: Load) -> None:
        """Add subscriptions whose ids are not in the table; raises as engines do, before it adds any."""
        layouts = np.array([self._layout_of(filter) for filter in load.filters], dtype=np.int64)[load.numbers]
        checked: list[tuple[int, Numbers, dict[str, Values]]] = []
        for layout in np.unique(layouts).tolist():
            positions = np.flatnonzero(layouts == layout)
            filter = load.filters[load.numbers[positions[0]]]
            values = check_columns(filter, load.values_of(filter, positions), len(positions))
            checked.append((layout, positions, values))
        numbers = np.array([self._enter(filter) for filter in load.filters], dtype=np.int64)
        counts = np.bincount(load.numbers, minlength=len(numbers))
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._use(number).subscriptions += count
        entries = self._entries.allocate(len(load), 1)
        if self._entries.top > len(self._ids):
            self._resize(max(self._entries.top, len(self._ids) * 5 // 4))
        self._ids[entries] = load.ids
        self._filter_numbers[entries] = numbers[load.numbers]
        self._interfaces[entries] = load.interfaces
        self._map.enter(self._id_halves, entries)
        for layout, positions, values in checked:
            self._write(layout, entries[positions], values)

    def add_one(
        self, subscription_id: int, filter: Filter, values: Mapping[str, Scalar], interface: int
    ) -> None:
        number = self._enter(filter)
        self._use(number).subscriptions += 1
        entries = self._entries.allocate(1, 1)
        if self._entries.top > len(self._ids):
            self._resize(len(self._ids) * 5 // 4)
        entry = int(entries[0])
        self._ids[entry], self._filter_numbers[entry] = subscription_id, number
        self._interfaces[entry] = interface
        self._map.enter(self._id_halves, entries)
        self._write(self._use(number).layout, entries, dict(values))

    def _write(self, layout: int, entries: Numbers, values: dict[str, Values]) -> None:
        size = len(self.layouts[layout])
        starts = self._runs.allocate(len(entries), size) if size else np.zeros(len(entries), dtype=np.int64)
        if self._runs.top > len(self._words):
            room = max(self._runs.top, len(self._words) * 5 // 4)
            self._words, self._types = grown(self._words, room), grown(self._types, room)
        self._starts[entries] = starts
        for at, (name, family) in enumerate(self.layouts[layout]):
            words, types = np.empty(len(entries), dtype=np.int64), np.empty(len(entries), dtype=np.uint8)
            write_column(family, values[name], self.texts, words, types)
            self._words[starts + at], self._types[starts + at] = words, types

    def remove(self, ids: IdArray) -> None:
        entries = self._map.find(self._id_halves, ids)
        self._map.remove(self._id_halves, entries)
        for layout, positions in self._by_layout(entries):
            mine = entries[positions]
            starts, size = self._starts[mine], len(self.layouts[layout])
            for at, (_, family) in enumerate(self.layouts[layout]):
                if family is Family.STRING:
                    self.texts.release(self._words[starts + at])
            self._runs.free(starts, size)
        numbers, counts = np.unique(self._filter_numbers[entries], return_counts=True)
        for number, count in zip(numbers.tolist(), counts.tolist(), strict=True):
            self._leave(number, count)
        self._filter_numbers[entries] = _FREE
        self._entries.free(entries, 1)

    def update(self, subscription_id: int, values: Mapping[str, object]) -> None:
        entry = self._map.find_one(self._id_halves, subscription_id)
        use = self._use(int(self._filter_numbers[entry]))
        start, layout = int(self._starts[entry]), self.layouts[use.layout]
        for name, value in use.filter.check_values(values, partial=True).items():
            at = start + next(at for at, (other, _) in enumerate(layout) if other == name)
            old, kind = self._words[at], self._types[at]
            self._words[at], self._types[at] = word_of(value, self.texts)
            if kind == TEXT:
                self.texts.release(np.array([old]))

    def update_many(self, ids: IdArray, values: Mapping[str, Any]) -> None:
        """Give variables of many subscriptions new values; columns as for engines."""
        entries = self._map.find(self._id_halves, ids)
        for layout, positions in self._by_layout(entries):
            mine = entries[positions]
            filter = self._use(int(self._filter_numbers[mine[0]])).filter
            chosen = {name: taken(name, value, positions) for name, value in values.items()}
            checked = check_columns(filter, chosen, len(mine), partial=True)
            for at, (name, family) in enumerate(self.layouts[layout]):
                if name in checked:
                    places = self._starts[mine] + at
                    old = self._words[places]
                    words, types = np.empty(len(mine), dtype=np.int64), np.empty(len(mine), dtype=np.uint8)
                    write_column(family, checked[name], self.texts, words, types)
                    self._words[places], self._types[places] = words, types
                    if family is Family.STRING:
                        self.texts.release(old)

    # --- reading ----------------------------------------------------------------------------------

    def find(self, ids: IdArray) -> Numbers:
        """The entry of every id, -1 for an unknown one."""
        return self._map.find(self._id_halves, ids)

    def find_one(self, subscription_id: int) -> int:
        """The entry of an id, -1 if it is unknown."""
        return self._map.find_one(self._id_halves, subscription_id)

    def entries(self, size: int) -> Iterator[Numbers]:
        for start in range(0, self._entries.top, size):
            numbers = self._filter_numbers[start : min(start + size, self._entries.top)]
            yield start + np.flatnonzero(numbers != _FREE)

    def filter_of(self, entry: int) -> Filter:
        return self._use(int(self._filter_numbers[entry])).filter

    def by_event_type(self, entries: Numbers) -> Iterator[tuple[str, Numbers]]:
        """(name of an event type, positions of its entries)"""
        distinct, of_entry = np.unique(self._filter_numbers[entries], return_inverse=True)
        names = [self._use(number).filter.event_type.name for number in distinct.tolist()]
        places = {name: place for place, name in enumerate(dict.fromkeys(names))}
        place_of = np.array([places[name] for name in names], dtype=np.int64)
        yield from zip(places, positions_by_value(place_of[of_entry]), strict=True)

    def read(self, entries: Numbers) -> Iterator[Subscription]:
        words, types, offsets = self.values(entries)
        values = values_of(words.tolist(), types.tolist(), self.texts)
        ends = offsets.tolist()
        fields = zip(
            self._ids[entries].tolist(), self._filter_numbers[entries].tolist(),
            self._interfaces[entries].tolist(), ends, ends[1:], strict=False,
        )  # fmt: skip
        for subscription_id, number, interface, start, end in fields:
            filter = self._use(number).filter
            named = dict(zip(filter.variables, values[start:end], strict=True))
            yield Subscription(subscription_id, filter, named, interface)

    def values(self, entries: Numbers) -> tuple[Words, Types, Numbers]:
        """The words and types of all entries in a row, and the offsets of each entry."""
        layouts = self._layouts_of(entries).tolist()
        sizes = np.array([len(self.layouts[layout]) for layout in layouts], dtype=np.int64)
        offsets = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)])
        places = np.repeat(self._starts[entries] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return self._words[places], self._types[places], offsets

    def fields(self, entries: Numbers) -> tuple[IdArray, Numbers, npt.NDArray[np.uint16]]:
        return (
            self._ids[entries],
            self._filter_numbers[entries].astype(np.int64),
            self._interfaces[entries],
        )

    def filters(self) -> Sequence[Filter | None]:
        """The filters by number; None for a free number."""
        return [None if use is None else use.filter for use in self._uses]

    def memory_bytes(self) -> dict[str, int]:
        """Bytes of the arrays by part, without Python's filters and strings."""
        entries = (
            self._ids.nbytes + self._filter_numbers.nbytes + self._starts.nbytes + self._interfaces.nbytes
        )
        return {
            "entries": entries,
            "values": self._words.nbytes + self._types.nbytes,
            "id map": self._map.nbytes,
        }

    # --- filters and layouts ----------------------------------------------------------------------

    def _use(self, number: int) -> _FilterUse:
        use = self._uses[number]
        assert use is not None
        return use

    def _enter(self, filter: Filter) -> int:
        number = self._numbers.get(filter)
        if number is None:
            number = self._free_uses.pop() if self._free_uses else len(self._uses)
            if number == len(self._uses):
                self._uses.append(None)
                if number == len(self._layout_by_filter):
                    self._layout_by_filter = grown(self._layout_by_filter, 2 * number)
            self._uses[number] = _FilterUse(filter, self._layout_of(filter))
            self._layout_by_filter[number] = self._use(number).layout
            self._numbers[filter] = number
        return number

    def _leave(self, number: int, subscriptions: int) -> None:
        use = self._use(number)
        use.subscriptions -= subscriptions
        if use.subscriptions == 0:
            del self._numbers[use.filter]
            self._uses[number] = None
            self._free_uses.append(number)

    def _layout_of(self, filter: Filter) -> int:
        layout = layout_of(filter)
        number = self._layout_numbers.setdefault(layout, len(self.layouts))
        if number == len(self.layouts):
            self.layouts.append(layout)
        return number

    def _layouts_of(self, entries: Numbers) -> Numbers:
        layouts: Numbers = self._layout_by_filter[self._filter_numbers[entries]].astype(np.int64)
        return layouts

    def _by_layout(self, entries: Numbers) -> Iterator[tuple[int, Numbers]]:
        """(layout, positions of its entries)"""
        layouts = self._layouts_of(entries)
        for positions in positions_by_value(layouts) if len(layouts) else ():
            yield int(layouts[positions[0]]), positions

    def _resize(self, size: int) -> None:
        self._ids, self._starts = grown(self._ids, size), grown(self._starts, size)
        self._filter_numbers = grown(self._filter_numbers, size, _FREE)
        self._interfaces = grown(self._interfaces, size)


def layout_of(filter: Filter) -> Layout:
    return tuple([(name, family) for name in filter.variables if (family := filter.family(name))])
