"""Crashes at a kind of message: a broker ends before it handles the next one, or around sending it.

Kinds are names of messages (`core/messages.py`), and "Hello", "Goodbye" and "Frame" of what carries them; a
Frame without messages acknowledges. An event that is stored is sent as a Publish or a Deliver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from covey.overlay.core.messages import Action, Message, Send, Store
from covey.sim.simulator.disk import SimulatedCrash
from covey.sim.simulator.wire import Packet


class Moment(Enum):
    """When a broker crashes: a message has arrived; it is about to leave; it has left."""

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
    """The broker crashes that comes to the `number`-th message of a kind; `power` is that of `crash`."""

    moment: Moment
    kind: str
    number: int
    power: bool = False


class CrashPoints:
    """Those of all brokers. `sent` is called with a broker that is to crash once what it sends has left."""

    def __init__(self, sent: Callable[[str], None]) -> None:
        self.met: dict[str, CrashPoint] = {}
        """By broker the point that it has met last."""
        self._sent = sent
        self._points: list[CrashPoint] = []

    def add(self, point: CrashPoint) -> None:
        self._points.append(point)

    def clear(self) -> None:
        self._points.clear()

    def received(self, broker: str, message: Message | Packet) -> None:
        """A broker is about to handle a message. `SimulatedCrash` if it is to crash before it does."""
        if self._points:
            self._meet(broker, Moment.RECEIVED, (type(message).__name__,))

    def sending(self, broker: str, actions: Sequence[Action]) -> None:
        """A broker is about to send what its core has decided. `SimulatedCrash` if it is to crash before."""
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
