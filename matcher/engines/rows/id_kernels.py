"""Kernels of the map from subscription ids to rows: open addressing over row numbers; ids are compared in
the rows' own array.

    places [ -1 | 7 | 3 | -1 | 12 ... ]    a row number, or -1; the size is a power of two, at most half used
    ids    [ id of row 0, id of row 1, ...]

Four to eight bytes per subscription on top of the ids. Removal moves later entries back, so there are no
tombstones.
"""

from __future__ import annotations

import numpy as np
from numba import int32, int64

from covey.matcher.jit.kernel import array, frozen, inlined, kernel, prefetch

FREE = np.int32(-1)
NONE, UNORDERED = -1, -2
PREFETCH_DISTANCE = 16
"""How many ids ahead cache lines are prefetched."""
MULTIPLIER = np.int64(-7046029254386353131)


@inlined
def home(subscription_id, mask):  # type: ignore[no-untyped-def]
    h = np.int64(subscription_id) * MULTIPLIER
    return (h ^ (h >> 29) ^ (h >> 47)) & mask


@kernel(frozen(int32), frozen(int64), int64)
def find_row(places, ids, subscription_id):  # type: ignore[no-untyped-def]
    """The row of one id, -1 if it is unknown."""
    mask = np.int64(places.size - 1)
    place = home(subscription_id, mask)
    while places[place] != FREE and ids[places[place]] != subscription_id:
        place = (place + 1) & mask
    return places[place]


@kernel(frozen(int32), frozen(int64), frozen(int64), array(int64))
def find_rows(places, ids, looked_up, out):  # type: ignore[no-untyped-def]
    """The row of every id, -1 for unknown ones; returns how many are known."""
    mask = np.int64(places.size - 1)
    known = 0
    for i in range(looked_up.size):
        if i + PREFETCH_DISTANCE < looked_up.size:
            prefetch(places, home(looked_up[i + PREFETCH_DISTANCE], mask))
            prefetch(ids, max(np.int64(places[home(looked_up[i + PREFETCH_DISTANCE // 2], mask)]), 0))
        place = home(looked_up[i], mask)
        while places[place] != FREE and ids[places[place]] != looked_up[i]:
            place = (place + 1) & mask
        out[i] = places[place]
        if out[i] >= 0:
            known += 1
    return known


@kernel(frozen(int32), frozen(int64), frozen(int64))
def first_known(places, ids, looked_up):  # type: ignore[no-untyped-def]
    """The position of the first id that is known, or NONE; UNORDERED where the ids do not ascend."""
    mask = np.int64(places.size - 1)
    for i in range(looked_up.size):
        if i and looked_up[i] <= looked_up[i - 1]:
            return np.int64(UNORDERED)
        place = home(looked_up[i], mask)
        while places[place] != FREE:
            if ids[places[place]] == looked_up[i]:
                return np.int64(i)
            place = (place + 1) & mask
    return np.int64(NONE)


@kernel(array(int32), frozen(int64), frozen(int64))
def enter_rows(places, ids, rows):  # type: ignore[no-untyped-def]
    """Enter rows whose ids are set; returns the position of the first whose id is taken, or the number of
    rows.
    """
    mask = np.int64(places.size - 1)
    for i in range(rows.size):
        subscription_id = ids[rows[i]]
        place = home(subscription_id, mask)
        while places[place] != FREE:
            if ids[places[place]] == subscription_id:
                return i
            place = (place + 1) & mask
        places[place] = rows[i]
    return rows.size


@kernel(array(int32), frozen(int64), frozen(int64))
def remove_rows(places, ids, rows):  # type: ignore[no-untyped-def]
    """Remove rows, and close the gaps."""
    mask = np.int64(places.size - 1)
    for i in range(rows.size):
        place = home(ids[rows[i]], mask)
        while places[place] != rows[i]:
            place = (place + 1) & mask
        gap = place
        while True:
            place = (place + 1) & mask
            row = places[place]
            if row == FREE:
                break
            # the entry may move into the gap unless its home lies between the gap and where it is
            if ((place - home(ids[row], mask)) & mask) >= ((place - gap) & mask):
                places[gap] = row
                gap = place
        places[gap] = FREE
    return 0


@kernel(frozen(int32), array(int32), frozen(int64))
def rehash_rows(old, places, ids):  # type: ignore[no-untyped-def]
    """Enter all rows of an old table into a new, empty one."""
    mask = np.int64(places.size - 1)
    for i in range(old.size):
        row = old[i]
        if row != FREE:
            place = home(ids[row], mask)
            while places[place] != FREE:
                place = (place + 1) & mask
            places[place] = row
    return 0
