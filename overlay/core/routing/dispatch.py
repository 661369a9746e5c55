"""Selects the receivers of a batch of events (Jayaram et al., Fig. 3 lines 8-12, Fig. 6 lines 38-41): each
neighbour with a matching slot, except the source; then each session, once, with the ids of all its matching
subscriptions, ascending, since actions must not depend on the engine. No Python statement per event.

Results of named operators travel with the events: to neighbours all, to a session where some of its
subscriptions are undecided. Such a Deliver has epoch 0, so that the client evaluates it again."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.overlay.core.covering.interest import CLIENTS, Registry
from covey.overlay.core.matching.event_points import EventPoints
from covey.overlay.core.matching.interest_matching import (
    NO_PAIRS,
    Decided,
    Share,
    TravellingResults,
    opened,
    split_by_link,
    split_by_session,
)
from covey.overlay.core.messages import Deliver, Publish, Receiver
from covey.overlay.core.routing.peers import Peer, Peers
from covey.overlay.core.routing.ring import NO_SESSIONS
from covey.overlay.core.routing.type_state import TypeState

if TYPE_CHECKING:
    from covey.matcher.events.batch import EventBatch


_NO_ROWS = np.zeros(0, np.int32)


class Dispatch:
    """A batch of at least one event on its way to its receivers, in order of their numbers: call `to_links`
    once, then `to_sessions` once, before the state changes. Both record the receivers in the ring.

    `links` are neighbours that receive events and which, None for all; known after `to_links`. `pairs` are
    events and uids of matching subscriptions of sessions; known after `to_sessions`."""

    __slots__ = """
        _decided _events _results _sent _source ends_here goes_on links message pairs state
    """.split()

    def __init__(self, message: Publish, source: Peer, state: TypeState, results: TravellingResults) -> None:
        self.message = message
        self._source = source
        self.state = state
        self._results = results
        groups = state.groups
        self.goes_on = len(groups) > (CLIENTS in groups) + (source.name in groups)
        self.ends_here = CLIENTS in groups or state.keys is not None
        calls = state.links.calls or state.sessions.calls
        self._events = EventPoints(opened(message.batch) if calls else message.batch)
        self.links: list[tuple[Peer, npt.NDArray[np.bool_] | None]] = []
        self._sent: dict[int, npt.NDArray[np.bool_] | None] = {}
        self.pairs = _NO_ROWS, NO_PAIRS[0]
        self._decided: Decided | None = None

    @property
    def batch(self) -> EventBatch:
        return self.message.batch

    def receivers(self, peers: Peers, registry: Registry) -> tuple[Receiver, ...]:
        """The receivers for a stored record; replaces `to_links` and `to_sessions`."""
        self._match_links(peers)
        receivers = [
            Receiver(peer.name, None if mask is None else np.flatnonzero(mask)) for peer, mask in self.links
        ]
        shares, unsure = self._match_sessions(peers, registry)
        for number, rows, ends, ids in shares:
            session = peers.sessions[number]
            epoch = 0 if number in unsure else session.received
            receivers.append(Receiver(session.name, rows, ends, ids, epoch))
        return tuple(receivers)

    def to_links(self, peers: Peers) -> list[tuple[Peer, Publish]]:
        self._match_links(peers)
        message, events = self.message, self._events
        batch = message.batch
        if self.links and events.batch is not batch:
            batch = self._results.sealed(events.batch)
            message = replace(message, batch=batch)
        sent = []
        for link, mask in self.links:
            sent.append((link, message if mask is None else replace(message, batch=batch.filter(mask))))
        return sent

    def _match_links(self, peers: Peers) -> None:
        state, source, events = self.state, self._source, self._events
        if not self.goes_on:
            return
        exclude, batch = source.number if source.is_broker else -1, self.message.batch
        if state.sessions.calls:
            self._decided = state.sessions.decide(events)  # before links, so that its results travel
        if batch.count == 1:
            bits = state.links.event_interfaces(events, exclude)
            for peer in peers.by_number:
                if bits >> peer.number & 1 and peer is not source:
                    self.links.append((peer, None))
        else:
            words = state.links.match_interfaces(events, exclude)
            numbers = [peer.number for peer in peers.by_number if peer is not source]
            self.links = [(peers.links[number], mask) for number, mask in split_by_link(words, numbers)]
        if state.floods and self.message.for_views:
            self.links = [(peer, mask) for peer, mask in self.links if peer.name in state.viewing]
        for peer, mask in self.links:
            self._sent[peer.serial] = mask

    def pass_by(self) -> None:
        """In place of `to_sessions`, unless `ends_here`; records the neighbours."""
        message = self.message
        if self._source.is_broker and not message.replayed:
            self._source.counters.events_unwanted += _unwanted(message.batch.count, self.links, [])
        if self.state.ring is not None and not message.for_views:
            batch, results = self._events.batch, message.batch.results
            self.state.ring.record(batch, self._source.serial, self._sent, NO_SESSIONS, results)

    def to_sessions(self, peers: Peers, registry: Registry) -> list[tuple[Peer, Deliver]]:
        message, batch = self.message, self.message.batch
        shares, unsure = self._match_sessions(peers, registry)
        if batch.results is not None:
            batch = batch.with_results(None)
        messages = []
        for number, rows, ends, ids in shares:
            session = peers.sessions[number]
            epoch, own = session.received, batch
            if number in unsure:
                epoch, own = 0, self._results.sealed(self._events.batch, session.call_keys())
            own = own if rows is None else own.take(rows)
            deliver = Deliver(
                own, ends, ids, epoch, message.replayed, for_views=message.for_views, live=message.live
            )
            messages.append((session, deliver))
        return messages

    def _match_sessions(self, peers: Peers, registry: Registry) -> tuple[list[Share], Collection[int]]:
        """The shares of sessions, and the numbers of undecided ones; records all receivers."""
        state, source = self.state, self._source
        batch, replayed = self.message.batch, self.message.replayed
        decided = self._decided
        if decided is None and CLIENTS in state.groups:
            decided = state.sessions.decide(self._events)
        if decided is None:
            decided = np.zeros(batch.count + 1, np.int64), NO_PAIRS[0], NO_PAIRS
        offsets, uids, (_, undecided) = decided
        if state.keys is not None:
            events = _rows_of(offsets)
            if self.message.for_views or (state.floods and len(state.keys.views)):
                own = state.keys.views.among(uids) == self.message.for_views
                events, uids = events[own], uids[own]
                offsets = np.searchsorted(events, np.arange(batch.count + 1))
            self.pairs = events, uids
        owners, ids = registry.owner[uids], registry.subscription[uids]
        if uids.size == 1 and batch.count == 1:
            shares: list[Share] = [(int(owners[0]), None, offsets, ids)]
        else:
            shares = split_by_session(offsets, owners, ids)
        if source.is_broker and not replayed:
            source.counters.events_unwanted += _unwanted(batch.count, self.links, shares)
        if state.ring is not None and not self.message.for_views:
            rows = np.zeros(uids.size, np.int32) if batch.count == 1 else _rows_of(offsets)
            pairs = rows, peers.serials[owners], ids
            state.ring.record(self._events.batch, source.serial, self._sent, pairs, batch.results)
        unsure: Collection[int] = set(registry.owner[undecided].tolist()) if undecided.size else ()
        return shares, unsure


def _rows_of(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    return np.repeat(np.arange(offsets.size - 1, dtype=np.int32), offsets[1:] - offsets[:-1])


@dataclass(slots=True, eq=False)
class Departures:
    """Departures from a neighbour, until the sessions' turn."""

    batch: EventBatch
    source: Peer
    state: TypeState


def _unwanted(count: int, links: list[tuple[Peer, npt.NDArray[np.bool_] | None]], shares: list[Share]) -> int:
    for _, mask in links:
        if mask is None:
            return 0
    for share in shares:
        if share[1] is None:
            return 0
    received = np.zeros(count, np.bool_)
    for _, mask in links:
        if mask is not None:
            received |= mask
    for share in shares:
        received[share[1]] = True
    return count - int(np.count_nonzero(received))
