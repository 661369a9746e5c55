"""The overlay and the load of a scenario, created from its fields."""

from __future__ import annotations

import random

from covey.sim.scenario.detectors import DetectorLoad, detector_topology
from covey.sim.scenario.highway import HighwayLoad
from covey.sim.scenario.load import Load
from covey.sim.scenario.quotes import QuotesLoad
from covey.sim.scenario.scenario import Scenario
from covey.sim.scenario.trading import MarketLoad, TradingLoad
from covey.sim.topology import Topology, make_topology


def create_topology(scenario: Scenario) -> Topology:
    """The topology of the kind that the scenario names, or its load's own."""
    if scenario.load == "detectors" and not scenario.topology:
        return detector_topology(scenario.sensors, delay_ms=scenario.delay_ms)
    kind = scenario.topology or ("highway" if scenario.load == "highway" else "trading")
    return make_topology(kind, scenario.brokers, seed=scenario.seed, delay_ms=scenario.delay_ms)


def create_load(scenario: Scenario, topology: Topology) -> Load:
    """The scenario's load on an overlay, drawn from the scenario's seed."""
    rng, publishers = random.Random(f"load {scenario.seed}"), scenario.publishers
    if scenario.load == "detectors":
        return DetectorLoad(topology, publishers, rng, scenario.speeds)
    if scenario.load == "quotes":
        return QuotesLoad(topology, publishers, rng)
    if scenario.load == "highway":
        return HighwayLoad(topology, publishers, rng)
    load = MarketLoad if scenario.load == "market" else TradingLoad
    return load(topology, publishers, rng, scenario.types)
