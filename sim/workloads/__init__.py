"""Workloads for benchmarks and the simulator: Fabret's generator, algorithmic trading, highway traffic,
ranges, filters with alternations.
"""

from covey.sim.workloads.boolean import Boolean, Shape
from covey.sim.workloads.fabret import W0, W2, Domain, Fabret
from covey.sim.workloads.highway import HTM, Highway
from covey.sim.workloads.ranges import BOX, Ranges
from covey.sim.workloads.trading import AT, AT_SEL, Trading
from covey.sim.workloads.workload import SubscriptionGroup, Workload

WORKLOADS: dict[str, Workload] = {w.name: w for w in (W0, W2, AT, AT_SEL, HTM, BOX)}
"""The workloads that engines are compared over, by name."""

__all__ = [
    "WORKLOADS",
    "Boolean",
    "Domain",
    "Fabret",
    "Highway",
    "Ranges",
    "Shape",
    "SubscriptionGroup",
    "Trading",
    "Workload",
]
