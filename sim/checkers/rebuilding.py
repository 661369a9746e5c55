"""Compares the routing state of an overlay with that of a freshly built one, by content.

The fresh one has the same brokers, links, clients, advertisements and subscriptions, and no past. What must
be equal at each broker: its interfaces; the types, and for each the publishers with their schemas and
promises, the neighbours to which it is advertised, the interest of each client with its filters and values,
the interest of each neighbour, and the slots at each neighbour. Ids and epochs may differ, and so may which
of several filters with the same events has a slot: slots are compared as regions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

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
    for name, broker in simulation.brokers.items():
        for what in _differences(broker.core.tables, fresh.brokers[name].core.tables):
            findings.add("rebuilt", simulation.clock.now_ns, f"{name}, unlike a freshly built one: {what}")


def _differences(tables: Tables, fresh: Tables) -> Iterator[str]:
    yield from _compare("interfaces", _interfaces(tables), _interfaces(fresh))
    yield from _compare("types", sorted(tables.types), sorted(fresh.types))
    for name in sorted(tables.types.keys() & fresh.types.keys()):
        here, there = tables.types[name], fresh.types[name]
        for what, one, other in zip(_PARTS, _parts(here), _parts(there), strict=True):
            yield from _compare(f"{name}, {what}", one, other)
        for group in sorted(here.groups.keys() & there.groups.keys()):
            if group.startswith("broker/"):
                regions = ([node.region for node in each.groups[group].nodes()] for each in (here, there))
                yield from _compare_regions(f"{name}, interest of {group}", *regions)
        for neighbour in sorted(here.outgoing.keys() & there.outgoing.keys()):
            regions = (
                [slot.structure.region(slot.values) for slot in each.outgoing[neighbour].slots]
                for each in (here, there)
            )
            yield from _compare_regions(f"{name}, slots at {neighbour}", *regions)


def _interfaces(tables: Tables) -> list[str]:
    return sorted(peer.name for peer in tables.peers.all())


_PARTS = ("publishers", "schemas", "promises", "advertised to", "groups", "slots at", "interest of clients")


def _parts(state: TypeState) -> Sequence[object]:
    interests = (node for poset in state.groups.values() for node in poset.nodes())
    return (
        sorted(state.publishers),
        {name: schema for name, schema in state.declared.items() if name in state.publishers},
        {name: promise.filter for name, promise in state.promises.items()},
        sorted(state.advertised_to),
        sorted(state.groups),
        sorted(state.outgoing),
        sorted(_text(interest) for interest in interests if interest.interface.startswith("client/")),
    )


def _text(interest: Interest) -> str:
    return f"{interest.interface}, {interest.filter} with {sorted(interest.values.items())}"


def _compare(what: str, here: object, there: object) -> Iterator[str]:
    if here != there:
        yield f"{what}: {here}, expected {there}"


def _compare_regions(what: str, here: Iterable[Region], there: Iterable[Region]) -> Iterator[str]:
    ones, others = list(here), list(there)
    yield from _compare(f"{what}, their number", len(ones), len(others))
    for of, among, why in ((ones, others, "is too much"), (others, ones, "is missing")):
        for region in of:
            if not any(covers_region(each, region) and covers_region(region, each) for each in among):
                yield f"{what}: {region} {why}"
