"""The context of one call of `Broker.handle`: who sent the messages, when, and the actions so far."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    Advertise,
    Interface,
    Message,
    Refuse,
    Send,
    Subscribe,
    Unsubscribe,
    Update,
)
from covey.overlay.core.routing.peers import Peer

if TYPE_CHECKING:
    from covey.overlay.core.routing.dispatch import Departures, Dispatch


class Call:
    """`waits` are the epochs, by neighbour, that the acknowledgement of the current message waits for;
    `deferred` are the events whose sessions are served after the call, None if they are served within it;
    `traceparent` is that of the current message, which the updates have that it makes necessary.
    """

    __slots__ = ("actions", "deferred", "now_ns", "source", "traceparent", "waits")

    def __init__(self, source: Interface, now_ns: int, *, defer: bool = False) -> None:
        self.source = source
        self.now_ns = now_ns
        self.actions: list[Action] = []
        self.traceparent = ""
        self.waits: dict[Interface, int] = {}
        self.deferred: list[Dispatch | Departures] | None = [] if defer else None

    def send(self, peer: Peer, message: Message) -> None:
        peer.counters.sent[message.__class__] += 1
        self.actions.append(Send(peer.name, message))

    def control(self, peer: Peer, message: Advertise | Subscribe | Update | Unsubscribe) -> None:
        """Send a message that the current one waits for, unless it goes back to the source."""
        if self.traceparent and isinstance(message, Update):
            message = replace(message, traceparent=self.traceparent)
        if peer.name != self.source:
            self.waits[peer.name] = message.epoch
        peer.counters.sent[message.__class__] += 1
        self.actions.append(Send(peer.name, message))

    def wait_for(self, neighbour: Interface, epoch: int) -> None:
        if neighbour != self.source and epoch > self.waits.get(neighbour, 0):
            self.waits[neighbour] = epoch

    def acknowledge(self, peer: Peer, epoch: int) -> None:
        if epoch:
            if epoch > peer.acknowledged:
                peer.acknowledged = epoch
            self.send(peer, Acknowledge(peer.acknowledged))

    def refuse(
        self,
        peer: Peer,
        epoch: int,
        status: str,
        reason: str,
        *,
        subscription_id: int = 0,
        type_name: str = "",
    ) -> None:
        self.send(peer, Refuse(epoch, status, reason, subscription_id, type_name))
