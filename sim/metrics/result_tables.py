"""Results as tables: Parquet folders, for further questions.

    latencies   run, publisher, sequence, client, subscription, published_ns, latency_ns
    delays      run, client, subscription, version, changed_ns, delay_ns, publisher, sequence (of the answer)
    missed      run, publisher, sequence, client, subscription
    runs        a row per run: its metrics by their names in `flat`
    brokers     run, broker, events, control_messages, busy_share
    control     run, kind, messages
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from covey.sim.metrics import columns as c
from covey.sim.metrics.flat import flat
from covey.sim.metrics.tables import literal

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BROKERS = pa.schema(
    [
        (c.RUN, pa.string()),
        (c.BROKER, pa.string()),
        (c.EVENTS, pa.int64()),
        ("control_messages", pa.int64()),
        ("busy_share", pa.float64()),
    ]
)
_CONTROL = pa.schema([(c.RUN, pa.string()), (c.KIND, pa.string()), (c.MESSAGES, pa.int64())])


def read_or_write(
    session: SparkSession, out: str | None, tables: Mapping[str, DataFrame]
) -> Mapping[str, DataFrame]:
    """The tables; with a folder they are written to it and read from there, so each is computed once."""
    if out is None:
        return tables
    written = {}
    for name, table in tables.items():
        place = f"{out}/{name}"
        table.write.mode("overwrite").parquet(place)
        written[name] = session.read.schema(table.schema).parquet(literal(place))
    return written


def write_summaries(session: SparkSession, out: str, summaries: Sequence[Mapping[str, Any]]) -> None:
    """Write what `summarise` returns as the tables of runs, brokers and control messages."""
    brokers = [
        {c.RUN: summary["run"], c.BROKER: name} | load
        for summary in summaries
        for name, load in summary["brokers"].items()
    ]
    control = [
        {c.RUN: summary["run"], c.KIND: kind, c.MESSAGES: messages}
        for summary in summaries
        for kind, messages in summary["control_by_kind"].items()
    ]
    tables = {
        "runs": pa.Table.from_pylist([{"run": summary["run"]} | flat(summary) for summary in summaries]),
        "brokers": pa.Table.from_pylist(brokers, _BROKERS),
        "control": pa.Table.from_pylist(control, _CONTROL),
    }
    for name, table in tables.items():
        unknown = [field.name for field in table.schema if pa.types.is_null(field.type)]
        known = table.drop_columns(unknown)  # such as `missed` where no run is complete
        session.createDataFrame(known).coalesce(1).write.mode("overwrite").parquet(f"{out}/{name}")
