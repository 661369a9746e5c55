"""Crashes of brokers at a kind of message, and seeded defects, which prove that the checkers detect them.
Kinds are names of messages (`core/messages.py`), and "Hello", "Goodbye" and "Frame"; a Frame without messages
acknowledges. A stored event is sent as a Publish or a Deliver. A defect changes the actions that a broker's
core returned. Epochs stay intact, so that only the fault itself can be detected."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any

from covey.matcher.events.results import Answers, Results
from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    Answered,
    Connect,
    Deliver,
    EndRestored,
    Message,
    Publish,
    RestoreKeys,
    Send,
    Store,
    Subscribe,
    Unsubscribe,
    Update,
)
from covey.sim.simulator.disk import SimulatedCrash
from covey.sim.simulator.wire import Packet

if TYPE_CHECKING:
    from covey.overlay.core.routing.broker import Broker


class Moment(Enum):
    """A message has arrived, is about to leave, or has left."""

    RECEIVED = "received"
    SENDING = "sending"
    SENT = "sent"


RECEIVED_KINDS = (
    "Hello",
    "Goodbye",
    "Frame",
    "Acknowledge",
    "Advertise",
    "Unadvertise",
    "Subscribe",
    "Unsubscribe",
    "Update",
    "SyncBegin",
    "SyncEnd",
    "Publish",
)
SENT_KINDS = (*RECEIVED_KINDS[3:], "Deliver")


@dataclass(slots=True)
class CrashPoint:
    """A broker crashes at its `number`-th message of a kind; `power` is as in `crash`."""

    moment: Moment
    kind: str
    number: int
    power: bool = False


class CrashPoints:
    """Of all brokers. `sent` is called with a broker that is to crash once its messages have left."""

    def __init__(self, sent: Callable[[str], None]) -> None:
        self.met: dict[str, CrashPoint] = {}
        """The last crash point that each broker has met."""
        self._sent = sent
        self._points: list[CrashPoint] = []

    def add(self, point: CrashPoint) -> None:
        self._points.append(point)

    def clear(self) -> None:
        self._points.clear()

    def received(self, broker: str, message: Message | Packet) -> None:
        """Call before a broker handles a message. Raises `SimulatedCrash` if it crashes before that."""
        if self._points:
            self._meet(broker, Moment.RECEIVED, (type(message).__name__,))

    def sending(self, broker: str, actions: Sequence[Action]) -> None:
        """Call before a broker sends its core's actions. Raises `SimulatedCrash` if it crashes before."""
        if not self._points:
            return
        kinds = []
        for action in actions:
            if isinstance(action, Send):
                kinds.append(type(action.message).__name__)
            elif isinstance(action, Store):
                kinds += ["Publish" if each.ids is None else "Deliver" for each in action.receivers]
        self._meet(broker, Moment.SENDING, kinds)
        self._meet(broker, Moment.SENT, kinds)

    def _meet(self, broker: str, moment: Moment, kinds: Sequence[str]) -> None:
        for point in self._points:
            if point.moment is moment and point.kind in kinds:
                point.number -= 1
                if point.number <= 0:
                    self._points.remove(point)
                    self.met[broker] = point
                    if moment is not Moment.SENT:
                        raise SimulatedCrash
                    self._sent(broker)
                    return


class Defect(ABC):
    """One fault; `fired` counts how often it changed the actions."""

    def __init__(self) -> None:
        self.fired = 0

    @abstractmethod
    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        """The actions of the defective broker for this message of the interface `source`."""


class _Altered(Defect):
    """Messages of one `kind` leave with the fields `wrong`."""

    kind: type[Update | Unsubscribe | Deliver]
    wrong: Mapping[str, Any]

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        altered: list[Action] = []
        for action in actions:
            if isinstance(action, Send) and isinstance(action.message, self.kind):
                self.fired += 1
                action = Send(action.interface, replace(action.message, **self.wrong))
            altered.append(action)
        return altered


class DropUpdate(_Altered):
    """An Update to a neighbour has no values."""

    kind = Update
    wrong: Mapping[str, Any] = {"values": {}}


class KeepSlot(_Altered):
    """A slot is not released: the Unsubscribe has no valid id."""

    kind = Unsubscribe
    wrong: Mapping[str, Any] = {"subscription_id": 0}


class ClaimNewest(_Altered):
    """Deliveries claim to be matched at the newest values, so the client does not match again."""

    kind = Deliver
    wrong: Mapping[str, Any] = {"epoch": 1 << 40}


class SwapOrder(Defect):
    """Unsubscribe before Subscribe: break before make."""

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        by_link: dict[str, list[tuple[int, Subscribe | Unsubscribe]]] = {}
        for place, action in enumerate(actions):
            if isinstance(action, Send) and isinstance(action.message, Subscribe | Unsubscribe):
                by_link.setdefault(action.interface, []).append((place, action.message))
        altered = list(actions)
        for interface, placed in by_link.items():
            messages = [message for _, message in placed]
            ordered = sorted(messages, key=lambda message: isinstance(message, Subscribe))
            if ordered != messages:
                self.fired += 1
                for (place, old), new in zip(placed, ordered, strict=True):
                    altered[place] = Send(interface, replace(new, epoch=old.epoch))
        return altered


class EchoEvent(Defect):
    """An event is sent back to the neighbour it came from."""

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        if isinstance(message, Publish) and source.startswith("broker/") and len(message.batch):
            self.fired += 1
            return [*actions, Send(source, message)]
        return actions


class EarlyAcknowledge(Defect):
    """A change is acknowledged at once, before the brokers further on have applied it."""

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        if not isinstance(message, Subscribe | Update):
            return actions
        answers = [a.message for a in actions if isinstance(a, Send) and a.interface == source]
        if any(isinstance(answer, Acknowledge) for answer in answers):
            return actions
        self.fired += 1
        return [*actions, Send(source, Acknowledge(message.epoch))]


class _Unsent(Defect):
    @abstractmethod
    def drops(self, message: Publish | Deliver) -> bool: ...

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        sent = [
            action
            for action in actions
            if not (
                isinstance(action, Send)
                and isinstance(action.message, Publish | Deliver)
                and self.drops(action.message)
            )
        ]
        self.fired += len(actions) - len(sent)
        return sent


class NoReplay(_Unsent):
    """Nothing is replayed for a gapless update."""

    def drops(self, message: Publish | Deliver) -> bool:
        return message.replayed


class NoLastEvents(_Unsent):
    """A new view, or one that moves, gets no last events of keys."""

    def drops(self, message: Publish | Deliver) -> bool:
        return message.for_views and message.replayed


class NoDepartures(_Unsent):
    """Receivers of the last event of a key do not get the next one if it does not match."""

    def drops(self, message: Publish | Deliver) -> bool:
        return message.for_views and not message.replayed


class NoRestoredKeys(Defect):
    """A broker that restarts drops the restored last events of keys."""

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        if not isinstance(message, RestoreKeys):
            return actions
        self.fired += 1
        core.handle(EndRestored(), source, int(message.stored_ns[-1]))
        return actions


class EarlyAnswer(Defect):
    """Last events are answered as complete before the brokers further on have sent theirs."""

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        if not isinstance(message, Subscribe | Update) or not message.for_views:
            return actions
        answers = [a.message for a in actions if isinstance(a, Send) and a.interface == source]
        peer = core.tables.peers[source]
        interest = peer.subscriptions.get(message.subscription_id)
        if interest is None or any(isinstance(answer, Answered) for answer in answers):
            return actions
        self.fired += 1
        return [*actions, Send(source, Answered(interest.filter.event_type.name, message.epoch))]


class RepeatEvent(Defect):
    """Events are sent twice over a link that reopened after a crash."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: set[tuple[str, str]] = set()
        self._reopened: set[tuple[str, str]] = set()

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        if isinstance(message, Connect) and source.startswith("broker/"):
            link = core.tables.broker_id, source
            (self._reopened if link in self._opened else self._opened).add(link)
        altered: list[Action] = []
        for action in actions:
            altered.append(action)
            if (
                isinstance(action, Send)
                and isinstance(action.message, Publish)
                and (core.tables.broker_id, action.interface) in self._reopened
            ):
                self.fired += 1
                altered.append(action)
        return altered


class WrongResults(Defect):
    """Answers of named operators are negated on their way."""

    def apply(self, core: Broker, source: str, message: Message, actions: list[Action]) -> list[Action]:
        altered: list[Action] = []
        for action in actions:
            if isinstance(action, Send) and isinstance(action.message, Publish):
                batch, wrong = action.message.batch, Results()
                for key, answers in () if batch.results is None else batch.results.items():
                    self.fired += answers.solutions is None
                    truths = answers.truths if answers.solutions is not None else ~answers.truths
                    wrong.add(key, Answers(answers.rows, truths, answers.solutions))
                action = Send(action.interface, replace(action.message, batch=batch.with_results(wrong)))
            altered.append(action)
        return altered


DEFECTS: dict[str, type[Defect]] = {
    "drop-update": DropUpdate,
    "keep-slot": KeepSlot,
    "swap-order": SwapOrder,
    "echo-event": EchoEvent,
    "early-acknowledge": EarlyAcknowledge,
    "claim-newest": ClaimNewest,
    "no-replay": NoReplay,
    "no-last-events": NoLastEvents,
    "no-departures": NoDepartures,
    "no-restored-keys": NoRestoredKeys,
    "early-answer": EarlyAnswer,
    "repeat-event": RepeatEvent,
    "wrong-results": WrongResults,
}
"""The defects of `covey sim fuzz --defect`, by name."""
