"""Kernels of the counting engine: which rows have which predicate, and how many of a row's still miss.

    starts    [ 0 | 2 | 3 | ... ]       by rank of a predicate: the first of its places in
    places    [ 7 9 | 4 | ... ]         the rows that have it (predicate-subscription association)
    need      [ 5 5 3 ... ]             predicates per row;  left: the same, counted down by an event

What an event satisfies are stretches of ranks, and so stretches of `places`; the row whose count reaches 0
matches. Counting down needs one array at random where the hit vector and the count vector of the papers are
two, and no pass over all rows at the end.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.reference.index_kernels import INDEX, satisfied
from covey.matcher.engines.reference.predicate_kernels import ROWS, finish_event
from covey.matcher.jit.kernel import array, frozen, inlined, int32, int64, kernel, record, uint16


class Counted(NamedTuple):
    """Rows by predicate, and counts."""

    starts: npt.NDArray[np.int64]  # [ranks + 1]
    places: npt.NDArray[np.int32]
    need: npt.NDArray[np.uint16]
    left: npt.NDArray[np.uint16]
    always: npt.NDArray[np.int64]  # places of rows without tests


COUNTED = record(
    [array(int64), array(int32), array(uint16), array(uint16), array(int64)], Counted
)


@inlined
def count_down(counted, index, keys, e, found, end):  # type: ignore[no-untyped-def]
    """Append the places of the rows that event e satisfies as many predicates of as they need."""
    places, left = counted.places, counted.left
    for place in range(left.size):  # a slice assigned would be copied first, in case the two overlap
        left[place] = counted.need[place]
    for i in range(counted.always.size):
        found[end] = counted.always[i]
        end += 1
    for s in range(satisfied(index, keys, e)):
        for i in range(counted.starts[index.spans[s, 0]], counted.starts[index.spans[s, 1]]):
            place = places[i]
            left[place] -= 1
            if left[place] == 0:
                found[end] = place
                end += 1
    return end


@kernel(ROWS, COUNTED, INDEX, frozen(int64, 2), int64, int64, array(int64), array(int64))
def count_events(rows, counted, index, keys, start, room, offsets, found):  # type: ignore[no-untyped-def]
    """Rows that match events `start` and later, CSR; returns the first event without room for `room` rows."""
    for e in range(start, keys.shape[0]):
        first = offsets[e]
        if first + room > found.size:
            return e
        end = count_down(counted, index, keys, e, found, first)
        offsets[e + 1] = finish_event(rows, keys, e, found, first, end)
    return keys.shape[0]
