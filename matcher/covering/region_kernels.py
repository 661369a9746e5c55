"""Kernels of the tree of vectors (`vector_tree.py`).

    nodes[node] = [ parent | below | above | column | threshold | count | least ... | greatest ... ]
    ids[block, place], rows[block, place] = [ one number per column ]

A fork sends vectors with less than `threshold` in `column` below, others above. A leaf has no column; its
`below` is its block, and `count` the number of its vectors. The *zone* of a node is the least and the
greatest value per column of all vectors under it, adjacent, so that a search that passes a node reads two or
three cache lines. The zone of a node without vectors is neutral in its parent's."""

from __future__ import annotations

from covey.matcher.events.int64 import INT64_MAX, INT64_MIN
from covey.matcher.jit.kernel import array, boolean, inlined, int64, kernel

PARENT, BELOW, ABOVE, COLUMN, THRESHOLD, COUNT, ZONE = range(7)  # fields of a node
NONE = -1  # no node; no column

_NODES, _IDS, _ROWS = array(int64, 2), array(int64, 2), array(int64, 3)


@inlined
def span(nodes, rows, leaf):  # type: ignore[no-untyped-def]
    columns = rows.shape[2]
    block, count = nodes[leaf, BELOW], nodes[leaf, COUNT]
    for column in range(columns):
        least, greatest = INT64_MAX, INT64_MIN
        for place in range(count):
            value = rows[block, place, column]
            least = min(least, value)
            greatest = max(greatest, value)
        nodes[leaf, ZONE + column] = least
        nodes[leaf, ZONE + columns + column] = greatest


@inlined
def rise(nodes, columns, node):  # type: ignore[no-untyped-def]
    """After a change of a node's zone: updates the zones above, up to the first that stays the same."""
    node = nodes[node, PARENT]
    changed = True
    while changed and node >= 0:
        changed = False
        below, above = nodes[node, BELOW], nodes[node, ABOVE]
        for at in range(ZONE, ZONE + columns):
            least = min(nodes[below, at], nodes[above, at])
            greatest = max(nodes[below, at + columns], nodes[above, at + columns])
            if least != nodes[node, at] or greatest != nodes[node, at + columns]:
                nodes[node, at] = least
                nodes[node, at + columns] = greatest
                changed = True
        node = nodes[node, PARENT]


@inlined
def place_of(nodes, ids, leaf, identity):  # type: ignore[no-untyped-def]
    block, place = nodes[leaf, BELOW], 0
    while ids[block, place] != identity:
        place += 1
    return place


@kernel(_NODES, _IDS, _ROWS, int64, int64, int64, array(int64))
def put(nodes, ids, rows, root, leaf, identity, vector):  # type: ignore[no-untyped-def]
    """Set an id's vector, if the id stays in its `leaf`, or has none and its new leaf has room. Returns the
    leaf to which the vector belongs, `-2 - leaf` if that is full. The caller must first take an id out of
    another leaf."""
    columns = rows.shape[2]
    node = root
    while nodes[node, COLUMN] >= 0:
        side = BELOW if vector[nodes[node, COLUMN]] < nodes[node, THRESHOLD] else ABOVE
        node = nodes[node, side]
    if leaf not in (NONE, node):
        return node
    block, count = nodes[node, BELOW], nodes[node, COUNT]
    shrinks = grows = False
    if leaf == node:
        place = place_of(nodes, ids, leaf, identity)
        for column in range(columns):
            value = rows[block, place, column]
            least, greatest = nodes[node, ZONE + column], nodes[node, ZONE + columns + column]
            shrinks |= vector[column] != value and least < greatest and value in (least, greatest)
    elif count == rows.shape[1]:
        return -2 - node
    else:
        place = count
        ids[block, place] = identity
        nodes[node, COUNT] = count + 1
    for column in range(columns):
        value = vector[column]
        rows[block, place, column] = value
        if value < nodes[node, ZONE + column]:
            nodes[node, ZONE + column] = value
            grows = True
        if value > nodes[node, ZONE + columns + column]:
            nodes[node, ZONE + columns + column] = value
            grows = True
    if shrinks:
        span(nodes, rows, node)
    if shrinks or grows:
        rise(nodes, columns, node)
    return node


@kernel(_NODES, _IDS, _ROWS, int64, int64)
def take(nodes, ids, rows, leaf, identity):  # type: ignore[no-untyped-def]
    """Remove an id from its leaf; the leaf's last one moves into its place. Returns how many are left."""
    columns = rows.shape[2]
    block, last = nodes[leaf, BELOW], nodes[leaf, COUNT] - 1
    place = place_of(nodes, ids, leaf, identity)
    shrinks = last == 0
    for column in range(columns):
        value = rows[block, place, column]
        least, greatest = nodes[leaf, ZONE + column], nodes[leaf, ZONE + columns + column]
        shrinks |= least < greatest and value in (least, greatest)
        rows[block, place, column] = rows[block, last, column]
    ids[block, place] = ids[block, last]
    nodes[leaf, COUNT] = last
    if shrinks:
        span(nodes, rows, leaf)
        rise(nodes, columns, leaf)
    return last


@kernel(_NODES, _ROWS, int64)
def refit(nodes, rows, leaf):  # type: ignore[no-untyped-def]
    span(nodes, rows, leaf)
    rise(nodes, rows.shape[2], leaf)


@kernel(_NODES, _IDS, _ROWS, int64, int64, array(int64), boolean, boolean, array(int64, 2))
def ask(nodes, ids, rows, root, exclude, vector, covering, covered, out):  # type: ignore[no-untyped-def]
    """The vectors nowhere greater than this one, if `covering`, and those nowhere less, if `covered`.

    `out[0]` and `out[1]` become the number of ids found, then the ids, without `exclude`; returns the sum of
    both numbers. Walks without a stack: from a node without further answers to the next one outside its
    subtree."""
    columns = rows.shape[2]
    above = below = 0
    node = root
    while node >= 0:
        over, under = covering, covered
        for column in range(columns):
            over &= nodes[node, ZONE + column] <= vector[column]
            under &= nodes[node, ZONE + columns + column] >= vector[column]
        if over or under:
            if nodes[node, COLUMN] >= 0:
                node = nodes[node, BELOW]
                continue
            block = nodes[node, BELOW]
            for place in range(nodes[node, COUNT]):
                greater = less = False
                for column in range(columns):
                    greater |= rows[block, place, column] > vector[column]
                    less |= rows[block, place, column] < vector[column]
                if greater and less:
                    continue
                identity = ids[block, place]
                if identity == exclude:
                    continue
                if over and not greater:
                    above += 1
                    out[0, above] = identity
                if under and not less:
                    below += 1
                    out[1, below] = identity
        parent = nodes[node, PARENT]
        while parent >= 0 and nodes[parent, ABOVE] == node:
            node, parent = parent, nodes[parent, PARENT]
        node = nodes[parent, ABOVE] if parent >= 0 else NONE
    out[0, 0], out[1, 0] = above, below
    return above + below
