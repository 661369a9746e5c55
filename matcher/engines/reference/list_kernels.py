"""Kernels of many small lists of numbers that grow and shrink: which rows a predicate has, for instance.

    heads [ start count size | start count size | ... ]      one line per list
    pool  [ .. | 7 3 12 - | 5 9 | ... ]                      a list has 2**size places, `count` of them taken

Bittner and Hinze (2005, section 5.3) store such tables as arrays per length; here a list moves to twice the
room when it is full, which needs no directory. A list of one, the most frequent where predicates hardly
repeat, has no room in the pool: its element stands in `start`. Room that is given back waits in free[size],
linked through its first word. What leaves is replaced by the last, so that lists stay dense.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.jit.kernel import array, inlined, int32, int64, record

START, COUNT, SIZE = 0, 1, 2
SIZES = 32


class Lists(NamedTuple):
    """All lists of one kind."""

    state: npt.NDArray[np.int64]  # [1]: top of the pool
    heads: npt.NDArray[np.int32]  # [lists, 3]
    pool: npt.NDArray[np.int32]
    free: npt.NDArray[np.int32]  # [SIZES]: start of a free stretch, or -1


LISTS = record(
    [array(int64), array(int32, 2), array(int32), array(int32)], Lists
)


@inlined
def growth(lists, number, more):  # type: ignore[no-untyped-def]
    """No less than the words of the pool that so many elements more take: all sizes up to the one that holds
    them.
    """
    wanted = np.int64(lists.heads[number, COUNT]) + more
    return np.int64(0) if wanted <= np.int64(1) << lists.heads[number, SIZE] else 4 * wanted


@inlined
def item(lists, number, position):  # type: ignore[no-untyped-def]
    start = lists.heads[number, START]
    return start if lists.heads[number, SIZE] == 0 else lists.pool[start + position]


@inlined
def push(lists, number, value):  # type: ignore[no-untyped-def]
    """Append to a list, for which there is room; returns the position."""
    heads, pool = lists.heads, lists.pool
    count, size = heads[number, COUNT], heads[number, SIZE]
    if count == 0:
        heads[number, START] = value
        heads[number, COUNT] = 1
        return np.int32(0)
    if count == np.int32(1) << size:
        old = heads[number, START]
        new = lists.free[size + 1]
        if new < 0:
            new = np.int32(lists.state[0])
            lists.state[0] += np.int64(2) << size
        else:
            lists.free[size + 1] = pool[new]
        if size == 0:
            pool[new] = old
        else:
            for i in range(count):
                pool[new + i] = pool[old + i]
            pool[old] = lists.free[size]
            lists.free[size] = old
        heads[number, START] = new
        heads[number, SIZE] = size + 1
    pool[heads[number, START] + count] = value
    heads[number, COUNT] = count + 1
    return count


@inlined
def pull(lists, number, position):  # type: ignore[no-untyped-def]
    """Take an element out; returns the one that has taken its place, or -1."""
    heads, pool = lists.heads, lists.pool
    last = heads[number, COUNT] - 1
    heads[number, COUNT] = last
    size = heads[number, SIZE]
    if size == 0:
        return np.int32(-1)
    start = heads[number, START]
    moved = np.int32(-1)
    if position != last:
        moved = pool[start + last]
        pool[start + position] = moved
    if last == 0:
        pool[start] = lists.free[size]
        lists.free[size] = start
        heads[number, SIZE] = 0
    return moved
