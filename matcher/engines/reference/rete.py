"""The rete engine: a network in which each subscription is a chain of nodes (Forgy; Jayaram et al. 2010,
section 5.1).

Predicates are alpha memories, shared by all that have them; rows that begin with the same predicates, in the
order of the event type's attributes, share beta nodes. Events join with nothing, so a token is "active for
this event". Invariant: every beta node leads to a row, and no two children of one node have the same
predicate.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.schema_columns import SchemaColumns
from covey.matcher.engines.reference import rete_kernels as k
from covey.matcher.engines.reference.list_kernels import COUNT
from covey.matcher.engines.reference.lists import lists_bytes, new_lists, with_lists, with_room
from covey.matcher.engines.reference.predicates import PredicateNumbers, PredicateTable
from covey.matcher.engines.reference.reference_store import ReferenceStore
from covey.matcher.engines.rows.arrays import Numbers, grown
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.engines.rows.row_kernels import ROW_SIGNATURE
from covey.matcher.events.event_type import EventType

_SMALLEST = 64


class ReteStore(ReferenceStore):
    """Rows at the ends of chains of predicates."""

    def __init__(self, event_type: EventType) -> None:
        super().__init__(event_type)
        self.predicates = PredicateTable(self.schema)
        state = np.zeros(k.STATE, dtype=np.int64)
        state[k.TOP], state[k.FREE_HEAD] = 1, k.NONE
        self._beta = k.Beta(
            state=state,
            nodes=np.full((_SMALLEST, k.NODE_FIELDS), k.NONE, dtype=np.int32),
            edges=np.full(2 * _SMALLEST, k.FREE, dtype=np.int64),
            entry=np.full(self.predicates.capacity, k.NONE, dtype=np.int32),
            true=np.zeros(self.predicates.capacity, dtype=np.int64),
            ends=np.full(len(self.arrays.ids), k.NONE, dtype=np.int32),
            children=with_lists(new_lists(), _SMALLEST),
            rows=with_lists(new_lists(), _SMALLEST),
        )

    def _insert(self, rows: Numbers, columns: Keys, lows: Keys, highs: Keys) -> None:
        self._chain(rows, self.predicates.acquire(columns, lows, highs))

    def _chain(self, rows: Numbers, predicates: PredicateNumbers) -> None:
        if self.predicates.capacity > len(self._beta.entry):
            size = self.predicates.capacity
            self._beta = self._beta._replace(
                entry=grown(self._beta.entry, size, k.NONE), true=grown(self._beta.true, size)
            )
        done = 0
        while True:
            done = k.chain_rows(self._beta, rows, predicates, self.arrays.rows, done)
            if done == len(rows):
                return
            self._make_room(len(predicates))

    def _remove(self, rows: Numbers) -> None:
        predicates = self._predicates(rows, self.tests_of(rows))
        k.unchain_rows(self._beta, rows, self.arrays.rows)
        self.predicates.release(predicates)

    def _change(self, rows: Numbers, test: int, lows: Keys, highs: Keys) -> None:
        predicates = self._predicates(rows, len(lows))
        column = self.signatures.columns[int(self.arrays.rows[rows[0], ROW_SIGNATURE])][test]
        fresh = self.predicates.acquire(
            np.array([column], dtype=np.int64), lows[test : test + 1], highs[test : test + 1]
        )[0]
        old = predicates[test].copy()
        predicates[test] = fresh
        k.unchain_rows(self._beta, rows, self.arrays.rows)
        self._chain(rows, predicates)
        self.predicates.release(old)

    def _predicates(self, rows: Numbers, tests: int) -> PredicateNumbers:
        found = np.empty((tests, len(rows)), dtype=np.int32)
        k.read_chains(self._beta, rows, self.arrays.rows, found)
        return found

    def read(self, rows: Numbers, tests: int) -> tuple[Keys, Keys]:
        bounds = self.predicates.arrays.bounds[self._predicates(rows, tests)]
        return np.ascontiguousarray(bounds[:, :, 0]), np.ascontiguousarray(bounds[:, :, 1])

    def widen(self, event_type: EventType, schema: SchemaColumns) -> None:
        super().widen(event_type, schema)
        self.predicates.widen(schema)

    def _resize_rows(self, size: int) -> None:
        super()._resize_rows(size)
        self._beta = self._beta._replace(ends=grown(self._beta.ends, size, k.NONE))

    def _make_room(self, tests: int) -> None:
        beta = self._beta
        state, nodes = beta.state, len(beta.nodes)
        if state[k.TOP] + tests > nodes:
            nodes = nodes * 3 // 2 + tests
            beta = beta._replace(
                nodes=grown(beta.nodes, nodes, k.NONE),
                children=with_lists(beta.children, nodes),
                rows=with_lists(beta.rows, nodes),
            )
        if 2 * (state[k.EDGES_USED] + tests) > len(beta.edges):
            live = int(np.count_nonzero(beta.nodes[:, k.PREDICATE] != k.NONE))
            edges = np.full(1 << (3 * (live + tests) + _SMALLEST).bit_length(), k.FREE, dtype=np.int64)
            state[k.EDGES_USED] = k.rehash_nodes(beta.nodes, int(state[k.TOP]), edges)
            beta = beta._replace(edges=edges)
        self._beta = beta._replace(
            children=with_room(beta.children, 4 * int(beta.children.heads[:, COUNT].max()) + 4),
            rows=with_room(beta.rows, 4 * int(beta.rows.heads[:, COUNT].max()) + 4),
        )

    # --- matching ---------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self.predicates.sort()

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        hits, spans = self.predicates.buffers()
        stack = np.empty(int(self._beta.state[k.TOP]), dtype=np.int32)
        done: int = k.pass_events(
            self.predicates.arrays,
            self._beta,
            keys,
            start,
            self.row_top,
            hits,
            spans,
            stack,
            offsets,
            found,
        )
        return done

    def structure_bytes(self) -> dict[str, int]:
        b = self._beta
        return {
            **self.predicates.memory_bytes(),
            "alpha memories": b.entry.nbytes + b.true.nbytes,
            "beta nodes": b.nodes.nbytes + lists_bytes(b.children),
            "beta hash": b.edges.nbytes,
            "ends of chains": b.ends.nbytes + lists_bytes(b.rows),
        }

    def render(self, columns: Columns) -> list[str]:
        b = self._beta
        live = b.nodes[1 : b.state[k.TOP], k.PREDICATE] != k.NONE
        entries = int(np.count_nonzero(b.entry != k.NONE))
        most = int(b.children.heads[:, COUNT].max())
        return [
            f"{len(self.predicates)} alpha memories, {entries} of them start chains",
            f"{int(live.sum())} beta nodes, at most {most} below one",
        ]


class ReteEngine(RowEngine):
    """Passes events through a network of shared chains; see the module."""

    name: ClassVar[str] = "rete"

    def _new_store(self) -> ReteStore:
        return ReteStore(self.event_type)
