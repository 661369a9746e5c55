"""Kernels of the propagation engine: the predicate bit vector, and clusters of rows (Fabret et al., 2.2).

    bits      [ 0 1 0 1 ... ]           by rank of a predicate: whether the event satisfies it
    lists     [ 1 | 3 | 3 | ... ]       by rank of an access predicate: the first of its clusters
    clusters  [ size rows cell place ]  rows with `size` predicates besides the access predicate
    cells     [ 4 9 7 | 5 5 8 | ... ]   of a cluster: ranks of the rows' first predicates, of the second

Each small size has a loop of its own over the columns of a cluster. UNFOLD cells, a cache line, are compared
while a line further ahead is prefetched: of the first two columns, since others are seldom read (2.2).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.reference.store_kernels import INDEX, ROWS, finish_event, satisfied
from covey.matcher.jit.kernel import array, frozen, inlined, int32, int64, kernel, prefetch, record, uint8

SIZE, COUNT, CELL, PLACE = range(4)
CLUSTER_FIELDS = 4
UNFOLD = 16
LOOKAHEAD = 64  # cells ahead that are prefetched: four cache lines


class Clusters(NamedTuple):
    """Clusters before `lists[0]` are of rows without predicates."""

    bits: npt.NDArray[np.uint8]  # [ranks]: working memory, 0 between events
    lists: npt.NDArray[np.int64]  # [ranks + 1]
    clusters: npt.NDArray[np.int64]  # [clusters, CLUSTER_FIELDS]
    cells: npt.NDArray[np.int32]


CLUSTERS = record([array(uint8), array(int64), array(int64, 2), array(int32)], Clusters)


@inlined
def set_bits(of, index, keys, e):  # type: ignore[no-untyped-def]
    """Phase one: set the bits of satisfied predicates; returns how many stretches are in `index.spans`."""
    spans = satisfied(index, keys, e)
    for s in range(spans):
        for rank in range(index.spans[s, 0], index.spans[s, 1]):
            of.bits[rank] = 1
    return spans


@inlined
def clear_bits(of, index, spans):  # type: ignore[no-untyped-def]
    for s in range(spans):
        for rank in range(index.spans[s, 0], index.spans[s, 1]):
            of.bits[rank] = 0


@inlined
def search_cluster(of, cluster, ahead, found, end):  # type: ignore[no-untyped-def]
    """Phase two: append the places of a cluster's rows whose bits are all set."""
    bits, cells = of.bits, of.cells
    size, count = of.clusters[cluster, SIZE], of.clusters[cluster, COUNT]
    first, place = of.clusters[cluster, CELL], of.clusters[cluster, PLACE]
    second, third, fourth = first + count, first + 2 * count, first + 3 * count
    for start in range(0, count, UNFOLD):
        stop = min(start + UNFOLD, count)
        if ahead and size > 0:
            prefetch(cells, first + start + LOOKAHEAD)
            if size > 1:
                prefetch(cells, second + start + LOOKAHEAD)
        if size == 0:
            for i in range(start, stop):
                found[end] = place + i
                end += 1
        elif size == 1:
            for i in range(start, stop):
                if bits[cells[first + i]]:
                    found[end] = place + i
                    end += 1
        elif size == 2:
            for i in range(start, stop):
                if bits[cells[first + i]] and bits[cells[second + i]]:
                    found[end] = place + i
                    end += 1
        elif size == 3:
            for i in range(start, stop):
                if bits[cells[first + i]] and bits[cells[second + i]] and bits[cells[third + i]]:
                    found[end] = place + i
                    end += 1
        else:
            for i in range(start, stop):
                if bits[cells[first + i]] and bits[cells[second + i]] and bits[cells[third + i]]:
                    at, last = fourth + i, first + (size - 1) * count + i
                    while at <= last and bits[cells[at]]:
                        at += count
                    if at > last:
                        found[end] = place + i
                        end += 1
    return end


@kernel(ROWS, CLUSTERS, INDEX, frozen(int64, 2), int64, int64, int64, array(int64), array(int64))
def propagate_events(  # type: ignore[no-untyped-def]
    rows, of, index, keys, start, room, ahead, offsets, found
):
    """Rows that match events `start` and later, CSR; returns the first event without room for `room` rows."""
    for e in range(start, keys.shape[0]):
        end = first = offsets[e]
        if first + room > found.size:
            return e
        spans = set_bits(of, index, keys, e)
        for cluster in range(of.lists[0]):
            end = search_cluster(of, cluster, ahead, found, end)
        for s in range(spans):
            for rank in range(index.spans[s, 0], index.spans[s, 1]):
                for cluster in range(of.lists[rank], of.lists[rank + 1]):
                    end = search_cluster(of, cluster, ahead, found, end)
        clear_bits(of, index, spans)
        offsets[e + 1] = finish_event(rows, keys, e, found, first, end)
    return keys.shape[0]


@kernel(CLUSTERS, INDEX, frozen(int64, 2), array(int64))
def satisfied_predicates(of, index, keys, counts):  # type: ignore[no-untyped-def]
    for e in range(keys.shape[0]):
        spans = set_bits(of, index, keys, e)
        for s in range(spans):
            counts[e] += index.spans[s, 1] - index.spans[s, 0]
        clear_bits(of, index, spans)
    return 0
