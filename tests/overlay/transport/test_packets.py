"""Large frames, whose messages are parsed in the turns that handle them."""

import pytest
from core_endpoints import Noted, broker_endpoint

from covey.matcher import EventType, parse
from covey.overlay.core.endpoint.connections import ConnectRequest
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.link.link import Frame, Hello, LinkError
from covey.overlay.core.messages import Subscribe
from covey.overlay.transport.codec import WireMessage
from covey.overlay.transport.packets import UnreadMessages, UnreadPacket, decode_packet, encode_frame
from covey.proto import broker_pb2 as pb

QUOTE = EventType("Quote", {"x": "int64"})


def unread(*messages: bytes) -> Frame[WireMessage]:
    packet = UnreadPacket()
    packet.frame.sequence = 1
    packet.frame.messages.extend(messages)
    frame = decode_packet(packet.SerializeToString())
    assert isinstance(frame.messages, UnreadMessages)
    return frame


def test_the_messages_of_a_large_frame_are_those_of_a_frame_that_is_parsed_whole() -> None:
    filter = parse("x >= $low", QUOTE)
    sent = tuple(Subscribe(i, i, filter, {"low": i}) for i in range(1, 2_001))
    data = encode_frame(Frame(7, 3, 1 << 40, sent, probe=True, dropped=2, settled=5), schemas=True)
    frame, whole = decode_packet(data), pb.Packet.FromString(data).frame
    assert isinstance(frame.messages, UnreadMessages)
    assert (frame.sequence, frame.received, frame.credit) == (7, 3, 1 << 40)
    assert (frame.probe, frame.dropped, frame.settled) == (True, 2, 5)
    assert frame.messages[:] == tuple(whole.messages)
    assert frame.messages[1_999] == whole.messages[1_999]
    assert list(frame.messages) == list(whole.messages)


def test_a_turn_parses_no_more_messages_than_it_handles() -> None:
    """Two million empty messages in one packet stopped a broker for 14 s before their first turn."""
    turn, count = 100, 20_000
    broker = broker_endpoint("b1", event_types=[QUOTE], options=EndpointOptions(turn_messages=turn))
    connection = Noted()
    broker.accept(ConnectRequest("client/h", Hello(1)), connection, 0)
    body = pb.Subscribe(epoch=1, subscription_id=1, type_name="Quote", filter="x > 1")
    left = [unread(pb.Message(subscribe=body).SerializeToString(), *[b""] * count, b"\xff")]
    for number in range(1, count // turn + 1):
        assert broker.receive("client/h", connection, left, 0) == 0, "no turn sees the last message"
        assert broker.refused["INVALID_ARGUMENT"] == number * turn - 1
    with pytest.raises(LinkError, match="1 bytes in a frame are no message"):
        broker.receive("client/h", connection, left, 0)
    assert list(broker.core.tables.peers["client/h"].subscriptions) == [1], "what came before it was handled"
