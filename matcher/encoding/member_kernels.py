"""Kernels of the table of sets of one attribute: for the key of a value, the sets that contain it.

    slots    [ key, first entry | -, EMPTY | key, first entry | ... ]   by hash; a power of two of them
    entries  [ column, number of the set, next entry ]                  a chain per key; END ends it

A key whose last set has gone keeps its slot, with no entries, until the table grows.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.events.int64 import MISSING
from covey.matcher.jit.hashing import mix
from covey.matcher.jit.kernel import array, boolean, frozen, inlined, int64, kernel

SLOT_KEY, SLOT_FIRST = 0, 1
ENTRY_COLUMN, ENTRY_SET, ENTRY_NEXT = 0, 1, 2
EMPTY, END = -2, -1
# state: slots in use, entries ever used, the first entry that is free
SLOTS_USED, ENTRY_TOP, ENTRY_FREE = 0, 1, 2


@inlined
def slot_of(slots, key):  # type: ignore[no-untyped-def]
    """The slot of a key, or the empty one where it belongs."""
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
    """Remove the entries of a column of these keys, each of which has one."""
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
    """Set taken[c] for the columns whose sets contain some of these keys."""
    for i in range(members.size):
        entry = slots[slot_of(slots, members[i]), SLOT_FIRST]
        while entry >= 0:
            taken[entries[entry, ENTRY_COLUMN]] = True
            entry = entries[entry, ENTRY_NEXT]
    return 0


@kernel(frozen(int64, 2), frozen(int64, 2), int64, frozen(int64), int64, array(int64, 2))
def encode_members(slots, entries, attribute, columns, shared, keys):  # type: ignore[no-untyped-def]
    """Write the number of the set that contains an event's value to each of these columns; where none does,
    MISSING to the first `shared` columns, for which no access predicate is then looked up, 0 to the others.
    """
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
