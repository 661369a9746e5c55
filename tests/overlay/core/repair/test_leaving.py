"""The links of an overlay that a broker has left: a tree of all others, and no cycle on the way to it."""

import random

from hypothesis import given
from hypothesis import strategies as st

from covey.overlay.core.repair.leaving import links_without
from covey.overlay.core.repair.rule import UplinkRule


@given(st.randoms(use_true_random=False), st.integers(2, 9))
def test_the_others_stay_a_tree_whoever_leaves(draw: random.Random, size: int) -> None:
    brokers = tuple(f"b{i}" for i in range(size))
    links = [(brokers[draw.randrange(i)], brokers[i]) for i in range(1, size)]
    links = [draw.choice(((a, b), (b, a))) for a, b in links]
    draw.shuffle(links)
    for name in brokers:
        after = links_without(brokers, links, name)
        rest = tuple(each for each in brokers if each != name)
        assert len(after) == len(rest) - 1
        assert set(UplinkRule(rest, after).order) == set(rest)
        kept = [link for link in links if name not in link]
        new = [link for link in after if link not in kept]
        assert set(kept) <= set(after)
        assert len({hub for hub, _ in new}) <= 1
        _check_no_cycle(draw, name, links, after)


def _check_no_cycle(
    draw: random.Random, name: str, before: list[tuple[str, str]], after: tuple[tuple[str, str], ...]
) -> None:
    """Brokers read the file one after the other, in any order; a link needs both of its ends."""
    old, new = set(before), set(after)
    readers = sorted({end for link in before for end in link} - {name})
    draw.shuffle(readers)
    read: set[str] = set()
    for reader in readers:
        read.add(reader)
        links = {link for link in old if link in new or not set(link) & read}
        links |= {link for link in new - old if set(link) <= read}
        component = {end: {end} for link in before for end in link}
        for a, b in links:
            assert component[a] is not component[b]
            component[a] |= component[b]
            for end in component[a]:
                component[end] = component[a]


def test_the_hub_is_the_parent_or_the_first_child_of_the_root() -> None:
    brokers = ("b1", "b2", "b3", "b4")
    links = (("b1", "b2"), ("b2", "b3"), ("b4", "b2"))
    assert links_without(brokers, links, "b2") == (("b1", "b3"), ("b1", "b4"))
    assert links_without(brokers, (("b1", "b3"), ("b1", "b2"), ("b2", "b4")), "b1") == (
        ("b3", "b2"),
        ("b2", "b4"),
    )
    assert links_without(brokers, links, "b4") == (("b1", "b2"), ("b2", "b3"))
