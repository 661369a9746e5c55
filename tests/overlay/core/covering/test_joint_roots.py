"""The second level of a type's interest: the maximal roots of several groups."""

import random

import pytest
from core_posets import POINT, SHAPES, same, values

from covey.matcher.filters.filter import parse
from covey.overlay.core.covering.interest import Interest, Registry
from covey.overlay.core.covering.poset import Forest, JointRoots, RootChange, Roots
from covey.sim.baselines.naive_poset import NaivePoset
from covey.sim.invariants import check_poset

GROUPS = ("broker/m", "broker/n", "client/c")


@pytest.mark.parametrize("few", [2, 16])
@pytest.mark.parametrize("seed", range(25))
def test_the_joint_roots_are_the_maximal_roots_of_the_other_groups(seed: int, few: int) -> None:
    draw = random.Random(seed)
    registry = Registry()
    forests: dict[str, Forest] = {}
    joints = {but: Forest(JointRoots(forests, but)) for but in ("broker/m", "broker/z")}
    live: list[Interest] = []
    for step in range(120):
        name = draw.choice(GROUPS)
        mine = [node for node in live if node.interface == name]
        entered: list[Interest] = []
        moved: list[Interest] = []
        left: list[Interest] = []
        if not mine or draw.random() < 0.4:
            filter = parse(draw.choice(SHAPES), POINT)
            drawn = {variable: draw.randint(0, 9) for variable in filter.variables}
            entered = [registry.make(name, 0, step, filter, filter.check_values(drawn))]
        elif draw.random() < 0.7:
            node = draw.choice(mine)
            if node.filter.variables and node.move(values(node, draw)):
                moved = [node]
        else:
            left = draw.sample(mine, min(len(mine), draw.randint(1, 3)))
        live = [node for node in live if node not in left] + entered
        group = (entered or moved or left or mine)[0].group
        forest = forests.setdefault(group, Forest(Roots(few=few)))
        change = forest.change(entered, moved, left)
        if not len(forest):
            del forests[group]
        for but, joint in joints.items():
            if but != group:
                check_change(joint, change)
            check_poset(joint, f"seed {seed}, step {step}, all but {but}")
            roots = [root for group, forest in forests.items() if group != but for root in forest.roots()]
            assert {node.uid for node in joint.nodes()} == {root.uid for root in roots}
            naive = NaivePoset()
            naive.change(entered=roots)
            same(joint.roots(), naive.roots())
        for node in left:
            registry.release(node)


def check_change(joint: Forest, roots: RootChange) -> None:
    """The change lists the differences of the joint roots."""
    known = {root.uid for root in joint.roots()}
    change = joint.change(roots.entered, roots.moved, roots.left)
    assert not {root.uid for root in change.entered} & known
    assert {root.uid for root in change.moved} | {root.uid for root in change.left} <= known
    known |= {root.uid for root in change.entered}
    known -= {root.uid for root in change.left}
    assert known == {root.uid for root in joint.roots()}


def test_a_single_group_is_never_searched() -> None:
    """At the edge of an overlay the second level costs no comparison."""

    class Unsearched(Roots):
        def find_cover(self, *arguments: object) -> None:
            raise AssertionError("searched")

        covered_by = find_cover

    below = parse("x < $a", POINT)
    node = Registry().make("client/c", 0, 1, below, {"a": 3})
    joint = Forest(JointRoots({"clients": Forest(Unsearched())}, "broker/z"))
    assert joint.change(entered=[node]).entered == [node]
    node.move({"a": 4})
    assert joint.change(moved=[node]).moved == [node]
