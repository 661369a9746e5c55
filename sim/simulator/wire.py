"""A connection between two ends in virtual time: delay, jitter, loss, and breaking.

What travels are the hellos and frames of `overlay/core/link/link.py`, in order, as over a gRPC stream. A
frame that is lost arrives when the transport has sent it again, and holds up what follows it. When a
connection breaks, everything on the way is gone; when it opens again, the links of both ends resume or start
afresh, as they do in a real broker.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from covey.overlay.core.link.link import Frame, Hello, Link
from covey.overlay.core.messages import Message
from covey.sim.simulator.clock import NS_PER_MS, Clock

_ACKNOWLEDGE_AFTER_NS = 10 * NS_PER_MS
"""When an acknowledgement leaves that no frame takes along, as in a real broker."""


class Goodbye(Enum):
    """The end of a client's stream: it leaves for good."""

    GOODBYE = 0


Packet = Hello | Frame[Message] | Goodbye


@dataclass(frozen=True, slots=True)
class WireOptions:
    """What a wire does to what travels on it; `loss` is the probability that a frame has to be sent again."""

    delay_ns: int = 10 * NS_PER_MS
    jitter_ns: int = 0
    loss: float = 0.0
    retransmit_ns: int = 200 * NS_PER_MS


class Process(Protocol):
    """What owns the end of a wire."""

    @property
    def busy(self) -> bool: ...

    def arrive(self, port: Port, generation: int, packet: Packet) -> None: ...

    def touch(self, port: Port) -> None:
        """Pump this port as soon as it is no longer busy."""
        ...


class Port:
    """One end of a wire: the link, whose it is, and the interface it belongs to there."""

    __slots__ = ("_last_arrival", "_timer", "interface", "link", "open", "process", "wire")

    def __init__(self, interface: str, link: Link, process: Process) -> None:
        self.interface = interface
        self.link = link
        self.process = process
        self.wire: Wire | None = None
        self.open = False
        self._last_arrival = 0
        self._timer = False

    def pump(self) -> None:
        """Write what the link has to say, if the connection is open and the process is not busy."""
        if not self.open:
            return
        if self.process.busy:
            self.process.touch(self)
            return
        wire, link = self.wire, self.link
        assert wire is not None
        while True:
            frame = link.next_frame()
            if frame is None:
                break
            wire.transmit(self, frame)
        if link.acknowledgement_due and not self._timer:
            self._timer = True
            wire.clock.after(_ACKNOWLEDGE_AFTER_NS, self._acknowledge)

    def _acknowledge(self) -> None:
        self._timer = False
        if self.open:
            self.link.acknowledge()
            self.pump()


class Wire:
    """A connection that may open and break many times; the process at `dialer` opens it."""

    def __init__(
        self, clock: Clock, rng: random.Random, listener: Port, dialer: Port, options: WireOptions
    ) -> None:
        self.clock = clock
        self.options = options
        self.listener = listener
        self.dialer = dialer
        self.generation = 0
        """Counts connections and their ends; a packet belongs to the one it was sent in."""
        self.blocked = False
        """Parted: no connection can open."""
        self._rng = rng
        listener.wire = dialer.wire = self

    def dial(self) -> None:
        """Open a connection: the dialer says hello. One that there was gives way."""
        self.cut()
        self.transmit(self.dialer, self.dialer.link.hello())

    def cut(self) -> None:
        """The connection breaks, if there is one."""
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
            port.process.arrive(port, generation, packet)
