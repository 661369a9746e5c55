"""The tables of traces as Spark reads them, and results as Parquet folders, for further questions.

    latencies   run, publisher, sequence, client, subscription, published_ns, latency_ns
    delays      run, client, subscription, version, changed_ns, delay_ns, publisher, sequence (of the answer)
    missed      run, publisher, sequence, client, subscription
    runs        a row per run: its metrics by their names in `flat`
    brokers     run, broker, events, control_messages, busy_share
    control     run, kind, messages

The results are of one call: one that fails or is interrupted while it writes removes all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from covey.sim.metrics import columns as c
from covey.sim.metrics.across import flat
from covey.sim.trace.storage import Folder
from covey.sim.trace.tables import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from covey.sim.trace.finding import Traces

_GLOB = re.compile(r"[\\{}\[\]*?]")
"""Characters that Spark takes for a pattern of paths."""
_TYPES = {pa.int64(): "bigint", pa.bool_(): "boolean", pa.string(): "string"}


def read_table(session: SparkSession, traces: Traces, name: str) -> DataFrame:
    """All rows of a table, of all runs: the files that the manifests list, and no others."""
    schema, files = spark_schema(TABLES[name]), traces.files(name)
    if files:
        return session.read.schema(schema).parquet(*map(literal, files))
    return session.createDataFrame([], schema)


def literal(path: str) -> str:
    """A path as `DataFrameReader` takes it, in which no character stands for others."""
    return _GLOB.sub(r"\\\g<0>", path)


def spark_schema(schema: pa.Schema) -> str:
    """A schema as Spark reads it: words are strings."""
    types = [pa.string() if pa.types.is_dictionary(field.type) else field.type for field in schema]
    return ", ".join(
        f"`{name}` {_TYPES[kind]}" for name, kind in zip(schema.names, types, strict=True)
    )


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
_TABLES = ("latencies", "delays", "missed", "runs", "brokers", "control")


@contextmanager
def whole(out: str | None) -> Iterator[None]:
    """Removes the tables in the folder where the block, which writes them, fails; and the folder, if it is
    new. What only Spark can reach stays."""
    places: list[Folder] = []
    with suppress(OSError, pa.ArrowException):
        folder = None if out is None else Folder.at(out)
        if folder is not None:
            places = [folder / name for name in _TABLES] if folder.exists else [folder]
    try:
        yield
    except BaseException:
        for place in places:
            with suppress(OSError, pa.ArrowException):
                place.remove()
        raise


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
