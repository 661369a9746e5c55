"""Flow on a link besides messages: requested acknowledgements, settled epochs, holds, gaps."""

from core_ends import drain, events, exchange, meet, pair, update

from covey.matcher import EventBatch, EventType
from covey.overlay.core.link.event_queue import Whole
from covey.overlay.core.link.link import CONTROL_IN_FLIGHT, Link
from covey.overlay.core.messages import (
    Acknowledge,
    Gap,
    Hold,
    Publish,
    SyncBegin,
    SyncEnd,
    Unadvertise,
    Update,
)


def test_what_is_asked_for_is_acknowledged_at_once() -> None:
    a, b = pair()
    exchange(a, b)
    a.send(SyncBegin())
    a.ask()
    drain(a, b)
    assert drain(b, a) == []
    assert a.idle
    a.send(SyncBegin())
    drain(a, b)
    assert b.next_frame() is None
    a.ask()  # what is in flight already
    drain(a, b)
    drain(b, a)
    assert a.idle
    a.ask()
    assert a.next_frame() is None  # nothing to ask for


def test_what_has_settled_is_told_behind_the_messages_before_it_and_needs_no_acknowledgement() -> None:
    a, b = pair()
    exchange(a, b)
    a.send(SyncBegin())
    a.send(Acknowledge(3))
    a.send(Acknowledge(4))
    frame = a.next_frame()
    assert (frame.messages, frame.settled) == ((SyncBegin(),), 4)
    assert b.receive(frame, 0) == (SyncBegin(), Acknowledge(4))
    exchange(a, b)
    a.send(Acknowledge(5))
    frame = a.next_frame()
    assert (frame.sequence, frame.messages, frame.settled) == (0, (), 5)
    assert a.idle
    assert b.receive(frame, 0) == (Acknowledge(5),)
    assert b.due_ns is None


def test_what_has_settled_passes_a_full_window_unless_control_is_before_it() -> None:
    a, b = pair(frames_in_flight=1)
    exchange(a, b)
    for _ in range(1 + CONTROL_IN_FLIGHT):
        a.send(SyncBegin())
        assert a.next_frame() is not None
    a.send(Acknowledge(1))
    frame = a.next_frame()
    assert frame.settled == 1
    a.send(SyncBegin())
    a.send(Acknowledge(2))
    assert not a.ready
    assert a.next_frame() is None


def test_what_has_settled_is_told_again_when_the_connection_that_told_it_broke() -> None:
    a, b = pair()
    exchange(a, b)
    a.send(SyncBegin())
    a.send(Acknowledge(1))
    assert a.next_frame() is not None
    a.send(SyncEnd(2))
    a.send(Acknowledge(2))
    assert a.next_frame() is not None
    a.send(Acknowledge(3))
    assert a.next_frame() is not None
    assert meet(a, b) == (True, True)
    assert drain(a, b) == [SyncBegin(), Acknowledge(1), SyncEnd(2), Acknowledge(2), Acknowledge(3)]


OTHER = EventType("Other", {"price": "float64"})


def other(first: int) -> Publish:
    return Publish(EventBatch.from_pylist(OTHER, [{"price": 1.0}], publisher="p", first_sequence=first))


def test_a_held_type_delays_no_other() -> None:
    a, b = pair()
    exchange(a, b)
    a.send(events(1))
    a.send(other(2))
    a.events.set_held("Quote", True)
    a.send(events(3))
    a.send(Unadvertise(1, "Quote"))
    a.send(other(4))
    assert drain(a, b) == [other(2), other(4)]
    assert (a.events.holds("Quote"), a.events.holds("Other")) == (True, False)
    assert a.events.held_bytes("Quote") == a.events.bytes == 2 * Whole(events(1)).held
    assert not a.idle
    a.events.set_held("Quote", False)
    assert exchange(a, b)[1] == [events(1), events(3), Unadvertise(1, "Quote")]
    assert a.events.held_bytes("Quote") == a.events.bytes == 0


def test_a_link_that_starts_afresh_holds_nothing() -> None:
    a, b = pair()
    exchange(a, b)
    a.send(events(1))
    assert a.next_frame() is not None
    a.events.set_held("Quote", True)
    a.send(events(2))
    reborn = Link(3)
    meet(a, reborn)
    assert exchange(a, reborn)[1] == [events(1), events(2)]


def test_only_the_newest_hold_of_a_type_is_sent_and_updates_merge_across_it() -> None:
    a, b = pair()
    exchange(a, b)
    for message in (update(1, limit=1.0), Hold("Quote", True), update(2, limit=2.0), Hold("Quote", False)):
        a.send(message)
    assert drain(a, b) == [update(1, limit=2.0), Hold("Quote", False), Update(2, 1, {})]


def test_gaps_of_a_type_are_told_in_one_even_after_a_fresh_start() -> None:
    a, b = pair()
    exchange(a, b)
    a.tell_gap(Gap("Quote", 5, 7, 2))
    a.tell_gap(Gap("Quote", 3, 6, 4))
    a.send(events(1))
    assert a.next_frame() is not None
    a.tell_gap(Gap("Quote", 8, 9, 1))
    reborn = Link(3)
    meet(a, reborn)
    assert exchange(a, reborn)[1] == [Gap("Quote", 3, 9, 7), events(1)]
