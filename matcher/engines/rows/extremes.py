"""Bounds that part two int64 values which share a key, kept exactly.

-2**63 has the key of -2**63 + 1, and 2**63 - 1 that of 2**63 - 2 (`keys.py`). Only a bound right between
such a pair is not exact on keys; those few are remembered here, and only events that carry one of the
four values are asked about. Invariant: rows accept a superset by keys, and `hold` takes away what is too
much.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.operands import Values
from covey.matcher.compile.plan import BoxPlan
from covey.matcher.encoding.keys import FIRST, LAST, greatest_integer, is_ambiguous, least_integer
from covey.matcher.events.event_type import EventType, Kind

Place = tuple[int, int, bool]
"""(box, position of the test, whether it is the lower bound)"""


class Extremes:
    """Exact bounds by the first row of a subscription."""

    def __init__(self) -> None:
        self._bounds: dict[int, dict[Place, int]] = {}

    def __bool__(self) -> bool:
        return bool(self._bounds)

    def __contains__(self, first: object) -> bool:
        return first in self._bounds

    def note(self, firsts: npt.NDArray[np.int64], place: Place, value: Values, strict: bool) -> None:
        """These subscriptions have these bounds now (one value for all, or one each)."""
        if self._bounds:
            for first in self._bounds.keys() & set(firsts.tolist()):
                self._bounds[first].pop(place, None)
                if not self._bounds[first]:
                    del self._bounds[first]
        exact = least_integer if place[2] else greatest_integer
        if not isinstance(value, np.ndarray):
            if is_ambiguous(Kind.INT64, value, strict, place[2]):
                bound = int(exact(value, strict))  # type: ignore[arg-type]
                for first in firsts.tolist():
                    self._bounds.setdefault(first, {})[place] = bound
            return
        if is_inner(value):
            return
        outermost = (value <= FIRST) | (value >= LAST)
        for position in np.flatnonzero(outermost).tolist():
            element = value[position].item() if isinstance(value[position], np.generic) else value[position]
            if is_ambiguous(Kind.INT64, element, strict, place[2]):
                self._bounds.setdefault(int(firsts[position]), {})[place] = int(exact(element, strict))

    def forget(self, firsts: npt.NDArray[np.int64]) -> None:
        """These subscriptions are gone."""
        if self._bounds:
            for first in firsts.tolist():
                self._bounds.pop(first, None)

    def keeps(self, first: int, box: int, place: int, value: object) -> bool:
        """Whether an event's value, accepted by its key, also keeps the exact bounds of one test."""
        bounds = self._bounds[first]
        low, high = bounds.get((box, place, True)), bounds.get((box, place, False))
        if not isinstance(value, int):
            return True
        return (low is None or value >= low) and (high is None or value <= high)

    def hold(
        self, first: int, box: int, plan: BoxPlan, event_type: EventType, event: Mapping[str, object]
    ) -> bool:
        """Whether an event that a box accepts by its keys also keeps the box's exact bounds."""
        for (of_box, place, is_lower), bound in self._bounds[first].items():
            if of_box == box:
                value = event[event_type.names[plan.columns[place]]]
                assert isinstance(value, int)
                if value < bound if is_lower else value > bound:
                    return False
        return True


def is_inner(value: Values) -> bool:
    """Whether bounds of these values part no two that share a key, plain to see."""
    if isinstance(value, np.ndarray):
        return not len(value) or bool(FIRST < value.min() <= value.max() < LAST)
    return isinstance(value, int) and FIRST < value < LAST
