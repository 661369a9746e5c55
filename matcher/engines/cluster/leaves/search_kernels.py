"""Helpers of kernels that search leaves; the arrays are drawn in `layout/leaf_arrays.py`.

Leaves whose guard an event passes are listed first; while the bitmaps of one are combined, the next one is
prefetched. Bitmaps give a superset of the matching rows, since bins are coarser than codes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import int64, types

from covey.matcher.engines.cluster.layout import leaf_arrays as f
from covey.matcher.engines.cluster.layout.arrays import NONE
from covey.matcher.engines.cluster.layout.word_kernels import passes_bounds
from covey.matcher.jit.kernel import array, inlined, prefetch, trailing_zeros

BYTE = np.int64(0xFF)


class LeafBuffers(NamedTuple):
    """Working memory to match one event against leaves; each thread has its own."""

    listed: npt.NDArray[np.int64]  # [leaves]: those to search
    lines: npt.NDArray[np.int64]  # [columns]: where in a leaf the event's bitmap of each is
    left: npt.NDArray[np.uint64]  # [LINE]: the rows of a leaf that are left
    hits: npt.NDArray[np.int64]  # [LEAF]: their places in all leaves


LEAF_BUFFERS = types.NamedTuple(  # type: ignore[no-untyped-call]
    [array(int64), array(int64), array(types.uint64), array(int64)], LeafBuffers
)


@inlined
def list_leaves(leaves, event, buffers):  # type: ignore[no-untyped-def]
    """List the leaves to search for an event; returns how many."""
    bins = leaves.state[f.BINS]
    for n in range(leaves.columns.shape[0]):
        b = np.int64(event[leaves.columns[n, 0]]) * leaves.columns[n, 1] >> 16
        buffers.lines[n] = f.LINE * (1 + n * bins + b)
    listed = np.int64(0)
    for leaf in range(leaves.state[f.LEAF_TOP]):
        guard = leaves.lines[leaf, f.LEAF_GUARD]
        code = np.int64(event[max(guard, 0)])
        buffers.listed[listed] = leaf
        within = (leaves.lines[leaf, f.LEAF_LEAST] <= code) & (code <= leaves.lines[leaf, f.LEAF_MOST])
        listed += np.int64((leaves.lines[leaf, f.LEAF_COUNT] > 0) & (within | (guard == NONE)))
    return listed


@inlined
def fetch_leaf(leaves, leaf, buffers):  # type: ignore[no-untyped-def]
    """Prefetch the bitmaps of a leaf that an event needs."""
    start = leaf * leaves.state[f.LEAF_WORDS]
    prefetch(leaves.words, start)
    for n in range(leaves.columns.shape[0]):
        prefetch(leaves.words, start + buffers.lines[n])


@inlined
def combine_bitmaps(leaves, leaf, buffers):  # type: ignore[no-untyped-def]
    """The places of a leaf's rows that may match an event, to buffers.hits; returns how many."""
    start = leaf * leaves.state[f.LEAF_WORDS]
    words, left = leaves.words, buffers.left
    for w in range(f.LINE):
        left[w] = words[start + w]
    for n in range(leaves.columns.shape[0]):
        at = start + buffers.lines[n]
        line = words[at : at + f.LINE]
        for w in range(f.LINE):
            left[w] &= line[w]
    matched = np.int64(0)
    for w in range(f.LINE):
        word = left[w]
        first = f.LEAF * leaf + 64 * w
        while word != 0:
            place = first + trailing_zeros(word)
            word &= word - np.uint64(1)
            prefetch(leaves.records, f.LEAF_RECORD * place)
            buffers.hits[matched] = place
            matched += 1
    return matched


@inlined
def compare_codes(columns, ends, event, turn):  # type: ignore[no-untyped-def]
    """Whether an event passes the two tests of a word of a record: bit 0; and whether a code leaves that
    undecided: bit 1. Without branches, which would be mispredicted.
    """
    first = np.int64(event[(columns >> (16 * turn)) & BYTE])
    second = np.int64(event[(columns >> (16 * turn + 8)) & BYTE])
    low, high = ends & f.CODE_MASK, (ends >> 16) & f.CODE_MASK
    least, most = (ends >> 32) & f.CODE_MASK, (ends >> 48) & f.CODE_MASK
    passes = (low <= first) & (first <= high) & (least <= second) & (second <= most)
    odd = (first & 1) * np.int64((first == low) | (first == high))
    odd |= (second & 1) * np.int64((second == least) | (second == most))
    return np.int64(passes) | odd << 1


@inlined
def search_leaf(store, leaf, keys, codes, e, buffers):  # type: ignore[no-untyped-def]
    """The places of a leaf's rows that match an event, to buffers.hits; returns how many."""
    event, records, hits = codes[e], store.leaves.records, buffers.hits
    matched = np.int64(0)
    for i in range(combine_bitmaps(store.leaves, leaf, buffers)):
        place = hits[i]
        tested = records[f.LEAF_RECORD * place + 1]
        here = compare_codes(tested, records[f.LEAF_RECORD * place + 2], event, 0)
        there = compare_codes(tested, records[f.LEAF_RECORD * place + 3], event, 1)
        hits[matched] = place
        if here & there & 1 != 0 and ((here | there) & 2 != 0 or tested < 0):
            row = tested >> 32
            matched += np.int64(passes_bounds(store, row if row >= 0 else ~row, keys, e))
        else:
            matched += here & there & 1
    return matched
