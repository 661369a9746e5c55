"""Metrics of runs (Jayaram et al., section 5.2), computed by Spark from traces and from nothing else."""

from covey.sim.metrics.session import SparkError, spark_session
from covey.sim.metrics.summary import summarise
from covey.sim.metrics.traces import Runs, RunsError, find_runs

__all__ = ["Runs", "RunsError", "SparkError", "find_runs", "spark_session", "summarise"]
