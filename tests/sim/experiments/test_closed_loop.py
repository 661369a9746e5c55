"""Publishers with a window: events in flight, throughput against the closed form, and draws."""

import random
from typing import Any

import pytest
from commands import run

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.messages import Deliver, Message
from covey.sim.experiments.runs.simulated import ClosedLoop, SimulatedRun, UnderWay
from covey.sim.scenario.loads import Load, SubscriberState
from covey.sim.scenario.scenario import Scenario, ScenarioError
from covey.sim.simulator import Calibrated, Observer, Simulation, WireOptions
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S
from covey.sim.simulator.costs import constant
from covey.sim.simulator.observer import ObservedClient
from covey.sim.topology import make_topology

QUOTE = EventType("Quote", {"price": "int64"})
SMALL = Scenario(brokers=12, publishers=3, subscribers=60, types=6, duration_s=1.0, event_rate=1e6, window=5)


class Prices(Load):
    def publisher(self, number: int) -> tuple[str, list[EventType]]:
        return "b1", [QUOTE]

    def events(self, number: int, count: int, draw: random.Random | None = None) -> EventBatch:
        return EventBatch.from_pylist(QUOTE, [{"price": 5}] * count)

    def subscriber(self, number: int) -> SubscriberState:
        raise NotImplementedError

    def next_values(self, number: int, subscriber: SubscriberState) -> tuple[dict[str, Any], str]:
        raise NotImplementedError


class Window(Observer):
    """Of a publisher with one subscriber: the most events in flight, and the arrivals."""

    def __init__(self) -> None:
        self.published_events = self.arrived = self.most = 0
        self.sequences: list[int] = []

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        self.published_events += len(batch)
        self.most = max(self.most, self.published_events - self.arrived)

    def received(self, source: str, target: str, message: Message) -> None:
        if isinstance(message, Deliver):
            self.arrived += len(message.batch)
            self.sequences += message.batch.sequences().tolist()


@pytest.mark.parametrize(
    ("window", "batch", "per_s"), [(1, 1, 1000 / 23), (4, 1, 4000 / 23), (2, 2, 2000 / 26)]
)
def test_throughput_is_that_of_the_closed_form(window: int, batch: int, per_s: float) -> None:
    """A cycle is two wires of 10 ms, and 3 ms per event at the broker, which is mostly idle."""
    scenario = Scenario(brokers=1, publishers=1, window=window, batch=batch, event_rate=1e9)
    costs = Calibrated({"publish": constant(3e6), "subscribe": constant(0)})
    simulation, seen = Simulation(1, engine="naive", costs=costs, wire=WireOptions(10 * NS_PER_MS)), Window()
    simulation.build(make_topology("line", 1))
    publisher, subscriber = (simulation.join(f"client/{name}", "broker/b1") for name in "ps")
    publisher.advertise(QUOTE)
    subscriber.subscribe(parse("price < $limit", QUOTE), {"limit": 10})
    simulation.run()
    loop = ClosedLoop(scenario, Prices(), simulation.clock, lambda _, events: publisher.publish(events))
    simulation.observers += [seen, loop.under_way]
    start_ns = simulation.clock.now_ns
    loop.start(["p"], start_ns + 100 * NS_PER_S)
    simulation.run(start_ns + 2 * NS_PER_S)
    before, busy_ns = seen.arrived, simulation.busy_ns["broker/b1"]
    simulation.run(start_ns + 22 * NS_PER_S)
    assert (seen.arrived - before) / 20 == pytest.approx(per_s, abs=window / 20)
    share = (simulation.busy_ns["broker/b1"] - busy_ns) / (20 * NS_PER_S)
    assert share == pytest.approx(per_s * 3 / 1000, abs=0.001)
    assert seen.most == window
    assert seen.sequences == list(range(1, len(seen.sequences) + 1))
    loop.start(["p"], simulation.clock.now_ns)
    simulation.run()
    assert loop.under_way.by_publisher == {"p": 0}


def test_event_rate_is_the_highest_rate() -> None:
    few = SMALL.having(brokers=4, subscribers=6, event_rate=20.0, duration_s=2.5)
    report = SimulatedRun(few.having(window=1000)).run()
    assert report.published == pytest.approx(3 * 20 * 2.5, rel=0.3)
    waiting = SimulatedRun(few.having(window=1)).run()
    assert 0 < waiting.published < report.published


@pytest.mark.parametrize(
    "scenario",
    [
        SMALL,
        SMALL.having(routing="static", batch=2),
        SMALL.having(loss=0.02, jitter_ms=5.0, partitions=2),
        SMALL.having(load="highway", publishers=16, update_rate=8.0, duration_s=0.2),
        SMALL.having(load="market", engine="poset", warm_up_s=0.5),
    ],
    ids=["at", "static", "faults", "htm", "market"],
)
def test_no_window_is_exceeded_and_none_leaks(scenario: Scenario) -> None:
    simulated = SimulatedRun(scenario.having(duration_s=scenario.duration_s / 2))
    under_way, most = UnderWay(), [0]

    class Most(Observer):
        def published(self, client: ObservedClient, batch: EventBatch) -> None:
            before = under_way.by_publisher.get(batch.publisher, 0)
            most[0] = max(most[0], before + len(batch))

    simulated.simulation.observers += [Most(), under_way]
    report = simulated.run()
    assert not any(under_way.by_publisher.values())
    assert report.findings == []
    assert report.published > 25
    assert scenario.window - scenario.batch < most[0] <= scenario.window


def test_systems_draw_the_same_events_and_updates() -> None:
    """The events of a publisher, and all updates, however fast the system is."""

    class Draws(Observer):
        def __init__(self) -> None:
            self.events: dict[str, list[Any]] = {}
            self.updates: list[Any] = []

        def published(self, client: ObservedClient, batch: EventBatch) -> None:
            self.events.setdefault(client.name, []).extend(batch.to_pylist())

        def updated(self, client: ObservedClient, subscription_id: int, old: Any) -> None:
            self.updates.append((client.name, client.session.values(subscription_id)))

    seen: list[Draws] = []
    for base_ns, routing in ((0, "static"), (5e6, "parametric")):
        draws = Draws()
        costs = Calibrated({"publish": constant(base_ns), "subscribe": constant(0)})
        simulated = SimulatedRun(SMALL.having(routing=routing, duration_s=0.4), costs=costs)
        simulated.simulation.observers.append(draws)
        simulated.run()
        seen.append(draws)
    fast, slow = seen
    assert fast.updates == slow.updates != []
    for name, events in slow.events.items():
        assert 0 < len(events) < len(fast.events[name])
        assert fast.events[name][: len(events)] == events


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"window": 3, "batch": 4}, "window is 3: expected at least batch, 4, or 0 for the open loop"),
        ({"window": 3, "crashes": 1}, "window is 3 and crashes is 1: expected no crashes"),
        ({"window": 3, "pace": "orderly"}, "window is 3: expected 0 with the pace orderly"),
        ({"window": -1}, "window is -1: expected at least 0"),
        ({"merge": 1}, "merge is 1: expected true or false"),
        ({"service": "lifo"}, "service is 'lifo': expected one of broker, fifo, control-first, two-lanes"),
    ],
)
def test_what_a_scenario_cannot_have_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ScenarioError, match=complaint):
        Scenario(**changes)


def test_a_command_has_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    small = ("--brokers", 4, "--publishers", 2, "--subscribers", 8, "--types", 4, "--duration", 0.2)
    assert run("sim", *small, "--window", 2, "--event-rate", 1000, "--warm-up", 0.1) == 0
    assert "no violation" in capsys.readouterr().out
