"""Kernels for the fields of rows.

rows [ signature place interface | ... ]     one line of int32 per row; the fields below
"""

from __future__ import annotations

from numba import int32, int64

from covey.matcher.jit.kernel import array, frozen, inlined, kernel

ROW_SIGNATURE, ROW_PLACE, ROW_INTERFACE = range(3)
"""The signature is ~plan where the row is in no structure, as the row of a plan without boxes. The interface
has 16 bits; above them is the row's number within its subscription, from 0 on.
"""
ROW_FIELDS = 3
INTERFACE_BITS = 16
INTERFACE_MASK = (1 << INTERFACE_BITS) - 1


@inlined
def first_of(rows, row):  # type: ignore[no-untyped-def]
    """The first row of a row's subscription."""
    return row - (rows[row, ROW_INTERFACE] >> INTERFACE_BITS)


@inlined
def interface_of(rows, row):  # type: ignore[no-untyped-def]
    """The interface of a row's subscription."""
    return rows[row, ROW_INTERFACE] & INTERFACE_MASK


@kernel(frozen(int64), int64, frozen(int64), int64, frozen(int64), array(int32, 2), array(int64))
def describe_rows(firsts, each, subscriptions, plan, interfaces, rows, ids):  # type: ignore[no-untyped-def]
    """Write the subscription, plan and interface of the `each` rows from firsts[i] on."""
    for i in range(firsts.size):
        for row in range(firsts[i], firsts[i] + each):
            ids[row] = subscriptions[i]
            rows[row, ROW_SIGNATURE] = ~plan
            rows[row, ROW_INTERFACE] = interfaces[i] | (row - firsts[i]) << INTERFACE_BITS
    return 0


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
