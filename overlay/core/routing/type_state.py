"""The routing state of one event type: its publishers, the interest in it, and the slots at neighbours.

Interest has two levels. A *group* is a neighbour, or all clients together; each has a poset. For each
neighbour that publishes the type there is a second poset, over the roots of every group but its own. Its
roots occupy slots. A change that moves no root of its group ends there, whatever the number of links.
Interest in a durable type goes to all neighbours: a restarted broker needs it before the advertisements.

Invariants: `outgoing` has exactly the neighbours among `publishers`, all of them if the type `floods`; the
nodes of its posets are the roots of the other groups; `advertised_to` has exactly the neighbours for which
another interface publishes; the type's schema is the union of all schemas declared here, while batches and
filters keep their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, cast

from covey.matcher.errors import EventTypeError
from covey.matcher.events.event_type import EventType
from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.covering.poset import Change, Forest, Handover, JointRoots, Poset, RootChange
from covey.overlay.core.matching.interest_matching import MatchingFactory
from covey.overlay.core.merging.merging import Merger
from covey.overlay.core.messages import Interface
from covey.overlay.core.routing.acks import Answers
from covey.overlay.core.routing.key_table import KeyBytes, KeyTable
from covey.overlay.core.routing.promises import Promise, scoped, union
from covey.overlay.core.routing.ring import ReplayBytes, Ring
from covey.overlay.core.routing.slots import Requests, Slot, SlotMessage, Slots

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType, Filter
    from covey.matcher.evaluation.evaluator import Evaluator


def difference(known: EventType, other: EventType, broker_id: str) -> str:
    """One sentence on the first attribute of `other` that `known` lacks or has of another kind, or on its
    key."""
    for name, kind in other.attributes.items():
        known_kind = known.attributes.get(name, kind)
        if known_kind != kind:
            reason = f"attribute {name} is {known_kind}, not {kind}"
            break
    else:
        unknown = next((name for name in other.names if name not in known.attributes), None)
        if unknown is not None and known.agrees(other):
            reason = f"attribute {unknown} is not known"
        else:
            reason = f"its key is {known.key or 'not known'}, not {other.key}"
    return f"event type {known.name} exists with other attributes: at broker {broker_id}, {reason}"


@dataclass(slots=True)
class Outgoing:
    """The interest sent to one neighbour. With a merger, bundles occupy the slots in place of roots."""

    poset: Poset
    slots: Slots
    merger: Merger | None
    requests: Requests = field(default_factory=Requests)

    def change(self, roots: RootChange, handovers: Iterable[Handover[Interest]]) -> list[SlotMessage]:
        """Apply a change of the roots to the slots; returns the messages for the neighbour, in order."""
        if self.merger is None:
            if roots.entered or roots.left:
                return self.slots.change(roots, handovers)
            return self.slots.move(roots.moved)
        bundles = self.merger.change(roots)
        return self.slots.change(bundles, bundles.handovers)

    def slot_of(self, root: Interest) -> Slot:
        return self.slots.slot_of(root if self.merger is None else self.merger.bundle_of(root))


@dataclass(slots=True)
class Advertised:
    """The newest Advertise that a neighbour was sent; `promise` None for everything. If `refused`, another is
    sent when another interface advertises. `accepted` is the newest earlier schema that it has taken."""

    epoch: int
    schema: EventType
    promise: Filter | None
    accepted: EventType | None = None
    refused: bool = False

    @property
    def known(self) -> EventType | None:
        """The schema that the neighbour has, unless it refuses the newest."""
        return self.accepted if self.refused else self.schema


class TypeState:
    def __init__(
        self,
        event_type: EventType,
        *,
        matching: MatchingFactory,
        evaluators: tuple[Evaluator, Evaluator],
        poset: Callable[[], Poset],
        merger: Callable[[], Merger | None],
        replay_events: int,
        key_bytes: KeyBytes,
        replay_bytes: ReplayBytes,
    ) -> None:
        self.event_type = event_type
        self.pinned: EventType | None = None
        """The schema with which it stays while idle."""
        self.floods = False
        self.subscribed: EventType | None = None
        self.publishers: dict[Interface, int] = {}
        """The epoch of each interface's Advertise."""
        self.declared: dict[Interface, EventType] = {}
        """Their schemas since the first Advertise, united: one with fewer attributes may overtake events with
        more."""
        self.refused: dict[Interface, None] = {}
        """Publishers whose schema was refused further on: their next Advertise replaces it."""
        self.advertised_to: dict[Interface, Advertised] = {}
        self.groups: dict[str, Poset] = {}
        self.outgoing: dict[Interface, Outgoing] = {}
        for_links, for_sessions = evaluators
        self.links = matching(event_type, self.groups, False, for_links)
        self.sessions = matching(event_type, self.groups, True, for_sessions)
        self.promises: dict[Interface, Promise] = {}
        """Of publishers that do not promise everything."""
        self._replay_bytes = replay_bytes
        self.ring = Ring(replay_events, replay_bytes) if replay_events else None
        self.keys: KeyTable | None = None
        self.has_views = False
        self.viewing: dict[Interface, None] = {}
        """Neighbours that have requested last events; this and the next three are of durable types
        (`durable_keys.py`)."""
        self.restored: dict[Interface, int] = {}
        """By client, the serial of its unclaimed keys of an earlier life."""
        self.stored: dict[Interface, EventBatch] = {}
        """By client with stored events since its keys last left, one of these events."""
        self.outdated: dict[Interface, tuple[int, int]] = {}
        """By neighbour that has lost its state, the first batch with its new events, and the epoch of the
        request for them, 0 before."""
        self.answers = Answers()
        self._key_bytes = key_bytes
        self._key()
        self._new_poset = poset
        self._is_forest = poset is Forest
        self._new_merger = merger

    @property
    def idle(self) -> bool:
        return not (self.pinned or self.publishers or self.groups or self.restored)

    def declare(self, schema: EventType, broker_id: str) -> None:
        """Add the attributes of a schema. `EventTypeError` if it does not agree with those in use."""
        if self.event_type.includes(schema):
            return
        known = self.event_type
        if not known.agrees(schema):
            used = self._used()
            if used is not None and not used.agrees(schema):
                raise EventTypeError(difference(used, schema, broker_id))
            known = schema if used is None else used
            if self.ring is not None:
                self.ring.close()
                self.ring = Ring(self.ring.max_events, self._replay_bytes)
            if self.keys is not None:
                self.keys.close()
            self.keys = None
        self.event_type = known.union(schema)
        self._key()
        self.links.widen(self.event_type)
        self.sessions.widen(self.event_type)

    def _key(self) -> None:
        if self.keys is None and self.event_type.key is not None:
            self.keys = KeyTable(self.event_type.key, common=self._key_bytes)

    def _used(self) -> EventType | None:
        """The union of schemas that posets and slots compare filters by: declared by publishers, sent to
        neighbours, pinned, or of any subscription. None if the type became idle in this call."""
        sent = [advertised.known for advertised in self.advertised_to.values()]
        schemas = [*self.declared.values(), *sent, self.pinned, self.subscribed]
        used = dict.fromkeys(schema for schema in schemas if schema is not None)
        return reduce(EventType.union, used) if used else None

    def note_subscribed(self, schema: EventType) -> None:
        self.subscribed = schema if self.subscribed is None else self.subscribed.union(schema)

    def schema_for(self, neighbour: Interface) -> EventType:
        """The schema to advertise to a neighbour: the union of others' and the one it has."""
        schemas = {self.declared[name]: None for name in self.publishers if name != neighbour}
        sent = self.advertised_to.get(neighbour)
        known = None if sent is None else sent.known
        return reduce(EventType.union, schemas if known is None else {known: None, **schemas})

    def change(
        self,
        group: str,
        *,
        entered: Sequence[Interest] = (),
        moved: Sequence[Interest] = (),
        left: Sequence[Interest] = (),
    ) -> list[tuple[Interface, list[SlotMessage]]]:
        """Apply one change of a group's interest; returns the messages for each neighbour, in order."""
        poset = self.groups.get(group)
        if poset is None:
            poset = self.groups[group] = self._new_poset()
        first = poset.change(entered, moved, left)
        if left and not len(poset):
            del self.groups[group]
        if not (first.moved or first.entered or first.left):
            return []
        # Without interest of other groups, roots that only move are also the joint roots of every neighbour.
        alone = len(self.groups) == 1 and self._is_forest and not first.entered and not first.left
        messages: list[tuple[Interface, list[SlotMessage]]] = []
        for neighbour, outgoing in self.outgoing.items():
            if neighbour != group:
                promise = self._promise_of(neighbour) if self.promises else None
                if alone and promise is None:
                    messages.append((neighbour, outgoing.change(first, ())))
                    continue
                within = scoped(promise, outgoing.poset, first)
                second = outgoing.poset.change(*within)
                if second:
                    handovers = chain(first.handovers, second.handovers)
                    messages.append((neighbour, outgoing.change(second, handovers)))
        return messages

    def open(self, neighbour: Interface, slots: Slots) -> list[SlotMessage]:
        """Send existing interest to a neighbour, and changes from now on."""
        outgoing = self.outgoing[neighbour] = Outgoing(self._joint(neighbour), slots, self._new_merger())
        change = outgoing.poset.change(entered=self.joint_roots(neighbour))
        return outgoing.change(Change(entered=change.entered), ())

    def _joint(self, neighbour: Interface) -> Poset:
        if not self._is_forest:
            return self._new_poset()
        return Forest(JointRoots(cast("dict[str, Forest]", self.groups), neighbour))

    def joint_roots(self, neighbour: Interface) -> list[Interest]:
        """The roots of the other groups that the neighbour's promise admits. O(roots)."""
        promise = self._promise_of(neighbour)
        return [
            root
            for group, poset in self.groups.items()
            if group != neighbour
            for root in poset.roots()
            if promise is None or promise.admits(root)
        ]

    def _promise_of(self, neighbour: Interface) -> Promise | None:
        return None if self.floods else self.promises.get(neighbour)

    def set_promise(self, publisher: Interface, filter: Filter | None) -> bool:
        """Set the content that an interface advertises; True if that is a change."""
        before = self.promises[publisher].filter if publisher in self.promises else None
        if filter == before:
            return False
        if filter is None:
            self.promises.pop(publisher, None)
        else:
            self.promises[publisher] = Promise(filter)
        return True

    def promise_for(self, neighbour: Interface) -> Filter | None:
        """The promise for a neighbour: the union of others' and the one sent before."""
        filters = [
            self.promises[name].filter if name in self.promises else None
            for name in self.publishers
            if name != neighbour
        ]
        sent = self.advertised_to.get(neighbour)
        return union(filters if sent is None else [*filters, sent.promise])

    def rescope(self, neighbour: Interface) -> list[SlotMessage]:
        """Send or withdraw interest after a change of the neighbour's promise. O(roots)."""
        outgoing = self.outgoing[neighbour]
        admitted = {root.uid: root for root in self.joint_roots(neighbour)}
        left = [node for node in outgoing.poset.nodes() if node.uid not in admitted]
        entered = [root for root in admitted.values() if root not in outgoing.poset]
        change = outgoing.poset.change(entered, (), left)
        return outgoing.change(change, change.handovers) if change else []

    def close(self, neighbour: Interface) -> list[SlotMessage]:
        return self.outgoing.pop(neighbour).slots.withdraw()

    def has(self, interest: Interest) -> bool:
        """Whether an interest is in the poset of its group."""
        poset = self.groups.get(interest.group)
        return poset is not None and interest in poset

    def covering_slot(self, interest: Interest, neighbour: Interface) -> Slot | None:
        """The slot at a neighbour that covers this interest; None if its promise excludes the interest."""
        root = self.groups[interest.group].root_of(interest)
        outgoing = self.outgoing[neighbour]
        if root not in outgoing.poset:
            return None
        return outgoing.slot_of(outgoing.poset.root_of(root))

    def covering_slots(self, interest: Interest) -> Iterator[tuple[Interface, Slot]]:
        for neighbour in self.outgoing:
            slot = None if neighbour == interest.group else self.covering_slot(interest, neighbour)
            if slot is not None:
                yield neighbour, slot

    def interests(self) -> Iterable[Interest]:
        return chain.from_iterable(poset.nodes() for poset in self.groups.values())
