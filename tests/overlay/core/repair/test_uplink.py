"""Upward links: valid ones, no cycle under any beliefs, and replacement."""

import random
from collections.abc import Callable

import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st

from covey.overlay.core.repair.uplink import Uplink, UplinkRule, links_without

#       b1
#     b2    b3
#   b4  b5    b6
#   b7
NAMES = [f"b{i}" for i in range(1, 8)]
LINKS = [("b1", "b2"), ("b3", "b1"), ("b2", "b4"), ("b5", "b2"), ("b3", "b6"), ("b4", "b7")]


def test_candidates_are_the_parent_the_ancestors_and_then_all_of_lower_rank() -> None:
    rule = UplinkRule(NAMES, LINKS)
    assert rule.order == NAMES
    assert rule.candidates("b1") == ()
    assert rule.candidates("b3") == ("b1", "b2")
    assert rule.candidates("b6") == ("b3", "b1", "b2", "b4", "b5")
    assert rule.candidates("b7") == ("b4", "b2", "b1", "b3", "b5", "b6")
    assert rule.neighbours("b2") == {"b1": True, "b4": False, "b5": False}
    assert rule.neighbours("b1") == {"b2": False, "b3": False}, "the lower end dials, whatever the file says"


def test_fallbacks_replace_what_comes_after_the_parent() -> None:
    rule = UplinkRule(NAMES, LINKS, {"b7": ["b6", "b1"], "b6": []})
    assert rule.candidates("b7") == ("b4", "b6", "b1")
    assert rule.candidates("b6") == ("b3",)
    assert rule.may_link("b7", "b6")
    assert not rule.may_link("b7", "b2")
    assert not rule.may_link("b0", "b1")


@pytest.mark.parametrize("name", ["b4", "b5", "b9"])
def test_a_fallback_of_no_lower_rank_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"names '{name}': expected brokers .* before b4: b1, b2, b3"):
        UplinkRule(NAMES, LINKS, {"b4": [name]})


@st.composite
def rules(draw: Callable[..., int]) -> UplinkRule:
    count = draw(st.integers(1, 12))
    names = [f"b{i}" for i in range(count)]
    pairs = [(names[i], names[draw(st.integers(0, i - 1))]) for i in range(1, count)]
    links = [(b, a) if draw(st.booleans()) else (a, b) for a, b in pairs]
    first = draw(st.integers(0, count - 1))
    return UplinkRule([names[first], *names[:first], *names[first + 1 :]], links)


def cycle(links: dict[str, str]) -> bool:
    for start in links:
        here, steps = start, 0
        while here in links:
            here, steps = links[here], steps + 1
            if steps > len(links):
                return True
    return False


def components(members: list[str], links: dict[str, str]) -> int:
    """The number of trees that upward links make of these brokers."""
    return sum(member not in links for member in members)


@examples(400)
@given(rules(), st.data())
def test_no_beliefs_about_the_dead_make_a_cycle(rule: UplinkRule, data: st.DataObject) -> None:
    """Each broker takes any of its candidates, or none."""
    links: dict[str, str] = {}
    for broker in rule.order:
        chosen = data.draw(st.sampled_from([None, *rule.candidates(broker)]))
        if chosen is not None:
            links[broker] = chosen
    assert not cycle(links)


@examples(400)
@given(rules(), st.data())
def test_brokers_that_reach_each_other_are_one_tree(rule: UplinkRule, data: st.DataObject) -> None:
    """Some are dead, and the others are in partitions."""
    part = {broker: data.draw(st.integers(-1, 2)) for broker in rule.order}
    links = {}
    for broker in rule.order:
        uplink = rule.uplink(
            broker, lambda other, broker=broker: part[broker] >= 0 and part[other] == part[broker]
        )
        if uplink is not None:
            links[broker] = uplink
    assert not cycle(links)
    for number in range(3):
        members = [broker for broker in rule.order if part[broker] == number]
        assert all(part[links[member]] == number for member in members if member in links)
        assert components(members, links) == bool(members)


@examples(100)
@given(rules())
def test_with_all_alive_the_links_are_those_of_the_file(rule: UplinkRule) -> None:
    links = {b: rule.uplink(b, lambda _: True) for b in rule.order if rule.candidates(b)}
    assert links == rule.parents


@examples(200)
@given(rules(), st.data())
def test_a_new_leaf_leaves_the_order_of_the_others_as_it_is(rule: UplinkRule, data: st.DataObject) -> None:
    """So brokers with the longer file and brokers with the old one never disagree."""
    under = data.draw(st.sampled_from(rule.order))
    brokers = [rule.order[0], *(b for b in rule.order[1:])]
    links = [(rule.parents[b], b) for b in rule.order if b in rule.parents]
    longer = UplinkRule([*brokers, "new"], [*links, (under, "new")])
    assert [b for b in longer.order if b != "new"] == rule.order


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


S = 1_000_000_000


def test_it_begins_with_the_best_and_probes_the_others_without_a_connection() -> None:
    uplink = Uplink(("b2", "b1", "b3"), S)
    assert uplink.chosen == "b2"
    assert uplink.to_probe(connected=False) == ["b1", "b3"]
    assert uplink.to_probe(connected=True) == []


def test_the_next_that_answers_is_taken() -> None:
    uplink = Uplink(("b2", "b1", "b3"), S)
    uplink.probed("b1", False, 0)
    uplink.probed("b3", True, 0)
    uplink.give_up()
    assert uplink.choose() == "b3"
    assert uplink.to_probe(connected=True) == ["b2", "b1"]
    assert uplink.to_probe(connected=False) == ["b2", "b1"]


def test_nobody_is_chosen_while_nobody_answers() -> None:
    uplink = Uplink(("b2", "b1"), S)
    uplink.give_up()
    assert uplink.choose() is None
    assert uplink.to_probe(connected=False) == ["b2", "b1"]
    uplink.probed("b2", True, 5)
    assert uplink.choose() == "b2"


def test_a_better_one_is_preferred_when_it_has_answered_for_a_while_without_a_pause() -> None:
    uplink = Uplink(("b2", "b1"), S)
    uplink.probed("b1", True, 0)
    uplink.give_up()
    assert uplink.choose() == "b1"
    uplink.linked()
    uplink.probed("b2", True, 10 * S)
    assert uplink.better(10 * S) is None
    uplink.probed("b2", False, 10 * S + 1)
    uplink.probed("b2", True, 11 * S)
    uplink.probed("b2", True, 12 * S - 1)
    assert uplink.better(12 * S - 1) is None
    assert uplink.better(12 * S) == "b2"


def test_one_that_answers_and_does_not_take_the_link_comes_last_and_waits_longer() -> None:
    uplink = Uplink(("b2", "b1", "b3"), S)
    for name in ("b2", "b1", "b3"):
        uplink.probed(name, True, 0)
    uplink.give_up()  # it had not answered when it was chosen, so this counts for nothing
    for name in ("b2", "b1", "b3"):
        uplink.probed(name, True, 0)
    assert uplink.choose() == "b2"
    uplink.give_up()
    uplink.probed("b2", True, 0)
    assert uplink.choose() == "b1"
    uplink.linked()
    assert uplink.better(2 * S - 1) is None
    assert uplink.better(2 * S) == "b2"
    uplink.choose("b2")
    uplink.linked()
    uplink.give_up()
    for name in ("b2", "b1"):
        uplink.probed(name, True, 5 * S)
    assert uplink.choose() == "b2", "a link that breaks is no failure to take it"


def test_new_candidates_keep_the_chosen_one_if_it_is_among_them() -> None:
    uplink = Uplink(("b2", "b1"), S)
    uplink.set_candidates(("b4", "b2", "b1"))
    assert uplink.chosen == "b2"
    assert uplink.to_probe(connected=True) == ["b4"]
    uplink.set_candidates(("b4", "b1"))
    assert uplink.chosen is None
    uplink.set_candidates(())
    assert uplink.choose() is None
