"""The judge of routing state: what each link must carry, given who is where, advertises what and wants what.

Computed from the overlay's shape and the clients alone; of the brokers' code it uses nothing but `covers`, to
compare. For the link from a to b and one event type: something is asked of b only if a client on b's side
advertises the type, and then it is the maximal elements of what all clients on a's side want; with merging,
what covers each of these, and no more together (perfect) or in no more slots than the budget; where what is
advertised has content, all of that which intersects it, and perhaps more. To be asked when all is quiet.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass

from covey.matcher.covering.covering import Region, covers_region, intersects_region
from covey.matcher.filters.filter import Filter
from covey.overlay.core.introspection.invariants import check
from covey.overlay.core.moving.motion import moves, still
from covey.sim.checkers.findings import Findings
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.simulation import Simulation


@dataclass(frozen=True, slots=True)
class _Wish:
    region: Region
    text: str
    widened: bool
    """Whether brokers may ask for more: its values move, and what is announced holds for a while."""


def check_quiet(simulation: Simulation, findings: Findings) -> None:
    """Everything that a client said has settled, and no broker owes or awaits an acknowledgement."""
    now = simulation.clock.now_ns
    for client in simulation.clients.values():
        said, settled = client.session.epoch, client.session.settled
        if said != settled:
            findings.add("settling", now, f"{client.name} has said {said} things, of which {settled} settled")
    for name, broker in simulation.brokers.items():
        if broker.core.tables.acks.pending():
            findings.add("settling", now, f"{name} still owes {broker.core.tables.acks.pending()}")
        if broker.core.tables.acks.awaited():
            findings.add("settling", now, f"{name} still awaits {broker.core.tables.acks.awaited()}")


def check_routes(
    simulation: Simulation, findings: Findings, *, sample: int | None = None, seed: int = 0
) -> int:
    """Compare links with what they must carry, all of them or `sample` drawn ones; how many were compared.

    The brokers at the links also check their own invariants (`introspection/invariants.py`).
    """
    links = simulation.links
    if sample is not None and sample < len(links):
        links = random.Random(f"routes {seed}").sample(links, sample)
    wishes: dict[str, list[tuple[str, _Wish]]] = {}
    adverts: dict[str, set[str]] = {}
    contents: dict[str, list[tuple[str, Filter | None]]] = {}
    for client in simulation.clients.values():
        for name, wish in _wishes(client, simulation.clock.now_ns, simulation.damping > 0):
            wishes.setdefault(name, []).append((client.broker, wish))
        for name, said in client.session.advertised.items():
            adverts.setdefault(name, set()).add(client.broker)
            contents.setdefault(name, []).append((client.broker, said.filter))
    ends = dict.fromkeys(end for link in links for end in link)
    for end in ends or list(simulation.brokers):
        try:
            check(simulation.brokers[end].core)
        except AssertionError as error:
            findings.add("invariant", simulation.clock.now_ns, str(error))
    for x, y in links:
        near = _side(simulation.links, x, y)
        for a, b, near_a in ((x, y, True), (y, x, False)):
            known = set(simulation.brokers[a].core.tables.types) | set(
                simulation.brokers[b].core.tables.types
            )
            for name in sorted(adverts.keys() | known):
                wanted = [wish for at, wish in wishes.get(name, ()) if (at in near) == near_a]
                beyond = [content for at, content in contents.get(name, ()) if (at in near) != near_a]
                advertised = any((at in near) != near_a for at in adverts.get(name, ()))
                for sentence in _compare(simulation, a, b, name, wanted, advertised, beyond):
                    findings.add("routing", simulation.clock.now_ns, sentence)
    return len(links)


def _wishes(client: SimulatedClient, now_ns: int, damped: bool) -> Iterable[tuple[str, _Wish]]:
    """What a client wants, each with the name of its event type."""
    for subscription_id, filter in client.subscriptions.items():
        values = client.session.values(subscription_id)
        text = f"{client.name}#{subscription_id}, {filter} with {values}"
        region = filter.region(still(values, now_ns))
        yield filter.event_type.name, _Wish(region, text, damped or moves(values))


def _side(links: Iterable[tuple[str, str]], a: str, b: str) -> set[str]:
    """The brokers on a's side of the link between a and b."""
    neighbours: dict[str, list[str]] = {}
    for x, y in links:
        neighbours.setdefault(x, []).append(y)
        neighbours.setdefault(y, []).append(x)
    found, todo = {a}, [a]
    while todo:
        here = todo.pop()
        for other in neighbours.get(here, ()):
            if other not in found and (here, other) != (a, b):
                found.add(other)
                todo.append(other)
    return found


def _compare(
    simulation: Simulation,
    a: str,
    b: str,
    name: str,
    wanted: list[_Wish],
    advertised: bool,
    contents: list[Filter | None],
) -> Iterable[str]:
    """A sentence for each difference between what a asks of b for one type and what it must ask."""
    where = f"from {a} to {b}, type {name}"
    state = simulation.brokers[a].core.tables.types.get(name)
    known = state is not None and b in state.publishers
    if known != advertised:
        yield f"{where}: the type is {'not ' if known else ''}advertised beyond {b}, {a} thinks otherwise"
    outgoing = None if state is None else state.outgoing.get(b)
    slots = [] if outgoing is None else list(outgoing.slots)
    regions = [slot.structure.region(slot.values) for slot in slots]
    if not advertised:
        wanted = []
    for wish in wanted:
        if not any(
            content is None or intersects_region(content.region(), wish.region) for content in contents
        ):
            continue  # nothing of it is advertised there
        if not any(covers_region(region, wish.region) for region in regions):
            yield f"{where}: nothing asks for {wish.text}"
    merging = simulation.merging
    if merging == "budget" and len(slots) > (simulation.merging_budget if wanted else 0):
        yield f"{where}: {len(slots)} slots, for a budget of {simulation.merging_budget}"
    if merging == "perfect" and slots and not any(wish.widened for wish in wanted):
        found = [conjunction for wish in wanted for conjunction in wish.region.conjunctions or ()]
        together = Region(regions[0].event_type, tuple(found))
        for slot, region in zip(slots, regions, strict=True):
            if not covers_region(together, region):
                yield f"{where}: slot {slot.slot_id} asks for what nobody wants"
    for i, (slot, region) in enumerate(zip(slots, regions, strict=True) if merging == "off" else ()):
        # Bounds that are damped or move are announced wider than they are wanted.
        if not any(
            covers_region(region, wish.region) and (wish.widened or covers_region(wish.region, region))
            for wish in wanted
        ):
            yield f"{where}: slot {slot.slot_id} asks for what nobody wants"
        for j, other in enumerate(regions):
            if i != j and covers_region(other, region):
                yield f"{where}: slot {slot.slot_id} is covered by slot {slots[j].slot_id}"
    peer = simulation.brokers[b].core.tables.peers.get(a)
    held = {} if peer is None else peer.subscriptions
    here = {i: s for i, s in held.items() if s.filter.event_type.name == name}
    if here.keys() != {slot.slot_id for slot in slots}:
        yield f"{where}: {b} holds slots {sorted(here)}, {a} has given {sorted(s.slot_id for s in slots)}"
    for slot in slots:
        there = here.get(slot.slot_id)
        if there is not None and (there.filter != slot.structure or there.values != slot.values):
            yield f"{where}: slot {slot.slot_id} is {there} at {b}, and {slot.values} at {a}"
