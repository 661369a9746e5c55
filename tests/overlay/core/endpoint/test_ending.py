"""The ends of subscriptions: by validity period, and of many, in parts, with their session."""

import heapq
from itertools import pairwise
from typing import Any

import pytest
from core_endpoints import Noted, broker_endpoint, frame_of

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.endpoint import timers as timers_module
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.connections import ConnectionRefusedError, ConnectRequest
from covey.overlay.core.endpoint.ending import AT_ONCE, PART, PAUSE_NS, Validity
from covey.overlay.core.endpoint.limits import SessionLimits
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.endpoint.timers import EndpointClock, Timers
from covey.overlay.core.link.link import Hello
from covey.overlay.core.messages import (
    Advertise,
    Message,
    Publish,
    Refuse,
    Send,
    Subscribe,
    SyncEnd,
    Unsubscribe,
    Update,
)
from covey.overlay.core.routing.broker import Broker
from covey.overlay.transport.codec import WireMessage
from covey.sim.invariants import check

QUOTE = EventType("Quote", {"x": "int64"})
MANY = 3 * PART + 1
S = 1_000_000_000


def client(broker: BrokerEndpoint[WireMessage], name: str, *messages: Message, now_ns: int = 0) -> Noted:
    connection = Noted()
    broker.accept(ConnectRequest(name, Hello(1), principal="p"), connection, now_ns)
    left = [frame_of(1, *messages)]
    while left:
        del left[: broker.receive(name, connection, left, now_ns)]
    return connection


def subscriptions(count: int) -> list[Subscribe]:
    return [Subscribe(i, i, parse("x >= $low", QUOTE), {"low": -i}) for i in range(1, count + 1)]


def core_of(broker: BrokerEndpoint[WireMessage]) -> Broker:
    assert isinstance(broker.core, Broker)
    return broker.core


def left(broker: BrokerEndpoint[WireMessage], name: str) -> int:
    peer = broker.core.tables.peers.get(name)
    return 0 if peer is None else len(peer.subscriptions)


def advance(broker: BrokerEndpoint[WireMessage], now_ns: int) -> int:
    due_ns = broker.next_timer()
    assert due_ns is not None
    broker.handle_timer(max(now_ns, due_ns))
    return max(now_ns, due_ns)


def test_the_end_of_a_session_with_many_subscriptions_has_parts_between_which_events_pass() -> None:
    """At 17 us a subscription in one call, a client that left a million held all others for 17 s."""
    broker = broker_endpoint("b1", options=EndpointOptions(bounds=Bounds(client_sessions=2)))
    hostile = client(broker, "client/h", *subscriptions(MANY))
    reader = client(broker, "client/r", Advertise(1, QUOTE), Subscribe(2, 1, parse("x >= 0", QUOTE), {}))
    broker.goodbye("client/h", hostile, 0)
    assert "client/h" not in broker.queues
    counts, now_ns, sequence = [left(broker, "client/h")], 0, 1
    while left(broker, "client/h"):
        with pytest.raises(ConnectionRefusedError, match="are being withdrawn") as refused:
            broker.accept(ConnectRequest("client/h", Hello(2)), Noted(), now_ns)
        assert refused.value.status == "UNAVAILABLE"
        with pytest.raises(ConnectionRefusedError, match="max_client_sessions"):
            broker.accept(ConnectRequest("client/x", Hello(2), principal="p"), Noted(), now_ns)
        sequence += 1
        batch = EventBatch.from_pylist(QUOTE, [{"x": 1}], publisher="r", first_sequence=sequence)
        broker.receive("client/r", reader, [frame_of(sequence, Publish(batch))], now_ns)
        broker.deliver()
        assert broker.next_frame("client/r", reader) is not None
        check(core_of(broker))
        now_ns = advance(broker, now_ns)
        counts.append(left(broker, "client/h"))
    assert counts == [MANY, MANY - PART, MANY - 2 * PART, 1, 0]
    assert now_ns == 4 * PAUSE_NS
    client(broker, "client/h", *subscriptions(2), now_ns=now_ns)
    assert left(broker, "client/h") == 2
    check(core_of(broker))


def test_several_sessions_that_end_together_share_the_time_of_one() -> None:
    broker = broker_endpoint("b1", options=EndpointOptions(sessions=SessionLimits(lease_s=1.0)))
    names = ["client/a", "client/b", "client/c"]
    for name in names:
        broker.lost(name, client(broker, name, *subscriptions(2 * PART)), 0)
    now_ns, times = S, []
    while broker.core.tables.peers:
        before = sum(left(broker, name) for name in names)
        now_ns = advance(broker, now_ns)
        if sum(left(broker, name) for name in names) < before:
            times.append(now_ns)
    assert len(times) == 6
    assert [after - before for before, after in pairwise(times)] == [PAUSE_NS] * 5


def test_a_session_that_is_replaced_frees_its_name_when_its_subscriptions_are_withdrawn() -> None:
    broker = broker_endpoint("b1")
    client(broker, "client/h", *subscriptions(PART + 1))
    broker.queues["client/h"].connection = None
    with pytest.raises(ConnectionRefusedError, match="are being withdrawn"):
        broker.accept(ConnectRequest("client/h", Hello(2)), Noted(), 0)
    now_ns = 0
    while left(broker, "client/h"):
        now_ns = advance(broker, now_ns)
    again = Noted()
    broker.accept(ConnectRequest("client/h", Hello(2)), again, now_ns)
    assert (again.resumed, left(broker, "client/h")) == (False, 0)


FILTER = parse("x > $least", EventType("T", {"x": "int64"}))
ME = "client/me"
SECOND = 1_000_000_000


def made() -> tuple[Validity, EndpointClock, Timers[tuple[str, str]]]:
    clock, timers = EndpointClock(5 * SECOND, 1_700_000_000 * SECOND), Timers[tuple[str, str]]()
    return Validity(clock, timers), clock, timers


def subscribe(epoch: int, subscription_id: int, seconds: int) -> Subscribe:
    return Subscribe(epoch, subscription_id, FILTER, {"least": 0}, seconds * SECOND)


def test_what_is_refused_has_no_period_and_what_replaces_or_cancels_ends_it() -> None:
    validity, _, timers = made()
    messages = [subscribe(1, 1, 10), subscribe(2, 2, 20), subscribe(3, 3, 30), subscribe(4, 4, 40)]
    refusal = Send(ME, Refuse(2, "INVALID_ARGUMENT", "no", 2))
    of_another = Send("client/other", Refuse(1, "INVALID_ARGUMENT", "no", 1))
    validity.handled(ME, messages, [refusal, of_another], (1, 3, 4))
    assert [validity.left_ns(ME, each) for each in (1, 2, 3, 4)] == [10 * SECOND, 0, 30 * SECOND, 40 * SECOND]
    assert timers.next_ns == 15 * SECOND
    renewal = Update(5, 1, {}, valid_for_ns=50 * SECOND)
    validity.handled(ME, [renewal, Update(6, 3, {"least": 4}), Unsubscribe(7, 4)], [], (1, 3))
    assert [validity.left_ns(ME, each) for each in (1, 3, 4)] == [50 * SECOND, 30 * SECOND, 0]
    validity.handled(ME, [subscribe(8, 3, 0)], [], (1, 3))
    assert len(validity) == 1
    validity.handled(ME, [SyncEnd(9)], [], (3,))
    assert len(validity) == 0
    assert timers.next_ns is None


def test_a_refused_renewal_changes_nothing() -> None:
    validity, _, _ = made()
    validity.handled(ME, [subscribe(1, 1, 10)], [], (1,))
    refusal = Send(ME, Refuse(2, "INVALID_ARGUMENT", "no", 1))
    validity.handled(ME, [Update(2, 1, {"least": 4}, valid_for_ns=90 * SECOND)], [refusal], (1,))
    assert validity.left_ns(ME, 1) == 10 * SECOND


@pytest.mark.parametrize("seconds", [0, 90])
def test_a_subscription_that_is_not_replaced_keeps_its_period(seconds: int) -> None:
    validity, _, _ = made()
    validity.handled(ME, [subscribe(1, 1, 10)], [], (1,))
    refusal = Send(ME, Refuse(2, "ALREADY_EXISTS", "no", 1))
    validity.handled(ME, [subscribe(2, 1, seconds)], [refusal], (1,))
    assert validity.left_ns(ME, 1) == 10 * SECOND


def test_a_subscription_that_begins_and_ends_in_one_call_has_no_period() -> None:
    validity, _, timers = made()
    validity.handled(ME, [subscribe(1, 1, 10), Unsubscribe(2, 1)], [], (1,))
    assert len(validity) == 0
    assert timers.next_ns is None


def test_many_that_end_together_end_in_turns() -> None:
    validity, clock, timers = made()
    for each in range(3 * AT_ONCE):
        validity.set(ME, each, SECOND)
    clock.now_ns += SECOND - 1
    assert validity.take() == []
    clock.now_ns += 1
    turns = 0
    while ("validity", "") in timers:
        assert timers.take(clock.now_ns) == [("validity", "")]
        assert len(validity.take()) == AT_ONCE
        turns += 1
    assert turns == 3
    assert (len(validity), validity.expired) == (0, 3 * AT_ONCE)


def test_what_is_stored_is_a_time_of_the_clock_that_stamps_events() -> None:
    """The other clock starts with the machine."""
    validity, _, timers = made()
    validity.set(ME, 1, 60 * SECOND)
    stored_ns = validity.stored_ns(ME, 1)
    assert stored_ns == (1_700_000_000 + 65) * SECOND
    later = Validity(EndpointClock(2 * SECOND, (1_700_000_000 + 30) * SECOND), timers)
    later.restore(ME, 1, stored_ns)
    later.restore(ME, 2, 0)
    later.restore(ME, 3, (1_700_000_000 + 1) * SECOND)
    assert later.left_ns(ME, 1) == 33 * SECOND
    assert later.stored_ns(ME, 2) == later.left_ns(ME, 2) == 0
    assert later.left_ns(ME, 3) == 1, "it has ended"
    assert later.take() == [(ME, 3)]
    later.forget(ME)
    assert len(later) == 0


def test_a_subscription_that_does_not_end_yet_costs_nothing_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    validity, clock, _ = made()
    for each in range(10_000):
        validity.set(ME, each, (1_000 + each) * SECOND)
    pops = 0

    class Counted:
        heappush, heapify = staticmethod(heapq.heappush), staticmethod(heapq.heapify)

        @staticmethod
        def heappop(heap: list[Any]) -> Any:
            nonlocal pops
            pops += 1
            return heapq.heappop(heap)

    monkeypatch.setattr(timers_module, "heapq", Counted)
    for _ in range(100):
        clock.now_ns += SECOND
        validity.handled(ME, [Update(1, 7, {"least": 1})], [], ())
        assert validity.take() == []
    assert pops == 0


def test_who_claims_the_name_of_a_client_that_leaves_waits_for_the_end_of_its_subscriptions() -> None:
    """It got the name while they were being withdrawn, and lost its own with them."""
    broker = broker_endpoint("b1")
    holder, claimant = client(broker, "client/h", *subscriptions(MANY)), Noted()
    broker.accept(ConnectRequest("client/h", Hello(2)), claimant, 0)
    broker.goodbye("client/h", holder, 0)
    assert (claimant.end, claimant.answer) == ("UNAVAILABLE", None)
    now_ns = 0
    while left(broker, "client/h"):
        now_ns = advance(broker, now_ns)
    client(broker, "client/h", *subscriptions(2), now_ns=now_ns)
    assert left(broker, "client/h") == 2
