"""The last event of each key for each subscription, among frames that wait for one browser.

The rule, and the columns that decide, are those of a broker's queue (`covey.overlay.core.link.conflating`). A
frame keeps the keys of its events and not their batch, which would keep all its other events in memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from covey.gateway.encoding import Frame, chosen
from covey.overlay.core.link.conflating import codes_of, last_of_each

_FEW_BYTES = 16_384
"""So many may wait of a browser that keeps up."""


def conflate(frames: Sequence[Frame]) -> tuple[list[Frame], list[tuple[Frame, int]]]:
    """The frames without events that later ones supersede, in their order; and which lost how many. Frames
    without keys stay, and supersede nothing."""
    by_type: dict[str, list[int]] = defaultdict(list)
    for position, frame in enumerate(frames):
        if frame.keys is not None:
            by_type[frame.type_name].append(position)
    kept: list[Frame | None] = [*frames]
    lost = []
    for positions in by_type.values():
        counts = [frames[position].event_count for position in positions]
        codes = codes_of([frames[position].keys for position in positions])
        numbers = np.repeat([frames[position].subscription for position in positions], counts)
        stays = last_of_each(codes, numbers, np.arange(len(codes)), len(codes)) | (codes < 0)
        for position, mask in zip(positions, np.split(stays, np.cumsum(counts)[:-1]), strict=True):
            gone = len(mask) - int(mask.sum())
            if gone:
                lost.append((frames[position], gone))
                kept[position] = chosen(frames[position], mask) if gone < len(mask) else None
    return [frame for frame in kept if frame is not None], lost


class RateGate:
    """The frames of a subscription with a maximal rate, until they may leave. Pure: `now_s` is given.

    Invariant: between two departures lie at least `1 / rate` seconds, and one has each key once. So a key has
    at most `rate` events per second, the newest leaves no later than `1 / rate` after it has come, and there
    is one timer per subscription however many keys.
    """

    def __init__(self, rate: float) -> None:
        self._pause_s = 1 / rate
        self._next_s = float("-inf")
        self._frames: list[Frame] = []
        self._bytes = 0
        self._conflated_from = 0
        self.lost: list[tuple[Frame, int]] = []
        """What was superseded, for the caller to take."""

    def put(self, frame: Frame) -> None:
        """O(log n) per event: frames are conflated whenever twice as much waits as after the last time."""
        self._frames.append(frame)
        self._bytes += frame.size
        if self._bytes > max(_FEW_BYTES, self._conflated_from):
            self._conflate()
            self._conflated_from = 2 * self._bytes

    def _conflate(self) -> None:
        self._frames, lost = conflate(self._frames)
        self._bytes = sum(frame.size for frame in self._frames)
        self.lost += lost

    @property
    def pending_bytes(self) -> int:
        return self._bytes

    def due_s(self) -> float | None:
        """When what waits may leave; None if nothing waits."""
        return self._next_s if self._frames else None

    def take(self, now_s: float) -> list[Frame]:
        """What leaves now, if it is time."""
        if not self._frames or now_s < self._next_s:
            return []
        self._next_s = now_s + self._pause_s
        return self.flush()

    def flush(self) -> list[Frame]:
        """All that waits, whatever the time."""
        self._conflate()
        frames, self._frames, self._bytes, self._conflated_from = self._frames, [], 0, 0
        return frames
