"""The stored progress of receivers."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from core_endpoints import Noted
from tables import grown, tables

from covey.matcher import EventBatch, EventType
from covey.overlay.core.endpoint.durability import PROGRESS_NS, Durability
from covey.overlay.core.endpoint.ending import Validity
from covey.overlay.core.endpoint.interface_queue import Copies, InterfaceQueue
from covey.overlay.core.endpoint.limits import QueueLimits
from covey.overlay.core.endpoint.storage import Arrival, Storage, message_of
from covey.overlay.core.endpoint.timers import EndpointClock, Timers
from covey.overlay.core.link.link import Hello, Link
from covey.overlay.core.messages import Deliver, Expired, Gap, Receiver, Store
from covey.overlay.node.broker_storage import BrokerStorage, Retention
from covey.overlay.node.state_store import StateStore
from covey.sim.simulator.disk import SimulatedFiles


class _Storage:
    """Ten records of a type, of which four are on disk."""

    types = ("T",)
    saved: dict[tuple[str, str], int]

    unsynced = False

    def awaited(self) -> tuple[str, ...]:
        return ()

    def end(self, type_name: str) -> int:
        return 10

    def synced(self, type_name: str) -> int:
        return 4

    def cursor(self, interface: str, type_name: str) -> int:
        return 0

    def save_cursors(self, cursors: dict[tuple[str, str], int]) -> None:
        self.saved = dict(cursors)

    def trim(self, type_name: str, before: int) -> None:
        self.trimmed = before


def _queue(stored: int, last: int) -> Any:
    link = SimpleNamespace(stored={"T": stored}, incarnation=1, peer_incarnation=1)
    return SimpleNamespace(
        interface="client/c", durable=True, link=link, last_stored={"T": last}, behind={}, copies={}
    )


def _durability(
    storage: object, queues: dict[str, Any], timers: Timers[tuple[str, str]] | None = None
) -> Durability:
    timers = Timers() if timers is None else timers
    tables: Any = SimpleNamespace(durable={})
    return Durability(cast("Storage", storage), tables, queues, timers, Validity(EndpointClock(0), timers))


def test_a_session_begins_behind_all_that_was_stored_for_an_earlier_one_of_its_name() -> None:
    """Else a crash before its first acknowledgement would bring it events from before its start."""
    storage, queues = _Storage(), dict[str, Any]()
    durability = _durability(storage, queues)
    before = tables(durability)
    for _ in range(2):
        queue = queues["client/c"] = _queue(-1, -1)
        durability.begin(queue)
        assert storage.saved == {("client/c", "T"): 4}
        queue.last_stored["T"] = 9  # an event is on its way
        durability.save_cursors()
        assert storage.saved == {}
        assert storage.trimmed == 4
        durability.forget(queues.pop("client/c"))
        assert not grown(before, tables(durability))


def test_a_cursor_is_never_ahead_of_the_disk() -> None:
    """Else, after a crash, other events would get offsets below it, which that receiver never gets."""
    storage = _Storage()
    link = SimpleNamespace(stored={"T": 8})
    queue: Any = SimpleNamespace(
        interface="broker/b2", durable=True, link=link, last_stored={"T": 8}, behind={}, copies={}
    )
    durability = _durability(storage, {"broker/b2": queue})
    durability.save_cursors()
    assert storage.saved == {("broker/b2", "T"): 4}
    assert storage.trimmed == 4


def test_records_for_a_session_that_is_away_take_no_memory() -> None:
    """Brokers have thousands of such sessions; 200 of them took 270 MB."""
    storage = SimpleNamespace(types=("T",), awaited=tuple, append=lambda batch, receivers: 10)
    link = SimpleNamespace(backlog_bytes=0)
    queue: Any = SimpleNamespace(durable=True, connected=False, is_broker=False, link=link, behind={})
    durability = _durability(storage, {"client/c": queue})
    batch: Any = SimpleNamespace(event_type=SimpleNamespace(name="T"), count=1)
    for _ in range(2):
        durability.store(Store(batch, [Receiver("client/c", None)]))
    assert queue.behind == {"T": 10}


def test_the_progress_of_a_client_that_leaves_is_saved_once_the_disk_has_what_it_got() -> None:
    """Saved at the disconnection alone, progress ended at the disk's; a crash repeated the rest."""
    timers: Timers[tuple[str, str]] = Timers()
    durability = _durability(_Storage(), {}, timers)
    durability.disconnected("client/c", 100)
    for now_ns in (100, 200, 300):  # the disconnection, the sync that was under way, the next one
        assert timers.take(now_ns) == [("leaving", "")]
        durability.save_leaving()
        durability.synced(now_ns + 100)
    assert timers.next_ns == 200 + PROGRESS_NS


def test_what_a_client_that_leaves_costs_does_not_grow_with_the_others() -> None:
    """Of 10,000 clients that disconnect at once, each saved the progress of all."""
    storage = _Storage()
    asked: list[str] = []
    queues = {f"client/{i}": _queue(8, 8) for i in range(100)}
    durability = _durability(storage, queues)
    for interface, queue in queues.items():
        queue.interface = interface
        durability.disconnected(interface, 100)
        durability.save_leaving()
        asked += [name for name, _ in storage.saved]
    assert asked == [*queues]


@pytest.mark.parametrize(("sessions", "each"), [(600, 1), (1, 1_200)])
def test_events_of_many_matches_are_stored_in_records_that_the_log_takes(sessions: int, each: int) -> None:
    """A record exceeded the log's bounds, which ended the broker, also after each restart."""
    count, event_type = 4_096, EventType("T", {"x": "int64"})
    storage = BrokerStorage(
        {"T": Retention()}, lambda _: SimulatedFiles(1), StateStore(":memory:"), salt=1, now_ns=lambda: 1
    )
    batch = EventBatch.from_pylist(
        event_type, [{"x": x} for x in range(count)], publisher="p", first_sequence=1
    )
    odd = np.arange(1, count, 2)
    offsets, ids = np.arange(count + 1) * each, np.tile(np.arange(each), count)
    receivers = [Receiver(f"client/{i}", None, offsets, ids) for i in range(sessions)]
    receivers += [Receiver("client/odd", odd, np.arange(odd.size + 1), odd), Receiver("broker/b2", odd[:5])]
    link = SimpleNamespace(backlog_bytes=0)
    queues: dict[str, Any] = {
        to.interface: SimpleNamespace(durable=True, connected=False, is_broker=False, link=link, behind={})
        for to in receivers
    }
    _durability(storage, queues).store(Store(batch, tuple(receivers)))
    assert storage.end("T") > 1
    for to in (receivers[0], *receivers[-2:]):
        got, matched, offset = [], [], 0
        while offset < storage.end("T"):
            records, offset, lost = storage.read("T", offset, 1, to.interface)
            assert lost == 0
            for record in records:
                message = message_of(record, record.receivers[0])
                got += [row["x"] for row in message.batch.to_pylist()]
                matched += message.ids.tolist() if isinstance(message, Deliver) else []
        assert got == (list(range(count)) if to.rows is None else to.rows.tolist())
        assert matched == ([] if to.ids is None else to.ids.tolist())


def _reader() -> tuple[InterfaceQueue, Noted]:
    """A connected session with nothing in flight."""
    queue = InterfaceQueue(
        "client/c",
        Link(1),
        changed=lambda _: None,
        warn=lambda *_: None,
        limits=QueueLimits(1 << 20, 1 << 20),
        durable=True,
    )
    queue.link.resume(Hello(2, credit=1 << 20))
    connection = Noted()
    queue.attach(connection)
    assert queue.link.next_frame() is not None
    return queue, connection


def test_a_session_hears_of_what_is_not_among_records_of_others() -> None:
    """The end of a subscription, or a gap, waited until something else was sent."""
    records = [(5, 0), (10, 3)]
    storage = SimpleNamespace(
        types=("T",),
        awaited=tuple,
        end=lambda _: 10,
        cursor=lambda *_: 0,
        read=lambda *_: ([], *records.pop(0)),
    )
    queue, connection = _reader()
    queue.behind = {"T": 0}
    queue.send(Expired(1, "T"))
    timers = Timers[tuple[str, str]]()
    durability = _durability(storage, {"client/c": queue}, timers)
    connection.awake = False
    durability.refill(queue, 1)
    assert timers.take(1) == [("refill", "client/c")]
    assert not connection.awake
    durability.refill(queue, 1)
    assert timers.next_ns is None
    assert connection.awake
    frame = queue.link.next_frame()
    assert frame is not None
    assert {each.__class__ for each in frame.messages} == {Expired, Gap}


def test_what_a_session_has_brought_of_one_type_is_over_before_all_types_are() -> None:
    """After a restart all of it was read again, however long ago it was acknowledged."""
    saved: dict[tuple[str, str], int] = {}
    storage = SimpleNamespace(
        types=("T", "U"), awaited=tuple, save_cursors=saved.update, save_arrival=lambda *_: None
    )
    storage.cursor = lambda interface, name: saved.get((interface, name), 0)
    queue, _ = _reader()
    queue.behind = {"T": 9, "U": 9}
    queue.copies = {"T": Copies("copies/c", 7, 7), "U": Copies("copies/c", 2, 7)}
    queue.last_stored = queue.link.stored = {"T": 6}
    durability = _durability(storage, {"client/c": queue})
    durability.refill(queue, 1)
    assert [*queue.copies] == ["U"]
    restored = durability.copies(Arrival("copies/c", {"T": 7, "U": 7}))
    assert (restored["T"].next, restored["U"].next) == (7, 0)
