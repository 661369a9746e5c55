"""Siena's poset with the UPDATE of Jayaram et al. (section 4.3): look the node up, reorder it if needed.

A filter that moves is compared with its neighbours alone, and passes those that it now covers or that now
cover it, as in a heap: an order along a chain stays exact, at the cost of the places passed. Filters that
never were neighbours are not compared, so one that moves below another root remains a root. Roots still cover
everything; there may be more of them than needed. INSERT and DELETE are those of `Diagram`.
"""

from __future__ import annotations

from covey.matcher.covering.covering import Region, covers_region
from covey.overlay.core.baselines.diagram import Diagram, Place
from covey.overlay.core.covering.interest import Interest


class LocalDiagram(Diagram):
    """A diagram that reorders a moved filter against its neighbours."""

    exact = False

    def _move(self, node: Interest) -> None:
        place = self._places[node.uid]
        self._note(place)
        if len(place.members) > 1:
            place = self._split(node, place)
        region = place.region = node.region
        above, below = list(place.above), list(place.below)
        risen = [over for over in above if not covers_region(over.region, region)]
        freed = [under for under in below if not covers_region(region, under.region)]
        for over in risen:
            self._part(over, place)
        for under in freed:
            self._part(place, under)
            for over in above:
                if covers_region(over.region, under.region):
                    self._order(over, under)
        self._rise(place, risen)
        self._sink(place, [under for under in freed if covers_region(under.region, region)])
        for each in (place, *freed):
            if each.above:
                self._tops.pop(each, None)
            elif each not in self._tops:
                self._note(each)
                self._tops[each] = None

    def _split(self, node: Interest, shared: Place) -> Place:
        """A place of its own for one of several equal filters, below the others."""
        del shared.members[node.uid]
        place = Place(shared.region)
        self._join(node, place)
        self._order(shared, place)
        return place

    def _rise(self, place: Place, passed: list[Place]) -> None:
        """Order the place among those above the ones that cover it no longer."""
        region, seen, covered = place.region, set(passed), []
        while passed:
            over = passed.pop()
            if covers_region(region, over.region):
                covered.append(over)
            for higher in over.above:
                if covers_region(higher.region, region):
                    self._order(higher, place)
                elif higher not in seen:
                    seen.add(higher)
                    passed.append(higher)
        for over in covered:
            if not any(higher in covered for higher in over.above):
                if over in self._tops:
                    self._note(over)
                    del self._tops[over]
                self._order(place, over)

    def _sink(self, place: Place, over: list[Place]) -> None:
        """Order the place below the lowest of those that have come to cover it."""
        for former in list(place.above):
            if any(covers_region(former.region, each.region) for each in over):
                self._part(former, place)
        pending, seen = over, set(over)
        while pending:
            each = pending.pop()
            deeper = [b for b in each.below if b is not place and self._over(b, place.region)]
            if not deeper:
                self._order(each, place)
            for lower in deeper:
                if lower not in seen:
                    seen.add(lower)
                    pending.append(lower)

    @staticmethod
    def _over(place: Place, region: Region) -> bool:
        return covers_region(place.region, region)

    @staticmethod
    def _order(over: Place, under: Place) -> None:
        over.below[under] = under.above[over] = None

    @staticmethod
    def _part(over: Place, under: Place) -> None:
        del over.below[under], under.above[over]
