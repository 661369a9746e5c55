"""Seeded defects: brokers that do one thing wrong, to prove that the checkers see it.

A defect changes the actions that a broker's core returned before the simulator carries them out; the core
itself is what runs in production, and knows nothing of this. Each keeps the numbering of control messages
intact, so that nothing but the defect itself can give it away.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    Connect,
    Deliver,
    Message,
    Publish,
    Send,
    Subscribe,
    Unsubscribe,
    Update,
)

if TYPE_CHECKING:
    from covey.overlay.core.routing.broker import Broker


class Defect(ABC):
    """One way to be wrong. `fired` counts how often it was."""

    def __init__(self) -> None:
        self.fired = 0

    @abstractmethod
    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        """The actions that the defective broker carries out for this message of that interface."""


class _Altered(Defect):
    """Messages of one kind leave otherwise than the core made them."""

    kind: type[Update | Unsubscribe | Deliver]
    wrong: Mapping[str, Any]
    """What stands in them instead."""

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        done: list[Action] = []
        for action in actions:
            if isinstance(action, Send) and isinstance(action.message, self.kind):
                self.fired += 1
                action = Send(action.interface, replace(action.message, **self.wrong))
            done.append(action)
        return done


class DropUpdate(_Altered):
    """An UPD to a neighbour arrives without the values that it was sent for."""

    kind = Update
    wrong: Mapping[str, Any] = {"values": {}}


class KeepSlot(_Altered):
    """A slot is not released: the USUB names none."""

    kind = Unsubscribe
    wrong: Mapping[str, Any] = {"subscription_id": 0}


class ClaimNewest(_Altered):
    """Deliveries say that they were matched at the newest values: the client does not look again."""

    kind = Deliver
    wrong: Mapping[str, Any] = {"epoch": 1 << 40}


class SwapOrder(Defect):
    """USUB before SUB, break before make."""

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        by_link: dict[str, list[tuple[int, Subscribe | Unsubscribe]]] = {}
        for place, action in enumerate(actions):
            if isinstance(action, Send) and isinstance(action.message, Subscribe | Unsubscribe):
                by_link.setdefault(action.interface, []).append((place, action.message))
        done = list(actions)
        for interface, found in by_link.items():
            messages = [message for _, message in found]
            ordered = sorted(messages, key=lambda message: isinstance(message, Subscribe))
            if ordered != messages:
                self.fired += 1
                for (place, old), new in zip(found, ordered, strict=True):
                    done[place] = Send(interface, replace(new, epoch=old.epoch))
        return done


class EchoEvent(Defect):
    """An event is sent back to the neighbour that it came from."""

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        if isinstance(message, Publish) and source.startswith("broker/") and len(message.batch):
            self.fired += 1
            return [*actions, Send(source, message)]
        return actions


class EarlyAcknowledge(Defect):
    """A change is acknowledged as soon as it is known here, before those beyond have it."""

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        if not isinstance(message, Subscribe | Update):
            return actions
        answers = [a.message for a in actions if isinstance(a, Send) and a.interface == source]
        if any(isinstance(answer, Acknowledge) for answer in answers):
            return actions
        self.fired += 1
        return [*actions, Send(source, Acknowledge(message.epoch))]


class NoReplay(Defect):
    """Nothing is replayed for an update without gaps."""

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        done: list[Action] = []
        for action in actions:
            sent = action.message if isinstance(action, Send) else None
            if isinstance(sent, Publish | Deliver) and sent.replayed:
                self.fired += 1
            else:
                done.append(action)
        return done


class RepeatEvent(Defect):
    """Over a link that was opened anew, since a broker at either end had crashed, events are sent twice."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: set[tuple[str, str]] = set()
        self._anew: set[tuple[str, str]] = set()

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        if isinstance(message, Connect) and source.startswith("broker/"):
            link = core.tables.broker_id, source
            (self._anew if link in self._opened else self._opened).add(link)
        done: list[Action] = []
        for action in actions:
            done.append(action)
            if (
                isinstance(action, Send)
                and isinstance(action.message, Publish)
                and (core.tables.broker_id, action.interface) in self._anew
            ):
                self.fired += 1
                done.append(action)
        return done


DEFECTS: dict[str, type[Defect]] = {
    "drop-update": DropUpdate,
    "keep-slot": KeepSlot,
    "swap-order": SwapOrder,
    "echo-event": EchoEvent,
    "early-acknowledge": EarlyAcknowledge,
    "claim-newest": ClaimNewest,
    "no-replay": NoReplay,
    "repeat-event": RepeatEvent,
}
"""The defects that `covey sim fuzz --defect` takes, by name."""
