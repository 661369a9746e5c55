"""Merging of roots: perfect, within a budget, and its excess."""

import random

import pytest
from core_driven import Driven, sent
from core_link import Link
from core_posets import Interests

from covey.matcher import EventBatch, EventType
from covey.matcher.covering.covering import covers_region
from covey.matcher.filters.filter import parse
from covey.overlay.core.introspection.inspection import inspect
from covey.overlay.core.messages import Acknowledge, Advertise, Publish, Subscribe, Unsubscribe, Update
from covey.overlay.core.routing.broker import Broker


def slots(link: Link) -> list[str]:
    return sorted(str(filter.substitute(known)) for filter, known in link.subscriptions.values())


def message_kinds(link: Link, *args: object, **changes: object) -> list[str]:
    """A change's messages by kind, after the neighbour has applied them."""
    messages = link.change(*args, **changes)
    for message in messages:
        link.apply(message)
    return [type(message).__name__ for message in messages]


def test_intervals_that_touch_share_a_slot() -> None:
    link, interest = Link(merging="perfect"), Interests()
    first, second, middle = (
        interest("x between 0 and 3"),
        interest("x between 6 and 9"),
        interest("x > 3 and x < 6"),
    )
    message_kinds(link, [first])
    assert message_kinds(link, [second]) == ["Subscribe"]
    assert message_kinds(link, [middle]) == ["Update", "Unsubscribe"]
    assert slots(link) == ["x between 0 and 9"]
    assert message_kinds(link, left=[middle]) == ["Subscribe", "Update"]
    assert slots(link) == ["x between 0 and 3", "x between 6 and 9"]


def test_only_one_interval_may_differ() -> None:
    link, interest = Link(merging="perfect"), Interests()
    box = interest("x between 0 and 3 and y between 0 and 3")
    beside, above = (
        interest("x between 2 and 7 and y between 0 and 3"),
        interest("x between 0 and 3 and y == 4"),
    )
    apart = interest("x between 0 and 3 and y between 1 and 9")
    message_kinds(link, [box])
    assert message_kinds(link, [beside]) == ["Update"]
    assert message_kinds(link, left=[beside]) == ["Update"]
    assert message_kinds(link, [above]) == ["Update"], "the other axis"
    assert slots(link) == ["x between 0 and 3 and y between 0 and 4"]
    assert message_kinds(link, [apart]) == ["Update"], "overlaps the first two"
    assert slots(link) == ["x between 0 and 3 and y between 0 and 9"]


def test_all_operators_share_a_structure_and_a_dropped_bound_is_infinite() -> None:
    """A bound dropped or added is an Update; it was a Subscribe and an Unsubscribe."""
    plain, merging, interest = Link(), Link(merging="perfect"), Interests()
    bounded, open_ended = interest("x between 2 and 5 and y < 3"), interest("x >= 2 and y < 3")
    point = interest("x == 4 and y < 3")
    for link in (plain, merging):
        message_kinds(link, [bounded])
    assert message_kinds(plain, [open_ended], left=[bounded]) == ["Subscribe", "Unsubscribe"]
    assert message_kinds(merging, [open_ended], left=[bounded]) == ["Update"]
    assert message_kinds(merging, [point], left=[open_ended]) == ["Update"]


def test_a_root_among_ten_thousand_enters_and_leaves_without_a_scan() -> None:
    link, interest = Link(merging="perfect"), Interests()
    roots = [interest("x == $a", a=i) for i in range(10_000)]
    for root in roots:
        link.change([root])
    assert len(link.slots) == 1
    messages = link.change(left=[roots[5_000]])
    assert [type(message) for message in messages] == [Subscribe, Update]
    again = link.change([roots[5_000]])
    assert [type(message) for message in again] == [Update, Unsubscribe]
    assert len(link.slots) == 1


def test_a_filter_without_exact_hull_keeps_a_slot_of_its_own() -> None:
    link, interest = Link(merging="perfect"), Interests()
    message_kinds(
        link, [interest("x != $a", a=3), interest("x < 3 and y == 1 or y == 2"), interest("not exists(x)")]
    )
    assert len(link.slots) == 3


@pytest.mark.parametrize("budget", [1, 4, 16])
def test_a_budget_is_kept_and_hulls_cover_their_roots(budget: int) -> None:
    """Nothing remains after all roots have left."""
    draw = random.Random(budget)
    link, interest = Link(merging="budget", budget=budget), Interests()
    roots = []
    for _ in range(300):
        x, y = draw.randrange(1000), draw.randrange(1000)
        root = interest("x between $a and $b and y between $c and $d", a=x, b=x + 9, c=y, d=y + 9)
        roots.append(root)
        link.change([root])
        assert len(link.slots) <= budget
    for root in roots[::2]:
        a = draw.randrange(1000)
        if root.move({"a": a, "b": a + 9}):
            link.change(moved=[root])
    merger = link.merger
    assert merger is not None
    for root in link.poset.roots():
        assert covers_region(merger.bundle_of(root).region, root.region)
    for root in roots:
        link.change(left=[root])
    assert (len(link.slots), len(merger.bundles())) == (0, 0)


def test_a_budget_does_not_merge_distant_groups() -> None:
    """Two clouds of intervals within a budget of two are not merged."""
    link, interest = Link(merging="budget", budget=2), Interests()
    for i in range(10):
        message_kinds(link, [interest("x == $a", a=2 * i)])
    for i in range(10):
        message_kinds(link, [interest("x == $a", a=10_000 + 2 * i)])
    assert slots(link) == ["x between 0 and 18", "x between 10000 and 10018"]


SPOT = EventType("Spot", {"x": "int64"})


def bundling() -> Driven:
    """A broker with a client, and a neighbour that publishes and gets at most one slot."""
    x = Driven("broker/b2", "client/c", engine="cluster", merging="budget", merging_budget=1)
    x("broker/b2", Advertise(1, SPOT))
    return x


def test_excess_events_of_a_merged_slot_are_dropped_and_counted() -> None:
    x = bundling()
    for epoch, value in enumerate((2, 8), 1):
        x("client/c", Subscribe(epoch, epoch, parse(f"x == {value}", SPOT), {}))
    (slot,) = x.broker.tables.types["Spot"].outgoing["broker/b2"].slots
    assert str(slot.structure.substitute(slot.values)) == "x between 2 and 8"
    batch = EventBatch.from_pylist(SPOT, [{"x": value} for value in (2, 3, 4, 8)])
    ((to, events),) = sent(x("broker/b2", Publish(batch)))
    assert to == "client/c"
    assert events.batch.to_pylist() == [{"x": 2}, {"x": 8}]
    assert x.broker.tables.peers["broker/b2"].counters.events_unwanted == 2
    assert inspect(x.broker)["totals"]["events_unwanted"] == 2


def test_an_update_within_a_bundle_sends_no_message_and_is_acknowledged_with_its_slot() -> None:
    x = bundling()
    for epoch, value in enumerate((0, 100, 50), 1):
        x("client/c", Subscribe(epoch, epoch, parse("x == $a", SPOT), {"a": value}))
    waiting = x("client/c", Update(4, 3, {"a": 51}))
    assert waiting == [], "the bundle's slot is not yet acknowledged"
    newest = x.broker.tables.acks.newest_sent("broker/b2")
    assert [answer for _, answer in sent(x("broker/b2", Acknowledge(newest)))] == [Acknowledge(4)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"merging": "some"}, "merging 'some': expected one of off, perfect, budget"),
        ({"merging": "budget", "merging_budget": 0}, "merging_budget 0: expected a number from 1 up"),
        ({"merging": "perfect", "routing": "static"}, "expected off with static routing"),
    ],
)
def test_conflicting_options_are_an_error(options: dict[str, object], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        Broker("b1", **options)


def test_an_empty_region_does_not_widen_a_bundle() -> None:
    link, interest = Link(merging="budget", budget=1), Interests()
    message_kinds(link, [interest("x > 5 and x < 6")])
    message_kinds(link, [interest("x == 3")])
    assert slots(link) == ["x between 3 and 3"]
