"""Imperfect merging under a budget: at most so many bundles per neighbour and event type, whatever they ask
for in excess.

While there is room a root has a bundle of its own. Beyond that it joins the bundle that grows least by it, or
two other bundles become one to make room, where that costs less; of those one pair is tried each time, in
turn, so that a bad grouping mends itself. Growth is counted in the widths of what has been asked for,
attribute by attribute; to let go of an attribute counts as much as several widths.

Invariants: at most `budget` bundles; the hull of a bundle holds its roots. After roots have left it may be
wider than they are: it is computed anew after half as many have left or moved as there are, so that a change
costs a constant number of steps on the average. Cost of a change that a bundle's hull does not hold: in
proportion to the budget.
"""

from __future__ import annotations

from covey.matcher.covering.intervals import Cut
from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.merging.hull import Hull, around, axes, exact_hull, holds, join
from covey.overlay.core.merging.merging import Bundle, Merger

_LOST_ATTRIBUTE = 4.0


class _Heap(Bundle):
    """Some roots and a hull around them; `loose` counts what has left or moved since it was computed."""

    __slots__ = ("loose", "members")

    def __init__(self, uid: int) -> None:
        super().__init__(uid)
        self.members: dict[int, tuple[Interest, Hull]] = {}
        self.loose = 0


class BudgetMerger(Merger):
    """At most `budget` bundles."""

    def __init__(self, budget: int) -> None:
        super().__init__()
        self.budget: int = budget
        self._heaps: list[_Heap] = []
        self._ranges: dict[str, tuple[Cut, Cut]] = {}
        self._scales: dict[str, float] = {}
        self._turn = 0

    def _enter(self, root: Interest) -> None:
        hull = around(root.region)
        for axis in axes(self._event_type, hull):
            low, high = hull[axis]
            known = self._ranges.get(axis, (low, high))
            self._ranges[axis] = low, high = min(low, known[0]), max(high, known[1])
            self._scales[axis] = 1.0 / max(high - low, 1)
        heap = self._heap_for(hull)
        heap.members[root.uid] = (root, hull)
        self._bundle_of[root.uid] = heap
        self._fit(heap, hull)

    def _leave(self, root: Interest) -> None:
        heap = self._heap_of(root)
        self._touch(heap)
        del self._bundle_of[root.uid], heap.members[root.uid]
        heap.loose += 1
        self._fit(heap, None)

    def _move(self, root: Interest) -> None:
        heap, hull = self._heap_of(root), around(root.region)
        if len(heap.members) == 1 or (heap.hull is not None and holds(heap.hull, hull)):
            self._touch(heap)
            heap.members[root.uid] = (root, hull)
            heap.loose += 1
            self._fit(heap, None)
        else:
            self._leave(root)
            self._enter(root)

    def _heap_of(self, root: Interest) -> _Heap:
        heap = self._bundle_of[root.uid]
        assert isinstance(heap, _Heap)
        return heap

    # --- which goes where -----------------------------------------------------------------------------------

    def _heap_for(self, hull: Hull) -> _Heap:
        if len(self._heaps) < self.budget:
            return self._new_heap()
        cost, nearest = self._nearest(hull, None)
        self._turn = (self._turn + 1) % len(self._heaps)
        tried = self._heaps[self._turn]
        if cost and len(self._heaps) > 1:
            less, other = self._nearest(_hull_of(tried), tried)
            if less < cost:
                self._take_in(other, tried)
                return self._new_heap()
        self._touch(nearest)
        return nearest

    def _new_heap(self) -> _Heap:
        heap = _Heap(self._uid())
        self._begin(heap)
        self._heaps.append(heap)
        return heap

    def _nearest(self, hull: Hull, but: _Heap | None) -> tuple[float, _Heap]:
        """The heap that grows least if it takes in a hull, and by how much."""
        best: tuple[float, _Heap] | None = None
        for heap in self._heaps:
            if heap is not but:
                cost = self._growth(_hull_of(heap), hull)
                if best is None or cost < best[0]:
                    best = (cost, heap)
        assert best is not None
        return best

    def _growth(self, a: Hull, b: Hull) -> float:
        """How much wider a hull of both is than either, in widths of what is asked for."""
        cost, shared, scales = 0.0, 0, self._scales
        for attribute, (low, high) in a.items():
            other = b.get(attribute)
            scale = scales.get(attribute)
            if other is None or (scale is None and other != (low, high)):
                continue
            shared += 1
            if scale is not None:
                least, greatest = other
                both = (high if high > greatest else greatest) - (low if low < least else least)
                cost += (2 * both - (high - low) - (greatest - least)) * scale
        return cost + _LOST_ATTRIBUTE * (len(a) + len(b) - 2 * shared)

    def _take_in(self, heap: _Heap, other: _Heap) -> None:
        """One heap takes in another, which is no more."""
        self._touch(heap)
        self._touch(other)
        hull = _hull_of(other)
        for uid, member in other.members.items():
            heap.members[uid] = member
            self._bundle_of[uid] = heap
        other.members = {}
        self._fit(other, None)
        self._fit(heap, hull)

    # --- what a heap asks for -------------------------------------------------------------------------------

    def _fit(self, heap: _Heap, more: Hull | None) -> None:
        """Give a touched heap the hull of its members, to which these may be new."""
        heap.size = len(heap.members)
        if not heap.size:
            self._heaps.remove(heap)
            return
        if heap.size == 1:
            (root, hull), *_ = heap.members.values()
            heap.loose = 0
            heap.hull, heap.root = exact_hull(root.region), root
            return
        if heap.root is not None or 2 * heap.loose > heap.size:
            hulls = [hull for _, hull in heap.members.values()]
            heap.loose = 0
        else:
            assert heap.hull is not None
            hulls = [heap.hull] if more is None else [heap.hull, more]
        hull = hulls[0]
        for other in hulls[1:]:
            hull = join(self._event_type, hull, other)
        heap.hull, heap.root = hull, None


def _hull_of(heap: _Heap) -> Hull:
    if heap.hull is not None:
        return heap.hull
    ((_, hull),) = heap.members.values()
    return hull
