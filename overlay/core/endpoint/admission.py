"""Admission of events from publishers.

Invariant: every event of a client's batch is either admitted, stamped with the time of its entry into the
overlay, or refused by a sentence that names its size and the limit; a refusal concerns no other event.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from covey.matcher import EventBatch
from covey.overlay.core.endpoint.limits import Limits
from covey.overlay.core.messages import Refuse


@dataclass(frozen=True, slots=True)
class Undecodable:
    """What `decode` gives for a message that makes no sense: the refusal, and the size of its events."""

    refuse: Refuse
    size: int = 0


def admit(batch: EventBatch, limits: Limits) -> tuple[EventBatch | None, list[Refuse]]:
    """The admitted events of a client's batch, and the refusals of the others."""
    name = batch.event_type.name
    if batch.count > limits.max_batch_events:
        reason = f"a batch of {len(batch)} events of {name}: expected at most {limits.max_batch_events}"
        return None, [_refuse(batch, 0, len(batch), reason)]
    refusals: list[Refuse] = []
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
    if not batch.count:
        return None, refusals
    return batch, refusals


def refuse_held(batch: EventBatch) -> Refuse:
    """The refusal of a batch of a client that does not heed a Hold."""
    name = batch.event_type.name
    return _refuse(batch, 0, len(batch), f"{len(batch)} events of {name}: expected none while it is held")


def _refuse(batch: EventBatch, start: int, count: int, reason: str) -> Refuse:
    first = int(batch.sequences()[start])
    return Refuse(0, "RESOURCE_EXHAUSTED", reason, 0, batch.event_type.name, first, count)
