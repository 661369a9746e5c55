"""Workloads for benchmarks and the simulator: Fabret's generator, algorithmic trading, highway traffic,
ranges, filters with alternations.
"""

from covey.sim.workload.boolean import Boolean, Shape
from covey.sim.workload.fabret import W0, W2, Domain, Fabret
from covey.sim.workload.highway import HTM, Highway
from covey.sim.workload.ranges import BOX, Ranges
from covey.sim.workload.trading import AT, AT_SEL, Trading
from covey.sim.workload.workload import SubscriptionGroup, Workload

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
