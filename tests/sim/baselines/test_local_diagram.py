"""The diagram with local updates (Jayaram et al., section 4.3), against the exact one and brute force."""

import random
from collections.abc import Iterable

import pytest
from core_posets import SHAPES, Interests, fresh, matching_points, same, values
from draws import some_seeds

from covey.matcher.covering.covering import holds_region
from covey.overlay.core.covering.interest import Interest, Registry
from covey.sim.baselines.diagram import Diagram, Place
from covey.sim.baselines.local_diagram import LocalDiagram

CHAIN = ("x < $a",)
BOXES = ("x between $a and $b and y between $c and $d", "x between $a and $b")


def accepted(nodes: Iterable[Interest]) -> frozenset[int]:
    return frozenset().union(*(matching_points(node.filter, node.values) for node in nodes))


def places_of(diagram: LocalDiagram) -> dict[int, Place]:
    """By filter, its place that leads to a root, of which each has one."""
    reached = dict.fromkeys(diagram.tops())
    pending = list(reached)
    while pending:
        below = [under for under in pending.pop().below if under not in reached]
        reached |= dict.fromkeys(below)
        pending += below
    places = {uid: place for place in reached for uid in place.members}
    assert len(places) == sum(len(place.members) for place in reached)
    return places


def check_order(diagram: LocalDiagram, live: list[Interest]) -> None:
    """Every filter has a place that leads to a root; adjacent places are strictly ordered, without a
    circle."""
    places, tops = places_of(diagram), set(diagram.tops())
    assert {uid: node for place in places.values() for uid, node in place.members.items()} == {
        node.uid: node for node in live
    }
    for node in live:
        place, witness = places[node.uid], diagram.witness_of(node)
        if node is not place.first:
            assert witness is place.first
        elif place in tops:
            assert witness is None
        else:
            assert witness is not None
            assert places[witness.uid] in place.above
    for place in set(places.values()):
        assert bool(place.above) != (place in tops)
        assert all(place in over.below for over in place.above)
        for under in place.below:
            assert place in under.above
            assert holds_region(place.region, under.region)
            assert not holds_region(under.region, place.region)
        for node in place.members.values():
            assert holds_region(place.region, node.region)
            assert holds_region(node.region, place.region)


@pytest.mark.parametrize("shapes", [CHAIN, BOXES, SHAPES], ids=["chain", "boxes", "all"])
@some_seeds("diagrams with local updates", 2)
def test_roots_accept_every_event_after_any_changes(seeds: range, shapes: tuple[str, ...]) -> None:
    """Every maximal filter is a root, and the only one where filters are a chain, or none has moved."""
    for seed in seeds:
        draw = random.Random(seed)
        registry, local, exact = Registry(), LocalDiagram(), Diagram()
        live: list[Interest] = []
        known: dict[int, Interest] = {}
        size, share = draw.choice((4, 10, 20)), draw.choice((0.0, 0.6, 0.9))
        moves = 0
        for step in range(80):
            entered: list[Interest] = []
            moved: list[Interest] = []
            left: list[Interest] = []
            if not live or (len(live) < size and draw.random() < 0.4):
                entered = [fresh(registry, draw, step, shapes)]
            if draw.random() < share:
                some = draw.sample(live, min(len(live), draw.choice((1, 1, 3))))
                moved = [node for node in some if node.filter.variables and node.move(values(node, draw))]
            elif len(live) > 1 and draw.random() < 0.4:
                left = [draw.choice(live)]
            change = local.change(entered, moved, left)
            exact.change(entered, moved, left)
            live = [node for node in live if node not in left] + entered
            moves += len(moved)
            check_order(local, live)
            roots, narrowest = list(local.roots()), list(exact.roots())
            assert accepted(roots) == accepted(live), f"seed {seed}, step {step}"
            assert {root.uid for root in roots} <= {node.uid for node in live}
            for root in narrowest:
                assert any(
                    holds_region(root.region, other.region) and holds_region(other.region, root.region)
                    for other in roots
                )
            if shapes is CHAIN or not moves:
                same(roots, narrowest)
            for root in change.left:
                del known[root.uid]
            assert not known.keys() & {root.uid for root in change.entered}
            known |= {root.uid: root for root in change.entered}
            assert known == {root.uid: root for root in roots}
            assert all(root in moved and root.uid in known for root in change.moved)
            for node in left:
                with pytest.raises(KeyError):  # it has no place any more
                    local.witness_of(node)
                registry.release(node)


def test_filters_that_become_equal_leave_none_without_a_root() -> None:
    """They formed a circle without a root, so their subscribers got no events."""
    interest, poset = Interests(), LocalDiagram()
    bounds = ((2, 3), (0, 3), (2, 3), (0, 1))
    nodes = [interest("x between $a and $b", a=a, b=b) for a, b in bounds]
    poset.change(entered=nodes)
    for number, a, b in ((0, 0, 3), (1, 2, 3), (0, 3, 4)):
        nodes[number].move({"a": a, "b": b})
        poset.change(moved=[nodes[number]])
        check_order(poset, nodes)
        assert accepted(poset.roots()) == accepted(nodes)


def test_a_chain_has_as_many_relations_as_filters() -> None:
    """An update passes the places between its old and its new one, so none may have further neighbours."""
    draw, interest, poset = random.Random(3), Interests(), LocalDiagram()
    nodes = [interest("x < $a", a=draw.randrange(1000)) for _ in range(40)]
    poset.change(entered=nodes)
    for _ in range(400):
        node = draw.choice(nodes)
        if node.move({"a": draw.randrange(1000)}):
            poset.change(moved=[node])
    places = set(places_of(poset).values())
    assert sum(len(place.below) for place in places) == len(places) - 1
    assert [root.values["a"] for root in poset.roots()] == [max(node.values["a"] for node in nodes)]
