"""Perfect merging: roots that differ in one interval alone, and whose intervals meet, are one bundle.

Roots with the same intervals in all attributes but one, the *axis*, are on one *line*. Roots on a line whose
intervals overlap or touch form a run, which is a bundle: its hull is exactly their union. No root covers
another, so both ends ascend in a run.

Invariants: a bundle of several roots is on the line of its axis; a bundle of one is on a line for each axis;
bundles on a line do not touch. Cost: binary searches, and O(roots of the smaller part) to merge or split."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Any

from covey.matcher.covering.cuts import Cut
from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.merging.hull import Hull, axes, exact_hull
from covey.overlay.core.merging.merging import Bundle, Merger

_Member = tuple[Cut, Cut, int]
"""Low end, high end and uid of a root on its line."""


class _Run(Bundle):
    """Roots in order along `axis`; a single root has None."""

    __slots__ = ("axis", "members")

    def __init__(self, uid: int) -> None:
        super().__init__(uid)
        self.axis: str | None = None
        self.members: list[_Member] = []


class _Line:
    __slots__ = ("lows", "runs")

    def __init__(self) -> None:
        self.lows: list[Cut] = []
        self.runs: list[_Run] = []

    def add(self, low: Cut, run: _Run) -> None:
        place = bisect_left(self.lows, low)
        self.lows.insert(place, low)
        self.runs.insert(place, run)

    def discard(self, low: Cut) -> None:
        place = bisect_left(self.lows, low)
        del self.lows[place], self.runs[place]

    def touching(self, axis: str, low: Cut, high: Cut) -> list[_Run]:
        """The bundles that meet an interval, ascending."""
        stop = start = bisect_right(self.lows, high)
        while start and _span(self.runs[start - 1], axis)[1] >= low:
            start -= 1
        return self.runs[start:stop]


def _span(run: _Run, axis: str) -> tuple[Cut, Cut]:
    assert run.hull is not None
    return run.hull[axis]


class PerfectMerger(Merger):
    def __init__(self) -> None:
        super().__init__()
        self._lines: dict[tuple[Any, ...], _Line] = {}
        self._hulls: dict[int, Hull | None] = {}

    # --- the three changes ----------------------------------------------------------------------------------

    def _enter(self, root: Interest) -> None:
        self._insert(root, exact_hull(root.region), None)

    def _leave(self, root: Interest) -> None:
        run = self._run_of(root.uid)
        self._touch(run)
        del self._bundle_of[root.uid]
        hull = self._hulls.pop(root.uid)
        if run.axis is None:
            self._unlist_single(run)
            run.size = 0
            return
        assert hull is not None
        low, high = hull[run.axis]
        self._unlist(run, run.axis)
        place = bisect_left(run.members, (low, high, root.uid))
        del run.members[place]
        if 0 < place < len(run.members) and run.members[place - 1][1] < run.members[place][0]:
            self._split(run, place)
        else:
            self._relist(run)

    def _move(self, root: Interest) -> None:
        run, hull = self._run_of(root.uid), exact_hull(root.region)
        if run.axis is None and (hull is None) == (run.hull is None):
            self._touch(run)
            self._unlist_single(run)
            run.size = 0
            self._insert(root, hull, run)
        else:
            self._leave(root)
            self._insert(root, hull, None)

    def _run_of(self, uid: int) -> _Run:
        run = self._bundle_of[uid]
        assert isinstance(run, _Run)
        return run

    # --- joining --------------------------------------------------------------------------------------------

    def _insert(self, root: Interest, hull: Hull | None, own: _Run | None) -> None:
        self._hulls[root.uid] = hull
        if hull is not None and self._join(root.uid, hull):
            return
        run = own or self._new_run()
        run.root = root
        self._alone(run, root.uid, hull)

    def _new_run(self) -> _Run:
        run = _Run(self._uid())
        self._begin(run)
        return run

    def _alone(self, run: _Run, uid: int, hull: Hull | None) -> None:
        run.axis, run.hull, run.size, run.members = None, hull, 1, [(0, 0, uid)]
        self._bundle_of[uid] = run
        for axis in axes(self._event_type, hull or {}):
            self._list(run, axis)

    def _join(self, uid: int, hull: Hull) -> bool:
        for axis in axes(self._event_type, hull):
            line = self._lines.get(_key(hull, axis))
            if line is None:
                continue
            low, high = hull[axis]
            touched = line.touching(axis, low, high)
            if touched:
                self._merge(uid, axis, low, high, touched)
                return True
        return False

    def _merge(self, uid: int, axis: str, low: Cut, high: Cut, runs: list[_Run]) -> None:
        """Merge a root and the runs that it touches into the largest of them."""
        largest = max(runs, key=lambda run: run.size)
        members: list[_Member] = []
        for run in runs:
            self._touch(run)
            if run.axis is None:
                only = run.members[0][2]
                self._unlist_single(run)
                run.members = [(*_span(run, axis), only)]
            else:
                self._unlist(run, axis)
            if run is not largest:
                for member in run.members:
                    self._bundle_of[member[2]] = largest
                run.size = 0
            members += run.members
        insort(members, (low, high, uid))
        self._bundle_of[uid] = largest
        largest.axis, largest.members, largest.root = axis, members, None
        self._relist(largest)

    # --- splitting ------------------------------------------------------------------------------------------

    def _split(self, run: _Run, place: int) -> None:
        axis, below, above = run.axis, run.members[:place], run.members[place:]
        less, more = (below, above) if len(below) < len(above) else (above, below)
        other = self._new_run()
        other.axis, other.hull, other.members = axis, run.hull, less
        for member in less:
            self._bundle_of[member[2]] = other
        run.members = more
        self._relist(run)
        self._relist(other)

    def _relist(self, run: _Run) -> None:
        """Set the hull of an unlisted run and list it on its line; one member becomes a single."""
        assert run.axis is not None
        assert run.hull is not None
        if len(run.members) > 1:
            run.hull = {**run.hull, run.axis: (run.members[0][0], run.members[-1][1])}
            run.size = len(run.members)
            self._list(run, run.axis)
            return
        uid = run.members[0][2]
        hull = self._hulls[uid]
        assert hull is not None
        if self._join(uid, hull):  # along another axis
            run.size = 0
        else:
            self._alone(run, uid, hull)

    # --- lines ----------------------------------------------------------------------------------------------

    def _list(self, run: _Run, axis: str) -> None:
        assert run.hull is not None
        self._lines.setdefault(_key(run.hull, axis), _Line()).add(run.hull[axis][0], run)

    def _unlist(self, run: _Run, axis: str) -> None:
        assert run.hull is not None
        key = _key(run.hull, axis)
        line = self._lines[key]
        line.discard(run.hull[axis][0])
        if not line.runs:
            del self._lines[key]

    def _unlist_single(self, run: _Run) -> None:
        for axis in axes(self._event_type, run.hull or {}):
            self._unlist(run, axis)


def _key(hull: Hull, axis: str) -> tuple[Any, ...]:
    """The intervals that all hulls of a line share."""
    return (axis, *[(attribute, span) for attribute, span in hull.items() if attribute != axis])
