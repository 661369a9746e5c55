"""The rule of upward links: without a cycle whatever brokers believe, one tree where all reach each other."""

from collections.abc import Callable

import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st

from covey.overlay.core.repair.rule import UplinkRule

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
    """How many trees upward links make of these brokers."""
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
    """So while some brokers have read the longer file and others have not, no two orders meet."""
    under = data.draw(st.sampled_from(rule.order))
    brokers = [rule.order[0], *(b for b in rule.order[1:])]
    links = [(rule.parents[b], b) for b in rule.order if b in rule.parents]
    longer = UplinkRule([*brokers, "new"], [*links, (under, "new")])
    assert [b for b in longer.order if b != "new"] == rule.order
