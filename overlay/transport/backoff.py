"""Pauses between attempts to connect.

They double up to a bound and vary at random, so that peers that lost the same broker do not reconnect at the
same moment.
"""

from __future__ import annotations

import random

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0


class Backoff:
    """The pauses of one connection."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S

    def reset(self) -> None:
        """Start over, after a successful connection."""
        self._pause_s = _FIRST_PAUSE_S

    def pause_s(self) -> float:
        """Seconds to wait before the next attempt; about twice as long each time, up to 2 s."""
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return pause_s * random.uniform(0.5, 1.0)
