"""The permits of a connection: what a peer may make one end do for nothing.

Whatever arrives takes permits for the work that it makes, unless it brings something: HTTP/2 frames other
than DATA of some size, small gRPC messages and parts, and Covey frames that change nothing. So unforeseen
kinds of frames are bounded as well. A permit stands for some microseconds.

Invariant: a peer that brings nothing has `permits` at once and `permits_per_s` from then on, a tenth of both
before it is trusted. The connection of a peer that exceeds them ends."""

from __future__ import annotations

PERMITS = 1_000
PERMITS_PER_S = 500
UNTRUSTED = 0.1
"""The share of a peer that is not authenticated yet."""
AMPLE = 0.9
"""The share of all permits from which on a peer is served at once."""
BRINGS_BYTES = 32
"""Shorter messages, and DATA that ends one, bring nothing. So many sent bytes return one permit."""
CALL = 6.0
"""What a call returns to its server when answered, and to its client: about what it takes."""
IDLE_FRAME = 2.0
"""What a Covey frame without a change takes: more than its answer of some 20 bytes returns."""


class Budget:
    """The permits of a connection from `now_ns` on."""

    __slots__ = ("_per_s", "_permits", "_refilled_ns", "left", "trusted")

    def __init__(
        self, now_ns: int, *, trusted: bool = False, permits: float = PERMITS, per_s: float = PERMITS_PER_S
    ) -> None:
        self._permits, self._per_s = permits, per_s
        self.left = permits if trusted else permits * UNTRUSTED
        """Senders add to it; `take` applies the bound."""
        self._refilled_ns = now_ns
        self.trusted = trusted

    def trust(self) -> None:
        """The peer is authenticated: it has half of the permits at once."""
        if not self.trusted:
            self.trusted = True
            self.left = max(self.left, self._permits / 2)

    def ample(self, now_ns: int) -> bool:
        """Whether the peer is trusted and has taken hardly anything of late; others wait for their turn."""
        if not self.trusted:
            return False
        ample = self._permits * AMPLE
        return self.left >= ample or (self.take(0.0, now_ns) and self.left >= ample)

    def take(self, permits: float, now_ns: int) -> bool:
        """Take permits; False if there were not as many."""
        share = 1.0 if self.trusted else UNTRUSTED
        refilled = self.left + (now_ns - self._refilled_ns) * self._per_s * share / 1e9
        self._refilled_ns = now_ns
        self.left = min(self._permits * share, refilled) - permits
        return self.left >= 0
