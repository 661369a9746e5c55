"""Gathered messages leave as one, with the same events for the same subscriptions."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from covey.matcher import EventBatch, EventType
from covey.matcher.events.trace_contexts import TraceContext
from covey.overlay.core.link.event_queue import Whole
from covey.overlay.core.link.joining import join
from covey.overlay.core.link.link import Link
from covey.overlay.core.link.size import events_in, size_of
from covey.overlay.core.messages import Deliver, Message, Publish, SyncEnd, Unadvertise

QUOTE = EventType("Quote", {"price": "float64"})
TRADE = EventType("Trade", {"price": "float64"})


def batch(first: int, count: int, publisher: str = "p", event_type: EventType = QUOTE) -> EventBatch:
    rows = [{"price": float(first + i)} for i in range(count)]
    return EventBatch.from_pylist(event_type, rows, publisher=publisher, first_sequence=first)


def deliver(first: int, ids: list[list[int]], epoch: int = 1) -> Deliver:
    offsets = np.cumsum([0, *map(len, ids)])
    flat = np.array([i for each in ids for i in each], dtype=np.int64)
    return Deliver(batch(first, len(ids)), offsets, flat, epoch)


def contents(messages: list[Message]) -> list[object]:
    """Per event: kind, type, publisher, sequence number, and subscriptions."""
    found: list[object] = []
    for message in messages:
        if not isinstance(message, Publish | Deliver):
            found.append(message)
            continue
        b = message.batch
        for i, sequence in enumerate(b.sequences().tolist()):
            whom = None
            if isinstance(message, Deliver):
                whom = (
                    message.epoch,
                    tuple(message.ids[message.offsets[i] : message.offsets[i + 1]].tolist()),
                )
            found.append((type(message), b.event_type.name, b.publisher, sequence, b.to_pylist()[i], whom))
    return found


def test_messages_that_differ_are_not_joined() -> None:
    parts: list[Message] = [
        Publish(batch(1, 1)),
        Publish(batch(1, 1, publisher="q")),
        Publish(batch(2, 1, event_type=TRADE)),
        deliver(1, [[1]]),
        deliver(2, [[1]], epoch=2),
        Unadvertise(1, "Quote"),
        deliver(3, [[1]], epoch=2),
        Publish(batch(2**40, 1)),
        Publish(batch(1, 1)),
    ]
    assert join(parts, 100, 1 << 20) == parts
    few: list[Message] = [Publish(batch(1, 2)), Publish(batch(3, 2))]
    assert join(few, 3, 1 << 20) == few
    assert join(few, 4, size_of(few[0])) == few
    assert len(join(few, 4, 1 << 20)) == 1


@given(
    st.lists(
        st.tuples(st.sampled_from("pqd"), st.integers(0, 50), st.integers(0, 3), st.integers(1, 2)),
        max_size=12,
    ),
    st.integers(1, 8),
)
def test_joining_changes_no_event(parts: list[tuple[str, int, int, int]], most: int) -> None:
    messages: list[Message] = []
    for kind, first, count, epoch in parts:
        if kind == "d":
            messages.append(deliver(first, [[first, i] for i in range(count)], epoch))
        elif count:
            messages.append(Publish(batch(first, count, publisher=kind)))
        else:
            messages.append(SyncEnd(first))
    joined = join(messages, most, 1 << 20)
    assert contents(joined) == contents(messages)
    assert all(events_in(message) <= max(most, 3) for message in joined)


def test_a_busy_link_sends_gathered_events_as_one_batch() -> None:
    a, b = Link(1, frames_in_flight=1, join_events=100), Link(2)
    hello = b.hello()
    b.resume(a.hello())
    a.resume(hello)
    grant = b.next_frame()
    assert grant is not None
    a.receive(grant, 0)
    sent = [Publish(batch(first, 2)) for first in (1, 3, 5)]
    a.send(sent[0])
    first = a.next_frame()
    assert first is not None
    for message in sent[1:]:
        a.send(message)
    b.receive(first, 0)
    answer = b.next_frame()
    assert answer is not None
    a.receive(answer, 0)
    second = a.next_frame()
    assert len(second.messages) == 1
    assert contents(list(second.messages)) == contents(list(sent[1:]))
    assert a.events.bytes == 0
    assert a.retained_bytes == Whole(second.messages[0]).held
    a.resume(b.hello())  # neither end has the other's newest state: the joined batch is queued again
    assert (a.backlog_events, a.backlog_bytes) == (4, Whole(second.messages[0]).held)


def test_no_batch_gets_more_trace_contexts_than_travel() -> None:
    def traced(first: int) -> Publish:
        context = TraceContext(first, first, f"00-{first:032x}-{1:016x}-01")
        return Publish(batch(first, 1).with_contexts((context,)))

    joined = join([traced(first) for first in range(1, 101)], 1_000, 1 << 20)
    assert [len(message.batch.contexts) for message in joined] == [16] * 6 + [4]
    assert [len(message.batch) for message in joined] == [16] * 6 + [4]
