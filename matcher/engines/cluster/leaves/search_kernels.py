"""The kernel that searches leaves for many events; the arrays are drawn in `layout/arrays.py`.

A leaf and its bitmaps take 32 KiB, of which an event reads some 33 cache lines. So leaves are the outer loop,
a slice of events the inner one: a leaf is read from memory once per slice. Matches are then sorted by event.
Bitmaps give a superset of the matching rows, since bins are coarser than codes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout import arrays as f
from covey.matcher.engines.cluster.layout.code_kernels import passes_bounds
from covey.matcher.engines.rows.row_kernels import interface_of
from covey.matcher.jit.kernel import (
    array,
    boolean,
    frozen,
    inlined,
    int32,
    int64,
    kernel,
    prefetch,
    record,
    trailing_zeros,
    uint16,
    uint64,
)

BYTE = np.int64(0xFF)
ONE, TWO, THREE, FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
SLICE = 256  # events that are searched for in a leaf before the next leaf
MANY = 64  # events that read about all of a leaf
COUNTS, IDS, INTERFACES = range(3)  # what a search computes


class LeafBuffers(NamedTuple):
    """Working memory of a thread to search leaves for a slice of events."""

    listed: npt.NDArray[np.int64]  # [leaves]: those to search
    lines: npt.NDArray[np.int32]  # [SLICE, columns]: where in a leaf an event's bitmap of each is
    hits: npt.NDArray[np.int64]  # [LEAF]: their places in all leaves
    state: npt.NDArray[np.int64]  # [2]: how many leaves are listed, and how many matches were found
    events: npt.NDArray[np.int32]  # by match: its event within the slice,
    rows: npt.NDArray[np.int32]  # row (or ~row),
    ids: npt.NDArray[np.int64]  # and id
    ends: npt.NDArray[np.int64]  # [SLICE + 1]


class LeafMatches(NamedTuple):
    offsets: npt.NDArray[np.int64]  # [SLICE + 1]
    rows: npt.NDArray[np.int32]  # row (or ~row)
    ids: npt.NDArray[np.int64]


LEAF_BUFFERS = record(
    [array(int64), array(int32, 2), array(int64), array(int64), array(int32), array(int32),
     array(int64), array(int64)],
    LeafBuffers,
)  # fmt: skip
LEAF_MATCHES = record([array(int64), array(int32), array(int64)], LeafMatches)


@inlined
def set_interface(store, row, e, bits):  # type: ignore[no-untyped-def]
    """Set the bit of a row's interface for an event; returns 1 if it was not set, else 0."""
    interface = interface_of(store.rows, row if row >= 0 else ~row)
    bit = np.uint64(1) << np.uint64(interface & 63)
    if bits[e, interface >> 6] & bit != 0:
        return np.int64(0)
    bits[e, interface >> 6] |= bit
    return np.int64(1)


@inlined
def within_guard(leaves, leaf, event):  # type: ignore[no-untyped-def]
    """Whether some row of a leaf may match an event, by the guard."""
    guard = leaves.lines[leaf, f.LEAF_GUARD]
    code = np.int64(event[max(guard, 0)])
    within = (leaves.lines[leaf, f.LEAF_LEAST] <= code) & (code <= leaves.lines[leaf, f.LEAF_MOST])
    return within | (guard == a.NONE)


@inlined
def list_leaves(leaves, codes, first, stop, buffers):  # type: ignore[no-untyped-def]
    """List the leaves to search for any of the events first:stop; returns how many."""
    bins = leaves.state[f.BINS]
    for e in range(first, stop):
        for n in range(leaves.columns.shape[0]):
            b = np.int64(codes[e, leaves.columns[n, 0]]) * leaves.columns[n, 1] >> 16
            buffers.lines[e - first, n] = f.LINE * (1 + n * bins + b)
    listed = np.int64(0)
    for leaf in range(leaves.state[f.LEAF_TOP]):
        buffers.listed[listed] = leaf
        if leaves.lines[leaf, f.LEAF_COUNT] > 0:
            e = first
            while e < stop and not within_guard(leaves, leaf, codes[e]):
                e += 1
            listed += np.int64(e < stop)
    return listed


@inlined
def fetch_leaf(leaves, leaf, lines):  # type: ignore[no-untyped-def]
    start = leaf * leaves.state[f.LEAF_WORDS]
    prefetch(leaves.words, start)
    for n in range(leaves.columns.shape[0]):
        prefetch(leaves.words, start + lines[n])


@inlined
def fetch_part(leaves, leaf, part, parts):  # type: ignore[no-untyped-def]
    """Prefetch one of so many parts of a leaf, where many events need all of it."""
    size = leaves.state[f.LEAF_WORDS]
    for word in range(size * part // parts & ~7, size * (part + 1) // parts, 8):
        prefetch(leaves.words, size * leaf + word)
    size = f.LEAF * f.LEAF_RECORD
    for word in range(size * part // parts & ~7, size * (part + 1) // parts, 8):
        prefetch(leaves.records, size * leaf + word)


@inlined
def list_bits(word, first, matched, hits):  # type: ignore[no-untyped-def]
    """Append `first` plus the number of each set bit to hits[matched:]; returns how many hits."""
    while word != 0:
        hits[matched] = first + trailing_zeros(word)
        word &= word - ONE
        matched += 1
    return matched


@inlined
def combine_bitmaps(leaves, leaf, lines, hits):  # type: ignore[no-untyped-def]
    """Write the places of rows that may match an event to `hits`; returns how many."""
    words = leaves.words
    start = np.uint64(leaf * leaves.state[f.LEAF_WORDS])
    a, b, c, d = words[start], words[start + ONE], words[start + TWO], words[start + THREE]
    start += FOUR
    p, q, r, s = words[start], words[start + ONE], words[start + TWO], words[start + THREE]
    start -= FOUR
    for n in range(leaves.columns.shape[0]):
        at = start + np.uint64(lines[n])
        a &= words[at]
        b &= words[at + ONE]
        c &= words[at + TWO]
        d &= words[at + THREE]
        at += FOUR
        p &= words[at]
        q &= words[at + ONE]
        r &= words[at + TWO]
        s &= words[at + THREE]
    first, matched = f.LEAF * leaf, np.int64(0)
    for word in (a, b, c, d, p, q, r, s):
        matched = list_bits(word, first, matched, hits)
        first += 64
    return matched


@inlined
def compare_codes(columns, ends, event, turn):  # type: ignore[no-untyped-def]
    """Bit 0: both tests of a word of a record pass; bit 1: undecided. Branches would be mispredicted."""
    first = np.int64(event[(columns >> (16 * turn)) & BYTE])
    second = np.int64(event[(columns >> (16 * turn + 8)) & BYTE])
    low, high = ends & f.CODE_MASK, (ends >> 16) & f.CODE_MASK
    least, most = (ends >> 32) & f.CODE_MASK, (ends >> 48) & f.CODE_MASK
    passes = (low <= first) & (first <= high) & (least <= second) & (second <= most)
    odd = (first & 1) * np.int64((first == low) | (first == high))
    odd |= (second & 1) * np.int64((second == least) | (second == most))
    return np.int64(passes) | odd << 1


@inlined
def search_leaf(store, leaf, keys, codes, e, lines, hits):  # type: ignore[no-untyped-def]
    """Write the places of rows that match an event to `hits`; returns how many."""
    event, records = codes[e], store.leaves.records
    matched = np.int64(0)
    for i in range(combine_bitmaps(store.leaves, leaf, lines, hits)):
        place = hits[i]
        tested = records[f.LEAF_RECORD * place + 1]
        here = compare_codes(tested, records[f.LEAF_RECORD * place + 2], event, 0)
        there = compare_codes(tested, records[f.LEAF_RECORD * place + 3], event, 1)
        hits[matched] = place
        passes = here & there & 1
        if passes & (((here | there) >> 1) | (tested >> 63)) & 1 != 0:
            row = tested >> 32
            passes = np.int64(passes_bounds(store, row if row >= 0 else ~row, keys, e))
        matched += passes
    return matched


@inlined
def order_matches(found, events, buffers, matches):  # type: ignore[no-untyped-def]
    """Sort `found` matches by event."""
    offsets, ends = matches.offsets, buffers.ends
    ends[:] = 0
    for i in range(found):
        ends[buffers.events[i]] += 1
    offsets[0] = 0
    for e in range(events):
        offsets[e + 1] = offsets[e] + ends[e]
        ends[e] = offsets[e]
    for i in range(found):
        at = ends[buffers.events[i]]
        matches.rows[at] = buffers.rows[i]
        matches.ids[at] = buffers.ids[i]
        ends[buffers.events[i]] = at + 1


@kernel(a.STORE, frozen(int64, 2), frozen(uint16, 2), int64, int64, int64, int64, boolean, LEAF_BUFFERS,
        LEAF_MATCHES, array(int64), array(uint64, 2))  # fmt: skip
def search_leaves(store, keys, codes, first, stop, start, product, collects, buffers, matches, left, bits):  # type: ignore[no-untyped-def]
    """Search leaves for the events first:stop; returns -1, or the turn that lacked room, to go on from as
    `start`. left[e] is how many more subscriptions or interfaces event e needs. `collects`: matches are
    written to `matches`; otherwise counted down in `left`, with INTERFACES set in `bits`.
    """
    state = buffers.state
    if start == 0:
        state[0], state[1] = list_leaves(store.leaves, codes, first, stop, buffers), 0
    found = state[1]
    for turn in range(start, state[0]):
        if collects and found + f.LEAF * (stop - first) > buffers.ids.size:
            state[1] = found
            return turn
        leaf = buffers.listed[turn]
        coming = buffers.listed[min(turn + 1, state[0] - 1)]
        if stop - first < MANY:
            fetch_leaf(store.leaves, coming, buffers.lines[0])
        for e in range(first, stop):
            if stop - first >= MANY:
                fetch_part(store.leaves, coming, e - first, stop - first)
            if left[e] <= 0 or not within_guard(store.leaves, leaf, codes[e]):
                continue
            matched = search_leaf(store, leaf, keys, codes, e, buffers.lines[e - first], buffers.hits)
            if collects:
                for h in range(matched):
                    at = f.LEAF_RECORD * buffers.hits[h]
                    buffers.events[found + h] = e - first
                    buffers.rows[found + h] = store.leaves.records[at + 1] >> 32
                    buffers.ids[found + h] = store.leaves.records[at]
                found += matched
            elif product == INTERFACES:
                for h in range(matched):
                    row = store.leaves.records[f.LEAF_RECORD * buffers.hits[h] + 1] >> 32
                    left[e] -= set_interface(store, row, e, bits)
            else:
                left[e] -= matched
    if collects:
        order_matches(found, stop - first, buffers, matches)
    return np.int64(-1)
