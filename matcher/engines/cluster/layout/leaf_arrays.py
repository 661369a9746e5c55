"""The arrays of leaves: rows without an access predicate, found by bitmaps (a bitmap index in bins, O'Neil
and Quass 1997).

Where rows have no equality and each has ranges on other columns, no hashing leaves few candidates. Such rows
are in *leaves* of up to 512. A leaf has bitmaps for the columns that many of them test, one per *bin*, an
interval of codes: a set bit means that the row of that place may match an event whose value is in the bin. An
event combines one bitmap per column, 512 rows in 64 bytes each; the rows that remain are compared by codes.

    words    leaf [ taken | column 3: bin 0 | bin 1 | ... | column 7: bin 0 | ... ]      8 words each
    records  [ id | columns and row | low high low high | low high low high ]            4 words per row
    lines    leaf [ column rows least most ]
    directory  column [ how many | leaf 4 | leaf 0 | leaf 9 ]                            by their least

All rows of a leaf test one column, its *guard*: the narrowest range of most of them is on it. Leaves of one
guard divide the rows by low end, as the leaves of a B-tree do. No row of a leaf matches an event whose code
on the guard is outside `least` to `most`, so one comparison excludes most leaves. A row whose new bounds stay
within them keeps its place; only bits and codes change.

Invariants: the bits of a used place are those of its row's bounds; of a free place all bits are ones, but for
`taken`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.jit.kernel import array, int32, int64, record, uint64

LEAF = 512
"""Rows of a leaf: a bitmap is one line of the cache."""
LINE = LEAF // 64
"""Words of a bitmap."""
LEAF_RECORD = 4
"""Words of a row's record: id; row (or ~row) above its columns; low and high codes of four tests."""
IN_LEAF = -1
"""Stands instead of the block of a row in a leaf; its place is LEAF times the leaf and the place there."""

# state: leaves ever made, first free one, bins of a column, words of a leaf, rows in leaves, leaves in use,
# and at how many rows the next leaf is begun: fewer than there is room for while all rows are placed in order
LEAF_TOP, LEAF_FREE, BINS, LEAF_WORDS, LEAF_ROWS, LEAVES_USED, FILLED = range(7)
LEAF_STATE = 7
CODE_MASK = np.int64(0xFFFF)
"""The bits of one code in a record."""
SLACK = 32
"""Places of a leaf that stay free for later rows when all are placed."""
# lines: guard column or NONE, rows (FREE_LEAF where it is free), least and most code; LEAF_LEAST of a free
# leaf is the next free one
LEAF_GUARD, LEAF_COUNT, LEAF_LEAST, LEAF_MOST = range(4)
LEAF_FIELDS = 4
FREE_LEAF = -1


class Leaves(NamedTuple):
    """All arrays of leaves."""

    state: npt.NDArray[np.int64]  # [LEAF_STATE]
    columns: npt.NDArray[np.int64]  # [n, 2]: those that have bitmaps; bin = code * scale >> 16
    numbers: npt.NDArray[np.int32]  # [NARROW_COLUMNS]: which of them a column is, or NONE
    lines: npt.NDArray[np.int32]  # [leaves, LEAF_FIELDS]
    words: npt.NDArray[np.uint64]
    records: npt.NDArray[np.int64]
    directory: npt.NDArray[np.int32]  # [n + 1, leaves + 2]; the last line is for no guard


LEAVES = record(
    [array(int64), array(int64, 2), array(int32), array(int32, 2), array(uint64), array(int64),
     array(int32, 2)],
    Leaves,
)  # fmt: skip
