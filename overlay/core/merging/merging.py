"""Merging: a *bundle* of several roots occupies one slot (perfect and imperfect merging, as in Siena and
PADRES). Every root is in one bundle, and every bundle has a slot.

Its content is a hull (`hull.py`) that covers its roots, or the filter of a single root without exact hull.
The broker that receives excess events drops and counts them (`Counters.events_unwanted`). A bundle only
becomes wider or narrower. One that would do both is replaced by a new one, unless it has a single root. So
with the order of `slots.py` no event is missed that matches before and after."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

from covey.matcher.covering.region import Region
from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.covering.poset import Change, Handover, RootChange
from covey.overlay.core.merging.hull import Hull, Shape, covers_hull

if TYPE_CHECKING:
    from covey.matcher import EventType, Filter
    from covey.matcher.expressions.expression import Scalar

_FEW_PAIRS = 64
"""Up to so many pairs of bundles that left and entered are compared for handovers."""


class Bundle:
    """The content of one slot for `size` roots; `hull` is None if it is the filter of the single `root`."""

    __slots__ = ("announced", "hull", "root", "size", "structure", "uid")

    def __init__(self, uid: int) -> None:
        self.uid = uid
        self.size = 0
        self.hull: Hull | None = None
        self.root: Interest | None = None
        self.structure: Filter
        self.announced: dict[str, Scalar]

    @property
    def region(self) -> Region:
        return self.structure.region(self.announced)

    def __repr__(self) -> str:
        return f"<bundle {self.uid} of {self.size}: {self.structure.substitute(self.announced)}>"


class _Before(NamedTuple):
    bundle: Bundle
    existed: bool
    hull: Hull | None
    size: int


class Merger(ABC):
    """The bundles of one neighbour and event type; at most `budget`, if it has one."""

    budget: int | None = None

    def __init__(self) -> None:
        self._schema: EventType | None = None
        self._bundle_of: dict[int, Bundle] = {}
        self._shapes: dict[tuple[str, ...], Shape] = {}
        self._before: dict[int, _Before] = {}  # bundles touched by the current change
        self._next = 0

    def change(self, roots: RootChange) -> Change[Bundle]:
        """Apply a change of the roots. Roots leave before others enter, so that no root covers another."""
        for root in (*roots.entered, *roots.moved):
            if root.filter.event_type is not self._schema:
                self._widen(root.filter.event_type)
        for root in roots.left:
            self._leave(root)
        if len(roots.moved) == 1:
            self._move(roots.moved[0])
        else:
            for root in roots.moved:
                self._leave(root)
            for root in roots.moved:
                self._enter(root)
        for root in roots.entered:
            self._enter(root)
        change = self._summary()
        self._before.clear()
        return change

    def _widen(self, event_type: EventType) -> None:
        self._schema = event_type if self._schema is None else self._schema.union(event_type)

    @property
    def _event_type(self) -> EventType:
        assert self._schema is not None
        return self._schema

    def bundle_of(self, root: Interest) -> Bundle:
        return self._bundle_of[root.uid]

    def bundles(self) -> list[Bundle]:
        """In order of their first root's entry."""
        return list({bundle.uid: bundle for bundle in self._bundle_of.values()}.values())

    @abstractmethod
    def _enter(self, root: Interest) -> None:
        """Insert a root into a bundle."""

    @abstractmethod
    def _leave(self, root: Interest) -> None:
        """Remove a root from its bundle."""

    @abstractmethod
    def _move(self, root: Interest) -> None:
        """Only this root has a new region."""

    # --- for the kinds of merging ---------------------------------------------------------------------------

    def _begin(self, bundle: Bundle) -> None:
        """Call for a new bundle."""
        self._before[bundle.uid] = _Before(bundle, False, None, 0)

    def _uid(self) -> int:
        self._next += 1
        return self._next

    def _touch(self, bundle: Bundle) -> None:
        """Call before a bundle changes."""
        if bundle.uid not in self._before:
            self._before[bundle.uid] = _Before(bundle, True, bundle.hull, bundle.size)

    # --- the change of the bundles --------------------------------------------------------------------------

    def _summary(self) -> Change[Bundle]:
        """`moved` is in the order of sending: bundles that grow come first."""
        entered: list[Bundle] = []
        left: list[Bundle] = []
        grown: list[Bundle] = []
        shifted: list[Bundle] = []
        shrunk: list[Bundle] = []
        for before in self._before.values():
            bundle, old, new = before.bundle, before.hull, before.bundle.hull
            if not bundle.size:
                if before.existed:
                    left.append(bundle)
                continue
            if not before.existed:
                entered.append(bundle)
            elif old is None or new is None:
                if old is new is None:
                    shifted.append(bundle)
                else:
                    self._renew(bundle, entered, left)
            elif old.keys() != new.keys():
                self._renew(bundle, entered, left)
            elif old == new:
                continue
            elif covers_hull(new, old):
                grown.append(bundle)
            elif covers_hull(old, new):
                shrunk.append(bundle)
            elif before.size == bundle.size == 1:
                shifted.append(bundle)
            else:
                self._renew(bundle, entered, left)
            self._set_content(bundle)
        few = len(left) * len(entered) <= _FEW_PAIRS
        handovers = self._handovers(left, entered) if few else []
        return Change(entered, grown + shifted + shrunk, left, handovers)

    def _renew(self, bundle: Bundle, entered: list[Bundle], left: list[Bundle]) -> None:
        """Give the bundle a new uid, and with it a new slot."""
        old = Bundle(bundle.uid)
        old.hull = self._before[bundle.uid].hull
        left.append(old)
        bundle.uid = self._uid()
        entered.append(bundle)

    def _handovers(self, left: list[Bundle], entered: list[Bundle]) -> list[Handover[Bundle]]:
        handovers: list[Handover[Bundle]] = []
        for leaver in left:
            old = self._before[leaver.uid].hull
            for bundle in entered if old is not None else ():
                new = bundle.hull
                if old is None or new is None or old.keys() != new.keys():
                    continue
                if covers_hull(new, old):
                    handovers.append(Handover(leaver, bundle, True))
                elif covers_hull(old, new):
                    handovers.append(Handover(leaver, bundle, False))
        return handovers

    def _set_content(self, bundle: Bundle) -> None:
        if bundle.hull is None:
            assert bundle.root is not None
            bundle.structure, bundle.announced = bundle.root.structure, bundle.root.announced
            return
        attributes = tuple(bundle.hull)
        shape = self._shapes.get(attributes)
        if shape is None:
            shape = self._shapes[attributes] = Shape(self._event_type, attributes)
        bundle.structure, bundle.announced = shape.structure, shape.values(bundle.hull)
