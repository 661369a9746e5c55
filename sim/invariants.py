"""The invariants of a broker between any two messages, recomputed by scanning."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from covey.matcher.covering.covering import covers_region, holds_region
from covey.matcher.covering.region import Region
from covey.matcher.events.event_type import EventType
from covey.overlay.core.covering.interest import Interest, group_of
from covey.overlay.core.covering.poset import Poset
from covey.overlay.core.matching.matching import Matching
from covey.overlay.core.matching.operator_matching import OperatorMatching
from covey.overlay.core.routing.type_state import Outgoing, TypeState

if TYPE_CHECKING:
    from covey.overlay.core.routing.broker import Broker


def check(broker: Broker) -> None:
    """Raise `AssertionError` for the first invariant that does not hold."""
    check_interests(broker)
    for state in broker.tables.types.values():
        where = f"broker {broker.tables.broker_id}, type {state.event_type.name}"
        for group, poset in state.groups.items():
            assert len(poset), f"{where}: an empty poset for {group}"
            check_poset(poset, f"{where}, interest of {group}")
        check_advertisements(broker, state, where)
        check_outgoing(broker, state, where)
        check_engines(state, where)
    broker.tables.acks.check()
    for state in broker.tables.types.values():
        state.answers.check()


def check_interests(broker: Broker) -> None:
    """Every interest has its own uid and is in its interface and its group's poset, and nowhere else."""
    registry = broker.tables.registry
    live: dict[int, Interest] = {}
    for peer in broker.tables.peers.values():
        for subscription_id, interest in peer.subscriptions.items():
            assert interest.uid not in live, f"uid {interest.uid} names two interests"
            live[interest.uid] = interest
            assert (interest.interface, interest.subscription_id) == (peer.name, subscription_id), (
                f"{interest} is stored as subscription {subscription_id} of {peer.name}"
            )
            assert registry.owner[interest.uid] == peer.number, f"{interest} is owned by another number"
            assert registry.subscription[interest.uid] == subscription_id, f"{interest} has another id"
            region = interest.structure.region(interest.announced)
            assert covers_region(region, interest.region), f"{interest} keeps a region that is too wide"
            assert covers_region(interest.region, region), f"{interest} keeps a region that is too narrow"
        assert peer.stale_subscriptions.keys() <= peer.subscriptions.keys(), (
            f"{peer.name}: stale, and not there"
        )
        assert peer.stale_types.keys() <= peer.advertised.keys(), f"{peer.name}: stale, and not advertised"
    assert live == registry.live, "the registry and the interfaces have different interests"
    in_posets = [interest for state in broker.tables.types.values() for interest in state.interests()]
    assert len(in_posets) == len(live), f"{len(live)} interests, {len(in_posets)} nodes in the posets"
    for interest in in_posets:
        assert live.get(interest.uid) is interest, f"{interest} is in a poset and in no interface"
        state = broker.tables.types[interest.filter.event_type.name]
        assert interest in state.groups[group_of(interest.interface)], (
            f"{interest} is in another group's poset"
        )


def check_poset(poset: Poset, where: str) -> None:
    """Roots do not cover each other; the witnesses of every other node cover it and lead to a root."""
    nodes = list(poset.nodes())
    roots = list(poset.roots())
    for root in roots:
        assert root in poset, f"{where}: root {root} is not in the poset"
        assert poset.witness_of(root) is None, f"{where}: root {root} has a witness"
        for other in roots if poset.exact else ():
            if other is not root:
                assert not holds_region(other.region, root.region), (
                    f"{where}: root {other} covers root {root}"
                )
    is_root = {root.uid for root in roots}
    for node in nodes:
        if node.uid in is_root:
            continue
        witness = poset.witness_of(node)
        assert witness is not None, f"{where}: {node} is neither a root nor has a witness"
        assert witness in poset, f"{where}: the witness of {node} is gone"
        assert holds_region(witness.region, node.region), f"{where}: {witness} does not cover {node}"
        seen = {node.uid}
        while witness is not None:
            assert witness.uid not in seen, f"{where}: the witnesses of {node} form a cycle"
            seen.add(witness.uid)
            witness = poset.witness_of(witness)
        assert poset.root_of(node).uid in is_root, f"{where}: {node} leads to no root"


def check_advertisements(broker: Broker, state: TypeState, where: str) -> None:
    """Publishers are the interfaces that advertised; a neighbour is advertised to while another publishes."""
    name = state.event_type.name
    advertisers = {
        peer.name: peer.advertised[name] for peer in broker.tables.peers.values() if name in peer.advertised
    }
    assert state.publishers == advertisers, (
        f"{where}: publishers {state.publishers}, advertised by {advertisers}"
    )
    for neighbour in broker.tables.peers.neighbours():
        expected = any(publisher != neighbour.name for publisher in state.publishers)
        assert (neighbour.name in state.advertised_to) == expected, (
            f"{where}: {neighbour.name} is {'not ' if expected else ''}advertised to"
        )
    assert state.declared.keys() == state.publishers.keys(), (
        f"{where}: publishers {list(state.publishers)}, declared by {list(state.declared)}"
    )
    for interface, schema in state.declared.items():
        assert state.event_type.includes(schema), f"{where}: lacks attributes of {interface}: {schema}"
    for interest in state.interests():
        schema = interest.filter.event_type
        assert state.event_type.includes(schema), f"{where}: lacks attributes of {interest}: {schema}"
    for name, sent in state.advertised_to.items():
        for interface, schema in state.declared.items():
            assert interface == name or sent.refused or sent.schema.includes(schema), (
                f"{where}: {name} was not sent the attributes of {interface}: {schema}"
            )
    sources = broker.tables.peers if state.floods else state.publishers
    links = {name for name in sources if name.startswith("broker/")}
    assert state.outgoing.keys() == links, (
        f"{where}: interest goes to {list(state.outgoing)}, not to {sorted(links)}"
    )
    assert not state.idle, f"{where}: an idle type remains"


def check_outgoing(broker: Broker, state: TypeState, where: str) -> None:
    """The slots at a neighbour are the maximal elements of all interest but its own."""
    for neighbour, outgoing in state.outgoing.items():
        here = f"{where}, slots at {neighbour}"
        check_poset(outgoing.poset, here)
        admitted = {
            root.uid
            for group, poset in state.groups.items()
            if group != neighbour
            for root in poset.roots()
            if state.floods or neighbour not in state.promises or state.promises[neighbour].admits(root)
        }
        nodes = {node.uid for node in outgoing.poset.nodes()}
        assert nodes == admitted, (
            f"{here}: the poset has {sorted(nodes)}, the groups' roots are {sorted(admitted)}"
        )
        if outgoing.merger is not None:
            check_bundles(outgoing, here)
        content = outgoing.poset.roots() if outgoing.merger is None else outgoing.merger.bundles()
        roots = {root.uid for root in content}
        slots = {slot.content.uid for slot in outgoing.slots}
        assert slots == roots, f"{here}: slots for {sorted(slots)}, roots {sorted(roots)}"
        assert len(outgoing.slots) == len(slots), f"{here}: two slots for one root"
        for slot in outgoing.slots:
            assert outgoing.slots.slot_of(slot.content) is slot, (
                f"{here}: slot {slot.slot_id} is not its root's"
            )
            assert slot.structure == slot.content.structure, (
                f"{here}: slot {slot.slot_id} has another structure"
            )
            region = slot.structure.region(slot.values)
            assert covers_region(region, slot.content.region), (
                f"{here}: slot {slot.slot_id} misses events of {slot.content}"
            )
            assert covers_region(slot.content.region, region), (
                f"{here}: slot {slot.slot_id} is wider than {slot.content}"
            )
            assert 0 < slot.epoch <= broker.tables.acks.newest_sent(neighbour), (
                f"{here}: slot {slot.slot_id} has no epoch"
            )
            assert 0 < slot.slot_id <= broker.tables.peers[neighbour].last_slot, (
                f"{here}: slot id {slot.slot_id} not given"
            )


def check_bundles(outgoing: Outgoing, where: str) -> None:
    """Every root is in one bundle that covers it; bundles have no other roots. Bundles are within the budget;
    under perfect merging they are no wider than their roots."""
    merger = outgoing.merger
    assert merger is not None
    members: dict[int, list[Interest]] = {}
    for root in outgoing.poset.roots():
        members.setdefault(merger.bundle_of(root).uid, []).append(root)
    bundles = merger.bundles()
    assert sum(bundle.size for bundle in bundles) == sum(map(len, members.values())), (
        f"{where}: {bundles} are of other roots"
    )
    assert members.keys() == {bundle.uid for bundle in bundles}, f"{where}: roots are in {list(members)}"
    for bundle in bundles:
        roots = members[bundle.uid]
        for root in roots:
            assert covers_region(bundle.region, root.region), f"{where}: {bundle} misses events of {root}"
        if merger.budget is None:
            conjunctions = [c for root in roots for c in root.region.conjunctions or ()]
            event_type = reduce(EventType.union, [root.filter.event_type for root in roots])
            together = Region(event_type, tuple(conjunctions)) if conjunctions else roots[0].region
            assert covers_region(together, bundle.region), f"{where}: {bundle} is wider than {roots}"
    assert merger.budget is None or len(bundles) <= merger.budget, f"{where}: {len(bundles)} bundles"


def check_engines(state: TypeState, where: str) -> None:
    """The engines have exactly the interest of links and of sessions, under their interfaces' numbers."""
    for matching, is_link in ((state.links, True), (state.sessions, False)):
        expected = {i.uid for i in state.interests() if i.interface.startswith("broker/") == is_link}
        what = f"{where}: the engine of {'links' if is_link else 'sessions'}"
        assert matching.interests().keys() == expected, f"{what} is to have other interest"
        if isinstance(matching, OperatorMatching):
            calling = {i.uid for i in state.interests() if i.uid in expected and i.filter.calls}
            check_engine(matching.plain, expected - calling, what)
            if matching.gates is not None:
                check_engine(matching.gates, calling, f"{what}, for gates,")


def check_engine(matching: Matching, expected: set[int], what: str) -> None:
    assert matching.interests().keys() == expected, f"{what} is to have other interest"
    if expected or matching.installed():
        engine = matching.flush()
        assert matching.installed() == matching.interests(), f"{what} did not apply its changes"
        assert len(engine) == len(expected), f"{what} has {len(engine)}, not {len(expected)}"
        for uid in expected:
            assert uid in engine, f"{what} lacks uid {uid}"
