"""Subscriptions that move by themselves, in a whole overlay in virtual time."""

from __future__ import annotations

import random

import pytest

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.client import DeliverTo
from covey.overlay.core.messages import Message, Update
from covey.overlay.core.motion import Motion
from covey.sim.bench.control import Plan, measure
from covey.sim.simulator import Simulation, Watcher, WireOptions
from covey.sim.simulator.client import ClientProcess
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S
from covey.sim.topology import make_topology

ROAD = EventType("Road", {"x": "float64"})
AROUND = parse("x >= $x - 10 and x <= $x + 10", ROAD)


class Seen(Watcher):
    def __init__(self) -> None:
        self.events: list[int] = []
        self.updates = 0

    def delivered(self, client: ClientProcess, action: DeliverTo) -> None:
        self.events += action.batch.sequences().tolist() if len(action.batch) else []

    def passed(self, source: str, target: str, message: Message) -> None:
        self.updates += isinstance(message, Update)


@pytest.mark.parametrize("seed", range(5))
def test_exactly_what_is_around_a_vehicle_when_it_enters_is_delivered_and_nothing_is_said(seed: int) -> None:
    draw = random.Random(seed)
    seen = Seen()
    simulation = Simulation(seed, engine="naive", watchers=[seen], wire=WireOptions(jitter_ns=20 * NS_PER_MS))
    simulation.build(make_topology("line", 4))
    feed, car = simulation.come("client/p", "broker/b1"), simulation.come("client/s", "broker/b4")
    feed.advertise(ROAD)
    simulation.run()
    speed, began_ns = draw.choice((-30.0, 30.0)), simulation.clock.now_ns
    subscription = car.subscribe(AROUND, {"x": Motion(0.0, speed)})
    simulation.run(simulation.clock.now_ns + NS_PER_S)
    wanted = []
    for _ in range(1500):
        simulation.run(simulation.clock.now_ns + 50 * NS_PER_MS)  # far apart, so that each has its own time
        at = speed * (simulation.clock.now_ns - began_ns) / 1e9
        x = at + draw.uniform(-20.0, 20.0)
        batch = feed.publish(EventBatch.from_pylist(ROAD, [{"x": x}]))
        if abs(x - at) <= 10.0:
            wanted.append(batch.first_sequence)
    simulation.run(simulation.clock.now_ns + NS_PER_S)
    assert seen.events == wanted
    assert 300 < len(wanted) < 1200
    assert seen.updates <= 2 * 3, "two announcements, of a minute each, over three links"
    car.update(subscription, {"x": 0.0})
    simulation.run()
    assert all(broker.core.timer() is None for broker in simulation.brokers.values())


def test_the_figures_of_bench_control() -> None:
    plan = Plan(("oscillating", "cruising"), subscribers=10, seconds=60)
    results = {(result.load, result.mode): result for result in measure(plan)}
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


def test_an_unknown_load_is_named() -> None:
    with pytest.raises(ValueError, match="loads: 'traffic', expected one of trading"):
        Plan(loads=("traffic",))
