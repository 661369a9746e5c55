"""Anything with Arrow's C streams or arrays is published, and results have them."""

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from running import Brokers, on_a_loop

from covey.matcher import EventBatch, EventError, EventType
from covey.overlay import Client

duckdb, pandas, polars = map(pytest.importorskip, ("duckdb", "pandas", "polars"))

READING = EventType(
    "Reading", {"id": "string", "x": "float64", "n": "int64", "ok": "bool", "at": "timestamp"}, key="id"
)
ROWS: list[dict[str, Any]] = [
    {"id": "a", "x": 1.5, "n": None, "ok": True, "at": datetime(2026, 1, 2, tzinfo=UTC)},
    {"id": "é", "x": None, "n": 2**53 + 1, "ok": None, "at": datetime(2026, 1, 3, tzinfo=UTC)},
]
TABLE = pa.Table.from_pylist(ROWS, schema=READING.arrow_schema)


class Array:
    def __arrow_c_array__(self, requested_schema: object = None) -> object:
        return TABLE.to_batches()[0].__arrow_c_array__(requested_schema)


SOURCES: dict[str, Any] = {
    "record batch": TABLE.to_batches()[0],
    "table in chunks": pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1)]),
    "reader": TABLE.to_reader(),
    "array": Array(),
    "polars": polars.DataFrame(ROWS),
    "duckdb": duckdb.from_arrow(TABLE),
    "pandas": EventBatch.from_pylist(READING, ROWS).to_pandas(),
    "pandas of Arrow types": TABLE.to_pandas(types_mapper=pandas.ArrowDtype),
    "batch": EventBatch.from_pylist(READING, ROWS),
    "mappings": ROWS,
}


@on_a_loop
async def test_everything_with_columns_is_published() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        await me.advertise(READING)
        readings = await me.subscribe(READING)
        for name, source in SOURCES.items():
            await me.publish_batch("Reading", source)
            table = await readings.read(limit=2)
            assert table.to_pylist() == ROWS, name
        with pytest.raises(EventError, match="Reading: unknown column 'y', expected only id, x, n, ok, at"):
            await me.publish_batch("Reading", polars.DataFrame({"y": [1]}))
        with pytest.raises(EventError, match="Reading: column 'n' has Arrow type"):
            await me.publish_batch("Reading", polars.DataFrame({"n": ["1"]}))
        with pytest.raises(EventError, match="Reading: the columns of a Int64Array cannot be read"):
            await me.publish_batch("Reading", pa.array([1]))
        with pytest.raises(EventError, match="events of Reading: got dict; expected a table"):
            await me.publish_batch("Reading", {"n": [1]})
        assert me.pending == 0


@on_a_loop
async def test_batches_and_snapshots_are_read_by_others() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        await me.advertise(READING)
        readings = await me.subscribe(READING)
        view = await me.view(READING)
        await me.publish_batch("Reading", ROWS, confirm=True)
        batch = await anext(readings.batches())
        changes = await anext(view.batches())
        for columns in (batch, view.snapshot()):
            assert polars.DataFrame(columns).to_dicts() == ROWS
            assert pa.table(columns) == TABLE
        assert polars.DataFrame(changes)["change"].to_list() == ["enter", "enter"]
        assert pandas.DataFrame(batch.to_pandas())["id"].tolist() == ["a", "é"]


def test_what_has_no_columns_is_refused_in_one_sentence() -> None:
    with pytest.raises(EventError, match=r"Reading: expected an Arrow record batch or table.*, got int$"):
        EventBatch.from_arrow(READING, 3)
