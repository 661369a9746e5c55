"""The simulator: time, delays, loss, broken connections, crashes, and service times of messages."""

from simulated import JudgedOverlay, publish

from covey.matcher import EventType, parse
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.messages import Message, SyncBegin
from covey.sim.simulator import Calibrated, Observer, WireOptions
from covey.sim.simulator.clock import NS_PER_MS, Clock
from covey.sim.simulator.costs import Costs, constant
from covey.sim.simulator.observer import ObservedClient

QUOTE = EventType("Quote", {"price": "int64"})
BELOW = parse("price < $limit", QUOTE)


class Arrivals(Observer):
    """Deliveries with times, and the number of resynchronisations between brokers."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.prices: list[tuple[str, float, list[int]]] = []
        self.syncs = 0

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        prices = [row["price"] for row in action.batch.to_pylist()]
        self.prices.append((client.name, self.clock.now_ns / NS_PER_MS, prices))

    def received(self, source: str, target: str, message: Message) -> None:
        self.syncs += isinstance(message, SyncBegin) and source.startswith("broker/")


class Line(JudgedOverlay):
    """Brokers in a row, with a publisher at the first and a subscriber at the last, at rest."""

    def __init__(
        self, brokers: int = 3, *, costs: Costs | None = None, wire: WireOptions | None = None
    ) -> None:
        super().__init__(engine="naive", costs=costs, wire=wire)
        self.arrivals = Arrivals()
        self.arrivals.clock = self.clock
        self.simulation.observers.append(self.arrivals)
        self.build(brokers)
        self.publisher = self.client("p", "b1")
        self.subscriber = self.client("s", f"b{brokers}")
        self.publisher.advertise(QUOTE)
        self.subscription = self.subscriber.subscribe(BELOW, {"limit": 10})
        self.run()
        self.start_ms = self.clock.now_ns / NS_PER_MS

    def publish(self, *prices: int) -> None:
        publish(self.publisher, QUOTE, *prices)

    def rest(self) -> list[tuple[str, float, list[int]]]:
        """Check everything at rest; returns deliveries with times since the start."""
        self.run()
        self.check()
        return [(name, round(at - self.start_ms, 6), prices) for name, at, prices in self.arrivals.prices]


def test_simultaneous_actions_run_in_the_order_of_scheduling() -> None:
    clock, seen = Clock(), []
    clock.at(20, seen.append, "late")
    clock.at(10, seen.append, "a")
    clock.at(10, seen.append, "b")
    clock.at(10, lambda: clock.at(5, seen.append, "now"))
    clock.run(10)
    assert (seen, clock.now_ns) == (["a", "b", "now"], 10)
    clock.run()
    assert (seen, clock.now_ns, clock.idle) == (["a", "b", "now", "late"], 20, True)


def test_a_clock_reports_whether_only_polls_are_scheduled() -> None:
    clock, seen = Clock(), []
    clock.poll_at(10, lambda: clock.at(20, seen.append, "done"))
    assert (clock.only_polls, clock.idle) == (True, False)
    clock.run(10)
    assert not clock.only_polls
    clock.run()
    assert (seen, clock.only_polls, clock.idle) == (["done"], True, True)


def test_an_event_takes_the_delay_of_every_link() -> None:
    line = Line(3)
    line.publish(5, 50, 7)
    assert line.rest() == [("client/s", 40.0, [5, 7])]


def test_a_lost_frame_arrives_later_and_delays_those_behind_it() -> None:
    line = Line(3, wire=WireOptions(loss=0.5, retransmit_ns=200 * NS_PER_MS))
    for price in range(8):
        line.publish(price)
    arrived = line.rest()
    assert [price for _, _, prices in arrived for price in prices] == list(range(8))
    assert arrived[-1][1] > 240


def test_a_partitioned_link_resumes_without_loss_or_repetition() -> None:
    line = Line(3)
    syncs = line.arrivals.syncs
    line.simulation.partition("broker/b1", "broker/b2", 500 * NS_PER_MS)
    line.publish(1)
    line.simulation.run(line.simulation.clock.now_ns + 100 * NS_PER_MS)
    line.publish(2)
    arrived = line.rest()
    assert [price for _, _, prices in arrived for price in prices] == [1, 2]
    assert arrived[0][1] > 500
    assert line.arrivals.syncs == syncs, "a resumed link needs no resynchronisation"


def test_a_reconnected_client_receives_pending_events() -> None:
    line = Line(2)
    line.simulation.disconnect("client/s", 300 * NS_PER_MS)
    line.publish(3)
    ((_, at, prices),) = line.rest()
    assert (prices, at > 300) == ([3], True)


def test_a_restarted_broker_is_resynchronised() -> None:
    line = Line(3)
    syncs = line.arrivals.syncs
    line.simulation.crash("broker/b2", 100 * NS_PER_MS)
    line.simulation.run()
    assert line.arrivals.syncs > syncs
    line.judge.quiet()
    line.publish(4)
    assert [prices for _, _, prices in line.rest()] == [[4]]
    assert line.judge.expected_events == 1


def test_a_client_moves_with_its_subscriptions() -> None:
    line = Line(4)
    line.simulation.move("client/s", "broker/b2")
    line.simulation.run()
    line.subscriber.update(line.subscription, {"limit": 3})
    line.simulation.run()
    line.start_ms = line.simulation.clock.now_ns / NS_PER_MS
    line.publish(2, 5)
    assert line.rest() == [("client/s", 30.0, [2])]
    assert not line.simulation.brokers["broker/b4"].core.tables.registry.live


def test_a_vanished_client_is_removed_when_its_lease_expires() -> None:
    line = Line(2)
    line.simulation.vanish("client/s")
    line.simulation.run(line.simulation.clock.now_ns + 29_000 * NS_PER_MS)
    assert len(line.simulation.brokers["broker/b1"].core.tables.registry) == 1
    line.simulation.run()
    assert len(line.simulation.brokers["broker/b1"].core.tables.registry) == 0


def test_a_busy_broker_delays_messages() -> None:
    """Three wires of 10 ms; 8 ms for the first two events and 4 ms for the third, at each of two brokers."""
    line = Line(2, costs=Calibrated({"publish": constant(4e6)}))
    before_ns = line.simulation.busy_ns["broker/b1"]
    line.publish(1, 2)
    line.publish(3)
    assert line.rest() == [("client/s", 46.0, [1, 2]), ("client/s", 50.0, [3])]
    assert line.simulation.busy_ns["broker/b1"] - before_ns == 12 * NS_PER_MS


def test_busy_time_counts_work_as_it_is_done_and_ends_with_a_crash() -> None:
    line = Line(2, costs=Calibrated({"publish": constant(50e6)}))
    clock, before_ns = line.simulation.clock, line.simulation.busy_ns["broker/b1"]

    def worked_ms(until_ms: float) -> float:
        line.simulation.run(round((line.start_ms + until_ms) * NS_PER_MS))
        return (line.simulation.busy_ns["broker/b1"] - before_ns) / NS_PER_MS

    line.publish(1)
    assert [worked_ms(after) for after in (10, 15, 40, 60, 70)] == [0, 5, 30, 50, 50]
    line.publish(2)
    assert worked_ms(100) == 70
    line.simulation.crash("broker/b1", 10 * NS_PER_MS)
    assert worked_ms(105) == 70
    assert clock.now_ns == (line.start_ms + 105) * NS_PER_MS
