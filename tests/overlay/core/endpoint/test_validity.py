"""Validity periods at one endpoint: what changes them, and what they cost."""

import heapq
from typing import Any

import pytest

from covey.matcher import EventType, parse
from covey.overlay.core.endpoint import timers as timers_module
from covey.overlay.core.endpoint.clock import EndpointClock
from covey.overlay.core.endpoint.timers import Timers
from covey.overlay.core.endpoint.validity import AT_ONCE, Validity
from covey.overlay.core.messages import Refuse, Send, Subscribe, SyncEnd, Unsubscribe, Update

FILTER = parse("x > $least", EventType("T", {"x": "int64"}))
ME = "client/me"
SECOND = 1_000_000_000


def made() -> tuple[Validity, EndpointClock, Timers[tuple[str, str]]]:
    clock, timers = EndpointClock(5 * SECOND, 1_700_000_000 * SECOND), Timers[tuple[str, str]]()
    return Validity(clock, timers), clock, timers


def subscribe(epoch: int, subscription_id: int, seconds: int) -> Subscribe:
    return Subscribe(epoch, subscription_id, FILTER, {"least": 0}, seconds * SECOND)


def test_what_is_refused_has_no_period_and_what_replaces_or_cancels_ends_it() -> None:
    validity, _, timers = made()
    messages = [subscribe(1, 1, 10), subscribe(2, 2, 20), subscribe(3, 3, 30), subscribe(4, 4, 40)]
    refusal = Send(ME, Refuse(2, "INVALID_ARGUMENT", "no", 2))
    of_another = Send("client/other", Refuse(1, "INVALID_ARGUMENT", "no", 1))
    validity.handled(ME, messages, [refusal, of_another], (1, 3, 4))
    assert [validity.left_ns(ME, each) for each in (1, 2, 3, 4)] == [10 * SECOND, 0, 30 * SECOND, 40 * SECOND]
    assert timers.next_ns() == 15 * SECOND
    renewal = Update(5, 1, {}, valid_for_ns=50 * SECOND)
    validity.handled(ME, [renewal, Update(6, 3, {"least": 4}), Unsubscribe(7, 4)], [], (1, 3))
    assert [validity.left_ns(ME, each) for each in (1, 3, 4)] == [50 * SECOND, 30 * SECOND, 0]
    validity.handled(ME, [subscribe(8, 3, 0)], [], (1, 3))
    assert len(validity) == 1
    validity.handled(ME, [SyncEnd(9)], [], (3,))
    assert len(validity) == 0
    assert timers.next_ns() is None


def test_a_refused_renewal_changes_nothing() -> None:
    validity, _, _ = made()
    validity.handled(ME, [subscribe(1, 1, 10)], [], (1,))
    refusal = Send(ME, Refuse(2, "INVALID_ARGUMENT", "no", 1))
    validity.handled(ME, [Update(2, 1, {"least": 4}, valid_for_ns=90 * SECOND)], [refusal], (1,))
    assert validity.left_ns(ME, 1) == 10 * SECOND


@pytest.mark.parametrize("seconds", [0, 90])
def test_a_subscription_that_is_not_replaced_keeps_its_period(seconds: int) -> None:
    validity, _, _ = made()
    validity.handled(ME, [subscribe(1, 1, 10)], [], (1,))
    refusal = Send(ME, Refuse(2, "ALREADY_EXISTS", "no", 1))
    validity.handled(ME, [subscribe(2, 1, seconds)], [refusal], (1,))
    assert validity.left_ns(ME, 1) == 10 * SECOND


def test_a_subscription_that_begins_and_ends_in_one_call_has_no_period() -> None:
    validity, _, timers = made()
    validity.handled(ME, [subscribe(1, 1, 10), Unsubscribe(2, 1)], [], (1,))
    assert len(validity) == 0
    assert timers.next_ns() is None


def test_many_that_end_together_end_in_turns() -> None:
    validity, clock, timers = made()
    for each in range(3 * AT_ONCE):
        validity.set(ME, each, SECOND)
    clock.now_ns += SECOND - 1
    assert validity.take() == []
    clock.now_ns += 1
    turns = 0
    while ("validity", "") in timers:
        assert timers.take(clock.now_ns) == [("validity", "")]
        assert len(validity.take()) == AT_ONCE
        turns += 1
    assert turns == 3
    assert (len(validity), validity.expired) == (0, 3 * AT_ONCE)


def test_what_is_stored_is_a_time_of_the_clock_that_stamps_events() -> None:
    """The other clock counts from the start of the machine."""
    validity, _, timers = made()
    validity.set(ME, 1, 60 * SECOND)
    stored_ns = validity.stored_ns(ME, 1)
    assert stored_ns == (1_700_000_000 + 65) * SECOND
    later = Validity(EndpointClock(2 * SECOND, (1_700_000_000 + 30) * SECOND), timers)
    later.restore(ME, 1, stored_ns)
    later.restore(ME, 2, 0)
    later.restore(ME, 3, (1_700_000_000 + 1) * SECOND)
    assert later.left_ns(ME, 1) == 33 * SECOND
    assert later.stored_ns(ME, 2) == later.left_ns(ME, 2) == 0
    assert later.left_ns(ME, 3) == 1, "it has ended"
    assert later.take() == [(ME, 3)]
    later.forget(ME)
    assert len(later) == 0


def test_a_subscription_that_does_not_end_yet_costs_nothing_per_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    validity, clock, _ = made()
    for each in range(10_000):
        validity.set(ME, each, (1_000 + each) * SECOND)
    pops = 0

    class Counted:
        heappush, heapify = staticmethod(heapq.heappush), staticmethod(heapq.heapify)

        @staticmethod
        def heappop(heap: list[Any]) -> Any:
            nonlocal pops
            pops += 1
            return heapq.heappop(heap)

    monkeypatch.setattr(timers_module, "heapq", Counted)
    for _ in range(100):
        clock.now_ns += SECOND
        validity.handled(ME, [Update(1, 7, {"least": 1})], [], ())
        assert validity.take() == []
    assert pops == 0
