"""The index of roots before and after the kernels are loaded."""

import random

import pytest

from covey.matcher.covering.region import Region
from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import parse
from covey.overlay.core.covering import poset
from covey.overlay.core.covering.interest import Registry
from covey.overlay.core.covering.poset import Forest

QUOTE = EventType("Quote", {"firm": "string", "price": "float64"})
BAND = parse("firm == $firm and price >= $low and price <= $high", QUOTE)


def test_few_roots_are_compared_before_and_after_the_kernels_are_loaded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Table and tree find the same roots, and neither compares a change with all of them."""
    usable, compared = False, 0

    def counted(wide: Region, narrow: Region) -> bool:
        nonlocal compared
        compared += 1
        return holds_region(wide, narrow)

    holds_region = poset.holds_region
    monkeypatch.setattr(poset, "kernels_usable", lambda: usable)
    monkeypatch.setattr(poset, "holds_region", counted)
    draw, registry, forest = random.Random(1), Registry(), Forest()
    nodes = []
    for i in range(600):
        low = draw.uniform(0, 1_000)
        values = BAND.check_values({"firm": f"F{draw.randrange(50)}", "low": low, "high": low + 1})
        nodes.append(registry.make("client/c", 0, i, BAND, values))
        forest.change(entered=[nodes[-1]])
        if i % 4 == 0:
            moved = draw.choice(nodes)
            low = draw.uniform(0, 1_000)
            moved.move({"low": low, "high": low + 1})
            forest.change(moved=[moved])
        if i == 450:
            usable = True
    assert compared < 4 * len(nodes)
    found = {node.uid for node in forest.roots()}
    maximal = {
        node.uid
        for node in nodes
        if not any(holds_region(other.region, node.region) for other in nodes if other is not node)
    }
    assert found == maximal
