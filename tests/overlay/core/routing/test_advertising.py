"""Advertisements with content, and reports of listeners."""

import pytest
from core_driven import Driven, sent

from covey.matcher import EventBatch, EventType, Filter, parse
from covey.matcher.errors import FilterError
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import (
    Advertise,
    Connect,
    Deliver,
    Disconnect,
    ListenersReport,
    Message,
    Publish,
    Refuse,
    Subscribe,
    Tick,
    Unadvertise,
    Unsubscribe,
    Update,
)
from covey.overlay.core.moving.motion import Motion
from covey.overlay.core.routing.promises import MAX_PARTS, covers, union

TICK = EventType("Tick", {"x": "int64"})
BELOW = parse("x < $limit", TICK)
ABOVE = parse("x > $limit", TICK)


def content(text: str) -> Filter:
    return parse(text, TICK)


@pytest.fixture
def x() -> Driven:
    return Driven("broker/m", "broker/n", "client/p", "client/s")


def test_interest_is_forwarded_only_to_publishers_whose_promise_it_intersects(x: Driven) -> None:
    def slot_messages(source: str, message: Message) -> list[tuple[str, type[Message], dict[str, object]]]:
        """The broker's control messages about subscriptions."""
        return [
            (to, type(m), dict(getattr(m, "values", {})))
            for to, m in sent(x(source, message), Subscribe, Update, Unsubscribe)
        ]

    x("broker/m", Advertise(1, TICK, content("x < 10")))
    x("broker/n", Advertise(1, TICK, content("x >= 10")))
    assert slot_messages("client/s", Subscribe(1, 1, BELOW, {"limit": 5})) == [
        ("broker/m", Subscribe, {"1": 5})
    ]
    assert slot_messages("client/s", Update(2, 1, {"limit": 20})) == [
        ("broker/m", Update, {"1": 20}),
        ("broker/n", Subscribe, {"1": 20}),
    ]
    assert slot_messages("client/s", Update(3, 1, {"limit": 4})) == [
        ("broker/m", Update, {"1": 4}),
        ("broker/n", Unsubscribe, {}),
    ]
    assert slot_messages("client/s", Subscribe(4, 2, ABOVE, {"limit": 50})) == [
        ("broker/n", Subscribe, {"1": 50})
    ]
    assert slot_messages("broker/m", Advertise(2, TICK, content("x < 100"))) == [
        ("broker/m", Subscribe, {"1": 50})
    ]
    assert slot_messages("broker/m", Advertise(3, TICK, content("x < 10"))) == [("broker/m", Unsubscribe, {})]


def test_the_promise_sent_to_a_neighbour_is_the_union_of_the_others_and_only_widens(x: Driven) -> None:
    def advertised_to(source: str, message: Message) -> list[tuple[str, str]]:
        return [(to, str(m.filter)) for to, m in sent(x(source, message), Advertise)]

    assert advertised_to("client/p", Advertise(1, TICK, content("x < 10"))) == [
        ("broker/m", "x < 10"),
        ("broker/n", "x < 10"),
    ]
    assert advertised_to("client/s", Advertise(1, TICK, content("x < 5"))) == []
    assert advertised_to("broker/m", Advertise(1, TICK, content("x > 20"))) == [
        ("broker/n", "x < 10 or x > 20")
    ]
    assert advertised_to("client/p", Unadvertise(2, "Tick")) == []
    assert advertised_to("client/s", Advertise(2, TICK)) == [("broker/m", "None"), ("broker/n", "None")]


def test_events_outside_the_promise_are_refused_at_entry_and_the_others_forwarded(x: Driven) -> None:
    x("client/p", Advertise(1, TICK, content("x < 10")))
    x("client/s", Subscribe(1, 1, BELOW, {"limit": 100}))
    batch = EventBatch.from_pylist(TICK, [{"x": v} for v in (50, 60, 1, 70, 2)])
    done = x("client/p", Publish(batch.stamped(publisher="p", first_sequence=10)))
    refusals = [m for _, m in sent(done, Refuse)]
    assert [(r.status, r.first_sequence, r.count) for r in refusals] == [
        ("FAILED_PRECONDITION", 10, 2),
        ("FAILED_PRECONDITION", 13, 1),
    ]
    assert refusals[0].reason == (
        "2 events of Tick from number 10 on not accepted: outside of what client/p advertised, x < 10"
    )
    assert [m.batch.sequences().tolist() for _, m in sent(done, Deliver)] == [[12, 14]]


def test_a_neighbours_promise_is_removed_with_it(x: Driven) -> None:
    x("client/p", Advertise(1, TICK, content("x < 10")))
    x("broker/n", Disconnect())
    x("client/p", Unadvertise(2, "Tick"))
    x("broker/n", Connect())
    advertised = sent(x("client/p", Advertise(3, TICK, content("x > 50"))), Advertise)
    assert [str(m.filter) for to, m in advertised if to == "broker/n"] == ["x > 50"]


def test_an_advertisement_with_variables_is_refused(x: Driven) -> None:
    (_, refusal), *_ = sent(x("client/p", Advertise(1, TICK, BELOW)))
    assert "expected no variables" in refusal.reason


def test_an_advertisement_with_calls_is_refused(x: Driven) -> None:
    calling = parse("within(x, x, 1, 2, 3)", TICK)
    (_, refusal), *_ = sent(x("client/p", Advertise(1, TICK, calling)))
    assert "expected no calls of operators" in refusal.reason
    with pytest.raises(FilterError, match="expected no calls of operators"):
        ClientSession("me.1").advertise(TICK, calling)


def test_a_publisher_gets_listener_reports_on_request_and_on_changes(x: Driven) -> None:
    def reports(source: str, message: Message) -> list[bool]:
        return [m.present for to, m in sent(x(source, message), ListenersReport) if to == "client/p"]

    assert reports("client/p", Advertise(1, TICK, content("x < 10"), True)) == [False]
    assert reports("client/s", Subscribe(1, 1, ABOVE, {"limit": 50})) == []
    assert reports("broker/n", Subscribe(1, 1, BELOW, {"limit": 5})) == [True]
    assert reports("client/s", Update(2, 1, {"limit": 5})) == []
    assert reports("broker/n", Unsubscribe(2, 1)) == []
    assert reports("client/s", Update(3, 1, {"limit": 9})) == [False]
    assert reports("client/p", Advertise(2, TICK, None, True)) == [True]
    assert reports("client/p", Unadvertise(3, "Tick")) == []
    assert reports("client/s", Unsubscribe(4, 1)) == []


def test_a_moving_subscription_that_enters_a_promise_is_reported() -> None:
    """By time alone, without a message."""
    x = Driven("client/p", "client/s")
    start = 10**18

    def reports(source: str, message: Message, now_ns: int) -> list[bool]:
        return [m.present for _, m in sent(x(source, message, now_ns=now_ns), ListenersReport)]

    assert reports("client/p", Advertise(1, TICK, content("x >= 100"), True), start) == [False]
    moving = Subscribe(1, 1, BELOW, {"limit": Motion(-1000.0, 10.0)})
    assert reports("client/s", moving, start) == []
    reports_at = [second for second in range(1, 111) if reports("", Tick(), start + second * 10**9)]
    assert len(reports_at) == 1


def test_the_union_of_promises_is_a_filter_or_everything() -> None:
    assert union([content("x < 5"), None]) is None
    assert str(union([content("x < 5"), content("x < 9"), content("x < 3")])) == "x < 9"
    many = union([content(f"x == {i}") for i in range(MAX_PARTS)])
    assert many is not None
    assert union([many, content("x == 99")]) is None
    assert covers(None, many)
    assert not covers(many, None)
