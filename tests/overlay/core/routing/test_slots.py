"""Slots and broker variables (Jayaram et al., section 4.3, Fig. 6 PROPAGATE), and the order of messages,
which the script `make_before_break.txt` shows change by change."""

import random
from typing import Any

import pytest
from core_link import Link
from core_posets import CALLS, POINT, SHAPES, Interests, fresh, matching_points, values
from draws import each_seed

from covey.matcher.covering.covering import covers_region
from covey.matcher.filters.filter import parse
from covey.overlay.core.covering.interest import Interest, Registry
from covey.overlay.core.covering.poset import Change
from covey.overlay.core.messages import Subscribe, Unsubscribe, Update

STRUCTURE = parse("x < $1", POINT)


def test_a_root_occupies_a_slot_with_broker_variables() -> None:
    """Fig. 6 lines 26-27: fresh variables; constants are lifted too ("replace all values by variables")."""
    link, interest = Link(), Interests()
    root = interest("x < $limit - 1 and y == 3", limit=6)
    assert link.change([root]) == [Subscribe(1, 1, parse("x < $1 and y == $2", POINT), {"1": 5, "2": 3})]


def test_an_equal_region_sends_nothing() -> None:
    link, interest = Link(), Interests()
    root = interest("x < 5 and x < $a", a=7)
    link.change([root])
    assert not root.move({"a": 8})
    assert root.move({"a": 3})
    assert link.change(moved=[root]) == [Update(2, 1, {"2": 3})]


def test_resend_subscribes_every_slot_again_under_its_id() -> None:
    link, interest = Link(), Interests()
    link.change([interest("x < 5"), interest("y < 5")])
    slots = link.slots
    again = slots.resend()
    assert again == [Subscribe(3, 1, STRUCTURE, {"1": 5}), Subscribe(4, 2, parse("y < $1", POINT), {"1": 5})]
    assert slots.resend(refused_only=True) == []
    slot = slots.get(2)
    slot.refused = True
    assert slots.resend(refused_only=True) == [Subscribe(5, 2, parse("y < $1", POINT), {"1": 5})]


def test_withdrawing_releases_every_slot() -> None:
    link, interest = Link(), Interests()
    link.change([interest("x < 5"), interest("y < 5")])
    assert link.slots.withdraw() == [Unsubscribe(3, 1), Unsubscribe(4, 2)]
    assert len(link.slots) == 0


def test_a_slot_that_widens_is_updated_before_one_that_narrows() -> None:
    """Else events of the new root would be missed: here 5, by the third filter."""
    link, interest = Link(), Interests()
    wide, *others = (interest(f"x between {a} and {b}") for a, b in ((0, 9), (0, 4), (5, 8), (6, 12)))
    link.change([wide, *others])
    wider = interest("x between 4 and 13")
    assert link.change([wider], left=[wide]) == [Update(3, 2, {"1": 4, "2": 13}), Update(4, 1, {"2": 4})]


MODES: dict[str, dict[str, Any]] = {
    "parametric": {},
    "static": {"parametric": False},
    "perfect": {"merging": "perfect"},
    "budget": {"merging": "budget"},
}
BOXES = ("x between $a and $b and y between $c and $d", "x >= $a and x < $b and y == $c", "x == $a and y < 9")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "shapes", [SHAPES, ("x between $a and $b",), BOXES, CALLS], ids=["all", "rows", "boxes", "calls"]
)
@each_seed("changes of slots")
def test_no_event_is_missed_between_two_messages_of_a_change(
    seed: int, shapes: tuple[str, ...], mode: str
) -> None:
    """After every single message the slots accept each event that a filter accepts before and after. Fails
    when Unsubscribe comes first, when Updates come in another order, or when a slot may pass to any root of
    its structure."""
    draw = random.Random(seed)
    registry, link, parametric = Registry(), Link(**MODES[mode]), mode != "static"
    live: list[Interest] = []
    for step in range(60):
        entered, moved, left = [], [], []
        wanted = {node.uid: wants(node) for node in live}
        kind = draw.choice(("enter", "move", "move", "move", "leave", "several", "exchange", "all"))
        if kind in ("enter", "exchange", "all") or len(live) < 6:
            entered = [fresh(registry, draw, step, shapes)]
        if kind in ("move", "all") and live and parametric:
            node = draw.choice(live)
            if node.filter.variables and node.move(values(node, draw)):
                moved = [node]
        if kind in ("leave", "several", "exchange", "all") and len(live) > 6:
            left = draw.sample(live, 1 if kind == "leave" else draw.randint(1, 3))
        messages = link.change(entered, moved, left)
        live = [node for node in live if node not in left]
        needed = [wanted[node.uid] & wants(node) for node in live]
        kept = frozenset().union(*needed)
        for message in messages:
            link.apply(message)
            assert kept <= link.matching_points(), f"{seed=}, {step=}: lost at {message} of {messages}"
        live += entered
        assert len(link.subscriptions) == len(link.slots)
        for slot in link.slots:
            filter, known = link.subscriptions[slot.slot_id]
            region = filter.region(known)
            assert covers_region(region, slot.content.region)
            assert covers_region(slot.content.region, region)
        if mode == "perfect":
            assert link.matching_points() == frozenset().union(*map(wants, live))
        elif mode == "budget":
            assert len(link.slots) <= 3
            check_hulls(link)
        for node in left:
            registry.release(node)


def check_hulls(link: Link) -> None:
    """Each bundle's hull covers its roots, and that of one root equals it."""
    assert link.merger is not None
    for root in link.poset.roots():
        bundle = link.merger.bundle_of(root)
        assert covers_region(bundle.region, root.region)
        assert bundle.size > 1 or covers_region(root.region, bundle.region)


def wants(node: Interest) -> frozenset[int]:
    return matching_points(node.filter, node.values)


def test_a_change_without_roots_sends_nothing() -> None:
    assert Link().slots.change(Change(), ()) == []
