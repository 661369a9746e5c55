"""Summaries as flat rows, one name per number, for CSV files and comparisons of runs."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from covey.matcher.errors import CoveyError

NESTED = ("delay_ms", "latency_ms")
_LEFT_OUT = ("scenario", "choices", "brokers", "control_by_kind", *NESTED)


def flat(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of a run by name, such as `delay_ms_p50`; without the scenario and without tables by broker
    or by kind of message."""
    row = {name: value for name, value in summary.items() if name not in _LEFT_OUT}
    for prefix in NESTED:
        row |= {f"{prefix}_{name}": value for name, value in summary[prefix].items()}
    return row


def varied(summaries: Sequence[Mapping[str, Any]]) -> list[str]:
    """The fields of the scenario in which runs differ, in the scenario's order, without its name."""
    fields = dict.fromkeys(field for summary in summaries for field in summary["scenario"])
    return [
        field
        for field in fields
        if field != "name" and len({repr(summary["scenario"].get(field)) for summary in summaries}) > 1
    ]


def write_csv(path: str | Path, summaries: Iterable[Mapping[str, Any]]) -> None:
    """Write one line per run: its name, its choices in a sweep as `choice.DIMENSION`, the fields of its
    scenario as `scenario.FIELD`, and its metrics.

    Raises `CoveyError` if the file cannot be written.
    """
    rows = []
    for summary in summaries:
        scenario = {f"scenario.{field}": value for field, value in summary["scenario"].items()}
        choices = {f"choice.{each}": choice["name"] for each, choice in summary["choices"].items()}
        rows.append({"run": summary["run"]} | choices | scenario | flat(summary))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    try:
        with Path(path).open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise CoveyError(f"{path}: cannot be written: {error.strerror or error}") from None
