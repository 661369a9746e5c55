"""Costs of messages as functions of the number of filters that a broker has, from a calibration file.

The file is JSON: `format` is "covey-costs-1", and `costs[system][shape][operation]` a list of pairs of a
number of filters and nanoseconds, rising in the number. Operations are subscribe, unsubscribe, update,
acknowledge, and publish, which is the cost of one event; any other message costs as an acknowledgement. A
cost between two pairs is linear in logarithms, and constant beyond the first and the last.
`covey.sim.experiments.papers.jayaram_costs` measures one.
"""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import Mapping, Sequence
from math import exp, log
from pathlib import Path
from typing import Any

from covey.overlay.core.baselines.options import POSET_ENGINE
from covey.sim.simulator.costs import CalibrationError, Sample

FILTER_FORMAT = "covey-costs-1"
OPERATIONS = {
    "Subscribe": "subscribe",
    "Unsubscribe": "unsubscribe",
    "Update": "update",
    "Publish": "publish",
}
"""By kind of message."""
_OTHER = "acknowledge"
Points = Sequence[Sequence[float]]


def system_of(engine: str, poset: str, routing: str) -> str:
    """The name in a calibration file of a broker with these options: "siena", "rete" or "covey" after what
    matches, the routing, and "local" after a poset that reorders against neighbours."""
    matcher = "siena" if engine == POSET_ENGINE else "rete" if engine == "rete" else "covey"
    local = routing == "parametric" and poset == "diagram-local"
    return f"{matcher}-{routing}{'-local' if local else ''}"


class FilterCosts:
    """The costs of one system for filters of one shape, times `scale`."""

    measures = False

    def __init__(self, curves: Mapping[str, Points], scale: float = 1.0) -> None:
        self._logs = {
            operation: ([log(count) for count, _ in points], [log(ns) for _, ns in points])
            for operation, points in curves.items()
        }
        self._scale = scale
        self._known: dict[tuple[str, int], float] = {}

    def charge(self, sample: Sample) -> int:
        operation = OPERATIONS.get(sample.kind, _OTHER)
        key = operation, sample.subscriptions
        cost_ns = self._known.get(key)
        if cost_ns is None:
            cost_ns = self._known[key] = self._scale * self._at(operation, max(1, sample.subscriptions))
        return round(cost_ns * (sample.events if operation == "publish" else 1))

    def _at(self, operation: str, filters: int) -> float:
        if operation not in self._logs:
            raise CalibrationError(f"there is no cost of {operation}; expected one for this system")
        xs, ys = self._logs[operation]
        x = log(filters)
        place = bisect(xs, x)
        if place == 0 or place == len(xs):
            return exp(ys[max(0, place - 1)])
        share = (x - xs[place - 1]) / (xs[place] - xs[place - 1])
        return exp(ys[place - 1] + share * (ys[place] - ys[place - 1]))

    @classmethod
    def read(
        cls, path: str | Path, document: Mapping[str, Any], system: str, shape: str, scale: float
    ) -> FilterCosts:
        """From a parsed file. `CalibrationError` that names what is missing or wrong."""
        where: Any = document.get("costs")
        keys = ""
        for key in (system, shape):
            if not isinstance(where, dict) or key not in where:
                known = ", ".join(where) if isinstance(where, dict) else "a mapping"
                raise CalibrationError(f"{path}: costs{keys}.{key} is missing; expected one of {known}")
            where, keys = where[key], f"{keys}.{key}"
        for operation, points in where.items():
            numbers = [number for point in points for number in point]
            if not points or any(
                len(point) != 2 or not all(isinstance(n, int | float) and n > 0 for n in point)
                for point in points
            ):
                raise CalibrationError(
                    f"{path}: costs{keys}.{operation} is {numbers}; expected pairs of filters and nanoseconds"
                )
        return cls(where, scale)


def document_of(path: str | Path) -> dict[str, Any]:
    """The parsed calibration file. `CalibrationError` if it cannot be read."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CalibrationError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CalibrationError(f"{path}: not JSON: {error}") from None
    return document if isinstance(document, dict) else {}
