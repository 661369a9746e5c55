"""The tables of all traces as Spark tables, with the columns of `sim/trace/tables.py`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa

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
