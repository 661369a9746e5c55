"""Siena's poset with the UPDATE of Jayaram et al. (section 4.3): as in a heap, a moved filter is compared
with its neighbours alone. One that moves below a root that never was its neighbour remains a root: roots
cover everything, but may be more than needed. Invariant: a place is above another only if its region covers
the other's and differs from it, so no cycles."""

from __future__ import annotations

from covey.matcher.covering.covering import Region, holds_region
from covey.overlay.core.covering.interest import Interest
from covey.sim.baselines.diagram import Diagram, Place


class LocalDiagram(Diagram):
    exact = False

    def _move(self, node: Interest) -> None:
        place = self._places[node.uid]
        self._note(place)
        if len(place.members) > 1:
            place = self._split(node, place)
        region = place.region = node.region
        above, below = list(place.above), list(place.below)
        risen = [over for over in above if not holds_region(over.region, region)]
        freed = [under for under in below if not holds_region(region, under.region)]
        for over in risen:
            self._part(over, place)
        for under in freed:
            self._part(place, under)
        self._bridge(risen, below)
        self._bridge(above, freed)
        self._rise(place, risen)
        self._sink(place, [under for under in freed if holds_region(under.region, region)])
        self._absorb_equals(place)
        for each in (place, *freed):
            if each.above:
                self._tops.pop(each, None)
            elif each not in self._tops:
                self._note(each)
                self._tops[each] = None

    def _bridge(self, above: list[Place], below: list[Place]) -> None:
        """Order places above and below a third that has left its place between them."""
        for under in below:
            for over in above:
                if not any(holds_region(over.region, other.region) for other in under.above):
                    self._order(over, under)

    def _split(self, node: Interest, shared: Place) -> Place:
        """Move one of several equal filters next above the others if it covers them, else next below."""
        del shared.members[node.uid]
        place = Place(shared.region)
        self._join(node, place)
        if holds_region(node.region, shared.region):
            for over in list(shared.above):
                self._part(over, shared)
                self._order(over, place)
            if shared in self._tops:
                del self._tops[shared]
                self._tops[place] = None
            self._order(place, shared)
        else:
            for under in list(shared.below):
                self._part(shared, under)
                self._order(place, under)
            self._order(shared, place)
        return place

    def _rise(self, place: Place, passed: list[Place]) -> None:
        """Order the place among those above the `passed` ones, which no longer cover it."""
        region, seen, covered = place.region, set(passed), []
        while passed:
            over = passed.pop()
            if holds_region(region, over.region):
                covered.append(over)
            for higher in over.above:
                if holds_region(higher.region, region):
                    self._order(higher, place)
                elif higher not in seen:
                    seen.add(higher)
                    passed.append(higher)
        for under in list(place.below):
            if any(over in covered for over in under.above):
                self._part(place, under)
        for over in covered:
            if not any(higher in covered for higher in over.above):
                if over in self._tops:
                    self._note(over)
                    del self._tops[over]
                for higher in place.above:
                    if over in higher.below:
                        self._part(higher, over)
                self._order(place, over)

    def _sink(self, place: Place, over: list[Place]) -> None:
        """Order the place below the lowest places that have come to cover it."""
        for former in list(place.above):
            if any(holds_region(former.region, each.region) for each in over):
                self._part(former, place)
        pending, seen = over, set(over)
        while pending:
            each = pending.pop()
            deeper = [b for b in each.below if b is not place and self._over(b, place.region)]
            if not deeper:
                for under in list(each.below):
                    if under is not place and holds_region(place.region, under.region):
                        self._part(each, under)
                        self._order(place, under)
                self._order(each, place)
            for lower in deeper:
                if lower not in seen:
                    seen.add(lower)
                    pending.append(lower)

    def _absorb_equals(self, place: Place) -> None:
        equal = [over for over in place.above if holds_region(place.region, over.region)]
        equal += [under for under in place.below if holds_region(under.region, place.region)]
        for other in dict.fromkeys(equal):
            self._note(other)
            self._tops.pop(other, None)
            place.members = other.members | place.members
            for node in other.members.values():
                self._places[node.uid] = place
            for over in list(other.above):
                self._part(over, other)
                if over is not place:
                    self._order(over, place)
            for under in list(other.below):
                self._part(other, under)
                if under is not place:
                    self._order(place, under)

    @staticmethod
    def _over(place: Place, region: Region) -> bool:
        return holds_region(place.region, region)

    @staticmethod
    def _order(over: Place, under: Place) -> None:
        over.below[under] = under.above[over] = None

    @staticmethod
    def _part(over: Place, under: Place) -> None:
        del over.below[under], under.above[over]
