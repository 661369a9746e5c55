"""Events tested against regions column by column, without an engine: one mask of the batch per region.

Used while the kernels are not loaded yet (`covey.matcher.jit.compiling.kernels_usable`). Each attribute is
ranked once per batch: its distinct points in ascending order, and the position of each event's point among
them. A cut then becomes a position by bisection, which is exact for every kind, and an interval one numpy
comparison. 1,000 filters of three attributes take about 20 ms for a batch of 1,024 events. Calls count as
true, as in `event_points.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from covey.matcher.expressions.expression import Constant, Predicate

if TYPE_CHECKING:
    from covey.matcher.covering.conjunction import Conjunction
    from covey.matcher.covering.covering import Region
    from covey.matcher.events.event_type import EventType
    from covey.overlay.core.matching.event_points import EventPoints

Mask = npt.NDArray[np.bool_]
_EMPTY_BYTES = _ATTRIBUTE_BYTES = _ATOM_BYTES = 512
_RANK_BYTES = 128
"""Of an event in one attribute: its value, its point and its rank, without the characters of strings."""
_MOST_CHARACTERS = 64
"""Of the constants of an atom whose mask is kept: 256 bytes of `_ATOM_BYTES` at the most."""
_Ranks = tuple[list[Any], npt.NDArray[np.int64]]


class EventMasks:
    """The events of one batch, by rank."""

    __slots__ = ("_atoms", "_events", "_none", "_ranks", "nbytes")

    def __init__(self, events: EventPoints) -> None:
        self._events = events
        self.nbytes = _EMPTY_BYTES
        """About what this takes in memory besides the batch."""
        self._none: Mask = np.zeros(len(events), np.bool_)
        """Of all regions with an interval that no event is in."""
        self._ranks: dict[str, _Ranks] = {}
        self._atoms: dict[Predicate, Mask] = {}

    @property
    def event_type(self) -> EventType:
        return self._events.batch.event_type

    def inside(self, region: Region) -> Mask:
        """Which events lie in the region: bool[n_events]."""
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
