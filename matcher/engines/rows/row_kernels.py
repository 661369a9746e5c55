"""Kernels for the fields of rows, and for the map from subscription ids to rows.

rows [ signature place interface | ... ]     one line of int32 per row; the fields below
ids  [ low | low | ... ]                     the subscription's id, while all ids fit 32 bits; then
     [ low high | low high | ... ]

The map from ids to rows is open addressing; ids are compared in the array above:

    places [ -1 | tag 7 | tag 3 | -1 | tag 12 ... ]    a row number below bits of the id's hash, or -1

A row number takes the low `bits` of an entry's 31, the tag the others: with a million rows, one other id in a
thousand is compared, so four fifths of the places may be in use. That is five to seven bytes per subscription
besides the ids. Removal shifts later entries back, so there are no tombstones.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.jit.kernel import array, frozen, inlined, int32, int64, kernel, prefetch, spread

ROW_SIGNATURE, ROW_PLACE, ROW_INTERFACE = range(3)
"""The signature is ~plan while the row is outside the structure. Above the interface's 16 bits is the row's
number within its subscription, from 0.
"""
ROW_FIELDS = 3
INTERFACE_BITS = 16
INTERFACE_MASK = (1 << INTERFACE_BITS) - 1
LOW_HALF = np.int64(0xFFFFFFFF)


@inlined
def id_of(ids, row):  # type: ignore[no-untyped-def]
    low = np.int64(ids[row, 0])
    return low if ids.shape[1] == 1 else np.int64(ids[row, 1]) << 32 | low & LOW_HALF


@inlined
def first_of(rows, row):  # type: ignore[no-untyped-def]
    """The first row of the row's subscription."""
    return row - (rows[row, ROW_INTERFACE] >> INTERFACE_BITS)


@inlined
def interface_of(rows, row):  # type: ignore[no-untyped-def]
    return rows[row, ROW_INTERFACE] & INTERFACE_MASK


@kernel(frozen(int64), int64, frozen(int64), int64, frozen(int64), array(int32, 2), array(int32, 2))
def describe_rows(firsts, each, subscriptions, plan, interfaces, rows, ids):  # type: ignore[no-untyped-def]
    """Describe `each` rows from firsts[i] on; False where an id needs 64 bits."""
    for i in range(firsts.size):
        low, high = subscriptions[i] << 32 >> 32, subscriptions[i] >> 32
        if ids.shape[1] == 1 and low != subscriptions[i]:
            return False
        for row in range(firsts[i], firsts[i] + each):
            ids[row, 0] = low
            if ids.shape[1] > 1:
                ids[row, 1] = high
            rows[row, ROW_SIGNATURE] = ~plan
            rows[row, ROW_INTERFACE] = interfaces[i] | (row - firsts[i]) << INTERFACE_BITS
    return True


@kernel(frozen(int64), int64, array(int64))
def count_interfaces(interfaces, sign, counts):  # type: ignore[no-untyped-def]
    """Add `sign` to the count of every interface; False, without a change, where one is out of range."""
    for i in range(interfaces.size):
        if interfaces[i] >= counts.size:
            return False
    for i in range(interfaces.size):
        counts[interfaces[i]] += sign
    return True


@kernel(array(int32, 2), frozen(int64), int64)
def set_signature(rows, numbers, signature):  # type: ignore[no-untyped-def]
    for i in range(numbers.size):
        rows[numbers[i], ROW_SIGNATURE] = signature
    return 0


FREE = np.int32(-1)
NONE, UNORDERED = -1, -2
ENTRY_BITS = 31
PREFETCH_DISTANCE = 16  # ids
HIGH_HALF = np.int64(0xFFFFFFFF)


@inlined
def home(places, subscription_id):  # type: ignore[no-untyped-def]
    h = spread(subscription_id)
    return ((h >> 32 & HIGH_HALF) * places.size) >> 32


@inlined
def tag(subscription_id, bits):  # type: ignore[no-untyped-def]
    """The entry of an id with row 0."""
    h = spread(subscription_id)
    return ((h ^ (h >> 29)) & ((np.int64(1) << (ENTRY_BITS - bits)) - 1)) << bits


@inlined
def following(places, place):  # type: ignore[no-untyped-def]
    return place + 1 if place + 1 < places.size else np.int64(0)


@inlined
def distance(places, start, end):  # type: ignore[no-untyped-def]
    """Places from `start` to `end`, cyclically."""
    return end - start if end >= start else end - start + places.size


@inlined
def row_of(places, bits, ids, subscription_id):  # type: ignore[no-untyped-def]
    """The row of one id, NONE if it is unknown."""
    place, mine = home(places, subscription_id), tag(subscription_id, bits)
    while places[place] != FREE:
        row = np.int64(places[place]) ^ mine
        if row >> bits == 0 and id_of(ids, row) == subscription_id:
            return row
        place = following(places, place)
    return np.int64(NONE)


@inlined
def enter(places, bits, subscription_id, row):  # type: ignore[no-untyped-def]
    place = home(places, subscription_id)
    while places[place] != FREE:
        place = following(places, place)
    places[place] = tag(subscription_id, bits) | row


@kernel(frozen(int32), int64, frozen(int32, 2), int64)
def find_row(places, bits, ids, subscription_id):  # type: ignore[no-untyped-def]
    return row_of(places, bits, ids, subscription_id)


@kernel(frozen(int32), int64, frozen(int32, 2), frozen(int64), array(int64))
def find_rows(places, bits, ids, looked_up, out):  # type: ignore[no-untyped-def]
    """The row of every id, NONE for unknown ones; returns how many are known."""
    known, mask = 0, (np.int64(1) << bits) - 1
    for i in range(looked_up.size):
        if i + PREFETCH_DISTANCE < looked_up.size:
            prefetch(places, home(places, looked_up[i + PREFETCH_DISTANCE]))
            soon = np.int64(places[home(places, looked_up[i + PREFETCH_DISTANCE // 2])])
            prefetch(ids, ids.shape[1] * min(soon & mask, ids.shape[0] - 1))
        out[i] = row_of(places, bits, ids, looked_up[i])
        if out[i] >= 0:
            known += 1
    return known


@kernel(frozen(int32), int64, frozen(int32, 2), frozen(int64))
def first_known(places, bits, ids, looked_up):  # type: ignore[no-untyped-def]
    for i in range(looked_up.size):
        if i and looked_up[i] <= looked_up[i - 1]:
            return np.int64(UNORDERED)
        if i + PREFETCH_DISTANCE < looked_up.size:
            prefetch(places, home(places, looked_up[i + PREFETCH_DISTANCE]))
        if row_of(places, bits, ids, looked_up[i]) >= 0:
            return np.int64(i)
    return np.int64(NONE)


@kernel(array(int32), int64, frozen(int32, 2), frozen(int64))
def enter_rows(places, bits, ids, rows):  # type: ignore[no-untyped-def]
    """Enter rows whose ids are set, and not in the map."""
    for i in range(rows.size):
        if i + PREFETCH_DISTANCE < rows.size:
            prefetch(places, home(places, id_of(ids, rows[i + PREFETCH_DISTANCE])))
        enter(places, bits, id_of(ids, rows[i]), rows[i])
    return 0


@kernel(array(int32), int64, frozen(int32, 2), frozen(int64))
def remove_rows(places, bits, ids, rows):  # type: ignore[no-untyped-def]
    mask = (np.int64(1) << bits) - 1
    for i in range(rows.size):
        if i + PREFETCH_DISTANCE < rows.size:
            prefetch(ids, ids.shape[1] * rows[i + PREFETCH_DISTANCE])
            prefetch(places, home(places, id_of(ids, rows[i + PREFETCH_DISTANCE // 2])))
        place, entry = home(places, id_of(ids, rows[i])), tag(id_of(ids, rows[i]), bits) | rows[i]
        while places[place] != entry:
            place = following(places, place)
        gap = place
        while True:
            place = following(places, place)
            if places[place] == FREE:
                break
            # the entry may move into the gap unless its home lies between the gap and where it is
            first = home(places, id_of(ids, places[place] & mask))
            if distance(places, first, place) >= distance(places, gap, place):
                places[gap] = places[place]
                gap = place
        places[gap] = FREE
    return 0


@kernel(frozen(int32), int64, array(int32), int64, frozen(int32, 2))
def rehash_rows(old, old_bits, places, bits, ids):  # type: ignore[no-untyped-def]
    """Enter the rows of `old` into `places`, which is empty."""
    mask = (np.int64(1) << old_bits) - 1
    for i in range(old.size):
        if i + PREFETCH_DISTANCE < old.size:
            prefetch(ids, ids.shape[1] * min(old[i + PREFETCH_DISTANCE] & mask, ids.shape[0] - 1))
        if old[i] != FREE:
            row = np.int64(old[i]) & mask
            enter(places, bits, id_of(ids, row), row)
    return 0
