"""Imperfect merging: at most `budget` bundles per neighbour and event type; and the kinds of merging by name.

While fewer exist, a root gets its own bundle. Then it joins the bundle that grows least, or two other bundles
are merged to make room where that costs less; one such pair is tried per change, in turn, so that a bad
grouping improves over time.

Invariants: at most `budget` bundles; a hull covers its roots, and may be wider than needed after roots have
left. It is recomputed once half of its roots have left or moved, so a change costs O(1) on average. A change
outside of the bundle's hull costs O(budget)."""

from __future__ import annotations

from collections.abc import Callable

from covey.matcher.covering.cuts import Cut
from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.merging.hull import Hull, around, axes, covers_hull, exact_hull, join
from covey.overlay.core.merging.merging import Bundle, Merger
from covey.overlay.core.merging.perfect import PerfectMerger

_DROPPED_ATTRIBUTE = 4.0


class _HullBundle(Bundle):
    """`loose` counts the roots that have left or moved since the hull was computed."""

    __slots__ = ("loose", "members")

    def __init__(self, uid: int) -> None:
        super().__init__(uid)
        self.members: dict[int, tuple[Interest, Hull]] = {}
        self.loose = 0


class BudgetMerger(Merger):
    def __init__(self, budget: int) -> None:
        super().__init__()
        self.budget: int = budget
        self._all: list[_HullBundle] = []
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
        bundle = self._bundle_for(hull)
        bundle.members[root.uid] = (root, hull)
        self._bundle_of[root.uid] = bundle
        self._fit(bundle, hull)

    def _leave(self, root: Interest) -> None:
        bundle = self._hull_bundle_of(root)
        self._touch(bundle)
        del self._bundle_of[root.uid], bundle.members[root.uid]
        bundle.loose += 1
        self._fit(bundle, None)

    def _move(self, root: Interest) -> None:
        bundle, hull = self._hull_bundle_of(root), around(root.region)
        if len(bundle.members) == 1 or (bundle.hull is not None and covers_hull(bundle.hull, hull)):
            self._touch(bundle)
            bundle.members[root.uid] = (root, hull)
            bundle.loose += 1
            self._fit(bundle, None)
        else:
            self._leave(root)
            self._enter(root)

    def _hull_bundle_of(self, root: Interest) -> _HullBundle:
        bundle = self._bundle_of[root.uid]
        assert isinstance(bundle, _HullBundle)
        return bundle

    # --- choosing a bundle ----------------------------------------------------------------------------------

    def _bundle_for(self, hull: Hull) -> _HullBundle:
        if len(self._all) < self.budget:
            return self._new_bundle()
        cost, nearest = self._nearest(hull, None)
        self._turn = (self._turn + 1) % len(self._all)
        tried = self._all[self._turn]
        if cost and len(self._all) > 1:
            less, other = self._nearest(_hull_of(tried), tried)
            if less < cost:
                self._absorb(other, tried)
                return self._new_bundle()
        self._touch(nearest)
        return nearest

    def _new_bundle(self) -> _HullBundle:
        bundle = _HullBundle(self._uid())
        self._begin(bundle)
        self._all.append(bundle)
        return bundle

    def _nearest(self, hull: Hull, exclude: _HullBundle | None) -> tuple[float, _HullBundle]:
        """The least growth by the hull, and the bundle that grows so."""
        best: tuple[float, _HullBundle] | None = None
        for bundle in self._all:
            if bundle is not exclude:
                cost = self._growth(_hull_of(bundle), hull)
                if best is None or cost < best[0]:
                    best = (cost, bundle)
        assert best is not None
        return best

    def _growth(self, a: Hull, b: Hull) -> float:
        """How much wider a hull of both is than each, in ranges of all bounds seen; a lost attribute counts
        as several."""
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
        return cost + _DROPPED_ATTRIBUTE * (len(a) + len(b) - 2 * shared)

    def _absorb(self, bundle: _HullBundle, other: _HullBundle) -> None:
        self._touch(bundle)
        self._touch(other)
        hull = _hull_of(other)
        for uid, member in other.members.items():
            bundle.members[uid] = member
            self._bundle_of[uid] = bundle
        other.members = {}
        self._fit(other, None)
        self._fit(bundle, hull)

    # --- the hull of a bundle -------------------------------------------------------------------------------

    def _fit(self, bundle: _HullBundle, more: Hull | None) -> None:
        """Set the hull of a touched bundle; `more` is the hull of a new member, if any."""
        bundle.size = len(bundle.members)
        if not bundle.size:
            self._all.remove(bundle)
            return
        if bundle.size == 1:
            (root, hull), *_ = bundle.members.values()
            bundle.loose = 0
            bundle.hull, bundle.root = exact_hull(root.region), root
            return
        if bundle.root is not None or 2 * bundle.loose > bundle.size:
            hulls = [hull for _, hull in bundle.members.values()]
            bundle.loose = 0
        else:
            assert bundle.hull is not None
            hulls = [bundle.hull] if more is None else [bundle.hull, more]
        hull = hulls[0]
        for other in hulls[1:]:
            hull = join(self._event_type, hull, other)
        bundle.hull, bundle.root = hull, None


def _hull_of(bundle: _HullBundle) -> Hull:
    if bundle.hull is not None:
        return bundle.hull
    ((_, hull),) = bundle.members.values()
    return hull


MERGINGS = ("off", "perfect", "budget")
MERGING_BUDGET = 64
"""The default bundles per neighbour and event type."""


def merger_factory(merging: str, budget: int, routing: str) -> Callable[[], Merger | None]:
    """Creates the merger of one neighbour and event type, None if nothing is merged. Raises `ValueError` for
    another name, a budget below 1, and for merging with static routing, where no slot changes."""
    if merging not in MERGINGS:
        raise ValueError(f"merging {merging!r}: expected one of {', '.join(MERGINGS)}")
    if budget < 1:
        raise ValueError(f"merging_budget {budget}: expected a number from 1 up")
    if merging == "off":
        return lambda: None
    if routing == "static":
        raise ValueError(f"merging {merging!r}: expected off with static routing, where no slot changes")
    return PerfectMerger if merging == "perfect" else lambda: BudgetMerger(budget)
