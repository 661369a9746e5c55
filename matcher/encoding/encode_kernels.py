"""Kernels that turn Arrow's buffers into keys: one column of a batch into one of keys[event, column].

`valid` is Arrow's validity bitmap, empty if nothing is null; `first` is the offset of a slice within its
buffers. The texts that strings contain or end with are a trie of bytes, walked from every place of a string;
unlike an automaton with failure links, it takes another text in place:
    edges   [ node << 8 | byte, child | -1, - | ... ]              open addressing; a power of two of them
    nodes   [ column of `contains`, column of `suffix` ]           of the text that ends there, or NONE

The sets of one attribute are a hash table, from the key of a value to the sets that contain it. A key without
sets keeps its slot until the table grows:
    slots    [ key, first entry | -, EMPTY | key, first entry | ... ]   by hash; a power of two of them
    entries  [ column, number of the set, next entry ]                  a chain per key; END ends it"""

from __future__ import annotations

import numpy as np

from covey.matcher.events.int64 import FIRST, INFINITY_KEY, INT64_MIN, LAST, MISSING, NAN_KEY
from covey.matcher.jit.kernel import (
    array,
    boolean,
    frozen,
    inlined,
    int32,
    int64,
    kernel,
    mix,
    product,
    uint8,
)


@inlined
def is_null(valid, position):  # type: ignore[no-untyped-def]
    return valid.size > 0 and (valid[position >> 3] >> (position & 7)) & 1 == 0


@kernel(frozen(int64), frozen(uint8), int64, int64, array(int64, 2))
def encode_integers(values, valid, first, column, keys):  # type: ignore[no-untyped-def]
    """Keys of int64 or timestamp values; values that no batch has get the outermost keys."""
    for e in range(keys.shape[0]):
        if is_null(valid, first + e):
            keys[e, column] = MISSING
            continue
        keys[e, column] = min(max(values[first + e], np.int64(FIRST)), np.int64(LAST))
    return 0


@kernel(frozen(int64), frozen(uint8), int64, int64, array(int64, 2))
def encode_floats(bits, valid, first, column, keys):  # type: ignore[no-untyped-def]
    for e in range(keys.shape[0]):
        if is_null(valid, first + e):
            keys[e, column] = MISSING
            continue
        key = bits[first + e]
        if key < 0:
            key = INT64_MIN - key  # 0 for -0.0
        if key > INFINITY_KEY or key < -INFINITY_KEY:
            key = np.int64(NAN_KEY)
        keys[e, column] = key
    return 0


@kernel(frozen(uint8), frozen(uint8), int64, int64, array(int64, 2))
def encode_bools(packed, valid, first, column, keys):  # type: ignore[no-untyped-def]
    for e in range(keys.shape[0]):
        position = first + e
        if is_null(valid, position):
            keys[e, column] = MISSING
        else:
            keys[e, column] = (packed[position >> 3] >> (position & 7)) & 1
    return 0


@inlined
def hash_bytes(data, start, end):  # type: ignore[no-untyped-def]
    """FNV-1a, folded."""
    h = np.int64(-3750763034362895579)
    for i in range(start, end):
        h = product(h ^ np.int64(data[i]), np.int64(1099511628211))
    return h ^ (h >> 32)


# The dictionary of constants: an open-addressing table of string ids, and where the bytes of each lie.
#
#     table  [ 0 | 3 | 0 | 1 | ... ]     0 is free; its size is a power of two
#     spans  [ -, (0,3), (9,4), (3,6) ]  start and length in the heap, by id
#     heap   "IBMgoogleAAPL"


@kernel(frozen(uint8), int64, int64, int64, array(int32), array(int64, 2), array(uint8))
def enter_string(data, start, end, string_id, table, spans, heap):  # type: ignore[no-untyped-def]
    """Enter the string data[start:end], which is already in the heap, under an id; returns its place."""
    mask = table.size - 1
    place = hash_bytes(data, start, end) & mask
    while table[place] != 0:
        place = (place + 1) & mask
    table[place] = string_id
    return place


@kernel(
    frozen(int32), frozen(uint8), frozen(uint8), int64, int64, int64,
    array(int32), array(int64, 2), array(uint8), array(int64, 2),
)  # fmt: skip
def encode_strings(offsets, data, valid, first, last, column, table, spans, heap, keys):  # type: ignore[no-untyped-def]
    """Keys of strings: the id of the equal constant, or 0. If `last` >= 0, keys of their last `last` bytes:
    the id, or MISSING, for which engines look nothing up."""
    other = np.int64(MISSING) if last >= 0 else np.int64(0)
    mask = table.size - 1
    for e in range(keys.shape[0]):
        if is_null(valid, first + e):
            keys[e, column] = MISSING
            continue
        start, end = np.int64(offsets[first + e]), np.int64(offsets[first + e + 1])
        if end - start < last:
            keys[e, column] = other
            continue
        if last >= 0:
            start = end - last
        place = hash_bytes(data, start, end) & mask
        key = other
        while table[place] != 0:
            string_id = table[place]
            if spans[string_id, 1] == end - start:
                at = spans[string_id, 0]
                i = 0
                while i < end - start and heap[at + i] == data[start + i]:
                    i += 1
                if i == end - start:
                    key = string_id
                    break
            place = (place + 1) & mask
        keys[e, column] = key
    return 0


@inlined
def compare_text(text, start, end, other, first, last):  # type: ignore[no-untyped-def]
    """Negative if text[start:end] precedes other[first:last], 0 if they are equal."""
    length = min(end - start, last - first)
    for i in range(length):
        if text[start + i] != other[first + i]:
            return np.int64(text[start + i]) - np.int64(other[first + i])
    return (end - start) - (last - first)


@kernel(
    frozen(int32), frozen(uint8), frozen(uint8), int64, int64,
    frozen(int64), frozen(uint8), frozen(int64), array(int64, 2),
)  # fmt: skip
def encode_ranks(offsets, data, valid, first, column, ends, text, ranks, keys):  # type: ignore[no-untyped-def]
    """Keys of strings among constants in ascending order, text[ends[i] : ends[i + 1]]: ranks[2i + 1] for the
    i-th constant, ranks[2i] for strings between it and its predecessor."""
    for e in range(keys.shape[0]):
        if is_null(valid, first + e):
            keys[e, column] = MISSING
            continue
        start, end = np.int64(offsets[first + e]), np.int64(offsets[first + e + 1])
        low, high = np.int64(0), np.int64(ends.size - 1)
        place = np.int64(-1)
        while low < high:
            middle = (low + high) >> 1
            order = compare_text(data, start, end, text, ends[middle], ends[middle + 1])
            if order == 0:
                place = 2 * middle + 1
                low = high
            elif order < 0:
                high = middle
            else:
                low = middle + 1
        keys[e, column] = ranks[place if place >= 0 else 2 * low]
    return 0


NONE = -1
EDGE, CHILD = 0, 1
CONTAINS, SUFFIX = 0, 1


@inlined
def edge_of(edges, node, byte):  # type: ignore[no-untyped-def]
    mask = edges.shape[0] - 1
    edge = np.int64(node) << 8 | np.int64(byte)
    place = mix(np.int64(0), edge) & mask
    while edges[place, EDGE] != NONE and edges[place, EDGE] != edge:
        place = (place + 1) & mask
    return place


@kernel(frozen(uint8), int64, array(int64, 2), array(int64, 2))
def enter_text(text, top, edges, nodes):  # type: ignore[no-untyped-def]
    """Enter a text in a trie of `top` nodes with room for it; returns its node << 32 | the new number of
    nodes."""
    node = np.int64(0)
    for i in range(text.size):
        place = edge_of(edges, node, text[i])
        if edges[place, EDGE] == NONE:
            edges[place, EDGE], edges[place, CHILD] = node << 8 | np.int64(text[i]), top
            nodes[top, CONTAINS] = nodes[top, SUFFIX] = NONE
            top += 1
        node = edges[place, CHILD]
    return node << 32 | top


@kernel(frozen(int32), frozen(uint8), frozen(uint8), int64, frozen(int64, 2), frozen(int64, 2), frozen(int64),
        array(int64, 2))  # fmt: skip
def encode_texts(offsets, data, valid, first, edges, nodes, columns, keys):  # type: ignore[no-untyped-def]
    """Set the columns of the texts that an event's string contains or ends with to 1; the others are 0."""
    for e in range(keys.shape[0]):
        if is_null(valid, first + e):
            for c in range(columns.size):
                keys[e, columns[c]] = MISSING
            continue
        end = np.int64(offsets[first + e + 1])
        for start in range(np.int64(offsets[first + e]), end + 1):
            node, at = np.int64(0), start
            while node != NONE:
                if nodes[node, CONTAINS] != NONE:
                    keys[e, nodes[node, CONTAINS]] = 1
                if at == end:
                    if nodes[node, SUFFIX] != NONE:
                        keys[e, nodes[node, SUFFIX]] = 1
                    node = np.int64(NONE)
                else:
                    place = edge_of(edges, node, data[at])
                    node = edges[place, CHILD] if edges[place, EDGE] != NONE else np.int64(NONE)
                    at += 1
    return 0


SLOT_KEY, SLOT_FIRST = 0, 1
ENTRY_COLUMN, ENTRY_SET, ENTRY_NEXT = 0, 1, 2
EMPTY, END = -2, -1
# state: slots in use, entries ever used, the first entry that is free
SLOTS_USED, ENTRY_TOP, ENTRY_FREE = 0, 1, 2


@inlined
def slot_of(slots, key):  # type: ignore[no-untyped-def]
    mask = slots.shape[0] - 1
    slot = mix(np.int64(0), key) & mask
    while slots[slot, SLOT_FIRST] != EMPTY and slots[slot, SLOT_KEY] != key:
        slot = (slot + 1) & mask
    return slot


@kernel(frozen(int64), int64, int64, array(int64, 2), array(int64, 2), array(int64))
def enter_set(members, column, number, slots, entries, state):  # type: ignore[no-untyped-def]
    """Enter a set of distinct keys, for which there is room."""
    for i in range(members.size):
        slot = slot_of(slots, members[i])
        if slots[slot, SLOT_FIRST] == EMPTY:
            slots[slot, SLOT_KEY], slots[slot, SLOT_FIRST] = members[i], END
            state[SLOTS_USED] += 1
        entry = state[ENTRY_FREE]
        if entry == END:
            entry = state[ENTRY_TOP]
            state[ENTRY_TOP] += 1
        else:
            state[ENTRY_FREE] = entries[entry, ENTRY_NEXT]
        entries[entry, ENTRY_COLUMN], entries[entry, ENTRY_SET] = column, number
        entries[entry, ENTRY_NEXT] = slots[slot, SLOT_FIRST]
        slots[slot, SLOT_FIRST] = entry
    return 0


@kernel(frozen(int64), int64, array(int64, 2), array(int64, 2), array(int64))
def leave_set(members, column, slots, entries, state):  # type: ignore[no-untyped-def]
    """Remove the entries of these keys in a column; each key must have one."""
    for i in range(members.size):
        slot = slot_of(slots, members[i])
        before, entry = np.int64(END), slots[slot, SLOT_FIRST]
        while entries[entry, ENTRY_COLUMN] != column:
            before, entry = entry, entries[entry, ENTRY_NEXT]
        if before == END:
            slots[slot, SLOT_FIRST] = entries[entry, ENTRY_NEXT]
        else:
            entries[before, ENTRY_NEXT] = entries[entry, ENTRY_NEXT]
        entries[entry, ENTRY_NEXT] = state[ENTRY_FREE]
        state[ENTRY_FREE] = entry
    return 0


@kernel(frozen(int64), frozen(int64, 2), frozen(int64, 2), array(boolean))
def mark_columns(members, slots, entries, taken):  # type: ignore[no-untyped-def]
    """Set taken[c] for the columns whose sets contain any of these keys."""
    for i in range(members.size):
        entry = slots[slot_of(slots, members[i]), SLOT_FIRST]
        while entry >= 0:
            taken[entries[entry, ENTRY_COLUMN]] = True
            entry = entries[entry, ENTRY_NEXT]
    return 0


@kernel(frozen(int64, 2), frozen(int64, 2), int64, frozen(int64), int64, array(int64, 2))
def encode_members(slots, entries, attribute, columns, shared, keys):  # type: ignore[no-untyped-def]
    """Write the number of the set that contains an event's value to each column. Without one, the first
    `shared` columns get MISSING, for which no access predicate is looked up, the others 0."""
    for e in range(keys.shape[0]):
        missing = keys[e, attribute] == MISSING
        for c in range(columns.size if missing else shared):
            keys[e, columns[c]] = MISSING
        if missing:
            continue
        entry = slots[slot_of(slots, keys[e, attribute]), SLOT_FIRST]
        while entry >= 0:
            keys[e, entries[entry, ENTRY_COLUMN]] = entries[entry, ENTRY_SET]
            entry = entries[entry, ENTRY_NEXT]
    return 0
