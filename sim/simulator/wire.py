"""A connection in virtual time: delay, jitter, loss, and breaks. It carries the hellos and frames of
`overlay/core/link/link.py` in order, as a gRPC stream does. A lost frame arrives after its retransmission and
delays those behind it; a *clogged* connection delays all for a time. A break loses everything under way; when
the connection opens again, the links of both ends resume or start anew. If the process at one end is killed,
its sent frames still arrive before the other end sees the break."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from covey.overlay.core.link.link import Frame, Hello
from covey.overlay.core.messages import Message
from covey.sim.simulator.clock import NS_PER_MS, Clock


class Goodbye(Enum):
    """The end of a client's stream: the client leaves."""

    GOODBYE = 0


Packet = Hello | Frame[Message] | Goodbye


@dataclass(frozen=True, slots=True)
class WireOptions:
    """`loss` is the probability that a frame is retransmitted."""

    delay_ns: int = 10 * NS_PER_MS
    jitter_ns: int = 0
    loss: float = 0.0
    retransmit_ns: int = 200 * NS_PER_MS


class PortOwner(Protocol):
    def arrive(self, port: Port, generation: int, packet: Packet) -> None: ...


class Port(ABC):
    __slots__ = ("interface", "last_arrival_ns", "open", "owner", "wire")

    def __init__(self, interface: str, owner: PortOwner) -> None:
        self.interface = interface
        self.owner = owner
        self.wire: Wire | None = None
        self.open = False
        self.last_arrival_ns = 0
        """The arrival time of its last packet."""

    @abstractmethod
    def hello(self) -> Hello:
        """The hello for a connection that this end opens."""

    @abstractmethod
    def pump(self) -> None:
        """Transmit what is ready, if the connection is open."""

    @abstractmethod
    def broken(self) -> None:
        """The connection, or the attempt to open one, has ended."""


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
        self.up = False
        """Dialled, and not cut since."""
        self.blocked = False
        """Partitioned: no connection can open."""
        self.clogged_until_ns = 0
        """Packets arrive at this time at the earliest."""
        self._rng = rng
        listener.wire = dialer.wire = self

    def dial(self) -> None:
        self.cut()
        self.up = True
        self.transmit(self.dialer, self.dialer.hello())

    def cut(self) -> None:
        self.generation += 1
        self.up = False
        for port in (self.listener, self.dialer):
            if port.wire is self:  # else it has opened another connection
                port.open = False
                port.broken()

    def end(self, port: Port) -> None:
        """The process at one end is killed: its sent packets arrive, and then the connection breaks."""
        port.open = False
        self.clock.at(max(port.last_arrival_ns, self.clock.now_ns), self._break, self.generation)

    def _break(self, generation: int) -> None:
        if generation == self.generation:
            self.cut()

    def transmit(self, port: Port, packet: Packet) -> None:
        options = self.options
        travel = options.delay_ns
        if options.jitter_ns:
            travel += self._rng.randrange(options.jitter_ns)
        if options.loss:
            while self._rng.random() < options.loss:
                travel += options.retransmit_ns
        arrival = max(self.clock.now_ns + travel, port.last_arrival_ns, self.clogged_until_ns)
        port.last_arrival_ns = arrival
        other = self.dialer if port is self.listener else self.listener
        self.clock.at(arrival, self._arrive, self.generation, other, packet)

    def _arrive(self, generation: int, port: Port, packet: Packet) -> None:
        if generation == self.generation and port.wire is self:
            port.owner.arrive(port, generation, packet)
