"""Room in the arrays of an arrangement: empty arrays, and larger ones.

Arrays have room for more rows than there are, so they are not copied until rows are placed anew: the system
provides a page of memory when it is first written to.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout.coding import Coding
from covey.matcher.engines.cluster.leaves.search_kernels import SLICE, LeafBuffers, LeafMatches
from covey.matcher.engines.cluster.placing_kernels import (
    CLASS_BITS,
    COLUMN_BITS,
    enter_buckets,
    enter_tables,
)
from covey.matcher.engines.cluster.tuning.configuration import Configuration
from covey.matcher.engines.rows.arrays import check_count, grown
from covey.matcher.engines.rows.row_kernels import ROW_FIELDS
from covey.matcher.events.int64 import LAST

BITS = 256  # of a row in all bitmaps together, unless each column has the fewest bins
FEWEST_BINS, MOST_BINS = 8, 64


def bins_for(columns: int) -> int:
    return max(FEWEST_BINS, min(MOST_BINS, BITS // max(columns, 1)))


def empty_leaves(columns: Sequence[int], coding: npt.NDArray[np.int64]) -> a.Leaves:
    """Room for one leaf, with bitmaps for these columns."""
    bins = bins_for(len(columns))
    state = np.zeros(a.LEAF_STATE, dtype=np.int64)
    state[a.LEAF_FREE], state[a.BINS] = a.NONE, bins
    state[a.FILLED] = a.LEAF
    state[a.LEAF_WORDS] = a.LINE * (1 + bins * len(columns))
    scaled = np.zeros((len(columns), 2), dtype=np.int64)
    numbers = np.full(a.NARROW_COLUMNS, a.NONE, dtype=np.int32)
    for number, column in enumerate(columns):
        scaled[number] = column, (bins << 16) // (2 * int(coding[column, a.CODE_COUNT]) + 6)
        numbers[column] = number
    leaves = a.Leaves(
        state,
        scaled,
        numbers,
        np.zeros((0, a.LEAF_FIELDS), dtype=np.int32),
        np.zeros(0, dtype=np.uint64),
        np.zeros(0, dtype=np.int64),
        np.zeros((len(columns) + 1, 2), dtype=np.int32),
    )
    return with_room(leaves, 1)


def with_room(leaves: a.Leaves, count: int) -> a.Leaves:
    check_count(count * a.LEAF, "places in leaves")
    directory = np.zeros((len(leaves.directory), count + 2), dtype=np.int32)
    shared = min(count + 2, leaves.directory.shape[1])
    directory[:, :shared] = leaves.directory[:, :shared]
    return leaves._replace(
        lines=grown(leaves.lines, count),
        words=grown(leaves.words, count * int(leaves.state[a.LEAF_WORDS])),
        records=grown(leaves.records, count * a.LEAF * a.LEAF_RECORD),
        directory=directory,
    )


def is_sparse(leaves: a.Leaves) -> bool:
    """Whether the rows would fit a quarter of the leaves in use."""
    state = leaves.state
    return bool(4 * state[a.LEAF_ROWS] + 16 * a.LEAF < a.LEAF * state[a.LEAVES_USED])


def leaf_buffers(lines: int, columns: int) -> LeafBuffers:
    """Buffers to search so many leaves with bitmaps for so many columns, without room for matches."""
    return LeafBuffers(
        np.zeros(lines + 1, dtype=np.int64),
        np.zeros((SLICE, columns), dtype=np.int32),
        np.zeros(a.LEAF, dtype=np.int64),
        np.zeros(2, dtype=np.int64),
        np.zeros(0, dtype=np.int32),
        *leaf_matches(0)[1:],
        np.zeros(SLICE + 1, dtype=np.int64),
    )


def leaf_matches(room: int) -> LeafMatches:
    """Room for matches of a slice of events."""
    return LeafMatches(
        np.zeros(SLICE + 1, dtype=np.int64), np.zeros(room, dtype=np.int32), np.zeros(room, dtype=np.int64)
    )


def used_parts(leaves: a.Leaves) -> tuple[npt.NDArray[Any], ...]:
    top = int(leaves.state[a.LEAF_TOP])
    return (
        leaves.state,
        leaves.columns,
        leaves.numbers,
        leaves.lines[:top],
        leaves.words[: top * int(leaves.state[a.LEAF_WORDS])],
        leaves.records[: top * a.LEAF * a.LEAF_RECORD],
        leaves.directory,
    )


_SMALLEST = 16
_UNITS_PER_ROW = 12
"""Units of the pool per row: four with the most tests, a third of blocks unused, and twice as many rows."""


def empty_arrays(tops: Keys) -> a.StoreArrays:
    """Arrays without rows; `tops` are the highest keys of the attributes."""
    coding = Coding.without_cuts(tops)
    return a.StoreArrays(
        capacities=np.tile(np.array(a.CAPACITIES, dtype=np.int64), a.NARROW + 1),
        signatures=np.zeros((_SMALLEST, a.SIGN_TESTS + 4 * a.TEST_FIELDS), dtype=np.int32),
        bounds=np.zeros(64, dtype=np.uint8),
        coding=coding.lines,
        cuts=coding.cuts,
        reaches=np.zeros(0, dtype=np.int64),
        rows=np.full((_SMALLEST, ROW_FIELDS), -1, dtype=np.int32),
        ids=np.zeros((_SMALLEST, 1), dtype=np.int32),
        where=np.full((_SMALLEST, 2), a.ABSENT, dtype=np.int32),
        keys=np.zeros(a.ACCESS + 2, dtype=np.int64),
        sorting=np.zeros(a.MOST, dtype=np.int64),
        **_places(0, 0, 0),
    )


def empty_beside(arrays: a.StoreArrays, rows: int) -> a.StoreArrays:
    """Arrays for an arrangement of `rows` rows beside this one, empty."""
    generation = 1 - int(arrays.state[a.GENERATION])
    return arrays._replace(
        signatures=arrays.signatures.copy(), **_places(generation, rows, _live_entries(arrays))
    )


def _places(generation: int, rows: int, entries: int) -> dict[str, Any]:
    """The arrays that rows are placed in, empty; `entries` are tables and buckets."""
    state = np.zeros(a.STATE, dtype=np.int64)
    state[[a.BLOCK_FREE, a.BUCKET_FREE]] = a.NONE
    state[a.GENERATION] = generation
    return {
        "state": state,
        "free": np.full(a.FREE_LISTS, a.NONE, dtype=np.int64),
        "tables": np.zeros((_SMALLEST, a.TABLE_FIELDS), dtype=np.int64),
        "places": _empty_index(entries),
        "buckets": np.zeros((2 * rows + _SMALLEST, a.BUCKET_KEYS + a.ACCESS), dtype=np.int64),
        "blocks": np.zeros((2 * rows + _SMALLEST, a.BLOCK_FIELDS), dtype=np.int32),
        **_pool(_UNITS_PER_ROW * rows + 3 * a.LARGEST_BLOCK, np.zeros(0, dtype=np.uint8)),
        "leaves": empty_leaves((), np.zeros((0, a.CODE_FIELDS), dtype=np.int64)),
    }


def _empty_index(entries: int) -> npt.NDArray[np.int32]:
    return np.full(max(64, 1 << (4 * entries).bit_length()), a.NONE, dtype=np.int32)


def _live_entries(arrays: a.StoreArrays) -> int:
    tables = int(arrays.state[a.TABLES])
    return int(arrays.tables[:tables, a.TABLE_BUCKETS].sum()) + tables


def with_columns(arrays: a.StoreArrays, columns: int) -> a.StoreArrays:
    """New columns have no cuts."""
    coding = grown(arrays.coding, columns)
    coding[len(arrays.coding) :, a.CODE_TOP] = LAST
    return arrays._replace(coding=coding)


def with_signature(arrays: a.StoreArrays, signature: int, tests: int) -> a.StoreArrays:
    old, width = arrays.signatures, a.SIGN_TESTS + a.TEST_FIELDS * tests
    if signature < len(old) and width <= old.shape[1]:
        return arrays
    lines = max(len(old), signature + 1, 2 * len(old) if signature >= len(old) else 0)
    wider = np.zeros((lines, max(width, old.shape[1])), dtype=np.int32)
    wider[: len(old), : old.shape[1]] = old
    return arrays._replace(signatures=wider)


def with_more(arrays: a.StoreArrays) -> a.StoreArrays:
    """Room for whatever a kernel lacks."""
    state = arrays.state
    units, margin = len(arrays.longs), 2 * a.LARGEST_BLOCK + 3 * int(state[a.LARGEST_DIRECTORY])
    if state[a.UNIT_TOP] + margin > units:
        arrays = arrays._replace(**_pool(2 * units + margin, arrays.bytes))
    if state[a.BLOCK_TOP] >= len(arrays.blocks):
        arrays = arrays._replace(blocks=grown(arrays.blocks, 2 * len(arrays.blocks)))
    if state[a.BUCKET_TOP] >= len(arrays.buckets):
        arrays = arrays._replace(buckets=grown(arrays.buckets, 2 * len(arrays.buckets)))
    leaves = arrays.leaves
    if leaves.state[a.LEAF_FREE] == a.NONE and leaves.state[a.LEAF_TOP] >= len(leaves.lines):
        arrays = arrays._replace(leaves=with_room(leaves, 2 * len(leaves.lines)))
    if 2 * state[a.PLACES_USED] >= len(arrays.places):
        arrays = arrays._replace(places=_empty_index(_live_entries(arrays)))
        state[a.PLACES_USED] = 0
        enter_tables(arrays, 0)
        enter_buckets(arrays)
    return arrays


def with_table(
    arrays: a.StoreArrays, schema: int, configuration: Configuration, *, ordered: bool
) -> tuple[a.StoreArrays, int]:
    """A table for a `placing_kernels.access_schema`, and the most buckets that an event searches in it."""
    bits = COLUMN_BITS + CLASS_BITS
    ranged = [schema >> bits, schema] if schema >> 2 * bits else []
    template = configuration.templates[schema >> 2 * bits if ranged else schema]
    head, order = (template.head[0], template.head[1]) if template.head else (a.NONE, a.NONE)
    parts = [(column, a.NONE, 0) for column in template.schema]
    for part in ranged:
        column = (part >> CLASS_BITS & (1 << COLUMN_BITS) - 1) - 1
        if column >= 0:
            reach = int(arrays.reaches[part & (1 << CLASS_BITS) - 1])
            shift = reach.bit_length() - 1 - (2 if template.ranges == 1 else 0)
            parts.append((column, reach, max(0, shift)))
    number = int(arrays.state[a.TABLES])
    if number >= len(arrays.tables):
        arrays = arrays._replace(tables=grown(arrays.tables, 2 * number))
    if 2 * arrays.state[a.PLACES_USED] >= len(arrays.places):
        arrays = with_more(arrays)  # last: it changes the state
    line = arrays.tables[number]
    line[:] = 0
    line[a.TABLE_SCHEMA], line[a.TABLE_WIDTH], line[a.TABLE_TESTS] = schema, len(parts), template.tests
    line[a.TABLE_HEAD], line[a.TABLE_ORDER] = head, order if ordered else a.NONE
    for at, fields in enumerate(parts):
        start = a.TABLE_PARTS + a.PART_FIELDS * at
        line[start : start + a.PART_FIELDS] = fields
    arrays.state[a.TABLES] = number + 1
    enter_tables(arrays, number)
    return arrays, prod((reach >> shift) + 2 for _, reach, shift in parts if reach != a.NONE)


def _pool(units: int, old: npt.NDArray[np.uint8]) -> dict[str, Any]:
    check_count(units, "units of the pool")
    data = grown(old, 8 * units)
    views = {"shorts": np.uint16, "words": np.int32, "longs": np.int64}
    return {"bytes": data, **{name: data.view(kind) for name, kind in views.items()}}
