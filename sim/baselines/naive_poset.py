"""The whole covering order, maintained by scanning: the cost of the paper's poset, and the forest's oracle.
Every node stores all nodes above it: those that cover it, and of equal ones those placed earlier. A change
compares the node with every other, both ways: O(n) (Jayaram et al., section 4.2, "Subscription updates")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from covey.matcher.covering.covering import holds_region
from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.covering.poset import Change, Poset, RootChange, handovers_among


class NaivePoset(Poset):
    def __init__(self) -> None:
        super().__init__()
        self._above: dict[int, set[int]] = {}

    def change(
        self,
        entered: Sequence[Interest] = (),
        moved: Sequence[Interest] = (),
        left: Sequence[Interest] = (),
    ) -> RootChange:
        before = {node.uid: node for node in self.roots()}
        for node in entered:
            self._nodes[node.uid] = node
            self._place(node)
        for node in moved:
            self._place(node)
        for node in left:
            del self._nodes[node.uid], self._above[node.uid]
            for above in self._above.values():
                above.discard(node.uid)
        after = {node.uid: node for node in self.roots()}
        left_roots = [node for uid, node in before.items() if uid not in after]
        entered_roots = [node for uid, node in after.items() if uid not in before]
        stayed = [node for node in moved if node.uid in before and node.uid in after]
        return Change(entered_roots, stayed, left_roots, handovers_among(left_roots, entered_roots, moved))

    def _place(self, node: Interest) -> None:
        self._above[node.uid] = mine = set()
        for other in self._nodes.values():
            if other is node:
                continue
            over = holds_region(other.region, node.region)
            under = holds_region(node.region, other.region)
            theirs = self._above.setdefault(other.uid, set())
            theirs.discard(node.uid)
            if over:
                mine.add(other.uid)  # of two equals the one placed earlier, the other, stands above
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
