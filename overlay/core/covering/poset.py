"""The covering poset of Jayaram et al. (Figs. 3 and 6), kept as a forest with witnesses.

Routing needs only the maximal elements, the *roots*, whose disjunction is the LUB; so the order itself is not
stored. A filter that is not a root has one *witness*, and a change affects only the roots and the nodes that
have the filter as witness.

Invariants: each node is a root or has a witness; a witness is in the forest and covers its node; no root
covers another; a chain of witnesses ends at a root. Of equal filters the first to enter covers the others.
The result depends on the history of changes alone. Cost: only a root, or a node whose witness no longer
covers it, searches the roots, which are indexed by region if many (`matcher/covering/region_index.py`)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, NamedTuple, TypeVar

from covey.matcher.covering.covering import holds_region
from covey.matcher.covering.region_index import RegionIndex
from covey.matcher.jit.compiling import kernels_usable
from covey.overlay.core.covering.interest import Interest

C = TypeVar("C", covariant=True)


class Handover(NamedTuple, Generic[C]):
    """`entered` may take over the slot of `left`: it covers `left` (`wider`) or was covered by it."""

    left: C
    entered: C
    wider: bool


@dataclass(slots=True)
class Change(Generic[C]):
    """A change of the roots of a poset, or of their bundles. `moved` elements only took new values."""

    entered: Sequence[C] = ()
    moved: Sequence[C] = ()
    left: Sequence[C] = ()
    handovers: Sequence[Handover[C]] = ()

    def __bool__(self) -> bool:
        return bool(self.entered or self.moved or self.left)


RootChange = Change[Interest]
NO_CHANGE: RootChange = Change()


class Poset(ABC):
    """Applies a change and returns that of the roots. Unless `exact`, a root may be covered by another."""

    exact: ClassVar[bool] = True

    def __init__(self) -> None:
        self._nodes: dict[int, Interest] = {}

    @abstractmethod
    def change(
        self,
        entered: Sequence[Interest] = (),
        moved: Sequence[Interest] = (),
        left: Sequence[Interest] = (),
    ) -> RootChange:
        """Insert nodes, reorder those whose region has changed, then delete, as one change of the roots."""

    @abstractmethod
    def roots(self) -> Iterator[Interest]: ...

    @property
    def root_count(self) -> int:
        return sum(1 for _ in self.roots())

    @abstractmethod
    def root_of(self, node: Interest) -> Interest:
        """The root that covers this node: itself, if it is one."""

    @abstractmethod
    def witness_of(self, node: Interest) -> Interest | None:
        """A node that covers this one; None for a root."""

    def witnessed_by(self, node: Interest) -> Iterator[Interest]:
        return (below for below in self._nodes.values() if self.witness_of(below) is node)

    def nodes(self) -> Iterator[Interest]:
        return iter(self._nodes.values())

    def __contains__(self, node: Interest) -> bool:
        return self._nodes.get(node.uid) is node

    def __len__(self) -> int:
        return len(self._nodes)


def handovers_among(
    left: Iterable[Interest], entered: Sequence[Interest], moved: Sequence[Interest]
) -> list[Handover[Interest]]:
    """A root that moved before it left has none: its slot has its old region, which a new root need not
    cover."""
    handovers: list[Handover[Interest]] = []
    moved_uids = {node.uid for node in moved}
    for old in left:
        for new in entered if old.uid not in moved_uids else ():
            if holds_region(new.region, old.region):
                handovers.append(Handover(old, new, wider=True))
            elif holds_region(old.region, new.region):
                handovers.append(Handover(old, new, wider=False))
    return handovers


FEW = 16
"""Up to so many roots are scanned: cheaper than an index."""


class Roots:
    """Roots in order of entry. More than `few` have an index, uncompiled until the kernels are loaded."""

    def __init__(self, few: float = FEW) -> None:
        self._nodes: dict[int, Interest] = {}
        self._entry: dict[int, int] = {}
        self._entries = 0
        self._few = few
        self._index: RegionIndex | None = None

    def add(self, node: Interest) -> None:
        self._entries += 1
        self._entry[node.uid] = self._entries
        self._nodes[node.uid] = node
        if self._index is not None:
            self._index.put(node.uid, node.region)
        else:
            self._searched()

    def discard(self, node: Interest) -> None:
        del self._nodes[node.uid], self._entry[node.uid]
        if self._index is not None:
            self._index.take(node.uid)
            if len(self._nodes) <= self._few // 2:
                self._index = None

    def move(self, node: Interest) -> tuple[Interest | None, list[Interest]]:
        """The region has changed: returns a root that covers it, if it lost something, or else the roots that
        it covers."""
        if len(self._nodes) == 1:
            return None, []
        index = self._searched()
        if index is None:
            cover = self.find_cover(node) if node.loses else None
            return cover, self.covered_by(node) if node.gains and cover is None else []
        wider, narrower = index.move(node.uid, node.region, node.loses, node.gains)
        cover = self._first_over(node, wider, self._nodes) if wider else None
        return cover, self._all_under(node, narrower, self._nodes) if narrower and cover is None else []

    def find_cover(self, node: Interest, among: Container[int] | None = None) -> Interest | None:
        """A root, other than the node itself, that covers it; only uids in `among`, if given."""
        index = self._searched()
        candidates = self._nodes if index is None else index.may_cover(node.region, node.uid)
        return self._first_over(node, candidates, self._nodes if among is None else among)

    def covered_by(self, node: Interest, among: Container[int] | None = None) -> list[Interest]:
        """The other roots that it covers, in order of entry; only uids in `among`, if given."""
        index = self._searched()
        candidates = self._nodes if index is None else index.may_be_covered(node.region, node.uid)
        return self._all_under(node, candidates, self._nodes if among is None else among)

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

    def _first_over(
        self, node: Interest, candidates: Iterable[int], among: Container[int]
    ) -> Interest | None:
        region, nodes = node.region, self._nodes
        for uid in candidates:
            if uid in among and nodes[uid] is not node and holds_region(nodes[uid].region, region):
                return nodes[uid]
        return None

    def _all_under(self, node: Interest, candidates: Iterable[int], among: Container[int]) -> list[Interest]:
        region, nodes = node.region, self._nodes
        return self._in_order(
            [
                nodes[uid]
                for uid in candidates
                if uid in among and nodes[uid] is not node and holds_region(region, nodes[uid].region)
            ]
        )

    def _in_order(self, roots: list[Interest]) -> list[Interest]:
        if len(roots) > 1:
            roots.sort(key=lambda root: self._entry[root.uid])
        return roots

    def __contains__(self, uid: int) -> bool:
        return uid in self._nodes

    def __iter__(self) -> Iterator[Interest]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)


class Forest(Poset):
    def __init__(self, roots: Roots | None = None) -> None:
        super().__init__()
        self._roots = Roots() if roots is None else roots
        self._witness: dict[int, int] = {}
        self._witnessed: dict[int, dict[int, None]] = {}
        # The current change so far; empty between changes.
        self._was_root: dict[int, tuple[Interest, bool]] = {}
        self._former: dict[int, int] = {}  # a node that lost its witness -> that witness
        self._absorber: dict[int, int] = {}  # a root that became covered -> its witness then

    # --- the one entry for changes --------------------------------------------------------------------------

    def change(
        self,
        entered: Sequence[Interest] = (),
        moved: Sequence[Interest] = (),
        left: Sequence[Interest] = (),
    ) -> RootChange:
        """Insertion comes first, so that orphaned nodes get a new witness only once."""
        for node in entered:
            self._nodes[node.uid] = node
            self._was_root[node.uid] = (node, False)
            self._place(node)
        for node in moved:
            self._reorder(node)
        if left:
            self._delete(left, bool(moved))
        if not self._was_root:
            if self._former:
                self._former.clear()
            if len(moved) == 1:
                return NO_CHANGE if moved[0].uid in self._witness else Change((), moved)
            return Change((), [node for node in moved if node.uid not in self._witness])
        change = self._summary(moved)
        self._was_root.clear()
        self._former.clear()
        self._absorber.clear()
        return change

    def _reorder(self, node: Interest) -> None:
        uid = node.uid
        witness = self._witness.get(uid)
        if witness is not None:
            if node.gains and not holds_region(self._nodes[witness].region, node.region):
                self._unlink(uid)
                self._place(node)
        else:
            cover, covered = self._roots.move(node)
            if cover is not None:
                self._demote(node, cover)
            for root in covered:
                self._demote(root, node)
        if node.loses and uid in self._witnessed:
            above = None
            for child in [self._nodes[c] for c in self._witnessed[uid]]:
                if not holds_region(node.region, child.region):
                    self._unlink(child.uid)
                    above = self._place(child, above)

    def _delete(self, left: Sequence[Interest], moved: bool) -> None:
        orphans: dict[int, None] = {}
        for node in left:
            uid = node.uid
            if uid in self._witness:
                self._unlink(uid)
            elif uid in self._roots:
                self._remove_root(node)
            orphans.pop(uid, None)
            for child in self._witnessed.pop(uid, ()):
                del self._witness[child]
                self._former[child] = uid
                orphans[child] = None
            del self._nodes[uid]
        root = None
        for uid in orphans:
            node = self._nodes[uid]
            above = self._surviving(uid)
            # A witness that has moved may be below the node by now.
            below = moved and above is not None and self.root_of(above) is node
            if above is not None and not below and holds_region(above.region, node.region):
                self._link(node, above)
            else:
                root = self._place(node, root)

    def _surviving(self, uid: int) -> Interest | None:
        """The nearest former witness, up the chain, that is still in the forest."""
        above = self._first_goal(uid, self._former, self._nodes)
        return None if above is None else self._nodes[above]

    def _first_goal(self, uid: int, links: Mapping[int, int], goals: Container[int]) -> int | None:
        """Follow links up from a node to the first goal; None if there is none. Links may be cyclic."""
        for _ in range(len(links)):
            above = links.get(uid)
            if above is None or above in goals:
                return above
            uid = above
        return None

    # --- the forest's own moves -----------------------------------------------------------------------------

    def _place(self, node: Interest, near: Interest | None = None) -> Interest:
        """Place a node without witness; returns the root above it. `near`, the root above a sibling, is tried
        first."""
        if near is not None and near.uid in self._roots and holds_region(near.region, node.region):
            self._link(node, near)
            return near
        cover = self._roots.find_cover(node)
        if cover is not None:
            self._link(node, cover)
            return cover
        covered = self._roots.covered_by(node)
        self._was_root.setdefault(node.uid, (node, False))
        self._roots.add(node)
        for root in covered:
            self._demote(root, node)
        return node

    def _demote(self, root: Interest, witness: Interest) -> None:
        self._remove_root(root)
        self._absorber[root.uid] = witness.uid
        self._link(root, witness)

    def _remove_root(self, root: Interest) -> None:
        self._was_root.setdefault(root.uid, (root, True))
        self._roots.discard(root)

    def _link(self, node: Interest, witness: Interest) -> None:
        self._witness[node.uid] = witness.uid
        self._witnessed.setdefault(witness.uid, {})[node.uid] = None

    def _unlink(self, uid: int) -> None:
        witness = self._witness.pop(uid)
        self._former[uid] = witness
        children = self._witnessed[witness]
        del children[uid]
        if not children:
            del self._witnessed[witness]

    # --- what the change did to the roots -------------------------------------------------------------------

    def _summary(self, moved: Sequence[Interest]) -> RootChange:
        entered: list[Interest] = []
        left: list[Interest] = []
        for uid, (node, before) in self._was_root.items():
            now = uid in self._roots
            if now and not before:
                entered.append(node)
            elif before and not now:
                left.append(node)
        stayed = [
            node
            for node in moved
            if node.uid in self._roots and self._was_root.get(node.uid, (node, True))[1]
        ]
        handovers = self._handovers(entered, left, {node.uid for node in moved}) if entered and left else []
        return Change(entered, stayed, left, handovers)

    def _handovers(
        self, all_entered: Sequence[Interest], all_left: Sequence[Interest], moved: set[int]
    ) -> Sequence[Handover[Interest]]:
        left = {node.uid: node for node in all_left}
        entered = {node.uid: node for node in all_entered}
        known = left.keys() | moved  # a node that has moved need not cover what it covered
        handovers: list[Handover[Interest]] = []
        for node in all_left:
            if node.uid in moved:
                continue  # its slot has its old region, which the new root need not cover
            start = node.uid if node.uid in self._nodes else self._absorber.get(node.uid)
            if start is not None and start in self._nodes:
                root = self.root_of(self._nodes[start])
                if root.uid in entered:
                    handovers.append(Handover(node, root, wider=True))
        for node in all_entered:
            if node.uid in moved:
                continue  # its former witness covered its old region
            above = self._first_goal(node.uid, self._former, known)
            if above in left:
                handovers.append(Handover(left[above], node, wider=False))
        return handovers

    # --- reading --------------------------------------------------------------------------------------------

    def roots(self) -> Iterator[Interest]:
        return iter(self._roots)

    @property
    def root_count(self) -> int:
        return len(self._roots)

    @property
    def searched(self) -> Roots:
        return self._roots

    def root_of(self, node: Interest) -> Interest:
        uid = node.uid
        while (above := self._witness.get(uid)) is not None:
            uid = above
        return self._nodes[uid]

    def witness_of(self, node: Interest) -> Interest | None:
        above = self._witness.get(node.uid)
        return None if above is None else self._nodes[above]

    def witnessed_by(self, node: Interest) -> Iterator[Interest]:
        return (self._nodes[uid] for uid in self._witnessed.get(node.uid, ()))


class JointRoots(Roots):
    """The second level: the maximal elements among the roots of all groups except one.

    Roots of one group never cover each other, so searches use the roots of the other groups' forests, and no
    neighbour needs an index of its own. Invariant: at a query the groups' forests have applied the current
    change; nodes that this level has not added yet, or that are covered here, are excluded."""

    def __init__(self, groups: Mapping[str, Forest], exclude: str) -> None:
        super().__init__(few=math.inf)
        self._groups = groups
        self._exclude = exclude

    def find_cover(self, node: Interest, among: Container[int] | None = None) -> Interest | None:
        for roots in self._others(node):
            cover = roots.find_cover(node, self._nodes)
            if cover is not None:
                return cover
        return None

    def covered_by(self, node: Interest, among: Container[int] | None = None) -> list[Interest]:
        covered: list[Interest] = []
        for roots in self._others(node):
            covered += roots.covered_by(node, self._nodes)
        return self._in_order(covered)

    def _others(self, node: Interest) -> Iterator[Roots]:
        for group, forest in self._groups.items():
            if group != self._exclude and group != node.group:
                yield forest.searched
