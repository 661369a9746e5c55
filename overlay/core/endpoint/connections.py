"""Connections, as an endpoint sees them, and who opens them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from covey.matcher.errors import CoveyError
from covey.overlay.core.access.rights import Rights
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.core.link.link import Hello
from covey.overlay.core.messages import Interface


class ConnectionRefusedError(CoveyError):
    """A connection that this broker does not take; `status` is the name of a gRPC status."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Connection(Protocol):
    """A connection of an interface, as whoever moves its bytes offers it."""

    def wake(self) -> None:
        """The interface may have a frame to send."""
        ...

    def close(self, status: str, reason: str) -> None:
        """End the connection with a goodbye."""
        ...

    def charge(self, permits: float) -> None:
        """What it has brought has made so much work, and changed nothing (`core/budget.py`)."""
        ...


class IncomingConnection(Connection, Protocol):
    """A connection whose hello has arrived."""

    def opened(self, answer: Hello, resumed: bool) -> None:
        """It was accepted: this hello is the answer to its own. The link resumes or starts afresh."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who opens a connection: the interface, its hello, what to do where a client does not keep up,
    whether a client's session outlives its connections and the broker, and what a client may do, None for
    everything. `principal` is whose sessions are counted together: the subject of the rights, else the
    address.
    """

    interface: Interface
    hello: Hello
    slow_consumer: SlowConsumer = SlowConsumer.BLOCK
    durable: bool = False
    rights: Rights | None = None
    principal: str = ""
