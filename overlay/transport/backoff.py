"""Pauses between attempts to connect.

They double up to a bound and vary at random, so that peers that lost the same broker do not reconnect at the
same moment. Only a connection that lasted starts them over: one that opens and breaks at once, because its
peer cannot take what it is sent, is a failure like any other.
"""

from __future__ import annotations

import random
import time

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0
HEALTHY_AFTER_S = 5.0
"""How long a connection lasts before the next pause is the first one again."""


class Backoff:
    """The pauses of one connection."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S
        self._connected_s: float | None = None

    def connected(self) -> None:
        """A connection has opened."""
        self._connected_s = time.monotonic()

    def pause_s(self) -> float:
        """Seconds to wait before the next attempt; about twice as long each time, up to 1 s."""
        if self._connected_s is not None and time.monotonic() - self._connected_s >= HEALTHY_AFTER_S:
            self._pause_s = _FIRST_PAUSE_S
        self._connected_s = None
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return pause_s * random.uniform(0.5, 1.0)
