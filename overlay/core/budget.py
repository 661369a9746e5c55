"""What a peer may make one end of a connection do for nothing: the permits of the connection.

Whatever arrives takes permits for the work that it makes, unless it brings something: every frame of HTTP/2
but DATA of some size, every small message of gRPC and small part of one, every frame of Covey that changes
nothing. So no kind of frame has a rule of its own, and one that nobody has thought of costs what the others
cost. What this end sends returns some, since a peer answers it with windows and pings. A permit stands for
some microseconds.

Invariant: a peer that brings nothing gets `permits` at once and `permits_per_s` from then on, a tenth of both
before it is trusted; one that takes more has spent its budget, and its connection ends.
"""

from __future__ import annotations

PERMITS = 1_000
PERMITS_PER_S = 500
UNTRUSTED = 0.1
"""The share of a peer that has not proven yet who it is."""
AMPLE = 0.9
"""The share of all permits from which on a peer is served at once."""
BRINGS_BYTES = 32
"""Messages of so many bytes, and DATA that ends one, take no permit when they arrive: fewer bring no event
and no change. So many bytes that this end sends return one.
"""
CALL = 6.0
"""What a call returns to its server, which has answered it, and to its client: about what it takes."""
IDLE_FRAME = 2.0
"""What a frame of Covey takes that changes nothing: more than its answer, of some 20 bytes, returns."""


class Budget:
    """The permits of a connection from `now_ns` on. Cost: O(1), and none for what brings something."""

    __slots__ = ("_per_s", "_permits", "_refilled_ns", "left", "trusted")

    def __init__(
        self, now_ns: int, *, trusted: bool = False, permits: float = PERMITS, per_s: float = PERMITS_PER_S
    ) -> None:
        self._permits, self._per_s = permits, per_s
        self.left = permits if trusted else permits * UNTRUSTED
        """What this end sends is added; what is over the bound goes with the next `take`."""
        self._refilled_ns = now_ns
        self.trusted = trusted

    def trust(self) -> None:
        """The peer has proven who it is: it has half of the permits, and the others come with time."""
        if not self.trusted:
            self.trusted = True
            self.left = max(self.left, self._permits / 2)

    def ample(self, now_ns: int) -> bool:
        """Whether the peer is trusted, and has taken hardly anything of late. Others wait for their turn."""
        if not self.trusted:
            return False
        ample = self._permits * AMPLE
        return self.left >= ample or (self.take(0.0, now_ns) and self.left >= ample)

    def take(self, permits: float, now_ns: int) -> bool:
        """Whether there were as many."""
        share = 1.0 if self.trusted else UNTRUSTED
        refilled = self.left + (now_ns - self._refilled_ns) * self._per_s * share / 1e9
        self._refilled_ns = now_ns
        self.left = min(self._permits * share, refilled) - permits
        return self.left >= 0
