"""What advertisements promise: which events of a type may come from where (content in ADs, as Siena has it).

An AD may carry a filter without variables: events outside are refused where they would enter, and interest
flows only towards neighbours beyond which some advertisement intersects it. What a neighbour is told is the
disjunction of what the others promise. Invariant: a promise that was told only widens until it is taken back
as a whole, so that no event under way meets interest that was withdrawn because of it; so what flows towards
a neighbour may be more than its present promises need, never less. A disjunction of more than `MAX_PARTS`
becomes a promise of everything, which is sound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.covering.covering import intersects_region
from covey.matcher.engine import Engine, create_engine
from covey.matcher.expressions.expression import Expression, Or
from covey.matcher.filters.filter import Filter

if TYPE_CHECKING:
    from covey.matcher.events.batch import EventBatch
    from covey.overlay.core.covering.interest import Interest
    from covey.overlay.core.covering.poset import Poset, RootChange

MAX_PARTS = 16


class Promise:
    """What one interface advertises of a type; `filter` None for everything."""

    def __init__(self, filter: Filter | None) -> None:
        self.filter = filter
        self._region = None if filter is None else filter.region()
        self._engine: Engine | None = None

    def admits(self, interest: Interest) -> bool:
        """Whether an event of this promise may match; a no is always right."""
        return self._region is None or intersects_region(self._region, interest.region)

    def keeps(self, batch: EventBatch) -> npt.NDArray[np.bool_] | None:
        """Which events it promises, None for all of them."""
        if self.filter is None:
            return None
        if self._engine is None:
            self._engine = create_engine(
                "naive" if self.filter.boxes() is None else "cluster", batch.event_type
            )
            self._engine.add(1, self.filter)
        offsets, _ = self._engine.match(batch)
        kept = np.diff(offsets) > 0
        return None if kept.all() else kept


def covers(wider: Filter | None, narrower: Filter | None) -> bool:
    """Whether a promise includes another."""
    return wider is None or (narrower is not None and wider.covers(narrower))


def union(filters: Iterable[Filter | None]) -> Filter | None:
    """A filter that accepts what any of these does; None for everything."""
    kept: list[Filter] = []
    for filter in filters:
        if filter is None:
            return None
        if not any(other.covers(filter) for other in kept):
            kept = [other for other in kept if not filter.covers(other)] + [filter]
    if len(kept) == 1:
        return kept[0]
    parts = [part for filter in kept for part in _parts(filter)]
    if not kept or len(parts) > MAX_PARTS:
        return None
    return Filter(kept[0].event_type, Or(tuple(parts)))


def _parts(filter: Filter) -> tuple[Expression, ...]:
    return filter.expression.parts if isinstance(filter.expression, Or) else (filter.expression,)


def scoped(
    promise: Promise | None, poset: Poset, roots: RootChange
) -> tuple[Sequence[Interest], Sequence[Interest], Sequence[Interest]]:
    """A change of roots as one neighbour's poset sees it: what entered, moved and left within its promise."""
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
