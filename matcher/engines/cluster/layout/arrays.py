"""The arrays of the cluster engine: signatures, tables, buckets, blocks and slots (Fabret et al. 2001, 2).

A *row* is one conjunction of a subscription, in the bucket of its access predicate: keys that must be equal,
and cells of a grid over attributes with ranges. A bucket stores the remaining tests of its rows columnwise,
as narrow codes; exact bounds are stored by row, and read only where codes cannot decide.

    table    (a =, b =)  or  (x near, y near)       one per access schema
      bucket   (a = 7, b = 3)                       one per access predicate, hashed in `places`
        block    -> block -> block                  slots for rows, `count` of them used
      bucket   [ block 0 | block 88 | block 312 ]   a large one whose rows are ordered: its directory
    pool     a block, `capacity` slots of 8 bytes and 5 per test, stored columnwise in few cache lines
      ids       [ id   id   id   id   | ]           their low halves: answers are copied from here while no id
                                                    has more than 32 bits
      rows      [ row  row  row  ~row | ]           ~row: codes never suffice, always read the bounds
      lows      [ 12   7    12   0    | ]  x tests  up to four tests per row, each on a column of its own:
      highs     [ 14   7    90   8    | ]  x tests  it passes where low <= code of the event's key <= high
      columns   [ 3    9    3    4    | ]  x tests
    bounds   [ key | low | low high | key ... ]     by row, in bytes: one per equality or single end, two per
                                                    range

A *code* (cut code) is the position of a key among the cuts of its column, in 16 bits: 2i + 4 is the i-th cut,
2i + 3 a key between it and its predecessor, 0 a missing value, and the last one NaN. Codes have the order of
keys; an event's code decides exactly where it is even, or differs from the bound's. An open end has an even
code that no event has, 2 below all keys and 2n + 4 above those of n cuts, so one-sided tests are decided by
codes for all events outside the cuts.

A bound takes eight bytes on floats and times, one on bools, and on int64 and strings one, two, four or eight:
as many as the widest in the row needs, or in the rows that came in the same call. Rows of each width have a
signature of their own; rows that need eight bytes leave the others narrow.

Tables, signatures, buckets and blocks are lines of matrices with the fields below. A kernel that needs room
returns how far it came; the caller grows the arrays and calls it again.

*Leaves* have rows without an access predicate, found by bitmaps (a bitmap index in bins, O'Neil and Quass
1997): where rows have no equality and each has ranges on other columns, no hashing leaves few candidates. A
leaf has up to 512 rows, and bitmaps for the columns that many of them test, one per *bin*, an interval of
codes: a set bit means that the row in that place may match an event whose value is in the bin. An event
combines one bitmap per column, 512 rows in 64 bytes each; the remaining rows are compared by codes.

    words    leaf [ taken | column 3: bin 0 | bin 1 | ... | column 7: bin 0 | ... ]      8 words each
    records  [ id | columns and row | low high low high | low high low high ]            4 words per row
    lines    leaf [ column rows least most ]
    directory  column [ how many | leaf 4 | leaf 0 | leaf 9 ]                            by their least

All rows of a leaf test one column, its *guard*: the narrowest range of most of them is on it. Leaves of one
guard divide the rows by low end, as the leaves of a B-tree do. No row of a leaf matches an event whose code
on the guard is outside `least` to `most`, so one comparison excludes most leaves. A row whose new bounds stay
within them keeps its place; only bits and codes change. Invariants: the bits of a used place are those of its
row's bounds; of a free place all bits but `taken` are ones.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.jit.kernel import array, int32, int64, record, uint8, uint16, uint64

LEAF = 512  # rows of a leaf: a bitmap is one cache line
LINE = LEAF // 64  # words of a bitmap
LEAF_RECORD = 4  # words of a row's record: id; row (or ~row) above columns; low and high codes of four tests
IN_LEAF = -1  # the block of a row in a leaf; its place is LEAF times the leaf, plus the place there

# state: leaves ever made, first free leaf, bins of a column, words of a leaf, rows in leaves, leaves in use,
# rows at which the next leaf is begun (fewer than fit while all rows are placed in order)
LEAF_TOP, LEAF_FREE, BINS, LEAF_WORDS, LEAF_ROWS, LEAVES_USED, FILLED = range(7)
LEAF_STATE = 7
CODE_MASK = np.int64(0xFFFF)  # one code of a record
SLACK = 32  # places of a leaf that stay free for later rows when all are placed
# lines: guard or NONE, rows or FREE_LEAF, least code (of a free leaf the next free one), most code
LEAF_GUARD, LEAF_COUNT, LEAF_LEAST, LEAF_MOST = range(4)
LEAF_FIELDS = 4
FREE_LEAF = -1


class Leaves(NamedTuple):
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


ACCESS = 4  # the most parts of an access predicate
NARROW = 4  # tests of a row that have codes
CAPACITIES = (1, 2, 3, 4, *(size << fold for fold in range(8) for size in (5, 6, 7, 8)))
"""Slots of a block by size. Two sizes per octave took 4 bytes per row more on W0 (buckets of 816 rows)."""
SIZES = len(CAPACITIES)
MOST = CAPACITIES[-1]
FULL_ZONE = CAPACITIES.index(128)  # the largest size of a block whose rows are ordered
DIRECTORIES = SIZES * (NARROW + 1)  # free lists from here on: directories by log2; before: blocks by size
FREE_LISTS = DIRECTORIES + 32
LARGEST_BLOCK = MOST * (8 + 5 * NARROW) // 8  # in units, of 8 bytes of the pool
NARROW_COLUMNS = 256  # columns from here on have no codes, since the column of a code is stored in a byte
CUTS = 32_764  # the most of a column: their codes fit 16 bits
NEVER = 65_535  # a low code that no event reaches

NONE = -1
TOMBSTONE = -2

UNIT_TOP, BLOCK_TOP, BLOCK_FREE, BUCKET_TOP, BUCKET_FREE, PLACES_USED, TABLES, MISSING_TABLE = range(8)
LARGEST_DIRECTORY, GENERATION = 8, 9
STATE = 10
# tables: access schema, number of parts, live buckets, rows, tests with codes, column that all rows test
# first or NONE, shape of that test if it orders large buckets or NONE; then per test: 1 more than the column
# that all rows have it on, NONE where they differ, 0 where no row has it; then per part: column, reach of a
# range or NONE, bits of a cell
TABLE_SCHEMA, TABLE_WIDTH, TABLE_BUCKETS, TABLE_ROWS, TABLE_TESTS, TABLE_HEAD, TABLE_ORDER = range(7)
TABLE_COLUMNS = 7
TABLE_PARTS = TABLE_COLUMNS + NARROW
PART_COLUMN, PART_REACH, PART_SHIFT, PART_FIELDS = 0, 1, 2, 3
TABLE_FIELDS = TABLE_PARTS + PART_FIELDS * ACCESS
# signatures: tests, bytes of bounds, equalities hashed, ranges hashed, template, whether rows are in leaves;
# which tests are hashed equalities; then per test in the order of their use: column, shape, first byte of its
# bounds, bytes of one, whether they depend on the variant
SIGN_SIZE, SIGN_BYTES, SIGN_EQUAL, SIGN_RANGES, SIGN_TEMPLATE, SIGN_LEAF, SIGN_ACCESS = range(7)
SIGN_TESTS = SIGN_ACCESS + ACCESS
TEST_COLUMN, TEST_SHAPE, TEST_BYTE, TEST_WIDTH, TEST_VARIES, TEST_FIELDS = 0, 1, 2, 3, 4, 5
ONE_BYTE, TWO_BYTES, FOUR_BYTES, EIGHT_BYTES = range(4)  # variants: 1 << variant bytes per int64 or string
BOUND_BYTES = 8  # read or written with any one bound; those behind the last are free
EQUAL, FIXED, LOW, HIGH, BOTH = range(5)  # plan.Shape
# buckets: BUCKET_HEAD is the first block of a chain, or where the directory of BUCKET_ZONES zones starts;
# while there is no block, BUCKET_ZONES is how many rows to make room for at once
BUCKET_TABLE, BUCKET_HEAD, BUCKET_ZONES, BUCKET_KEYS = 0, 1, 2, 3
# blocks: BLOCK_SIZE is the number of the size, and SIZES per test; BLOCK_NEXT of a zone its least code
BLOCK_BUCKET, BLOCK_START, BLOCK_SIZE, BLOCK_COUNT, BLOCK_NEXT = range(5)
BLOCK_FIELDS = 5
# where a row is: its slot, and 2 * block + GENERATION of its arrangement; PLACE of a row in no block:
PLACE, BLOCK = 0, 1
WAITING, ABSENT = -1, -2
CODE_START, CODE_COUNT, CODE_LINEAR, CODE_TOP = range(4)
CODE_FIELDS = 4


class StoreArrays(NamedTuple):
    """All arrays of an arrangement; those by row (bounds, rows, ids, where) are shared within a store."""

    state: npt.NDArray[np.int64]  # [STATE]
    free: npt.NDArray[np.int64]  # [FREE_LISTS]: first unit of what is free, or NONE
    capacities: npt.NDArray[np.int64]  # [SIZES * (NARROW + 1)]
    tables: npt.NDArray[np.int64]
    signatures: npt.NDArray[np.int32]
    places: npt.NDArray[np.int32]  # bucket numbers by hash; NONE where free, TOMBSTONE where one was
    buckets: npt.NDArray[np.int64]
    blocks: npt.NDArray[np.int32]
    bytes: npt.NDArray[np.uint8]  # the pool, and the same memory in words of
    shorts: npt.NDArray[np.uint16]  # 16
    words: npt.NDArray[np.int32]  # 32
    longs: npt.NDArray[np.int64]  # and of 64 bits: units
    bounds: npt.NDArray[np.uint8]
    coding: npt.NDArray[np.int64]  # [columns, CODE_FIELDS]
    cuts: npt.NDArray[np.int64]
    reaches: npt.NDArray[np.int64]  # the widest range of each class, in codes
    rows: npt.NDArray[np.int32]  # [rows, row_kernels.ROW_FIELDS]
    ids: npt.NDArray[np.int32]  # [rows, 1 or 2]
    where: npt.NDArray[np.int32]  # [rows, 2]
    keys: npt.NDArray[np.int64]  # [ACCESS + 2]: the access predicate of the row being placed
    sorting: npt.NDArray[np.int64]  # [MOST]: room to sort the codes of a block
    leaves: Leaves  # rows without an access predicate


STORE = record(
    [array(int64), array(int64), array(int64), array(int64, 2), array(int32, 2), array(int32),
     array(int64, 2), array(int32, 2), array(uint8), array(uint16), array(int32), array(int64), array(uint8),
     array(int64, 2), array(int64), array(int64), array(int32, 2), array(int32, 2),
     array(int32, 2), array(int64), array(int64), LEAVES],
    StoreArrays,
)  # fmt: skip
