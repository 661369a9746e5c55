"""Promises: the content that advertisements announce, as in Siena.

Events outside of an Advertise's filter are refused where they enter, and interest is forwarded only to
neighbours whose promise intersects it. The promise sent to a neighbour is the disjunction of the promises of
all other interfaces. Invariant: a sent promise only widens until the type is withdrawn as a whole, so that
events in flight do not meet interest withdrawn because of it. So a neighbour may get more interest than
needed, never less. A disjunction of more than `MAX_PARTS`, or over schemas that do not agree, becomes a
promise of everything, which is sound."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.covering.covering import intersects_region
from covey.matcher.events.event_type import EventType
from covey.matcher.expressions.expression import Expression, Or
from covey.matcher.filters.filter import Filter
from covey.overlay.core.matching.event_points import EventPoints
from covey.overlay.core.matching.matching import FilterAt, Matching

if TYPE_CHECKING:
    from covey.matcher.events.batch import EventBatch
    from covey.overlay.core.covering.interest import Interest
    from covey.overlay.core.covering.poset import Poset, RootChange

MAX_PARTS = 16


class Promise:
    """The content that one interface advertises of a type; `filter` None for everything."""

    def __init__(self, filter: Filter | None) -> None:
        self.filter = filter
        self._region = None if filter is None else filter.region()
        self._matching: Matching | None = None

    def admits(self, interest: Interest) -> bool:
        """Whether an event of this promise may match; False is always exact."""
        return self._region is None or intersects_region(self._region, interest.region)

    def select(self, batch: EventBatch) -> npt.NDArray[np.bool_] | None:
        """bool[events]: the promised events; None for all of them."""
        if self.filter is None:
            return None
        if self._matching is None:
            self._matching = Matching(
                "naive" if self.filter.boxes() is None else "cluster", self.filter.event_type
            )
            self._matching.put(FilterAt(1, self.filter, {}), 0)
        promised = self._matching.match(EventPoints(batch)).any()
        return None if promised.all() else promised


def covers(wider: Filter | None, narrower: Filter | None) -> bool:
    return wider is None or (narrower is not None and wider.covers(narrower))


def union(filters: Iterable[Filter | None]) -> Filter | None:
    """A filter that accepts what any of these does; None for everything."""
    widest: list[Filter] = []
    event_type: EventType | None = None
    for filter in filters:
        if filter is None or (event_type is not None and not event_type.agrees(filter.event_type)):
            return None
        event_type = filter.event_type if event_type is None else event_type.union(filter.event_type)
        if not any(other.covers(filter) for other in widest):
            widest = [other for other in widest if not filter.covers(other)] + [filter]
    if len(widest) == 1:
        return widest[0]
    parts = [part for filter in widest for part in _parts(filter)]
    if event_type is None or len(parts) > MAX_PARTS:
        return None
    return Filter(event_type, Or(tuple(parts)))


def _parts(filter: Filter) -> tuple[Expression, ...]:
    return filter.expression.parts if isinstance(filter.expression, Or) else (filter.expression,)


def scoped(
    promise: Promise | None, poset: Poset, roots: RootChange
) -> tuple[Sequence[Interest], Sequence[Interest], Sequence[Interest]]:
    """The part of a change of roots within a neighbour's promise: entered, moved and left roots."""
    if promise is None:
        return roots.entered, roots.moved, roots.left
    entered = [root for root in roots.entered if promise.admits(root)]
    moved: list[Interest] = []
    left = [root for root in roots.left if root in poset]
    for root in roots.moved:
        inside = promise.admits(root)
        if root in poset:
            (moved if inside else left).append(root)
        elif inside:
            entered.append(root)
    return entered, moved, left
