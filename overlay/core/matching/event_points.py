"""Tests events against regions without an engine. Calls of named operators count as true
(`matcher/evaluation` decides them).

*One by one*: values become points between the cuts of regions, lazily per attribute. A pair of an event and a
region takes 0.3 µs and more, so this is for few of both (`matching.py`), and for the papers' matching by the
poset (`baselines/poset_matching.py`).

*Column by column*: each attribute is ranked once, so a cut becomes a position by bisection, exactly for every
kind, and an interval one numpy comparison. 1,000 filters of three attributes take about 20 ms for a batch of
1,024 events."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from covey.matcher.covering.cuts import LINES, Cuts
from covey.matcher.expressions.evaluation import passes
from covey.matcher.expressions.expression import Constant, Predicate

if TYPE_CHECKING:
    from covey.matcher.covering.conjunction import Conjunction
    from covey.matcher.covering.covering import Region
    from covey.matcher.events.batch import EventBatch
    from covey.matcher.events.event_type import EventType


Rows = list[int]
Box = list[tuple[str, Any, Any]]


class Walkable:
    """`box`: the outermost cuts per attribute of a single conjunction; `is_box`: they define the region,
    calls apart."""

    __slots__ = ("box", "is_box", "region")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.box: Box = []
        self.is_box = False
        if region.conjunctions is not None and len(region.conjunctions) == 1:
            (conjunction,) = region.conjunctions
            self.box = [(name, cuts[0], cuts[-1]) for name, cuts in conjunction.cuts.items()]
            self.is_box = not any(isinstance(atom, Predicate) for atom in conjunction.atoms) and all(
                len(c) == 2 for c in conjunction.cuts.values()
            )


class EventPoints:
    """The events of one batch; `rows` are their positions. Creation costs O(1)."""

    __slots__ = ("_over", "_points", "_rows", "_values", "alone", "batch")

    def __init__(self, batch: EventBatch) -> None:
        self.batch = batch
        self._rows: Rows | None = None
        self.alone: dict[str, Any] = {}
        """The known points of a single event, by attribute."""
        self._over: EventPoints | None = None
        self._values: dict[str, list[Any]] = {}
        self._points: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return self.batch.count

    def over(self, event_type: EventType) -> EventPoints:
        """These events under the schema of the filters they are tested against."""
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

    def point(self, attribute: str) -> Any:
        """The point of the only event; also sets it in `alone`."""
        batch = self.batch
        line = LINES[batch.event_type.attributes[attribute]]
        (value,) = batch.values(attribute)
        point = line.missing if value is None else line.before(value) if value == value else line.top
        self.alone[attribute] = point
        return point

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
        points = self._points.get(attribute)
        if points is not None:
            return points
        line = LINES[self.batch.event_type.attributes[attribute]]
        points = self._points[attribute] = [
            line.missing if value is None else line.before(value) if value == value else line.top
            for value in self._values_of(attribute)
        ]
        return points


def around(boxes: Iterable[tuple[int, int, Box]], events: EventPoints) -> dict[int, int]:
    """The numbers, by uid, of the boxes that the only event is in."""
    found: dict[int, int] = {}
    alone = events.alone
    for uid, number, box in boxes:
        for attribute, low, high in box:
            point = alone[attribute] if attribute in alone else events.point(attribute)
            if not low <= point < high:
                break
        else:
            found[uid] = number
    return found


def _lies(point: Any, cuts: Cuts) -> bool:
    return any(cuts[i] <= point < cuts[i + 1] for i in range(0, len(cuts), 2))


Mask = npt.NDArray[np.bool_]
_EMPTY_BYTES = _ATTRIBUTE_BYTES = _ATOM_BYTES = 512
_RANK_BYTES = 128
"""Of an event in one attribute: its value, its point and its rank, without the characters of strings."""
_MOST_CHARACTERS = 64
"""Atoms with longer constants get no stored mask, so one takes at most 256 bytes of `_ATOM_BYTES`."""
_Ranks = tuple[list[Any], npt.NDArray[np.int64]]


class EventMasks:
    __slots__ = ("_atoms", "_events", "_none", "_ranks", "nbytes")

    def __init__(self, events: EventPoints) -> None:
        self._events = events
        self.nbytes = _EMPTY_BYTES
        """Approximate memory besides the batch."""
        self._none: Mask = np.zeros(len(events), np.bool_)
        self._ranks: dict[str, _Ranks] = {}
        self._atoms: dict[Predicate, Mask] = {}

    @property
    def event_type(self) -> EventType:
        return self._events.batch.event_type

    def inside(self, region: Region) -> Mask:
        """bool[n_events]"""
        if region.conjunctions is None:
            join = np.logical_and if region.every else np.logical_or
            mask: Mask = join.reduce([self.inside(part) for part in region.parts])
            return mask
        if len(region.conjunctions) == 1:
            return self._within(region.conjunctions[0])
        mask = np.zeros(len(self._events), np.bool_)
        for conjunction in region.conjunctions:
            mask |= self._within(conjunction)
        return mask

    def _within(self, conjunction: Conjunction) -> Mask:
        intervals: list[tuple[npt.NDArray[np.int64], list[int]]] = []
        for attribute, cuts in conjunction.cuts.items():
            entry = self._ranks.get(attribute)
            if entry is None:
                entry = self._ranks[attribute] = _rank(self._events.points_of(attribute))
                self.nbytes += _ATTRIBUTE_BYTES + _RANK_BYTES * len(self._events)
                if entry[0] and isinstance(entry[0][0], str):
                    self.nbytes += 2 * sum(map(len, entry[0]))
            points, ranks = entry
            bounds = [bisect_left(points, cut) for cut in cuts]
            if bounds[0] == bounds[-1]:
                return self._none
            intervals.append((ranks, bounds))
        mask = np.ones(len(self._events), np.bool_)
        for ranks, bounds in intervals:
            mask &= _between(ranks, bounds)
        for atom in conjunction.atoms:
            if not isinstance(atom, Predicate):
                continue
            passing = self._atoms.get(atom)
            if passing is None:
                passing = np.zeros(len(mask), np.bool_)
                passing[self._events.passing(atom, self._events.rows)] = True
                if _characters_in(atom) <= _MOST_CHARACTERS:
                    self._atoms[atom] = passing
                    self.nbytes += _ATOM_BYTES + len(mask)
            mask &= passing
        return mask


def _characters_in(atom: Predicate) -> int:
    values = [operand.value for operand in atom.operands if isinstance(operand, Constant)]
    return sum(len(value) for value in values if isinstance(value, str))


def _between(ranks: npt.NDArray[np.int64], bounds: list[int]) -> Mask:
    mask = (ranks >= bounds[0]) & (ranks < bounds[1])
    for i in range(2, len(bounds), 2):
        mask |= (ranks >= bounds[i]) & (ranks < bounds[i + 1])
    return mask


def _rank(points: list[Any]) -> _Ranks:
    ordered = sorted(set(points))
    position = {point: rank for rank, point in enumerate(ordered)}
    return ordered, np.array([position[point] for point in points], np.int64)
