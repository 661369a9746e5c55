"""Siena's poset as a diagram of next-above and next-below relations (Carzaniga et al. 2001; Jayaram et al.,
section 4.2, INSERT and DELETE, and 4.3, UPDATE). Invariants: a place is above another if and only if its
region covers the other's; `above` and `below` have only direct neighbours; no two places have equal regions.
A changed filter is compared with all roots, and with the neighbours of those that cover it or that it covers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from covey.matcher.covering.covering import Region, holds_region
from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.covering.poset import Change, Poset, RootChange, handovers_among

if TYPE_CHECKING:
    from covey.overlay.core.matching.event_points import Walkable


class Place:
    __slots__ = ("above", "below", "members", "prepared", "region")

    def __init__(self, region: Region) -> None:
        self.region = region
        self.prepared: Walkable | None = None
        """For matching. Outdated if it is of another region."""
        self.members: dict[int, Interest] = {}
        self.above: dict[Place, None] = {}
        self.below: dict[Place, None] = {}

    @property
    def first(self) -> Interest:
        return next(iter(self.members.values()))


class Diagram(Poset):
    def __init__(self) -> None:
        super().__init__()
        self._places: dict[int, Place] = {}
        self._tops: dict[Place, None] = {}
        self._was_root: dict[
            int, tuple[Interest, bool]
        ] = {}  # before the current change; empty between changes

    # --- the one entry for changes --------------------------------------------------------------------------

    def change(
        self,
        entered: Sequence[Interest] = (),
        moved: Sequence[Interest] = (),
        left: Sequence[Interest] = (),
    ) -> RootChange:
        for node in entered:
            self._nodes[node.uid] = node
            self._was_root[node.uid] = (node, False)
            self._insert(node)
        for node in moved:
            self._move(node)
        for node in left:
            self._note(self._places[node.uid])
            self._remove(node)
            del self._nodes[node.uid]
        change = self._summary(moved)
        self._was_root.clear()
        return change

    def _insert(self, node: Interest) -> None:
        above = self._next_above(node.region, None)
        for over in above:
            if holds_region(node.region, over.region):
                self._join(node, over)
                return
        place = Place(node.region)
        self._join(node, place)
        self._link(place, above, self._next_below(node.region, above, place))

    def _move(self, node: Interest) -> None:
        """UPDATE: in place if the neighbours stay the same, else remove and insert."""
        place = self._places[node.uid]
        self._note(place)
        region = node.region
        if len(place.members) == 1 and self._keeps_place(node, place, region):
            place.region = region
            return
        self._remove(node)
        self._insert(node)

    def _keeps_place(self, node: Interest, place: Place, region: Region) -> bool:
        for above in place.above:
            if not holds_region(above.region, region) or holds_region(region, above.region):
                return False
        for below in place.below:
            if not holds_region(region, below.region) or holds_region(below.region, region):
                return False
        if node.loses:
            adjacent = self._next_above(region, place)
            if len(adjacent) != len(place.above) or any(over not in place.above for over in adjacent):
                return False
        if node.gains:
            adjacent = self._next_below(region, list(place.above), place)
            if len(adjacent) != len(place.below) or any(under not in place.below for under in adjacent):
                return False
        return True

    # --- searching ------------------------------------------------------------------------------------------

    def _next_above(self, region: Region, exclude: Place | None) -> list[Place]:
        seen: dict[Place, bool] = {}

        def over(place: Place) -> bool:
            covers = seen.get(place)
            if covers is None:
                covers = seen[place] = place is not exclude and holds_region(place.region, region)
            return covers

        pending = [top for top in self._tops if over(top)]
        lowest: dict[Place, None] = {}
        done: set[Place] = set(pending)
        while pending:
            place = pending.pop()
            deeper = [below for below in place.below if over(below)]
            if not deeper:
                lowest[place] = None
            for below in deeper:
                if below not in done:
                    done.add(below)
                    pending.append(below)
        return list(lowest)

    def _next_below(self, region: Region, above: list[Place], exclude: Place) -> list[Place]:
        """The highest places, other than `exclude`, that a region covers, given the places next above it."""
        seen: dict[Place, bool] = {exclude: False}

        def under(place: Place) -> bool:
            covers = seen.get(place)
            if covers is None:
                covers = seen[place] = holds_region(region, place.region)
            return covers

        pending = list(above[0].below if above else self._tops)
        done: set[Place] = set(pending)
        highest: dict[Place, None] = {}
        while pending:
            place = pending.pop()
            if under(place):
                highest[place] = None
                continue
            for below in place.below:
                if below not in done:
                    done.add(below)
                    pending.append(below)
        return [place for place in highest if not any(under(over) for over in place.above)]

    # --- linking --------------------------------------------------------------------------------------------

    def _join(self, node: Interest, place: Place) -> None:
        place.members[node.uid] = node
        self._places[node.uid] = place

    def _link(self, place: Place, above: list[Place], below: list[Place]) -> None:
        for over in above:
            for under in below:
                if under in over.below:
                    del over.below[under], under.above[over]
            over.below[place] = place.above[over] = None
        for under in below:
            if under in self._tops:
                self._note(under)
                del self._tops[under]
            under.above[place] = place.below[under] = None
        if not above:
            self._tops[place] = None

    def _remove(self, node: Interest) -> None:
        place = self._places.pop(node.uid)
        del place.members[node.uid]
        if place.members:
            return
        self._tops.pop(place, None)
        for over in place.above:
            del over.below[place]
        for under in place.below:
            del under.above[place]
        for under in place.below:
            for over in place.above:
                if not any(holds_region(other.region, under.region) for other in over.below):
                    over.below[under] = under.above[over] = None
            if not under.above:
                self._note(under)
                self._tops[under] = None

    # --- what the change did to the roots -------------------------------------------------------------------

    def _note(self, place: Place) -> None:
        """Call it before these filters may become roots or cease to be roots."""
        for node in place.members.values():
            self._was_root.setdefault(node.uid, (node, self._is_root(node)))

    def _is_root(self, node: Interest) -> bool:
        place = self._places.get(node.uid)
        return place is not None and place in self._tops and place.first is node

    def _summary(self, moved: Sequence[Interest]) -> RootChange:
        entered: list[Interest] = []
        left: list[Interest] = []
        for node, before in self._was_root.values():
            now = self._is_root(node)
            if now and not before:
                entered.append(node)
            elif before and not now:
                left.append(node)
        stayed = [
            node for node in moved if self._is_root(node) and self._was_root.get(node.uid, (node, False))[1]
        ]
        return Change(entered, stayed, left, handovers_among(left, entered, moved))

    # --- reading --------------------------------------------------------------------------------------------

    def tops(self) -> Iterator[Place]:
        return iter(self._tops)

    def roots(self) -> Iterator[Interest]:
        return (place.first for place in self._tops)

    def root_of(self, node: Interest) -> Interest:
        place = self._places[node.uid]
        while place.above:
            place = next(iter(place.above))
        return place.first

    def witness_of(self, node: Interest) -> Interest | None:
        place = self._places[node.uid]
        if place.first is not node:
            return place.first
        return next(iter(place.above)).first if place.above else None
