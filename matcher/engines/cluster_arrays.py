"""The arrays of the cluster engine: signatures, tables, buckets, blocks and slots (Fabret et al. 2001, 2).

A *row* is one conjunction of a subscription. It lies in the bucket of its access predicate: keys that must be
equal, and cells of a grid over attributes that it has a range on. What is left to test stands next to each
other for all rows of a bucket, as narrow codes; exact bounds stand by row, and are looked at only where codes
cannot tell.

    table    (a =, b =)  or  (x near, y near)       one per access schema
      bucket   (a = 7, b = 3)                       one per access predicate, found by its hash: `places`
        block    -> block -> block                  slots for rows, `count` of them taken

    pool     a block, `capacity` slots of 24 bytes: all of a kind stand side by side, and a block in few lines
      rows      [ row  row  row  ~row | ]           ~row: codes never suffice, always look at the bounds
      lows      [ 12   7    12   0    | ]  x 4      up to four tests per row, each on a column of its own:
      highs     [ 14   7    90   8    | ]  x 4      it passes where low <= code of the event's key <= high
      columns   [ 3    9    3    4    | ]  x 4

    bounds   [ key | low | low high | key ... ]     by row: a word per equality or single end, two per range

A *code* is a key seen through the cuts of its column, 16 bits wide: 2i + 4 is the i-th cut itself, 2i + 3
what lies before it and after its predecessor, 0 a missing value, and the last one NaN. So an order of codes
is an order of keys, and where an event's code is even, or differs from the bound's, the code decides exactly.
An open end has an even code that no event has, 2 below all keys and 2n + 4 above those of n cuts, so that the
codes of one-sided tests decide for all events beyond the cuts.

Everything that has a number is a line of a matrix with the fields below. Kernels that need room stop and say
how far they came; the caller grows the arrays and calls again.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numba import int32, int64, types, uint8, uint16

from covey.matcher.kernel import array

ACCESS = 4
"""The most parts that one access predicate has."""
NARROW = 4
"""Tests of a row that have codes."""
SLOT_BYTES = 24
CAPACITIES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Sizes of blocks, in slots: enough for comparing in vectors, few enough to move when one grows."""
MOST = CAPACITIES[-1]
NARROW_COLUMNS = 256
"""Columns from here on have no codes: the column of a code is one byte."""
CUTS = 32_764
"""The most cuts of a column: their codes fit 16 bits."""
NEVER = 65_535
"""A low code that no event reaches."""

NONE = -1
GONE = -2

# state: single numbers
SLOT_TOP, BLOCK_TOP, BLOCK_FREE, BUCKET_TOP, BUCKET_FREE, PLACES_USED, TABLES, WANTED = range(8)
STATE = 8
# tables: code of the access schema, number of parts, live buckets, rows, column that all rows test first or
# NONE, whether they test nothing else; then per part: column, reach of a range or NONE, bits of a cell
TABLE_CODE, TABLE_WIDTH, TABLE_BUCKETS, TABLE_ROWS, TABLE_HEAD, TABLE_SOLE, TABLE_PARTS = range(7)
PART_COLUMN, PART_REACH, PART_SHIFT, PART_FIELDS = 0, 1, 2, 3
TABLE_FIELDS = TABLE_PARTS + PART_FIELDS * ACCESS
# signatures: tests, words of bounds, equalities hashed, ranges hashed, template; which tests are hashed
# equalities; then per test in the order of their use: column, shape, word
SIGN_SIZE, SIGN_WORDS, SIGN_EQUAL, SIGN_RANGES, SIGN_TEMPLATE, SIGN_ACCESS = range(6)
SIGN_TESTS = SIGN_ACCESS + ACCESS
TEST_COLUMN, TEST_SHAPE, TEST_WORD, TEST_FIELDS = 0, 1, 2, 3
# buckets: BUCKET_ROWS is how many rows to make room for at once
BUCKET_TABLE, BUCKET_HEAD, BUCKET_ROWS, BUCKET_KEYS = 0, 1, 2, 3
# blocks
BLOCK_BUCKET, BLOCK_START, BLOCK_SIZE, BLOCK_COUNT, BLOCK_NEXT = range(5)
BLOCK_FIELDS = 5
# where a row is, its place in a block; PLACE says of a row that is in no block:
PLACE, BLOCK = 0, 1
WAITING, ABSENT = -1, -2
# coding of a column
CODE_START, CODE_COUNT, CODE_LINEAR, CODE_TOP = range(4)
CODE_FIELDS = 4


class Store(NamedTuple):
    """All arrays of a cluster engine."""

    state: npt.NDArray[np.int64]  # [STATE]
    free: npt.NDArray[np.int64]  # [sizes]: first slot of a free block, or NONE
    capacities: npt.NDArray[np.int64]  # [sizes]
    tables: npt.NDArray[np.int64]
    signatures: npt.NDArray[np.int32]
    places: npt.NDArray[np.int32]  # bucket numbers by hash; NONE where free, GONE where one was
    buckets: npt.NDArray[np.int64]
    blocks: npt.NDArray[np.int32]
    bytes: npt.NDArray[np.uint8]  # the pool, and the same memory in words of
    shorts: npt.NDArray[np.uint16]  # 16
    words: npt.NDArray[np.int32]  # and of 32 bits
    bounds: npt.NDArray[np.int64]
    coding: npt.NDArray[np.int64]  # [columns, CODE_FIELDS]
    cuts: npt.NDArray[np.int64]
    reaches: npt.NDArray[np.int64]  # the widest range of each class, in codes
    rows: npt.NDArray[np.int32]  # [rows, row_kernels.ROW_FIELDS]
    where: npt.NDArray[np.int32]  # [rows, 2]
    keys: npt.NDArray[np.int64]  # [ACCESS + 2]: the access predicate being looked for


STORE = types.NamedTuple(  # type: ignore[no-untyped-call]
    [array(int64), array(int64), array(int64), array(int64, 2), array(int32, 2), array(int32),
     array(int64, 2), array(int32, 2), array(uint8), array(uint16), array(int32), array(int64),
     array(int64, 2), array(int64), array(int64), array(int32, 2), array(int32, 2), array(int64)],
    Store,
)  # fmt: skip
