"""Metrics of runs (Jayaram et al., section 5.2), computed by Spark from traces only."""

from covey.sim.metrics.across import Group, compare, flat, varied, write_csv
from covey.sim.metrics.session import SparkError, spark_session
from covey.sim.metrics.summary import summarise
from covey.sim.trace.finding import find_traces

__all__ = [
    "Group",
    "SparkError",
    "compare",
    "find_traces",
    "flat",
    "spark_session",
    "summarise",
    "varied",
    "write_csv",
]
