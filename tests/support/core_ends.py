"""Two ends of a link, and what passes between them."""

from __future__ import annotations

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.link.link import Link
from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import (
    Deliver,
    Message,
    Publish,
    Update,
)

QUOTE = EventType("Quote", {"price": "float64"})
BELOW = parse("price < $limit", QUOTE)


def events(first: int, count: int = 1) -> Publish:
    rows = [{"price": float(i)} for i in range(count)]
    return Publish(EventBatch.from_pylist(QUOTE, rows, publisher="p", first_sequence=first))


def update(epoch: int, subscription: int = 1, **values: float) -> Update:
    return Update(epoch, subscription, values)


def pair(**options: int) -> tuple[Link, Link]:
    """Two ends that have met."""
    a, b = Link(1, **options), Link(2, **options)
    meet(a, b)
    return a, b


def meet(a: Link, b: Link) -> tuple[bool, bool]:
    from_a, from_b = a.hello(), b.hello()
    return a.resume(from_b), b.resume(from_a)


def drain(sender: Link, receiver: Link) -> list[Message]:
    """All that the sender has to say now, as the receiver gets it."""
    got: list[Message] = []
    while (frame := sender.next_frame()) is not None:
        got += receiver.receive(frame)
    return got


def exchange(a: Link, b: Link) -> tuple[list[Message], list[Message]]:
    """Frames to and fro until nobody has more to say; what a got, and what b got."""
    to_a: list[Message] = []
    to_b: list[Message] = []
    while True:
        got_b, got_a = drain(a, b), drain(b, a)
        to_a += got_a
        to_b += got_b
        for link, got in ((a, got_a), (b, got_b)):
            for message in got:
                if isinstance(message, Publish | Deliver):
                    link.consume(size_of(message))
        for link in (a, b):
            link.acknowledge()
        if a.idle and b.idle and not a.acknowledgement_due and not b.acknowledgement_due:
            return to_a, to_b
