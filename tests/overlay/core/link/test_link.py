"""A link end by itself, and two over a connection that breaks anywhere."""

from collections import deque

import pytest
from core_ends import LATE_NS, QUOTE, drain, events, exchange, meet, pair, update
from draws import examples
from hypothesis import given
from hypothesis import strategies as st

from covey.matcher import EventBatch, EventType
from covey.overlay.core.link.event_queue import Whole
from covey.overlay.core.link.link import (
    ACKNOWLEDGE_AFTER_NS,
    CONTROL_IN_FLIGHT,
    Frame,
    Hello,
    Link,
    LinkError,
)
from covey.overlay.core.link.size import header_bytes, size_of
from covey.overlay.core.messages import (
    Advertise,
    Message,
    Publish,
    Refuse,
    SyncBegin,
    SyncEnd,
    Unadvertise,
    Unsubscribe,
)
from covey.overlay.transport.packets import encode_frame

# --- numbering, acknowledgement, resumption -------------------------------------------------------


def test_ends_resume_unless_one_lost_its_state_or_a_hello() -> None:
    a, b = Link(1), Link(2)
    b.resume(a.hello())  # b's own hello is lost with the connection
    assert meet(a, b) == (False, False)
    assert meet(a, b) == (True, True)
    reborn = Link(3)
    assert meet(a, reborn) == (False, False)
    assert meet(reborn, a) == (True, True)


def test_frames_are_numbered_and_acknowledged() -> None:
    a, b = pair(frames_in_flight=4)
    exchange(a, b)
    a.send(SyncBegin())
    first = a.next_frame()
    a.send(SyncEnd(1))
    second = a.next_frame()
    assert first is not None
    assert (first.sequence, second.sequence) == (1, 2)
    assert b.receive(first, 0) == (SyncBegin(),)
    assert b.next_frame() is None  # one frame is not worth an answer of its own yet
    assert b.due_ns == ACKNOWLEDGE_AFTER_NS
    assert (first.probe, second.probe) == (False, True)  # half of the window is in flight
    assert b.receive(second, 0) == (SyncEnd(1),)
    answer = b.next_frame()
    assert (answer.sequence, answer.received, answer.messages) == (0, 2, ())
    assert not a.idle
    assert a.receive(answer, 0) == ()
    assert a.idle
    assert a.acknowledged == 2


def test_an_acknowledgement_is_sent_with_a_frame_or_on_a_timer() -> None:
    a, b = pair()
    exchange(a, b)
    a.send(SyncBegin())
    drain(a, b)
    b.send(SyncEnd(1))
    frame = b.next_frame()
    assert frame.received == 1
    assert b.due_ns is None
    a.send(SyncBegin())
    drain(a, b)
    assert b.next_frame() is None
    b.handle_timer(LATE_NS)
    assert b.next_frame() == Frame(0, 2, b.hello().credit)
    b.handle_timer(LATE_NS)
    assert b.next_frame() is None


def test_only_frames_that_did_not_arrive_are_resent() -> None:
    a, b = pair()
    exchange(a, b)
    for epoch in (1, 2, 3):
        a.send(SyncEnd(epoch))
        frame = a.next_frame()
        assert frame is not None
        if epoch == 1:
            assert b.receive(frame, 0) == (SyncEnd(1),)
    assert meet(a, b) == (True, True)
    a.send(SyncEnd(4))
    assert drain(a, b) == [SyncEnd(2), SyncEnd(3), SyncEnd(4)]


def test_a_repeated_frame_is_dropped_and_acknowledged() -> None:
    a, b = pair()
    exchange(a, b)
    a.send(SyncBegin())
    frame = a.next_frame()
    assert frame is not None
    assert b.receive(frame, 0) == (SyncBegin(),)
    assert b.receive(frame, 0) == ()
    assert b.next_frame() is not None


@pytest.mark.parametrize(
    ("frame", "complaint"),
    [
        (Frame(2, 0, 0, (SyncBegin(),)), "frame 2 follows frame 0: expected 1"),
        (Frame(0, 0, 0, (SyncBegin(),)), "a frame with messages has sequence 0: expected a number from 1 on"),
        (Frame(1, 7, 0), "the peer says that frame 7 arrived: only 0 were sent"),
    ],
)
def test_invalid_frames_are_an_error(frame: Frame[Message], complaint: str) -> None:
    _, b = pair()
    with pytest.raises(LinkError, match=complaint):
        b.receive(frame, 0)


def test_invalid_hellos_are_an_error() -> None:
    a, _ = pair()
    with pytest.raises(LinkError, match="incarnation in the peer's hello is 0"):
        a.resume(Hello(0))
    with pytest.raises(LinkError, match="frame 9 arrived: only 0 were sent"):
        a.resume(Hello(2, 1, received=9))


def test_frames_in_flight_are_bounded_and_messages_gather() -> None:
    a, b = pair(frames_in_flight=2)
    exchange(a, b)
    for first in (1, 2, 3, 4):
        a.send(events(first))
        frame = a.next_frame()
        assert (frame is None) == (first > 2)
        if first == 1:
            arrived = frame
    assert arrived is not None
    b.receive(arrived, 0)
    answer = b.next_frame()
    assert answer is not None
    a.receive(answer, 0)
    frame = a.next_frame()
    assert frame.messages == (events(3), events(4))


def test_a_refusal_precedes_the_acknowledgement_of_the_refused_message() -> None:
    a, b = pair(frames_in_flight=1)
    exchange(a, b)
    for _ in range(1 + CONTROL_IN_FLIGHT):
        b.send(SyncBegin())
        assert b.next_frame() is not None
    b.send(SyncBegin())
    assert b.next_frame() is None  # b may have no further frame in flight
    a.send(events(1))
    drain(a, b)
    b.send(Refuse(0, "RESOURCE_EXHAUSTED", "too large"))
    frame = b.next_frame()
    assert frame.received == 1
    assert frame.messages == (SyncBegin(), Refuse(0, "RESOURCE_EXHAUSTED", "too large"))


def test_refusals_of_several_frames_precede_the_acknowledgement() -> None:
    """The first frame acknowledged events that the next one refused, so they counted as confirmed."""
    a, b = pair()
    drain(a, b)
    drain(b, a)
    a.send(events(0, 200))
    drain(a, b)
    for first in range(200):
        b.send(Refuse(0, "FAILED_PRECONDITION", "outside " * 20, 0, "Quote", first, 1))
    told = 0
    while (frame := b.next_frame()) is not None:
        told += len(frame.messages)
        assert frame.received == (1 if told == 200 else 0)
    assert (told, b.ready) == (200, False)


def test_ends_that_disagree_are_reset_by_the_next_connection() -> None:
    """Every connection ended with the same error, for ever."""
    a, b = Link(1), Link(2)
    early = a.hello()
    meet(a, b)
    for epoch in (1, 2):
        a.send(update(epoch))
        b.send(update(epoch))
        drain(a, b)
        drain(b, a)
    assert not b.resume(early), "it resets one end alone"
    with pytest.raises(LinkError, match="only 0 were sent"):
        meet(a, b)
    assert meet(a, b) == (False, False)
    drain(a, b)
    drain(b, a)
    assert meet(a, b) == (True, True)
    a.send(update(3))
    skipped = a.next_frame()
    a.send(update(4))
    gap = a.next_frame()
    assert skipped is not None
    assert gap is not None
    with pytest.raises(LinkError):
        b.receive(gap, 0)
    assert meet(a, b) == (False, False)


def test_control_is_sent_while_events_wait() -> None:
    a, b = pair(frames_in_flight=1)
    exchange(a, b)
    a.send(events(1))
    assert a.next_frame() is not None
    a.send(events(2))
    assert a.next_frame() is None
    a.send(SyncBegin())
    frame = a.next_frame()
    assert frame.messages == (SyncBegin(),)


def test_a_probe_is_answered_at_once() -> None:
    a, b = pair()
    exchange(a, b)
    a.probe()
    question = a.next_frame()
    assert question.probe
    assert b.receive(question, 0) == ()
    assert b.next_frame() is not None
    assert a.next_frame() is None


def test_a_link_that_gave_up_starts_afresh_even_if_its_first_answer_is_lost() -> None:
    a, b = pair(max_control=3)
    exchange(a, b)
    a.send(SyncBegin())
    b.send(SyncBegin())
    exchange(a, b)
    for i in range(1, 6):
        a.send(Unsubscribe(i, i))
    assert a.give_up_control()
    lost = b.hello()
    assert not a.resume(lost)
    assert meet(a, b) == (False, False)
    a.send(SyncBegin())
    assert exchange(a, b)[1] == [SyncBegin()]


# --- control and events ---------------------------------------------------------------------------


def test_control_overtakes_events_and_unadvertise_does_not() -> None:
    a, b = pair()
    exchange(a, b)
    a.send(events(1))
    a.send(Unadvertise(1, "Quote"))
    a.send(events(2))
    a.send(Advertise(2, QUOTE))
    assert drain(a, b) == [Advertise(2, QUOTE), events(1), Unadvertise(1, "Quote"), events(2)]


def test_events_wait_for_credit_and_control_does_not() -> None:
    size = size_of(events(1))
    a, b = pair(window_bytes=2 * size, frames_in_flight=100)
    a.send(events(1))
    assert a.next_frame() is not None  # nothing but a grant: a itself has none yet
    assert drain(b, a) == []
    for first in (2, 3, 4):
        a.send(events(first))
    assert drain(a, b) == [events(1), events(2)]
    a.send(SyncBegin())
    a.send(Unadvertise(1, "Quote"))
    assert drain(a, b) == [SyncBegin()]
    b.consume(size)
    assert drain(b, a) == []
    assert drain(a, b) == [events(3)]
    b.withhold_credit(True)
    b.consume(2 * size)
    assert drain(b, a) == []
    assert drain(a, b) == []
    b.withhold_credit(False)
    assert drain(b, a) == []
    assert drain(a, b) == [events(4), Unadvertise(1, "Quote")]


def test_frames_are_bounded_by_what_their_events_and_types_take() -> None:
    """The receiver refused larger ones with the connection, and so the next one, for ever."""
    wide = EventType("Wide", {f"attribute_number_{i}": "float64" for i in range(200)})
    most = 2 * (size_of(Publish(EventBatch.from_pylist(wide, [{}]))) + header_bytes(wide, "p0"))
    a, b = pair(max_frame_bytes=most, frames_in_flight=100)
    exchange(a, b)
    for number in range(5):
        batch = EventBatch.from_pylist(wide, [{}], publisher=f"p{number % 2}", first_sequence=number)
        a.send(Publish(batch))
    sizes = []
    while (frame := a.next_frame()) is not None:
        sizes.append(len(frame.messages))
        assert len(encode_frame(frame)) < most + 100
    assert sizes == [2, 2, 1]


def test_backlog_counts_queued_and_unacknowledged_messages() -> None:
    a, b = pair(frames_in_flight=1)
    exchange(a, b)
    a.send(events(1, 3))
    a.send(SyncBegin())
    assert (a.events.count, a.retained_events) == (3, 0)
    assert a.next_frame() is not None
    a.send(events(4, 2))
    assert (a.events.count, a.retained_events) == (2, 3)
    assert a.backlog_events == 5
    assert a.backlog_bytes == Whole(events(1, 3)).held + Whole(events(4, 2)).held
    meet(a, b)
    exchange(a, b)
    assert (a.backlog_events, a.backlog_bytes) == (0, 0)


def test_drop_oldest_drops_queued_events() -> None:
    a, b = pair()
    for first, count in ((1, 3), (4, 2)):
        a.send(events(first, count))
    a.send(Unadvertise(1, "Quote"))
    assert a.events.drop_oldest() == events(1, 3)
    assert a.backlog_bytes == Whole(events(4, 2)).held
    assert exchange(a, b)[1] == [events(4, 2), Unadvertise(1, "Quote")]
    assert a.events.drop_oldest() is None
    a.send(Unadvertise(2, "Quote"))
    assert a.events.drop_oldest() is None


def test_after_a_fresh_start_events_are_queued_again_and_control_is_not() -> None:
    a, b = pair()
    exchange(a, b)
    a.send(events(1))
    a.send(SyncBegin())
    assert a.next_frame() is not None
    a.send(events(2))
    a.send(SyncEnd(1))
    reborn = Link(3)
    meet(a, reborn)
    assert a.events.count == 2
    a.send(SyncEnd(2))
    assert exchange(a, reborn)[1] == [SyncEnd(2), events(1), events(2)]


def test_a_peer_unreachable_for_too_long_gets_the_whole_state_again() -> None:
    a, b = pair(max_control=3)
    for epoch in range(1, 6):
        a.send(Unsubscribe(epoch, epoch))
        a.give_up_control()
    assert a.queued_control == 0
    a.send(Unadvertise(6, "Quote"))
    assert a.idle
    a.send(events(1))
    assert meet(a, b) == (False, False)
    a.send(SyncEnd(6))
    assert exchange(a, b)[1] == [SyncEnd(6), events(1)]


def test_refusals_are_sent_at_once_and_counted_until_acknowledged() -> None:
    a, b = pair()
    exchange(a, b)
    frames = []
    for number in range(20):
        a.send(Refuse(number, "NOT_FOUND", "no such subscription"))
        frames.append(a.next_frame())
    a.send(Unsubscribe(1, 1))
    assert None not in frames
    assert (a.queued_control, a.backlog_control) == (1, 21)
    assert sum(len(b.receive(frame, 0)) for frame in frames if frame is not None) == 20
    exchange(a, b)
    assert (a.idle, a.backlog_control) == (True, 0)


# --- two ends over a bad connection ---------------------------------------------------------------

STEP = st.sampled_from(["a sends", "b sends", "a writes", "b writes", "to a", "to b", "ack", "break", "hold"])


@examples(300)
@given(
    steps=st.lists(STEP, min_size=10, max_size=120),
    in_flight=st.integers(1, 4),
    window=st.sampled_from([1, 400, 1 << 20]),
)
def test_delivery_is_exactly_once_and_in_order_over_breaking_connections(
    steps: list[str], in_flight: int, window: int
) -> None:
    """Events and SyncEnds arrive once and in order of their kind, wherever a connection loses frames."""
    options = {"frames_in_flight": in_flight, "window_bytes": window}
    a, b = pair(**options)
    links = {"a": a, "b": b}
    wires: dict[str, deque[Frame[Message]]] = {"a": deque(), "b": deque()}  # frames on their way to ...
    sent: dict[str, list[Message]] = {"a": [], "b": []}
    received: dict[str, list[Message]] = {"a": [], "b": []}

    def receive(end: str, frame: Frame[Message]) -> None:
        for message in links[end].receive(frame, 0):
            received[end].append(message)
            if isinstance(message, Publish):
                links[end].consume(size_of(message))

    for number, step in enumerate(steps, 1):
        end = step[0] if step.endswith(("sends", "writes")) else step[-1]
        if step.endswith("sends"):
            message: Message = events(number) if number % 3 else SyncEnd(number)
            links[end].send(message)
            sent[end].append(message)
        elif step.endswith("writes"):
            frame = links[end].next_frame()
            if frame is not None:
                wires["b" if end == "a" else "a"].append(frame)
        elif step.startswith("to"):
            if wires[end]:
                receive(end, wires[end].popleft())
        elif step == "ack":
            a.handle_timer(LATE_NS)
            b.handle_timer(LATE_NS)
        elif step == "hold":
            a.withhold_credit(number % 2 == 0)
        else:
            wires["a"].clear()
            wires["b"].clear()
            assert meet(a, b) == (True, True)
    a.withhold_credit(False)
    for end in ("a", "b"):
        while wires[end]:
            receive(end, wires[end].popleft())
    to_a, to_b = exchange(a, b)
    received["a"] += to_a
    received["b"] += to_b
    for end, other in (("a", "b"), ("b", "a")):
        for kind in (Publish, SyncEnd):
            assert [m for m in received[other] if isinstance(m, kind)] == [
                m for m in sent[end] if isinstance(m, kind)
            ]
    assert a.backlog_bytes == b.backlog_bytes == 0
