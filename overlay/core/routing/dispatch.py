"""Where a batch of events goes (Jayaram et al., Fig. 3 lines 8-12, Fig. 6 lines 38-41).

To each neighbour with a slot that matches, but never back where the batch came from; then to each session,
once, with the ids of all its subscriptions that match. No Python statement per event: the engines answer for
the whole batch, and what all of it goes to gets the very same batch, whose bytes exist already. Where the
event type has a ring (`replay.py`), it notes who got what.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from covey.overlay.core.covering.interest import Interest, Registry
from covey.overlay.core.matching.event_points import EventPoints
from covey.overlay.core.matching.splitting import Share, split_by_link, split_by_session
from covey.overlay.core.messages import Deliver, Publish
from covey.overlay.core.routing.peers import Peer, Peers
from covey.overlay.core.routing.type_state import TypeState


def dispatch(
    message: Publish, source: Peer, state: TypeState, peers: Peers, registry: Registry
) -> Iterator[tuple[Peer, Publish | Deliver]]:
    """Who gets which events of a batch of at least one: neighbours first, both in order of their numbers."""
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
        offsets, uids = state.sessions.match(events)
        found = split_by_session(offsets, uids, registry.owner, registry.subscription)
        shares = [(peers.session(share[0]), share) for share in found]
        for session, (_, rows, ends, ids) in shares:
            part = batch if rows is None else batch.take(rows)
            yield session, Deliver(part, ends, ids, session.received, replayed)
    if source.is_broker and not replayed:
        source.counters.events_unwanted += _unwanted(len(batch), links, shares)
    if state.ring is not None:
        state.ring.record(
            batch,
            source.life,
            [(link.life, mask) for link, mask in links],
            [(session.life, share) for session, share in shares],
        )


def _unwanted(
    count: int, links: list[tuple[Peer, npt.NDArray[np.bool_] | None]], shares: list[tuple[Peer, Share]]
) -> int:
    """How many events of a batch went to nobody."""
    if any(mask is None for _, mask in links) or any(share[1] is None for _, share in shares):
        return 0
    taken = np.zeros(count, np.bool_)
    for _, mask in links:
        if mask is not None:
            taken |= mask
    for _, share in shares:
        taken[share[1]] = True
    return count - int(np.count_nonzero(taken))


def replay(interest: Interest, peer: Peer, state: TypeState, since_ns: int) -> Iterator[Publish | Deliver]:
    """What an interface asks for, has entered the overlay since a time, and has not been sent to it."""
    ring = state.ring
    if ring is None:
        return
    if peer.is_broker:
        if peer.name not in state.told:
            return  # the advertisement was taken back: events would find no interest there
        for batch in ring.to_link(peer.life, peer.number, since_ns, state.links):
            yield Publish(batch, True)
        return
    subscription_id = interest.subscription_id
    for batch in ring.to_session(peer.life, interest.uid, subscription_id, since_ns, state.sessions):
        ids = np.full(len(batch), subscription_id, np.int64)
        yield Deliver(batch, np.arange(len(batch) + 1), ids, peer.received, True)
