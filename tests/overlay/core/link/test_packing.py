"""A packed message is unchanged, and its size is counted."""

import random

import numpy as np
import pytest

from covey.matcher import EventBatch, EventType
from covey.matcher.events.results import Answers, Results
from covey.overlay.core.link.event_queue import MOST_WHOLE, EventQueue, Whole, packed
from covey.overlay.core.link.link import Hello, Link
from covey.overlay.core.link.packing import Packed
from covey.overlay.core.link.size import header_bytes, size_of
from covey.overlay.core.messages import Deliver, Message, Publish, SyncBegin

TYPES = (
    EventType("Quote", {"firm": "string", "price": "float64"}),
    EventType("Tagged", {"tags": "list<string>", "at": "timestamp", "on": "bool"}),
)


def drawn(draw: random.Random, first: int) -> Publish | Deliver:
    event_type, count = draw.choice(TYPES), draw.choice((1, 2, 16, 17, 40))
    values = {"firm": "IBM", "price": 1.5, "tags": ["a"], "at": "2024-01-01", "on": True}
    rows = [
        {name: values[name] for name in event_type.attributes if draw.random() < 0.8} for _ in range(count)
    ]
    batch = EventBatch.from_pylist(
        event_type,
        rows,
        publisher=f"p{draw.randrange(3)}",
        first_sequence=first,
        ingress_ns=draw.randrange(9**9),
    )
    if draw.random() < 0.5:
        batch = batch.filter(np.array([*[draw.random() < 0.5 for _ in range(count)][:-1], True]))
    more = draw.random() < 0.5, draw.choice((-1, -2, 7)), draw.random() < 0.5, draw.random() < 0.5
    if draw.random() < 0.3:
        return Publish(batch, *more)
    counts = [draw.randrange(1, 4) for _ in range(len(batch))]
    return Deliver(batch, np.append(0, np.cumsum(counts)), np.arange(sum(counts)) - 1, 5, *more)


def same(one: Message, other: Message) -> bool:
    if isinstance(one, Deliver) and isinstance(other, Deliver):
        if not (np.array_equal(one.offsets, other.offsets) and np.array_equal(one.ids, other.ids)):
            return False
        return one.batch == other.batch and all(
            getattr(one, name) == getattr(other, name)
            for name in ("epoch", "replayed", "offset", "for_views", "live")
        )
    return one == other


def test_what_was_packed_is_the_same_message() -> None:
    draw = random.Random(7)
    for first in range(400):
        message = drawn(draw, first)
        entry, whole = packed(message), Whole(message)
        assert isinstance(entry, Packed)
        assert same(entry.message, message)
        assert (entry.size, entry.events) == (size_of(message), len(message.batch))
        for name in ("events", "is_stored", "may_go", "offset", "type_name", "header", "size"):
            assert getattr(entry, name) == getattr(whole, name), name
        assert entry.header == header_bytes(message.batch.event_type, message.batch.publisher)


def test_results_of_operators_are_not_packed() -> None:
    batch = EventBatch.from_pylist(TYPES[0], [{"price": 1.0}], publisher="p")
    batch.results = Results({1: Answers(np.array([0]), np.array([True]))})
    assert packed(Publish(batch)).message.batch is batch


def test_a_queue_counts_what_it_has_whatever_is_done_with_it() -> None:
    draw, queue, sent = random.Random(3), EventQueue(), 0
    for first in range(800):
        what = draw.random()
        if what < 0.7:
            queue.append(drawn(draw, first))
        elif what < 0.8 and queue.ready:
            sent += sum(each.events for each in queue.take(1, 0, alone=True)[0])
        elif what < 0.9:
            queue.drop_oldest(draw.choice((None, "Quote")))
        else:
            queue.set_held("Quote", draw.random() < 0.5)
        aside = [entry for each in queue.aside.values() for entry in each]
        assert queue.bytes == sum(entry.held for entry in (*queue.ready, *aside))
        assert queue.held_bytes() == sum(entry.held for entry in aside)
        assert queue.stored_bytes == sum(entry.held for entry in queue.ready if entry.is_stored)
    assert sum(isinstance(entry, Whole) for entry in queue.ready) <= 2 * MOST_WHOLE
    assert sent


def test_a_small_part_of_a_batch_holds_no_other_event() -> None:
    """One event of each of 1,000 batches retained them all."""
    rows = [{"firm": "x" * 1_000, "price": 1.0}] * 1_000
    batch = EventBatch.from_pylist(TYPES[0], rows, publisher="p")
    part = batch.slice(5, 20)
    assert part.record_batch.get_total_buffer_size() > 1_000_000
    queue = EventQueue()
    queue.append(Publish(part))
    assert part.record_batch.get_total_buffer_size() < 40_000
    assert part == batch.slice(5, 20)


@pytest.mark.parametrize("many", [False, True])
def test_frames_of_many_messages_are_sent_again_as_they_were(many: bool) -> None:
    draw = random.Random(5)
    messages = [drawn(draw, first) for first in range(100 if many else 10)]
    one, other = Link(1), Link(3)
    assert not one.resume(Hello(3, 0))
    assert not other.resume(Hello(1, 0))
    grant = other.next_frame()
    assert grant is not None
    one.receive(grant, 0)
    one.send(SyncBegin())
    for message in messages:
        one.send(message)
    first = one.next_frame()
    assert first is not None
    assert one.next_frame() is None
    held = one.retained_bytes
    assert one.resume(other.hello())
    again = one.next_frame()
    assert again.sequence == first.sequence
    assert all(map(same, again.messages, first.messages))
    assert len(again.messages) == 1 + len(messages)
    assert one.retained_bytes == held > 0
    assert all(map(same, one.pending_messages(), first.messages))
    other.receive(again, 0)
    other.acknowledge()
    answer = other.next_frame()
    assert answer is not None
    one.receive(answer, 0)
    assert (one.retained_bytes, one.backlog_bytes) == (0, 0)
    assert one.stored == dict.fromkeys(one.stored, 7) != {}
