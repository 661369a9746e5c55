"""The broker, message by message: whole lists of actions, the mends, and refusals. The scripts
(`test_scripts.py`) have the papers' listings, in whole overlays."""

import pytest
from core_driven import Driven, sent

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import Filter, parse
from covey.overlay.core.introspection.inspection import inspect, render
from covey.overlay.core.messages import (
    Acknowledge,
    Advertise,
    Connect,
    Deliver,
    Disconnect,
    Drop,
    Publish,
    Refuse,
    Send,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Unadvertise,
    Unsubscribe,
    Update,
)
from covey.overlay.core.routing.broker import Broker
from covey.sim.invariants import check

QUOTE = EventType("Quote", {"firm": "string", "price": "float64"})
OTHER = EventType("Quote", {"firm": "string", "price": "int64"})
A, B, C, D = "broker/a", "broker/b", "client/c", "client/d"
BELOW = parse("price < $limit", QUOTE)
STRUCTURE = parse("price < $1", QUOTE)


def below(limit: float) -> Filter:
    return parse(f"price < {limit}", QUOTE)


@pytest.fixture
def x() -> Driven:
    return Driven(A, B, C, D)


def batch(*prices: float, publisher: str = "p") -> EventBatch:
    rows = [{"firm": "IBM", "price": price} for price in prices]
    return EventBatch.from_pylist(QUOTE, rows, publisher=publisher, first_sequence=1)


# --- messages that arrive together --------------------------------------------------------------------------


def test_messages_that_arrived_together_get_one_acknowledgement_last(x: Driven) -> None:
    x(A, Advertise(1, QUOTE))
    x(C, Subscribe(1, 1, BELOW, {"limit": 1.0}), Subscribe(2, 2, BELOW, {"limit": 5.0}))
    x(A, Acknowledge(3))
    actions = x.broker.handle_all(
        [Update(3, 1, {"limit": 2.0}), Update(4, 2, {"limit": 6.0}), Update(5, 9, {}), Update(6, 1, {})], C, 0
    )
    refusal = "update of subscription 9: client/c has none of that id; it has ended or was never made"
    assert actions == [
        Send(A, Update(4, 1, {"1": 6.0})),
        Send(C, Refuse(5, "NOT_FOUND", refusal, 9)),
        Send(C, Acknowledge(3)),
    ]
    check(x.broker)
    assert x(A, Acknowledge(4)) == [Send(C, Acknowledge(6))]
    later = [Update(epoch, 1, {"limit": 1.0}) for epoch in (7, 8, 9)]
    assert x.broker.handle_all(later, C, 0) == [Send(C, Acknowledge(9))]
    assert x.broker.handle_all([], C, 0) == []


# --- deliveries that are deferred ---------------------------------------------------------------------------


def _deferring(x: Driven) -> None:
    """A neighbour's and a client's interest in another neighbour's events."""
    x(A, Advertise(1, QUOTE))
    x(B, Subscribe(1, 1, STRUCTURE, {"1": 9.0}))
    x(C, Subscribe(1, 1, BELOW, {"limit": 5.0}))


def test_deferred_deliveries_follow_the_events_to_links_and_are_the_same() -> None:
    messages = [Publish(batch(1.0, 7.0)), Publish(batch(2.0, publisher="q"))]
    once, twice = Driven(A, B, C), Driven(A, B, C)
    _deferring(once)
    _deferring(twice)
    together = once.broker.handle_all(messages, A, 0)
    to_links = twice.broker.handle_all(messages, A, 0, defer=True)
    assert [(a.interface, type(a.message)) for a in to_links if isinstance(a, Send)] == [(B, Publish)] * 2
    to_sessions = twice.broker.deliver()
    assert [(a.interface, type(a.message)) for a in to_sessions if isinstance(a, Send)] == [(C, Deliver)] * 2
    assert to_links == [a for a in together if isinstance(a, Send) and a.interface == B]
    assert str(to_sessions) == str([a for a in together if isinstance(a, Send) and a.interface == C])
    assert twice.broker.deliver() == []
    assert inspect(once.broker)["interfaces"] == inspect(twice.broker)["interfaces"]


def test_deferred_deliveries_are_matched_before_a_change_behind_them() -> None:
    x = Driven(A, B, C)
    _deferring(x)
    actions = x.broker.handle_all([Publish(batch(1.0)), Unadvertise(2, "Quote")], A, 0, defer=True)
    assert [type(a.message) for a in actions if isinstance(a, Send)][:2] == [Publish, Deliver]
    assert x.broker.deliver() == []


def test_deliveries_that_were_not_fetched_come_with_the_next_call() -> None:
    x = Driven(A, B, C)
    _deferring(x)
    x.broker.handle_all([Publish(batch(1.0, 1.5))], A, 0, defer=True)
    actions = x.broker.handle_all([Unsubscribe(2, 1)], C, 0, defer=True)
    assert next(type(a.message) for a in actions if isinstance(a, Send)) is Deliver
    assert x.broker.deliver() == []


# --- interfaces ---------------------------------------------------------------------------------------------


def test_a_new_neighbour_gets_the_whole_state_and_a_client_nothing() -> None:
    driven = Driven()
    assert driven(C, Connect()) == []
    driven(C, Advertise(1, QUOTE))
    assert driven(A, Connect()) == [Send(A, SyncBegin()), Send(A, Advertise(1, QUOTE)), Send(A, SyncEnd(2))]


def test_an_interface_that_is_neither_broker_nor_client_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"interface 'printer/1': expected broker/NAME or client/NAME"):
        Driven()("printer/1", Connect())


def test_messages_from_an_unknown_interface_change_no_state(x: Driven) -> None:
    assert x("client/unknown", Subscribe(1, 1, BELOW, {"limit": 1})) == []
    assert x("client/unknown", Publish(batch(1, 2))) == [Drop("not connected", 2, "Quote")]
    assert x("client/unknown", Disconnect()) == []


# --- AD: Fig. 3 lines 5-7 -----------------------------------------------------------------------------------


def test_a_second_publisher_is_advertised_only_where_none_was(x: Driven) -> None:
    """It waits for the advertisement of the first."""
    x(A, Advertise(1, QUOTE))
    assert x(C, Advertise(1, QUOTE)) == [Send(A, Advertise(2, QUOTE))]
    assert x(D, Advertise(1, QUOTE)) == []
    assert x(A, Acknowledge(2)) == []
    assert x(B, Acknowledge(2)) == [Send(A, Acknowledge(1)), Send(C, Acknowledge(1)), Send(D, Acknowledge(1))]


def test_existing_subscriptions_are_sent_to_a_new_publisher(x: Driven) -> None:
    """The mend of Fig. 3: subscriptions may precede the AD, which does not wait for their forwarding."""
    assert x(C, Subscribe(1, 1, below(10), {})) == [Send(C, Acknowledge(1))]
    assert x(A, Advertise(1, QUOTE)) == [
        Send(B, Advertise(2, QUOTE)),
        Send(A, Subscribe(2, 1, STRUCTURE, {"1": 10.0})),
    ]
    assert x(B, Acknowledge(2)) == [Send(A, Acknowledge(1))]


def test_an_unadvertise_that_was_overtaken_by_a_new_advertisement_is_void(x: Driven) -> None:
    x(A, Advertise(1, QUOTE), Advertise(3, QUOTE))
    assert sent(x(A, Unadvertise(2, "Quote")), Unadvertise) == []
    assert list(x.broker.tables.types["Quote"].publishers) == [A]


def test_a_refusal_by_a_neighbour_is_forwarded_to_the_publishers(x: Driven) -> None:
    x(A, Advertise(7, QUOTE))
    x(C, Advertise(4, QUOTE))
    refused = Refuse(2, "ALREADY_EXISTS", "why", type_name="Quote")
    assert x(B, refused) == [
        Send(A, Refuse(7, "ALREADY_EXISTS", "why", type_name="Quote")),
        Send(C, Refuse(4, "ALREADY_EXISTS", "why", type_name="Quote")),
    ]
    assert sent(x(D, Advertise(1, QUOTE)), Advertise) == [(B, Advertise(3, QUOTE))]
    assert sent(x(D, Disconnect()), Unadvertise) == []
    assert sent(x(A, Unadvertise(8, "Quote")) + x(C, Unadvertise(5, "Quote")), Unadvertise) == [
        (B, Unadvertise(4, "Quote")),
        (A, Unadvertise(3, "Quote")),
    ]


# --- SUB, USUB, UPD: Fig. 3 lines 13-26, Fig. 6 lines 10-47 -------------------------------------------------


def test_a_covered_subscription_is_not_forwarded_and_waits_for_its_covering_slot(x: Driven) -> None:
    x(A, Advertise(1, QUOTE))
    x(C, Subscribe(1, 1, below(10), {}))
    assert x(D, Subscribe(1, 1, below(5), {})) == []
    assert x(A, Acknowledge(2)) == [Send(C, Acknowledge(1)), Send(D, Acknowledge(1))]
    assert x(D, Subscribe(2, 2, below(6), {})) == [Send(D, Acknowledge(2))]


def test_a_subscription_with_an_id_in_use_replaces_the_old_one(x: Driven) -> None:
    x(A, Advertise(1, QUOTE))
    x(C, Subscribe(1, 1, below(10), {}))
    assert x(C, Subscribe(2, 1, below(7), {})) == [Send(A, Update(3, 1, {"1": 7.0}))]
    assert x(C, Subscribe(3, 1, parse('firm == "IBM"', QUOTE), {})) == [
        Send(A, Subscribe(4, 2, parse("firm == $1", QUOTE), {"1": "IBM"})),
        Send(A, Unsubscribe(5, 1)),
    ]


def test_an_id_may_move_to_another_type(x: Driven) -> None:
    trade = EventType("Trade", {"size": "int64"})
    x(A, Advertise(1, QUOTE), Advertise(2, trade))
    x(C, Subscribe(1, 1, below(10), {}))
    assert x(C, Subscribe(2, 1, parse("size > 5", trade), {})) == [
        Send(A, Subscribe(3, 2, parse("size > $1", trade), {"1": 5})),
        Send(A, Unsubscribe(4, 1)),
    ]


def test_repeated_messages_change_no_state(x: Driven) -> None:
    x(A, Advertise(1, QUOTE))
    x(C, Subscribe(1, 1, BELOW, {"limit": 10}))
    before = render(x.broker)
    assert x(C, Subscribe(1, 1, BELOW, {"limit": 10})) == []
    x(A, Acknowledge(2))
    assert x(C, Subscribe(1, 1, BELOW, {"limit": 10})) == [Send(C, Acknowledge(1))]
    assert x(C, Subscribe(2, 1, BELOW, {"limit": 10})) == [Send(C, Acknowledge(2))]
    assert x(C, Unsubscribe(3, 99)) == [Send(C, Acknowledge(3))]
    assert x(C, Unadvertise(4, "Quote")) == [Send(C, Acknowledge(4))]
    assert before.replace(" (not yet acknowledged)", "").split("type")[1] == render(x.broker).split("type")[1]


# --- refusals ----------------------------------------------------------------------------------------


def test_a_subscription_to_another_schema_is_refused(x: Driven) -> None:
    x(A, Advertise(1, QUOTE))
    refusals = sent(x(C, Subscribe(1, 3, parse("price < 3", OTHER), {})), Refuse)
    assert [r.status for _, r in refusals if isinstance(r, Refuse)] == ["ALREADY_EXISTS"]


def test_events_that_were_not_advertised_are_refused_or_dropped(x: Driven) -> None:
    reason = "2 events of Quote not accepted: client/c has not advertised Quote; advertise it first"
    assert x(C, Publish(batch(1, 2))) == [
        Send(C, Refuse(0, "FAILED_PRECONDITION", reason, type_name="Quote", first_sequence=1, count=2))
    ]
    assert x(A, Publish(batch(1, 2))) == [Drop("not advertised", 2, "Quote")]


def test_a_slot_that_a_neighbour_refused_is_resent_when_it_advertises(x: Driven) -> None:
    x(A, Advertise(1, QUOTE))
    x(C, Subscribe(1, 1, below(10), {}))
    x(A, Refuse(2, "NOT_FOUND", "no such type", subscription_id=1, type_name="Quote"))
    assert sent(x(A, Advertise(2, QUOTE)), Subscribe) == [(A, Subscribe(3, 1, STRUCTURE, {"1": 10.0}))]
    assert sent(x(A, Advertise(3, QUOTE)), Subscribe) == []


# --- PUB: Fig. 3 lines 8-12, Fig. 6 lines 38-41 -------------------------------------------------------------


def test_a_batch_that_matches_whole_is_forwarded_as_the_same_object(x: Driven) -> None:
    x(A, Advertise(1, QUOTE))
    x(B, Subscribe(1, 1, STRUCTURE, {"1": 10.0}))
    x(C, Subscribe(1, 1, below(20), {}))
    events = batch(1, 2)
    to_b, to_c = x(A, Publish(events))
    assert [(type(each.message), each.message.batch is events) for each in (to_b, to_c)] == [
        (Publish, True), (Deliver, True),
    ]  # fmt: skip


def test_a_client_receives_its_own_events(x: Driven) -> None:
    x(C, Advertise(1, QUOTE), Subscribe(2, 1, below(10), {}))
    assert [name for name, _ in sent(x(C, Publish(batch(1))), Deliver)] == [C]


# --- leaving, reconnecting ----------------------------------------------------------------------------------


def test_an_idle_type_is_removed(x: Driven) -> None:
    x(C, Advertise(1, QUOTE), Subscribe(2, 1, below(10), {}))
    x(C, Disconnect())
    assert x.broker.known_types() == ()
    x(D, Advertise(1, OTHER))
    assert x.broker.event_type("Quote") == OTHER


def test_a_type_from_the_configuration_stays() -> None:
    x = Driven(C, event_types=[QUOTE])
    x(C, Subscribe(1, 1, below(10), {}))
    x(C, Disconnect())
    assert x.broker.known_types() == ("Quote",)


def test_a_removed_neighbour_is_no_longer_awaited(x: Driven) -> None:
    x(A, Advertise(1, QUOTE))
    x(B, Acknowledge(2))
    x(C, Subscribe(1, 1, below(10), {}))
    assert x(A, Disconnect()) == [Send(B, Unadvertise(3, "Quote")), Send(C, Acknowledge(1))]


def test_a_restarted_neighbour_gets_the_whole_state_again(x: Driven) -> None:
    """Epochs continue; waiting changes wait for the end of the sync; slots keep their ids."""
    x(A, Advertise(1, QUOTE))
    x(C, Advertise(1, QUOTE), Subscribe(2, 1, BELOW, {"limit": 10}))
    assert x(A, Connect()) == [
        Send(A, SyncBegin()),
        Send(A, Advertise(4, QUOTE)),
        Send(A, Subscribe(5, 1, STRUCTURE, {"1": 10.0})),
        Send(A, SyncEnd(6)),
    ]
    x(B, Acknowledge(2))
    assert x(A, Acknowledge(5)) == []
    assert x(A, Acknowledge(6)) == [Send(C, Acknowledge(2))]


def test_state_that_a_neighbour_does_not_repeat_is_void_after_its_sync_end(x: Driven) -> None:
    x(A, Advertise(1, QUOTE), Subscribe(2, 1, STRUCTURE, {"1": 5.0}), Subscribe(3, 2, STRUCTURE, {"1": 9.0}))
    x(B, Advertise(1, QUOTE), Acknowledge(9))
    x(A, Connect(), SyncBegin())
    assert "price < 9.0" in render(x.broker)
    actions = x(A, Subscribe(1, 1, STRUCTURE, {"1": 6.0}), SyncEnd(2))
    assert sent(actions, Update) == [(B, Update(4, 1, {"1": 6.0}))]
    assert list(x.broker.tables.types["Quote"].publishers) == [B]


# --- the static mode: Figs. 2 and 3 -------------------------------------------------------------------------


def test_static_a_clients_update_replaces_its_subscription() -> None:
    x = Driven(A, C, routing="static")
    x(A, Advertise(1, QUOTE))
    x(C, Subscribe(1, 1, BELOW, {"limit": 10}))
    assert x(C, Update(2, 1, {"limit": 5})) == [
        Send(A, Subscribe(3, 2, STRUCTURE, {"1": 5.0})),
        Send(A, Unsubscribe(4, 1)),
    ]
    assert x(C, Update(3, 1, {"limit": 5})) == []


# --- options ------------------------------------------------------------------------------------------------


def test_an_unknown_routing_is_an_error() -> None:
    with pytest.raises(ValueError, match="routing 'fast': expected one of parametric, static"):
        Broker("x", routing="fast")
