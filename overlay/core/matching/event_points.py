"""Tests events against regions one by one, without an engine.

The values of a batch become points between the cuts of regions (`covey.matcher.covering.cuts`), lazily
per attribute. A pair of an event and a region takes 0.3 µs and more in Python; so this is for few events and
few regions (`matching.py`), and for the papers' matching by the poset (`baselines/poset_matching.py`).

Calls of named operators count as true: an event in a region satisfies its cuts and predicates, and what its
filter calls is asked about the few events that do (`matcher/evaluation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from covey.matcher.covering.cuts import LINES, Cuts
from covey.matcher.expressions.evaluation import passes
from covey.matcher.expressions.expression import Constant, Predicate

if TYPE_CHECKING:
    from covey.matcher.covering.conjunction import Conjunction
    from covey.matcher.covering.covering import Region
    from covey.matcher.events.batch import EventBatch
    from covey.matcher.events.event_type import EventType

Rows = list[int]


class Walkable:
    """A region prepared for walking: `box` has the outermost cuts per attribute of a single conjunction;
    `is_box` if these define the region, calls apart.
    """

    __slots__ = ("box", "is_box", "region")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.box: list[tuple[str, Any, Any]] = []
        self.is_box = False
        if region.conjunctions is not None and len(region.conjunctions) == 1:
            (conjunction,) = region.conjunctions
            self.box = [(name, cuts[0], cuts[-1]) for name, cuts in conjunction.cuts.items()]
            self.is_box = not any(isinstance(atom, Predicate) for atom in conjunction.atoms) and all(
                len(c) == 2 for c in conjunction.cuts.values()
            )


class _Alone(dict[str, Any]):
    """The points of the only event of a batch, lazily by attribute. It does not refer to `EventPoints`, which
    has it: a reference cycle per event would keep events in memory until a garbage collection.
    """

    def __init__(self, batch: EventBatch) -> None:
        self._batch = batch

    def __missing__(self, attribute: str) -> Any:
        batch = self._batch
        (point,) = _points(batch.event_type, attribute, batch.values(attribute))
        self[attribute] = point
        return point


class EventPoints:
    """The events of one batch; `rows` are their positions. Creation costs O(1)."""

    __slots__ = ("_alone", "_over", "_points", "_rows", "_values", "batch")

    def __init__(self, batch: EventBatch) -> None:
        self.batch = batch
        self._rows: Rows | None = None
        self._alone: _Alone | None = None
        self._over: EventPoints | None = None
        self._values: dict[str, list[Any]] = {}
        self._points: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return self.batch.count

    def over(self, event_type: EventType) -> EventPoints:
        """These events under another schema of their type, that of the filters they are tested against."""
        if self.batch.event_type is event_type or self.batch.event_type == event_type:
            return self
        if self._over is None or self._over.batch.event_type != event_type:
            self._over = EventPoints(self.batch.with_schema(event_type))
        return self._over

    @property
    def rows(self) -> Rows:
        if self._rows is None:
            self._rows = list(range(self.batch.count))
        return self._rows

    def alone(self) -> Mapping[str, Any]:
        """The points of the only event, by attribute."""
        if self._alone is None:
            self._alone = _Alone(self.batch)
        return self._alone

    def inside(self, region: Region, rows: Rows) -> Rows:
        """The rows whose events are in the region, ascending."""
        conjunctions = region.conjunctions
        if conjunctions is None:
            if region.every:
                for part in region.parts:
                    rows = self.inside(part, rows)
                return rows
            return self._union([self.inside(part, rows) for part in region.parts])
        if len(conjunctions) == 1:
            return self._within(conjunctions[0], rows)
        return self._union([self._within(conjunction, rows) for conjunction in conjunctions])

    @staticmethod
    def _union(parts: list[Rows]) -> Rows:
        return sorted({row for rows in parts for row in rows})

    def _within(self, conjunction: Conjunction, rows: Rows) -> Rows:
        alone = rows[0] if len(rows) == 1 else -1
        for attribute, cuts in conjunction.cuts.items():
            points = self._points.get(attribute)
            if points is None:
                points = self.points_of(attribute)
            if alone >= 0 and len(cuts) == 2:  # the common case: no list per attribute
                if not cuts[0] <= points[alone] < cuts[1]:
                    return []
            elif len(cuts) == 2:
                low, high = cuts
                rows = [row for row in rows if low <= points[row] < high]
            else:
                rows = [row for row in rows if _lies(points[row], cuts)]
            if not rows:
                return rows
        for atom in conjunction.atoms:
            if isinstance(atom, Predicate):
                rows = self.passing(atom, rows)
        return rows

    def passing(self, atom: Predicate, rows: Rows) -> Rows:
        """Those of the rows whose events satisfy an atom."""
        values = self._values_of(atom.attribute)
        operands = [operand.value for operand in atom.operands if isinstance(operand, Constant)]
        return [
            row for row in rows if values[row] is not None and passes(atom.operator, values[row], operands)
        ]

    def _values_of(self, attribute: str) -> list[Any]:
        values = self._values.get(attribute)
        if values is None:
            values = self._values[attribute] = self.batch.values(attribute)
        return values

    def points_of(self, attribute: str) -> list[Any]:
        """The point of each event."""
        points = self._points.get(attribute)
        if points is not None:
            return points
        points = _points(self.batch.event_type, attribute, self._values_of(attribute))
        self._points[attribute] = points
        return points


def _points(event_type: EventType, attribute: str, values: list[Any]) -> list[Any]:
    line = LINES[event_type.attributes[attribute]]
    return [
        line.missing if value is None else line.before(value) if value == value else line.top
        for value in values
    ]


def _lies(point: Any, cuts: Cuts) -> bool:
    return any(cuts[i] <= point < cuts[i + 1] for i in range(0, len(cuts), 2))
