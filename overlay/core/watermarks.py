"""The newest sequence number of each publisher that a client, or a broker for durable types, has received, so
that no event is delivered twice.

Each publisher's events of one type arrive in order. A batch may contain an event twice: copies sent again
after a crash may be joined with the first. Invariant: the latest `WATERMARKS` publishers are stored."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from covey.matcher.events.batch import EventBatch

WATERMARKS = 65_536


class Watermarks:
    def __init__(self) -> None:
        self.sequences: OrderedDict[str, int] = OrderedDict()

    def fresh(self, batch: EventBatch) -> npt.NDArray[np.bool_] | None:
        """bool[events], true for new events, None where all are; counts them as received."""
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
        """Count a publisher's events up to `number` as received; returns the mark before."""
        sequences = self.sequences
        mark = sequences.get(publisher, -1)
        sequences[publisher] = max(mark, number)
        sequences.move_to_end(publisher)
        if len(sequences) > WATERMARKS:
            sequences.popitem(last=False)
        return mark
