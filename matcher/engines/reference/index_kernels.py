"""Kernels of the predicate index: which distinct predicates an event satisfies (Fabret et al. 2001, 2).

A predicate is of one class, and each class of a column is found by an event's key in its own way:

    POINT   lo = hi                       sorted: the one with k
    BELOW   lo = the lowest key there is  sorted by hi: all from the first hi >= k on
    ABOVE   hi = the largest value's key  sorted by lo: all up to the last lo <= k
    RANGE   anything else                 sorted by lo, with the largest hi of every 32 and 1,024 entries:
                                          what lies before the last lo <= k and reaches k
    EMPTY   lo > hi                       never

    edges   [ POINT of column 0 | BELOW of column 0 | ABOVE .. | RANGE .. | POINT of column 1 | ... ]
    highs   [ hi of each ......................................................................... ]

The place of a predicate in this order is its *rank*; what an event satisfies are stretches of ranks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.events.int64 import MISSING
from covey.matcher.jit.kernel import array, inlined, int64, record

POINT, BELOW, ABOVE, RANGE, EMPTY = range(5)
CLASSES = 5

NEAR, FAR = 5, 10
"""Zones of the RANGE class: the largest hi of 2**5 and of 2**10 entries."""


class Index(NamedTuple):
    """Distinct predicates in order."""

    segments: npt.NDArray[np.int64]  # [columns, CLASSES, 2]: first rank and last + 1
    tops: npt.NDArray[np.int64]  # [columns]: the largest key of a value, NaN left out
    edges: npt.NDArray[np.int64]
    highs: npt.NDArray[np.int64]
    near: npt.NDArray[np.int64]  # [(entries >> NEAR) + 1]
    far: npt.NDArray[np.int64]  # [(entries >> FAR) + 1]
    spans: npt.NDArray[np.int64]  # [entries + 1, 2]: working memory, for what an event satisfies


INDEX = record(
    [array(int64, 3), array(int64), array(int64), array(int64), array(int64), array(int64), array(int64, 2)],
    Index,
)


@inlined
def first_at_least(edges, start, end, key):  # type: ignore[no-untyped-def]
    """The first position in edges[start:end], which ascends, whose edge is >= key."""
    while start < end:
        middle = (start + end) >> 1
        if edges[middle] < key:
            start = middle + 1
        else:
            end = middle
    return start


@inlined
def reaching(index, start, end, key, count):  # type: ignore[no-untyped-def]
    """Append the stretches of RANGE predicates from `start` up to `end`, with lo <= key, whose hi reaches the
    key.
    """
    spans, at = index.spans, start
    while at < end:
        if at & ((1 << FAR) - 1) == 0 and index.far[at >> FAR] < key:
            at += 1 << FAR
            continue
        if at & ((1 << NEAR) - 1) == 0 and index.near[at >> NEAR] < key:
            at += 1 << NEAR
            continue
        stop = min(end, ((at >> NEAR) + 1) << NEAR)
        while at < stop:
            if index.highs[at] >= key:
                if count > 0 and spans[count - 1, 1] == at:
                    spans[count - 1, 1] = at + 1
                else:
                    spans[count, 0], spans[count, 1] = at, at + 1
                    count += 1
            at += 1
    return count


@inlined
def satisfied(index, keys, e):  # type: ignore[no-untyped-def]
    """Write the stretches of ranks that event e satisfies to `spans`; returns how many."""
    edges, spans, count = index.edges, index.spans, 0
    for column in range(index.segments.shape[0]):
        key, segments = keys[e, column], index.segments[column]
        end = segments[POINT, 1]
        if segments[POINT, 0] < end:
            at = first_at_least(edges, segments[POINT, 0], end, key)
            if at < end and edges[at] == key:
                spans[count, 0], spans[count, 1] = at, at + 1
                count += 1
        if key == MISSING:
            continue
        end = segments[BELOW, 1]
        if segments[BELOW, 0] < end:
            at = first_at_least(edges, segments[BELOW, 0], end, key)
            if at < end:
                spans[count, 0], spans[count, 1] = at, end
                count += 1
        if key > index.tops[column]:
            continue
        start = segments[ABOVE, 0]
        if start < segments[ABOVE, 1]:
            end = first_at_least(edges, start, segments[ABOVE, 1], key + 1)
            if start < end:
                spans[count, 0], spans[count, 1] = start, end
                count += 1
        start = segments[RANGE, 0]
        if start < segments[RANGE, 1]:
            end = first_at_least(edges, start, segments[RANGE, 1], key + 1)
            count = reaching(index, start, end, key, count)
    return count
