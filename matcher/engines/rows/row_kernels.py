"""Kernels for the fields of rows.

rows [ signature place interface | ... ]     one line of int32 per row; the fields below
ids  [ low | low | ... ]                     the subscription's id, while all ids fit 32 bits; then
     [ low high | low high | ... ]
"""

from __future__ import annotations

import numpy as np

from covey.matcher.jit.kernel import array, frozen, inlined, int32, int64, kernel

ROW_SIGNATURE, ROW_PLACE, ROW_INTERFACE = range(3)
"""The signature is ~plan where the row is in no structure, as the row of a plan without boxes. The interface
has 16 bits; above them is the row's number within its subscription, from 0 on.
"""
ROW_FIELDS = 3
INTERFACE_BITS = 16
INTERFACE_MASK = (1 << INTERFACE_BITS) - 1
LOW_HALF = np.int64(0xFFFFFFFF)


@inlined
def id_of(ids, row):  # type: ignore[no-untyped-def]
    """The id of a row's subscription."""
    low = np.int64(ids[row, 0])
    return low if ids.shape[1] == 1 else np.int64(ids[row, 1]) << 32 | low & LOW_HALF


@inlined
def first_of(rows, row):  # type: ignore[no-untyped-def]
    """The first row of a row's subscription."""
    return row - (rows[row, ROW_INTERFACE] >> INTERFACE_BITS)


@inlined
def interface_of(rows, row):  # type: ignore[no-untyped-def]
    """The interface of a row's subscription."""
    return rows[row, ROW_INTERFACE] & INTERFACE_MASK


@kernel(frozen(int64), int64, frozen(int64), int64, frozen(int64), array(int32, 2), array(int32, 2))
def describe_rows(firsts, each, subscriptions, plan, interfaces, rows, ids):  # type: ignore[no-untyped-def]
    """Write the subscription, plan and interface of the `each` rows from firsts[i] on; False where an id does
    not fit.
    """
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
    """Give rows a signature."""
    for i in range(numbers.size):
        rows[numbers[i], ROW_SIGNATURE] = signature
    return 0
