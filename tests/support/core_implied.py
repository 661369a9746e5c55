"""The global oracle: what each link must carry, given who is where, who advertises, and who wants what.

Computed from the overlay's shape and the clients alone, with sets and two loops; it shares nothing with the
brokers but `covers`. For the link from a to b and one event type: something is asked of b only if a client on
b's side advertises the type, and then it is the maximal elements of what all clients on a's side want.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from core_network import Network

from covey.matcher.covering.covering import Region, covers_region
from covey.overlay.core.client.session import ClientSession


@dataclass(frozen=True)
class Wish:
    """A live subscription: its region, and its text for messages."""

    region: Region
    text: str


def side(links: Iterable[tuple[str, str]], a: str, b: str) -> set[str]:
    """The brokers on a's side of the link between a and b."""
    found, todo = {a}, [a]
    while todo:
        here = todo.pop()
        for x, y in links:
            for near, far in ((x, y), (y, x)):
                if near == here and far not in found and {near, far} != {a, b}:
                    found.add(far)
                    todo.append(far)
    return found


def wishes(session: ClientSession) -> dict[str, list[Wish]]:
    """What a client wants, by event type."""
    found: dict[str, list[Wish]] = {}
    for subscription in session._subscriptions.values():
        concrete = subscription.filter.substitute(subscription.values)
        found.setdefault(concrete.event_type.name, []).append(Wish(concrete.region({}), str(concrete)))
    return found


def check_links(network: Network) -> None:
    """Every link carries what the oracle says, no more and no less; `AssertionError` names the link."""
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
                    wish for c in clients if c.broker in near for wish in wishes(c.session).get(name, ())
                ]
                check_link(network, a, b, name, wanted if advertised else [])
                state = network.brokers[a].tables.types.get(name)
                known = state is not None and b in state.publishers
                assert known == advertised, (
                    f"{a}: type {name} is {'' if known else 'not '}published beyond {b}"
                )


def check_link(network: Network, a: str, b: str, name: str, wanted: list[Wish]) -> None:
    where = f"from {a} to {b}, type {name}"
    state = network.brokers[a].tables.types.get(name)
    outgoing = None if state is None else state.outgoing.get(b)
    slots = [] if outgoing is None else list(outgoing.slots)
    regions = [slot.structure.region(slot.values) for slot in slots]
    for wish in wanted:
        assert any(covers_region(r, wish.region) for r in regions), f"{where}: nothing asks for {wish.text}"
    for slot, region in zip(slots, regions, strict=True):
        text = slot.structure.substitute(slot.values)
        assert any(covers_region(w.region, region) and covers_region(region, w.region) for w in wanted), (
            f"{where}: slot {slot.slot_id} asks for {text}, which nobody wants"
        )
    for i, one in enumerate(regions):
        for j, other in enumerate(regions):
            assert i == j or not covers_region(one, other), (
                f"{where}: slot {slots[i].slot_id} covers slot {slots[j].slot_id}"
            )
    held = network.brokers[b].tables.peers[a].subscriptions
    held = {i: s for i, s in held.items() if s.filter.event_type.name == name}
    assert held.keys() == {slot.slot_id for slot in slots}, f"{where}: {b} holds slots {sorted(held)}"
    for slot in slots:
        mine = held[slot.slot_id]
        assert mine.filter == slot.structure, f"{where}: slot {slot.slot_id} has another structure at {b}"
        assert mine.values == slot.values, f"{where}: slot {slot.slot_id} has other values at {b}"
