"""Workloads for benchmarks of engines and routing."""

from covey.sim.workload.boolean import Boolean, Shape
from covey.sim.workload.fabret import W0, W2, Domain, Fabret
from covey.sim.workload.moving import (
    BOX,
    MEMBERS,
    PREFIXES,
    SYMBOLS,
    SYMBOLS_TAIL,
    VEHICLES,
    Ranges,
    Symbols,
    TextTests,
    Vehicles,
)
from covey.sim.workload.workload import SubscriptionGroup, Subscriptions, Workload

WORKLOADS: dict[str, Workload] = {w.name: w for w in (W0, W2, SYMBOLS, SYMBOLS_TAIL, VEHICLES, BOX)}

TEXT_TESTS: dict[str, Workload] = {w.name: w for w in (PREFIXES, MEMBERS)}

__all__ = [
    "TEXT_TESTS",
    "WORKLOADS",
    "Boolean",
    "Domain",
    "Fabret",
    "Ranges",
    "Shape",
    "SubscriptionGroup",
    "Subscriptions",
    "Symbols",
    "TextTests",
    "Vehicles",
    "Workload",
]
