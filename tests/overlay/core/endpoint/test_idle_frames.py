"""Any frame without effect is charged to its connection; others are not."""

import pytest
from core_endpoints import broker_endpoint, connected, frame_of

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.budget import IDLE_FRAME
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.link.link import Frame
from covey.overlay.core.messages import Advertise, Message, Publish, Subscribe, Unsubscribe, Update
from covey.overlay.transport.codec import WireMessage

QUOTE = EventType("Quote", {"x": "int64"})
ABOVE = parse("x >= $low", QUOTE)


class Sender:
    """A client or neighbour of a broker, which has one of its subscriptions."""

    def __init__(self, interface: str = "client/c") -> None:
        self.broker: BrokerEndpoint[WireMessage] = broker_endpoint(
            "b1", neighbours=("b2",), event_types=(QUOTE,)
        )
        self.connection = connected(self.broker, interface)
        self._interface = interface
        self._sequence = 0
        self.send(Subscribe(1, 1, ABOVE, {"low": 5}))
        assert self.connection.charged == 0.0

    def frame(self, *messages: Message, received: int = 0, credit: int = 1 << 40) -> Frame[WireMessage]:
        self._sequence += bool(messages)
        return frame_of(self._sequence if messages else 0, *messages, received=received, credit=credit)

    def send(self, *messages: Message, received: int = 0, credit: int = 1 << 40) -> float:
        return self.receive([self.frame(*messages, received=received, credit=credit)])

    def receive(self, frames: list[Frame[WireMessage]]) -> float:
        before = self.connection.charged
        while frames:
            del frames[: self.broker.receive(self._interface, self.connection, frames, 0)]
        return self.connection.charged - before

    def answer(self) -> int:
        newest = 0
        self.broker.deliver()
        while (frame := self.broker.next_frame(self._interface, self.connection)) is not None:
            newest = max(newest, frame.sequence)
        return newest


@pytest.mark.parametrize(
    "message",
    [
        Update(2, 1, {"low": 5}),
        Update(2, 99, {"low": 5}),
        Subscribe(2, 1, ABOVE, {"low": 5}),
        Unsubscribe(2, 99),
        Subscribe(1, 1, ABOVE, {"low": 7}),
    ],
    ids=["values in force", "no such subscription", "subscribed", "not subscribed", "an old epoch"],
)
def test_messages_that_change_nothing(message: Message) -> None:
    assert Sender().send(message) == IDLE_FRAME


def test_an_advertisement_that_is_repeated() -> None:
    sender = Sender()
    assert sender.send(Advertise(2, QUOTE)) == 0.0
    assert sender.send(Advertise(3, QUOTE)) == IDLE_FRAME


@pytest.mark.parametrize(
    "message",
    [Update(2, 1, {"low": 6}), Subscribe(2, 2, ABOVE, {"low": 5}), Unsubscribe(2, 1)],
    ids=["other values", "a new subscription", "one less"],
)
def test_messages_that_change_something(message: Message) -> None:
    assert Sender().send(message) == 0.0


def test_events_bring_something() -> None:
    sender = Sender()
    sender.send(Advertise(2, QUOTE))
    batch = EventBatch.from_pylist(QUOTE, [{"x": 1}], publisher="c", first_sequence=1)
    assert sender.send(Publish(batch)) == 0.0


def test_frames_without_messages() -> None:
    sender = Sender()
    sender.send(Advertise(2, QUOTE))
    batch = EventBatch.from_pylist(QUOTE, [{"x": 9}], publisher="c", first_sequence=1)
    sender.send(Publish(batch))
    newest = sender.answer()
    assert newest
    assert sender.send(received=newest) == 0.0, "it acknowledges something"
    assert sender.send(received=newest) == IDLE_FRAME
    assert sender.send(received=newest, credit=1 << 41) == IDLE_FRAME, "of credit there was enough"


def test_a_turn_has_some_of_many_and_all_are_charged() -> None:
    sender = Sender()
    frames = [sender.frame() for _ in range(1_000)]
    assert sender.broker.receive("client/c", sender.connection, frames, 0) <= 128
    assert sender.receive(frames[sender.broker.receive("client/c", sender.connection, frames, 0) :]) > 0
    assert sender.connection.charged >= 1_000 * IDLE_FRAME


def test_a_repeated_frame_changes_nothing() -> None:
    sender = Sender()
    frame = sender.frame(Update(2, 1, {"low": 6}))
    assert sender.receive([frame]) == 0.0
    assert sender.receive([frame]) == IDLE_FRAME


def test_of_a_neighbour_only_frames_without_messages_are_charged() -> None:
    sender = Sender("broker/b2")
    assert sender.send(Update(2, 1, {"low": 5})) == 0.0
    assert sender.send() == IDLE_FRAME
    sender.broker.drain()
    assert sender.send() == 0.0, "who drains makes frames empty"
