"""Simulated clients whose users do not read, or publish what they read."""

from collections import defaultdict

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.client.actions import DeliverTo
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.clock import NS_PER_S
from covey.sim.simulator.observer import Observer
from covey.sim.simulator.simulation import Simulation
from covey.sim.topology import make_topology

PING = EventType("Ping", {"number": "int64"})
PONG = EventType("Pong", {"number": "int64"})


class Seen(Observer):
    """The numbers that each client got, in order."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = defaultdict(list)

    def delivered(self, client: object, action: DeliverTo) -> None:
        assert isinstance(client, SimulatedClient)
        self.numbers[client.name] += action.batch.record_batch.column("number").to_pylist()


def pings(*numbers: int) -> EventBatch:
    return EventBatch.from_pylist(PING, [{"number": number} for number in numbers])


def simulation(seen: Seen, **link: int) -> Simulation:
    built = Simulation(1, engine="naive", observers=[seen], link=link)
    built.build(make_topology("line", 2))
    return built


def test_a_client_that_stops_reading_gets_its_events_when_it_reads_again() -> None:
    seen = Seen()
    overlay = simulation(seen, window_bytes=500)
    feed, reader = overlay.join("client/feed", "broker/b1"), overlay.join("client/reader", "broker/b2")
    feed.advertise(PING)
    reader.subscribe(parse("number >= 0", PING))
    overlay.run(overlay.clock.now_ns + NS_PER_S)
    reader.stop_reading()
    for number in range(50):
        feed.publish(pings(number))
        overlay.run(overlay.clock.now_ns + NS_PER_S // 100)
    assert not seen.numbers
    assert overlay.brokers["broker/b2"].endpoint.queues["client/reader"].inspect()["queued_events"] > 0
    reader.resume_reading()
    overlay.run(overlay.clock.now_ns + NS_PER_S)
    assert seen.numbers == {"client/reader": [*range(50)]}


def test_a_client_publishes_what_it_reads_one_at_a_time_where_its_outbox_is_small() -> None:
    seen = Seen()
    overlay = simulation(seen)
    feed = overlay.join("client/feed", "broker/b1")
    echo = overlay.join("client/echo", "broker/b2", outbox_events=1)
    feed.advertise(PING)
    echo.advertise(PONG)
    echo.republishes = PONG
    echo.subscribe(parse("number >= 0", PING))
    feed.subscribe(parse("number >= 0", PONG))
    overlay.run(overlay.clock.now_ns + NS_PER_S)
    for number in range(30):
        feed.publish(pings(number))
    overlay.run(overlay.clock.now_ns + 10 * NS_PER_S)
    assert seen.numbers == {"client/echo": [*range(30)], "client/feed": [*range(30)]}
