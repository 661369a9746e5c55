"""Events on their way into a broker: what is accepted from publishers, and how small batches are put
together.

Invariant: every event of a batch from a client is either handed on, stamped with the time it entered the
overlay, or refused by a sentence that names its size and the limit; a refused event takes no other with it.
Batches that arrived in one frame are matched as one where they follow each other. DESIGN sections 2
("batches form by themselves") and 5.
"""

from __future__ import annotations

import numpy as np

from covey.matcher import EventBatch
from covey.overlay.core.messages import Publish, Refuse
from covey.overlay.node.limits import Limits


def admit(batch: EventBatch, limits: Limits, ingress_ns: int) -> tuple[EventBatch | None, list[Refuse]]:
    """What a broker takes of a batch that a client publishes, and the refusals of the rest."""
    name = batch.event_type.name
    if len(batch) > limits.max_batch_events:
        reason = f"a batch of {len(batch)} events of {name}: expected at most {limits.max_batch_events}"
        return None, [_refuse(batch, 0, len(batch), reason)]
    refusals = []
    # No event is larger than the bytes of its batch.
    if batch.nbytes > limits.max_event_bytes:
        sizes = batch.event_bytes()
        large = sizes > limits.max_event_bytes
        for i in np.flatnonzero(large):
            reason = (
                f"event {int(batch.sequences()[i])} of {name} has {int(sizes[i])} bytes: "
                f"expected at most {limits.max_event_bytes}"
            )
            refusals.append(_refuse(batch, int(i), 1, reason))
        if refusals:
            batch = batch.filter(~large)
    if not len(batch):
        return None, refusals
    return batch.stamped(ingress_ns=ingress_ns), refusals


def _refuse(batch: EventBatch, start: int, count: int, reason: str) -> Refuse:
    first = int(batch.sequences()[start])
    return Refuse(0, "RESOURCE_EXHAUSTED", reason, 0, batch.event_type.name, first, count)


class Joiner:
    """Puts batches together that follow each other, as far as the limits of a batch allow."""

    def __init__(self, limits: Limits) -> None:
        self._max_events = limits.max_batch_events
        self._max_bytes = limits.max_frame_bytes // 2
        self._batches: list[EventBatch] = []
        self._events = 0
        self._bytes = 0
        self._low = 0
        self._high = 0

    def add(self, batch: EventBatch) -> Publish | None:
        """Take a batch; what must be handled before it, if it does not go with what was taken earlier."""
        ready = None
        if self._batches:
            last = self._batches[-1]
            fits = (
                last.publisher == batch.publisher
                and last.event_type == batch.event_type
                and self._events + len(batch) <= self._max_events
                and self._bytes + batch.nbytes <= self._max_bytes
                and max(self._high, _high(batch)) - min(self._low, batch.first_sequence) < 2**32
            )
            if not fits:
                ready = self.flush()
        first = not self._batches
        self._low = batch.first_sequence if first else min(self._low, batch.first_sequence)
        self._high = _high(batch) if first else max(self._high, _high(batch))
        self._batches.append(batch)
        self._events += len(batch)
        self._bytes += batch.nbytes
        return ready

    def flush(self) -> Publish | None:
        """What was taken and not yet handed out."""
        if not self._batches:
            return None
        batches, self._batches = self._batches, []
        self._events = self._bytes = 0
        return Publish(EventBatch.concat(batches))


def _high(batch: EventBatch) -> int:
    offsets = batch.sequence_offsets
    last = len(batch) if offsets is None or not len(offsets) else int(offsets.max())
    return batch.first_sequence + last
