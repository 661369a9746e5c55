"""Recent events of one type at one broker, for updates without gaps (`subscriptions.py`) and `covey follow`.

    Entry    one batch, or several small ones folded into one
    batch    the events
    origins  of a folded entry by event: publisher, number, ingress time and source
    pairs    rows, serials, ids: which session got which event on arrival, for which subscription
    links    by serial the events sent to a link, None for all

Invariant: an entry records the links and subscriptions of sessions to which each event was sent, so an event
crosses a link at most once, replayed or not. The ring stores the last `max_events` events in at most
`MAX_BYTES`, objects included; a replay that needs earlier ones is counted as `short`. Results of replays are
bounded besides. The rings of a broker have a common bound, beyond which the largest drops a quarter. `bytes`
of an entry excludes results and masks, which the ring counts.

Cost: one entry per batch; `_FOLDED` small ones are folded, to 100 to 200 bytes per single event instead of
2 KiB. A replay tests the events since the update's call against the changed interest alone, by columns.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.packed_columns import MOST_PACKED, PackedColumns
from covey.overlay.core.link.joining import INGRESS_SPAN_NS
from covey.overlay.core.link.size import held_by
from covey.overlay.core.matching.event_points import EventMasks, EventPoints
from covey.overlay.core.matching.interest_matching import opened, split_by_link
from covey.overlay.core.matching.matching import region_alone

if TYPE_CHECKING:
    from covey.matcher.covering.covering import Region
    from covey.matcher.events.event_type import EventType
    from covey.matcher.events.results import Results
    from covey.overlay.core.covering.interest import Interest
    from covey.overlay.core.matching.interest_matching import InterestMatching

MAX_BYTES = 16 << 20
MAX_REPLAY_BYTES = 256 << 20
"""Of the rings of all types, with what replays have computed."""
_FOLDED, _FEW = 256, 64
"""Small batches that are folded at a time, and the most events of one."""
MAX_RESULT_BYTES = 16 << 20
"""Bytes of operator results; beyond them the oldest are removed, and computed again by a replay."""
MAX_MASK_BYTES = 16 << 20
"""Bytes of the ranks by which replays test events; beyond them all are computed anew."""
_ANSWERS_BYTES = 512
"""The approximate memory of a call's results besides their rows and solutions."""

Bools = npt.NDArray[np.bool_]
Int32s = npt.NDArray[np.int32]
Int64s = npt.NDArray[np.int64]
Pairs = tuple[Int32s, Int64s, Int64s]

_ARRAY_BYTES = 112
_ENTRY_BYTES = 512 + 3 * _ARRAY_BYTES
"""Of an array besides its contents, and of an entry with its three arrays."""
_LINK_BYTES = 160
"""Of a link in an entry, besides its mask."""


@dataclass(slots=True)
class Origins:
    publishers: list[str]
    who: Int32s
    sequences: Int64s
    ingress_ns: Int64s
    sources: Int64s

    @property
    def nbytes(self) -> int:
        arrays = self.who.nbytes + self.sequences.nbytes + self.ingress_ns.nbytes + self.sources.nbytes
        return arrays + 4 * _ARRAY_BYTES + sum(map(sys.getsizeof, self.publishers))


@dataclass(slots=True)
class Entry:
    """Interfaces are keyed by `Peer.serial`. `high_ns` is the latest ingress time up to this entry,
    `received` the results that came with the batch. `replays` are (event, subscription) pairs replayed by
    session. `masks` are the events as replays test them, without results, which may be removed earlier."""

    batch: EventBatch
    source: int
    high_ns: int
    links: dict[int, Bools | None]
    pairs: Pairs
    received: Results | None = None
    origins: Origins | None = None
    replays: dict[int, list[tuple[Int64s, Int64s]]] = field(default_factory=dict)
    bytes: int = 0
    result_bytes: int = 0
    is_opened: bool = False
    masks: EventMasks | None = None
    mask_bytes: int = 0

    @property
    def earliest_ns(self) -> int:
        return self.batch.ingress_ns if self.origins is None else int(self.origins.ingress_ns.min())

    @property
    def latest_ns(self) -> int:
        return self.batch.ingress_ns if self.origins is None else int(self.origins.ingress_ns.max())

    def answers(self, row: int) -> dict[int, tuple[bool, bool]]:
        """By call the truth for an event, and whether the result came with it."""
        here, before = _truths(self.batch.results, row), _truths(self.received, row)
        return {key: (truth, key in before) for key, truth in here.items()}

    def events(self, matching: InterestMatching) -> EventPoints:
        """The batch, to be matched again; results of operators stay in it."""
        if matching.calls and not self.is_opened:
            self.batch, self.is_opened = opened(self.batch), True
        return EventPoints(self.batch)

    def masks_over(self, event_type: EventType) -> EventMasks:
        known = self.batch.event_type if self.masks is None else self.masks.event_type
        if self.masks is None or not known.includes(event_type):
            schema = event_type if event_type.includes(known) else known.union(event_type)
            self.masks = EventMasks(EventPoints(self.batch.with_results(None)).over(schema))
        return self.masks

    def since(self, since_ns: int, serial: int) -> Bools:
        """bool[events]: from another interface; in a folded entry also not before `since_ns`."""
        if self.origins is None:
            return np.full(self.batch.count, self.source != serial)
        recent: Bools = self.origins.ingress_ns >= since_ns
        recent &= self.origins.sources != serial
        return recent

    def sent_to_session(self, serial: int) -> list[tuple[npt.NDArray[np.integer], Int64s]]:
        rows, serials, ids = self.pairs
        own = serials == serial
        return [(rows[own], ids[own]), *self.replays.get(serial, [])]

    def sessions(self) -> list[int]:
        return sorted({*self.pairs[1].tolist(), *self.replays})

    def place_of(self, publisher: str, sequence: int) -> int | None:
        if self.origins is None:
            if self.batch.publisher != publisher:
                return None
            found: Bools = self.batch.sequences() == sequence
        elif publisher in self.origins.publishers:
            found = self.origins.sequences == sequence
            found &= self.origins.who == self.origins.publishers.index(publisher)
        else:
            return None
        rows = np.flatnonzero(found)
        return int(rows[0]) if len(rows) else None

    def source_of(self, row: int) -> int:
        return self.source if self.origins is None else int(self.origins.sources[row])

    def take(self, rows: Int64s, batch: EventBatch | None = None) -> Iterator[EventBatch]:
        """Some events, by publisher and ingress time; from `batch` if given, which has the same rows."""
        batch, origins = self.batch if batch is None else batch, self.origins
        if origins is None:
            yield batch.take(rows)
            return
        sequences, ingress_ns = origins.sequences[rows], origins.ingress_ns[rows]
        differ = [np.diff(each) != 0 for each in (origins.who[rows], ingress_ns, sequences >> 31)]
        for own in np.split(rows, np.flatnonzero(np.logical_or.reduce(differ)) + 1):
            yield _of_origin(batch.take(own), origins, own)

    def count(self) -> int:
        """Compute and set `bytes`."""
        rows, serials, ids = self.pairs
        size = _ENTRY_BYTES + held_by(self.batch) + rows.nbytes + serials.nbytes + ids.nbytes
        if self.links:
            size += sys.getsizeof(self.links)
            for mask in self.links.values():
                if mask is not None:
                    size += _LINK_BYTES + mask.nbytes
        if self.replays:
            size += sum(bytes_of_replay(rows) for each in self.replays.values() for rows, _ in each)
        if self.origins is not None:
            size += self.origins.nbytes
        results = self.batch.results
        self.bytes = size if results is None else size - results.nbytes
        return self.bytes

    def forget_results(self) -> None:
        self.batch, self.received, self.is_opened = self.batch.with_results(None), None, False


NO_SESSIONS: Pairs = np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64)


def bytes_of_replay(rows: Int64s) -> int:
    return 4 * _ARRAY_BYTES + 2 * rows.nbytes


def folded(entries: Sequence[Entry]) -> list[Entry]:
    """Fold entries, successive ones of one schema in one. O(events)."""
    groups: list[tuple[EventType, list[tuple[Entry, EventBatch]]]] = []
    for entry in entries:
        batch = entry.batch
        if not groups or groups[-1][0] != batch.event_type:
            groups.append((batch.event_type, []))
        groups[-1][1].append((entry, batch))
    return [_folded(*zip(*group, strict=True)) for _, group in groups]


def _folded(entries: Sequence[Entry], batches: Sequence[EventBatch]) -> Entry:
    if len(entries) == 1:
        return entries[0]
    counts = [batch.count for batch in batches]
    starts = [0, *np.cumsum(counts).tolist()]
    publishers = list(dict.fromkeys(batch.publisher for batch in batches))
    codes = {name: code for code, name in enumerate(publishers)}
    origins = Origins(
        publishers,
        np.repeat(np.array([codes[batch.publisher] for batch in batches], np.int32), counts),
        _sequences(batches),
        np.repeat(np.array([batch.ingress_ns for batch in batches], np.int64), counts),
        np.repeat(np.array([entry.source for entry in entries], np.int64), counts),
    )
    links: dict[int, Bools | None] = {}
    replays: dict[int, list[tuple[Int64s, Int64s]]] = {}
    for entry, start, stop in zip(entries, starts, starts[1:], strict=False):
        for serial, mask in entry.links.items():
            sent = links.get(serial)
            if sent is None:
                sent = links[serial] = np.zeros(starts[-1], np.bool_)
            sent[start:stop] = True if mask is None else mask
        for serial, replayed in entry.replays.items():
            replays.setdefault(serial, []).extend((rows + start, ids) for rows, ids in replayed)
    rows, serials, ids = (np.concatenate([entry.pairs[part] for entry in entries]) for part in range(3))
    rows += np.repeat(np.array(starts[:-1], np.int32), [len(entry.pairs[0]) for entry in entries])
    events = EventBatch.stacked(batches)
    return Entry(
        events, -1, entries[-1].high_ns, links, (rows, serials, ids), origins=origins, replays=replays
    )


def _sequences(batches: Sequence[EventBatch]) -> Int64s:
    if all(batch.count == 1 and batch.sequence_offsets is None for batch in batches):
        return np.array([batch.first_sequence for batch in batches], np.int64)
    return np.concatenate([batch.sequences() for batch in batches])


def _of_origin(taken: EventBatch, origins: Origins, rows: Int64s) -> EventBatch:
    sequences = origins.sequences[rows]
    offsets: npt.NDArray[np.uint32] | None = (sequences - sequences.min()).astype(np.uint32)
    if np.array_equal(sequences, np.arange(sequences[0], sequences[0] + len(rows))):
        offsets = None
    events = taken.events
    if taken.columns is None and taken.count <= MOST_PACKED and not taken.event_type.has_lists:
        events = PackedColumns.of_records(taken.event_type, taken.record_batch)
    return EventBatch(
        taken.event_type,
        events,
        publisher=origins.publishers[origins.who[rows[0]]],
        first_sequence=int(sequences.min()),
        sequence_offsets=offsets,
        ingress_ns=int(origins.ingress_ns[rows[0]]),
        results=taken.results,
    )


def _truths(results: Results | None, row: int) -> dict[int, bool]:
    own = None if results is None else results.take(np.array([row]))
    return {} if own is None else {key: bool(answers.truths[0]) for key, answers in own.items()}


@dataclass(slots=True)
class ReplayBytes:
    """The bytes of all rings of a broker, and their bound."""

    bound: int = MAX_REPLAY_BYTES
    used: int = 0
    rings: list[Ring] = field(default_factory=list)

    def shrink(self) -> None:
        """Drop the oldest events of the largest rings, down to the bound."""
        while self.used > self.bound:
            largest = max(self.rings, key=lambda ring: ring.nbytes)
            least = largest.nbytes // 4 * 3
            while largest.nbytes > least:
                largest.drop_oldest()


class Ring:
    def __init__(self, max_events: int, common: ReplayBytes | None = None) -> None:
        self.max_events = max_events
        self.events = 0
        self.replayed = 0
        self.short = 0
        """Replays that would have needed older events than the ring stores."""
        self._common = ReplayBytes() if common is None else common
        self._common.rings.append(self)
        self._bytes = 0
        self._entries: deque[Entry] = deque()
        self._loose = 0
        self._result_bytes = 0
        self._holding: dict[int, Entry] = {}
        """By identity, entries with results, the longest held first."""
        self._mask_bytes = 0
        self._evicted_ns = 0

    @property
    def nbytes(self) -> int:
        return self._bytes + self._result_bytes + self._mask_bytes

    def close(self) -> None:
        """Free its bytes in the common bound; it is no longer used."""
        self._common.used -= self.nbytes
        self._common.rings.remove(self)
        self._common = ReplayBytes()

    def record(
        self,
        batch: EventBatch,
        source: int,
        links: dict[int, Bools | None],
        pairs: Pairs,
        received: Results | None = None,
    ) -> None:
        """Store a batch and to whom it was sent, by serials, with the results that came with it."""
        if batch.columns is None:
            batch.compact()
        high_ns, entries = batch.ingress_ns, self._entries
        if entries and entries[-1].high_ns > high_ns:
            high_ns = entries[-1].high_ns
        entry = Entry(batch, source, high_ns, links, pairs, received)
        entries.append(entry)
        added = entry.count()
        self._bytes += added
        self._common.used += added
        self.events += batch.count
        is_plain = received is None and batch.results is None and not batch.contexts
        self._loose = self._loose + 1 if is_plain and batch.count <= _FEW else 0
        if batch.results is not None:
            self._hold(entry)
        if self._loose >= _FOLDED:
            self._fold()
        if self.events > self.max_events or self._bytes > MAX_BYTES or self._common.used > self._common.bound:
            self._evict()

    def _count(self, added: int) -> None:
        self._bytes += added
        self._common.used += added

    def _fold(self) -> None:
        last = [self._entries.pop() for _ in range(self._loose)][::-1]
        self._loose = 0
        for entry in last:
            self._count(-entry.bytes)
            self._count_masks(entry, 0)
            if self._holding.pop(id(entry), None) is not None:  # a replay has asked operators about it
                self._count_results(entry, 0)
                entry.forget_results()
        for entry in folded(last):
            self._entries.append(entry)
            self._count(entry.count())

    def _count_masks(self, entry: Entry, size: int) -> None:
        added, entry.mask_bytes = size - entry.mask_bytes, size
        self._mask_bytes += added
        self._common.used += added

    def _count_results(self, entry: Entry, size: int) -> None:
        added, entry.result_bytes = size - entry.result_bytes, size
        self._result_bytes += added
        self._common.used += added

    def _evict(self) -> None:
        entries = self._entries
        while entries and (
            self._bytes > MAX_BYTES or self.events - entries[0].batch.count >= self.max_events
        ):
            self.drop_oldest()
        if self._common.used > self._common.bound:
            self._common.shrink()

    def drop_oldest(self) -> None:
        old = self._entries.popleft()
        self._loose = min(self._loose, len(self._entries))
        self.events -= old.batch.count
        self._count(-old.bytes)
        self._count_masks(old, 0)
        self._count_results(old, 0)
        self._holding.pop(id(old), None)
        self._evicted_ns = max(self._evicted_ns, old.latest_ns)

    def _hold(self, entry: Entry) -> None:
        """Count an entry's results, and remove the oldest over the bound."""
        size = _held(entry.batch.results) + _held(entry.received)
        if not size:
            return
        self._holding.setdefault(id(entry), entry)
        self._count_results(entry, size)
        while self._result_bytes > MAX_RESULT_BYTES:
            old = self._holding.pop(next(iter(self._holding)))
            self._count_results(old, 0)
            old.forget_results()

    def _since(self, since_ns: int) -> list[Entry]:
        """The entries with events that may have entered since, in order of arrival. Joined events share the
        earliest ingress time, so `INGRESS_SPAN_NS` is allowed for."""
        self._evict()  # replays have been recorded since the last batch
        since_ns -= INGRESS_SPAN_NS
        if self._evicted_ns >= since_ns:
            self.short += 1
        entries: list[Entry] = []
        for entry in reversed(self._entries):
            if entry.high_ns < since_ns:
                break
            if entry.latest_ns >= since_ns:
                entries.append(entry)
        return entries[::-1]

    def to_link(
        self, serial: int, number: int, interest: Interest, since_ns: int, matching: InterestMatching
    ) -> Iterator[EventBatch]:
        """The events since that match an interest of a link and were not sent to it; records them as sent."""
        region = region_alone(interest)
        for entry in self._since(since_ns):
            sent = entry.links.get(serial, _NOTHING)
            recent = entry.since(since_ns - INGRESS_SPAN_NS, serial)
            if sent is None or not recent.any():
                continue
            if region is not None:
                batch, wanted = entry.batch, self._inside(entry, region, interest.filter.event_type)
            else:
                split = list(split_by_link(matching.match_interfaces(entry.events(matching)), [number]))
                batch = entry.batch  # has results of operators that `_hold` may remove from the entry
                self._hold(entry)
                if not split:
                    continue
                ((_, mask),) = split
                wanted = np.ones(len(entry.batch), np.bool_) if mask is None else mask
            wanted = wanted & recent
            unsent = wanted if sent is _NOTHING else wanted & ~sent
            if unsent.any():
                entry.links[serial] = wanted if sent is _NOTHING else wanted | sent
                if sent is _NOTHING:
                    entry.bytes += _LINK_BYTES + wanted.nbytes
                    self._count(_LINK_BYTES + wanted.nbytes)
                self.replayed += int(unsent.sum())
                yield from entry.take(np.flatnonzero(unsent), batch)

    def to_session(
        self, serial: int, interest: Interest, since_ns: int, matching: InterestMatching
    ) -> Iterator[tuple[EventBatch, bool]]:
        """The events since that match a subscription and were not sent for it, and whether some are
        undecided; records them as sent."""
        uid, subscription_id, region = interest.uid, interest.subscription_id, region_alone(interest)
        for entry in self._since(since_ns):
            batch, unsure = entry.batch, _NO_ROWS
            if region is not None:
                rows = np.flatnonzero(self._inside(entry, region, interest.filter.event_type))
            else:
                offsets, uids, undecided = matching.decide(entry.events(matching))
                batch = entry.batch
                self._hold(entry)
                rows = np.repeat(np.arange(len(entry.batch)), np.diff(offsets))[uids == uid]
                unsure = undecided[0][undecided[1] == uid]
            recent = entry.since(since_ns - INGRESS_SPAN_NS, -1)
            rows = rows[recent[rows]]
            if not len(rows):
                continue
            for sent, ids in entry.sent_to_session(serial):
                rows = np.setdiff1d(rows, sent[ids == subscription_id], assume_unique=True)
            if len(rows):
                pairs = (rows, np.full(len(rows), subscription_id, np.int64))
                entry.replays.setdefault(serial, []).append(pairs)
                size = bytes_of_replay(rows)
                entry.bytes += size
                self._count(size)
                self.replayed += len(rows)
                is_unsure = bool(np.isin(rows, unsure).any())
                for own in entry.take(rows, batch):
                    yield own, is_unsure

    def _inside(self, entry: Entry, region: Region, event_type: EventType) -> Bools:
        masks = entry.masks_over(event_type)
        inside = masks.inside(region)
        self._count_masks(entry, masks.nbytes)
        if self._mask_bytes > MAX_MASK_BYTES:
            for each in self._entries:
                each.masks = None
                self._count_masks(each, 0)
        return inside

    def find(
        self, publisher: str, sequence: int
    ) -> tuple[int, list[int], dict[int, list[int]], dict[str, object], dict[int, tuple[bool, bool]]] | None:
        """The source of an event, the links and subscriptions of sessions it was sent to, by serials, its
        attributes, and by call the truth and whether the result came with it; None if not stored. O(ring)."""
        for entry in reversed(self._entries):
            row = entry.place_of(publisher, sequence)
            if row is None:
                continue
            links = [serial for serial, sent in entry.links.items() if sent is None or bool(sent[row])]
            sessions = {
                serial: [int(i) for events, ids in entry.sent_to_session(serial) for i in ids[events == row]]
                for serial in entry.sessions()
            }
            reached = {serial: ids for serial, ids in sessions.items() if ids}
            event = entry.batch.slice(row, 1).to_pylist()[0]
            return entry.source_of(row), links, reached, event, entry.answers(row)
        return None

    def inspect(self) -> dict[str, int]:
        return {
            "stored": self.events,
            "bound": self.max_events,
            "bytes": self.nbytes,
            "replayed": self.replayed,
            "short": self.short,
        }


def _held(results: Results | None) -> int:
    return 0 if results is None else results.nbytes + _ANSWERS_BYTES * len(results)


_NOTHING: Bools = np.zeros(0, np.bool_)
_NO_ROWS: Int64s = np.zeros(0, np.int64)
