"""Selects the receivers of a batch of events (Jayaram et al., Fig. 3 lines 8-12, Fig. 6 lines 38-41).

Each neighbour with a matching slot, except the source; then each session, once, with the ids of all its
subscriptions that match. No Python statement per event: the engines match the whole batch, and a receiver of
all of it gets the same object, which is serialised already. The ids of a Deliver ascend within each event,
since actions must not depend on the engine. The ring of the event type records the receivers.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from covey.overlay.core.covering.registry import Registry
from covey.overlay.core.matching.event_points import EventPoints
from covey.overlay.core.matching.splitting import Share, split_by_link, split_by_session
from covey.overlay.core.messages import Deliver, Publish
from covey.overlay.core.routing.peers import Peer, Peers
from covey.overlay.core.routing.type_state import TypeState


def dispatch(
    message: Publish, source: Peer, state: TypeState, peers: Peers, registry: Registry
) -> Iterator[tuple[Peer, Publish | Deliver]]:
    """The receivers of a batch of at least one event, and what each gets: neighbours first, both in order of
    their numbers."""
    batch, replayed = message.batch, message.replayed
    events = EventPoints(batch)
    links: list[tuple[Peer, npt.NDArray[np.bool_] | None]] = []
    shares: list[tuple[Peer, Share]] = []
    own = state.groups.get(source.name)
    if len(state.links) > (0 if own is None else len(own)):
        bits = state.links.match_interfaces(events, source.number if source.is_broker else -1)
        numbers = sorted(peer.number for peer in peers.neighbours() if peer is not source)
        links = [(peers.link(number), mask) for number, mask in split_by_link(bits, numbers)]
        for link, mask in links:
            yield link, Publish(batch if mask is None else batch.filter(mask), replayed)
    if len(state.sessions):
        offsets, uids = state.sessions.match(events).ordered()
        split = split_by_session(offsets, uids, registry.owner, registry.subscription)
        shares = [(peers.session(share[0]), share) for share in split]
        for session, (_, rows, ends, ids) in shares:
            part = batch if rows is None else batch.take(rows)
            yield session, Deliver(part, ends, ids, session.received, replayed)
    if source.is_broker and not replayed:
        source.counters.events_unwanted += _unwanted(len(batch), links, shares)
    if state.ring is not None:
        state.ring.record(
            batch,
            source.serial,
            [(link.serial, mask) for link, mask in links],
            [(session.serial, share) for session, share in shares],
        )


def _unwanted(
    count: int, links: list[tuple[Peer, npt.NDArray[np.bool_] | None]], shares: list[tuple[Peer, Share]]
) -> int:
    """How many events of a batch have no receiver."""
    if any(mask is None for _, mask in links) or any(share[1] is None for _, share in shares):
        return 0
    received = np.zeros(count, np.bool_)
    for _, mask in links:
        if mask is not None:
            received |= mask
    for _, share in shares:
        received[share[1]] = True
    return count - int(np.count_nonzero(received))
