"""Where a batch of events goes (Jayaram et al., Fig. 3 lines 8-12, Fig. 6 lines 38-41).

To each neighbour with a slot that matches, but never back where the batch came from; then to each session,
once, with the ids of all its subscriptions that match. No Python statement per event: the engines answer for
the whole batch, and what all of it goes to gets the very same batch, whose bytes exist already.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from covey.overlay.core.interest import Registry
from covey.overlay.core.matching import split_by_link, split_by_session
from covey.overlay.core.messages import Deliver, Publish
from covey.overlay.core.peers import Peer, Peers
from covey.overlay.core.type_state import TypeState

if TYPE_CHECKING:
    from covey.matcher.batch import EventBatch


def dispatch(
    batch: EventBatch, source: Peer, state: TypeState, peers: Peers, registry: Registry
) -> Iterator[tuple[Peer, Publish | Deliver]]:
    """Who gets which events of a batch of at least one: neighbours first, both in order of their numbers."""
    own = state.groups.get(source.name)
    if len(state.links) > (0 if own is None else len(own)):
        bits = state.links.flush().match_interfaces(batch)
        numbers = sorted(peer.number for peer in peers.neighbours() if peer is not source)
        for number, mask in split_by_link(bits, numbers):
            yield peers.link(number), Publish(batch if mask is None else batch.filter(mask))
    if len(state.sessions):
        offsets, uids = state.sessions.flush().match(batch)
        shares = split_by_session(offsets, uids, registry.owner, registry.subscription)
        for number, rows, ends, ids in shares:
            session = peers.session(number)
            yield session, Deliver(batch if rows is None else batch.take(rows), ends, ids, session.received)
