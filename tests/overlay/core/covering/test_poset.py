"""The covering forest against the naive poset and against brute force (Jayaram et al., section 4.2, INSERT,
DELETE, and 4.3, UPDATE)."""

import random
from collections.abc import Callable, Iterable

import pytest
from core_posets import CALLS, SHAPES, Interests, fresh, same, values

from covey.matcher.covering.covering import holds_region
from covey.overlay.core.covering.interest import Interest, Registry
from covey.overlay.core.covering.poset import Forest, Handover, Poset, Roots
from covey.sim.baselines.diagram import Diagram, Place
from covey.sim.baselines.local_diagram import LocalDiagram
from covey.sim.baselines.naive_poset import NaivePoset
from covey.sim.invariants import check_poset


@pytest.fixture(params=[Forest, NaivePoset, Diagram, LocalDiagram])
def poset(request: pytest.FixtureRequest) -> Poset:
    created: Poset = request.param()
    return created


def texts(nodes: Iterable[Interest]) -> list[str]:
    return [node.concrete() for node in nodes]


def test_delete_of_a_root_uncovers_what_it_covered(poset: Poset) -> None:
    interest = Interests()
    wide, low, high, deep = (
        interest("x < 10"),
        interest("x < 5"),
        interest("x between 3 and 9"),
        interest("x < 2"),
    )
    poset.change(entered=[wide, low, high, deep])
    change = poset.change(left=[wide])
    assert (texts(change.entered), texts(change.left)) == (["x < 5", "x between 3 and 9"], ["x < 10"])
    assert [(h.left, h.entered, h.wider) for h in change.handovers] == [
        (wide, low, False),
        (wide, high, False),
    ]
    assert poset.root_of(deep) is low


def test_update_can_widen_a_node_above_its_witness(poset: Poset) -> None:
    interest = Interests()
    wide, node = interest("x < 10"), interest("x < $a", a=5)
    poset.change(entered=[wide, node])
    node.move({"a": 12})
    change = poset.change(moved=[node])
    assert (change.entered, change.left, change.moved) == ([node], [wide], [])
    assert change.handovers == [Handover(wide, node, wider=True)]


def test_narrowing_a_root_uncovers_its_children_and_keeps_the_root(poset: Poset) -> None:
    interest = Interests()
    root, child = interest("x between $a and $b", a=0, b=10), interest("x between 8 and 9")
    poset.change(entered=[root, child])
    root.move({"b": 5})
    change = poset.change(moved=[root])
    assert (change.entered, change.left, change.moved) == ([child], [], [root])
    assert change.handovers == []


def test_a_root_that_narrows_below_another_leaves(poset: Poset) -> None:
    interest = Interests()
    root, other, child = interest("x < $a", a=10), interest("x < 7 and y > 3"), interest("x < 8")
    poset.change(entered=[root, other, child])
    root.move({"a": 6})
    change = poset.change(moved=[root])
    assert (change.entered, change.left, change.moved) == ([child], [root], [])
    assert change.handovers == [Handover(root, child, wider=False)] or not isinstance(poset, Forest)
    assert poset.root_of(other) is child


def test_of_equal_filters_the_first_is_above(poset: Poset) -> None:
    interest = Interests()
    first, second = interest("x < 10"), interest("x <= 9")
    poset.change(entered=[first])
    assert not poset.change(entered=[second])
    change = poset.change(left=[first])
    assert (change.entered, change.left) == ([second], [first])


def test_the_empty_region_is_below_every_filter(poset: Poset) -> None:
    interest = Interests()
    empty, other = interest("x > 5 and x < 6"), interest("y == 1")
    change = poset.change(entered=[empty, other])
    assert texts(change.entered) == ["y == 1"]


def test_several_changes_together_are_one_change_of_the_roots(poset: Poset) -> None:
    """The middle and the top of a chain go: the lowest replaces the highest."""
    interest = Interests()
    chain = [interest(f"x < {bound}") for bound in (10, 8, 6)]
    last = interest("x < 4")
    poset.change(entered=[*chain, last])
    change = poset.change(left=chain)
    assert (change.entered, change.left, change.handovers) == (
        [last],
        [chain[0]],
        [Handover(chain[0], last, wider=False)],
    )


ROWS = ("x between $a and $b",)


@pytest.mark.parametrize(
    "create",
    [lambda: Forest(Roots(few=10**6)), lambda: Forest(Roots(few=2)), Diagram, LocalDiagram],
    ids=["scanned", "indexed", "diagram", "local"],
)
@pytest.mark.parametrize(
    ("seed", "shapes"),
    [
        *[(seed, SHAPES) for seed in range(30)],
        *[(seed, CALLS) for seed in range(10)],
        *[(seed, ROWS) for seed in range(40)],
    ],
)
def test_random_changes_keep_the_invariants(
    seed: int, shapes: tuple[str, ...], create: Callable[[], Poset]
) -> None:
    """After every change the roots are the maximal elements, and the change lists their differences."""
    draw = random.Random(seed)
    registry = Registry()
    forest, naive = create(), NaivePoset()
    live: list[Interest] = []
    known: dict[int, Interest] = {}
    for step in range(100):
        entered, moved, left = [], [], []
        kind = draw.choice(("enter", "enter", "move", "move", "move", "leave", "several"))
        if kind == "enter" or not live:
            entered = [fresh(registry, draw, step, shapes)]
        elif kind == "leave":
            left = [draw.choice(live)]
        elif kind == "several":
            left = draw.sample(live, min(len(live), draw.randint(1, 4)))
            entered = [fresh(registry, draw, step + 1000, shapes) for _ in range(draw.randint(0, 2))]
        if kind in ("move", "several"):
            stay = [node for node in live if node not in left]
            for node in draw.sample(stay, min(len(stay), draw.choice((1, 1, 3)))):
                was = node.region
                if node.filter.variables and node.move(values(node, draw)):
                    moved.append(node)
                    assert node.gains == (not holds_region(was, node.region))
                    assert node.loses == (not holds_region(node.region, was))
        change = forest.change(entered, moved, left)
        naive.change(entered, moved, left)
        live = [node for node in live if node not in left] + entered
        check_poset(forest, f"seed {seed}, step {step}")
        if isinstance(forest, Diagram) and forest.exact:
            check_diagram(forest, live)
        for root in change.left:
            del known[root.uid]
        for root in change.entered:
            known[root.uid] = root
        assert known == {root.uid: root for root in forest.roots()}
        assert len(forest) == len(naive) == len(live)
        if forest.exact:
            same(forest.roots(), naive.roots())
        for handover in change.handovers:
            assert handover.left in change.left
            assert handover.entered in change.entered
            wide, narrow = (
                (handover.entered, handover.left) if handover.wider else (handover.left, handover.entered)
            )
            assert handover.left in moved or holds_region(wide.region, narrow.region)
        for node in left:
            registry.release(node)


def check_diagram(diagram: Diagram, live: list[Interest]) -> None:
    """Every filter has a place, and its neighbours are those by brute force."""
    places = {id(place): place for place in walk(diagram)}
    members = [node for place in places.values() for node in place.members.values()]
    assert sorted(node.uid for node in members) == sorted(node.uid for node in live)
    for place in places.values():
        assert all(
            holds_region(place.region, n.region) and holds_region(n.region, place.region)
            for n in place.members.values()
        )
        below = [p for p in places.values() if p is not place and holds_region(place.region, p.region)]
        nearest = [
            p for p in below if not any(q is not p and holds_region(q.region, p.region) for q in below)
        ]
        assert {id(p) for p in place.below} == {id(p) for p in nearest}
        assert all(place in p.above for p in place.below)
        assert all(place in p.below for p in place.above)


def walk(diagram: Diagram) -> list[Place]:
    """All places, with repetitions."""
    found = list(diagram.tops())
    for place in found:
        if len(found) < 10_000:
            found += place.below
    return found
