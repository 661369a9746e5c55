"""A connection in virtual time: delay, jitter, loss, and breaks.

It carries the hellos and frames of `overlay/core/link/link.py` in order, as a gRPC stream does. A lost frame
arrives after its retransmission and delays those behind it. A break loses everything on the way; when the
connection opens again, the links of both ends resume or start anew, as in a real broker.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from covey.overlay.core.endpoint.client_endpoint import ClientEndpoint
from covey.overlay.core.link.link import Frame, Hello, Link
from covey.overlay.core.messages import Message
from covey.sim.simulator.clock import NS_PER_MS, Clock


class Goodbye(Enum):
    """The end of a client's stream: the client leaves."""

    GOODBYE = 0


Packet = Hello | Frame[Message] | Goodbye


@dataclass(frozen=True, slots=True)
class WireOptions:
    """The options of a wire; `loss` is the probability that a frame is retransmitted."""

    delay_ns: int = 10 * NS_PER_MS
    jitter_ns: int = 0
    loss: float = 0.0
    retransmit_ns: int = 200 * NS_PER_MS


class PortOwner(Protocol):
    """The broker or client that owns the end of a wire."""

    @property
    def busy(self) -> bool: ...

    def arrive(self, port: Port, generation: int, packet: Packet) -> None: ...

    def touch(self, port: Port) -> None:
        """Pump this port as soon as the owner is no longer busy."""
        ...


class Port:
    """One end of a wire: its link, the endpoint around it if there is one, its owner, and the owner's
    interface for it.
    """

    __slots__ = ("_last_arrival", "_timer_ns", "endpoint", "interface", "link", "open", "owner", "wire")

    def __init__(
        self, interface: str, link: Link, owner: PortOwner, endpoint: ClientEndpoint | None = None
    ) -> None:
        self.interface = interface
        self.link = link
        self.endpoint = endpoint
        self.owner = owner
        self.wire: Wire | None = None
        self.open = False
        self._last_arrival = 0
        self._timer_ns: int | None = None

    def pump(self) -> None:
        """Transmit the link's frames, if the connection is open and the owner is not busy."""
        if not self.open:
            return
        if self.owner.busy:
            self.owner.touch(self)
            return
        wire, end = self.wire, self.endpoint or self.link
        assert wire is not None
        while True:
            frame = (
                self.link.next_frame()
                if self.endpoint is None
                else self.endpoint.next_frame(wire.clock.now_ns)
            )
            if frame is None:
                break
            wire.transmit(self, frame)
        due_ns = end.next_timer()
        if due_ns is not None and (self._timer_ns is None or due_ns < self._timer_ns):
            self._timer_ns = due_ns
            wire.clock.at(due_ns, self._on_timer, due_ns)

    def _on_timer(self, due_ns: int) -> None:
        if due_ns != self._timer_ns:
            return  # an earlier one was set in its place
        self._timer_ns = None
        if self.open:
            assert self.wire is not None
            (self.endpoint or self.link).handle_timer(self.wire.clock.now_ns)
            self.pump()


class Wire:
    """A connection that may open and break many times; the end `dialer` opens it."""

    def __init__(
        self, clock: Clock, rng: random.Random, listener: Port, dialer: Port, options: WireOptions
    ) -> None:
        self.clock = clock
        self.options = options
        self.listener = listener
        self.dialer = dialer
        self.generation = 0
        """Increases with each connection and each break; packets of older generations are dropped."""
        self.blocked = False
        """Partitioned: no connection can open."""
        self._rng = rng
        listener.wire = dialer.wire = self

    def dial(self) -> None:
        """Open a connection, in place of the current one: the dialer sends its hello."""
        self.cut()
        self.transmit(self.dialer, self.dialer.link.hello())

    def cut(self) -> None:
        """Break the connection, if there is one."""
        self.generation += 1
        self.listener.open = self.dialer.open = False

    def transmit(self, port: Port, packet: Packet) -> None:
        """Send a packet from one end to the other."""
        options = self.options
        travel = options.delay_ns
        if options.jitter_ns:
            travel += self._rng.randrange(options.jitter_ns)
        if options.loss:
            while self._rng.random() < options.loss:
                travel += options.retransmit_ns
        arrival = max(self.clock.now_ns + travel, port._last_arrival)
        port._last_arrival = arrival
        other = self.dialer if port is self.listener else self.listener
        self.clock.at(arrival, self._arrive, self.generation, other, packet)

    def _arrive(self, generation: int, port: Port, packet: Packet) -> None:
        if generation == self.generation:
            port.owner.arrive(port, generation, packet)
