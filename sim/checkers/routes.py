"""The judge of routing state at rest: the interest that each link must carry, computed from the tree and the
clients; and the state of an overlay built anew, with the same clients and no past.

From a to b and for one event type, a has slots only if a client on b's side advertises the type or the type
is durable: the maximal elements of the interest of all clients on a's side; and a has the attributes of every
advertisement on b's side. With merging the slots cover this interest, and no more together (perfect) or in no
more slots than the budget; with content filters they cover the interest that intersects these.

Between the overlay and the one built anew ids, epochs, the choice among filters with the same events, and
additional attributes of widened schemas may differ, so slots are compared as regions. With damping, a budget
for merging or promises of content the announced interest depends on the past, and must only cover that of the
new overlay.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from covey.matcher import parse
from covey.matcher.covering.covering import covers_region, holds_region, intersects_region
from covey.matcher.covering.region import Region
from covey.matcher.events.event_type import EventType
from covey.overlay.core.messages import Advertise
from covey.overlay.core.moving.motion import moves, still
from covey.sim.checkers.findings import Findings
from covey.sim.invariants import check
from covey.sim.simulator.cancelling_session import CancellingSession
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.simulation import Simulation

if TYPE_CHECKING:
    from covey.overlay.core.covering.interest import Interest
    from covey.overlay.core.routing.tables import Tables
    from covey.overlay.core.routing.type_state import TypeState


@dataclass(frozen=True, slots=True)
class _Interest:
    region: Region
    text: str
    widened: bool
    """Whether brokers may announce wider bounds, for damping or Motion."""


def check_quiet(simulation: Simulation, findings: Findings) -> None:
    """All control of clients has settled; no broker has pending acknowledgements, awaited ones or answers."""
    now = simulation.clock.now_ns
    for client in simulation.clients.values():
        epoch, settled = client.session.epoch, client.session.settled
        if epoch != settled:
            findings.add("settling", now, f"{client.name} is at epoch {epoch}, of which {settled} settled")
    for name, broker in simulation.brokers.items():
        if not broker.alive:
            continue
        if broker.core.tables.acks.pending():
            findings.add(
                "settling", now, f"{name} has pending acknowledgements {broker.core.tables.acks.pending()}"
            )
        if broker.core.tables.acks.awaited():
            findings.add(
                "settling", now, f"{name} awaits acknowledgements {broker.core.tables.acks.awaited()}"
            )
    check_answers(simulation, findings)


def check_answers(simulation: Simulation, findings: Findings) -> None:
    """No broker has answers to updates for views under way."""
    for name, broker in simulation.brokers.items():
        for state in broker.core.tables.types.values() if broker.alive else ():
            pending = state.answers.pending()
            if pending:
                what = f"{name} has not answered for views of {state.event_type.name}: {pending}"
                findings.add("settling", simulation.clock.now_ns, what)


def check_routes(
    simulation: Simulation, findings: Findings, *, sample: int | None = None, seed: int = 0
) -> int:
    """Compare all links, or `sample` random ones, with the interest they must carry; return their number.

    The brokers at the links are also checked for their own invariants (`sim/invariants.py`).
    """
    links = simulation.links
    if sample is not None and sample < len(links):
        links = random.Random(f"routes {seed}").sample(links, sample)
    interests: dict[str, list[tuple[str, _Interest]]] = {}
    adverts: dict[str, set[str]] = {}
    advertisements: dict[str, list[tuple[str, Advertise]]] = {}
    for client in simulation.clients.values():
        for name, interest in _interests(client, simulation.clock.now_ns, simulation.damping > 0):
            interests.setdefault(name, []).append((client.broker, interest))
        for name, advertisement in client.session.advertised.items():
            adverts.setdefault(name, set()).add(client.broker)
            advertisements.setdefault(name, []).append((client.broker, advertisement))
    ends = dict.fromkeys(end for link in links for end in link)
    for end in ends or [name for name, broker in simulation.brokers.items() if broker.alive]:
        try:
            check(simulation.brokers[end].core)
        except AssertionError as error:
            findings.add("invariant", simulation.clock.now_ns, str(error))
    for x, y in links:
        near, far = _side(simulation.links, x, y), _side(simulation.links, y, x)
        for a, b, side_a, side_b in ((x, y, near, far), (y, x, far, near)):
            known = set(simulation.brokers[a].core.tables.types) | set(
                simulation.brokers[b].core.tables.types
            )
            for name in sorted(adverts.keys() | known):
                behind_a = [interest for at, interest in interests.get(name, ()) if at in side_a]
                behind_b = [ad for at, ad in advertisements.get(name, ()) if at in side_b]
                advertised = any(at in side_b for at in adverts.get(name, ()))
                for sentence in _compare(simulation, a, b, name, behind_a, advertised, behind_b):
                    findings.add("routing", simulation.clock.now_ns, sentence)
    return len(links)


def _interests(client: SimulatedClient, now_ns: int, damped: bool) -> Iterable[tuple[str, _Interest]]:
    """(name of the event type, interest) of every subscription."""
    filters = {**client.session.subscriptions, **client.subscriptions}  # of views, and others with policies
    for subscription_id, filter in filters.items():
        values = client.session.values(subscription_id)
        text = f"{client.name}#{subscription_id}, {filter} with {values}"
        region = filter.stateless.region(still(values, now_ns))
        yield filter.event_type.name, _Interest(region, text, damped or moves(values))
    if isinstance(client.session, CancellingSession):
        for filter in client.session.outdated:
            text = f"{client.name}, outdated {filter}"
            yield filter.event_type.name, _Interest(filter.region({}), text, damped)


def _side(links: Iterable[tuple[str, str]], a: str, b: str) -> set[str]:
    neighbours: dict[str, list[str]] = {}
    for x, y in links:
        neighbours.setdefault(x, []).append(y)
        neighbours.setdefault(y, []).append(x)
    side, todo = {a}, [a]
    while todo:
        here = todo.pop()
        for other in neighbours.get(here, ()):
            if other not in side and (here, other) != (a, b):
                side.add(other)
                todo.append(other)
    return side


def _compare(
    simulation: Simulation,
    a: str,
    b: str,
    name: str,
    interests: list[_Interest],
    advertised: bool,
    advertisements: list[Advertise],
) -> Iterable[str]:
    """A sentence for each difference between the slots of a at b for one type and those it must have."""
    where = f"from {a} to {b}, type {name}"
    state = simulation.brokers[a].core.tables.types.get(name)
    known = state is not None and b in state.publishers
    if known != advertised:
        yield f"{where}: the type is {'not ' if known else ''}advertised behind {b}, unlike at {a}"
    for ad in advertisements:
        if state is None or b not in state.declared or not state.declared[b].includes(ad.event_type):
            yield f"{where}: {ad.event_type} is advertised behind {b}, unlike at {a}"
    contents = [None] if name in simulation.durable else [ad.filter for ad in advertisements]
    outgoing = None if state is None else state.outgoing.get(b)
    slots = [] if outgoing is None else list(outgoing.slots)
    regions = [slot.structure.region(slot.values) for slot in slots]
    if not advertised and name not in simulation.durable:
        interests = []
    for interest in interests:
        if not any(
            content is None or intersects_region(content.region(), interest.region) for content in contents
        ):
            continue  # no content filter there intersects it
        if not any(covers_region(region, interest.region) for region in regions):
            yield f"{where}: no slot covers {interest.text}"
    merging = simulation.merging
    if merging == "budget" and len(slots) > (simulation.merging_budget if interests else 0):
        yield f"{where}: {len(slots)} slots, for a budget of {simulation.merging_budget}"
    if merging == "perfect" and slots and not any(interest.widened for interest in interests):
        conjunctions = [
            conjunction for interest in interests for conjunction in interest.region.conjunctions or ()
        ]
        schemas = [interest.region.event_type for interest in interests]
        together = Region(reduce(EventType.union, schemas), tuple(conjunctions))
        for slot, region in zip(slots, regions, strict=True):
            if not covers_region(together, region):
                yield f"{where}: slot {slot.slot_id} covers events outside the interest"
    exact = outgoing is None or outgoing.poset.exact
    for i, (slot, region) in enumerate(zip(slots, regions, strict=True) if merging == "off" else ()):
        # Damped and moving bounds are announced wider than they are.
        if not any(
            covers_region(region, interest.region)
            and (interest.widened or covers_region(interest.region, region))
            for interest in interests
        ):
            yield f"{where}: slot {slot.slot_id} covers events outside the interest"
        for j, other in enumerate(regions):
            if exact and i != j and holds_region(other, region):
                yield f"{where}: slot {slot.slot_id} is covered by slot {slots[j].slot_id}"
    peer = simulation.brokers[b].core.tables.peers.get(a)
    held = {} if peer is None else peer.subscriptions
    here = {i: s for i, s in held.items() if s.filter.event_type.name == name}
    if here.keys() != {slot.slot_id for slot in slots}:
        yield f"{where}: {b} holds slots {sorted(here)}, {a} has sent {sorted(s.slot_id for s in slots)}"
    for slot in slots:
        there = here.get(slot.slot_id)
        if there is not None and (there.filter != slot.structure or there.values != slot.values):
            yield f"{where}: slot {slot.slot_id} is {there} at {b}, and {slot.values} at {a}"


def check_logs(simulation: Simulation, findings: Findings) -> None:
    """No event has two records in the log of a broker, whatever was sent again after a crash."""
    for name, broker in simulation.brokers.items():
        storage = None if broker.storage is None else broker.storage.open
        for type_name in () if storage is None else storage.types:
            stored: set[tuple[str, int]] = set()
            assert storage is not None
            for batch in storage.batches(type_name):
                events = {(batch.publisher, sequence) for sequence in batch.sequences().tolist()}
                for publisher, sequence in stored & events:
                    what = f"{name} has stored event {sequence} of {publisher}, of type {type_name}, twice"
                    findings.add("repetition", simulation.clock.now_ns, what)
                stored |= events


def check_rebuilt(simulation: Simulation, findings: Findings) -> None:
    fresh = simulation.rebuilt()
    while not fresh.clock.only_polls:
        fresh.clock.run(steps=100)
    clients = simulation.clients.values()
    promised = any(each.filter is not None for one in clients for each in one.session.advertised.values())
    wider = simulation.damping > 0 or simulation.merging == "budget" or promised
    for name, broker in simulation.brokers.items():
        for what in _differences(broker.core.tables, fresh.brokers[name].core.tables, wider):
            findings.add("rebuilt", simulation.clock.now_ns, f"{name}, unlike a freshly built one: {what}")


def _differences(tables: Tables, fresh: Tables, wider: bool) -> Iterator[str]:
    yield from _compare_states("interfaces", _interfaces(tables), _interfaces(fresh))
    yield from _compare_states("types", sorted(tables.types), sorted(fresh.types))
    for name in sorted(tables.types.keys() & fresh.types.keys()):
        here, there = tables.types[name], fresh.types[name]
        for what, one, other in zip(_PARTS, _parts(here), _parts(there), strict=True):
            yield from _compare_states(f"{name}, {what}", one, other)
        for publisher, schema in sorted(there.declared.items()):
            own = here.declared.get(publisher)
            if publisher in there.publishers and own is not None and not own.includes(schema):
                yield f"{name}, schema of {publisher}: {own}, expected {schema}"
        compare = _missing if wider else _compare_exactly
        for what, regions_of in (("promise", _promised), ("interest", _interest), ("slots", _slots)):
            ones, others = regions_of(here), regions_of(there)
            if not wider:
                yield from _compare_states(f"{name}, {what} of", sorted(ones), sorted(others))
            for neighbour in sorted(ones.keys() | others.keys()):
                one, other = ones.get(neighbour, []), others.get(neighbour, [])
                yield from compare(f"{name}, {what} of {neighbour}", one, other)


def _interfaces(tables: Tables) -> list[str]:
    return sorted(peer.name for peer in tables.peers.values())


_PARTS = ("publishers", "advertised to", "interest of clients")


def _parts(state: TypeState) -> Sequence[object]:
    interests = (node for poset in state.groups.values() for node in poset.nodes())
    return (
        sorted(state.publishers),
        sorted(state.advertised_to),
        sorted(_text(interest) for interest in interests if interest.interface.startswith("client/")),
    )


def _text(interest: Interest) -> str:
    return f"{interest.interface}, {interest.filter} with {sorted(interest.values.items())}"


def _compare_states(what: str, here: object, there: object) -> Iterator[str]:
    if here != there:
        yield f"{what}: {here}, expected {there}"


@dataclass(frozen=True, slots=True)
class _Shown:
    region: Region
    text: str


def _promised(state: TypeState) -> dict[str, list[_Shown]]:
    promised = {name: parse("true", state.declared[name]) for name in state.publishers}
    promised |= {name: each.filter for name, each in state.promises.items() if each.filter is not None}
    return {name: [_Shown(filter.region(), str(filter))] for name, filter in promised.items()}


def _interest(state: TypeState) -> dict[str, list[_Shown]]:
    groups = {name: poset.nodes() for name, poset in state.groups.items() if name.startswith("broker/")}
    return {name: [_Shown(node.region, _text(node)) for node in nodes] for name, nodes in groups.items()}


def _slots(state: TypeState) -> dict[str, list[_Shown]]:
    return {
        name: [
            _Shown(slot.structure.region(slot.values), f"{slot.structure} with {sorted(slot.values.items())}")
            for slot in outgoing.slots
        ]
        for name, outgoing in state.outgoing.items()
    }


def _compare_exactly(what: str, here: Sequence[_Shown], there: Sequence[_Shown]) -> Iterator[str]:
    yield from _compare_states(f"{what}, their number", len(here), len(there))
    for of, among, why in ((here, there, "is too much"), (there, here, "is missing")):
        for one in of:
            if not any(
                covers_region(each.region, one.region) and covers_region(one.region, each.region)
                for each in among
            ):
                yield f"{what}: {one.text} {why}"


def _missing(what: str, here: Sequence[_Shown], there: Sequence[_Shown]) -> Iterator[str]:
    for one in there:
        if not any(covers_region(each.region, one.region) for each in here):
            yield f"{what}: {one.text} is missing"
