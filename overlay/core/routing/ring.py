"""The recent events of one type at one broker, for updates without gaps (`replay.py`) and `covey follow`.

Invariant: an entry records for each event the links, and the subscriptions of sessions, to which it has been
sent, so that an event crosses a link at most once, replayed or not. The ring stores the last `max_events`
events, and `MAX_BYTES` at the most, its records included; a replay from before them is counted as `short`.
What replays have computed of the events is bounded besides, and drops no event.
Cost: one entry per batch; a replay tests the events since the update's call against the one interest that has
changed, column by column (`event_masks.py`), whatever the number of others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.overlay.core.link.joining import INGRESS_SPAN_NS
from covey.overlay.core.matching.event_masks import EventMasks
from covey.overlay.core.matching.event_points import EventPoints
from covey.overlay.core.matching.matching import region_alone
from covey.overlay.core.matching.splitting import Share, split_by_link
from covey.overlay.core.matching.travelling import opened

if TYPE_CHECKING:
    from covey.matcher.covering.covering import Region
    from covey.matcher.events.batch import EventBatch
    from covey.matcher.events.event_type import EventType
    from covey.matcher.events.results import Results
    from covey.overlay.core.covering.interest import Interest
    from covey.overlay.core.matching.interest_matching import InterestMatching

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

MAX_BYTES = 16 << 20
_ENTRY_BYTES = 1024
"""About what an entry takes besides its batch and the shares of sessions."""
MAX_RESULT_BYTES = 16 << 20
"""Bytes of results of operators; beyond them the oldest are forgotten, and asked for again by a replay."""
MAX_MASK_BYTES = 16 << 20
"""Bytes of the ranks by which replays test events; beyond them all are computed anew."""
_ANSWERS_BYTES = 512
"""About what the answers of a call take in memory besides their rows and solutions."""


@dataclass(slots=True)
class _Entry:
    """A batch, and the events of it sent to each interface. Interfaces are keyed by `Peer.serial`."""

    batch: EventBatch
    source: int
    high_ns: int
    """The latest ingress time of this entry and all before it."""
    links: dict[int, Bools | None] = field(default_factory=dict)
    """The events sent to a link, None for all of them."""
    shares: dict[int, Share] = field(default_factory=dict)
    """The shares of sessions, delivered when the batch arrived."""
    replays: dict[int, list[tuple[Int64s, Int64s]]] = field(default_factory=dict)
    """The (event, subscription) pairs replayed to a session since."""
    bytes: int = 0
    """Size of the batch and of its records, without results."""
    result_bytes: int = 0
    """Size of the results, as counted in the ring."""
    received: Results | None = None
    """The results with which the batch came."""
    is_opened: bool = False
    masks: EventMasks | None = None
    """The events as replays test them, once one has, without results: those are dropped before the entry."""
    mask_bytes: int = 0
    """Size of the masks, as counted in the ring."""

    def answers(self, row: int) -> dict[int, tuple[bool, bool]]:
        """By call the truth for an event, and whether the answer came with it."""
        here, before = _truths(self.batch.results, row), _truths(self.received, row)
        return {key: (truth, key in before) for key, truth in here.items()}

    def events(self, matching: InterestMatching) -> EventPoints:
        """The batch, to be matched again: what operators answer stays in it."""
        if matching.calls and not self.is_opened:
            self.batch, self.is_opened = opened(self.batch), True
        return EventPoints(self.batch)

    def masks_over(self, event_type: EventType) -> EventMasks:
        """The events, to be tested against filters over this schema of their type."""
        known = self.batch.event_type if self.masks is None else self.masks.event_type
        if self.masks is None or not known.includes(event_type):
            schema = event_type if event_type.includes(known) else known.union(event_type)
            self.masks = EventMasks(EventPoints(self.batch.with_results(None)).over(schema))
        return self.masks

    def sent_to_session(self, serial: int) -> list[tuple[Int64s, Int64s]]:
        """All (event, subscription) pairs sent to a session."""
        replayed = self.replays.get(serial, [])
        if serial not in self.shares:
            return replayed
        _, rows, offsets, ids = self.shares[serial]
        events = np.arange(len(self.batch)) if rows is None else rows
        return [(np.repeat(events, np.diff(offsets)), ids), *replayed]


class Ring:
    """The recent events of one type at one broker. `max_events` bounds them."""

    def __init__(self, max_events: int) -> None:
        self.max_events = max_events
        self.events = 0
        self.replayed = 0
        self.short = 0
        """Replays that would have needed older events than the ring stores."""
        self._bytes = 0
        self._entries: deque[_Entry] = deque()
        self._result_bytes = 0
        self._holding: dict[int, _Entry] = {}
        """By identity the entries with results, those first that have had some for longest."""
        self._mask_bytes = 0
        self._evicted_ns = 0

    def record(
        self,
        batch: EventBatch,
        source: int,
        links: dict[int, Bools | None],
        shares: dict[int, Share],
        received: Results | None = None,
    ) -> None:
        """Store a batch, its source, the `links` and `shares` sent, by serials of interfaces, and the results
        with which it came.
        """
        high_ns = max(batch.ingress_ns, self._entries[-1].high_ns if self._entries else 0)
        entry = _Entry(batch, source, high_ns, links, shares, received=received)
        entry.bytes = _ENTRY_BYTES + batch.nbytes
        for share in shares.values():
            entry.bytes += _bytes_of(share)
        self._entries.append(entry)
        if batch.results is not None:
            entry.bytes -= batch.results.nbytes
            self._hold(entry)
        self.events += batch.count
        self._bytes += entry.bytes
        self._evict()

    def _evict(self) -> None:
        while self.events > self.max_events or self._bytes > MAX_BYTES:
            old = self._entries.popleft()
            self.events -= len(old.batch)
            self._bytes -= old.bytes
            self._mask_bytes -= old.mask_bytes
            self._result_bytes -= old.result_bytes
            self._holding.pop(id(old), None)
            self._evicted_ns = max(self._evicted_ns, old.batch.ingress_ns)

    def _hold(self, entry: _Entry) -> None:
        """Count the results that an entry has now, and forget the oldest over the bound."""
        size = _held(entry.batch.results) + _held(entry.received)
        if not size:
            return
        self._holding.setdefault(id(entry), entry)
        self._result_bytes += size - entry.result_bytes
        entry.result_bytes = size
        while self._result_bytes > MAX_RESULT_BYTES:
            old = self._holding.pop(next(iter(self._holding)))
            self._result_bytes -= old.result_bytes
            old.batch, old.received, old.is_opened = old.batch.with_results(None), None, False
            old.result_bytes = 0

    def _since(self, since_ns: int) -> list[_Entry]:
        """The entries with events that may have entered since, in order of arrival.

        Joined events share the ingress time of the earliest, which may be a little before their own.
        """
        self._evict()  # replays have been recorded since the last batch
        since_ns -= INGRESS_SPAN_NS
        if self._evicted_ns >= since_ns:
            self.short += 1
        entries: list[_Entry] = []
        for entry in reversed(self._entries):
            if entry.high_ns < since_ns:
                break
            if entry.batch.ingress_ns >= since_ns:
                entries.append(entry)
        return entries[::-1]

    def to_link(
        self, serial: int, number: int, interest: Interest, since_ns: int, matching: InterestMatching
    ) -> Iterator[EventBatch]:
        """The events since that match an interest of a link and were not sent to it; records them as sent."""
        region = region_alone(interest)
        for entry in self._since(since_ns):
            sent = entry.links.get(serial, _NOTHING)
            if entry.source == serial or sent is None:
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
            unsent = wanted if sent is _NOTHING else wanted & ~sent
            if unsent.any():
                entry.links[serial] = wanted if sent is _NOTHING else wanted | sent
                self.replayed += int(unsent.sum())
                yield batch.filter(unsent)

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
            if not len(rows):
                continue
            for sent, ids in entry.sent_to_session(serial):
                rows = np.setdiff1d(rows, sent[ids == subscription_id], assume_unique=True)
            if len(rows):
                pairs = (rows, np.full(len(rows), subscription_id, np.int64))
                entry.replays.setdefault(serial, []).append(pairs)
                entry.bytes += 16 * len(rows)
                self._bytes += 16 * len(rows)
                self.replayed += len(rows)
                yield batch.take(rows), bool(np.isin(rows, unsure).any())

    def _inside(self, entry: _Entry, region: Region, event_type: EventType) -> Bools:
        """The events of an entry that are in a region over this schema."""
        masks = entry.masks_over(event_type)
        inside = masks.inside(region)
        self._mask_bytes += masks.nbytes - entry.mask_bytes
        entry.mask_bytes = masks.nbytes
        if self._mask_bytes > MAX_MASK_BYTES:
            for each in self._entries:
                each.masks, each.mask_bytes = None, 0
            self._mask_bytes = 0
        return inside

    def find(
        self, publisher: str, sequence: int
    ) -> tuple[int, list[int], dict[int, list[int]], dict[str, object], dict[int, tuple[bool, bool]]] | None:
        """The source of an event, the links and the subscriptions of sessions it was sent to, by serials, its
        attributes, and of each call that was answered the truth and whether the answer came with it; None if
        the ring does not have it. A pass over the ring.
        """
        for entry in reversed(self._entries):
            batch = entry.batch
            if batch.publisher != publisher:
                continue
            rows = np.flatnonzero(batch.sequences() == sequence)
            if not len(rows):
                continue
            row = int(rows[0])
            links = [serial for serial, sent in entry.links.items() if sent is None or bool(sent[row])]
            sessions = {
                serial: [int(i) for events, ids in entry.sent_to_session(serial) for i in ids[events == row]]
                for serial in entry.shares | entry.replays
            }
            reached = {serial: ids for serial, ids in sessions.items() if ids}
            event = batch.slice(row, 1).to_pylist()[0]
            return entry.source, links, reached, event, entry.answers(row)
        return None

    def inspect(self) -> dict[str, int]:
        """Its size and its counters."""
        return {
            "stored": self.events,
            "bound": self.max_events,
            "replayed": self.replayed,
            "short": self.short,
        }


def _truths(results: Results | None, row: int) -> dict[int, bool]:
    """By call the truth for an event."""
    own = None if results is None else results.take(np.array([row]))
    return {} if own is None else {key: bool(answers.truths[0]) for key, answers in own.items()}


def _held(results: Results | None) -> int:
    """About how many bytes results take in memory."""
    return 0 if results is None else results.nbytes + _ANSWERS_BYTES * len(results)


def _bytes_of(share: Share) -> int:
    _, rows, offsets, ids = share
    return int(offsets.nbytes + ids.nbytes + (0 if rows is None else rows.nbytes))


_NOTHING: Bools = np.zeros(0, np.bool_)
_NO_ROWS: Int64s = np.zeros(0, np.int64)
