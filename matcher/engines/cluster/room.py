"""Room in the arrays of the cluster engine: empty arrays, larger ones, and trimmed ones."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.layout import leaf_arrays as f
from covey.matcher.engines.cluster.layout.coding import Coding
from covey.matcher.engines.cluster.leaves.leaves import empty_leaves, with_room
from covey.matcher.engines.cluster.placing_kernels import CLASS_BITS, COLUMN_BITS, rehash
from covey.matcher.engines.cluster.tuning.configuration import Configuration
from covey.matcher.engines.rows.arrays import SPARE, grown
from covey.matcher.engines.rows.row_kernels import ROW_FIELDS
from covey.matcher.events.int64 import LAST

_SMALLEST = 16


def empty_arrays(tops: Keys) -> a.StoreArrays:
    """Arrays without rows; `tops` are the highest keys of the attributes."""
    coding = Coding.without_cuts(tops)
    return a.StoreArrays(
        state=np.zeros(a.STATE, dtype=np.int64),
        free=np.full(a.FREE_LISTS, a.NONE, dtype=np.int64),
        capacities=np.tile(np.array(a.CAPACITIES, dtype=np.int64), a.NARROW + 1),
        tables=np.zeros((_SMALLEST, a.TABLE_FIELDS), dtype=np.int64),
        signatures=np.zeros((_SMALLEST, a.SIGN_TESTS + 4 * a.TEST_FIELDS), dtype=np.int32),
        places=np.full(64, a.NONE, dtype=np.int32),
        buckets=np.zeros((_SMALLEST, a.BUCKET_KEYS + a.ACCESS), dtype=np.int64),
        blocks=np.zeros((_SMALLEST, a.BLOCK_FIELDS), dtype=np.int32),
        **_pool(3 * a.LARGEST_BLOCK, np.zeros(0, dtype=np.uint8)),
        bounds=np.zeros(64, dtype=np.uint8),
        coding=coding.lines,
        cuts=coding.cuts,
        reaches=np.zeros(0, dtype=np.int64),
        rows=np.full((_SMALLEST, ROW_FIELDS), -1, dtype=np.int32),
        ids=np.zeros(_SMALLEST, dtype=np.int64),
        where=np.full((_SMALLEST, 2), a.ABSENT, dtype=np.int32),
        keys=np.zeros(a.ACCESS + 2, dtype=np.int64),
        sorting=np.zeros(a.MOST, dtype=np.int64),
        leaves=empty_leaves((), coding.lines, 0),
    )


def with_columns(arrays: a.StoreArrays, columns: int) -> a.StoreArrays:
    """Coding for so many columns; new ones have no cuts."""
    coding = grown(arrays.coding, columns)
    coding[len(arrays.coding) :, a.CODE_TOP] = LAST
    return arrays._replace(coding=coding)


def with_signature(arrays: a.StoreArrays, signature: int, tests: int) -> a.StoreArrays:
    """A line for a signature of so many tests."""
    old, width = arrays.signatures, a.SIGN_TESTS + a.TEST_FIELDS * tests
    if signature < len(old) and width <= old.shape[1]:
        return arrays
    lines = max(len(old), signature + 1, 2 * len(old) if signature >= len(old) else 0)
    wider = np.zeros((lines, max(width, old.shape[1])), dtype=np.int32)
    wider[: len(old), : old.shape[1]] = old
    return arrays._replace(signatures=wider)


def with_more(arrays: a.StoreArrays) -> a.StoreArrays:
    """Room for whatever a kernel has none left for."""
    state = arrays.state
    units, margin = len(arrays.longs), 2 * a.LARGEST_BLOCK + 3 * int(state[a.LARGEST_DIRECTORY])
    if state[a.UNIT_TOP] + margin > units:
        arrays = arrays._replace(**_pool(max(units * 9 // 8, units + margin), arrays.bytes))
    if state[a.BLOCK_TOP] >= len(arrays.blocks):
        arrays = arrays._replace(blocks=grown(arrays.blocks, len(arrays.blocks) * 5 // 4 + 16))
    if state[a.BUCKET_TOP] >= len(arrays.buckets):
        arrays = arrays._replace(buckets=grown(arrays.buckets, len(arrays.buckets) * 5 // 4 + 16))
    leaves = arrays.leaves
    if leaves.state[f.LEAF_FREE] == a.NONE and leaves.state[f.LEAF_TOP] >= len(leaves.lines):
        arrays = arrays._replace(leaves=with_room(leaves, len(leaves.lines) * 5 // 4 + 1))
    if 2 * state[a.PLACES_USED] >= len(arrays.places):
        live = int(arrays.tables[: state[a.TABLES], a.TABLE_BUCKETS].sum() + state[a.TABLES])
        places = np.full(max(64, 1 << (4 * live).bit_length()), a.NONE, dtype=np.int32)
        arrays = arrays._replace(places=places)
        rehash(arrays)
    return arrays


def trimmed(arrays: a.StoreArrays, bounds: int, signatures: int) -> a.StoreArrays:
    """The arrays, which grow in steps, without most of their room; so many bounds and signatures are used."""
    state = arrays.state
    used = {
        "bounds": (bounds, 64),
        "buckets": (int(state[a.BUCKET_TOP]), _SMALLEST),
        "blocks": (int(state[a.BLOCK_TOP]), _SMALLEST),
        "signatures": (signatures, _SMALLEST),
    }
    for name, (top, least) in used.items():
        size = top + top // SPARE + least
        if size < len(getattr(arrays, name)):
            change: dict[str, Any] = {name: grown(getattr(arrays, name), size)}
            arrays = arrays._replace(**change)
    leaves = int(arrays.leaves.state[f.LEAF_TOP]) * (SPARE + 1) // SPARE + 1
    if leaves < len(arrays.leaves.lines):
        arrays = arrays._replace(leaves=with_room(arrays.leaves, leaves))
    units = int(state[a.UNIT_TOP]) * (SPARE + 1) // SPARE
    units += 3 * (a.LARGEST_BLOCK + int(state[a.LARGEST_DIRECTORY]))
    if units < len(arrays.longs):
        arrays = arrays._replace(**_pool(units, arrays.bytes))
    return arrays


def with_table(
    arrays: a.StoreArrays, schema: int, configuration: Configuration, *, ordered: bool
) -> tuple[a.StoreArrays, int]:
    """A table for an access schema (`placing_kernels.access_schema`), and the most buckets that an event
    searches in it because of its ranges, 1 where it has none.
    """
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
    line = arrays.tables[number]
    line[:] = 0
    line[a.TABLE_SCHEMA], line[a.TABLE_WIDTH], line[a.TABLE_TESTS] = schema, len(parts), template.tests
    line[a.TABLE_HEAD], line[a.TABLE_ORDER] = head, order if ordered else a.NONE
    for at, fields in enumerate(parts):
        start = a.TABLE_PARTS + a.PART_FIELDS * at
        line[start : start + a.PART_FIELDS] = fields
    arrays.state[a.TABLES] = number + 1
    arrays.places[:] = a.NONE
    rehash(arrays)
    return arrays, prod((reach >> shift) + 2 for _, reach, shift in parts if reach != a.NONE)


def _pool(units: int, old: npt.NDArray[np.uint8]) -> dict[str, Any]:
    """The pool with so many units, as fields of the arrays."""
    data = grown(old, 8 * units)
    views = {"shorts": np.uint16, "words": np.int32, "longs": np.int64}
    return {"bytes": data, **{name: data.view(kind) for name, kind in views.items()}}
