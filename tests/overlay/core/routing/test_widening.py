"""Schemas of one event type at one broker: widenings, refusals, and accepted batches. The scripts
`widening.txt` and `widenings_that_cross.txt` show whole overlays."""

import numpy as np
import pytest
from core_driven import Driven, sent

from covey.matcher import EventBatch, EventType, EventTypeError, parse
from covey.overlay.core.client.actions import Transmit
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import (
    Acknowledge,
    Advertise,
    Deliver,
    Drop,
    Publish,
    Refuse,
    Send,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
)

A, B, C, D = "broker/a", "broker/b", "client/c", "client/d"
NARROW = EventType("Quote", {"price": "float64"})
WIDE = EventType("Quote", {"volume": "int64", "price": "float64"})
OTHER = EventType("Quote", {"price": "float64", "venue": "string"})
ALL = EventType("Quote", {"price": "float64", "volume": "int64", "venue": "string"})
CONFLICT = EventType("Quote", {"price": "float64", "volume": "string"})
ANOTHER = EventType("Quote", {"price": "string"})


@pytest.fixture
def x() -> Driven:
    return Driven(A, B, C, D)


def batch(event_type: EventType, *rows: dict[str, object]) -> EventBatch:
    return EventBatch.from_pylist(event_type, list(rows), publisher="p", first_sequence=1)


def test_events_of_every_schema_declared_meet_filters_of_every_schema(x: Driven) -> None:
    x(C, Subscribe(1, 1, parse("price < 10", NARROW), {}), Subscribe(2, 2, parse("volume > 5", WIDE), {}))
    x(C, Subscribe(3, 3, parse("not exists venue", OTHER), {}))
    x(D, Advertise(1, ALL))
    rows: list[dict[str, object]] = [{"price": 9.0, "volume": 6}, {"price": 11.0, "venue": "X"}]
    ((_, first),) = sent(x(D, Publish(batch(ALL, *rows))), Deliver)
    assert (first.batch.event_type, first.ids.tolist()) == (ALL, [1, 2, 3])
    ((_, second),) = sent(x(D, Publish(batch(NARROW, {"price": 9.0}))), Deliver)
    assert (second.batch.event_type, second.ids.tolist()) == (NARROW, [1, 3])


def test_events_with_attributes_that_their_sender_has_not_declared_are_not_accepted(x: Driven) -> None:
    x(A, Advertise(1, NARROW))
    x(C, Advertise(1, ALL))
    x(D, Advertise(1, OTHER))
    ((_, refusal),) = sent(x(D, Publish(batch(WIDE, {"volume": 1}))), Refuse)
    reason = "event type Quote exists with other attributes: at broker x, attribute volume is not known"
    reason = f"1 events of Quote not accepted: {reason}"
    assert refusal == Refuse(0, "INVALID_ARGUMENT", reason, 0, "Quote", 1, 1)
    assert x(A, Publish(batch(WIDE, {"volume": 1}))) == [Drop("not advertised", 1, "Quote")]
    assert x(A, Publish(batch(CONFLICT, {"volume": "1"}))) == [Drop("not advertised", 1, "Quote")]


def test_a_widening_leaves_slots_and_pending_updates_in_place(x: Driven) -> None:
    below = parse("price < $limit", NARROW)
    x(A, Advertise(1, NARROW))
    x(C, Subscribe(1, 1, below, {"limit": 1.0}))
    x(C, Update(2, 1, {"limit": 2.0}))
    assert sent(x(A, Advertise(2, WIDE), Acknowledge(1)), Subscribe, Update) == []
    # The same filter over the wider schema moves the subscription and takes its slot over.
    moved = x(C, Subscribe(3, 1, parse("price < $limit", WIDE), {"limit": 3.0}))
    assert moved[0] == Send(A, Update(4, 1, {"1": 3.0}))
    wider = x(D, Subscribe(1, 1, parse("price < 4", WIDE), {}))
    assert wider[0] == Send(A, Update(5, 1, {"1": 4.0}))


def test_a_refused_widening_concerns_only_the_publishers_that_declared_it(x: Driven) -> None:
    x(C, Advertise(1, NARROW))
    x(A, Acknowledge(2))
    x(D, Advertise(1, WIDE))
    refused = Refuse(3, "ALREADY_EXISTS", "why", type_name="Quote")
    assert x(A, refused) == [Send(D, Refuse(1, "ALREADY_EXISTS", "why", type_name="Quote"))]
    # An advertisement without the attribute is accepted again.
    assert sent(x(D, Advertise(2, OTHER)), Advertise) == [(A, Advertise(4, OTHER)), (B, Advertise(4, ALL))]


def test_a_narrower_advertisement_that_overtakes_events_refuses_none_of_them(x: Driven) -> None:
    x(A, Advertise(1, ALL))
    x(C, Subscribe(1, 1, parse("price < 10", NARROW), {}))
    x(A, Advertise(3, NARROW))  # it overtakes an Unadvertise, which waits behind events
    assert len(sent(x(A, Publish(batch(ALL, {"price": 1.0}))), Deliver)) == 1


def test_the_kind_of_an_attribute_is_free_once_no_publisher_declares_it(x: Driven) -> None:
    x(C, Subscribe(1, 1, parse("price < 10", NARROW), {}), Advertise(2, NARROW, parse("price < 5", NARROW)))
    x(A, Acknowledge(2))
    x(D, Advertise(1, WIDE, parse("volume > 5", WIDE)))
    ((_, refusal),) = sent(x(C, Advertise(3, CONFLICT)), Refuse)
    assert refusal.reason.endswith("attribute volume is int64, not string")
    x(D, Unadvertise(2, "Quote"))
    assert len(sent(x(C, Advertise(4, CONFLICT)), Refuse)) == 1  # neighbours still have it
    for neighbour in (A, B):
        x(neighbour, Refuse(3, "ALREADY_EXISTS", "why", type_name="Quote"))
    assert sent(x(C, Advertise(5, CONFLICT, parse('volume == "big"', CONFLICT))), Refuse) == []
    ((_, delivery),) = sent(x(C, Publish(batch(CONFLICT, {"price": 4.0, "volume": "big"}))), Deliver)
    assert delivery.ids.tolist() == [1]


def test_the_kind_of_an_attribute_that_a_subscription_has_had_stays(x: Driven) -> None:
    x(D, Advertise(1, NARROW))
    x(C, Subscribe(1, 1, parse("volume > 5", WIDE), {}), Subscribe(2, 1, parse("price > 5", NARROW), {}))
    assert len(sent(x(D, Advertise(2, CONFLICT)), Refuse)) == 1


@pytest.mark.parametrize("merging", ["off", "perfect", "budget"])
@pytest.mark.parametrize("engine", ["naive", "cluster"])
def test_interest_over_several_schemas_is_merged(merging: str, engine: str) -> None:
    x = Driven(A, C, D, merging=merging, merging_budget=1, engine=engine)
    x(A, Advertise(1, NARROW))
    x(C, Subscribe(1, 1, parse("price > 1 and volume < 5", WIDE), {}))
    x(D, Subscribe(1, 1, parse("price > 2 and venue == 'X'".replace("'", '"'), OTHER), {}))
    x(C, Subscribe(2, 2, parse("price > 3 and volume < 8", WIDE), {}))
    x(D, Subscribe(2, 2, parse('volume between 1 and 3 or venue == "X" and price > 2', ALL), {}))
    x(A, Advertise(2, ALL))
    x(D, Subscribe(3, 3, parse("price > 0", NARROW), {}))
    actions = x(A, Publish(batch(OTHER, {"price": 3.0, "venue": "X"})))
    assert [m.ids.tolist() for _, m in sent(actions, Deliver) if isinstance(m, Deliver)] == [[1, 2, 3]]


# --- the client ---------------------------------------------------------------------------------------------


def test_a_client_publishes_in_the_schema_that_is_in_effect() -> None:
    session = ClientSession("p", engine="naive")
    session.advertise(NARROW)
    session.receive(Acknowledge(1))
    assert session.advertise(WIDE) == [Advertise(2, NARROW.union(WIDE))]
    assert session.publishable("Quote") == NARROW
    assert session.publish(batch(NARROW, {"price": 1.0})).batch.event_type == NARROW
    session.receive(Acknowledge(2))
    assert session.publishable("Quote") == NARROW.union(WIDE)
    assert session.advertise(NARROW) == []
    with pytest.raises(EventTypeError, match="attribute 'volume': kind string, expected int64"):
        session.advertise(CONFLICT)


def test_a_refused_widening_restores_the_advertisement_before() -> None:
    session = ClientSession("p", engine="naive")
    session.advertise(NARROW, parse("price > 1", NARROW))
    session.receive(Acknowledge(1))
    session.advertise(WIDE)
    session.advertise(ALL)
    refusal = Refuse(3, "ALREADY_EXISTS", "why", type_name="Quote")
    restored = Advertise(4, NARROW, parse("price > 1", NARROW))
    refused = Refuse(3, "ALREADY_EXISTS", "why", type_name="Quote")
    assert session.receive(refusal) == [refused, Transmit(restored)]
    assert session.advertised == {"Quote": restored}


def test_a_client_hands_out_what_it_has_declared() -> None:
    session = ClientSession("s", engine="naive")
    session.subscribe(parse("price > 0", NARROW))
    deliver = Deliver(batch(ALL, {"price": 1.0, "volume": 2, "venue": "X"}), *_one_id(1), 1)

    def row() -> dict[str, object]:
        matches = session.matches(deliver)
        return matches.batch.to_pylist()[0]

    assert row() == {"price": 1.0}
    session.widen(WIDE)
    session.subscribe(parse("exists extra", EventType("Quote", {"extra": "bool"})))
    deliver = Deliver(deliver.batch.stamped(first_sequence=2), *_one_id(1), 2)
    assert row() == {"price": 1.0, "volume": 2, "extra": None}
    # An attribute that the overlay has with another kind is absent.
    session.subscribe(parse("venue > 3", EventType("Quote", {"venue": "int64"})))
    deliver = Deliver(deliver.batch.stamped(first_sequence=3), *_one_id(1), 2)
    assert row() == {"price": 1.0, "volume": 2, "extra": None, "venue": None}


def _one_id(subscription_id: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([0, 1]), np.array([subscription_id])


def test_a_key_widens_a_type_once_and_another_key_is_refused(x: Driven) -> None:
    keyed = EventType("Quote", {"price": "float64", "volume": "int64"}, key="volume")
    x(C, Advertise(1, WIDE))
    assert sent(x(D, Advertise(1, keyed)), Advertise) == [
        (A, Advertise(3, WIDE.union(keyed))),
        (B, Advertise(3, WIDE.union(keyed))),
    ]
    assert sent(x(C, Advertise(2, WIDE)), Advertise) == []
    other = EventType("Quote", {"venue": "string"}, key="venue")
    ((_, refusal),) = sent(x(C, Advertise(3, other)), Refuse)
    assert refusal.status == "ALREADY_EXISTS"
    assert refusal.reason == (
        "event type Quote exists with other attributes: at broker x, its key is volume, not venue"
    )
    x(D, Publish(batch(keyed, {"price": 1.0, "volume": 6})))
    ((_, refusal),) = sent(x(C, Publish(batch(keyed, {"price": 1.0, "volume": 6}))), Refuse)
    assert "its key is not known, not volume" in refusal.reason


@pytest.mark.parametrize("engine", ["naive", "cluster"])
def test_a_type_that_nobody_uses_any_more_may_come_with_other_kinds_in_the_same_call(engine: str) -> None:
    x = Driven(A, C, D, engine=engine)
    messages = Advertise(1, NARROW), Unadvertise(2, "Quote"), Advertise(3, ANOTHER)
    assert not sent(x.broker.handle_all(messages, C, 0), Refuse)
    x(D, Subscribe(1, 1, parse("price == 'high'", ANOTHER), {}))
    ((_, delivered),) = sent(x(C, Publish(batch(ANOTHER, {"price": "high"}, {"price": "low"}))), Deliver)
    assert delivered.batch.to_pylist() == [{"price": "high"}]


def test_a_refused_subscription_leaves_no_type_behind(x: Driven) -> None:
    refused = Subscribe(1, 1, parse("price < 10", NARROW), {}, for_views=True)  # of a type without a key
    messages = refused, Subscribe(2, 2, parse("price == 'high'", ANOTHER), {})
    assert [each.subscription_id for _, each in sent(x.broker.handle_all(messages, D, 0), Refuse)] == [1]
    assert x.broker.tables.types["Quote"].event_type == ANOTHER
    x(D, Unsubscribe(3, 2), Subscribe(4, 3, parse("price < 10", NARROW), {}, for_views=True))
    assert not x.broker.tables.types
