"""The client's side (Jayaram et al., Figs. 2 and 5): its messages, and how it handles received ones."""

import numpy as np
import pytest

from covey.matcher.errors import EventError, EventTypeError, SubscriptionError, VariableError
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import parse
from covey.overlay.core import watermarks
from covey.overlay.core.client.actions import DeliverTo, Settled, Transmit
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import (
    Acknowledge,
    Advertise,
    Connect,
    Deliver,
    Notice,
    Refuse,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Unadvertise,
    Unsubscribe,
    Update,
)

QUOTE = EventType("Quote", {"firm": "string", "price": "float64"})
OTHER = EventType("Quote", {"firm": "string", "price": "int64"})
BELOW = parse("price < $limit", QUOTE)
IBM = parse('firm == "IBM"', QUOTE)


@pytest.fixture
def session() -> ClientSession:
    return ClientSession("me.1", engine="naive")


def batch(*prices: float, first: int = 1, publisher: str = "p", firm: str = "IBM") -> EventBatch:
    rows = [{"firm": firm, "price": price} for price in prices]
    return EventBatch.from_pylist(QUOTE, rows, publisher=publisher, first_sequence=first)


def deliver(events: EventBatch, ids: list[list[int]], epoch: int) -> Deliver:
    offsets = np.cumsum([0, *map(len, ids)])
    return Deliver(events, offsets, np.array([i for some in ids for i in some], np.int64), epoch)


# --- what it sends ------------------------------------------------------------------------------------------


def test_advertise_publish_unadvertise(session: ClientSession) -> None:
    """Fig. 2 lines 3-6."""
    assert session.advertise(QUOTE) == [Advertise(1, QUOTE)]
    assert session.advertise(QUOTE) == []
    first = session.publish(batch(1, 2, publisher=""))
    second = session.publish(batch(3, first=77))
    assert (first.batch.publisher, first.batch.sequences().tolist()) == ("me.1", [1, 2])
    assert second.batch.sequences().tolist() == [3]
    assert session.unadvertise("Quote") == [Unadvertise(2, "Quote")]


def test_a_batch_with_gaps_is_numbered_anew(session: ClientSession) -> None:
    session.advertise(QUOTE)
    gaps = batch(1, 2, 3).take([0, 2])
    assert session.publish(gaps).batch.sequences().tolist() == [1, 2]


def test_subscribe_update_unsubscribe(session: ClientSession) -> None:
    """Fig. 5 lines 12-16; values are checked, and only those that differ travel."""
    assert session.subscribe(BELOW, {"limit": 10}) == (1, [Subscribe(1, 1, BELOW, {"limit": 10.0})])
    assert session.update(1, {"limit": 9}) == [Update(2, 1, {"limit": 9.0})]
    assert session.update(1, {"limit": 9.0}) == []
    assert session.values(1) == {"limit": 9.0}
    assert session.unsubscribe(1) == [Unsubscribe(3, 1)]
    assert session.subscribe(IBM) == (2, [Subscribe(4, 2, IBM, {})])


def test_a_wrong_call_sends_and_changes_nothing(session: ClientSession) -> None:
    session.subscribe(BELOW, {"limit": 10})
    with pytest.raises(VariableError, match="limit"):
        session.subscribe(BELOW, {})
    with pytest.raises(VariableError, match="other"):
        session.update(1, {"other": 3})
    with pytest.raises(VariableError, match="high"):
        session.update(1, {"limit": "high"})
    with pytest.raises(SubscriptionError, match="subscription 7: it has ended or was never made"):
        session.update(7, {"limit": 3})
    with pytest.raises(SubscriptionError, match="subscription 7"):
        session.unsubscribe(7)
    with pytest.raises(EventTypeError, match="expected float64"):
        session.subscribe(parse("", OTHER))
    with pytest.raises(
        EventError, match="'Quote' is not advertised with these attributes; advertise it first"
    ):
        session.publish(batch(1))
    with pytest.raises(EventTypeError, match="'Quote' is not advertised here; advertise it first"):
        session.unadvertise("Quote")
    session.advertise(QUOTE)
    with pytest.raises(EventTypeError, match="expected float64"):
        session.advertise(OTHER)
    assert session.epoch == 2
    assert session.values(1) == {"limit": 10.0}
    assert session.subscribe(BELOW, {"limit": 1.0})[0] == 2


def test_an_unknown_routing_or_order_is_an_error() -> None:
    with pytest.raises(ValueError, match="routing 'both'"):
        ClientSession("me", routing="both")
    with pytest.raises(ValueError, match="resubscribe 'never'"):
        ClientSession("me", resubscribe="never")


# --- what it receives ---------------------------------------------------------------------------------------


def test_events_go_to_each_subscription_that_matches(session: ClientSession) -> None:
    session.subscribe(BELOW, {"limit": 10})
    session.subscribe(IBM)
    events = batch(5, 15, 7)
    assert session.receive(deliver(events, [[1, 2], [2], [2, 1]], epoch=2)) == [
        DeliverTo(1, events.take([0, 2]), 0),
        DeliverTo(2, events, 0),
    ]


def test_a_batch_that_goes_whole_to_one_subscription_is_not_copied(session: ClientSession) -> None:
    session.subscribe(IBM)
    events = batch(5, 15)
    (delivered,) = session.receive(deliver(events, [[1], [1]], epoch=1))
    assert delivered.batch is events


def test_a_delivery_without_events_is_nothing(session: ClientSession) -> None:
    session.subscribe(IBM)
    assert session.receive(deliver(batch(), [], epoch=1)) == []


def test_strictness_after_an_update_the_newest_values_decide(session: ClientSession) -> None:
    """Fig. 5 line 10: events matched at an older epoch are evaluated again; failing ones are spurious."""
    session.subscribe(BELOW, {"limit": 10})
    session.update(1, {"limit": 6})
    events = batch(5, 9, 7)
    assert session.receive(deliver(events, [[1], [1], [1]], epoch=1)) == [DeliverTo(1, events.slice(0, 1), 2)]


def test_an_event_that_only_the_newest_filter_asks_for_is_delivered_already(session: ClientSession) -> None:
    session.subscribe(BELOW, {"limit": 10})
    session.subscribe(IBM)
    session.update(1, {"limit": 20})
    events = batch(15)
    assert session.receive(deliver(events, [[2]], epoch=2)) == [
        DeliverTo(1, events, 0),
        DeliverTo(2, events, 0),
    ]


def test_at_the_newest_epoch_the_broker_is_trusted(session: ClientSession) -> None:
    session.subscribe(BELOW, {"limit": 10})
    session.update(1, {"limit": 6})
    events = batch(9)
    assert session.receive(deliver(events, [[1]], epoch=2)) == [DeliverTo(1, events, 0)]


def test_a_change_in_another_type_costs_no_evaluation(session: ClientSession) -> None:
    session.subscribe(BELOW, {"limit": 10})
    trade = EventType("Trade", {"size": "int64"})
    session.subscribe(parse("size > 1", trade))
    events = batch(99)  # would fail if it were evaluated
    assert session.receive(deliver(events, [[1]], epoch=1)) == [DeliverTo(1, events, 0)]


def test_nothing_is_delivered_to_a_cancelled_subscription(session: ClientSession) -> None:
    session.subscribe(BELOW, {"limit": 10})
    session.subscribe(IBM)
    session.unsubscribe(1)
    events = batch(5)
    assert session.receive(deliver(events, [[1, 2]], epoch=2)) == [DeliverTo(2, events, 0)]
    session.unsubscribe(2)
    assert session.receive(deliver(batch(6, first=2), [[1, 2]], epoch=2)) == []


def test_an_event_is_delivered_once(session: ClientSession) -> None:
    """Identity is (publisher, sequence)."""
    session.subscribe(BELOW, {"limit": 10})
    session.receive(deliver(batch(1, 2), [[1], [1]], epoch=1))
    again = batch(1, 2, 3)
    assert session.receive(deliver(again, [[1], [1], [1]], epoch=1)) == [DeliverTo(1, again.slice(2), 0)]
    assert session.receive(deliver(again, [[1], [1], [1]], epoch=1)) == []
    other = batch(1, publisher="q")
    assert session.receive(deliver(other, [[1]], epoch=1)) == [DeliverTo(1, other, 0)]


@pytest.mark.parametrize("again", [1, 0], ids=["the same batch", "one that begins earlier"])
def test_an_event_that_was_joined_with_its_copy_is_delivered_once(session: ClientSession, again: int) -> None:
    """A publisher whose broker crashed repeats events that another broker may still have."""
    session.subscribe(BELOW, {"limit": 10})
    rows = [1.0, 2.0] if again else [0.5, 1.0, 2.0]
    joined = EventBatch.concat([batch(1, 2), batch(*rows, first=again)])
    handed_out = session.receive(deliver(joined, [[1]] * len(joined), epoch=1))
    assert [action.batch.sequences().tolist() for action in handed_out] == [[1, 2]]
    session.receive(deliver(batch(3, first=3), [[1]], epoch=1))
    assert session.receive(deliver(batch(1, 2, 3), [[1]] * 3, epoch=1)) == []


def test_the_memory_for_publishers_is_bounded(
    session: ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermarks, "WATERMARKS", 3)
    session.subscribe(IBM)
    for i in range(10):
        session.receive(deliver(batch(1, publisher=f"p{i}"), [[1]], epoch=1))
    again = [session.receive(deliver(batch(1, publisher=f"p{i}"), [[1]], epoch=1)) for i in (9, 8, 7, 6)]
    assert [bool(delivered) for delivered in again] == [False, False, False, True]


def test_static_events_for_the_old_and_the_new_id_are_one(session: ClientSession) -> None:
    session = ClientSession("me", routing="static", engine="naive")
    session.subscribe(BELOW, {"limit": 10})
    session.update(1, {"limit": 20})
    events = batch(5, 15)
    assert session.receive(deliver(events, [[1, 2], [2]], epoch=2)) == [DeliverTo(1, events, 0)]
    session.update(1, {"limit": 3})
    events = batch(5, 2, first=3)
    assert session.receive(deliver(events, [[1, 2], [2, 1]], epoch=2)) == [DeliverTo(1, events.slice(1), 1)]
    session.receive(Acknowledge(5))
    events = batch(2, 2, 2, first=5)
    assert session.receive(deliver(events, [[1], [2], [3]], epoch=5)) == [DeliverTo(1, events.slice(2), 0)]


def test_acknowledgements_settle_epochs(session: ClientSession) -> None:
    session.subscribe(BELOW, {"limit": 10})
    session.update(1, {"limit": 9})
    assert session.receive(Acknowledge(1)) == [Settled(1)]
    assert session.receive(Acknowledge(1)) == []
    assert session.receive(Acknowledge(3)) == []
    assert session.receive(Acknowledge(2)) == [Settled(2)]
    assert session.settled == 2


def test_sync_resends_the_state_and_settles_with_its_end(session: ClientSession) -> None:
    session.advertise(QUOTE)
    session.subscribe(BELOW, {"limit": 10})
    session.update(1, {"limit": 9})
    assert session.sync() == [
        SyncBegin(),
        Advertise(4, QUOTE),
        Subscribe(5, 1, BELOW, {"limit": 9.0}),
        SyncEnd(6),
    ]
    assert session.receive(Acknowledge(5)) == []
    (late,) = session.receive(deliver(batch(9.5), [[1]], epoch=0))
    assert (len(late.batch), late.spurious) == (0, 1)
    assert session.receive(Acknowledge(6)) == [Settled(6)]


def test_static_what_a_broker_matches_until_sync_ends_may_be_by_the_old_subscription() -> None:
    session = ClientSession("me", routing="static", engine="naive")
    session.subscribe(BELOW, {"limit": 20})
    session.receive(Acknowledge(1))
    session.update(1, {"limit": 3})
    assert session.sync() == [SyncBegin(), Subscribe(4, 2, parse("price < 3", QUOTE), {}), SyncEnd(5)]
    events = batch(15, 2)
    assert session.receive(deliver(events, [[1], [1, 2]], epoch=4)) == [DeliverTo(1, events.slice(1), 1)]
    events = batch(1, 2, first=3)
    assert session.receive(deliver(events, [[2], [2]], epoch=5)) == [DeliverTo(1, events, 0)]


def test_a_refused_subscription_is_dropped(session: ClientSession) -> None:
    session.subscribe(BELOW, {"limit": 10})
    refusal = Refuse(1, "NOT_FOUND", "no such type", subscription_id=1, type_name="Quote")
    assert session.receive(refusal) == [Refuse(1, "NOT_FOUND", "no such type", 1, "Quote")]
    with pytest.raises(SubscriptionError):
        session.update(1, {"limit": 3})


def test_what_waits_is_not_handed_out_to_a_subscription_refused_meanwhile(session: ClientSession) -> None:
    session.subscribe(IBM)
    session.subscribe(BELOW, {"limit": 60})
    matches = session.matches(deliver(batch(50, 70), [[1], [1]], epoch=1))
    assert (matches.rows.tolist(), matches.ids.tolist()) == ([0, 0, 1], [1, 2, 1])
    session.receive(Refuse(2, "NOT_FOUND", "no such type", subscription_id=2))
    strict = session.strict(matches)
    assert (strict.rows.tolist(), strict.ids.tolist()) == ([0, 1], [1, 1])


def test_a_refused_advertisement_is_taken_back_unless_it_had_settled(session: ClientSession) -> None:
    session.advertise(QUOTE)
    refusal = Refuse(1, "ALREADY_EXISTS", "why", type_name="Quote")
    assert session.receive(refusal) == [
        Refuse(1, "ALREADY_EXISTS", "why", type_name="Quote"),
        Transmit(Unadvertise(2, "Quote")),
    ]
    session.advertise(QUOTE)
    session.receive(Acknowledge(3))
    refusal = Refuse(3, "ALREADY_EXISTS", "why", type_name="Quote")
    assert session.receive(refusal) == [Refuse(3, "ALREADY_EXISTS", "why", type_name="Quote")]
    session.publish(batch(1))


def test_refused_events_are_reported(session: ClientSession) -> None:
    refusal = Refuse(0, "RESOURCE_EXHAUSTED", "too big", type_name="Quote", first_sequence=4, count=2)
    assert session.receive(refusal) == [
        Refuse(0, "RESOURCE_EXHAUSTED", "too big", type_name="Quote", first_sequence=4, count=2)
    ]


def test_messages_of_brokers_alone_are_ignored(session: ClientSession) -> None:
    assert session.receive(Connect()) == []


@pytest.mark.parametrize("routing", ["parametric", "static"])
def test_a_notice_names_the_subscriptions_as_their_user_does(routing: str) -> None:
    session = ClientSession("me.1", routing=routing, engine="naive")
    one, _ = session.subscribe(IBM)
    other, _ = session.subscribe(BELOW, {"limit": 1.0})
    (subscribe, *_) = session.update(other, {"limit": 2.0})
    wire_id = subscribe.subscription_id if isinstance(subscribe, Subscribe) else other
    notice = Notice("within", "b1", "is unknown", 3, (wire_id, 77))
    assert session.receive(notice) == [Notice("within", "b1", "is unknown", 3, (other,))]
    session.unsubscribe(other)
    session.unsubscribe(one)
    assert session.receive(Notice("within", "b1", "is unknown", 3, (one,))) == []


def test_after_a_refusal_the_next_update_of_a_view_asks_for_all_inside(session: ClientSession) -> None:
    keyed = EventType("Quote", {"firm": "string", "price": "float64"}, key="firm")
    number, (subscribe,) = session.view(parse("price < $limit", keyed), {"limit": 1})
    (refused,) = session.update(number, {"limit": 2})
    assert refused.after_epoch == subscribe.epoch
    session.receive(Refuse(refused.epoch, "RESOURCE_EXHAUSTED", "", number))
    (following,) = session.update(number, {"limit": 1})
    assert following.after_epoch == 0


@pytest.mark.parametrize("is_view", [False, True])
def test_a_renewal_that_came_too_late_ends_the_period(session: ClientSession, is_view: bool) -> None:
    filter = parse("price < 1", EventType("Quote", {"firm": "string", "price": "float64"}, key="firm"))
    number, _ = session.view(filter) if is_view else session.subscribe(filter)
    session.renew(number, 100, 0)
    (renewal,) = session.renew(number, 1_000_000, 100)
    session.receive(Refuse(renewal.epoch, "NOT_FOUND", "", number))
    assert session.expire(101) == [number]
    assert [type(message) for message in session.sync(101)] == [SyncBegin, SyncEnd]
