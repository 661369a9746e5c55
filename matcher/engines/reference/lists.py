"""Many small lists of numbers, for kernels to fill (drawn in `list_kernels.py`)."""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.reference import list_kernels as k

_SMALLEST = 64


def new_lists() -> k.Lists:
    """No lists, and a little room."""
    return k.Lists(
        state=np.zeros(1, dtype=np.int64),
        heads=np.zeros((_SMALLEST, 3), dtype=np.int32),
        pool=np.zeros(_SMALLEST, dtype=np.int32),
        free=np.full(k.SIZES, -1, dtype=np.int32),
    )


def with_lists(lists: k.Lists, count: int) -> k.Lists:
    """The same lists, at least `count` of them."""
    if count <= len(lists.heads):
        return lists
    heads = np.zeros((max(count, 2 * len(lists.heads)), 3), dtype=np.int32)
    heads[: len(lists.heads)] = lists.heads
    return lists._replace(heads=heads)


def with_room(lists: k.Lists, words: int) -> k.Lists:
    """The same lists, with room for so many words more in the pool."""
    size = int(lists.state[0]) + words
    if size <= len(lists.pool):
        return lists
    pool = np.zeros(max(size, len(lists.pool) * 3 // 2), dtype=np.int32)
    pool[: len(lists.pool)] = lists.pool
    return lists._replace(pool=pool)


def lists_bytes(lists: k.Lists) -> int:
    """Their memory in bytes."""
    return int(lists.heads.nbytes + lists.pool.nbytes)
