"""Slots: the interest sent to one neighbour in one event type, and the broker variables in it.

The filter of a slot is the root's *structure* (every operand lifted to a variable "1", "2", ...), and only
the two ends of the link have the values of these broker variables (Jayaram et al., section 4.3, Fig. 6
PROPAGATE, with constants lifted too). Other values, or another root of the structure, cost one Update; only
another structure costs a Subscribe and an Unsubscribe.

Invariant: after the messages of a change the slots are exactly the roots, and meanwhile no event is missed
that matches before and after (make before break). So the order is: Subscribe; Updates that widen a slot on
handover; Updates of roots in place; Updates that narrow a slot on handover; Unsubscribe. A slot is handed
over only between roots of which one covers the other, else a third root could lose what it needs. With
`parametric=False` (the static baseline, Fig. 3) there are no handovers and no moves. Slot ids are never
reused on an interface."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from covey.overlay.core.messages import Subscribe, Unsubscribe, Update

if TYPE_CHECKING:
    from covey.matcher import Filter
    from covey.matcher.covering.covering import Region
    from covey.matcher.expressions.expression import Scalar
    from covey.overlay.core.covering.interest import Interest
    from covey.overlay.core.covering.poset import Change, Handover

SlotMessage = Subscribe | Update | Unsubscribe


class SlotContent(Protocol):
    """What occupies a slot: a root (`Interest`), or several merged (`Bundle`)."""

    @property
    def uid(self) -> int: ...

    @property
    def structure(self) -> Filter: ...

    @property
    def announced(self) -> dict[str, Scalar]: ...

    @property
    def region(self) -> Region: ...


@dataclass(slots=True)
class Slot:
    """`epoch` is of the last message about it; `uid` was the content's when it took the slot: a bundle may
    change its uid."""

    slot_id: int
    content: SlotContent
    structure: Filter
    values: dict[str, Scalar]
    epoch: int
    refused: bool = False
    uid: int = 0


class Slots:
    """The slots of one neighbour and event type. `next_epoch` and `next_id` count for the whole interface."""

    def __init__(
        self, next_epoch: Callable[[], int], next_id: Callable[[], int], *, parametric: bool
    ) -> None:
        self._next_epoch = next_epoch
        self._next_id = next_id
        self._parametric = parametric
        self._by_content: dict[int, Slot] = {}
        self._by_id: dict[int, Slot] = {}

    def change(
        self, change: Change[SlotContent], handovers: Iterable[Handover[SlotContent]]
    ) -> list[SlotMessage]:
        """Apply a change of the content; returns the messages for the neighbour, in order."""
        messages: list[SlotMessage] = []
        entered = {content.uid: content for content in change.entered}
        left = {content.uid: content for content in change.left}
        wider: list[tuple[Slot, SlotContent]] = []
        narrower: list[tuple[Slot, SlotContent]] = []
        if self._parametric:
            for handover in handovers:
                if handover.left.uid in left and handover.entered.uid in entered:
                    slot = self._by_content[handover.left.uid]
                    if slot.structure == handover.entered.structure:
                        del left[handover.left.uid], entered[handover.entered.uid]
                        (wider if handover.wider else narrower).append((slot, handover.entered))
        messages += [self._occupy(content) for content in entered.values()]
        for slot, content in wider:
            self._hand_over(slot, content, messages)
        messages += self.move(change.moved)
        for slot, content in narrower:
            self._hand_over(slot, content, messages)
        messages += [self._release(uid) for uid in left]
        return messages

    def move(self, moved: Iterable[SlotContent]) -> list[SlotMessage]:
        """As `change`, where content only took other values."""
        messages: list[SlotMessage] = []
        for content in moved:
            self._update(self._by_content[content.uid], content, messages)
        return messages

    def _occupy(self, content: SlotContent) -> Subscribe:
        slot = Slot(
            self._next_id(),
            content,
            content.structure,
            content.announced,
            self._next_epoch(),
            uid=content.uid,
        )
        self._by_content[content.uid] = slot
        self._by_id[slot.slot_id] = slot
        return Subscribe(slot.epoch, slot.slot_id, slot.structure, slot.values)

    def _hand_over(self, slot: Slot, content: SlotContent, messages: list[SlotMessage]) -> None:
        if slot.uid != content.uid:
            del self._by_content[slot.uid]
            self._by_content[content.uid] = slot
            slot.uid = content.uid
        self._update(slot, content, messages)

    def _update(self, slot: Slot, content: SlotContent, messages: list[SlotMessage]) -> None:
        slot.content = content
        values = content.announced
        old = slot.values
        changed = {name: value for name, value in values.items() if old[name] != value}
        slot.values = values
        if changed:
            slot.epoch = self._next_epoch()
            messages.append(Update(slot.epoch, slot.slot_id, changed))

    def _release(self, uid: int) -> Unsubscribe:
        slot = self._by_content.pop(uid)
        del self._by_id[slot.slot_id]
        return Unsubscribe(self._next_epoch(), slot.slot_id)

    def resend(self, *, refused_only: bool = False) -> list[SlotMessage]:
        """Subscribe again for every slot (or only refused ones): for a neighbour that has lost its state."""
        messages: list[SlotMessage] = []
        for slot in self._by_id.values():
            if slot.refused or not refused_only:
                slot.refused = False
                slot.epoch = self._next_epoch()
                messages.append(Subscribe(slot.epoch, slot.slot_id, slot.structure, slot.values))
        return messages

    def withdraw(self) -> list[SlotMessage]:
        return [self._release(slot.uid) for slot in list(self._by_id.values())]

    def slot_of(self, content: SlotContent) -> Slot:
        return self._by_content[content.uid]

    def get(self, slot_id: int) -> Slot | None:
        return self._by_id.get(slot_id)

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)


class Request(NamedTuple):
    """`since_ns` and `for_views` as in the Update of this epoch."""

    epoch: int
    since_ns: int
    for_views: bool


class Requests(dict[int, "dict[Interest, Request]"]):
    """Requests of interests to one neighbour in one event type, by slot, each slot's in order of epochs."""

    def note(self, slot_id: int, interest: Interest, request: Request, acknowledged: int) -> None:
        """Add a request; requests up to the epoch `acknowledged` are removed."""
        requests = self.setdefault(slot_id, {})
        earlier = requests.pop(interest, None)
        while requests and requests[first := next(iter(requests))].epoch <= acknowledged:
            del requests[first]
        if earlier is not None and earlier.epoch > acknowledged:
            since_ns = min(earlier.since_ns, request.since_ns) or max(earlier.since_ns, request.since_ns)
            request = Request(request.epoch, since_ns, earlier.for_views or request.for_views)
        requests[interest] = request
