"""Slots: the interest sent to one neighbour in one event type, and the broker variables in it.

Every root forwarded to a neighbour occupies a slot. Its id was chosen by this broker, its filter is the
root's *structure* (every operand lifted to a variable "1", "2", ...), and the values of these broker
variables are known to the two ends of the link alone (Jayaram et al., section 4.3, Fig. 6 PROPAGATE, with
constants lifted too). So a root that takes other values, and a root that gives way to another of the same
structure, cost one Update of the values that differ; only a change of structure costs a Subscribe and an
Unsubscribe.

Invariant: after a change, and its messages, the slots are exactly the roots. In between nothing is lost that
is asked for before and after (make before break). The messages of one change therefore stand in this order:
Subscribe; Updates whose new content includes the old; Updates of roots in place; Updates to a root that the
old content included; Unsubscribe. A root takes over a slot only in one of these two relations (`Heir`): an
exchange of unrelated content in one step could take away what a third needs before another slot has it.

With `parametric=False` (the static baseline, Fig. 3) slots are not handed on, and no root moves, since there
a change is a new subscription: Subscribe, then Unsubscribe. Slot ids are never given twice on an interface,
so an id that the neighbour may still use cannot be taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from covey.overlay.core.messages import Subscribe, Unsubscribe, Update

if TYPE_CHECKING:
    from covey.matcher import Filter
    from covey.matcher.covering.covering import Region
    from covey.matcher.expressions.expression import Scalar

SlotMessage = Subscribe | Update | Unsubscribe


class Asked(Protocol):
    """What takes a slot: a root (`Interest`), or several as one (`Bundle`)."""

    @property
    def uid(self) -> int: ...

    @property
    def structure(self) -> Filter: ...

    @property
    def announced(self) -> dict[str, Scalar]: ...

    @property
    def region(self) -> Region: ...


class Succession(Protocol):
    """One that entered and can take the place of one that left (`Heir`, `BundleHeir`)."""

    @property
    def left(self) -> Asked: ...

    @property
    def entered(self) -> Asked: ...

    @property
    def wider(self) -> bool: ...


class Changed(Protocol):
    """How a change has changed what is asked for (`RootChange`, `BundleChange`)."""

    @property
    def entered(self) -> Sequence[Asked]: ...

    @property
    def moved(self) -> Sequence[Asked]: ...

    @property
    def left(self) -> Sequence[Asked]: ...


@dataclass(slots=True)
class Slot:
    """What the neighbour holds for one root. `epoch` is that of the last message about it."""

    slot_id: int
    root: Asked
    structure: Filter
    values: dict[str, Scalar]
    epoch: int
    refused: bool = False
    uid: int = 0
    """The root's, since it took the slot. (A bundle that becomes another takes another uid.)"""


class Slots:
    """The slots of one neighbour and event type. `next_epoch` and `next_id` count for the whole interface."""

    def __init__(
        self, next_epoch: Callable[[], int], next_id: Callable[[], int], *, parametric: bool
    ) -> None:
        self._next_epoch = next_epoch
        self._next_id = next_id
        self._parametric = parametric
        self._by_root: dict[int, Slot] = {}
        self._by_id: dict[int, Slot] = {}

    def change(self, roots: Changed, heirs: Iterable[Succession]) -> list[SlotMessage]:
        """Bring the slots to the new roots; the messages that tell the neighbour, in order."""
        messages: list[SlotMessage] = []
        if not roots.entered and not roots.left:
            for root in roots.moved:
                self._update(self._by_root[root.uid], root, messages)
            return messages
        entered = {root.uid: root for root in roots.entered}
        left = {root.uid: root for root in roots.left}
        wider: list[tuple[Slot, Asked]] = []
        narrower: list[tuple[Slot, Asked]] = []
        if self._parametric:
            for heir in heirs:
                if heir.left.uid in left and heir.entered.uid in entered:
                    slot = self._by_root[heir.left.uid]
                    if slot.structure == heir.entered.structure:
                        del left[heir.left.uid], entered[heir.entered.uid]
                        (wider if heir.wider else narrower).append((slot, heir.entered))
        messages += [self._occupy(root) for root in entered.values()]
        for slot, root in wider:
            self._succeed(slot, root, messages)
        for root in roots.moved:
            self._update(self._by_root[root.uid], root, messages)
        for slot, root in narrower:
            self._succeed(slot, root, messages)
        messages += [self._release(uid) for uid in left]
        return messages

    def _occupy(self, root: Asked) -> Subscribe:
        slot = Slot(self._next_id(), root, root.structure, root.announced, self._next_epoch(), uid=root.uid)
        self._by_root[root.uid] = slot
        self._by_id[slot.slot_id] = slot
        return Subscribe(slot.epoch, slot.slot_id, slot.structure, slot.values)

    def _succeed(self, slot: Slot, root: Asked, messages: list[SlotMessage]) -> None:
        if slot.uid != root.uid:
            del self._by_root[slot.uid]
            self._by_root[root.uid] = slot
            slot.uid = root.uid
        self._update(slot, root, messages)

    def _update(self, slot: Slot, root: Asked, messages: list[SlotMessage]) -> None:
        slot.root = root
        values = root.announced
        held = slot.values
        changed = {name: value for name, value in values.items() if held[name] != value}
        slot.values = values
        if changed:
            slot.epoch = self._next_epoch()
            messages.append(Update(slot.epoch, slot.slot_id, changed))

    def _release(self, uid: int) -> Unsubscribe:
        slot = self._by_root.pop(uid)
        del self._by_id[slot.slot_id]
        return Unsubscribe(self._next_epoch(), slot.slot_id)

    def resend(self, *, refused_only: bool = False) -> list[SlotMessage]:
        """Say everything again (or what was refused): to a neighbour that has lost its state."""
        messages: list[SlotMessage] = []
        for slot in self._by_id.values():
            if slot.refused or not refused_only:
                slot.refused = False
                slot.epoch = self._next_epoch()
                messages.append(Subscribe(slot.epoch, slot.slot_id, slot.structure, slot.values))
        return messages

    def withdraw(self) -> list[SlotMessage]:
        """Release every slot."""
        return [self._release(slot.uid) for slot in list(self._by_id.values())]

    def slot_of(self, root: Asked) -> Slot:
        return self._by_root[root.uid]

    def get(self, slot_id: int) -> Slot | None:
        return self._by_id.get(slot_id)

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)
