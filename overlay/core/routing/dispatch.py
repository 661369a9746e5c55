"""Selects the receivers of a batch of events (Jayaram et al., Fig. 3 lines 8-12, Fig. 6 lines 38-41).

Each neighbour with a matching slot, except the source; then each session, once, with the ids of all its
subscriptions that match. No Python statement per event: the engines match the whole batch, and a receiver of
all of it gets the same object, which is serialised already. The ids of a Deliver ascend within each event,
since actions must not depend on the engine. The ring of the event type records the receivers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from covey.overlay.core.covering.registry import Registry
from covey.overlay.core.matching.event_points import EventPoints
from covey.overlay.core.matching.splitting import Share, split_by_link, split_by_session
from covey.overlay.core.messages import Deliver, Publish
from covey.overlay.core.routing.peers import Peer, Peers
from covey.overlay.core.routing.type_state import TypeState


class Dispatch:
    """A batch of at least one event on its way to its receivers, both kinds in order of their numbers:
    `to_links` once, then `to_sessions` once, before the state changes.
    """

    __slots__ = ("_events", "_links", "_message", "_source", "_state")

    def __init__(self, message: Publish, source: Peer, state: TypeState) -> None:
        self._message = message
        self._source = source
        self._state = state
        self._events = EventPoints(message.batch)
        self._links: list[tuple[Peer, npt.NDArray[np.bool_] | None]] = []

    def to_links(self, peers: Peers) -> list[tuple[Peer, Publish]]:
        """The neighbours that receive events, and what each gets."""
        state, source, message, events = self._state, self._source, self._message, self._events
        own = state.groups.get(source.name)
        if len(state.links) <= (0 if own is None else len(own)):
            return []
        exclude, batch = source.number if source.is_broker else -1, message.batch
        neighbours = peers.others(source)
        if batch.count == 1:
            bits = state.links.event_interfaces(events, exclude)
            self._links = [(peer, None) for peer in neighbours if bits >> peer.number & 1]
        else:
            words = state.links.match_interfaces(events, exclude)
            numbers = [peer.number for peer in neighbours]
            self._links = [(peers.link(number), mask) for number, mask in split_by_link(words, numbers)]
        return [
            (link, message if mask is None else Publish(batch.filter(mask), message.replayed))
            for link, mask in self._links
        ]

    def to_sessions(self, peers: Peers, registry: Registry) -> list[tuple[Peer, Deliver]]:
        """The sessions that receive events, and what each gets; records all receivers."""
        state, source = self._state, self._source
        batch, replayed = self._message.batch, self._message.replayed
        shares = self._shares(registry) if len(state.sessions) else []
        receivers = [(peers.session(share[0]), share) for share in shares]
        if source.is_broker and not replayed:
            source.counters.events_unwanted += _unwanted(batch.count, self._links, shares)
        if state.ring is not None:
            state.ring.record(
                batch,
                source.serial,
                {link.serial: mask for link, mask in self._links},
                {session.serial: share for session, share in receivers},
            )
        return [
            (
                session,
                Deliver(batch if rows is None else batch.take(rows), ends, ids, session.received, replayed),
            )
            for session, (_, rows, ends, ids) in receivers
        ]

    def _shares(self, registry: Registry) -> list[Share]:
        """What each session gets."""
        if self._message.batch.count > 1:
            offsets, uids = self._state.sessions.match(self._events).ordered()
        else:
            uids = self._state.sessions.event_uids(self._events)
            offsets = np.array((0, len(uids)), dtype=np.int64)
        return split_by_session(offsets, uids, registry.owner, registry.subscription)


def _unwanted(count: int, links: list[tuple[Peer, npt.NDArray[np.bool_] | None]], shares: list[Share]) -> int:
    """How many events of a batch have no receiver."""
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
