"""A broker's endpoint: connections, names and types that come and go."""

import pytest
from core_endpoints import Noted, broker_endpoint, connected, frame_of

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.connections import ConnectionRefusedError, ConnectRequest
from covey.overlay.core.endpoint.limits import SessionLimits, SlowConsumer
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.link.link import Frame, Hello
from covey.overlay.core.messages import Advertise, Message, Publish, Refuse, Subscribe, Unadvertise, Update
from covey.overlay.transport.codec import WireMessage
from covey.overlay.transport.packets import decode_packet, encode_frame
from covey.proto import broker_pb2 as pb

S = 1_000_000_000


def test_who_claims_a_name_is_refused_like_others_where_no_session_is_left() -> None:
    """The refusal was raised in a timer, with which the other due timers failed, and the connection hung."""
    options = EndpointOptions(bounds=Bounds(sessions=1), sessions=SessionLimits(queue_events=1))
    broker = broker_endpoint("b1", neighbours=("b2",), options=options)
    holder, claimant, other = Noted(), Noted(), Noted()
    ends = SlowConsumer.DISCONNECT
    broker.accept(ConnectRequest("client/a", Hello(1), slow_consumer=ends), holder, 0)
    note = EventType("Note", {"x": "int64"})
    broker.receive("client/a", holder, [frame_of(1, Subscribe(1, 1, parse("", note), {}))], 0)
    broker.accept(ConnectRequest("client/a", Hello(2)), claimant, 0)
    assert claimant.answer is None
    events = Publish(EventBatch.from_pylist(note, [{"x": 1}] * 2, publisher="p", first_sequence=1))
    broker.receive("broker/b2", connected(broker, "broker/b2"), [frame_of(1, Advertise(1, note), events)], 0)
    assert holder.end == "RESOURCE_EXHAUSTED"
    broker.accept(ConnectRequest("client/b", Hello(3)), other, 1)
    assert other.resumed is False
    broker.handle_timer(10 * S)
    assert (claimant.end, claimant.answer) == ("RESOURCE_EXHAUSTED", None)
    assert list(broker.queues) == ["broker/b2", "client/b"]


@pytest.mark.parametrize("leaves", ["goodbye", "lost"])
def test_who_claims_a_name_and_leaves_before_the_holder_has_answered_does_not_get_it(leaves: str) -> None:
    """After a goodbye the ended connection got the name."""
    broker, holder, claimant = broker_endpoint("b1"), Noted(), Noted()
    broker.accept(ConnectRequest("client/a", Hello(1)), holder, 0)
    broker.accept(ConnectRequest("client/a", Hello(2)), claimant, 0)
    getattr(broker, leaves)("client/a", claimant, 1)
    broker.handle_timer(10 * S)
    assert (claimant.answer, broker.queues["client/a"].connection) == (None, holder)


def test_an_answer_to_a_hello_from_before_another_connection_resets_both_ends() -> None:
    """Both dial, and one connection breaks before the other's answer: one end was reset, the other resumed,
    and control was lost or the link dead for good."""
    greater = broker_endpoint("b2", neighbours=("b1",))
    lesser = broker_endpoint("b1", neighbours=("b2",), life=2)
    hello = greater.hello_for("broker/b1")
    dialled, accepted = Noted(), Noted()
    greater.accept(ConnectRequest("broker/b1", lesser.hello_for("broker/b2")), accepted, 0)
    assert accepted.answer is not None
    assert lesser.answer("broker/b2", accepted.answer, dialled, 0) is False
    while (frame := lesser.next_frame("broker/b2", dialled)) is not None:
        packet = decode_packet(encode_frame(frame, schemas=True))
        assert isinstance(packet, Frame)
        greater.receive("broker/b1", accepted, [packet], 0)
    greater.lost("broker/b1", accepted, 1)
    lesser.lost("broker/b2", dialled, 1)
    late = Noted()
    lesser.accept(ConnectRequest("broker/b2", hello), late, 2)  # it left before the other's connection came
    assert late.answer is not None
    with pytest.raises(ConnectionRefusedError):
        greater.answer("broker/b1", late.answer, Noted(), 2)
    lesser.lost("broker/b2", late, 3)
    again = Noted()
    lesser.accept(ConnectRequest("broker/b2", greater.hello_for("broker/b1")), again, 4)
    assert again.answer is not None
    assert (again.resumed, greater.answer("broker/b1", again.answer, Noted(), 4)) == (False, False)


def test_event_types_that_have_gone_leave_nothing_behind() -> None:
    broker = broker_endpoint("b1")
    client = connected(broker, "client/a")
    for number in range(1, 1_201):
        event_type = EventType(f"T{number}", {"x": "int64"})
        batch = EventBatch.from_pylist(event_type, [{"x": 1}], publisher="a", first_sequence=1)
        before, after = Advertise(2 * number - 1, event_type), Unadvertise(2 * number, event_type.name)
        broker.receive("client/a", client, [frame_of(number, before, Publish(batch), after)], 0)
    broker.deliver()
    assert broker.core.tables.types == {}
    assert broker.holds.types <= 1_001


def test_a_client_that_connects_again_and_again_and_takes_nothing_blocks_no_longer() -> None:
    """The stall limit began anew with each connection, and held its publishers for ever."""
    quote = EventType("Quote", {"x": "int64"})
    options = EndpointOptions(sessions=SessionLimits(queue_events=4, stall_limit_s=10.0))
    broker = broker_endpoint("b1", options=options)
    publisher = connected(broker, "client/p")
    take(broker, "client/p", publisher, 1, (Advertise(1, quote),))
    connection, hello = Noted(), Hello(2)
    broker.accept(ConnectRequest("client/r", hello), connection, 0)
    take(broker, "client/r", connection, 1, (Subscribe(1, 1, parse("x >= 0", quote), {}),))
    held = []
    for number in range(20):
        now_ns = 5 * S * number
        broker.handle_timer(now_ns)
        for event in range(6):
            sequence = 6 * number + event
            batch = EventBatch.from_pylist(quote, [{"x": 1}], publisher="p", first_sequence=sequence)
            take(broker, "client/p", publisher, 2 + sequence, (Publish(batch),), now_ns)
        held.append(bool(broker.holds.as_dict()))
        assert connection.answer is not None
        broker.lost("client/r", connection, now_ns)
        hello = Hello(2, connection.answer.incarnation, 0)
        connection = Noted()
        broker.accept(ConnectRequest("client/r", hello), connection, now_ns)
        assert connection.resumed
    assert held[0] is True
    assert not any(held[3:])


def test_a_long_frame_of_a_client_is_handled_in_turns_and_acknowledged_after_the_last() -> None:
    """All of a client's input was handled at once, for seconds, while the others waited."""
    quote = EventType("Quote", {"x": "int64"})
    broker = broker_endpoint("b1", options=EndpointOptions(turn_messages=100))
    filter = parse("x < $limit", quote)
    first = connected(broker, "client/a")
    frames = [
        frame_of(1, *(Subscribe(i, i, filter, {"limit": i}) for i in range(1, 251))),
        frame_of(2, *(Update(250 + i, i, {"limit": 0}) for i in range(1, 31))),
    ]

    def turn(connection: Noted) -> tuple[int, int, int]:
        """Handled messages, subscriptions, and the acknowledged frame."""
        handled = broker.receive("client/a", connection, frames, 0)
        del frames[:handled]
        while (frame := broker.next_frame("client/a", connection)) is not None:
            assert frame.received == broker.queues["client/a"].link.received
        subscriptions = len(broker.core.tables.peers["client/a"].subscriptions)
        return handled, subscriptions, broker.queues["client/a"].link.received

    assert turn(first) == (0, 100, 0)
    assert turn(first) == (0, 200, 0)
    broker.lost("client/a", first, 0)
    again = Noted()
    broker.accept(ConnectRequest("client/a", Hello(1, first.answer.incarnation)), again, 0)
    assert (again.resumed, again.answer.received) == (True, 0)
    assert turn(again) == (2, 250, 2)
    assert broker.refused == {}
    assert broker.core.tables.peers["client/a"].subscriptions[30].values == {"limit": 0}


def test_a_new_link_begins_with_whole_frames() -> None:
    quote = EventType("Quote", {"x": "int64"})
    broker = broker_endpoint("b1", options=EndpointOptions(turn_messages=2))
    connections = [Noted(), Noted()]
    frame = frame_of(1, *(Subscribe(i, i, parse("x < 1", quote), {}) for i in range(1, 4)))
    for incarnation, connection in enumerate(connections, 1):
        broker.accept(ConnectRequest("client/a", Hello(incarnation)), connection, 0)
        assert broker.receive("client/a", connection, [frame], 0) == 0
        broker.lost("client/a", connection, 0)
    assert sorted(broker.core.tables.peers["client/a"].subscriptions) == [1, 2]


def test_a_broker_that_drains_takes_what_is_acknowledged_and_nothing_else() -> None:
    """It accepted what its peers had credit for, so under load it never came to rest, and lost events at its
    time limit."""
    quote = EventType("Quote", {"x": "int64"})
    broker = broker_endpoint("b1")
    publisher, reader = connected(broker, "client/p"), connected(broker, "client/r", 2)
    take(broker, "client/p", publisher, 1, (Advertise(1, quote),))
    take(broker, "client/r", reader, 1, (Subscribe(1, 1, parse("x >= 0", quote), {}),))

    def publish(number: int) -> None:
        batch = EventBatch.from_pylist(quote, [{"x": number}], publisher="p", first_sequence=number)
        take(broker, "client/p", publisher, 2 + number, (Publish(batch),))

    publish(0)
    newest = {"client/p": 0, "client/r": 0}
    for interface, connection in (("client/p", publisher), ("client/r", reader)):
        while (frame := broker.next_frame(interface, connection)) is not None:
            newest[interface] = max(newest[interface], frame.sequence)
    broker.drain()
    publish(1)
    assert broker.queues["client/p"].link.received == 2
    assert not broker.drained
    for interface, connection in (("client/p", publisher), ("client/r", reader)):
        acknowledging = Frame(3, newest[interface], 1 << 40, frame_of(3, Unadvertise(9, "T")).messages)
        broker.receive(interface, connection, [acknowledging], 0)
    assert broker.drained
    assert (broker.queues["client/p"].link.received, broker.queues["client/r"].link.received) == (2, 1)


def take(
    broker: BrokerEndpoint[WireMessage],
    interface: str,
    connection: Noted,
    number: int,
    messages: tuple[Message, ...],
    now_ns: int = 0,
) -> None:
    broker.receive(interface, connection, [frame_of(number, *messages)], now_ns)
    if broker.deferred:
        broker.deliver()


@pytest.mark.parametrize("epoch", [2**63, 2**64 - 1])
def test_a_client_that_counts_its_messages_from_a_high_number_ends_no_broker(epoch: int) -> None:
    """Its waiting messages had the number of its last message in 63 bits."""
    quote = EventType("Quote", {"x": "int64"})
    broker = broker_endpoint("b1")
    publisher = connected(broker, "client/p")
    take(broker, "client/p", publisher, 1, (Advertise(1, quote),))
    reader = connected(broker, "client/r", 2)
    broker.receive(
        "client/r", reader, [frame_of(1, Subscribe(epoch, 1, parse("x >= 0", quote), {}), credit=0)], 0
    )
    for sequence in range(100):
        batch = EventBatch.from_pylist(quote, [{"x": 1}], publisher="p", first_sequence=sequence)
        take(broker, "client/p", publisher, 2 + sequence, (Publish(batch),))
    broker.receive("client/r", reader, [frame_of(0)], 0)
    frame = broker.next_frame("client/r", reader)
    assert frame is not None
    assert [each.epoch for each in frame.messages] == [epoch] * len(frame.messages)


def test_what_is_refused_takes_little_memory_whatever_its_names() -> None:
    """Only the number of waiting refusals is bounded, and each repeated the client's megabytes."""
    broker = broker_endpoint("b1")
    hostile = connected(broker, "client/h")
    for number in range(1, 51):
        subscribe = pb.Subscribe(epoch=number, subscription_id=1, type_name="T" * 60_000)
        frame = Frame(number, 0, 0, (pb.Message(subscribe=subscribe),))
        broker.receive("client/h", hostile, [frame], 0)
    refused: list[Refuse] = []
    while (sent := broker.next_frame("client/h", hostile)) is not None:
        refused += [each for each in sent.messages if isinstance(each, Refuse)]
    assert [each.epoch for each in refused] == [*range(1, 51)]
    assert sum(len(each.reason + each.type_name) for each in refused) < 500_000
