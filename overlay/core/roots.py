"""The roots of a covering forest, and the two questions that a change asks of them.

`find_cover(node)`: a root that covers this node; `covered_by(node)`: the roots that this node covers. Nothing
else about the roots is searched, so an index may stand here without its callers knowing. The answers are
deterministic: they depend on the history of `add` and `discard` alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from covey.matcher.covering import Region, covers_region
from covey.overlay.core.interest import Interest

Covers = Callable[[Region, Region], bool]
"""covers(wider, narrower)"""


class Roots(Protocol):
    """What a forest asks of the container of its roots."""

    def add(self, node: Interest) -> None: ...

    def discard(self, node: Interest) -> None: ...

    def find_cover(self, node: Interest) -> Interest | None:
        """The first root, other than the node itself, that covers it."""
        ...

    def covered_by(self, node: Interest) -> list[Interest]:
        """The roots, other than the node itself, that it covers, in order of their entry."""
        ...

    def __contains__(self, uid: int) -> bool: ...

    def __iter__(self) -> Iterator[Interest]:
        """In order of their entry."""
        ...

    def __len__(self) -> int: ...


class ScannedRoots:
    """Roots in a plain dict: both questions look at each of them."""

    def __init__(self, covers: Covers = covers_region) -> None:
        self._covers = covers
        self._nodes: dict[int, Interest] = {}

    def add(self, node: Interest) -> None:
        self._nodes[node.uid] = node

    def discard(self, node: Interest) -> None:
        del self._nodes[node.uid]

    def find_cover(self, node: Interest) -> Interest | None:
        covers, region = self._covers, node.region
        for root in self._nodes.values():
            if covers(root.region, region) and root is not node:
                return root
        return None

    def covered_by(self, node: Interest) -> list[Interest]:
        covers, region = self._covers, node.region
        return [root for root in self._nodes.values() if covers(region, root.region) and root is not node]

    def __contains__(self, uid: int) -> bool:
        return uid in self._nodes

    def __iter__(self) -> Iterator[Interest]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)
