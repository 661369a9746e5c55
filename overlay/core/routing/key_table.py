"""The last event of each key of one type at one broker, for views, and how old it may be.

    keys       dict   key -> row
    _chunk     int64  by row: the batch that has its last event, -1 where the row is free
    _place     int64  by row: the position there
    _source    int64  by row: the serial of the interface that it came from
    _age       int64  by row: the number of the batch that brought it
    _came_ns   int64  by row: when it came
    _leaving   int64  by row: how many departures of the key have yet to reach views
    links      bits   by row: the neighbours that have it
    views      bits   by row: the views of this broker that have it
    _columns   int64  by row: the attributes that views compare (`key_columns.py`)

Batches are kept as they came, small ones packed (`link/packing.py`), until most of their events are outdated;
then the rest is joined. Invariant: between two calls of a broker each used row has an event, and at most
`max_keys` rows and `max_bytes` of memory are used; beyond that, keys without a new event for longest are
evicted and counted. Beyond `max_bytes` all batches are joined first; unless that leaves a quarter free, keys
are evicted until it does. All tables of a broker share a bound, beyond which the largest gives up a quarter.

A type with a maximal age is searched once its oldest key may be too old, at most sixteen times per maximal
age; so a key is retired at most a sixteenth of it late.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise, repeat
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.packed_columns import MOST_PACKED
from covey.overlay.core.link.event_queue import Waiting, Whole, packed
from covey.overlay.core.messages import Publish
from covey.overlay.core.routing.key_columns import Holders, KeyColumns, NumberedHolders, compared

if TYPE_CHECKING:
    from covey.matcher.covering.region import Region
    from covey.overlay.core.messages import Interface


_TIMES = 16


class KeyAges:
    """`max_age_ns` has the maximal age of keys by type name; keys of other types have none. `next_ns` is when
    the next type is due, 0 for none."""

    def __init__(self, max_age_ns: Mapping[str, int]) -> None:
        self.max_age_ns = max_age_ns
        self.next_ns = 0
        self._due: dict[str, int] = {}

    def stored(self, type_name: str, now_ns: int) -> None:
        """Events of a type were stored at that time, which may be long ago."""
        if type_name in self.max_age_ns:
            due_ns = now_ns + self.max_age_ns[type_name]
            if due_ns < self._due.get(type_name, due_ns + 1):
                self._set(type_name, due_ns)

    def due(self, now_ns: int) -> list[str]:
        """The types to search now; call `looked` for each that has keys left."""
        names = [name for name, due_ns in self._due.items() if now_ns >= due_ns]
        for name in names:
            del self._due[name]
        self.next_ns = min(self._due.values(), default=0)
        return names

    def looked(self, type_name: str, oldest_ns: int, now_ns: int) -> None:
        """A type was searched; `oldest_ns` is when the last event of its oldest key came."""
        age_ns = self.max_age_ns[type_name]
        self._set(type_name, max(oldest_ns + age_ns, now_ns + age_ns // _TIMES))

    def _set(self, type_name: str, due_ns: int) -> None:
        self._due[type_name] = due_ns
        self.next_ns = min(self._due.values())


Int64s = npt.NDArray[np.int64]

MAX_KEYS = 1 << 18
MAX_BYTES = 112 << 20
MAX_KEY_BYTES = 256 << 20
"""Of the keys and batches of all types."""
_ROW_BYTES = 240
"""Of a key in the dict and in all columns, besides the characters of a string."""
_SMALL = 1024
"""Batches of fewer events are joined with others."""
_MOST_SMALL = 256
_SPARE = 16
"""One of so many keys is evicted at a time."""
_NO_ROWS = np.zeros(0, np.int64)


@dataclass(slots=True)
class KeyBytes:
    bound: int = MAX_KEY_BYTES
    used: int = 0


class KeyTable:
    """The last events of the keys of a type, and who has them; its bytes count in `common`, too. `evicted`
    keys were over a bound, `aged` ones without an event for too long."""

    def __init__(
        self,
        key: str,
        max_keys: int = MAX_KEYS,
        max_bytes: int = MAX_BYTES,
        common: KeyBytes | None = None,
    ) -> None:
        self.key = key
        self.max_keys, self.max_bytes = max_keys, max_bytes
        self.links: Holders[Interface] = Holders()
        self.views = NumberedHolders()
        self.evicted = 0
        self.aged = 0
        self._rows: dict[object, int] = {}
        self._keys: list[object] = []
        self._free: list[int] = []
        self._chunk = self._place = self._source = self._age = self._came_ns = self._leaving = _NO_ROWS
        self._chunks: dict[int, Waiting] = {}
        self._live: dict[int, int] = {}
        """By chunk, the keys whose last event it has."""
        self._small: dict[int, None] = {}
        self._join_at = _MOST_SMALL
        self._bytes = 0
        self._common = KeyBytes() if common is None else common
        self._next_chunk = 0
        self._columns = KeyColumns()

    def __len__(self) -> int:
        return len(self._rows)

    def rows_of(self, batch: EventBatch) -> Int64s:
        """int64[events]: the row of each event's key; -1 where it is unknown or null."""
        rows: dict[object, int] = self._rows
        return np.fromiter(map(rows.get, self._keys_of(batch), repeat(-1)), np.int64, batch.count)

    def take(self, batch: EventBatch, source: int, now_ns: int | Int64s = 0) -> Int64s:
        """Store the last event of each key of a batch from interface `source`, which came at `now_ns` (or one
        time per event); returns the row of each event's key, -1 if null. Evict `excess` afterwards."""
        keys = self._keys_of(batch)
        found = list(map(self._rows.get, keys))
        if None in found:
            for i in [i for i, row in enumerate(found) if row is None]:
                found[i] = -1 if keys[i] is None else self._row(keys[i])
        rows = np.array(found, np.int64)
        last = _last_of_each(rows)
        if not len(last):
            return rows
        kept = rows[last]
        chunk = self._add(batch, len(kept))
        self._release(kept)
        self._chunk[kept], self._place[kept] = chunk, last
        self._source[kept], self._age[kept] = source, chunk
        self._came_ns[kept] = now_ns if isinstance(now_ns, int) else now_ns[last]
        if len(self._small) > self._join_at:
            self._join()
        return rows

    def excess(self) -> Int64s:
        """The rows to evict; call again after dropping them, until there are none."""
        count = 0
        if len(self._rows) > self.max_keys:
            count = max(len(self._rows) // _SPARE, len(self._rows) - self.max_keys)
        if self._bytes > self.max_bytes:
            count = max(count, self._join_within(self.max_bytes // 4 * 3))
        return self._oldest(count)

    def quarter(self) -> Int64s:
        """The rows to evict for about a quarter of its bytes, none where joining its batches frees that."""
        return self._oldest(self._join_within(self._bytes // 4 * 3))

    def close(self) -> None:
        """Free its bytes in `common`; it is no longer used."""
        self._common.used -= self._bytes
        self._common = KeyBytes()

    def came_from(self, batch: EventBatch, serial: int) -> npt.NDArray[np.bool_]:
        """bool[events]: whether the last event of the key came from this interface."""
        rows = self.rows_of(batch)
        return np.append(self._source, -1)[rows] == serial if len(self._source) else rows >= 0

    @property
    def next_batch(self) -> int:
        """The number of the next batch, for `of_source`."""
        return self._next_chunk

    def of_source(self, serial: int, before: int | None = None) -> Int64s:
        """The rows whose events came from an interface, before batch `before` if given."""
        used = self._used()
        rows: Int64s = used[self._source[used] == serial]
        return rows if before is None else rows[self._age[rows] < before]

    def give(self, serial: int, to: int) -> None:
        """Make another interface the source of all events of `serial`."""
        self._source[self._source == serial] = to

    def came_before(self, time_ns: int, serials: Iterable[int]) -> tuple[Int64s, int]:
        """Rows of events from these interfaces up to a time, and when the oldest of the others came, or 0."""
        used = self._used()
        used = used[np.isin(self._source[used], list(serials))]
        came_ns = self._came_ns[used]
        others = came_ns[came_ns > time_ns]
        return used[came_ns <= time_ns], int(others.min()) if len(others) else 0

    def not_at(self, neighbour: Interface, serial: int) -> Int64s:
        """The rows whose events a neighbour neither has nor sent."""
        used = self._used()
        rows: Int64s = used[~self.links.has(neighbour, used) & (self._source[used] != serial)]
        return rows

    def everything(self) -> Int64s:
        return self._used()

    def inside(self, region: Region, rows: Int64s) -> tuple[Int64s, bool]:
        """The rows that may be in a region, and whether these are exact; reads new events first."""
        for attribute, kind in compared(region).items():
            new = self._used()
            new = new[self._age[new] >= self._columns.current.get(attribute, 0)]
            self._columns.read(attribute, kind, len(self._age), self._parts(new), self._next_chunk)
        return self._columns.inside(region, rows)

    def events(self, rows: Int64s) -> Iterator[tuple[EventBatch, Int64s]]:
        """The events of some rows, batch by batch in order of arrival, with their rows."""
        for batch, places, own in self._parts(rows):
            yield batch.take(places), own

    def joined(self, rows: Int64s) -> Iterator[tuple[EventBatch, Int64s]]:
        """As `events`, in as few batches as publishers and schemas allow."""
        groups: dict[tuple[object, ...], list[tuple[EventBatch, Int64s]]] = {}
        for batch, own in self.events(rows):
            alike = (batch.publisher, batch.event_type, batch.first_sequence >> 31)
            groups.setdefault(alike, []).append((batch, own))
        for parts in groups.values():
            yield EventBatch.concat([batch for batch, _ in parts]), np.concatenate([own for _, own in parts])

    def leave(self, rows: Int64s) -> None:
        """Mark the last events of these keys as outdated; -1 is ignored. The last of as many `drop_left`
        frees the rows."""
        rows = np.unique(rows[rows >= 0])
        self._release(rows)
        self._chunk[rows] = -1
        self._leaving[rows] += 1

    def drop_left(self, rows: Int64s) -> None:
        """Drop keys that have left, have not come back, and have no `drop_left` to follow."""
        rows = np.unique(rows[rows >= 0])
        self._leaving[rows] = np.maximum(self._leaving[rows] - 1, 0)  # a row may be another key's by now
        self.drop(rows[(self._chunk[rows] < 0) & (self._leaving[rows] == 0)])

    def drop(self, rows: Int64s) -> None:
        """Remove these keys, each once. Clear their holders before."""
        self._release(rows)
        self._chunk[rows], self._leaving[rows] = -1, 0
        for row in rows.tolist():
            self._count(-_key_bytes(self._keys[row]))
            del self._rows[self._keys[row]]
            self._keys[row] = None
        self._free += rows.tolist()

    def inspect(self) -> dict[str, int]:
        return {
            "keys": len(self._rows),
            "bound": self.max_keys,
            "bytes": self._bytes,
            "evicted": self.evicted,
            "aged": self.aged,
            "views": len(self.views),
        }

    @property
    def nbytes(self) -> int:
        return self._bytes

    # --- helpers --------------------------------------------------------------------------------------------

    def _count(self, added: int) -> None:
        self._bytes += added
        self._common.used += added

    def _join_within(self, bound: int) -> int:
        """Join all batches; returns how many rows must still go to fit the bound."""
        self._join(every=True)
        return self._beyond(bound) if self._bytes > bound else 0

    def _oldest(self, count: int) -> Int64s:
        if not count:
            return _NO_ROWS
        used = self._used()
        return used[np.argsort(self._age[used], kind="stable")[:count]]

    def _keys_of(self, batch: EventBatch) -> list[object]:
        event_type = batch.event_type
        if self.key not in event_type.attributes:
            return [None] * batch.count
        if batch.columns is not None:
            return batch.columns.values(event_type.index(self.key))
        keys: list[object] = batch.record_batch.column(self.key).to_pylist()
        return keys

    def _parts(self, rows: Int64s) -> Iterator[tuple[EventBatch, Int64s, Int64s]]:
        """The batches that have the events of some rows, in order of arrival, with positions and rows."""
        order = rows[np.lexsort((self._place[rows], self._chunk[rows]))]
        chunks = self._chunk[order]
        edges = [0, *(np.flatnonzero(np.diff(chunks)) + 1).tolist(), len(order)]
        for start, stop in pairwise(edges):
            own = order[start:stop]
            if len(own):
                yield _batch_of(self._chunks[int(chunks[start])]), self._place[own], own

    def _beyond(self, bound: int) -> int:
        """How many rows must go to fit the bound, if all events of a batch have one size."""
        used = self._used()
        chunks, of_row = np.unique(self._chunk[used], return_inverse=True)
        held = [self._chunks[chunk].held / self._live[chunk] for chunk in chunks.tolist()]
        sizes = np.array(held) + _ROW_BYTES
        newest_first = np.argsort(self._age[used], kind="stable")[::-1]
        kept = np.searchsorted(np.cumsum(sizes[of_row][newest_first]), bound, side="right")
        return max(1, len(used) - int(kept))

    def _used(self) -> Int64s:
        return np.flatnonzero(self._chunk >= 0)

    def _row(self, key: object) -> int:
        known = self._rows.get(key)
        if known is not None:
            return known
        if not self._free:
            self._grow()
        row = self._rows[key] = self._free.pop()
        self._keys[row] = key
        self._count(_key_bytes(key))
        return row

    def _grow(self) -> None:
        before, after = len(self._chunk), max(64, 2 * len(self._chunk))
        unused = np.full(after - before, -1, np.int64)
        self._chunk, self._place = np.append(self._chunk, unused), np.append(self._place, unused)
        self._source, self._age = np.append(self._source, unused), np.append(self._age, unused)
        self._came_ns = np.append(self._came_ns, unused)
        self._leaving = np.append(self._leaving, np.zeros(after - before, np.int64))
        self.links.resize(after)
        self.views.resize(after)
        self._columns.resize(after)
        self._keys += [None] * (after - before)
        self._free += range(after - 1, before - 1, -1)

    def _add(self, batch: EventBatch, live: int) -> int:
        chunk, self._next_chunk = self._next_chunk, self._next_chunk + 1
        few = batch.count <= MOST_PACKED
        entry = self._chunks[chunk] = packed(Publish(batch)) if few else Whole(Publish(batch))
        self._live[chunk] = live
        self._count(entry.held)
        if batch.count < _SMALL:
            self._small[chunk] = None
        return chunk

    def _release(self, rows: Int64s) -> None:
        chunks, counts = np.unique(self._chunk[rows], return_counts=True)
        for chunk, count in zip(chunks.tolist(), counts.tolist(), strict=True):
            if chunk < 0:
                continue
            self._live[chunk] -= count
            if not self._live[chunk]:
                self._remove(chunk)
            elif 4 * self._live[chunk] < self._chunks[chunk].events:
                self._small[chunk] = None

    def _remove(self, chunk: int) -> None:
        self._count(-self._chunks.pop(chunk).held)
        del self._live[chunk]
        self._small.pop(chunk, None)

    def _join(self, *, every: bool = False) -> None:
        used = self._used()
        if not every:
            used = used[np.isin(self._chunk[used], np.fromiter(self._small, np.int64, len(self._small)))]
        every_joined = [*self.joined(used)]
        for chunk in list(self._chunks if every else self._small):
            self._remove(chunk)
        for joined, rows in every_joined:
            chunk = self._add(joined, len(rows))
            self._chunk[rows], self._place[rows] = chunk, np.arange(len(rows))
        self._join_at = 2 * len(self._small) + _MOST_SMALL


def _batch_of(entry: Waiting) -> EventBatch:
    message = entry.message
    assert isinstance(message, Publish)
    return message.batch


def _key_bytes(key: object) -> int:
    return _ROW_BYTES + len(key) if isinstance(key, str) else _ROW_BYTES


def _last_of_each(rows: Int64s) -> Int64s:
    """The position of the last event of each row that is not -1."""
    if len(rows) == 1:
        return np.flatnonzero(rows >= 0)
    kept, first = np.unique(rows[::-1], return_index=True)
    return (len(rows) - 1 - first)[kept >= 0]
