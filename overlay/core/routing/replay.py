"""Replays for updates without gaps.

An update takes a while to reach the brokers; until then an event that only the new filter matches is not sent
on. A *gapless* update carries the time of its call, and each broker that it reaches replays, to the interface
it came from, the events that match its interest now, have entered the overlay since, and were not sent to it.
A gapless update always travels on to the publishers' brokers, also where another filter covers it, so that
events of brokers further on come as their replays.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.matching.travelling import TravellingResults
from covey.overlay.core.messages import Deliver, Publish
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.type_state import TypeState


def replay(
    interest: Interest, peer: Peer, state: TypeState, results: TravellingResults, since_ns: int
) -> Iterator[Publish | Deliver]:
    """The events to replay to an interface for one of its subscriptions."""
    ring = state.ring
    if ring is None:
        return
    if peer.is_broker:
        if peer.name not in state.advertised_to:
            return  # the advertisement was withdrawn: events would meet no interest there
        for batch in ring.to_link(peer.serial, peer.number, interest, since_ns, state.links):
            yield Publish(results.sealed(batch), True)
        return
    subscription_id = interest.subscription_id
    for batch, is_unsure in ring.to_session(peer.serial, interest, since_ns, state.sessions):
        own = results.sealed(batch, peer.call_keys() if is_unsure else ())
        ids = np.full(len(batch), subscription_id, np.int64)
        yield Deliver(own, np.arange(len(batch) + 1), ids, 0 if is_unsure else peer.received, True)
