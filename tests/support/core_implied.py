"""The global oracle: the slots of each link, from the overlay, the advertisements and the subscriptions.

Computed from the overlay's shape and the clients alone, with sets and two loops; it shares nothing with the
brokers but `covers`. For the link from a to b and one event type: there are slots at b only if a client on
b's side advertises the type, and then they are the maximal elements of all subscriptions on a's side.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core_network import Network

from covey.matcher.covering.covering import Region, covers_region
from covey.overlay.core.client.session import ClientSession


@dataclass(frozen=True)
class LiveSubscription:
    """A live subscription: its region, and its text for messages."""

    region: Region
    text: str


def side(links: Iterable[tuple[str, str]], a: str, b: str) -> set[str]:
    """The brokers on a's side of the link between a and b."""
    brokers, todo = {a}, [a]
    while todo:
        here = todo.pop()
        for x, y in links:
            for near, far in ((x, y), (y, x)):
                if near == here and far not in brokers and {near, far} != {a, b}:
                    brokers.add(far)
                    todo.append(far)
    return brokers


def live_subscriptions(session: ClientSession) -> dict[str, list[LiveSubscription]]:
    """The subscriptions of a client, by event type."""
    by_type: dict[str, list[LiveSubscription]] = {}
    for own in session._subscriptions.values():
        concrete = own.filter.substitute(own.values)
        by_type.setdefault(concrete.event_type.name, []).append(
            LiveSubscription(concrete.region({}), str(concrete))
        )
    return by_type


def check_links(network: Network) -> None:
    """The slots of every link are those of the oracle; `AssertionError` names the link."""
    clients = network.clients.values()
    names = {name for client in clients for name in client.session.advertised}
    for x, y in network.links:
        for a, b in ((x, y), (y, x)):
            near, far = side(network.links, a, b), side(network.links, b, a)
            for name in sorted(
                names | set(network.brokers[a].tables.types) | set(network.brokers[b].tables.types)
            ):
                advertised = any(name in c.session.advertised for c in clients if c.broker in far)
                wanted = [
                    subscription
                    for c in clients
                    if c.broker in near
                    for subscription in live_subscriptions(c.session).get(name, ())
                ]
                check_link(network, a, b, name, wanted if advertised else [])
                state = network.brokers[a].tables.types.get(name)
                known = state is not None and b in state.publishers
                assert known == advertised, (
                    f"{a}: type {name} is {'' if known else 'not '}published on the side of {b}"
                )


def check_link(network: Network, a: str, b: str, name: str, wanted: list[LiveSubscription]) -> None:
    where = f"from {a} to {b}, type {name}"
    state = network.brokers[a].tables.types.get(name)
    outgoing = None if state is None else state.outgoing.get(b)
    slots = [] if outgoing is None else list(outgoing.slots)
    regions = [slot.structure.region(slot.values) for slot in slots]
    for subscription in wanted:
        assert any(covers_region(r, subscription.region) for r in regions), (
            f"{where}: no slot covers {subscription.text}"
        )
    for slot, region in zip(slots, regions, strict=True):
        text = slot.structure.substitute(slot.values)
        assert any(covers_region(w.region, region) and covers_region(region, w.region) for w in wanted), (
            f"{where}: slot {slot.slot_id} has {text}, which is no subscription"
        )
    for i, one in enumerate(regions):
        for j, other in enumerate(regions):
            assert i == j or not covers_region(one, other), (
                f"{where}: slot {slots[i].slot_id} covers slot {slots[j].slot_id}"
            )
    subscriptions = network.brokers[b].tables.peers[a].subscriptions
    subscriptions = {i: s for i, s in subscriptions.items() if s.filter.event_type.name == name}
    assert subscriptions.keys() == {slot.slot_id for slot in slots}, (
        f"{where}: {b} has slots {sorted(subscriptions)}"
    )
    for slot in slots:
        mine = subscriptions[slot.slot_id]
        assert mine.filter == slot.structure, f"{where}: slot {slot.slot_id} has another structure at {b}"
        assert mine.values == slot.values, f"{where}: slot {slot.slot_id} has other values at {b}"
