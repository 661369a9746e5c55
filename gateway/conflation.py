"""The last event of each key for each subscription, among frames that wait for one browser.

The rule, and the columns that decide, are those of a broker's queue (`covey.overlay.core.link.conflating`). A
frame keeps the keys of its events and not their batch, which would keep all its other events in memory.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from covey.gateway.encoding import Frame, chosen
from covey.overlay.core.client.rate_gate import RateGate
from covey.overlay.core.link.conflating import codes_of, last_of_each


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


def rate_gate(rate: float) -> RateGate[Frame]:
    """For the frames of a subscription."""
    return RateGate(rate, conflate, lambda frame: frame.size)
