"""The cost of a message to its broker: none, the measured processor time, or a calibrated time; and files of
calibrations: {"format": "covey-costs-1", "note": ..., "costs": {SYSTEM: {SHAPE: {OPERATION: CURVE}}}}.

`Free` and `Calibrated` are deterministic; `Measured` depends on this machine. A curve has pairs of a number
of filters that the broker stores for clients and neighbours, rising, and ns: [[10, 52000], [100, 410000]].
Logarithms are interpolated; beyond the ends a curve is constant, so measure up to the simulated size.
Invariant: costs that were read can be charged; other files are refused with the place of the mistake.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from covey.matcher.errors import CoveyError

Points = Sequence[Sequence[float]]
"""(number of filters, ns), rising."""

OPERATIONS = ("publish", "subscribe", "unsubscribe", "update", "acknowledge")
_INSTEAD = {"disconnect": "unsubscribe", "unsubscribe": "subscribe", "update": "subscribe"}
"""The operation that replaces one without a curve; for all others `acknowledge`."""
_BUCKETS = 4
"""Measured costs are added up by numbers of filters that differ by less than a factor of 2 ** (1 / 4)."""


class Sample(NamedTuple):
    """A message at a broker; `filters` are the broker's, `took_ns` its processor time if it is measured."""

    broker: str
    kind: str
    events: int
    filters: int
    took_ns: int = 0


class Costs(Protocol):
    """`charge` returns the ns for which the broker is busy with a message."""

    @property
    def measures(self) -> bool:
        """Whether samples need the real processor time."""
        ...

    def charge(self, sample: Sample) -> int: ...


class Free:
    measures = False

    def charge(self, sample: Sample) -> int:
        return 0


class Measured:
    measures = True

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale
        self._totals: dict[tuple[str, int], list[int]] = {}
        """By operation and bucket of filters: messages (of `publish` events), filters, ns."""

    def charge(self, sample: Sample) -> int:
        bucket = round(_BUCKETS * log(max(sample.filters, 1), 2))
        totals = self._totals.setdefault((sample.kind.lower(), bucket), [0, 0, 0])
        count = max(sample.events, 1)
        totals[0] += count
        totals[1] += count * sample.filters
        totals[2] += sample.took_ns
        return round(sample.took_ns * self.scale)

    @property
    def took_ns(self) -> dict[str, int]:
        """The measured time by operation, without the scale."""
        total: dict[str, int] = {}
        for (operation, _), (_, _, took_ns) in self._totals.items():
            total[operation] = total.get(operation, 0) + took_ns
        return total

    def curves(self) -> dict[str, list[tuple[float, float]]]:
        """The mean cost of each operation by the number of filters, without the scale."""
        curves: dict[str, list[tuple[float, float]]] = {}
        for (operation, _), (count, filters, took_ns) in sorted(self._totals.items()):
            if operation in OPERATIONS:
                point = max(1.0, round(filters / count, 1)), float(round(took_ns / count))
                curves.setdefault(operation, []).append(point)
        return curves


class Calibrated:
    """The cost from a curve per operation, times `scale`; of a Publish for each of its events.

    Without a curve an `update` or `unsubscribe` costs as a `subscribe`, the end of a session as an
    `unsubscribe`, and every other message as an `acknowledge`, or nothing if that has no curve either.
    """

    measures = False

    def __init__(self, curves: Mapping[str, Points], scale: float = 1.0) -> None:
        self._curves = {operation: _Curve(points, scale) for operation, points in curves.items()}
        self._by_kind: dict[str, _Curve | None] = {}

    def charge(self, sample: Sample) -> int:
        kind = sample.kind
        if kind not in self._by_kind:
            self._by_kind[kind] = self._find(kind.lower())
        curve = self._by_kind[kind]
        return 0 if curve is None else curve.at(sample.filters) * max(sample.events, 1)

    def _find(self, operation: str) -> _Curve | None:
        while operation not in self._curves:
            if operation == "acknowledge":
                return None
            operation = _INSTEAD.get(operation, "acknowledge")
        return self._curves[operation]


def constant(ns: float) -> Points:
    return [(1, ns)]


class _Curve:
    def __init__(self, points: Points, scale: float) -> None:
        self._filters = [log(filters) for filters, _ in points]
        self._costs = [log(max(ns * scale, 1e-3)) for _, ns in points]
        self._known: dict[int, int] = {}

    def at(self, filters: int) -> int:
        """In ns."""
        cost = self._known.get(filters)
        if cost is None:
            cost = self._known[filters] = round(exp(self._log_at(log(max(filters, 1)))))
        return cost

    def _log_at(self, x: float) -> float:
        xs, ys = self._filters, self._costs
        right = bisect_left(xs, x)
        if right in (0, len(xs)):
            return ys[max(0, right - 1)]
        left = right - 1
        return ys[left] + (ys[right] - ys[left]) * (x - xs[left]) / (xs[right] - xs[left])


FORMAT = "covey-costs-1"
CostTable = Mapping[str, Mapping[str, Mapping[str, Points]]]
_NEEDED = ("publish", "subscribe")


class CalibrationError(CoveyError, ValueError):
    """A calibration file is wrong, or has no costs for a system and load."""


def save_costs(path: str | Path, table: CostTable, note: str) -> None:
    """Write a calibration file. `CalibrationError` if that fails, or if a curve is missing."""
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
    """The curves of a system under a load. `CalibrationError` names the file and the fault."""
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
