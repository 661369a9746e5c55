"""The whole order, kept by scanning: what the poset of the paper's baseline costs, and the oracle of the
forest.

Every node knows all nodes above it. One stands above another when it covers it and is not covered by it, or,
the two being equal, was placed earlier. Roots are those with none above. A change compares the node with
every other, both ways: O(n) (Jayaram et al., section 4.2, "Subscription updates").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from covey.matcher.covering import covers_region
from covey.overlay.core.interest import Interest
from covey.overlay.core.poset import Heir, RootChange


class NaivePoset:
    """A `Poset` without witnesses or index."""

    def __init__(self) -> None:
        self._nodes: dict[int, Interest] = {}
        self._above: dict[int, set[int]] = {}
        self._placed: dict[int, int] = {}
        self._clock = 0

    def change(
        self,
        entered: Sequence[Interest] = (),
        moved: Sequence[Interest] = (),
        left: Sequence[Interest] = (),
    ) -> RootChange:
        """See `Poset.change`."""
        before = {node.uid: node for node in self.roots()}
        for node in entered:
            self._nodes[node.uid] = node
            self._place(node)
        for node in moved:
            self._place(node)
        for node in left:
            del self._nodes[node.uid], self._above[node.uid], self._placed[node.uid]
            for above in self._above.values():
                above.discard(node.uid)
        after = {node.uid: node for node in self.roots()}
        heirs: list[Heir] = []
        change = RootChange(
            entered=[node for uid, node in after.items() if uid not in before],
            moved=[node for node in moved if node.uid in before and node.uid in after],
            left=[node for uid, node in before.items() if uid not in after],
            heirs=heirs,
        )
        for old in change.left:
            if any(old is node for node in moved):
                continue
            for new in change.entered:
                if covers_region(new.region, old.region):
                    heirs.append(Heir(old, new, wider=True))
                elif covers_region(old.region, new.region):
                    heirs.append(Heir(old, new, wider=False))
        return change

    def _place(self, node: Interest) -> None:
        self._clock += 1
        self._placed[node.uid] = self._clock
        self._above[node.uid] = mine = set()
        for other in self._nodes.values():
            if other is node:
                continue
            over = covers_region(other.region, node.region)
            under = covers_region(node.region, other.region)
            theirs = self._above.setdefault(other.uid, set())
            theirs.discard(node.uid)
            if over:
                mine.add(
                    other.uid
                )  # of two equals the one placed earlier stands above, and that is the other
            elif under:
                theirs.add(node.uid)

    def roots(self) -> Iterator[Interest]:
        return (node for uid, node in self._nodes.items() if not self._above[uid])

    def root_of(self, node: Interest) -> Interest:
        above = self._above[node.uid]
        if not above:
            return node
        return self._nodes[min(u for u in above if not self._above[u])]

    def witness_of(self, node: Interest) -> Interest | None:
        root = self.root_of(node)
        return None if root is node else root

    def nodes(self) -> Iterator[Interest]:
        return iter(self._nodes.values())

    def __contains__(self, node: Interest) -> bool:
        return self._nodes.get(node.uid) is node

    def __len__(self) -> int:
        return len(self._nodes)
