"""Who claims the name of an interface that is connected: the holder gets a moment to answer a probe.

Invariant: at most one claims a name at a time, so that of two newcomers exactly one may get it.
"""

from __future__ import annotations

from dataclasses import dataclass

from covey.overlay.core.endpoint.connections import (
    Connection,
    ConnectionRefusedError,
    IncomingConnection,
    Peer,
)
from covey.overlay.core.endpoint.timers import Timers
from covey.overlay.core.messages import Interface

PROBE_NS = 2_000_000_000
"""How long the holder of a name has to answer when another claims it."""


@dataclass(slots=True)
class Challenge:
    """A client or broker that claims the name of an interface, until the holder has answered."""

    peer: Peer
    connection: IncomingConnection

    def refuse(self) -> None:
        """The holder has answered."""
        self.connection.close("ALREADY_EXISTS", _taken(self.peer.interface))


class Challenges:
    """Those that go on, by interface; sets the timers "probe"."""

    def __init__(self, timers: Timers[tuple[str, Interface]]) -> None:
        self._timers = timers
        self.going_on: dict[Interface, Challenge] = {}

    def begin(self, peer: Peer, connection: IncomingConnection, now_ns: int) -> None:
        """`ConnectionRefusedError` if another claims the name already."""
        if peer.interface in self.going_on:
            raise ConnectionRefusedError("ALREADY_EXISTS", _taken(peer.interface))
        self.going_on[peer.interface] = Challenge(peer, connection)
        self._timers.set(("probe", peer.interface), now_ns + PROBE_NS)

    def end(self, interface: Interface) -> Challenge | None:
        """Remove the challenge of an interface, if there is one."""
        self._timers.cancel(("probe", interface))
        return self.going_on.pop(interface, None)

    def withdraw(self, interface: Interface, connection: Connection) -> None:
        """A connection has ended; nothing changes unless it claims the name."""
        challenge = self.going_on.get(interface)
        if challenge is not None and challenge.connection is connection:
            self.end(interface)


def _taken(interface: Interface) -> str:
    kind, _, name = interface.partition("/")
    return f"a {kind} named {name!r} is connected already: choose another name"
