"""Services of a broker: each against the recursion of its queue, and one lane's effect on another."""

import heapq
import itertools
import random
from collections.abc import Sequence

import pytest
from draws import SEED
from simulated import JudgedOverlay, publish

from covey.matcher import EventType, parse
from covey.overlay.core.messages import Action, Message, Publish, Update
from covey.sim.experiments.runs.run import LinkControl
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.scenario.scenario import Scenario, ScenarioError
from covey.sim.simulator import Calibrated, Measured, Observer, Simulation, WireOptions
from covey.sim.simulator.clock import NS_PER_MS
from covey.sim.simulator.cores import SERVICES
from covey.sim.simulator.costs import constant

QUOTE = EventType("Quote", {"price": "int64"})
MODELS = SERVICES[1:]
COSTS_MS = {Publish: 3, Update: 7}


class Ends(Observer):
    """The ends of services, by kind of message."""

    def __init__(self, simulation: Simulation) -> None:
        self._clock = simulation.clock
        self.times: dict[type, list[int]] = {Publish: [], Update: []}

    def handled(
        self, broker: str, source: str, messages: Sequence[Message], actions: Sequence[Action]
    ) -> None:
        for message in messages:
            self.times.setdefault(type(message), []).append(self._clock.now_ns)


class OneBroker(JudgedOverlay):
    """A broker of one service, with a publisher and a subscriber at no distance."""

    def __init__(self, service: str) -> None:
        costs = Calibrated(
            {"subscribe": constant(0)}
            | {kind.__name__.lower(): constant(ms * NS_PER_MS) for kind, ms in COSTS_MS.items()}
        )
        super().__init__(engine="naive", costs=costs, service=service, wire=WireOptions(delay_ns=0))
        self.build(1)
        self.publisher, self.subscriber = self.client("p", "b1"), self.client("s", "b1")
        self.publisher.advertise(QUOTE)
        self.subscription = self.subscriber.subscribe(parse("price < $limit", QUOTE), {"limit": 10})
        self.run()
        self.start_ns = self.clock.now_ns
        self.ends = Ends(self.simulation)
        self.simulation.observers.append(self.ends)
        self._limit = 10

    def publish(self) -> None:
        publish(self.publisher, QUOTE, 5)

    def update(self) -> None:
        self._limit += 1
        self.subscriber.update(self.subscription, {"limit": self._limit})

    def rest(self) -> dict[type, list[int]]:
        """The ends of services, in milliseconds since the start."""
        self.run()
        self.check()
        return {
            kind: [(at - self.start_ns) / NS_PER_MS for at in times]
            for kind, times in self.ends.times.items()
        }


def expected_ends(service: str, arrivals: list[tuple[float, type]]) -> dict[type, list[float]]:
    """By queues of constant service times, with priorities that interrupt nothing."""
    ends: dict[type, list[float]] = {Publish: [], Update: []}
    if service == "two-lanes":
        for kind in ends:
            free_ms = 0.0
            for at, _ in [arrival for arrival in arrivals if arrival[1] is kind]:
                free_ms = max(free_ms, at) + COSTS_MS[kind]
                ends[kind].append(free_ms)
        return ends
    waiting: list[tuple[bool, int, type]] = []
    pending, now_ms = list(enumerate(arrivals)), 0.0
    while pending or waiting:
        if not waiting:
            now_ms = max(now_ms, pending[0][1][0])
        while pending and pending[0][1][0] <= now_ms:
            number, (_, kind) = pending.pop(0)
            heapq.heappush(waiting, (service == "control-first" and kind is Publish, number, kind))
        kind = heapq.heappop(waiting)[2]
        now_ms += COSTS_MS[kind]
        ends[kind].append(now_ms)
    return ends


@pytest.mark.parametrize("service", MODELS)
def test_every_service_ends_when_its_queue_says(service: str) -> None:
    """Poisson arrivals that load the broker to 70 %, two lanes to 60 and 80 % each."""
    draw, broker = random.Random(SEED), OneBroker(service)
    load = 0.7 if service != "two-lanes" else 1.4
    clock, arrivals, now_ms = broker.simulation.clock, [], 0.0
    while len(arrivals) < 400:
        # Frames of one client within a millisecond leave it together: these are wider apart.
        now_ms += 1.0 + draw.expovariate(load / 5)
        kind = draw.choice((Publish, Update))
        arrivals.append((round(now_ms * NS_PER_MS) / NS_PER_MS, kind))
        clock.at(
            broker.start_ns + round(now_ms * NS_PER_MS), broker.publish if kind is Publish else broker.update
        )
    ends, expected = broker.rest(), expected_ends(service, arrivals)
    for kind, times in expected.items():
        assert ends[kind] == pytest.approx(times, abs=1e-5)
    work_ms = sum(COSTS_MS[kind] for _, kind in arrivals)
    assert broker.simulation.busy_ns["broker/b1"] == work_ms * NS_PER_MS


@pytest.mark.parametrize(
    ("service", "event_ms", "last_update_ms"),
    [("fifo", 73, 70), ("control-first", 73, 70), ("two-lanes", 4, 70)],
)
def test_a_full_lane_of_control_stops_events_in_one_lane_only(
    service: str, event_ms: int, last_update_ms: int
) -> None:
    broker = OneBroker(service)
    for other in range(10):
        client = broker.simulation.join(f"client/o{other}", "broker/b1")
        client.subscribe(parse("price > $limit", QUOTE), {"limit": 100 + other})
    broker.simulation.run()
    broker.start_ns = broker.simulation.clock.now_ns
    for client in list(broker.simulation.clients.values())[2:]:
        client.update(1, {"limit": 200})
    broker.simulation.clock.at(broker.start_ns + NS_PER_MS, broker.publish)
    ends = broker.rest()
    assert ends[Update][-1] == last_update_ms
    assert ends[Publish] == [event_ms]


def test_events_that_wait_yield_to_control() -> None:
    ends = {}
    for service in MODELS:
        broker = OneBroker(service)
        for number in range(5):
            broker.simulation.clock.at(broker.start_ns + 2 * number * NS_PER_MS, broker.publish)
        broker.simulation.clock.at(broker.start_ns + 4 * NS_PER_MS, broker.update)
        ends[service] = broker.rest()
    assert {service: times[Update] for service, times in ends.items()} == {
        "fifo": [16],  # behind three events
        "control-first": [13],  # behind the one in service
        "two-lanes": [11],
    }
    assert {service: times[Publish][-1] for service, times in ends.items()} == {
        "fifo": 22,
        "control-first": 22,
        "two-lanes": 15,
    }


@pytest.mark.parametrize("service", MODELS)
def test_a_client_that_leaves_takes_its_messages_with_it(service: str) -> None:
    """Its messages take effect though they wait when the session ends."""
    broker = OneBroker(service)
    for _ in range(4):
        broker.publish()
        broker.update()
    broker.simulation.leave("client/s")
    broker.simulation.leave("client/p")
    broker.rest()
    assert len(broker.simulation.brokers["broker/b1"].core.tables.registry) == 0
    assert broker.simulation.busy_ns["broker/b1"] == 4 * (3 + 7) * NS_PER_MS


@pytest.mark.parametrize("service", MODELS)
@pytest.mark.parametrize("again", [True, False])
def test_events_before_and_behind_an_advertise_arrive(service: str, again: bool) -> None:
    """Also where it follows an Unadvertise that has moved behind events."""
    broker = OneBroker(service)
    for _ in range(3):
        broker.publish()
    if again:
        broker.publisher.unadvertise(QUOTE.name)
    broker.publisher.advertise(QUOTE if again else EventType("Trade", {"size": "int64"}))
    broker.publish()
    broker.rest()
    assert broker.judge.delivered_events == 4


CHANGES: dict[str, dict[str, object]] = {
    "at": {},
    "static": {"routing": "static"},
    "unsubscribe-first": {"routing": "static", "resubscribe": "unsubscribe-first"},
    "htm": {"load": "highway", "publishers": 24, "event_rate": 10.0, "update_rate": 8.0},
    "faults": {"loss": 0.02, "jitter_ms": 5.0, "partitions": 2, "window": 4},
    "market": {"load": "market", "engine": "poset", "batch": 2, "window": 8},
}
RARE = [*itertools.product(CHANGES, MODELS)]
OFTEN = RARE[0], RARE[4], RARE[8], *RARE[12:15], RARE[15]


@pytest.mark.parametrize(
    ("name", "service"),
    [pytest.param(*each, marks=[] if each in OFTEN else [pytest.mark.thorough]) for each in RARE],
)
def test_a_run_under_every_service_is_judged_without_violations(name: str, service: str) -> None:
    scenario = Scenario(brokers=8, publishers=3, subscribers=40, types=6, duration_s=0.6, event_rate=40.0)
    costs = Calibrated({"publish": constant(2e6), "subscribe": constant(1e6)})
    report = SimulatedRun(scenario.having(service=service, **CHANGES[name]), costs=costs).run()
    assert report.findings == []
    assert report.delivered > 20
    assert 0 < report.busiest_share <= (2 if service == "two-lanes" else 1)


def test_updates_that_wait_for_a_link_are_merged_or_not() -> None:
    """Updates wait during partitions: merged, fewer of them reach the brokers. Links merge them under any
    service."""
    scenario = Scenario(brokers=6, publishers=2, subscribers=10, types=2, update_rate=50.0, partitions=8)
    scenario = scenario.having(duration_s=1.0, event_rate=2.0, service="two-lanes")
    work = {}
    for merge in (True, False):
        costs = Calibrated({"publish": constant(1e5), "subscribe": constant(1e5)})
        summary = SimulatedRun(scenario.having(merge=merge), costs=costs).run()
        assert summary.findings == []
        work[merge] = summary.work["Update"]["messages"]
    assert work[True] < work[False]


def delivered_at_rest(merge: bool) -> tuple[dict[str, list[int]], int]:
    """By client, the delivered prices of events published after all changes took effect; and the number of
    updates over links. Changes come in bursts while links are partitioned."""
    draw, control, prices = random.Random(SEED), LinkControl(), dict[str, list[int]]()
    overlay = JudgedOverlay(engine="naive", link={"merge_updates": merge})
    overlay.simulation.observers.append(control)
    overlay.build(3)
    publisher = overlay.client("p", "b3")
    publisher.advertise(QUOTE)
    subscribers = []
    for number in range(4):
        client = overlay.client(f"s{number}", f"b{1 + number // 2}")
        client.subscribe(parse("price >= $low and price < $high", QUOTE), {"low": 0, "high": 10})
        subscribers.append(client)
    overlay.run()
    for _ in range(5):
        for pair in overlay.simulation.links:
            overlay.simulation.partition(*pair, 200 * NS_PER_MS)
        for _ in range(30):
            low = draw.randrange(20)
            values = {"low": low, "high": low + draw.randrange(1, 10)}
            draw.choice(subscribers).update(1, dict(draw.sample(sorted(values.items()), draw.choice((1, 2)))))
            if draw.random() < 0.3:
                publish(publisher, QUOTE, draw.randrange(30))
            overlay.run(0.002)
        overlay.run()
        overlay.delivered.rows.clear()
        publish(publisher, QUOTE, *range(30))
        overlay.run()
        for client in subscribers:
            prices.setdefault(client.name, []).extend(overlay.delivered.values(client.name))
    overlay.check()
    return prices, control.by_kind["Update"]


@pytest.mark.random
def test_merged_updates_deliver_the_same_events_with_fewer_messages() -> None:
    """The final values count, whether brokers have seen those between or not."""
    merged, few = delivered_at_rest(True)
    unmerged, many = delivered_at_rest(False)
    assert merged == unmerged
    assert sum(map(len, merged.values())) > 0
    assert 0 < few < many


def test_measured_costs_are_not_known_beforehand() -> None:
    with pytest.raises(ScenarioError, match="service is 'fifo' and cpu is 'measured': expected free or"):
        Scenario(service="fifo", cpu="measured")
    with pytest.raises(ValueError, match="expected costs known before"):
        Simulation(costs=Measured(), service="fifo")


class Waiting(Observer):
    """The most events that waited or were served at the broker."""

    def __init__(self) -> None:
        self.most = self._now = 0

    def received(self, source: str, target: str, message: Message) -> None:
        if target == "broker/b1" and isinstance(message, Publish):
            self._now += 1
            self.most = max(self.most, self._now)

    def handled(
        self, broker: str, source: str, messages: Sequence[Message], actions: Sequence[Action]
    ) -> None:
        self._now -= sum(isinstance(message, Publish) for message in messages)


def test_lanes_of_the_open_loop_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Events at twice the broker's rate wait at their publisher."""
    monkeypatch.setattr("covey.sim.simulator.cores.FULL", 10)
    broker = OneBroker("two-lanes")
    for number in range(2_000):
        broker.simulation.clock.at(broker.start_ns + number * 3 * NS_PER_MS // 2, broker.publish)
    waiting = Waiting()
    broker.simulation.observers.append(waiting)
    broker.rest()
    assert 10 < waiting.most < 300
    assert broker.judge.delivered_events == 2_000
