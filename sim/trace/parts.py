"""The pending rows of a trace, by table, and the parts that they become.

    cells    int64: t c c c   t c c c   t c c c ...      `width` per row: time, then the columns after it;
                                                         a word is its code, null is -1
    texts    str:   one per row, for a table with a column of long texts that rarely repeat

Words have codes until the next flush, so memory is bounded by the pending rows: at most `PENDING_ROWS` and a
batch.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.sim.trace.tables import PHASES, TABLES, WORD

if TYPE_CHECKING:
    from covey.sim.trace.attempt import Attempt

PENDING_ROWS = 200_000
"""The rows of all tables in memory at which they are written."""

NULL = -1
_SAME = ("run", "phase")
"""The columns that are equal in all rows of a part."""


class Words(dict[str, int]):
    """The code of each word since the last flush: `words[text]` gives it one."""

    def __missing__(self, word: str) -> int:
        code = self[word] = len(self)
        return code


class PendingTable:
    """The pending rows of one table."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.names = [field.name for field in schema if field.name not in _SAME and field.type != pa.string()]
        self.cells = array("q")
        self.texts: list[str] = []

    def __len__(self) -> int:
        return len(self.cells) // len(self.names)

    def add_block(self, count: int, *columns: int | npt.NDArray[np.int64]) -> None:
        """Append `count` rows: a number for all of them, or one for each, per column."""
        if count == 1:  # as of most publishers; a block would take twice as long
            self.cells.extend([c if isinstance(c, int) else int(c[0]) for c in columns])
            return
        block = np.empty((count, len(self.names)), np.int64)
        for number, column in enumerate(columns):
            block[:, number] = column
        self.cells.frombytes(block.tobytes())

    def take(self, words: npt.NDArray[Any], run: str, phase: str) -> pa.Table:
        """The pending rows as a table; none are pending then."""
        count = len(self)
        cells = np.frombuffer(self.cells, np.int64).reshape(count, len(self.names)) if count else None
        arrays = []
        for field in self.schema:
            if field.name in _SAME:
                values = pa.array([run if field.name == "run" else phase][: min(count, 1)], pa.string())
                arrays.append(pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), values))
            elif field.type == pa.string():
                arrays.append(pa.array(self.texts, pa.string()))
            else:
                column = np.empty(0, np.int64) if cells is None else cells[:, self.names.index(field.name)]
                arrays.append(_array(np.ascontiguousarray(column), field.type, words))
        table = pa.Table.from_arrays(arrays, schema=self.schema)
        del cells
        self.cells, self.texts = array("q"), []
        return table


def _array(column: npt.NDArray[np.int64], kind: pa.DataType, words: npt.NDArray[Any]) -> pa.Array:
    absent = column == NULL
    mask = absent if absent.any() else None
    if kind == WORD:
        used = np.zeros(len(words) + 1, np.bool_)
        used[column] = True  # the last one stands for null
        used[-1] = False
        codes = (np.cumsum(used) - 1)[column].astype(np.int32)
        return pa.DictionaryArray.from_arrays(
            pa.array(codes, mask=mask), pa.array(words[used[:-1]], pa.string())
        )
    if kind == pa.bool_():
        return pa.array(column.astype(np.bool_), mask=mask)
    return pa.array(column, kind, mask=mask)


class PartWriter:
    """Collects rows and writes them as parts of an attempt, all tables at once: what an attempt has is always
    everything up to one moment."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.rows = 0
        """The rows that have been written."""
        self.words = Words()
        self.tables = {name: PendingTable(schema) for name, schema in TABLES.items()}
        self._phase: str = PHASES[0]

    @property
    def pending(self) -> int:
        """The rows that have not been written."""
        return sum(map(len, self.tables.values()))

    def begin(self, phase: str) -> None:
        """The rows that follow belong to another phase."""
        self.flush()
        self._phase = phase

    def flush(self, *, empty: bool = False) -> None:
        """Write the pending rows; with `empty` each table without parts gets one without rows."""
        words = np.array([*self.words], object)
        run, written = self.attempt.manifest.run, self.attempt.manifest.tables
        parts = {}
        for name, table in self.tables.items():
            if len(table) or (empty and name not in written):
                parts[name] = table.take(words, run, self._phase)
        self.words.clear()
        if parts:
            self.attempt.write(parts)
            self.rows += sum(part.num_rows for part in parts.values())
