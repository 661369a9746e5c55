"""The end of sessions with many subscriptions, in parts."""

from itertools import pairwise

import pytest
from core_endpoints import Noted, broker_endpoint

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.connections import ConnectionRefusedError, Peer
from covey.overlay.core.endpoint.endings import PART, PAUSE_NS
from covey.overlay.core.endpoint.limits import SessionLimits
from covey.overlay.core.endpoint.options import EndpointOptions
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.link.link import Frame, Hello
from covey.overlay.core.messages import Advertise, Message, Publish, Subscribe
from covey.overlay.core.routing.broker import Broker
from covey.overlay.transport.codec import WireMessage
from covey.overlay.transport.packets import decode_packet, encode_frame
from covey.sim.invariants import check

QUOTE = EventType("Quote", {"x": "int64"})
MANY = 3 * PART + 1
S = 1_000_000_000


def said(number: int, *messages: Message) -> Frame[WireMessage]:
    frame = decode_packet(encode_frame(Frame(number, 0, 1 << 40, messages), schemas=True))
    assert isinstance(frame, Frame)
    return frame


def client(broker: BrokerEndpoint[WireMessage], name: str, *messages: Message, now_ns: int = 0) -> Noted:
    connection = Noted()
    broker.accept(Peer(name, Hello(1), principal="p"), connection, now_ns)
    left = [said(1, *messages)]
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
    """To the next timer."""
    due_ns = broker.next_timer()
    assert due_ns is not None
    broker.handle_timer(max(now_ns, due_ns))
    return max(now_ns, due_ns)


def test_the_end_of_a_session_with_many_subscriptions_has_parts_between_which_events_pass() -> None:
    """17 us a subscription, in one call: a client that left a million held all others for 17 s."""
    broker = broker_endpoint("b1", options=EndpointOptions(bounds=Bounds(client_sessions=2)))
    hostile = client(broker, "client/h", *subscriptions(MANY))
    reader = client(broker, "client/r", Advertise(1, QUOTE), Subscribe(2, 1, parse("x >= 0", QUOTE), {}))
    broker.goodbye("client/h", hostile, 0)
    assert "client/h" not in broker.queues
    counts, now_ns, sequence = [left(broker, "client/h")], 0, 1
    while left(broker, "client/h"):
        with pytest.raises(ConnectionRefusedError, match="are being withdrawn") as refused:
            broker.accept(Peer("client/h", Hello(2)), Noted(), now_ns)
        assert refused.value.status == "UNAVAILABLE"
        with pytest.raises(ConnectionRefusedError, match="max_client_sessions"):
            broker.accept(Peer("client/x", Hello(2), principal="p"), Noted(), now_ns)
        sequence += 1
        batch = EventBatch.from_pylist(QUOTE, [{"x": 1}], publisher="r", first_sequence=sequence)
        broker.receive("client/r", reader, [said(sequence, Publish(batch))], now_ns)
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
        broker.accept(Peer("client/h", Hello(2)), Noted(), 0)
    now_ns = 0
    while left(broker, "client/h"):
        now_ns = advance(broker, now_ns)
    again = Noted()
    broker.accept(Peer("client/h", Hello(2)), again, now_ns)
    assert (again.resumed, left(broker, "client/h")) == (False, 0)
