"""Kernels of the rete engine: every row is a chain of nodes, shared with rows that begin alike.

    alpha   the predicate index; true[rank] is the stamp of the last event that satisfied the predicate
    beta    node [ rank | children from, up to | rows from, up to ]     0 is the root
            the children of a node are consecutive, by ascending rank

A node is active when its parent is and its predicate holds. The active children of a node are found by
testing each or, where it has more children than the event satisfies predicates, by looking these up.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from covey.matcher.engines.reference.store_kernels import INDEX, ROWS, finish_event, first_at_least, satisfied
from covey.matcher.jit.kernel import array, frozen, inlined, int32, int64, kernel, record


class Beta(NamedTuple):
    ranks: npt.NDArray[np.int64]  # [nodes]; -1 of the root
    children: npt.NDArray[np.int32]  # [nodes, 2]: first child and last + 1
    ends: npt.NDArray[np.int32]  # [nodes + 1]: first of the rows that end at a node
    places: npt.NDArray[np.int32]  # of rows, by the node where they end
    entry: npt.NDArray[np.int32]  # [ranks]: the child of the root with a predicate, or -1
    true: npt.NDArray[np.int64]  # [ranks + 1]; the last counts events
    stack: npt.NDArray[np.int32]  # [nodes]


BETA = record(
    [array(int64), array(int32, 2), array(int32), array(int32), array(int32), array(int64), array(int32)],
    Beta,
)


@inlined
def activate(beta, index, stretches, stamp):  # type: ignore[no-untyped-def]
    """Stamp what holds and push the chains that start with it; returns how many are pushed, and hold."""
    depth, holding = np.int64(0), np.int64(0)
    for s in range(stretches):
        for rank in range(index.spans[s, 0], index.spans[s, 1]):
            beta.true[rank] = stamp
            holding += 1
            if beta.entry[rank] >= 0:
                beta.stack[depth] = beta.entry[rank]
                depth += 1
    return depth, holding


@inlined
def look_up(beta, index, stretches, node, depth):  # type: ignore[no-untyped-def]
    """Push the children of a node whose predicates hold; returns the new depth."""
    first, last = np.int64(beta.children[node, 0]), np.int64(beta.children[node, 1])
    for s in range(stretches):
        child = first_at_least(beta.ranks, first, last, index.spans[s, 0])
        while child < last and beta.ranks[child] < index.spans[s, 1]:
            beta.stack[depth] = child
            depth += 1
            child += 1
    return depth


@kernel(ROWS, BETA, INDEX, frozen(int64, 2), int64, int64, array(int64), array(int64))
def pass_events(rows, beta, index, keys, start, room, offsets, found):  # type: ignore[no-untyped-def]
    """Rows that match events `start` and later, CSR; returns the first event without room for `room` rows."""
    stack, true, last = beta.stack, beta.true, beta.true.size - 1
    for e in range(start, keys.shape[0]):
        first = offsets[e]
        if first + room > found.size:
            return e
        end = first
        true[last] += 1
        for at in range(beta.ends[0], beta.ends[1]):
            found[end] = beta.places[at]
            end += 1
        stretches = satisfied(index, keys, e)
        depth, holding = activate(beta, index, stretches, true[last])
        while depth > 0:
            depth -= 1
            node = stack[depth]
            for at in range(beta.ends[node], beta.ends[node + 1]):
                found[end] = beta.places[at]
                end += 1
            if beta.children[node, 1] - beta.children[node, 0] > holding:
                depth = look_up(beta, index, stretches, node, depth)
                continue
            for child in range(beta.children[node, 0], beta.children[node, 1]):
                if true[beta.ranks[child]] == true[last]:
                    stack[depth] = child
                    depth += 1
        offsets[e + 1] = finish_event(rows, keys, e, found, first, end)
    return keys.shape[0]
