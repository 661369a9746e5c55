"""Kernels of the parallel search tree (Aguilera et al. 1999; Gryphon), and its layout.

An inner node tests one attribute. A row is below the edge of the value that it requires or, if it does not
test the attribute, below the *star* edge. So an event follows at most two edges from every node, and reaches
all rows whose equalities it satisfies. Other tests are checked in the leaf:

    node   [ column star parent key via edges star_column star_bloom ]       one cache line per node
    edges  [ child << 32 | hash bits, ... ]                 value edges of all nodes, by hash of (node, key)
    leaf   a node without a column: `star` is its first bucket, `edges` how many it has, one per set of
           columns to test
    bucket [ places | lo 0 | hi 0 | lo 1 | hi 1 ]           in the pool, columnwise

The optimisations of this line of work are options of the engine:

- *Skipping trivial tests*: a node with no other edge than the star edge is omitted.
- *Factoring*: the first attributes are one hash table of trees by their values, instead of levels.
- *Delayed branching*: a star edge is followed only if the test at its end can succeed, by the attribute
  of that test, and a Bloom filter of 64 bits of the values that it has edges for.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.reference.store_kernels import ROWS, finish_event
from covey.matcher.jit.kernel import array, boolean, first_hash, frozen, inlined, int64, kernel, mix, record

NONE = -1
FREE = np.int64(-1)
LOW_HALF = np.int64(0xFFFFFFFF)
FACTORS = 4  # the most attributes that are factored out

COLUMN, STAR, PARENT, KEY, VIA, EDGES, STAR_COLUMN, STAR_BLOOM = range(8)
NODE_FIELDS = 8
LEAF = -1  # in COLUMN
BY_VALUE, BY_STAR, BY_ROOT = 0, 1, 2  # in VIA
UNKNOWN = -1  # in STAR_COLUMN: always follow
BUCKET_TESTS, BUCKET_START, BUCKET_COUNT = range(3)
# roots: a mask of factors, the tree, then the keys
ROOT_MASK, ROOT_NODE, ROOT_KEYS = 0, 1, 2
ROOT_FIELDS = ROOT_KEYS + FACTORS


class Tree(NamedTuple):
    nodes: npt.NDArray[np.int64]  # [nodes, NODE_FIELDS]
    edges: npt.NDArray[np.int64]  # a power of two
    roots: npt.NDArray[np.int64]  # [roots, ROOT_FIELDS]
    root_index: npt.NDArray[np.int64]  # a power of two
    masks: npt.NDArray[np.int64]  # [2**factors]: roots of exactly these factors
    factors: npt.NDArray[np.int64]  # their columns
    buckets: npt.NDArray[np.int64]  # [buckets, 3]
    pool: npt.NDArray[np.int64]
    residuals: npt.NDArray[np.int64]  # [sets of columns left to test, 1 + most tests]: how many, then which
    wanted: npt.NDArray[np.int64]  # [FACTORS]: working memory, as
    stack: npt.NDArray[np.int64]


TREE = record(
    [array(int64, 2), array(int64), array(int64, 2), array(int64), array(int64), array(int64),
     array(int64, 2), array(int64), array(int64, 2), array(int64), array(int64)],
    Tree,
)  # fmt: skip


@inlined
def edge_hash(node, key):  # type: ignore[no-untyped-def]
    return mix(first_hash(np.int64(node) + 1), key)


@inlined
def bloom_bit(key):  # type: ignore[no-untyped-def]
    return np.int64(1) << ((mix(np.int64(97), key) >> 20) & 63)


@inlined
def find_edge(nodes, edges, node, key):  # type: ignore[no-untyped-def]
    """The child below a value, or NONE."""
    h, mask = edge_hash(node, key), np.int64(edges.size - 1)
    place, bits = h & mask, (h >> 32) & LOW_HALF
    while edges[place] != FREE:
        if edges[place] & LOW_HALF == bits:
            child = edges[place] >> 32
            if nodes[child, PARENT] == node and nodes[child, KEY] == key:
                return child
        place = (place + 1) & mask
    return np.int64(NONE)


@inlined
def root_hash(mask, keys):  # type: ignore[no-untyped-def]
    h = first_hash(mask)
    for f in range(FACTORS):
        if (mask >> f) & 1:
            h = mix(h, keys[f])
    return h


@inlined
def find_root(roots, root_index, mask, keys):  # type: ignore[no-untyped-def]
    """The root for these keys of the factors in `mask`, or NONE."""
    within = np.int64(root_index.size - 1)
    place = root_hash(mask, keys) & within
    while root_index[place] != FREE:
        root = root_index[place]
        if roots[root, ROOT_MASK] == mask:
            f = 0
            while f < FACTORS and ((mask >> f) & 1 == 0 or roots[root, ROOT_KEYS + f] == keys[f]):
                f += 1
            if f == FACTORS:
                return root
        place = (place + 1) & within
    return np.int64(NONE)


@kernel(TREE, boolean)
def link_nodes(tree, delay):  # type: ignore[no-untyped-def]
    """Link nodes (COLUMN, PARENT, KEY, VIA are set), and index the roots; `delay`: for delayed branching."""
    nodes, edges, roots = tree.nodes, tree.edges, tree.roots
    within = np.int64(tree.root_index.size - 1)
    for root in range(roots.shape[0]):
        place = root_hash(roots[root, ROOT_MASK], roots[root, ROOT_KEYS:]) & within
        while tree.root_index[place] != FREE:
            place = (place + 1) & within
        tree.root_index[place] = root
        tree.masks[roots[root, ROOT_MASK]] += 1
    mask = np.int64(edges.size - 1)
    for child in range(nodes.shape[0]):
        via, parent = nodes[child, VIA], nodes[child, PARENT]
        if via == BY_ROOT:
            roots[parent, ROOT_NODE] = child
        elif via == BY_STAR:
            nodes[parent, STAR] = child
        else:
            nodes[parent, EDGES] += 1
            h = edge_hash(parent, nodes[child, KEY])
            place = h & mask
            while edges[place] != FREE:
                place = (place + 1) & mask
            edges[place] = (np.int64(child) << 32) | ((h >> 32) & LOW_HALF)
    for child in range(nodes.shape[0]):
        via, parent = nodes[child, VIA], nodes[child, PARENT]
        if not delay:
            continue
        if via == BY_STAR and nodes[child, STAR] == NONE:
            nodes[parent, STAR_COLUMN] = nodes[child, COLUMN]  # UNKNOWN for a leaf
        elif via == BY_VALUE and nodes[parent, VIA] == BY_STAR:
            nodes[nodes[parent, PARENT], STAR_BLOOM] |= bloom_bit(nodes[child, KEY])
    return 0


@inlined
def check_leaf(tree, leaf, keys, e, found, end):  # type: ignore[no-untyped-def]
    buckets, pool, residuals = tree.buckets, tree.pool, tree.residuals
    for bucket in range(tree.nodes[leaf, STAR], tree.nodes[leaf, STAR] + tree.nodes[leaf, EDGES]):
        start, count = buckets[bucket, BUCKET_START], buckets[bucket, BUCKET_COUNT]
        residual = buckets[bucket, BUCKET_TESTS]
        tests = residuals[residual, 0]
        key = keys[e, residuals[residual, 1]] if tests > 0 else np.int64(0)
        for word in range(start, start + count):
            if tests > 0:
                if key < pool[word + count] or key > pool[word + 2 * count]:
                    continue
                at, t = word + 2 * count, 1
                while t < tests:
                    other = keys[e, residuals[residual, 1 + t]]
                    if other < pool[at + count] or other > pool[at + 2 * count]:
                        break
                    at += 2 * count
                    t += 1
                if t < tests:
                    continue
            found[end] = pool[word]
            end += 1
    return end


@kernel(ROWS, TREE, frozen(int64, 2), int64, int64, array(int64), array(int64))
def search(rows, tree, keys, start, room, offsets, found):  # type: ignore[no-untyped-def]
    """Rows that match events `start` and later, CSR; returns the first event without room for `room` rows."""
    nodes, edges, wanted, stack = tree.nodes, tree.edges, tree.wanted, tree.stack
    for e in range(start, keys.shape[0]):
        end = offsets[e]
        if end + room > found.size:
            return e
        for f in range(tree.factors.size):
            wanted[f] = keys[e, tree.factors[f]]
        for mask in range(tree.masks.size):
            if tree.masks[mask] == 0:
                continue
            root = find_root(tree.roots, tree.root_index, mask, wanted)
            if root == NONE:
                continue
            stack[0] = tree.roots[root, ROOT_NODE]
            depth = 1
            while depth > 0:
                depth -= 1
                node = stack[depth]
                column = nodes[node, COLUMN]
                if column == LEAF:
                    end = check_leaf(tree, node, keys, e, found, end)
                    continue
                star = nodes[node, STAR]
                if star != NONE:
                    ahead = nodes[node, STAR_COLUMN]
                    if ahead == UNKNOWN or nodes[node, STAR_BLOOM] & bloom_bit(keys[e, ahead]) != 0:
                        stack[depth] = star
                        depth += 1
                if nodes[node, EDGES] > 0:
                    child = find_edge(nodes, edges, node, keys[e, column])
                    if child != NONE:
                        stack[depth] = child
                        depth += 1
        offsets[e + 1] = finish_event(rows, keys, e, found, offsets[e], end)
    return keys.shape[0]
