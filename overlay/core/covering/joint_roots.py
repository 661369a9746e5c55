"""The roots of the second level: the maximal elements among the roots of all groups but one.

Two roots of one group never cover each other, so both queries of `roots.py` search only the other groups, in
the roots of their own forests. Nothing is searched where one group has all the interest, as at the edge of an
overlay, and no neighbour needs an index of its own.

Invariant: at a query the groups' forests have applied the current change; nodes that this level has not yet
added, or that are covered here, are excluded from the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.covering.roots import Roots, ScannedRoots

if TYPE_CHECKING:
    from covey.overlay.core.covering.poset import Forest


class JointRoots(Roots):
    """Roots over the forests of all groups except one. A query costs one query of each of the others."""

    def __init__(self, groups: Mapping[str, Forest], exclude: str) -> None:
        super().__init__()
        self._groups = groups
        self._exclude = exclude

    def find_cover(self, node: Interest) -> Interest | None:
        for roots in self._others(node):
            cover = roots.find_cover(node, self._nodes)
            if cover is not None:
                return cover
        return None

    def covered_by(self, node: Interest) -> list[Interest]:
        covered: list[Interest] = []
        for roots in self._others(node):
            covered += roots.covered_by(node, self._nodes)
        return self._in_order(covered)

    def _others(self, node: Interest) -> Iterator[ScannedRoots]:
        for group, forest in self._groups.items():
            if group != self._exclude and group != node.group:
                yield forest.searched
