"""The roots of the second level: those of several forests, the groups', that no root of another group covers.

What goes to a neighbour is the maximal elements among the roots of all groups but its own. Two roots of one
group never cover each other, so both questions of `roots.py` need an answer from the other groups alone, and
their forests' own roots give it. So nothing is searched where one group has all the interest, as at the edge
of an overlay, and no second index is kept for any neighbour.

Invariant: when a question is asked, the groups' forests have taken in the change under way; what this level
has not yet taken in, or has put below something, is left out of the answer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.covering.roots import Roots, ScannedRoots

if TYPE_CHECKING:
    from covey.overlay.core.covering.poset import Forest


class JointRoots(Roots):
    """Roots over the forests of all groups but one. A question costs one of each of the other groups."""

    def __init__(self, groups: Mapping[str, Forest], but: str) -> None:
        super().__init__()
        self._groups = groups
        self._but = but

    def find_cover(self, node: Interest) -> Interest | None:
        for roots in self._others(node):
            found = roots.find_cover(node, self._nodes)
            if found is not None:
                return found
        return None

    def covered_by(self, node: Interest) -> list[Interest]:
        found: list[Interest] = []
        for roots in self._others(node):
            found += roots.covered_by(node, self._nodes)
        return self._in_order(found)

    def _others(self, node: Interest) -> Iterator[ScannedRoots]:
        for group, forest in self._groups.items():
            if group != self._but and group != node.group:
                yield forest.searched
