"""Trace contexts of events: which events of a batch belong to a distributed trace.

A context covers a run of sequence numbers, so parts of a batch and joined batches inherit contexts without a
look at single events. A context may therefore name events that its batch lacks; `present` omits contexts
without events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Sequences = npt.NDArray[np.int64]


class TraceContext(NamedTuple):
    """The events with sequence numbers from `first` to `last`, and their W3C `traceparent`."""

    first: int
    last: int
    traceparent: str


TraceContexts = tuple[TraceContext, ...]

MOST_CONTEXTS = 16  # of one batch; batches with more are not joined


def shifted(contexts: TraceContexts, by: int) -> TraceContexts:
    """The contexts of the same events after an increase of their sequence numbers."""
    return tuple(TraceContext(c.first + by, c.last + by, c.traceparent) for c in contexts)


def present(contexts: TraceContexts, sequences: Sequences) -> TraceContexts:
    """The contexts with an event among these sequence numbers, int64[n_events]."""
    ordered = np.sort(sequences)
    return tuple(
        c
        for c in contexts
        if np.searchsorted(ordered, c.first) < np.searchsorted(ordered, c.last, side="right")
    )


def traceparents(contexts: TraceContexts, sequences: Sequences) -> list[str | None]:
    """The traceparent of every event, the first if there are several, None for untraced events."""
    found: list[str | None] = [None] * len(sequences)
    for context in reversed(contexts):
        for row in np.flatnonzero((sequences >= context.first) & (sequences <= context.last)).tolist():
            found[row] = context.traceparent
    return found
