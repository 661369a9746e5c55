"""Subscriptions with Motion, in a simulated overlay."""

import json
import random
from pathlib import Path

import pytest
from commands import measure
from draws import SEED
from read_traces import rows

from benchmarks.control import ControlPlan, measure_control
from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.messages import Message, Update
from covey.overlay.core.moving.motion import Motion
from covey.sim.checkers import Findings, Judge, check_routes
from covey.sim.simulator import Observer, Simulation, WireOptions
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S
from covey.sim.simulator.observer import ObservedClient
from covey.sim.topology import make_topology
from covey.sim.trace.trace import Trace

ROAD = EventType("Road", {"x": "float64"})
AROUND = parse("x >= $x - 10 and x <= $x + 10", ROAD)


class Seen(Observer):
    def __init__(self) -> None:
        self.events: list[int] = []
        self.updates = 0

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        self.events += action.batch.sequences().tolist() if len(action.batch) else []

    def received(self, source: str, target: str, message: Message) -> None:
        self.updates += isinstance(message, Update)


@pytest.mark.parametrize("speed", [-30.0, 30.0])
def test_a_moving_subscription_receives_exactly_its_events_without_updates(speed: float) -> None:
    draw, seen = random.Random(SEED), Seen()
    wire = WireOptions(jitter_ns=20 * NS_PER_MS)
    simulation = Simulation(SEED, engine="naive", observers=[seen], wire=wire)
    simulation.build(make_topology("line", 4))
    feed, car = simulation.join("client/p", "broker/b1"), simulation.join("client/s", "broker/b4")
    feed.advertise(ROAD)
    simulation.run()
    start_ns = simulation.clock.now_ns
    subscription = car.subscribe(AROUND, {"x": Motion(0.0, speed)})
    simulation.run(simulation.clock.now_ns + NS_PER_S)
    matching = []
    for _ in range(500):
        simulation.run(simulation.clock.now_ns + 150 * NS_PER_MS)  # far apart: no two share a batch
        at = speed * (simulation.clock.now_ns - start_ns) / 1e9
        x = at + draw.uniform(-20.0, 20.0)
        batch = feed.publish(EventBatch.from_pylist(ROAD, [{"x": x}]))
        if abs(x - at) <= 10.0:
            matching.append(batch.first_sequence)
    simulation.run(simulation.clock.now_ns + NS_PER_S)
    assert seen.events == matching
    assert 100 < len(matching) < 400
    assert seen.updates <= 2 * 3, "two announcements, of a minute each, over three links"
    car.update(subscription, {"x": 0.0})
    simulation.run()
    assert all(broker.core.next_timer() is None for broker in simulation.brokers.values())


@pytest.mark.parametrize("join_events", [1, 64])
def test_the_judge_and_the_trace_follow_moving_values(join_events: int, tmp_path: Path) -> None:
    draw = random.Random(join_events)
    link = {"join_events": join_events, "frames_in_flight": 1}
    simulation = Simulation(5, link=link, wire=WireOptions(jitter_ns=20 * NS_PER_MS))
    clock, findings = simulation.clock, Findings()
    judge = Judge(findings, lambda: clock.now_ns)
    with Trace(tmp_path / "trace", lambda: clock.now_ns) as trace:
        simulation.observers += [trace, judge]
        judge.observers.append(trace)
        simulation.build(make_topology("line", 3))
        feed, car = simulation.join("client/p", "broker/b1"), simulation.join("client/s", "broker/b3")
        feed.advertise(ROAD)
        simulation.run()
        subscription = car.subscribe(AROUND, {"x": 0.0})
        truck = simulation.join("client/t", "broker/b2")
        truck.subscribe(AROUND, {"x": Motion(500.0, -20.0)})
        start_ns, speed, start = 0, 0.0, 0.0
        for step in range(1000):
            simulation.run(clock.now_ns + draw.choice((0, 1, 2, 20)) * NS_PER_MS)
            at = start + speed * (clock.now_ns - start_ns) / NS_PER_S
            feed.publish(EventBatch.from_pylist(ROAD, [{"x": at + draw.uniform(-20.0, 20.0)}]))
            if step % 100 == 50:
                start, speed, start_ns = at, draw.choice((0.0, 60.0, -60.0)), clock.now_ns
                car.update(subscription, {"x": Motion(start, speed) if speed else start})
        simulation.run(clock.now_ns + 2 * NS_PER_S)
        judge.quiet()
        assert check_routes(simulation, findings) == 2
    assert not findings.counts, findings.first
    assert judge.expected_events > 300
    updates = [json.loads(row["values"])["1"] for row in rows(tmp_path / "trace", "versions")]
    assert {type(value) for value in updates} == {dict, float}
    assert all(isinstance(x, float) or x.keys() == {"value", "rate", "since_ns"} for x in updates)
    assert len(rows(tmp_path / "trace", "deliveries")) >= judge.expected_events


@pytest.mark.thorough
def test_damping_and_motion_save_control_messages() -> None:
    plan = ControlPlan(("oscillating", "cruising"), subscribers=10, seconds=60)
    results = {(result.load, result.mode): result for result in measure_control(plan)}
    assert len(results) == 7
    for load in ("oscillating", "cruising"):
        static, parametric = results[load, "static"], results[load, "parametric"]
        assert parametric.link_messages <= 0.6 * static.link_messages
        assert parametric.delivered > 0
    assert (
        results["oscillating", "damping"].link_messages * 5
        <= results["oscillating", "parametric"].link_messages
    )
    assert results["cruising", "motion"].link_messages * 20 <= results["cruising", "parametric"].link_messages


def test_an_unknown_load_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert measure("control", "--loads", "traffic") == 2
    assert "loads 'traffic': expected some of trading" in capsys.readouterr().err
