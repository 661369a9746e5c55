"""Kernels of the texts that strings contain or end with: a trie of their bytes, walked from every place of a
string.

    edges   [ node << 8 | byte, child | -1, - | ... ]              open addressing; a power of two of them
    nodes   [ column of `contains`, column of `suffix` ]           of the text that ends there, or NONE

A trie, unlike an automaton with failure links, takes another text in place; a walk ends where no text goes
on.
"""

from __future__ import annotations

import numpy as np

from covey.matcher.encoding.encode_kernels import is_null
from covey.matcher.events.int64 import MISSING
from covey.matcher.jit.hashing import mix
from covey.matcher.jit.kernel import array, frozen, inlined, int32, int64, kernel, uint8

NONE = -1
EDGE, CHILD = 0, 1
CONTAINS, SUFFIX = 0, 1


@inlined
def edge_of(edges, node, byte):  # type: ignore[no-untyped-def]
    """The place of an edge, or the free one where it belongs."""
    mask = edges.shape[0] - 1
    edge = np.int64(node) << 8 | np.int64(byte)
    place = mix(np.int64(0), edge) & mask
    while edges[place, EDGE] != NONE and edges[place, EDGE] != edge:
        place = (place + 1) & mask
    return place


@kernel(frozen(uint8), int64, array(int64, 2), array(int64, 2))
def enter_text(text, top, edges, nodes):  # type: ignore[no-untyped-def]
    """The node of a text, in a trie of `top` nodes that has room for it; returns that node and how many nodes
    there are, as node << 32 | nodes.
    """
    node = np.int64(0)
    for i in range(text.size):
        place = edge_of(edges, node, text[i])
        if edges[place, EDGE] == NONE:
            edges[place, EDGE], edges[place, CHILD] = node << 8 | np.int64(text[i]), top
            nodes[top, CONTAINS] = nodes[top, SUFFIX] = NONE
            top += 1
        node = edges[place, CHILD]
    return node << 32 | top


@kernel(frozen(int32), frozen(uint8), frozen(uint8), int64, frozen(int64, 2), frozen(int64, 2), frozen(int64),
        array(int64, 2))  # fmt: skip
def encode_texts(offsets, data, valid, first, edges, nodes, columns, keys):  # type: ignore[no-untyped-def]
    """Set the columns of the texts that an event's string contains or ends with to 1; the others are 0."""
    for e in range(keys.shape[0]):
        if is_null(valid, first + e):
            for c in range(columns.size):
                keys[e, columns[c]] = MISSING
            continue
        end = np.int64(offsets[first + e + 1])
        for start in range(np.int64(offsets[first + e]), end + 1):
            node, at = np.int64(0), start
            while node != NONE:
                if nodes[node, CONTAINS] != NONE:
                    keys[e, nodes[node, CONTAINS]] = 1
                if at == end:
                    if nodes[node, SUFFIX] != NONE:
                        keys[e, nodes[node, SUFFIX]] = 1
                    node = np.int64(NONE)
                else:
                    place = edge_of(edges, node, data[at])
                    node = edges[place, CHILD] if edges[place, EDGE] != NONE else np.int64(NONE)
                    at += 1
    return 0
