"""The recent events of one type at one broker, for updates without gaps (`subscriptions.py`) and `covey
follow`.

Invariant: an entry records for each event the links, and the subscriptions of sessions, to which it has been
sent, so that an event crosses a link at most once, replayed or not. The ring stores the last `max_events`
events, and `MAX_BYTES` of memory at the most, its records and objects included; a replay from before them is
counted as `short`. What replays have computed of the events is bounded besides, and drops no event. The rings
of a broker have a common bound, beyond which the one with most bytes drops a quarter of them. Cost: one entry
per batch, and small batches are folded into one, `_FOLDED` at a time (`ring_entry.py`); a replay tests the
events since the update's call against the one interest that has changed, column by column
(`event_points.py`), whatever the number of others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from covey.overlay.core.link.joining import INGRESS_SPAN_NS
from covey.overlay.core.matching.interest_matching import split_by_link
from covey.overlay.core.matching.matching import region_alone
from covey.overlay.core.routing.ring_entry import (
    LINK_BYTES,
    Bools,
    Entry,
    Int64s,
    Pairs,
    bytes_of_replay,
    folded,
)

if TYPE_CHECKING:
    from covey.matcher.covering.covering import Region
    from covey.matcher.events.batch import EventBatch
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
"""Bytes of results of operators; beyond them the oldest are forgotten, and asked for again by a replay."""
MAX_MASK_BYTES = 16 << 20
"""Bytes of the ranks by which replays test events; beyond them all are computed anew."""
_ANSWERS_BYTES = 512
"""About what the answers of a call take in memory besides their rows and solutions."""


@dataclass(slots=True)
class ReplayBytes:
    """The bytes of all rings of a broker, and how many there may be."""

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
    """The recent events of one type at one broker. `max_events` bounds them."""

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
        """How many of the last entries may be folded."""
        self._result_bytes = 0
        self._holding: dict[int, Entry] = {}
        """By identity the entries with results, those first that have had some for longest."""
        self._mask_bytes = 0
        self._evicted_ns = 0

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return self._bytes + self._result_bytes + self._mask_bytes

    def close(self) -> None:
        """It is no longer used: its bytes are free."""
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
        """Store a batch, its source, the `links` by serials and the `pairs` of sessions that were sent it,
        and the results with which it came.
        """
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
        """Drop the oldest entry."""
        old = self._entries.popleft()
        self._loose = min(self._loose, len(self._entries))
        self.events -= old.batch.count
        self._count(-old.bytes)
        self._count_masks(old, 0)
        self._count_results(old, 0)
        self._holding.pop(id(old), None)
        self._evicted_ns = max(self._evicted_ns, old.latest_ns)

    def _hold(self, entry: Entry) -> None:
        """Count the results that an entry has now, and forget the oldest over the bound."""
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
        """The entries with events that may have entered since, in order of arrival.

        Joined events share the ingress time of the earliest, which may be a little before their own.
        """
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
                batch = entry.batch  # with what operators have answered, of which `_hold` may keep nothing
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
                    entry.bytes += LINK_BYTES + wanted.nbytes
                    self._count(LINK_BYTES + wanted.nbytes)
                self.replayed += int(unsent.sum())
                yield from entry.take(np.flatnonzero(unsent), batch)

    def to_session(
        self, serial: int, interest: Interest, since_ns: int, matching: InterestMatching
    ) -> Iterator[tuple[EventBatch, bool]]:
        """The events since that match a subscription and were not sent for it, and whether some of them are
        undecided; records them as sent.
        """
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
        """The events of an entry that are in a region over this schema."""
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
        """The source of an event, the links and the subscriptions of sessions it was sent to, by serials, its
        attributes, and of each call that was answered the truth and whether the answer came with it; None if
        the ring does not have it. A pass over the ring.
        """
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
        """Its size and its counters."""
        return {
            "stored": self.events,
            "bound": self.max_events,
            "bytes": self.nbytes,
            "replayed": self.replayed,
            "short": self.short,
        }


def _held(results: Results | None) -> int:
    """About how many bytes results take in memory."""
    return 0 if results is None else results.nbytes + _ANSWERS_BYTES * len(results)


_NOTHING: Bools = np.zeros(0, np.bool_)
_NO_ROWS: Int64s = np.zeros(0, np.int64)
