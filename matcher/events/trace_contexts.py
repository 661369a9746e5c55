"""Trace contexts of events: which events of a batch belong to a distributed trace.

A context is that of a run of sequence numbers, so parts of a batch, and batches that are joined, need no look
at single events: they have the contexts of what they were made from. A context may so name events that its
batch has not; `present` omits those of which no event is left.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Sequences = npt.NDArray[np.int64]


class TraceContext(NamedTuple):
    """The events from `first` to `last`, sequence numbers, and their W3C `traceparent`."""

    first: int
    last: int
    traceparent: str


TraceContexts = tuple[TraceContext, ...]

MOST_CONTEXTS = 16
"""Those of one batch. Batches with more are not joined."""


def shifted(contexts: TraceContexts, by: int) -> TraceContexts:
    """The contexts of the same events, whose sequence numbers have grown by so much."""
    return tuple(TraceContext(c.first + by, c.last + by, c.traceparent) for c in contexts)


def present(contexts: TraceContexts, sequences: Sequences) -> TraceContexts:
    """Those that have an event among these sequence numbers, int64[n_events]."""
    ordered = np.sort(sequences)
    return tuple(
        c
        for c in contexts
        if np.searchsorted(ordered, c.first) < np.searchsorted(ordered, c.last, side="right")
    )


def traceparents(contexts: TraceContexts, sequences: Sequences) -> list[str | None]:
    """The traceparent of every event, None for those that are not traced; of several the first."""
    found: list[str | None] = [None] * len(sequences)
    for context in reversed(contexts):
        for row in np.flatnonzero((sequences >= context.first) & (sequences <= context.last)).tolist():
            found[row] = context.traceparent
    return found
