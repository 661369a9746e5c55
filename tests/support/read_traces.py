"""The rows of a trace, for tests that judge what a run recorded."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from covey.sim.trace.finding import find_traces


def rows(trace: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table of one run's trace, in the order of its parts."""
    return [row for file in find_traces([trace]).files(table) for row in pq.read_table(file).to_pylist()]
