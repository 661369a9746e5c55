"""The file of a calibration: what operations cost a broker, by system and by shape of the load.

    {"format": "covey-costs-1",
     "note": "where the figures are from",
     "costs": {"siena-parametric": {"boxes": {"publish": [[10, 52000], [100, 410000]], "update": ...}}}}

A curve is a list of pairs: a number of filters, rising, and nanoseconds (`costs.py`). Invariant: the costs
that are read can be charged, else the file is refused with the place of the mistake.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from covey.matcher.errors import CoveyError
from covey.sim.simulator.costs import OPERATIONS, Points

FORMAT = "covey-costs-1"
CostTable = Mapping[str, Mapping[str, Mapping[str, Points]]]
"""Curves by system, shape and operation."""
_NEEDED = ("publish", "subscribe")


class CalibrationError(CoveyError, ValueError):
    """A calibration file is wrong, or has no costs for a system and load."""


def save_costs(path: str | Path, table: CostTable, note: str) -> None:
    """Write a calibration file. `CalibrationError` if that fails, or if there are no costs to write."""
    for system, shapes in table.items():
        for shape, curves in shapes.items():
            if any(operation not in curves for operation in _NEEDED):
                raise CalibrationError(
                    f"{path}: {system}, {shape} has costs of {', '.join(curves) or 'nothing'}; expected at "
                    f"least {' and '.join(_NEEDED)}: a run in which these were handled"
                )
    document = {"format": FORMAT, "note": note, "costs": table}
    try:
        Path(path).write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be written: {error.strerror}") from None


def load_costs(path: str | Path, system: str, shape: str) -> dict[str, Points]:
    """The curves of a system under a load; `CalibrationError` naming the file and what is wrong with it."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CalibrationError(f"{path}: not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise CalibrationError(f"{path}: not a calibration file; expected one of format {FORMAT}")
    shapes = _part(path, "costs", document.get("costs"), system, "system")
    curves = _part(path, f"costs.{system}", shapes, shape, "shape of a load")
    where = f"costs.{system}.{shape}"
    if not isinstance(curves, dict) or any(operation not in curves for operation in _NEEDED):
        raise CalibrationError(f"{path}: {where}: expected curves of at least {' and '.join(_NEEDED)}")
    return {operation: _points(path, f"{where}.{operation}", points) for operation, points in curves.items()}


def _part(path: str | Path, where: str, value: Any, key: str, what: str) -> Any:
    if not isinstance(value, dict):
        raise CalibrationError(f"{path}: {where} is {value!r}; expected an object with a {what}")
    if key not in value:
        known = ", ".join(value) or "none"
        raise CalibrationError(f"{path}: {where} has no {what} {key!r}; it has {known}")
    return value[key]


def _points(path: str | Path, where: str, points: Any) -> Points:
    operation = where.rpartition(".")[2]
    if operation not in OPERATIONS:
        raise CalibrationError(f"{path}: {where} is unknown; expected one of {', '.join(OPERATIONS)}")
    if not isinstance(points, list) or not points:
        raise CalibrationError(f"{path}: {where} is {points!r}; expected pairs of filters and nanoseconds")
    last = 0.0
    for point in points:
        if not isinstance(point, list) or len(point) != 2 or not all(map(_is_number, point)):
            raise CalibrationError(f"{path}: {where} has {point!r}; expected [filters, nanoseconds]")
        if not last < point[0]:
            raise CalibrationError(f"{path}: {where} has {point[0]!r} filters; expected rising numbers")
        last = point[0]
    return [(filters, ns) for filters, ns in points]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12
