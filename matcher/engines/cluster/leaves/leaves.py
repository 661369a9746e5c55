"""Which columns have bitmaps, how many bins each, and room for leaves; the arrays are drawn in
`layout/leaf_arrays.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout import leaf_arrays as f
from covey.matcher.engines.cluster.leaves.search_kernels import SLICE, LeafBuffers, LeafMatches
from covey.matcher.engines.rows.arrays import check_count, grown

BITS = 256
"""Bits of a row in all bitmaps together, as long as a column has its fewest bins."""
FEWEST_BINS, MOST_BINS = 8, 64
MOST_COLUMNS = 64


def bins_for(columns: int) -> int:
    """How many bins each of so many columns has."""
    return max(FEWEST_BINS, min(MOST_BINS, BITS // max(columns, 1)))


def empty_leaves(columns: Sequence[int], coding: npt.NDArray[np.int64]) -> f.Leaves:
    """Room for one leaf, with bitmaps for these columns."""
    bins = bins_for(len(columns))
    state = np.zeros(f.LEAF_STATE, dtype=np.int64)
    state[f.LEAF_FREE], state[f.BINS] = a.NONE, bins
    state[f.FILLED] = f.LEAF
    state[f.LEAF_WORDS] = f.LINE * (1 + bins * len(columns))
    scaled = np.zeros((len(columns), 2), dtype=np.int64)
    numbers = np.full(a.NARROW_COLUMNS, a.NONE, dtype=np.int32)
    for number, column in enumerate(columns):
        scaled[number] = column, (bins << 16) // (2 * int(coding[column, a.CODE_COUNT]) + 6)
        numbers[column] = number
    leaves = f.Leaves(
        state,
        scaled,
        numbers,
        np.zeros((0, f.LEAF_FIELDS), dtype=np.int32),
        np.zeros(0, dtype=np.uint64),
        np.zeros(0, dtype=np.int64),
        np.zeros((len(columns) + 1, 2), dtype=np.int32),
    )
    return with_room(leaves, 1)


def with_room(leaves: f.Leaves, count: int) -> f.Leaves:
    """The same with room for so many leaves."""
    check_count(count * f.LEAF, "places in leaves")
    directory = np.zeros((len(leaves.directory), count + 2), dtype=np.int32)
    shared = min(count + 2, leaves.directory.shape[1])
    directory[:, :shared] = leaves.directory[:, :shared]
    return leaves._replace(
        lines=grown(leaves.lines, count),
        words=grown(leaves.words, count * int(leaves.state[f.LEAF_WORDS])),
        records=grown(leaves.records, count * f.LEAF * f.LEAF_RECORD),
        directory=directory,
    )


def is_sparse(leaves: f.Leaves) -> bool:
    """Whether the rows would fit a quarter of the leaves in use."""
    state = leaves.state
    return bool(4 * state[f.LEAF_ROWS] + 16 * f.LEAF < f.LEAF * state[f.LEAVES_USED])


def leaf_buffers(lines: int, columns: int) -> LeafBuffers:
    """What searching so many leaves needs, with bitmaps for so many columns, without room for matches."""
    return LeafBuffers(
        np.zeros(lines + 1, dtype=np.int64),
        np.zeros((SLICE, columns), dtype=np.int32),
        np.zeros(f.LEAF, dtype=np.int64),
        np.zeros(2, dtype=np.int64),
        np.zeros(0, dtype=np.int32),
        *leaf_matches(0)[1:],
        np.zeros(SLICE + 1, dtype=np.int64),
    )


def leaf_matches(room: int) -> LeafMatches:
    """Room for so many matches of a slice of events."""
    return LeafMatches(
        np.zeros(SLICE + 1, dtype=np.int64), np.zeros(room, dtype=np.int32), np.zeros(room, dtype=np.int64)
    )


def used_parts(leaves: f.Leaves) -> tuple[npt.NDArray[Any], ...]:
    """The arrays of leaves, as far as they are in use."""
    top = int(leaves.state[f.LEAF_TOP])
    return (
        leaves.state,
        leaves.columns,
        leaves.numbers,
        leaves.lines[:top],
        leaves.words[: top * int(leaves.state[f.LEAF_WORDS])],
        leaves.records[: top * f.LEAF * f.LEAF_RECORD],
        leaves.directory,
    )
