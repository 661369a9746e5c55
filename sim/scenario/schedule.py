"""Who publishes and updates when, drawn before the run starts from the scenario's seed and load alone: the
simulator, real brokers and every compared system run the same schedule."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from covey.sim.scenario.loads import HighwayLoad, Load, MarketLoad, SubscriberState, TradingLoad
from covey.sim.scenario.recorded import DetectorLoad, QuotesLoad, detector_topology
from covey.sim.scenario.scenario import Scenario
from covey.sim.simulator.clock import NS_PER_S
from covey.sim.topology import Topology, make_topology

if TYPE_CHECKING:
    from covey.matcher import EventBatch


def create_topology(scenario: Scenario) -> Topology:
    if scenario.load == "detectors" and not scenario.topology:
        return detector_topology(scenario.sensors, delay_ms=scenario.delay_ms)
    kind = scenario.topology or ("highway" if scenario.load == "highway" else "trading")
    return make_topology(kind, scenario.brokers, seed=scenario.seed, delay_ms=scenario.delay_ms)


def create_load(scenario: Scenario, topology: Topology) -> Load:
    rng, publishers = random.Random(f"load {scenario.seed}"), scenario.publishers
    if scenario.load == "detectors":
        return DetectorLoad(topology, publishers, rng, scenario.speeds)
    if scenario.load == "quotes":
        return QuotesLoad(topology, publishers, rng)
    if scenario.load == "highway":
        return HighwayLoad(topology, publishers, rng)
    load = MarketLoad if scenario.load == "market" else TradingLoad
    return load(topology, publishers, rng, scenario.types)


@dataclass(frozen=True, slots=True)
class PublishStep:
    """`after_ns` counts from the start."""

    after_ns: int
    publisher: int
    batch: EventBatch


@dataclass(frozen=True, slots=True)
class UpdateStep:
    after_ns: int
    subscriber: int
    values: dict[str, Any]
    broker: str


def draw_schedule(
    scenario: Scenario, load: Load, subscribers: list[SubscriberState]
) -> Iterator[PublishStep | UpdateStep]:
    """All steps in order of time; updates the values of `subscribers`. Events and updates are Poisson
    processes, unless `updates` are even."""
    draw = random.Random(f"history {scenario.seed}")
    end_ns = round((scenario.warm_up_s + scenario.duration_s) * NS_PER_S)
    rates = (
        0.0 if scenario.window else scenario.event_rate / scenario.batch * scenario.publishers,
        scenario.update_rate * len(subscribers),
    )

    intervals = count()

    def next_ns(now_ns: int, process: int) -> int:
        if process and scenario.updates == "even":
            return round((next(intervals) + draw.random()) / rates[process] * NS_PER_S)
        return now_ns + round(draw.expovariate(rates[process]) * NS_PER_S)

    due = [(next_ns(0, process), process) for process, rate in enumerate(rates) if rate > 0]
    heapq.heapify(due)
    while due and due[0][0] < end_ns:
        now_ns, process = due[0]
        heapq.heapreplace(due, (next_ns(now_ns, process), process))
        if process == 0:
            publisher = draw.randrange(scenario.publishers)
            yield PublishStep(now_ns, publisher, load.events(publisher, scenario.batch))
        else:
            number = draw.randrange(len(subscribers))
            values, broker = load.next_values(number, subscribers[number])
            subscribers[number].values |= values
            yield UpdateStep(now_ns, number, values, broker)
