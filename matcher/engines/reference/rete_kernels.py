"""Kernels of the rete engine: every row a chain of nodes, shared as far as rows begin alike.

    alpha   the predicate table: each distinct predicate is tested once per event; true[p] is the stamp of the
            last event that satisfied p (the alpha memories, which hold one event at a time)
    beta    node [ parent predicate position ]     active when its parent is and its predicate holds; 0: root
            children of a node, rows that end at a node: one list each (`list_kernels.py`)
            edges [ node << 32 | hash bits, ... ]  nodes by hash of (parent, predicate)
    entry   [ node | -1 | ... ]                    by predicate: the child of the root that starts with it

An event activates the alpha memories, from there the entries, and from every active node downwards its
children: by looking at each, or, where there are more children than satisfied predicates, by looking up what
is satisfied.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.reference.list_kernels import COUNT, LISTS, Lists, growth, item, pull, push
from covey.matcher.engines.reference.predicate_kernels import PREDICATES, satisfied
from covey.matcher.engines.rows.row_kernels import ROW_PLACE
from covey.matcher.jit.hashing import first_hash, mix
from covey.matcher.jit.kernel import array, frozen, inlined, int32, int64, kernel, record

NONE = -1
FREE, GONE = np.int64(-1), np.int64(-2)
ROOT = 0
LOW_BITS = np.int64(0xFFFFFFFF)

TOP, FREE_HEAD, EDGES_USED, STAMP = range(4)
STATE = 4
PARENT, PREDICATE, POSITION = range(3)
NODE_FIELDS = 3


class Beta(NamedTuple):
    """The network of beta nodes."""

    state: npt.NDArray[np.int64]
    nodes: npt.NDArray[
        np.int32
    ]  # [nodes, NODE_FIELDS]; a free node has no predicate, and the next free one as parent
    edges: npt.NDArray[np.int64]  # a power of two
    entry: npt.NDArray[np.int32]  # [predicates]
    true: npt.NDArray[np.int64]  # [predicates]
    ends: npt.NDArray[np.int32]  # [rows]: the node where a row ends
    children: Lists
    rows: Lists


BETA = record(
    [array(int64), array(int32, 2), array(int64), array(int32), array(int64), array(int32), LISTS, LISTS],
    Beta,
)


@inlined
def edge_hash(parent, predicate):  # type: ignore[no-untyped-def]
    h = first_hash(mix((np.int64(parent) << 32), np.int64(predicate)))
    return h ^ (h >> 29)


@inlined
def find_node(nodes, edges, parent, predicate):  # type: ignore[no-untyped-def]
    """The child of a node that tests a predicate, or NONE."""
    h = edge_hash(parent, predicate)
    mask = np.int64(edges.size - 1)
    place, bits = h & mask, (h >> 32) & LOW_BITS
    while edges[place] != FREE:
        if edges[place] >= 0 and edges[place] & LOW_BITS == bits:
            node = edges[place] >> 32
            if nodes[node, PARENT] == parent and nodes[node, PREDICATE] == predicate:
                return node
        place = (place + 1) & mask
    return np.int64(NONE)


@kernel(frozen(int32, 2), int64, array(int64))
def rehash_nodes(nodes, top, edges):  # type: ignore[no-untyped-def]
    """Enter all nodes into a new, empty table; returns how many there are."""
    mask = np.int64(edges.size - 1)
    used = 0
    for node in range(1, top):
        if nodes[node, PREDICATE] != NONE:
            h = edge_hash(nodes[node, PARENT], nodes[node, PREDICATE])
            place = h & mask
            while edges[place] != FREE:
                place = (place + 1) & mask
            edges[place] = (np.int64(node) << 32) | ((h >> 32) & LOW_BITS)
            used += 1
    return used


@inlined
def new_node(beta, parent, predicate):  # type: ignore[no-untyped-def]
    state, nodes, edges = beta.state, beta.nodes, beta.edges
    node = state[FREE_HEAD]
    if node == NONE:
        node = state[TOP]
        state[TOP] += 1
    else:
        state[FREE_HEAD] = nodes[node, PARENT]
    nodes[node, PARENT], nodes[node, PREDICATE] = parent, predicate
    nodes[node, POSITION] = push(beta.children, parent, np.int32(node))
    h = edge_hash(parent, predicate)
    mask = np.int64(edges.size - 1)
    place = h & mask
    while edges[place] >= 0:
        place = (place + 1) & mask
    if edges[place] == FREE:
        state[EDGES_USED] += 1
    edges[place] = (np.int64(node) << 32) | ((h >> 32) & LOW_BITS)
    if parent == ROOT:
        beta.entry[predicate] = node
    return node


@inlined
def drop_node(beta, node):  # type: ignore[no-untyped-def]
    """Take out a node without children and rows; returns its parent."""
    state, nodes, edges = beta.state, beta.nodes, beta.edges
    parent, predicate = nodes[node, PARENT], nodes[node, PREDICATE]
    moved = pull(beta.children, parent, nodes[node, POSITION])
    if moved >= 0:
        nodes[moved, POSITION] = nodes[node, POSITION]
    mask = np.int64(edges.size - 1)
    place = edge_hash(parent, predicate) & mask
    while edges[place] < 0 or edges[place] >> 32 != node:
        place = (place + 1) & mask
    if edges[(place + 1) & mask] == FREE:
        edges[place] = FREE
        state[EDGES_USED] -= 1
    else:
        edges[place] = GONE
    if parent == ROOT:
        beta.entry[predicate] = NONE
    nodes[node, PREDICATE] = NONE
    nodes[node, PARENT] = state[FREE_HEAD]
    state[FREE_HEAD] = node
    return np.int64(parent)


@kernel(BETA, frozen(int64), frozen(int32, 2), array(int32, 2), int64)
def chain_rows(beta, rows, predicates, row_table, start):  # type: ignore[no-untyped-def]
    """Make or find the chains predicates[:, i] of rows[start:]; returns the first row for which there was no
    room.
    """
    state = beta.state
    tests = predicates.shape[0]
    for i in range(start, rows.size):
        if state[TOP] + tests > beta.nodes.shape[0] or 2 * (state[EDGES_USED] + tests) > beta.edges.size:
            return i
        node, made = np.int64(ROOT), False
        for t in range(tests):
            child = np.int64(NONE) if made else find_node(beta.nodes, beta.edges, node, predicates[t, i])
            if child == NONE:
                # a new node has one child and no list yet, so only the first new node can make a list grow
                if (
                    not made
                    and beta.children.state[0] + growth(beta.children, node, 1) > beta.children.pool.size
                ):
                    return i
                made = True
                child = new_node(beta, node, predicates[t, i])
            node = child
        if beta.rows.state[0] + growth(beta.rows, node, 1) > beta.rows.pool.size:
            return i  # the chain stays for the next call
        row_table[rows[i], ROW_PLACE] = push(beta.rows, node, np.int32(rows[i]))
        beta.ends[rows[i]] = node
    return rows.size


@kernel(BETA, frozen(int64), array(int32, 2))
def unchain_rows(beta, rows, row_table):  # type: ignore[no-untyped-def]
    """Take rows off the ends of their chains, and nodes that lead nowhere any more."""
    for i in range(rows.size):
        node, position = np.int64(beta.ends[rows[i]]), row_table[rows[i], ROW_PLACE]
        moved = pull(beta.rows, node, position)
        if moved >= 0:
            row_table[moved, ROW_PLACE] = position
        while node != ROOT and beta.rows.heads[node, COUNT] == 0 and beta.children.heads[node, COUNT] == 0:
            node = drop_node(beta, node)
    return 0


@kernel(BETA, frozen(int64), frozen(int32, 2), array(int32, 2))
def read_chains(beta, rows, row_table, out):  # type: ignore[no-untyped-def]
    """out[t, i] is predicate t of row i; all rows have as many tests as `out` has lines."""
    for i in range(rows.size):
        node = beta.ends[rows[i]]
        for t in range(out.shape[0] - 1, -1, -1):
            out[t, i] = beta.nodes[node, PREDICATE]
            node = beta.nodes[node, PARENT]
    return 0


# --- matching -------------------------------------------------------------------------------------


@inlined
def emit(rows, node, found, end):  # type: ignore[no-untyped-def]
    for position in range(rows.heads[node, COUNT]):
        found[end] = item(rows, node, position)
        end += 1
    return end


@inlined
def activate(beta, predicate, stamp, stack, depth):  # type: ignore[no-untyped-def]
    """Note that a predicate holds, and put the chains that start with it on the stack."""
    beta.true[predicate] = stamp
    if beta.entry[predicate] != NONE:
        stack[depth] = beta.entry[predicate]
        depth += 1
    return depth


@inlined
def look_up(beta, node, predicate, stack, depth):  # type: ignore[no-untyped-def]
    child = find_node(beta.nodes, beta.edges, node, predicate)
    if child != NONE:
        stack[depth] = child
        depth += 1
    return depth


@kernel(
    PREDICATES, BETA, frozen(int64, 2), int64, int64,
    array(int32), array(int32, 2), array(int32), array(int64), array(int64),
)  # fmt: skip
def pass_events(  # type: ignore[no-untyped-def]
    table, beta, keys, start, row_top, hits, spans, stack, offsets, found
):
    """Rows that match events `start` and later, CSR; returns the first event without room for `row_top` rows.

    `stack` has a place for every node.
    """
    children, nodes = beta.children, beta.nodes
    end = offsets[start]
    for e in range(start, keys.shape[0]):
        if end + row_top > found.size:
            return e
        beta.state[STAMP] += 1
        stamp = beta.state[STAMP]
        end = emit(beta.rows, ROOT, found, end)
        count, stretches = satisfied(table, keys, e, hits, spans)
        depth, holding = 0, np.int64(count)
        for h in range(count):
            depth = activate(beta, hits[h], stamp, stack, depth)
        for s in range(stretches):
            holding += spans[s, 1] - spans[s, 0]
            for at in range(spans[s, 0], spans[s, 1]):
                depth = activate(beta, table.ordered[at], stamp, stack, depth)
        while depth > 0:
            depth -= 1
            node = stack[depth]
            end = emit(beta.rows, node, found, end)
            below = children.heads[node, COUNT]
            if below <= holding:
                for position in range(below):
                    child = item(children, node, position)
                    if beta.true[nodes[child, PREDICATE]] == stamp:
                        stack[depth] = child
                        depth += 1
                continue
            for h in range(count):
                depth = look_up(beta, node, hits[h], stack, depth)
            for s in range(stretches):
                for at in range(spans[s, 0], spans[s, 1]):
                    depth = look_up(beta, node, table.ordered[at], stack, depth)
        offsets[e + 1] = end
    return keys.shape[0]
