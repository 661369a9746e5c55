"""The roots of a covering forest, and the two queries of a change.

`find_cover(node)`: a root that covers this node; `covered_by(node)`: the roots that this node covers. Few
roots are scanned (`ScannedRoots`); many are also in an index of their regions (`IndexedRoots`,
`matcher/covering/region_index.py`), which returns the few candidates worth comparing. Results are
deterministic: they depend on the history of `add`, `move` and `discard` alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator

from covey.matcher.covering.covering import covers_region
from covey.matcher.covering.region_index import RegionIndex
from covey.matcher.jit.compiling import kernels_usable
from covey.overlay.core.covering.interest import Interest


class Roots(ABC):
    """The roots of a forest, numbered in order of entry, and its two queries."""

    def __init__(self) -> None:
        self._nodes: dict[int, Interest] = {}
        self._entry: dict[int, int] = {}
        self._entries = 0

    def add(self, node: Interest) -> None:
        self._entries += 1
        self._entry[node.uid] = self._entries
        self._nodes[node.uid] = node

    def discard(self, node: Interest) -> None:
        del self._nodes[node.uid], self._entry[node.uid]

    def move(self, node: Interest) -> tuple[Interest | None, list[Interest]]:
        """A root has a new region: returns a root that covers it, if it lost something, or else those that it
        covers, if it gained something.
        """
        cover = self.find_cover(node) if node.loses else None
        return cover, self.covered_by(node) if node.gains and cover is None else []

    @abstractmethod
    def find_cover(self, node: Interest) -> Interest | None:
        """A root, other than the node itself, that covers it."""

    @abstractmethod
    def covered_by(self, node: Interest) -> list[Interest]:
        """The roots, other than the node itself, that it covers, in order of their entry."""

    def _in_order(self, roots: list[Interest]) -> list[Interest]:
        if len(roots) > 1:
            roots.sort(key=lambda root: self._entry[root.uid])
        return roots

    def __contains__(self, uid: int) -> bool:
        return uid in self._nodes

    def __iter__(self) -> Iterator[Interest]:
        """In order of their entry."""
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)


class ScannedRoots(Roots):
    """Both queries scan the roots; `among` restricts the result to some uids."""

    def find_cover(self, node: Interest, among: Container[int] | None = None) -> Interest | None:
        region = node.region
        for uid, root in self._nodes.items():
            if root is not node and (among is None or uid in among) and covers_region(root.region, region):
                return root
        return None

    def covered_by(self, node: Interest, among: Container[int] | None = None) -> list[Interest]:
        region = node.region
        return [
            root
            for uid, root in self._nodes.items()
            if root is not node and (among is None or uid in among) and covers_region(region, root.region)
        ]


FEW = 16
"""Up to so many roots are scanned: cheaper than an index."""


class IndexedRoots(ScannedRoots):
    """Roots with an index of their regions once there are more than `few`. Until the kernels are loaded it is
    one without kernels.
    """

    def __init__(self, few: int = FEW) -> None:
        super().__init__()
        self._few = few
        self._index: RegionIndex | None = None

    def add(self, node: Interest) -> None:
        super().add(node)
        if self._index is not None:
            self._index.put(node.uid, node.region)
        else:
            self._searched()

    def discard(self, node: Interest) -> None:
        super().discard(node)
        if self._index is not None:
            self._index.take(node.uid)
            if len(self._nodes) <= self._few // 2:
                self._index = None

    def _searched(self) -> RegionIndex | None:
        """The index, created once it pays, and again once the kernels are loaded."""
        index = self._index
        if index is not None and index.compiled:
            return index
        if len(self._nodes) > self._few:
            compiled = kernels_usable()
            if index is None or compiled:
                index = self._index = RegionIndex(compiled=compiled)
                for root in self._nodes.values():
                    index.put(root.uid, root.region)
        return index

    def move(self, node: Interest) -> tuple[Interest | None, list[Interest]]:
        if len(self._nodes) == 1:
            return None, []
        index = self._searched()
        if index is None:
            cover = ScannedRoots.find_cover(self, node) if node.loses else None
            return cover, ScannedRoots.covered_by(self, node) if node.gains and cover is None else []
        wider, narrower = index.move(node.uid, node.region, node.loses, node.gains)
        cover = self._first_over(node, wider) if wider else None
        return cover, self._all_under(node, narrower) if narrower and cover is None else []

    def find_cover(self, node: Interest, among: Container[int] | None = None) -> Interest | None:
        index = self._searched()
        if index is None:
            return super().find_cover(node, among)
        return self._first_over(node, index.may_cover(node.region, node.uid), among)

    def covered_by(self, node: Interest, among: Container[int] | None = None) -> list[Interest]:
        index = self._searched()
        if index is None:
            return super().covered_by(node, among)
        return self._all_under(node, index.may_be_covered(node.region, node.uid), among)

    def _first_over(
        self, node: Interest, candidates: Iterable[int], among: Container[int] | None = None
    ) -> Interest | None:
        region = node.region
        for candidate in candidates:
            if among is None or candidate in among:
                root = self._nodes[candidate]
                if covers_region(root.region, region):
                    return root
        return None

    def _all_under(
        self, node: Interest, candidates: Iterable[int], among: Container[int] | None = None
    ) -> list[Interest]:
        region, nodes = node.region, self._nodes
        return self._in_order(
            [
                nodes[candidate]
                for candidate in candidates
                if (among is None or candidate in among) and covers_region(region, nodes[candidate].region)
            ]
        )
