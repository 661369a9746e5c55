"""The parts of a trace: Parquet files in one folder, `part-00000.parquet` and so on.

Parts appear whole, while the run goes on: memory is bounded, and a run that is killed loses only its last
part. `trace.py` describes the columns.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from covey.matcher.errors import CoveyError

_WORD = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("time_ns", pa.int64()),
        ("kind", _WORD),
        ("node", _WORD),
        ("peer", _WORD),
        ("name", _WORD),
        ("publisher", _WORD),
        ("sequence", pa.int64()),
        ("subscription", pa.int64()),
        ("count", pa.int64()),
        ("values", pa.string()),
        ("text", _WORD),
    ]
)
"""The columns of a trace; those that do not apply to a row are null."""

PART_ROWS = 100_000
"""The maximum number of rows of a part, and so of rows in memory."""

_PART = re.compile(r"\.?part-\d{5,}\.parquet")
"""The name of a part, or of an unfinished one."""


class TraceError(CoveyError, OSError):
    """The trace cannot be written."""


def part_name(number: int) -> str:
    """The file name of a part; names sort in the order of the parts."""
    return f"part-{number:05}.parquet"


def parts_of(trace: Path) -> list[Path]:
    """The parts in the folder of a trace, in order."""
    return sorted(trace.glob("part-*.parquet"))


class PartWriter:
    """Appends rows to the trace in a folder; it replaces an older trace there, and nothing else."""

    def __init__(self, folder: Path) -> None:
        self.rows = 0
        self._folder = folder
        self._parts = 0
        self._pending: list[tuple[Any, ...]] = []
        try:
            self._clear()
        except TraceError:
            raise
        except OSError as error:
            raise self._unwritable(error) from None

    def _clear(self) -> None:
        folder = self._folder
        if folder.is_file():
            if not _is_trace(folder):
                raise TraceError(f"{folder}: cannot be written: it is a file, but not a trace")
            folder.unlink()
        folder.mkdir(exist_ok=True)
        others = sorted(file.name for file in folder.iterdir() if not _PART.fullmatch(file.name))
        if others:
            raise TraceError(f"{folder}: cannot be written: {others[0]} in it is not part of a trace")
        for part in folder.iterdir():
            part.unlink()

    def _unwritable(self, error: OSError) -> TraceError:
        return TraceError(f"{self._folder}: cannot be written: {error.strerror or error}")

    def add(self, *values: Any) -> None:
        """Append a row of these values, which follow its number."""
        self._pending.append((self.rows, *values))
        self.rows += 1
        if len(self._pending) >= PART_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the pending rows as a part: under another name first, then renamed."""
        if not self._pending:
            return
        columns = list(zip(*self._pending, strict=True))
        self._pending.clear()
        arrays = [
            pa.array(column, pa.string()).dictionary_encode()
            if field.type == _WORD
            else pa.array(column, field.type)
            for column, field in zip(columns, SCHEMA, strict=True)
        ]
        part = self._folder / part_name(self._parts)
        unfinished = part.with_name(f".{part.name}")
        try:
            pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), unfinished, compression="zstd")
            os.replace(unfinished, part)
        except OSError as error:
            raise self._unwritable(error) from None
        self._parts += 1


def _is_trace(file: Path) -> bool:
    """Whether a single file is a trace."""
    try:
        return bool(pq.read_schema(file).names[:3] == SCHEMA.names[:3])
    except (pa.ArrowException, OSError):
        return False
