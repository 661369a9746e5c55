"""Connections, as an endpoint sees them; which one stays if both brokers of a link open one; claims to the
name of a connected interface.

If both dial, the connection that the lesser name opens stays. Both apply the rule to their own open or
pending connection, and dial only without one, so exactly one is left in whatever order they arrive. The
holder of a claimed name gets a moment to answer a probe. Invariant: there is at most one claim to a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from covey.matcher.errors import CoveyError
from covey.overlay.core.access.rights import Rights
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.core.link.link import Hello
from covey.overlay.core.messages import Interface

NEVER_LINKED_NS = 30 * 1_000_000_000
"""How long a neighbour that should dial may stay away before the operator is warned."""

NOT_DIALLED = (
    f"it has not connected for {NEVER_LINKED_NS // 1_000_000_000} s: by this broker's overlay file it dials, "
    "so its own file must name the link in the same order"
)


def both_dial(own: str, neighbour: str) -> str:
    return (
        f"brokers {own} and {neighbour} both dial: the connection of {min(own, neighbour)} is used; "
        "the link must be named in the same order in all overlay files"
    )


class ConnectionRefusedError(CoveyError):
    """A connection that this broker does not take; `status` is the name of a gRPC status."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class Connection(Protocol):
    def wake(self) -> None:
        """The interface may have a frame to send."""

    def close(self, status: str, reason: str) -> None:
        """End the connection with a goodbye."""

    def charge(self, permits: float) -> None:
        """Charge permits for work without a change (`core/budget.py`)."""


class IncomingConnection(Connection, Protocol):
    """A connection whose hello has arrived."""

    def opened(self, answer: Hello, resumed: bool) -> None:
        """It was accepted with this answer to its hello."""


@dataclass(frozen=True, slots=True)
class ConnectRequest:
    """`rights` None permits everything; sessions of a `principal`, a subject or an address, are counted
    together."""

    interface: Interface
    hello: Hello
    slow_consumer: SlowConsumer = SlowConsumer.BLOCK
    durable: bool = False
    rights: Rights | None = None
    principal: str = ""


PROBE_NS = 2_000_000_000
"""How long the holder of a name has to answer when another claims it."""


def taken(interface: Interface) -> str:
    kind, _, name = interface.partition("/")
    return f"a {kind} named {name!r} is connected already: choose another name"
