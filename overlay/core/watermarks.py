"""The newest event of each publisher that a client, or a broker for durable types, has received, so that none
is delivered twice.

Each publisher's events of one type arrive in order, so the highest sequence number is enough. What a
publisher sends again, after a crash of its broker, may have been joined into one batch with the first copies.
Invariant: the `WATERMARKS` publishers with the latest events are stored.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from covey.matcher.events.batch import EventBatch

WATERMARKS = 65_536


class Watermarks:
    """The highest sequence numbers of one event type, by publisher."""

    def __init__(self) -> None:
        self.sequences: OrderedDict[str, int] = OrderedDict()

    def fresh(self, batch: EventBatch) -> npt.NDArray[np.bool_] | None:
        """Which events are new, None where all are; counts them as received."""
        if not batch.publisher or not len(batch):
            return None  # without a publisher an event has no identity
        numbers = batch.sequences()
        mark = self.sequences.get(batch.publisher, -1)
        self.sequences[batch.publisher] = max(mark, int(numbers.max()))
        self.sequences.move_to_end(batch.publisher)
        if len(self.sequences) > WATERMARKS:
            self.sequences.popitem(last=False)
        fresh = numbers > mark
        if batch.sequence_offsets is not None:
            fresh[1:] &= numbers[1:] > np.maximum.accumulate(numbers[:-1])
        return None if fresh.all() else fresh
