"""Settings of Spark for the size of a query: few tasks for small traces, adaptive ones for large."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from covey.sim.metrics.session import parallel_tasks
from covey.sim.trace.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from covey.sim.trace.finding import Traces

SMALL_ROWS = 1_000_000
"""Up to so many rows the overhead of tasks and of planning again is more than the work."""
_ROWS_PER_TASK = 500_000


def settings(rows: int, cores: int) -> dict[str, str]:
    """The settings for a query over so many rows of traces.

    Adaptive execution joins small partitions, splits those of a join that are far larger than the others
    (of a subscription with most of the deliveries), and broadcasts tables that turn out small. Planned
    broadcasts are off: they go by the size of files, and a trace takes a few bytes of file per row.
    """
    unplanned = {"spark.sql.autoBroadcastJoinThreshold": "-1"}
    if rows <= SMALL_ROWS:
        return unplanned | {
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.shuffle.partitions": str(min(cores, 16)),
        }
    return unplanned | {
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": str(max(2 * cores, min(rows // _ROWS_PER_TASK, 4096))),
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": "32m",
        "spark.sql.adaptive.forceOptimizeSkewedJoin": "true",
        "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "64m",
        "spark.sql.adaptive.autoBroadcastJoinThreshold": "16m",
    }


@contextmanager
def sized(session: SparkSession, traces: Traces) -> Iterator[None]:
    """The settings for the size of these traces, in a block."""
    rows = sum(traces.rows(table) for table in TABLES)
    chosen = settings(rows, parallel_tasks(session))
    before = {name: session.conf.get(name, None) for name in chosen}
    for name, value in chosen.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)
