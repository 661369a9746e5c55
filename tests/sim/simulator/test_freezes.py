"""Freezes that random histories seldom meet: absent, and present when their mechanism is switched off."""

from typing import Any

import pytest

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.flow import Holds, WindowSizes
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.endpoint.limits import SessionLimits
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import Hold, Message, Publish
from covey.sim.simulator import Observer, Simulation, WireOptions
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S
from covey.sim.simulator.observer import ObservedClient
from covey.sim.topology import make_topology

Patch = pytest.MonkeyPatch
QUOTE = EventType("Quote", {"price": "float64", "text": "string"})
LOCAL = EventType("Local", {"at_ns": "int64"})
DELAY_NS = 2 * NS_PER_MS


class Delays(Observer):
    """The delays of events of `LOCAL`."""

    def __init__(self) -> None:
        self.delays_ns: list[int] = []
        self.now_ns = lambda: 0

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        if action.batch.event_type.name == LOCAL.name:
            self.delays_ns += [self.now_ns() - int(row["at_ns"]) for row in action.batch]


def line(brokers: int, options: EndpointOptions, **others: Any) -> tuple[Simulation, Delays]:
    """Brokers in a row, with the delays of local events."""
    seen = Delays()
    wire = WireOptions(delay_ns=DELAY_NS)
    simulation = Simulation(1, engine="naive", observers=[seen], options=options, wire=wire, **others)
    seen.now_ns = lambda: simulation.clock.now_ns
    simulation.build(make_topology("line", brokers))
    return simulation, seen


def latest_local_event(updates: int) -> int:
    """The longest delay of events of a pair at one broker, while a client beside them sends updates to a
    neighbour that is stopped for three seconds; ten seconds if an event does not arrive."""
    simulation, seen = line(2, EndpointOptions(max_queued_control=100, max_unsettled=20))
    feed, mover = simulation.join("client/p", "broker/b2"), simulation.join("client/m", "broker/b1")
    here, there = simulation.join("client/h", "broker/b1"), simulation.join("client/t", "broker/b1")
    feed.advertise(QUOTE)
    here.advertise(LOCAL)
    simulation.run(NS_PER_S)
    filter = parse("price between $low and $high", QUOTE)
    moved = [mover.subscribe(filter, {"low": 2.0 * i, "high": 2.0 * i + 1}) for i in range(200)]
    there.subscribe(parse("", LOCAL))
    simulation.run(2 * NS_PER_S)
    simulation.brokers["broker/b2"].pause(3 * NS_PER_S)
    for step in range(200):
        for i in range(updates):
            place = (step * updates + i) % len(moved)
            low = 2.0 * place + (step % 2 + 1) / 4
            mover.update(moved[place], {"low": low, "high": low + 1.0})
        here.publish(EventBatch.from_pylist(LOCAL, [{"at_ns": simulation.clock.now_ns}]))
        simulation.run(simulation.clock.now_ns + 10 * NS_PER_MS)
    simulation.run(10 * NS_PER_S)
    return max(seen.delays_ns) if len(seen.delays_ns) == 200 else 10 * NS_PER_S


def test_a_flood_of_updates_towards_a_stopped_neighbour_delays_no_pair_beside_it(monkeypatch: Patch) -> None:
    assert latest_local_event(10) == 2 * DELAY_NS
    genuine = BrokerEndpoint.delay_ns

    def delay_ns(self: BrokerEndpoint[Message], interface: str, now_ns: int) -> int:
        return max(genuine(self, each, now_ns) for each in self.queues if each.startswith("client/"))

    monkeypatch.setattr(BrokerEndpoint, "delay_ns", delay_ns)
    assert latest_local_event(10) > NS_PER_S


SHARED = WindowSizes(first=4 << 10, publishers=16 << 10, least=1 << 10)
WIDE = WindowSizes(first=64 << 10, publishers=64 << 20, least=64 << 10)


def most_bytes_waiting(publishers: int, sizes: WindowSizes) -> int:
    """The most bytes of credit that wait for a silent client, while so many clients publish."""
    sessions = SessionLimits(queue_bytes=8 << 10, stall_limit_s=1000.0)
    link = {"window_bytes": 64 << 10, "max_frame_bytes": 4 << 10}
    simulation, _ = line(1, EndpointOptions(sessions=sessions, windows=sizes), link=link)
    lazy = simulation.join("client/lazy", "broker/b1")
    feeds = [simulation.join(f"client/p{i}", "broker/b1") for i in range(publishers)]
    for feed in feeds:
        feed.advertise(QUOTE)
    lazy.subscribe(parse("", QUOTE))
    simulation.run(NS_PER_S)
    batch = EventBatch.from_pylist(QUOTE, [{"price": 1.0, "text": "x" * 200}])
    for _ in range(30):  # until what was granted before they shared is used up
        for feed in feeds:
            feed.publish(batch)
        simulation.run(simulation.clock.now_ns + 10 * DELAY_NS)
    lazy.stop_reading()
    for feed in feeds:
        for _ in range(200):
            feed.publish(batch)
    most = 0
    for _ in range(100):
        simulation.run(simulation.clock.now_ns + DELAY_NS)
        waiting = simulation.brokers["broker/b1"].endpoint.queues["client/lazy"].link.backlog_events
        most = max(most, waiting)
    return most * size_of(Publish(batch))


def test_publishers_share_what_may_wait_for_a_client_that_does_not_read() -> None:
    allowed = (8 << 10) + 2 * (30 << 10)  # the bound, and the least window of each, twice for the last event
    assert most_bytes_waiting(30, SHARED) < allowed
    assert most_bytes_waiting(30, WIDE) > 4 * allowed


def events_of_the_other_reader(limit_s: float) -> int:
    """Of a thousand events, how many reach a reader in ten seconds while another never reads."""
    options = EndpointOptions(sessions=SessionLimits(queue_events=20, stall_limit_s=limit_s))
    simulation, seen = line(2, options, link={"window_bytes": 2 << 10})
    feed = simulation.join("client/p", "broker/b1")
    readers = [simulation.join(f"client/r{i}", "broker/b2") for i in range(2)]
    feed.advertise(LOCAL)
    for reader in readers:
        reader.subscribe(parse("", LOCAL))
    simulation.run(NS_PER_S)
    readers[0].stop_reading()
    for _ in range(1000):
        feed.publish(EventBatch.from_pylist(LOCAL, [{"at_ns": simulation.clock.now_ns}]))
        simulation.run(simulation.clock.now_ns + NS_PER_MS)
    simulation.run(simulation.clock.now_ns + 9 * NS_PER_S)
    return len(seen.delays_ns)


def test_a_client_that_never_reads_holds_the_others_for_the_stall_limit_at_most() -> None:
    assert events_of_the_other_reader(limit_s=2.0) == 1000
    assert events_of_the_other_reader(limit_s=1000.0) < 900


def has_published_to_itself() -> bool:
    """Whether a client that subscribes to its own events, and reads none, gets all of them out."""
    options = EndpointOptions(sessions=SessionLimits(queue_events=20, stall_limit_s=1000.0))
    simulation, _ = line(1, options, link={"window_bytes": 2 << 10})
    client = simulation.join("client/c", "broker/b1")
    client.advertise(QUOTE)
    client.subscribe(parse("", QUOTE))
    simulation.run(NS_PER_S)
    client.stop_reading()
    for _ in range(500):
        client.publish(EventBatch.from_pylist(QUOTE, [{"price": 1.0, "text": "x" * 100}]))
    simulation.run(20 * NS_PER_S)
    return client.endpoint.idle


def test_a_client_with_a_full_queue_is_not_held_for_its_own_sake(monkeypatch: Patch) -> None:
    assert has_published_to_itself()

    def balance(self: Holds, type_name: str) -> None:
        full = self._full.get(type_name, {})
        for source, told in self._sources.get(type_name, {}).items():
            if bool(full) != told:
                self._sources[type_name][source] = bool(full)
                self._tell(source, Hold(type_name, bool(full)))

    genuine = InterfaceQueue.send
    monkeypatch.setattr(InterfaceQueue, "send", lambda self, message, *, own=False: genuine(self, message))
    monkeypatch.setattr(Holds, "_balance", balance)
    assert not has_published_to_itself()
