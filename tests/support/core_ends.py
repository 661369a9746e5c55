from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.link.link import ACKNOWLEDGE_AFTER_NS, Link
from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import Deliver, Message, Publish, Update

QUOTE = EventType("Quote", {"price": "float64"})
BELOW = parse("price < $limit", QUOTE)


LATE_NS = ACKNOWLEDGE_AFTER_NS
"""The acknowledgement time of what arrives at 0."""


def events(first: int, count: int = 1) -> Publish:
    rows = [{"price": float(i)} for i in range(count)]
    return Publish(EventBatch.from_pylist(QUOTE, rows, publisher="p", first_sequence=first))


def update(epoch: int, subscription: int = 1, **values: float) -> Update:
    return Update(epoch, subscription, values)


def pair(**options: int) -> tuple[Link, Link]:
    """Two ends after the handshake."""
    a, b = Link(1, **options), Link(2, **options)
    meet(a, b)
    return a, b


def meet(a: Link, b: Link) -> tuple[bool, bool]:
    from_a, from_b = a.hello(), b.hello()
    return a.resume(from_b), b.resume(from_a)


def drain(sender: Link, receiver: Link) -> list[Message]:
    """The sender's present messages, as received."""
    received: list[Message] = []
    while (frame := sender.next_frame()) is not None:
        received += receiver.receive(frame, 0)
    return received


def exchange(a: Link, b: Link) -> tuple[list[Message], list[Message]]:
    """Exchange frames until both ends are idle; returns the messages that a and b received."""
    to_a: list[Message] = []
    to_b: list[Message] = []
    while True:
        received_b, received_a = drain(a, b), drain(b, a)
        to_a += received_a
        to_b += received_b
        for link, received in ((a, received_a), (b, received_b)):
            for message in received:
                if isinstance(message, Publish | Deliver):
                    link.consume(size_of(message))
        for link in (a, b):
            link.handle_timer(LATE_NS)
        if a.idle and b.idle and not a.ready and not b.ready:
            return to_a, to_b
