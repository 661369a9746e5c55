"""What a broker keeps of recent events, so that an update can reach back to the moment of its call.

An update takes a while to reach the brokers; an event that only the new filter matches and that passes them
before is sent to nobody. A *gapless* update says when it was called, and each broker that it reaches replays
to where it came from what that interface asks for now, has entered the overlay since, and has not been sent
to it. What a broker has not seen itself comes as a replay from the brokers beyond, whom a gapless update
always reaches, also where another filter covers it.

Invariant: an entry says of each event to which links, and to which subscriptions of which sessions, it has
gone; so an event crosses a link at most once, replayed or not. The ring of an event type keeps its last
`max_events` events, and `MAX_BYTES` at the most, what it notes of them included; a replay that would have to
reach further back is counted as `short`. Cost: per batch of events one entry; per replay one match of the
batches since the call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np
import numpy.typing as npt

from covey.overlay.core.link.joining import INGRESS_SPAN_NS
from covey.overlay.core.matching.event_points import EventPoints
from covey.overlay.core.matching.splitting import Share, split_by_link

if TYPE_CHECKING:
    from covey.matcher.events.batch import EventBatch

Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]

MAX_BYTES = 16 << 20
_ENTRY_BYTES = 1024
"""What an entry takes besides the bytes of its batch and what each session has had, about."""


class _Matches(Protocol):
    """What matches events, as far as a replay needs it."""

    def match(self, events: EventPoints) -> tuple[Int64s, Int64s]: ...

    def match_interfaces(self, events: EventPoints) -> npt.NDArray[np.uint64]: ...


@dataclass(slots=True)
class _Entry:
    """A batch, and who has had which of its events. Interfaces go by their `Peer.life`."""

    batch: EventBatch
    source: int
    high_ns: int
    """The latest ingress of this entry and all before it."""
    links: dict[int, Bools | None] = field(default_factory=dict)
    """The events sent to a link, None for all of them."""
    shares: dict[int, Share] = field(default_factory=dict)
    """What was delivered to a session when the batch came."""
    replays: dict[int, list[tuple[Int64s, Int64s]]] = field(default_factory=dict)
    """The (event, subscription) pairs that were replayed to a session since."""
    bytes: int = 0
    """What the batch takes, and to know who got which of it."""

    def had(self, life: int) -> list[tuple[Int64s, Int64s]]:
        """All (event, subscription) pairs that a session has had."""
        replayed = self.replays.get(life, [])
        if life not in self.shares:
            return replayed
        _, rows, offsets, ids = self.shares[life]
        events = np.arange(len(self.batch)) if rows is None else rows
        return [(np.repeat(events, np.diff(offsets)), ids), *replayed]


class Ring:
    """The recent events of one type at one broker. `max_events` bounds them."""

    def __init__(self, max_events: int) -> None:
        self.max_events = max_events
        self.events = 0
        self.replayed = 0
        self.short = 0
        """Replays that would have had to reach further back than the ring does."""
        self._bytes = 0
        self._entries: deque[_Entry] = deque()
        self._forgotten_ns = 0

    def record(
        self,
        batch: EventBatch,
        source: int,
        links: list[tuple[int, Bools | None]],
        shares: list[tuple[int, Share]],
    ) -> None:
        """A batch has come from an interface and gone where `links` and `shares` say, by lives."""
        high_ns = max(batch.ingress_ns, self._entries[-1].high_ns if self._entries else 0)
        entry = _Entry(batch, source, high_ns, dict(links), dict(shares))
        entry.bytes = _ENTRY_BYTES + batch.nbytes + sum(_bytes_of(share) for _, share in shares)
        self._entries.append(entry)
        self.events += len(batch)
        self._bytes += entry.bytes
        while self.events > self.max_events or self._bytes > MAX_BYTES:
            old = self._entries.popleft()
            self.events -= len(old.batch)
            self._bytes -= old.bytes
            self._forgotten_ns = max(self._forgotten_ns, old.batch.ingress_ns)

    def _since(self, since_ns: int) -> list[_Entry]:
        """The entries that may have entered since, in order of arrival.

        Events that travel together share the ingress of the earliest, which may be a little before their own.
        """
        since_ns -= INGRESS_SPAN_NS
        if self._forgotten_ns >= since_ns:
            self.short += 1
        found: list[_Entry] = []
        for entry in reversed(self._entries):
            if entry.high_ns < since_ns:
                break
            if entry.batch.ingress_ns >= since_ns:
                found.append(entry)
        return found[::-1]

    def to_link(self, life: int, number: int, since_ns: int, matching: _Matches) -> Iterator[EventBatch]:
        """What a link asks for and has not had, of what entered since; noted as sent."""
        for entry in self._since(since_ns):
            sent = entry.links.get(life, _NOTHING)
            if entry.source == life or sent is None:
                continue
            for _, mask in split_by_link(matching.match_interfaces(EventPoints(entry.batch)), [number]):
                wanted = np.ones(len(entry.batch), np.bool_) if mask is None else mask
                had = wanted & sent if sent is not _NOTHING else np.zeros(len(wanted), np.bool_)
                entry.links[life] = wanted if sent is _NOTHING else wanted | sent
                if (wanted & ~had).any():
                    self.replayed += int((wanted & ~had).sum())
                    yield entry.batch.filter(wanted & ~had)

    def to_session(
        self, life: int, uid: int, subscription_id: int, since_ns: int, matching: _Matches
    ) -> Iterator[EventBatch]:
        """What one subscription of a session asks for and has not had; noted as delivered."""
        for entry in self._since(since_ns):
            offsets, uids = matching.match(EventPoints(entry.batch))
            rows = np.repeat(np.arange(len(entry.batch)), np.diff(offsets))[uids == uid]
            for events, ids in entry.had(life):
                rows = np.setdiff1d(rows, events[ids == subscription_id], assume_unique=True)
            if len(rows):
                pairs = (rows, np.full(len(rows), subscription_id, np.int64))
                entry.replays.setdefault(life, []).append(pairs)
                entry.bytes += 16 * len(rows)
                self._bytes += 16 * len(rows)
                self.replayed += len(rows)
                yield entry.batch.take(rows)

    def find(
        self, publisher: str, sequence: int
    ) -> tuple[int, list[int], dict[int, list[int]], dict[str, object]] | None:
        """Where an event came from, to which links and to which subscriptions of which sessions it went, by
        lives, and its attributes; None if it is not remembered. A pass over the ring.
        """
        for entry in reversed(self._entries):
            batch = entry.batch
            if batch.publisher != publisher:
                continue
            rows = np.flatnonzero(batch.sequences() == sequence)
            if not len(rows):
                continue
            row = int(rows[0])
            links = [life for life, sent in entry.links.items() if sent is None or bool(sent[row])]
            sessions = {
                life: [int(i) for events, ids in entry.had(life) for i in ids[events == row]]
                for life in entry.shares | entry.replays
            }
            had = {life: ids for life, ids in sessions.items() if ids}
            return entry.source, links, had, batch.slice(row, 1).to_pylist()[0]
        return None

    def inspect(self) -> dict[str, int]:
        """How full it is, and what it has done."""
        return {"held": self.events, "bound": self.max_events, "replayed": self.replayed, "short": self.short}


def _bytes_of(share: Share) -> int:
    _, rows, offsets, ids = share
    return int(offsets.nbytes + ids.nbytes + (0 if rows is None else rows.nbytes))


_NOTHING: Bools = np.zeros(0, np.bool_)
