"""Traces from rows of `sim/trace/tables.py` and a manifest, by hand; and a killed run's."""

import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from covey.sim.trace.manifest import FILE, Manifest, Part
from covey.sim.trace.tables import TABLES

ATTEMPT = "attempt-1"
Row = tuple[str, str, int, Mapping[str, Any]]
"""Table, phase, milliseconds and the other columns."""


def write(folder: Path, rows: Iterable[Row], *, parts: int = 1, **manifest: Any) -> Path:
    """Write a trace into a folder, named as the run; each table has up to `parts` files."""
    run = folder.name
    tables: dict[str, list[dict[str, Any]]] = {}
    for table, phase, ms, others in rows:
        known = {"run": run, "phase": phase, "time_ns": ms * 1_000_000}
        tables.setdefault(table, []).append(dict.fromkeys(TABLES[table].names) | known | dict(others))
    listed: dict[str, list[Part]] = {}
    for table, dicts in tables.items():
        (folder / ATTEMPT / table).mkdir(parents=True)
        step = -(-len(dicts) // parts)
        for number, start in enumerate(range(0, len(dicts), step)):
            file = f"{table}/part-{number:05}.parquet"
            write_rows(folder / ATTEMPT / file, TABLES[table], dicts[start : start + step])
            size = (folder / ATTEMPT / file).stat().st_size
            listed.setdefault(table, []).append(Part(file, min(step, len(dicts) - start), size))
    fields = {"scenario": {}, "state": "complete"} | manifest
    text = Manifest(run, ATTEMPT, tables=listed, **fields).as_json()
    (folder / ATTEMPT).mkdir(parents=True, exist_ok=True)
    (folder / ATTEMPT / FILE).write_text(text)
    if fields["state"] == "complete":
        (folder / FILE).write_text(text)
    return folder


def write_rows(file: Path, schema: pa.Schema, rows: list[dict[str, Any]]) -> None:
    columns = [pa.array([row[field.name] for row in rows], _plain(field.type)) for field in schema]
    arrays = [
        column.dictionary_encode() if pa.types.is_dictionary(field.type) else column
        for column, field in zip(columns, schema, strict=True)
    ]
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), file)


def _plain(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_dictionary(kind) else kind


_KILLED = """
from covey.cli.main import main
from covey.sim.trace import trace
trace.PENDING_ROWS = 3000
main("sim --brokers 4 --publishers 1 --subscribers 10 --types 2 --duration 1e6 --trace run".split())
"""


def write_and_kill(folder: Path) -> None:
    """Kill a run, whose trace is folder/run, when its tables have several parts."""
    process = subprocess.Popen([sys.executable, "-c", _KILLED], cwd=folder)
    try:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and not list(folder.glob("run/*/messages/part-00005.parquet")):
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
