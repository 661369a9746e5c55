"""Endpoints of brokers without a node, over connections that record calls."""

from collections.abc import Sequence

from covey.matcher import EventType, parse
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.connections import ConnectRequest
from covey.overlay.core.endpoint.limits import Undecodable
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.endpoint.storage import Storage, StoredSubscription
from covey.overlay.core.link.link import Frame, Hello, Link
from covey.overlay.core.messages import Message
from covey.overlay.core.routing.broker import Broker
from covey.overlay.transport.codec import WireMessage, decode_message, event_bytes, weight
from covey.overlay.transport.packets import decode_packet, encode_frame
from covey.overlay.transport.wire_values import MessageError
from covey.sim.simulator.storage import SimulatedStorage


class Noted:
    def __init__(self) -> None:
        self.answer: Hello | None = None
        self.resumed: bool | None = None
        self.end = ""
        self.awake = False
        self.charged = 0.0

    def opened(self, answer: Hello, resumed: bool) -> None:
        self.answer, self.resumed = answer, resumed

    def wake(self) -> None:
        self.awake = True

    def close(self, status: str, reason: str) -> None:
        self.end = self.end or status

    def charge(self, permits: float) -> None:
        self.charged += permits


def frame_of(number: int, *messages: Message, received: int = 0, credit: int = 1 << 40) -> Frame[WireMessage]:
    """An arrived frame, with its messages in their wire form."""
    frame = decode_packet(encode_frame(Frame(number, received, credit, messages), schemas=True))
    assert isinstance(frame, Frame)
    return frame


def connected(broker: BrokerEndpoint[WireMessage], interface: str, incarnation: int = 1) -> Noted:
    """The connection of a client or neighbour that the broker has accepted at time 0."""
    connection = Noted()
    broker.accept(ConnectRequest(interface, Hello(incarnation)), connection, 0)
    return connection


def broker_endpoint(
    name: str,
    *,
    life: int = 1,
    neighbours: Sequence[str] = (),
    options: EndpointOptions | None = None,
    event_types: Sequence[EventType] = (),
    join_events: int = 4_096,
    max_frame_bytes: int = 4 << 20,
    now_ns: int = 0,
    storage: Storage | None = None,
) -> BrokerEndpoint[WireMessage]:
    """A broker with its core, which takes messages in their wire form."""
    core = Broker(name, neighbours=neighbours, event_types=event_types)

    def decode(wire: WireMessage, from_broker: bool) -> Message | Undecodable:
        try:
            most = None if from_broker else Bounds().filter_bytes
            return decode_message(wire, core.event_type, from_broker=from_broker, filter_bytes=most)
        except MessageError as error:
            return Undecodable(error.refuse, event_bytes(wire))

    return BrokerEndpoint(
        core,
        [f"broker/{neighbour}" for neighbour in neighbours],
        options or EndpointOptions(),
        new_link=lambda incarnation: Link(
            incarnation, max_frame_bytes=max_frame_bytes, join_events=join_events
        ),
        life=life,
        decode=decode,
        weigh=weight,
        warn=lambda *_: None,
        now_ns=now_ns,
        storage=storage,
    )


def stored_session(interface: str) -> Storage:
    """The storage of a broker that had a durable session with subscription 1 in its former life."""
    storage = SimulatedStorage((), interface, lambda: 0).start()
    filter = parse("x < 1", EventType("Stored", {"x": "int64"}))
    storage.save_session(interface, "of before", [StoredSubscription(1, filter, {})])
    return storage
