"""Connections, as an endpoint sees them; which one stays where both brokers of a link open one; and who
claims the name of an interface that is connected.

The files of two brokers may name a link in different orders. The connection that the broker with the lesser
name opens then stays. Both apply the rule to a connection of their own that is open or under way, and dial
only while they have none, so exactly one is left whatever the order in which the two arrive.

The holder of a name that another claims gets a moment to answer a probe. Invariant: at most one claims a name
at a time, so that of two newcomers exactly one may get it.
"""

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
    """Why the other connection is refused."""
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
    """A connection of an interface, as whoever moves its bytes offers it."""

    def wake(self) -> None:
        """The interface may have a frame to send."""

    def close(self, status: str, reason: str) -> None:
        """End the connection with a goodbye."""

    def charge(self, permits: float) -> None:
        """What it has brought has made so much work, and changed nothing (`core/budget.py`)."""


class IncomingConnection(Connection, Protocol):
    """A connection whose hello has arrived."""

    def opened(self, answer: Hello, resumed: bool) -> None:
        """It was accepted: this hello is the answer to its own. The link resumes or starts afresh."""


@dataclass(frozen=True, slots=True)
class ConnectRequest:
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


PROBE_NS = 2_000_000_000
"""How long the holder of a name has to answer when another claims it."""


def taken(interface: Interface) -> str:
    """Why who claims the name of another is refused."""
    kind, _, name = interface.partition("/")
    return f"a {kind} named {name!r} is connected already: choose another name"
