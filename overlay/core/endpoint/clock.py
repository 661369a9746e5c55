"""The time of an endpoint that reads no clock."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class EndpointClock:
    """In nanoseconds: the time of the call that is being handled, of a clock that never jumps; `offset_ns`
    added to it gives the time of the clock that stamps events.
    """

    now_ns: int
    offset_ns: int = 0

    @property
    def stamp_ns(self) -> int:
        """The time of the clock that stamps events."""
        return self.now_ns + self.offset_ns
