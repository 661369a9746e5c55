"""Kernels that turn matching rows into answers: the ids of subscriptions, or the interfaces they are for.

A subscription of several rows is answered once: seen[first row] is the stamp of the last event it matched.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.rows.row_kernels import first_of, id_of, interface_of
from covey.matcher.jit.kernel import array, boolean, frozen, int32, int64, kernel, uint64


@kernel(frozen(int32, 2), frozen(int32, 2), array(int64), int64, boolean, array(int64), array(int64))
def resolve_rows(rows, ids, seen, stamp, shared, offsets, found):  # type: ignore[no-untyped-def]
    """Replace row numbers, CSR in `offsets` and `found`, by subscription ids, each once; returns the last
    stamp.

    `shared`: some subscription has several rows.
    """
    end, start = np.int64(0), np.int64(0)
    for e in range(offsets.size - 1):
        stop = offsets[e + 1]
        stamp += 1
        for i in range(start, stop):
            row = found[i]
            if shared:
                first = first_of(rows, row)
                if seen[first] == stamp:
                    continue
                seen[first] = stamp
            found[end] = id_of(ids, row)
            end += 1
        start = stop
        offsets[e + 1] = end
    return stamp


@kernel(frozen(int32, 2), frozen(int64), frozen(int64), array(uint64, 2))
def interface_bits(rows, offsets, found, bits):  # type: ignore[no-untyped-def]
    """Set the bits of the interfaces of the rows that each event matches."""
    for e in range(offsets.size - 1):
        for i in range(offsets[e], offsets[e + 1]):
            interface = interface_of(rows, found[i])
            bits[e, interface >> 6] |= np.uint64(1) << np.uint64(interface & 63)
    return 0
