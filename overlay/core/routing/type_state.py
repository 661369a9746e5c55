"""What a broker knows about one event type: who publishes it, who wants what of it, and what it asked of
whom.

Interest is kept on two levels. A *group* is a neighbour, or all clients together; each has a poset of its
own. What a group adds to the interest of the others is the roots of its poset, so for each neighbour that
publishes the type there is a second poset, over the roots of every group but that neighbour's own ("what is
sent to k must leave out what came from k"). Its roots occupy slots. A change that moves no root of its group
ends there, whatever the number of links.

Invariants: `outgoing` has exactly the neighbours among `publishers`; the nodes of its posets are the roots of
the other groups; `told` has exactly the neighbours that are advertised to: those for which another interface
publishes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, cast

from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.covering.joint_roots import JointRoots
from covey.overlay.core.covering.poset import Forest, Heir, Poset, RootChange
from covey.overlay.core.matching.interest_matching import MatchingFactory
from covey.overlay.core.merging.merging import Merger
from covey.overlay.core.messages import Interface
from covey.overlay.core.routing.advertising import Promise, scoped, union
from covey.overlay.core.routing.replay import Ring
from covey.overlay.core.routing.slots import Slot, SlotMessage, Slots

if TYPE_CHECKING:
    from covey.matcher import EventType, Filter


@dataclass(slots=True)
class Outgoing:
    """The interest sent to one neighbour. With a merger, slots ask for its bundles and not for roots."""

    poset: Poset
    slots: Slots
    merger: Merger | None

    def tell(self, roots: RootChange, heirs: Iterable[Heir]) -> list[SlotMessage]:
        """Bring the slots to the new roots; the messages that tell the neighbour, in order."""
        if self.merger is None:
            return self.slots.change(roots, heirs)
        bundles = self.merger.change(roots)
        return self.slots.change(bundles, bundles.heirs)

    def slot_of(self, root: Interest) -> Slot:
        """The slot that asks for a root."""
        return self.slots.slot_of(root if self.merger is None else self.merger.bundle_of(root))


class TypeState:
    """All routing state of one event type."""

    def __init__(
        self,
        event_type: EventType,
        *,
        matching: MatchingFactory,
        poset: Callable[[], Poset],
        merger: Callable[[], Merger | None],
    ) -> None:
        self.event_type = event_type
        self.pinned = False
        """Whether a configuration asks to keep it."""
        self.publishers: dict[Interface, int] = {}
        """Interfaces from which an AD came, and its epoch."""
        self.told: dict[Interface, int] = {}
        """Neighbours to which an AD went, and its epoch."""
        self.refused: dict[Interface, None] = {}
        """Those among them from which a refusal came: they are told again when somebody else advertises."""
        self.groups: dict[str, Poset] = {}
        self.outgoing: dict[Interface, Outgoing] = {}
        self.links = matching(event_type, self.groups, False)
        self.sessions = matching(event_type, self.groups, True)
        self.promises: dict[Interface, Promise] = {}
        """What publishers advertise, where that is not everything."""
        self.promised: dict[Interface, Filter | None] = {}
        """What neighbours were told, None for everything."""
        self.ring: Ring | None = None
        """Its recent events, where updates without gaps are provided for."""
        self._new_poset = poset
        self._new_merger = merger

    @property
    def idle(self) -> bool:
        """Nobody publishes or wants this type, and no configuration asks to keep it."""
        return not (self.pinned or self.publishers or self.groups)

    def change(
        self,
        group: str,
        *,
        entered: Sequence[Interest] = (),
        moved: Sequence[Interest] = (),
        left: Sequence[Interest] = (),
    ) -> list[tuple[Interface, list[SlotMessage]]]:
        """Apply one change of a group's interest; the messages it makes for each neighbour, in order."""
        poset = self.groups.get(group)
        if poset is None:
            poset = self.groups[group] = self._new_poset()
        first = poset.change(entered, moved, left)
        if left and not len(poset):
            del self.groups[group]
        if not (first.moved or first.entered or first.left):
            return []
        stays = self._stays(first)
        told: list[tuple[Interface, list[SlotMessage]]] = []
        for neighbour, outgoing in self.outgoing.items():
            if neighbour != group:
                if stays and neighbour not in self.promises:
                    told.append((neighbour, outgoing.tell(first, ())))
                    continue
                within = scoped(self.promises.get(neighbour), outgoing.poset, first)
                second = outgoing.poset.change(*within)
                if second:
                    messages = outgoing.tell(second, chain(first.heirs, second.heirs))
                    told.append((neighbour, messages))
        return told

    def _stays(self, roots: RootChange) -> bool:
        """Whether a change of one group's roots is one of the joint roots as well, whatever the neighbour:
        roots that move hide nothing and are hidden by nothing where no other group has interest.
        """
        return len(self.groups) == 1 and self._new_poset is Forest and not roots.entered and not roots.left

    def open(self, neighbour: Interface, slots: Slots) -> list[SlotMessage]:
        """A neighbour publishes now: the interest that is there flows to it."""
        outgoing = self.outgoing[neighbour] = Outgoing(self._joint(neighbour), slots, self._new_merger())
        change = outgoing.poset.change(entered=self.wanted(neighbour))
        return outgoing.tell(RootChange(entered=change.entered), ())

    def _joint(self, neighbour: Interface) -> Poset:
        """A poset for the roots of all groups but the neighbour's own. A forest searches theirs."""
        if self._new_poset is not Forest:
            return self._new_poset()
        return Forest(JointRoots(cast("dict[str, Forest]", self.groups), neighbour))

    def wanted(self, neighbour: Interface) -> list[Interest]:
        """The roots of the other groups that the neighbour's promise admits. A scan of them."""
        promise = self.promises.get(neighbour)
        return [
            root
            for group, poset in self.groups.items()
            if group != neighbour
            for root in poset.roots()
            if promise is None or promise.admits(root)
        ]

    def promise(self, publisher: Interface, filter: Filter | None) -> bool:
        """What an interface advertises from now on; whether that is anything else than before."""
        before = self.promises[publisher].filter if publisher in self.promises else None
        if filter == before:
            return False
        if filter is None:
            self.promises.pop(publisher, None)
        else:
            self.promises[publisher] = Promise(filter)
        return True

    def promise_to(self, neighbour: Interface) -> Filter | None:
        """What a neighbour is to be told: all that others promise, and all that it was told before."""
        filters = [
            self.promises[name].filter if name in self.promises else None
            for name in self.publishers
            if name != neighbour
        ]
        return union(filters + ([self.promised[neighbour]] if neighbour in self.promised else []))

    def rescope(self, neighbour: Interface) -> list[SlotMessage]:
        """The promise of a neighbour has changed: interest flows to it, or no more, accordingly. A scan."""
        outgoing = self.outgoing[neighbour]
        wanted = {root.uid: root for root in self.wanted(neighbour)}
        left = [node for node in outgoing.poset.nodes() if node.uid not in wanted]
        entered = [root for root in wanted.values() if root not in outgoing.poset]
        change = outgoing.poset.change(entered, (), left)
        return outgoing.tell(change, change.heirs) if change else []

    def close(self, neighbour: Interface) -> list[SlotMessage]:
        """A neighbour no longer publishes: the interest sent to it is withdrawn."""
        return self.outgoing.pop(neighbour).slots.withdraw()

    def covering_slot(self, interest: Interest, neighbour: Interface) -> Slot | None:
        """The slot that asks a neighbour for this interest, alone or with others; None where it need not
        know.
        """
        root = self.groups[interest.group].root_of(interest)
        outgoing = self.outgoing[neighbour]
        if root not in outgoing.poset:
            return None  # nothing of it is advertised there
        return outgoing.slot_of(outgoing.poset.root_of(root))

    def covering_slots(self, interest: Interest) -> Iterator[tuple[Interface, Slot]]:
        """For each neighbour that had to know of this interest, the slot that asks for it."""
        for neighbour in self.outgoing:
            slot = None if neighbour == interest.group else self.covering_slot(interest, neighbour)
            if slot is not None:
                yield neighbour, slot

    def interests(self) -> Iterable[Interest]:
        """Every interest in this type, group by group."""
        return chain.from_iterable(poset.nodes() for poset in self.groups.values())


def difference(known: EventType, other: EventType, broker_id: str) -> str:
    """One sentence on how two event types of one name differ, naming the first attribute that does."""
    for name, kind in other.attributes.items():
        mine = known.attributes.get(name)
        if mine is None:
            what = f"attribute {name} is not known"
        elif mine != kind:
            what = f"attribute {name} is {mine}, not {kind}"
        else:
            continue
        return f"event type {known.name} exists with other attributes: at broker {broker_id}, {what}"
    missing = [name for name in known.names if name not in other.attributes]
    if missing:
        what = f"attribute {missing[0]} is expected as well"
    else:
        a, b = next((a, b) for a, b in zip(known.names, other.names, strict=True) if a != b)
        what = f"attribute {a} stands where {b} was given"
    return f"event type {known.name} exists with other attributes: at broker {broker_id}, {what}"
