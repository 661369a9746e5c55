"""Kernels that put rows into a search tree, take them out, and follow events through it.

The layout, and what the papers' optimisations are, stand in `search_tree_layout.py`.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.engines.reference.search_tree_layout import (
    BUCKET_COUNT,
    BUCKET_FREE,
    BUCKET_NEXT,
    BUCKET_NODE,
    BUCKET_SIZE,
    BUCKET_START,
    BUCKET_TESTS,
    BUCKET_TOP,
    BY_ROOT,
    BY_STAR,
    BY_VALUE,
    COLUMN,
    DEEPEST,
    EDGES,
    EDGES_USED,
    FACTORS,
    GONE,
    KEY,
    LEAF,
    MASKED,
    NODE_FREE,
    NODE_TOP,
    NODES,
    NONE,
    OPTION_DELAY,
    OPTION_FACTORS,
    OPTION_SKIP,
    PARENT,
    POOL_TOP,
    ROOT_FREE,
    ROOT_KEYS,
    ROOT_MASK,
    ROOT_NODE,
    ROOT_TOP,
    ROOTS_USED,
    STAR,
    STAR_BLOOM,
    STAR_COLUMN,
    TREE,
    UNKNOWN,
    UNUSED,
    VIA,
    bloom_bit,
    drop_edge,
    enter_edge,
    enter_root,
    find_edge,
    find_root,
    root_hash,
)
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE
from covey.matcher.jit.kernel import array, frozen, inlined, int32, int64, kernel

# --- nodes ----------------------------------------------------------------------------------------


@inlined
def level_of(nodes, ranks, node):  # type: ignore[no-untyped-def]
    return DEEPEST if nodes[node, COLUMN] == LEAF else ranks[nodes[node, COLUMN]]


@inlined
def note_star(nodes, node):  # type: ignore[no-untyped-def]
    """Note at a node what its star child, which has no edges yet, will test."""
    child = nodes[node, STAR]
    nodes[node, STAR_COLUMN] = UNKNOWN if nodes[child, COLUMN] == LEAF else nodes[child, COLUMN]
    nodes[node, STAR_BLOOM] = 0


@inlined
def hang(tree, child, via, parent, key):  # type: ignore[no-untyped-def]
    """Attach a node by `via`, `parent` and `key`."""
    nodes = tree.nodes
    nodes[child, VIA], nodes[child, PARENT], nodes[child, KEY] = via, parent, key
    if via == BY_ROOT:
        tree.roots[parent, ROOT_NODE] = child
    elif via == BY_STAR:
        nodes[parent, STAR] = child
        nodes[parent, STAR_COLUMN] = UNKNOWN
        if nodes[parent, VIA] == BY_STAR:  # a node that has a star edge cannot be passed by
            nodes[nodes[parent, PARENT], STAR_COLUMN] = UNKNOWN
    else:
        enter_edge(tree.state, tree.edges, parent, key, child)
        nodes[parent, EDGES] += 1
        if nodes[parent, VIA] == BY_STAR:
            nodes[nodes[parent, PARENT], STAR_BLOOM] |= bloom_bit(key)


@inlined
def new_node(tree, column):  # type: ignore[no-untyped-def]
    state, nodes = tree.state, tree.nodes
    node = state[NODE_FREE]
    if node == NONE:
        node = state[NODE_TOP]
        state[NODE_TOP] += 1
    else:
        state[NODE_FREE] = nodes[node, PARENT]
    state[NODES] += 1
    nodes[node, COLUMN], nodes[node, STAR], nodes[node, EDGES] = column, NONE, 0
    nodes[node, STAR_COLUMN], nodes[node, STAR_BLOOM] = UNKNOWN, 0
    return node


@inlined
def column_below(tree, level, position, count):  # type: ignore[no-untyped-def]
    """What a new node below `level` tests, for a row whose next edge is number `position` of `count`."""
    if tree.options[OPTION_SKIP] == 0 and level + 1 < tree.levels.size:
        return tree.levels[level + 1]
    return np.int64(LEAF) if position == count else tree.levels[tree.scratch[0, position]]


@inlined
def below_root(tree, position, count):  # type: ignore[no-untyped-def]
    return column_below(tree, tree.options[OPTION_FACTORS] - 1, position, count)


@inlined
def find_leaf(tree, mask, keys, position, count):  # type: ignore[no-untyped-def]
    """The leaf of a row's factors and edges from `position` on, with new nodes where there are none."""
    state, nodes, roots = tree.state, tree.nodes, tree.roots
    root = find_root(roots, tree.root_index, mask, keys)
    if root == NONE:
        root = state[ROOT_FREE]
        if root == NONE:
            root = state[ROOT_TOP]
            state[ROOT_TOP] += 1
        else:
            state[ROOT_FREE] = roots[root, ROOT_MASK]
        roots[root, ROOT_MASK] = mask
        for f in range(FACTORS):
            roots[root, ROOT_KEYS + f] = keys[f]
        enter_root(state, tree.root_index, root, mask, keys)
        tree.masks[mask] += 1
        hang(tree, new_node(tree, below_root(tree, position, count)), BY_ROOT, root, np.int64(0))
    node = roots[root, ROOT_NODE]
    while True:
        level = level_of(nodes, tree.ranks, node)
        wanted = DEEPEST if position == count else tree.scratch[0, position]
        if wanted < level:  # the test was trivial here so far: insert it above
            front = new_node(tree, tree.levels[wanted])
            via, parent, key = nodes[node, VIA], nodes[node, PARENT], nodes[node, KEY]
            if via == BY_VALUE:
                drop_edge(state, tree.edges, parent, key, node)
                nodes[parent, EDGES] -= 1
            hang(tree, front, via, parent, key)
            hang(tree, node, BY_STAR, front, np.int64(0))
            node = front
        elif level == DEEPEST:
            return node
        elif wanted == level:
            key = tree.scratch[1, position]
            position += 1
            child = find_edge(nodes, tree.edges, node, key)
            if child == NONE:
                child = new_node(tree, column_below(tree, level, position, count))
                hang(tree, child, BY_VALUE, node, key)
            node = child
        else:
            child = nodes[node, STAR]
            if child == NONE:
                child = new_node(tree, column_below(tree, level, position, count))
                hang(tree, child, BY_STAR, node, np.int64(0))
                note_star(nodes, node)
            node = child


@inlined
def drop_node(tree, node):  # type: ignore[no-untyped-def]
    tree.nodes[node, COLUMN] = UNUSED
    tree.nodes[node, PARENT] = tree.state[NODE_FREE]
    tree.state[NODE_FREE] = node
    tree.state[NODES] -= 1


@inlined
def prune(tree, node):  # type: ignore[no-untyped-def]
    """Take out a leaf that is empty, and all nodes above it that lead nowhere or test nothing any more."""
    state, nodes = tree.state, tree.nodes
    while nodes[node, EDGES] == 0:
        via, parent, key = nodes[node, VIA], nodes[node, PARENT], nodes[node, KEY]
        star = nodes[node, STAR]
        if star != NONE and (nodes[node, COLUMN] == LEAF or tree.options[OPTION_SKIP] == 0):
            return
        if via == BY_VALUE:
            drop_edge(state, tree.edges, parent, key, node)
            nodes[parent, EDGES] -= 1
        drop_node(tree, node)
        if star != NONE:
            hang(tree, star, via, parent, key)
            return
        if via == BY_ROOT:
            mask = tree.roots[parent, ROOT_MASK]
            within = np.int64(tree.root_index.size - 1)
            place = root_hash(mask, tree.roots[parent, ROOT_KEYS:]) & within
            while tree.root_index[place] != parent:
                place = (place + 1) & within
            tree.root_index[place] = GONE
            tree.masks[mask] -= 1
            tree.roots[parent, ROOT_NODE] = NONE
            tree.roots[parent, ROOT_MASK] = state[ROOT_FREE]
            state[ROOT_FREE] = parent
            return
        if via == BY_STAR:
            nodes[parent, STAR] = NONE
            nodes[parent, STAR_COLUMN] = UNKNOWN
        node = parent


# --- buckets --------------------------------------------------------------------------------------


@inlined
def bucket_for(tree, leaf, residual):  # type: ignore[no-untyped-def]
    """The bucket of a leaf with room for a row that has these columns left to test."""
    state, buckets, pool = tree.state, tree.buckets, tree.pool
    bucket = tree.nodes[leaf, STAR]
    while bucket != NONE and buckets[bucket, BUCKET_TESTS] != residual:
        bucket = buckets[bucket, BUCKET_NEXT]
    tests = tree.residuals[residual, 0]
    if bucket == NONE:
        bucket = state[BUCKET_FREE]
        if bucket == NONE:
            bucket = state[BUCKET_TOP]
            state[BUCKET_TOP] += 1
        else:
            state[BUCKET_FREE] = buckets[bucket, BUCKET_NEXT]
        buckets[bucket, BUCKET_NODE], buckets[bucket, BUCKET_TESTS] = leaf, residual
        buckets[bucket, BUCKET_SIZE], buckets[bucket, BUCKET_COUNT] = 0, 0
        buckets[bucket, BUCKET_START] = take_words(state, pool, tree.free, tests, 0)
        buckets[bucket, BUCKET_NEXT] = tree.nodes[leaf, STAR]
        tree.nodes[leaf, STAR] = bucket
        return bucket
    size, count = buckets[bucket, BUCKET_SIZE], buckets[bucket, BUCKET_COUNT]
    if count == np.int64(1) << size:
        old, new = buckets[bucket, BUCKET_START], take_words(state, pool, tree.free, tests, size + 1)
        for part in range(1 + 2 * tests):
            for p in range(count):
                pool[new + 2 * part * count + p] = pool[old + part * count + p]
        pool[old] = tree.free[tests, size]
        tree.free[tests, size] = old
        buckets[bucket, BUCKET_START], buckets[bucket, BUCKET_SIZE] = new, size + 1
    return bucket


@inlined
def take_words(state, pool, free, tests, size):  # type: ignore[no-untyped-def]
    start = free[tests, size]
    if start == NONE:
        start = state[POOL_TOP]
        state[POOL_TOP] += (np.int64(1) << size) * (1 + 2 * tests)
    else:
        free[tests, size] = pool[start]
    return start


@kernel(TREE, frozen(int32, 2), frozen(int64), frozen(int64), int64)
def place_rows(tree, row_table, rows, residuals, start):  # type: ignore[no-untyped-def]
    """Put rows[start:] into the tree; residuals[i] are the tests of row i left to the leaf; the first without
    room.

    `masks_of` and `bounds` of the rows are set.
    """
    state = tree.state
    scratch, factors = tree.scratch, tree.options[OPTION_FACTORS]
    keys = scratch[2]
    for i in range(start, rows.size):
        row = rows[i]
        deep = tree.levels.size + 2 + MASKED
        if (
            state[NODE_TOP] + deep > tree.nodes.shape[0]
            or 2 * (state[EDGES_USED] + deep) > tree.edges.size
            or state[ROOT_TOP] >= tree.roots.shape[0]
            or 2 * (state[ROOTS_USED] + 1) > tree.root_index.size
            or state[BUCKET_TOP] >= tree.buckets.shape[0]
        ):
            return i
        signature, at = row_table[row, ROW_SIGNATURE], row_table[row, ROW_PLACE]
        first = tree.signatures[signature]
        tests = tree.signatures[signature + 1] - first
        count, mask = 0, np.int64(0)
        for t in range(min(tests, np.int64(MASKED))):
            if (tree.masks_of[row] >> t) & 1 == 0:
                continue
            rank, key = tree.ranks[tree.columns[first + t]], tree.bounds[at + t, 0]
            if rank < factors:
                mask |= np.int64(1) << rank
                keys[rank] = key
                continue
            position = count
            while position > 0 and scratch[0, position - 1] > rank:
                scratch[0, position], scratch[1, position] = (
                    scratch[0, position - 1],
                    scratch[1, position - 1],
                )
                position -= 1
            scratch[0, position], scratch[1, position] = rank, key
            count += 1
        leaf = find_leaf(tree, mask, keys, 0, count)
        bucket = tree.nodes[leaf, STAR]
        while bucket != NONE and tree.buckets[bucket, BUCKET_TESTS] != residuals[i]:
            bucket = tree.buckets[bucket, BUCKET_NEXT]
        left = tree.residuals[residuals[i], 0]
        room = np.int64(1) if bucket == NONE else np.int64(0)
        if (
            bucket != NONE
            and tree.buckets[bucket, BUCKET_COUNT] == np.int64(1) << tree.buckets[bucket, BUCKET_SIZE]
        ):
            room = 2 * tree.buckets[bucket, BUCKET_COUNT]
        if state[POOL_TOP] + room * (1 + 2 * left) > tree.pool.size:
            if tree.nodes[leaf, STAR] == NONE:
                prune(tree, leaf)
            return i
        bucket = bucket_for(tree, leaf, residuals[i])
        position = tree.buckets[bucket, BUCKET_COUNT]
        capacity = np.int64(1) << tree.buckets[bucket, BUCKET_SIZE]
        word = tree.buckets[bucket, BUCKET_START] + position
        tree.pool[word] = row
        for t in range(tests):
            if t >= MASKED or (tree.masks_of[row] >> t) & 1 == 0:
                word += capacity
                tree.pool[word] = tree.bounds[at + t, 0]
                word += capacity
                tree.pool[word] = tree.bounds[at + t, 1]
        tree.buckets[bucket, BUCKET_COUNT] = position + 1
        tree.bucket_of[row] = (bucket << 32) | position
    return rows.size


@kernel(TREE, frozen(int64))
def take_rows(tree, rows):  # type: ignore[no-untyped-def]
    """Take rows out of the tree, and nodes that are of no more use."""
    buckets, pool = tree.buckets, tree.pool
    for i in range(rows.size):
        bucket, position = tree.bucket_of[rows[i]] >> 32, tree.bucket_of[rows[i]] & np.int64(0xFFFFFFFF)
        tests = tree.residuals[buckets[bucket, BUCKET_TESTS], 0]
        capacity = np.int64(1) << buckets[bucket, BUCKET_SIZE]
        last = buckets[bucket, BUCKET_COUNT] - 1
        word = buckets[bucket, BUCKET_START]
        tree.bucket_of[pool[word + last]] = (bucket << 32) | position
        for _ in range(1 + 2 * tests):
            pool[word + position] = pool[word + last]
            word += capacity
        tree.bucket_of[rows[i]] = NONE
        buckets[bucket, BUCKET_COUNT] = last
        if last > 0:
            continue
        size, start = buckets[bucket, BUCKET_SIZE], buckets[bucket, BUCKET_START]
        pool[start] = tree.free[tests, size]
        tree.free[tests, size] = start
        leaf = buckets[bucket, BUCKET_NODE]
        before, following = tree.nodes[leaf, STAR], buckets[bucket, BUCKET_NEXT]
        if before == bucket:
            tree.nodes[leaf, STAR] = following
        else:
            while buckets[before, BUCKET_NEXT] != bucket:
                before = buckets[before, BUCKET_NEXT]
            buckets[before, BUCKET_NEXT] = following
        buckets[bucket, BUCKET_NEXT] = tree.state[BUCKET_FREE]
        tree.state[BUCKET_FREE] = bucket
        if tree.nodes[leaf, STAR] == NONE:
            prune(tree, leaf)
    return 0


# --- matching -------------------------------------------------------------------------------------


@inlined
def check_leaf(tree, leaf, keys, e, found, end):  # type: ignore[no-untyped-def]
    buckets, pool, residuals = tree.buckets, tree.pool, tree.residuals
    bucket = tree.nodes[leaf, STAR]
    while bucket != NONE:
        start, count = buckets[bucket, BUCKET_START], buckets[bucket, BUCKET_COUNT]
        residual = buckets[bucket, BUCKET_TESTS]
        tests, capacity = residuals[residual, 0], np.int64(1) << buckets[bucket, BUCKET_SIZE]
        key = keys[e, residuals[residual, 1]] if tests > 0 else np.int64(0)
        for word in range(start, start + count):
            if tests > 0:
                if key < pool[word + capacity] or key > pool[word + 2 * capacity]:
                    continue
                at, t = word + 2 * capacity, 1
                while t < tests:
                    other = keys[e, residuals[residual, 1 + t]]
                    if other < pool[at + capacity] or other > pool[at + 2 * capacity]:
                        break
                    at += 2 * capacity
                    t += 1
                if t < tests:
                    continue
            found[end] = pool[word]
            end += 1
        bucket = buckets[bucket, BUCKET_NEXT]
    return end


@kernel(TREE, frozen(int64, 2), int64, int64, array(int64), array(int64), array(int64))
def search(tree, keys, start, row_top, stack, offsets, found):  # type: ignore[no-untyped-def]
    """Rows that match events `start` and later, CSR; returns the first event without room for `row_top` rows.

    `stack` has a place per level and one per factor combination more.
    """
    nodes, edges = tree.nodes, tree.edges
    factors, delay = tree.options[OPTION_FACTORS], tree.options[OPTION_DELAY] == 1
    wanted = tree.scratch[2]
    end = offsets[start]
    for e in range(start, keys.shape[0]):
        if end + row_top > found.size:
            return e
        for f in range(factors):
            wanted[f] = keys[e, tree.levels[f]]
        for mask in range(np.int64(1) << factors):
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
                    if (
                        not delay
                        or ahead == UNKNOWN
                        or nodes[node, STAR_BLOOM] & bloom_bit(keys[e, ahead]) != 0
                    ):
                        stack[depth] = star
                        depth += 1
                if nodes[node, EDGES] > 0:
                    child = find_edge(nodes, edges, node, keys[e, column])
                    if child != NONE:
                        stack[depth] = child
                        depth += 1
        offsets[e + 1] = end
    return keys.shape[0]
