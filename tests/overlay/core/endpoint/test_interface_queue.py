"""What a broker queues for an interface, and what it drops."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from core_endpoints import Noted, broker_endpoint, stored_session
from core_ends import LATE_NS, drain, meet

from covey.matcher import EventBatch, EventType
from covey.overlay.core.endpoint.connections import ConnectRequest
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.endpoint.limits import QueueLimits, SlowConsumer
from covey.overlay.core.link.event_queue import EventQueue, Whole
from covey.overlay.core.link.joining import part, pieces
from covey.overlay.core.link.link import Hello, Link
from covey.overlay.core.link.size import events_in, size_of
from covey.overlay.core.messages import Deliver, Gap, Publish, Unsubscribe

QUOTE = EventType("Quote", {"firm": "string", "price": "float64"})


class Silent:
    """A connection that transfers nothing."""

    def wake(self) -> None: ...

    def close(self, status: str, reason: str) -> None: ...

    def charge(self, permits: float) -> None: ...


SILENT = Silent()


def deliver(first: int, count: int, firm: str = "IBM") -> Deliver:
    rows = [{"firm": firm, "price": float(first + i)} for i in range(count)]
    batch = EventBatch.from_pylist(QUOTE, rows, publisher="p", first_sequence=first)
    return Deliver(batch, np.arange(count + 1) * 2, np.arange(2 * count), 1)


def queue(
    policy: SlowConsumer, key_of: Callable[[str], str | None] = lambda _: None, **options: int
) -> tuple[InterfaceQueue, list[bool]]:
    heard: list[bool] = []
    limits = QueueLimits(**{"bytes": 1 << 20, "held_bytes": 1 << 20, **options})
    return InterfaceQueue(
        "client/c",
        Link(1),
        changed=lambda o: heard.append(o.full),
        warn=lambda *_: None,
        policy=policy,
        limits=limits,
        key_of=key_of,
    ), heard


def lost(queued: InterfaceQueue) -> dict[bool, int]:
    """The number of reported lost events, by whether newer ones replace them."""
    other = Link(2)
    meet(queued.link, other)
    drain(other, queued.link)  # credit
    gaps = [message for message in drain(queued.link, other) if isinstance(message, Gap)]
    counts = {gap.conflated: gap.count for gap in gaps}
    assert len(counts) == len(gaps)
    return counts


def waiting(of: InterfaceQueue) -> list[int]:
    return [s for each in of.link.events.ready for s in each.message.batch.sequences().tolist()]


def test_blocking_turns_full_above_the_bound_and_back_at_half_of_it() -> None:
    blocked, heard = queue(SlowConsumer.BLOCK, events=10)
    other = Link(2)
    meet(blocked.link, other)
    drain(other, blocked.link)  # credit
    blocked.attach(SILENT)
    for first in (0, 5, 10):
        assert blocked.send(deliver(first, 5))
    assert (blocked.full, heard[-1], blocked.full_types) == (True, True, ["Quote"])
    drain(blocked.link, other)
    assert not blocked.received()
    assert blocked.full  # it has not said that it has anything
    other.handle_timer(LATE_NS)
    drain(other, blocked.link)
    assert blocked.received()
    assert (blocked.full, heard[-1], blocked.full_types) == (False, False, [])


def test_a_full_queue_asks_for_an_acknowledgement() -> None:
    """Else its sources would wait for a lazy acknowledgement, however fast the client reads."""
    blocked, _ = queue(SlowConsumer.BLOCK, events=10)
    other = Link(2)
    meet(blocked.link, other)
    drain(other, blocked.link)
    blocked.attach(SILENT)
    blocked.send(deliver(0, 11))
    assert blocked.full
    drain(blocked.link, other)
    drain(other, blocked.link)
    assert blocked.received()
    assert not blocked.full


def test_a_full_queue_blocks_no_other_type_when_the_peer_holds_what_fills_it() -> None:
    """Nothing was in flight, so no acknowledgement relaxed the queue."""
    one = Whole(deliver(0, 1)).held
    queued, _ = queue(SlowConsumer.BLOCK, bytes=10 * one, held_bytes=20 * one)
    for first in range(11):
        queued.send(deliver(first, 1))
    assert queued.full_types == ["Quote"]
    queued.set_held("Quote", True)
    assert (queued.full, queued.full_types) == (False, [])
    queued.set_held("Quote", False)
    assert queued.full_types == ["Quote"]


def test_a_held_type_is_dropped_for_itself_only() -> None:
    one = Whole(deliver(0, 1)).held
    queued, _ = queue(SlowConsumer.BLOCK, bytes=4 * one, held_bytes=3 * one)
    other = Link(2)
    meet(queued.link, other)
    drain(other, queued.link)  # credit
    queued.set_held("Trade", True)
    trade = EventType("Trade", {"price": "float64"})
    batch = EventBatch.from_pylist(trade, [{"price": 1.0}], publisher="p", first_sequence=0)
    queued.send(Publish(batch))
    for first in range(6):
        queued.send(deliver(first, 1))
        queued.link.next_frame()
    queued.stop_blocking("out of reach")  # more is in flight than may wait
    assert queued.link.events.count == 1
    assert queued.drops.by_reason == {}


def test_a_type_that_the_peer_holds_is_full_by_itself() -> None:
    one = Whole(deliver(0, 1)).held
    queued, _ = queue(SlowConsumer.BLOCK, bytes=10 * one, held_bytes=3 * one)
    queued.set_held("Quote", True)
    for first in range(3):
        queued.send(deliver(first, 1))
    assert queued.full_types == []
    queued.send(deliver(3, 1))
    assert (queued.full, queued.full_types) == (False, ["Quote"])
    queued.stop_blocking("out of reach")
    assert (queued.full_types, queued.link.events.count) == ([], 3)
    queued.send(deliver(4, 1))
    assert queued.drops.by_reason == {"out of reach, oldest dropped": 2}
    queued.attach(SILENT)
    queued.send(deliver(5, 1))
    assert queued.full_types == ["Quote"]
    queued.set_held("Quote", False)
    assert queued.full_types == []
    assert waiting(queued) == [2, 3, 4, 5]


def test_a_client_is_told_what_it_lost() -> None:
    other = Link(2)
    lossy, _ = queue(SlowConsumer.DROP_OLDEST, events=2)
    for first, at_ns in ((0, 100), (1, 200), (2, 300), (3, 400)):
        message = deliver(first, 1)
        batch = message.batch.stamped(ingress_ns=at_ns)
        lossy.send(Deliver(batch, message.offsets, message.ids, message.epoch))
    meet(lossy.link, other)
    drain(other, lossy.link)
    told, *events = drain(lossy.link, other)
    assert told == Gap("Quote", 100, 200, 2)
    assert sum(events_in(message) for message in events) == 2


def test_dropping_the_newest_takes_as_many_as_there_is_room_for() -> None:
    newest, heard = queue(SlowConsumer.DROP_NEWEST, events=7)
    for first in (0, 5, 10):
        assert newest.send(deliver(first, 5))
    assert waiting(newest) == [0, 1, 2, 3, 4, 5, 6]
    assert newest.drops.by_reason == {"queue full, newest dropped": 8}
    assert newest.link.dropped == 8
    assert not any(heard)


def test_dropping_the_newest_counts_bytes_as_well() -> None:
    one = Whole(deliver(0, 1, "x" * 1000)).held
    newest, _ = queue(SlowConsumer.DROP_NEWEST, events=1000, bytes=8 * one)
    for first in range(0, 20, 4):
        assert newest.send(deliver(first, 4, "x" * 1000))
    kept = waiting(newest)
    assert kept == list(range(len(kept)))
    assert 4 <= len(kept) < 20
    assert newest.link.backlog_bytes <= 8 * one
    assert newest.drops.by_reason == {"queue full, newest dropped": 20 - len(kept)}
    assert newest.link.dropped == 20 - len(kept)


def test_dropping_the_oldest_keeps_the_newest() -> None:
    oldest, _ = queue(SlowConsumer.DROP_OLDEST, events=7)
    for first in (0, 5, 10):
        assert oldest.send(deliver(first, 5))
    assert waiting(oldest) == [10, 11, 12, 13, 14]
    assert oldest.drops.by_reason == {"queue full, oldest dropped": 10}


def test_the_disconnect_policy_ends_the_session() -> None:
    ended, _ = queue(SlowConsumer.DISCONNECT, events=7)
    assert ended.send(deliver(0, 5))
    assert not ended.send(deliver(5, 5))


def test_a_queue_disconnected_for_long_drops_the_oldest_and_blocks_nobody() -> None:
    away, heard = queue(SlowConsumer.BLOCK, events=10)
    for first in (0, 5, 10):
        away.send(deliver(first, 5))
    assert away.full
    away.stop_blocking("out of reach")
    assert (away.full, heard[-1]) == (False, False)
    away.send(deliver(15, 5))
    assert waiting(away) == list(range(10, 20))
    assert away.drops.by_reason == {"out of reach, oldest dropped": 10}
    away.discard("session ended")
    assert away.drops.by_reason["session ended"] == 10


def test_control_for_a_disconnected_interface_is_bounded() -> None:
    link = Link(1, max_control=5)
    away = InterfaceQueue(
        "broker/b2", link, changed=lambda _: None, warn=lambda *_: None, limits=QueueLimits(1 << 20, 1 << 20)
    )
    for epoch in range(20):
        away.send(Unsubscribe(epoch, epoch))
    assert link.queued_control == 0
    away.handshake = True  # a handshake is under way: it decides on what is known by now
    away.send(Unsubscribe(21, 21))
    assert link.peer_incarnation == 0


def test_large_messages_are_split_and_keep_their_subscriptions() -> None:
    whole = deliver(0, 50, firm="x" * 1_000)
    cut = pieces(whole, 10_000)
    assert len(cut) > 4
    assert all(size_of(piece) <= 10_000 for piece in cut)
    assert sum(events_in(piece) for piece in cut) == 50
    seen = [
        (int(piece.batch.sequences()[i]), piece.ids[piece.offsets[i] : piece.offsets[i + 1]].tolist())
        for piece in cut
        if isinstance(piece, Deliver)
        for i in range(len(piece.batch))
    ]
    assert seen == [(i, [2 * i, 2 * i + 1]) for i in range(50)]
    middle = part(Publish(whole.batch), 3, 5)
    assert isinstance(middle, Publish)
    assert middle.batch.sequences().tolist() == [3, 4]


def test_events_of_a_client_to_itself_are_dropped_while_its_queue_is_full() -> None:
    """Blocking would wait for itself."""
    blocked, _ = queue(SlowConsumer.BLOCK, events=7)
    assert blocked.send_events(deliver(0, 5), own=True)
    assert blocked.send(deliver(5, 5))
    assert blocked.full
    assert blocked.send_events(deliver(10, 5), own=True)
    assert blocked.send(deliver(15, 5))
    assert waiting(blocked) == [*range(10), *range(15, 20)]
    assert blocked.drops.by_reason == {"queue full, its own dropped": 5}
    assert blocked.link.dropped == 5


SHIP = EventType("Ship", {"id": "int64"}, key="id")


def ships(first: int, *ids: int, of: EventType = SHIP) -> Deliver:
    batch = EventBatch.from_pylist(of, [{"id": each} for each in ids], publisher="p", first_sequence=first)
    return Deliver(batch, np.arange(len(ids) + 1), np.zeros(len(ids), np.int64), 1)


def conflating(**options: int) -> InterfaceQueue:
    queued, _ = queue(SlowConsumer.CONFLATE, {"Ship": "id", "Plane": "id"}.get, **options)
    return queued


def test_conflation_keeps_the_last_event_of_each_key() -> None:
    queued = conflating(events=40)
    for first in range(0, 1_000, 10):
        assert queued.send(ships(first, *(each % 10 for each in range(first, first + 10))))
    assert len(waiting(queued)) <= 20
    assert waiting(queued)[-10:] == [*range(990, 1_000)]
    assert not queued.full_types
    conflated = 1_000 - len(waiting(queued))
    assert queued.drops.by_reason == {"conflated": conflated}
    assert lost(queued) == {True: conflated}


def test_a_client_that_keeps_up_gets_every_event_of_a_key() -> None:
    queued = conflating(events=100_000)
    queued.send(ships(0, *([7] * 4_096)))  # one batch, for which nothing has waited
    assert len(waiting(queued)) == 4_096
    queued.send(ships(4_096, 7))
    assert waiting(queued) == [4_096]


def test_keys_that_are_too_many_are_dropped_and_told_as_lost() -> None:
    queued = conflating(events=40)
    for each in range(100):
        queued.send(ships(2 * each, each, each))
        assert queued.link.events.count <= 40
    left = waiting(queued)
    assert left[-1] == 199
    told = lost(queued)
    assert told.keys() == {True, False}
    assert told[False] > 60
    assert told[True] + told[False] + len(left) == 200


@pytest.fixture
def conflations(monkeypatch: pytest.MonkeyPatch) -> list[EventQueue]:
    """The queue of each call of `EventQueue.conflate`."""
    calls: list[EventQueue] = []
    genuine = EventQueue.conflate
    monkeypatch.setattr(
        EventQueue, "conflate", lambda self, key_of: calls.append(self) or genuine(self, key_of)
    )
    return calls


def test_keys_that_nearly_fill_a_queue_are_not_looked_for_with_every_message(
    conflations: list[EventQueue],
) -> None:
    queued = conflating(events=1_000)
    queued.send(ships(0, *range(990)))
    for each in range(500):
        queued.send(ships(990 + 4 * each, *range(4 * each % 980, 4 * each % 980 + 4)))
    assert queued.link.events.count <= 1_000
    assert 1 < len(conflations) <= 2 + 2_000 // 250
    assert waiting(queued)[-4:] == [*range(2_986, 2_990)]


def stored(first: int, count: int) -> Deliver:
    return replace(deliver(first, count), offset=first + count)


def test_what_is_stored_makes_no_queue_full(conflations: list[EventQueue]) -> None:
    """A durable session behind in a stored type has room for other events."""
    keyed = conflating(events=1_000)
    keyed.send_stored(stored(0, 2_000))
    for each in range(100):
        keyed.send(ships(2_000 + each, each % 50))
    assert not conflations
    assert not keyed.drops.by_reason
    for each in range(100, 500):
        keyed.send(ships(2_000 + each, each % 50))
    assert 1 <= len(conflations) <= 5  # at 250 of its own, and again at twice what was left
    for policy in (SlowConsumer.DROP_OLDEST, SlowConsumer.DROP_NEWEST, SlowConsumer.BLOCK):
        other, _ = queue(policy, events=10, bytes=Whole(stored(0, 30)).held)
        other.send_stored(stored(0, 30))
        other.send(deliver(30, 5))
        assert waiting(other) == [*range(35)], policy
        assert not other.full
        other.set_held("Quote", True)
        other.set_held("Quote", False)
        other.send(deliver(35, 6))
        assert bool(other.drops.by_reason) is not (policy is SlowConsumer.BLOCK)
        assert other.full is (policy is SlowConsumer.BLOCK)
        events = other.link.events
        other.link.events.restart([])
        while events.ready:
            events.take(1, 0, alone=True)
        assert (events.bytes, events.count, events.stored_bytes, events.stored_count) == (0, 0, 0, 0)


def test_all_keys_are_looked_for_before_any_is_lost() -> None:
    queued = conflating(events=100)
    plane = EventType("Plane", {"id": "int64"}, key="id")
    queued.send(ships(0, 1, *([2] * 94), of=plane))
    queued.send(ships(95, 1, 2, 3, 4, 5, 6))
    assert waiting(queued) == [0, 94, *range(95, 101)]
    assert queued.drops.by_reason == {"conflated": 93}


def test_a_session_that_goes_on_has_the_policy_that_its_client_asks_for_now() -> None:
    """A restored one has had none; events of types without a key are never superseded."""
    endpoint = broker_endpoint("b1", event_types=[SHIP], storage=stored_session("client/c"))
    queued = endpoint.queues["client/c"]
    assert queued.durable
    for policy in (SlowConsumer.CONFLATE, SlowConsumer.BLOCK, SlowConsumer.CONFLATE):
        peer = ConnectRequest("client/c", Hello(7), durable=True, slow_consumer=policy)
        connection = Noted()
        endpoint.accept(peer, connection, 0)
        assert endpoint.queues["client/c"] is queued
        assert queued.policy is policy
        endpoint.lost("client/c", connection, 0)
    queued.limits = QueueLimits(bytes=1 << 20, held_bytes=1 << 20, events=40)
    for first in range(0, 100, 5):
        queued.send(deliver(first, 5))
        queued.send(ships(first, 1, 2, 1, 2, 1))
    assert queued.link.events.count <= 40
    assert queued.drops.by_reason.keys() == {"conflated", "queue full, oldest dropped"}
    assert not queued.full_types


def test_stored_events_of_a_held_type_hold_and_drop_nothing() -> None:
    """A brief absence of a link ended the broker by a timer, since none of the events could be dropped."""
    held, _ = queue(SlowConsumer.BLOCK, held_bytes=15_000)
    held.attach(SILENT)
    for first in range(0, 400, 100):
        held.send_stored(stored(first, 100))
    held.set_held("Quote", True)
    assert held.link.events.held_bytes("Quote") > 15_000
    assert held.full_types == []
    held.connection = None
    held.stop_blocking("out of reach")
    assert held.send(deliver(400, 100))
    assert held.drops.by_reason == {}
    assert held.send(deliver(500, 300))
    assert held.drops.by_reason == {"out of reach, oldest dropped": 100}
