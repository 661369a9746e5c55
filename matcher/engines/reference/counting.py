"""The counting engine (Yan and Garcia-Molina; Pereira et al.; Bittner and Hinze 2005, section 2.2).

Phase one finds the predicates that an event satisfies, phase two counts for every subscription how many of
its own are among them. With the subscription-predicate table, so that unsubscription and update touch one
subscription's predicates alone. Invariant: a row stands once in its predicates' lists for every test it has,
and a row without any in the list of the predicate that always holds.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.schema_columns import SchemaColumns
from covey.matcher.engines.reference import counting_kernels as c
from covey.matcher.engines.reference.list_kernels import COUNT, SIZE, START
from covey.matcher.engines.reference.lists import lists_bytes, new_lists, with_lists, with_room
from covey.matcher.engines.reference.predicate_kernels import TRUE, YOUNG
from covey.matcher.engines.reference.predicates import PredicateTable
from covey.matcher.engines.reference.reference_store import ReferenceStore
from covey.matcher.engines.rows.arrays import Numbers, Runs, grown
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.engines.rows.row_kernels import ROW_PLACE
from covey.matcher.events.event_type import EventType

_BYTE = 255


class CountingStore(ReferenceStore):
    """Rows in the lists of their predicates."""

    def __init__(self, event_type: EventType) -> None:
        super().__init__(event_type)
        self.predicates = PredicateTable(self.schema)
        self._lists = with_lists(new_lists(), self.predicates.capacity)
        self._links: npt.NDArray[np.int32] = np.full((64, 2), -1, dtype=np.int32)
        self._runs = Runs("links")
        self._need: npt.NDArray[Any] = np.zeros(len(self.arrays.ids), dtype=np.uint8)
        self._left = self._need.copy()
        self._sorted = self.predicates.arrays.ordered  # the order that `_order` was made for
        self._order = c.Order(
            np.zeros(0, dtype=np.int32), np.full(self.predicates.capacity, -1, dtype=np.int32)
        )

    def _insert(self, rows: Numbers, columns: Keys, lows: Keys, highs: Keys) -> None:
        tests = max(len(columns), 1)
        if len(columns):
            predicates = self.predicates.acquire(columns, lows, highs)
        else:
            predicates = np.full((1, len(rows)), TRUE, dtype=np.int32)
        self._grow_predicates()
        places = self._runs.allocate(len(rows), tests)
        if self._runs.top > len(self._links):
            self._links = grown(self._links, max(self._runs.top, len(self._links) * 3 // 2), -1)
        self.arrays.rows[rows, ROW_PLACE] = places
        self._needs(rows, tests)
        done = 0
        while True:
            done = c.attach_rows(
                self._lists, self._order, self._links, self.arrays.rows, rows, predicates, done
            )
            if done == len(rows):
                return
            self._lists = with_room(self._lists, self._growth(predicates[:, done]))

    def _needs(self, rows: Numbers, tests: int) -> None:
        """Set how many predicates these rows, which have so many, need."""
        if tests > _BYTE and self._need.dtype == np.uint8:
            self._need, self._left = self._need.astype(np.uint16), self._left.astype(np.uint16)
        self._need[rows] = tests

    def _growth(self, predicates: npt.NDArray[np.int32]) -> int:
        """What the lists of the predicates of a row may take with the row, as `attach_rows` asks for it."""
        counts = self._lists.heads[predicates, COUNT].astype(np.int64)
        return 4 * int((counts + (len(predicates) if len(predicates) <= c.FEW_TESTS else 1)).sum())

    def _remove(self, rows: Numbers) -> None:
        tests = max(self.tests_of(rows), 1)
        places = self.arrays.rows[rows, ROW_PLACE].astype(np.int64)
        numbers = self._links[places[None, :] + np.arange(tests)[:, None], 0]
        c.detach_rows(self._lists, self._order, self._links, self.arrays.rows, rows, tests)
        self.predicates.release(numbers)
        self._runs.free(places, tests)
        self._need[rows] = 0

    def _change(self, rows: Numbers, test: int, lows: Keys, highs: Keys) -> None:
        columns = [self.signatures.columns[s][test] for s in self.arrays.rows[rows[:1], 0]]
        old = self._links[self.arrays.rows[rows, ROW_PLACE] + test, 0]
        fresh = self.predicates.acquire(
            np.array(columns, dtype=np.int64), lows[test : test + 1], highs[test : test + 1]
        )[0]
        self._grow_predicates()
        done = 0
        while True:
            done = c.relink_rows(
                self._lists, self._order, self._links, self.arrays.rows, rows, test, fresh, done
            )
            if done == len(rows):
                break
            self._lists = with_room(self._lists, self._growth(fresh[done : done + 1]))
        self.predicates.release(old)

    def read(self, rows: Numbers, tests: int) -> tuple[Keys, Keys]:
        places = self.arrays.rows[rows, ROW_PLACE]
        bounds = self.predicates.arrays.bounds
        numbers = [self._links[places + t, 0] for t in range(tests)]
        lows = np.empty((tests, len(rows)), dtype=np.int64)
        highs = np.empty((tests, len(rows)), dtype=np.int64)
        for t, number in enumerate(numbers):
            lows[t], highs[t] = bounds[number, 0], bounds[number, 1]
        return lows, highs

    def _grow_predicates(self) -> None:
        if self.predicates.capacity > len(self._order.places):
            self._lists = with_lists(self._lists, self.predicates.capacity)
            self._order = self._order._replace(places=grown(self._order.places, self.predicates.capacity, -1))

    def _prepare(self) -> None:
        self.predicates.sort()
        ordered = self.predicates.arrays.ordered
        if ordered is self._sorted:
            return
        self._sorted = ordered
        heads = self._lists.heads[ordered]
        single = np.where((heads[:, COUNT] == 1) & (heads[:, SIZE] == 0), heads[:, START], -1)
        places = np.full(self.predicates.capacity, -1, dtype=np.int32)
        places[ordered] = np.arange(len(ordered), dtype=np.int32)
        self._order = c.Order(single.astype(np.int32), places)

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        kernel = c.count_events if self._need.dtype == np.uint8 else c.count_events_16
        need = self._need[: self.row_top]
        hits, spans = self.predicates.buffers()
        done: int = kernel(
            self.predicates.arrays,
            self._lists,
            self._order,
            need,
            self._left,
            keys,
            start,
            hits,
            spans,
            offsets,
            found,
        )
        return done

    def widen(self, event_type: EventType, schema: SchemaColumns) -> None:
        super().widen(event_type, schema)
        self.predicates.widen(schema)

    def _resize_rows(self, size: int) -> None:
        super()._resize_rows(size)
        self._need = grown(self._need, size)
        self._left = np.zeros_like(self._need)

    def structure_bytes(self) -> dict[str, int]:
        return {
            **self.predicates.memory_bytes(),
            "predicate-subscription table": lists_bytes(self._lists),
            "subscription-predicate table": self._links.nbytes,
            "predicates in order": self._order.single.nbytes + self._order.places.nbytes,
            "counts": self._need.nbytes + self._left.nbytes,
        }

    def render(self, columns: Columns) -> list[str]:
        table = self.predicates.arrays
        young = int(table.state[YOUNG])
        return [
            f"{len(self.predicates)} predicates, {int(table.points.sum())} of them equalities, "
            f"{len(table.ordered)} sorted, {young} young"
        ]


class CountingEngine(RowEngine):
    """Counts satisfied predicates per subscription; see the module."""

    name: ClassVar[str] = "counting"

    def _new_store(self) -> CountingStore:
        return CountingStore(self.event_type)
