"""The layout of the parallel search tree (Aguilera et al. 1999; Gryphon).

Levels are attributes, edges are values or *don't care*.

An inner node stands for a test of one attribute. A row hangs below the edge of the value that it wants, or,
where it does not mention the attribute, below the *star* edge; so an event follows at most two edges from
every node that it reaches, and the leaves that it reaches hold all rows whose equalities it satisfies. What
is no equality is checked in the leaf:

    node   [ column star parent key via edges star_column star_bloom ]       one line of a cache per node
    edges  [ child << 32 | hash bits, ... ]                 value edges of all nodes, by hash of (node, key)
    leaf   a node without a column: its `star` is the first bucket of a chain, one per set of columns to test
    bucket [ rows | lo 0 | hi 0 | lo 1 | hi 1 ]             in the pool, columnwise, room for 2**size rows

The optimisations that this line of work names, each an option of the engine:

- *Skipping trivial tests*: a node of which only the star edge is left is not there.
- *Factoring*: the first attributes are not levels but one hash table of trees, by the values they want.
- *Delayed branching*: a star edge is followed only if the test at its end can succeed; a node knows which
  attribute that tests, and has a Bloom filter of 64 bits of the values that it has edges for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.jit.hashing import first_hash, mix
from covey.matcher.jit.kernel import array, frozen, inlined, int64, kernel, record

NONE = -1
GONE = np.int64(-2)
FREE = np.int64(-1)
FACTORS = 4
"""The most attributes that are factored out."""
DEEPEST = np.int64(2**31)
MASKED = 62
"""Tests of a row that can be edges: the first so many."""

# state: single numbers
NODE_TOP, NODE_FREE, BUCKET_TOP, BUCKET_FREE, ROOT_TOP, ROOT_FREE, POOL_TOP, EDGES_USED, ROOTS_USED, NODES = (
    range(10)
)
STATE = 10
# nodes
COLUMN, STAR, PARENT, KEY, VIA, EDGES, STAR_COLUMN, STAR_BLOOM = range(8)
NODE_FIELDS = 8
LEAF, UNUSED = -1, -2  # in COLUMN
BY_VALUE, BY_STAR, BY_ROOT = 0, 1, 2  # in VIA
UNKNOWN = -1  # in STAR_COLUMN: always follow
# buckets
BUCKET_NODE, BUCKET_TESTS, BUCKET_START, BUCKET_SIZE, BUCKET_COUNT, BUCKET_NEXT = range(6)
BUCKET_FIELDS = 6
# roots: a mask of factors, the tree, then the keys
ROOT_MASK, ROOT_NODE, ROOT_KEYS = 0, 1, 2
ROOT_FIELDS = ROOT_KEYS + FACTORS
SIZES = 32


class Tree(NamedTuple):
    """All arrays of a search tree."""

    state: npt.NDArray[np.int64]
    nodes: npt.NDArray[np.int64]  # [nodes, NODE_FIELDS]
    edges: npt.NDArray[np.int64]  # a power of two
    roots: npt.NDArray[np.int64]  # [roots, ROOT_FIELDS]
    root_index: npt.NDArray[np.int64]  # a power of two
    masks: npt.NDArray[np.int64]  # [2**FACTORS]: roots of exactly these factors
    levels: npt.NDArray[np.int64]  # columns in the order of levels, factors first
    ranks: npt.NDArray[np.int64]  # [columns]: level of a column
    buckets: npt.NDArray[np.int64]  # [buckets, BUCKET_FIELDS]
    pool: npt.NDArray[np.int64]
    free: npt.NDArray[np.int64]  # [most tests + 1, SIZES]: free stretches of the pool, linked
    residuals: npt.NDArray[np.int64]  # [sets of columns left to test, 1 + most tests]: how many, then which
    bucket_of: npt.NDArray[np.int64]  # [rows]
    masks_of: npt.NDArray[np.int64]  # [rows]: bit t: test t is an edge
    bounds: npt.NDArray[np.int64]  # [tests, 2], a stretch per row
    signatures: npt.NDArray[np.int64]  # [signatures + 1]: first of its columns
    columns: npt.NDArray[np.int64]  # columns of all signatures
    scratch: npt.NDArray[np.int64]  # [3, MASKED]: ranks and keys of one row's edges, and keys of its factors
    options: npt.NDArray[np.int64]  # factors, skip trivial tests, delay branching


TREE = record(
    [array(int64), array(int64, 2), array(int64), array(int64, 2), array(int64), array(int64), array(int64),
     array(int64), array(int64, 2), array(int64), array(int64, 2), array(int64, 2), array(int64),
     array(int64), array(int64, 2), array(int64), array(int64), array(int64, 2), array(int64)],
    Tree,
)  # fmt: skip

OPTION_FACTORS, OPTION_SKIP, OPTION_DELAY = 0, 1, 2


@inlined
def edge_hash(node, key):  # type: ignore[no-untyped-def]
    return mix(first_hash(np.int64(node) + 1), key)


@inlined
def bloom_bit(key):  # type: ignore[no-untyped-def]
    return np.int64(1) << ((mix(np.int64(97), key) >> 20) & 63)


# --- edges ----------------------------------------------------------------------------------------


@inlined
def find_edge(nodes, edges, node, key):  # type: ignore[no-untyped-def]
    """The child of a node below a value, or NONE."""
    h = edge_hash(node, key)
    mask = np.int64(edges.size - 1)
    place = h & mask
    bits = (h >> 32) & np.int64(0xFFFFFFFF)
    while edges[place] != FREE:
        entry = edges[place]
        if entry >= 0 and entry & np.int64(0xFFFFFFFF) == bits:
            child = entry >> 32
            if nodes[child, PARENT] == node and nodes[child, KEY] == key:
                return child
        place = (place + 1) & mask
    return np.int64(NONE)


@inlined
def enter_edge(state, edges, node, key, child):  # type: ignore[no-untyped-def]
    h = edge_hash(node, key)
    mask = np.int64(edges.size - 1)
    place = h & mask
    while edges[place] >= 0:
        place = (place + 1) & mask
    if edges[place] == FREE:
        state[EDGES_USED] += 1
    edges[place] = (np.int64(child) << 32) | ((h >> 32) & np.int64(0xFFFFFFFF))


@inlined
def drop_edge(state, edges, node, key, child):  # type: ignore[no-untyped-def]
    mask = np.int64(edges.size - 1)
    place = edge_hash(node, key) & mask
    while edges[place] < 0 or edges[place] >> 32 != child:
        place = (place + 1) & mask
    if edges[(place + 1) & mask] == FREE:
        edges[place] = FREE
        state[EDGES_USED] -= 1
    else:
        edges[place] = GONE


@kernel(frozen(int64, 2), int64, array(int64))
def rehash_edges(nodes, top, edges):  # type: ignore[no-untyped-def]
    """Enter the value edges of all nodes into a new, empty table; returns how many there are."""
    mask = np.int64(edges.size - 1)
    used = 0
    for child in range(top):
        if nodes[child, COLUMN] != UNUSED and nodes[child, VIA] == BY_VALUE:
            h = edge_hash(nodes[child, PARENT], nodes[child, KEY])
            place = h & mask
            while edges[place] != FREE:
                place = (place + 1) & mask
            edges[place] = (np.int64(child) << 32) | ((h >> 32) & np.int64(0xFFFFFFFF))
            used += 1
    return used


# --- roots: one tree per combination of values of the factored attributes -------------------------


@inlined
def root_hash(mask, keys):  # type: ignore[no-untyped-def]
    h = first_hash(mask)
    for f in range(FACTORS):
        if (mask >> f) & 1:
            h = mix(h, keys[f])
    return h


@inlined
def find_root(roots, root_index, mask, keys):  # type: ignore[no-untyped-def]
    """The root of these keys of the factors of `mask`, or NONE."""
    within = np.int64(root_index.size - 1)
    place = root_hash(mask, keys) & within
    while root_index[place] != FREE:
        root = root_index[place]
        if root >= 0 and roots[root, ROOT_MASK] == mask:
            f = 0
            while f < FACTORS and ((mask >> f) & 1 == 0 or roots[root, ROOT_KEYS + f] == keys[f]):
                f += 1
            if f == FACTORS:
                return root
        place = (place + 1) & within
    return np.int64(NONE)


@inlined
def enter_root(state, root_index, root, mask, keys):  # type: ignore[no-untyped-def]
    within = np.int64(root_index.size - 1)
    place = root_hash(mask, keys) & within
    while root_index[place] >= 0:
        place = (place + 1) & within
    if root_index[place] == FREE:
        state[ROOTS_USED] += 1
    root_index[place] = root


@kernel(frozen(int64, 2), int64, array(int64))
def rehash_roots(roots, top, root_index):  # type: ignore[no-untyped-def]
    """Enter all roots into a new, empty table; returns how many there are."""
    within = np.int64(root_index.size - 1)
    used = 0
    for root in range(top):
        if roots[root, ROOT_NODE] != NONE:
            place = root_hash(roots[root, ROOT_MASK], roots[root, ROOT_KEYS:]) & within
            while root_index[place] != FREE:
                place = (place + 1) & within
            root_index[place] = root
            used += 1
    return used
