"""The rete engine: a chain of nodes in a network per subscription (Forgy; Jayaram et al. 2010, section 5.1).

Predicates are alpha memories; rows that begin with the same predicates, in the order of the event type's
attributes, share beta nodes. Events join with nothing, so a token is "active for this event". Invariant:
every beta node leads to a row, and no two children of a node have the same predicate.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.engines.reference import rete_kernels as k
from covey.matcher.engines.reference.reference_store import (
    ReferenceStore,
    Tests,
    index_bytes,
    index_predicates,
)
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.engines.rows.engine import RowEngine


class ReteStore(ReferenceStore):
    def _build(self, tests: Tests) -> npt.NDArray[np.int32]:
        self._index, ranks = index_predicates(tests, self)
        count = len(self._index.edges)
        node_of = np.zeros(len(tests.rows), dtype=np.int64)  # where the chain of each row ends, so far
        nodes, parents = [np.array([-1])], [np.array([-1])]
        top = 1
        for level in range(int(tests.sizes.max(initial=0))):
            longer = np.flatnonzero(tests.sizes > level)
            chained = node_of[longer] * count + ranks[tests.starts[longer] + level]
            made, child = np.unique(chained, return_inverse=True)
            node_of[longer] = top + child.reshape(-1)
            parents.append(made // count)
            nodes.append(made % count)
            top += len(made)
        rank, parent = np.concatenate(nodes), np.concatenate(parents)
        children = np.zeros((top, 2), dtype=np.int32)  # nodes are in the order of their parents
        children[:, 0] = np.searchsorted(parent, np.arange(top))
        children[:, 1] = np.searchsorted(parent, np.arange(top), side="right")
        entry = np.full(count, -1, dtype=np.int32)
        entry[rank[children[0, 0] : children[0, 1]]] = np.arange(*children[0])
        self._beta = k.Beta(
            ranks=rank,
            children=children,
            ends=np.searchsorted(np.sort(node_of), np.arange(top + 1)).astype(np.int32),
            places=np.argsort(node_of, kind="stable").astype(np.int32),
            entry=entry,
            true=np.zeros(count + 1, dtype=np.int64),
            stack=np.zeros(top, dtype=np.int32),
        )
        return tests.rows.astype(np.int32)

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        done: int = k.pass_events(
            self.rows(), self._beta, self._index, keys, start, self._most_matches(), offsets, found
        )
        return done

    def structure_bytes(self) -> dict[str, int]:
        b = self._beta
        return {
            **super().structure_bytes(),
            "predicate order": index_bytes(self._index),
            "alpha memories": b.entry.nbytes + b.true.nbytes,
            "beta nodes": b.ranks.nbytes + b.children.nbytes + b.ends.nbytes + b.places.nbytes,
        }

    def render(self, columns: Columns) -> list[str]:
        first, last = self._beta.children[0]
        most = int(np.diff(self._beta.children, axis=1).max())
        return [
            self.summary(),
            f"{len(self._index.edges)} alpha memories, {last - first} of them start chains",
            f"{len(self._beta.ranks) - 1} beta nodes, at most {most} below one",
        ]


class ReteEngine(RowEngine):
    name: ClassVar[str] = "rete"

    def _new_store(self) -> ReteStore:
        return ReteStore(self.event_type)
