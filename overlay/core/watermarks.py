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
        mark = self._raise(batch.publisher, int(numbers.max()))
        fresh = numbers > mark
        if batch.sequence_offsets is not None:
            fresh[1:] &= numbers[1:] > np.maximum.accumulate(numbers[:-1])
        return None if fresh.all() else fresh

    def is_fresh(self, batch: EventBatch) -> bool:
        """As `fresh`, of a batch of one event."""
        if not batch.publisher:
            return True
        (number,) = batch.sequence_numbers()
        return number > self._raise(batch.publisher, number)

    def _raise(self, publisher: str, number: int) -> int:
        """Count a publisher's events up to this one as received; the mark before."""
        sequences = self.sequences
        mark = sequences.get(publisher, -1)
        sequences[publisher] = max(mark, number)
        sequences.move_to_end(publisher)
        if len(sequences) > WATERMARKS:
            sequences.popitem(last=False)
        return mark
