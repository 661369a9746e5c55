"""Compares the routing state of an overlay with that of a freshly built one, by content.

The fresh one has the same brokers, links, clients, advertisements and subscriptions, and no past. What must
be equal at each broker: its interfaces; the types, and for each the publishers with their schemas and
promises, the neighbours to which it is advertised, the interest of each client with its filters and values,
the interest of each neighbour, and the slots at each neighbour. Ids and epochs may differ, and so may which
of several filters with the same events has a slot: slots are compared as regions.

With damping, a budget for merging or promises of content brokers announce more than the clients imply, which
depends on the past: then interest, slots and promises must cover those of a fresh one without damping and
merging. How much more they may be `check_routes` judges. A schema that was widened may have more attributes,
and others first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from covey.matcher import parse
from covey.matcher.covering.covering import covers_region
from covey.sim.checkers.findings import Findings

if TYPE_CHECKING:
    from covey.matcher.covering.region import Region
    from covey.overlay.core.covering.interest import Interest
    from covey.overlay.core.routing.tables import Tables
    from covey.overlay.core.routing.type_state import TypeState
    from covey.sim.simulator.simulation import Simulation


def check_rebuilt(simulation: Simulation, findings: Findings) -> None:
    """Report where the routing state differs from that of a freshly built overlay."""
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
    yield from _compare("interfaces", _interfaces(tables), _interfaces(fresh))
    yield from _compare("types", sorted(tables.types), sorted(fresh.types))
    for name in sorted(tables.types.keys() & fresh.types.keys()):
        here, there = tables.types[name], fresh.types[name]
        for what, one, other in zip(_PARTS, _parts(here), _parts(there), strict=True):
            yield from _compare(f"{name}, {what}", one, other)
        for publisher, schema in sorted(there.declared.items()):
            own = here.declared.get(publisher)
            if publisher in there.publishers and own is not None and not own.includes(schema):
                yield f"{name}, schema of {publisher}: {own}, expected {schema}"
        compare = _missing if wider else _compare_exactly
        for what, regions_of in (
            ("promise", _promised),
            ("interest", _interest),
            ("slots", _slots),
        ):
            ones, others = regions_of(here), regions_of(there)
            if not wider:
                yield from _compare(f"{name}, {what} of", sorted(ones), sorted(others))
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


def _compare(what: str, here: object, there: object) -> Iterator[str]:
    if here != there:
        yield f"{what}: {here}, expected {there}"


@dataclass(frozen=True, slots=True)
class _Shown:
    """A region, and the filter that it is of."""

    region: Region
    text: str


def _promised(state: TypeState) -> dict[str, list[_Shown]]:
    """By publisher what it promises."""
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
    yield from _compare(f"{what}, their number", len(here), len(there))
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
