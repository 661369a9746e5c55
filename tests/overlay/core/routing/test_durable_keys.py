"""The last events of durable types' keys: beside the stored ones, and over restarts of brokers."""

import numpy as np
import pytest

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.messages import (
    ENDED,
    KEYS,
    Acknowledge,
    Action,
    Advertise,
    Answered,
    Connect,
    Deliver,
    Disconnect,
    EndRestored,
    Message,
    Publish,
    Refuse,
    RestoreKeys,
    Send,
    Store,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Tick,
    Unadvertise,
    Update,
)
from covey.overlay.core.routing.broker import Broker

VEHICLE = EventType("Vehicle", {"id": "string", "x": "int64"}, key="id")
FEED, VIEW, NEXT = "client/feed", "client/view", "broker/b2"
S = 1_000_000_000


def batch(*rows: tuple[str, int], first: int = 1) -> EventBatch:
    events = [{"id": key, "x": x} for key, x in rows]
    return EventBatch.from_pylist(VEHICLE, events, publisher="feed", first_sequence=first)


def sent(actions: list[Action], to: str) -> list[Message]:
    control = (Acknowledge, SyncBegin, SyncEnd, Advertise, Subscribe)
    messages = [each.message for each in actions if isinstance(each, Send) and each.interface == to]
    return [message for message in messages if not isinstance(message, control)]


def rows(message: Message) -> list[tuple[object, object]]:
    return [(row["id"], row["x"]) for row in message.batch.to_pylist()]


def flags(message: Message) -> tuple[bool, bool, bool]:
    return message.replayed, message.for_views, message.live


LIVE, ANSWER, DEPARTURE = (False, True, True), (True, True, False), (False, True, False)


def started(*neighbours: str, **options: object) -> Broker:
    broker = Broker("b1", durable=["Vehicle"], neighbours=[each[7:] for each in neighbours], **options)
    for neighbour in neighbours:
        broker.handle(Connect(), neighbour, 0)
        broker.handle(SyncBegin(), neighbour, 0)
        broker.handle(SyncEnd(1), neighbour, 0)
    return broker


def join(broker: Broker, client: str, *messages: Message) -> list[Action]:
    broker.handle(Connect(), client, 0)
    return broker.handle_all([SyncBegin(), *messages, SyncEnd(1 + len(messages))], client, 0)


def view(epoch: int = 1, subscription_id: int = 1) -> Subscribe:
    return Subscribe(epoch, subscription_id, parse("x < 5", VEHICLE), {}, for_views=True)


def shown(broker: Broker) -> list[tuple[object, object]]:
    answers = sent(join(broker, "client/new", view()), "client/new")
    broker.handle(Disconnect(), "client/new", 0)
    return sorted(row for each in answers if isinstance(each, Deliver) for row in rows(each))


def test_a_view_gets_events_beside_the_stored_ones_and_a_subscription_the_stored_ones() -> None:
    broker = started()
    join(broker, FEED, Advertise(1, VEHICLE))
    join(broker, VIEW, view(), Subscribe(2, 2, parse("x < 9", VEHICLE), {}))
    actions = broker.handle(Publish(batch(("a", 1), ("b", 7))), FEED, 0)
    (store,) = [each for each in actions if isinstance(each, Store)]
    assert [receiver.interface for receiver in store.receivers] == [VIEW, KEYS + FEED]
    assert store.receivers[0].ids.tolist() == [2, 2]
    (live,) = sent(actions, VIEW)
    assert (rows(live), flags(live)) == ([("a", 1)], LIVE)
    assert live.ids.tolist() == [1]
    actions = broker.handle(Publish(batch(("a", 8), first=3)), FEED, 0)
    (departure,) = sent(actions, VIEW)
    assert (rows(departure), flags(departure)) == ([("a", 8)], DEPARTURE)
    repeated = broker.handle(Publish(batch(("a", 1), ("b", 7))), FEED, 0)
    assert not [each for each in repeated if isinstance(each, Store)]
    assert not sent(repeated, VIEW)


def test_what_nobody_subscribes_to_is_stored_for_its_keys_where_it_is_published_alone() -> None:
    broker = started(NEXT)
    join(broker, FEED, Advertise(1, VEHICLE))
    (store,) = broker.handle(Publish(batch(("a", 1))), FEED, 0)
    assert [(each.interface, each.rows) for each in store.receivers] == [(KEYS + FEED, None)]
    broker.handle(Advertise(2, VEHICLE), NEXT, 0)
    assert not [each for each in broker.handle(Publish(batch(("b", 1))), NEXT, 0) if isinstance(each, Store)]
    assert shown(broker) == [("a", 1)]


def test_a_neighbour_gets_events_twice_once_it_has_asked_for_views() -> None:
    broker = started(NEXT)
    join(broker, FEED, Advertise(1, VEHICLE))
    broker.handle(Subscribe(2, 7, parse("x < 5", VEHICLE), {}), NEXT, 0)
    assert not sent(broker.handle(Publish(batch(("a", 1))), FEED, 0), NEXT)  # it is in the Store
    answer, end = sent(broker.handle(Update(3, 7, {}, for_views=3), NEXT, 0), NEXT)
    assert (rows(answer), flags(answer), end) == ([("a", 1)], ANSWER, Answered("Vehicle", 3))
    (live,) = sent(broker.handle(Publish(batch(("a", 2), first=2)), FEED, 0), NEXT)
    assert (rows(live), flags(live)) == ([("a", 2)], LIVE)


def test_live_events_of_a_neighbour_are_passed_on_and_not_stored() -> None:
    broker = started(NEXT, "broker/b3")
    join(broker, VIEW, view())
    broker.handle(Subscribe(2, 7, parse("x < 9", VEHICLE), {}), "broker/b3", 0)
    broker.handle(Update(3, 7, {}, for_views=3), "broker/b3", 0)
    actions = broker.handle(Publish(batch(("a", 1), ("b", 7)), for_views=True, live=True), NEXT, 0)
    assert not [each for each in actions if isinstance(each, Store)]
    assert [(rows(each), flags(each)) for each in sent(actions, VIEW)] == [([("a", 1)], LIVE)]
    onwards = sent(actions, "broker/b3")
    assert [(rows(each), flags(each)) for each in onwards] == [([("a", 1), ("b", 7)], LIVE)]
    actions = broker.handle(Publish(batch(("a", 1), ("b", 7))), NEXT, 0)
    assert [each.receivers[0].interface for each in actions if isinstance(each, Store)] == ["broker/b3"]
    assert not sent(actions, VIEW)


# --- a restart of this broker -----------------------------------------------------------------------------


def stored(client: str, events: EventBatch, at_s: int = 1, *, ended: bool = False) -> RestoreKeys:
    return RestoreKeys(client, events, np.full(len(events), at_s * S), ended)


def restored(broker: Broker, *messages: RestoreKeys) -> None:
    for message in messages:
        assert broker.handle(message, "", 100 * S) == []


def test_restored_keys_are_inside_and_their_publisher_goes_on_with_them() -> None:
    broker = started()
    restored(
        broker, stored(FEED, batch(("a", 1), ("b", 2), ("c", 9))), stored(FEED, batch(("b", 3), first=4))
    )
    assert shown(broker) == [("a", 1), ("b", 3)]
    join(broker, FEED, Advertise(1, VEHICLE))
    assert broker.handle(EndRestored(), "", 200 * S) == []
    assert shown(broker) == [("a", 1), ("b", 3)]
    actions = broker.handle(Unadvertise(5, "Vehicle"), FEED, 0)
    assert [each.receivers[0].interface for each in actions if isinstance(each, Store)] == [ENDED + FEED]
    assert shown(broker) == []


def test_restored_events_without_a_key_leave_nothing_behind() -> None:
    broker = started()
    plain = EventBatch.from_pylist(EventType("Plain", {"x": "int64"}), [{"x": 1}], publisher="feed")
    restored(broker, stored(FEED, plain))
    assert "Plain" not in broker.tables.types


@pytest.mark.parametrize("back", [True, False])
def test_restored_keys_leave_if_their_publisher_does_not_claim_them(back: bool) -> None:
    broker = started()
    restored(broker, stored(FEED, batch(("a", 1))), stored("client/other", batch(("b", 2))))
    join(broker, VIEW, view())
    actions = join(broker, FEED) if back else broker.handle(EndRestored(), "", 0)
    left = [(rows(each), flags(each)) for each in sent(actions, VIEW)]
    assert left == ([([("a", 1)], DEPARTURE)] if back else [([("a", 1)], DEPARTURE), ([("b", 2)], DEPARTURE)])
    records = [each.receivers[0].interface for each in actions if isinstance(each, Store)]
    assert records == ([ENDED + FEED] if back else [ENDED + FEED, ENDED + "client/other"])


@pytest.mark.parametrize("before", ["published", "restored", "claimed"])
def test_that_keys_have_left_is_stored_where_another_has_all_of_them(before: str) -> None:
    """Else a restart would restore events that another broker's publisher has replaced since."""
    broker = started(NEXT)
    broker.handle(Advertise(2, VEHICLE), NEXT, 0)
    if before != "published":
        restored(broker, stored(FEED, batch(("a", 1))))
    if before != "restored":
        join(broker, FEED, Advertise(1, VEHICLE))
    if before == "published":
        broker.handle(Publish(batch(("a", 1))), FEED, 0)
    broker.handle(Publish(batch(("a", 2), first=2), for_views=True, live=True), NEXT, 0)
    actions = broker.handle(Disconnect(), FEED, 0) if before != "restored" else join(broker, FEED)
    (store,) = [each for each in actions if isinstance(each, Store)]
    assert [each.interface for each in store.receivers] == [ENDED + FEED]
    assert (store.batch.to_pylist(), store.batch.publisher) == ([{"id": "a", "x": 1}], "feed")
    assert shown(broker) == [("a", 2)]


def test_a_client_of_which_nothing_is_stored_leaves_no_record() -> None:
    broker = started()
    restored(broker, stored(FEED, batch(("a", 1))), stored(FEED, batch(("a", 1)), ended=True))
    join(broker, FEED, Advertise(1, VEHICLE))
    assert not [each for each in broker.handle(Disconnect(), FEED, 0) if isinstance(each, Store)]


def test_keys_that_had_left_are_not_restored() -> None:
    broker = started()
    restored(
        broker,
        stored(FEED, batch(("a", 1), ("b", 2))),
        stored("client/other", batch(("c", 3))),
        stored(FEED, batch(("a", 1)), ended=True),
        stored(FEED, batch(("d", 4), first=9)),
    )
    assert shown(broker) == [("c", 3), ("d", 4)]


def test_ages_count_from_when_events_were_stored() -> None:
    broker = started(key_max_age_s={"Vehicle": 60})
    restored(broker, stored(FEED, batch(("a", 1)), 30), stored(FEED, batch(("b", 2)), 80))
    assert broker.next_timer() == 90 * S
    broker.handle(Tick(), "", 100 * S)
    assert shown(broker) == [("b", 2)]


# --- a restart of a neighbour -------------------------------------------------------------------------------


def test_keys_of_a_neighbour_that_restarts_stay_if_it_has_restored_them() -> None:
    broker = started(NEXT)
    join(broker, VIEW, view())
    broker.handle(Publish(batch(("a", 1), ("b", 2)), True, for_views=True), NEXT, 0)
    assert shown(broker) == [("a", 1), ("b", 2)]
    broker.handle(Advertise(2, VEHICLE), NEXT, 0)
    assert not sent(broker.handle(Connect(), NEXT, 0), VIEW)
    asked = broker.handle_all([SyncBegin(), SyncEnd(1)], NEXT, 0)  # its publisher is not back yet
    (request,) = [each for each in sent(asked, NEXT) if isinstance(each, Update)]
    assert not sent(asked, VIEW)
    assert not sent(broker.handle(Publish(batch(("b", 2), first=2), True, for_views=True), NEXT, 0), NEXT)
    actions = broker.handle(Answered("Vehicle", request.for_views), NEXT, 0)
    left, end = sent(actions, VIEW)
    assert (rows(left), flags(left), end) == ([("a", 1)], DEPARTURE, Answered("Vehicle", 1))
    assert shown(broker) == [("b", 2)]


@pytest.mark.parametrize("refused", [[2], [1, 2], [2, 1]])
def test_a_refused_slot_takes_no_keys_of_others_from_views(refused: list[int]) -> None:
    """A refusal overtakes the events that answer the requests of other slots."""
    broker = started(NEXT)
    others = Subscribe(2, 2, parse("x > 50", VEHICLE), {}, for_views=True)
    slots = [
        each.message.subscription_id
        for each in join(broker, VIEW, view(), others)
        if isinstance(each, Send) and each.interface == NEXT and isinstance(each.message, Subscribe)
    ]
    broker.handle(Publish(batch(("a", 1), ("b", 60)), True, for_views=True), NEXT, 0)
    broker.handle(Connect(), NEXT, 0)
    requests = sent(broker.handle_all([SyncBegin(), SyncEnd(1)], NEXT, 0), NEXT)
    assert [each.subscription_id for each in requests if isinstance(each, Update)] == slots
    for number in refused[:-1]:
        refusal = Refuse(requests[number - 1].epoch, "NOT_FOUND", "none", slots[number - 1])
        actions = broker.handle(refusal, NEXT, 0)
        assert not sent(actions, VIEW)
    refusal = Refuse(requests[refused[-1] - 1].epoch, "NOT_FOUND", "none", slots[refused[-1] - 1])
    actions = broker.handle(refusal, NEXT, 0)
    if len(refused) == 2:
        end = sent(actions, VIEW)[-1]
        assert sorted(row for each in sent(actions, VIEW)[:-1] for row in rows(each)) == [("a", 1), ("b", 60)]
        assert end == Answered("Vehicle", 2)
        return
    assert not sent(actions, VIEW)
    (request,) = sent(actions, NEXT)
    assert (type(request), request.subscription_id) == (Update, slots[0])
    broker.handle(Publish(batch(("a", 1)), True, for_views=True), NEXT, 0)
    left, end = sent(broker.handle(Answered("Vehicle", request.for_views), NEXT, 0), VIEW)
    assert (rows(left), flags(left), end) == ([("b", 60)], DEPARTURE, Answered("Vehicle", 2))
    assert shown(broker) == [("a", 1)]


def test_a_key_that_leaves_comes_back_and_leaves_in_one_call_has_left() -> None:
    broker = started(NEXT)
    join(broker, VIEW, view())
    broker.handle(Publish(batch(("a", 1)), True, for_views=True), NEXT, 0)
    events = [
        Publish(batch(("a", 8), first=2), for_views=True),
        Publish(batch(("a", 2), first=3), for_views=True, live=True),
        Publish(batch(("a", 9), first=4), for_views=True),
    ]
    assert not sent(broker.handle_all(events, NEXT, 0, defer=True), VIEW)
    told = [(rows(each), flags(each)) for each in sent(broker.deliver(), VIEW)]
    assert told == [([("a", 8)], DEPARTURE), ([("a", 2)], LIVE), ([("a", 9)], DEPARTURE)]
    assert shown(broker) == []


def test_keys_of_a_neighbour_that_is_removed_leave() -> None:
    broker = started(NEXT)
    join(broker, VIEW, view())
    broker.handle(Publish(batch(("a", 1)), True, for_views=True), NEXT, 0)
    left, end = sent(broker.handle(Disconnect(), NEXT, 0), VIEW)
    assert (rows(left), flags(left), end) == ([("a", 1)], DEPARTURE, Answered("Vehicle", 1))
