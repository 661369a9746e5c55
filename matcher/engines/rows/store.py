"""The interface of an engine's row store.

A row is one conjunction of interval tests, `lows[t] <= key of column t <= highs[t]`, on the columns of its
signature. Stores differ in structure, not in numbers of rows and signatures. Invariant: a row keeps its
number until it is freed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Protocol

import numpy as np
import numpy.typing as npt

from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.schema_columns import SchemaColumns
from covey.matcher.engines.rows.arrays import Ids, Numbers, Runs
from covey.matcher.engines.rows.row_kernels import ROW_SIGNATURE, set_signature
from covey.matcher.events.event_type import EventType

Tested = tuple[int, ...]
Shapes = tuple[int, ...]  # `plan.Shape` of each test; empty where a store has no use for them


_SMALLEST = 16
_NONE: Mapping[int, int] = {}


class Signatures:
    """Signatures that rows have, by number; rows laid out in different ways have *variants* of one."""

    def __init__(self) -> None:
        self.columns: list[Tested] = []
        self.shapes: list[Shapes] = []
        self.plans: npt.NDArray[np.int32] = np.zeros(_SMALLEST, dtype=np.int32)
        self.variants: list[int] = []
        self.row_counts: list[int] = []
        self._numbers: dict[tuple[Tested, Shapes, int], dict[int, int]] = {}  # by variant
        self._free: list[int] = []

    def __len__(self) -> int:
        """How many are in use."""
        return sum(map(len, self._numbers.values()))

    def find(self, columns: Tested, shapes: Shapes, plan: int) -> Mapping[int, int]:
        """The numbers of a signature by variant."""
        return self._numbers.get((columns, shapes, plan), _NONE)

    def add(self, columns: Tested, shapes: Shapes, plan: int, variant: int = 0) -> int:
        """The number of a new signature, without rows."""
        number = self._free.pop() if self._free else len(self.columns)
        if number == len(self.columns):
            self.columns.append(columns)
            self.shapes.append(shapes)
            self.variants.append(variant)
            self.row_counts.append(0)
            if number == len(self.plans):
                self.plans = np.concatenate([self.plans, np.zeros_like(self.plans)])
        self.columns[number], self.shapes[number], self.variants[number] = columns, shapes, variant
        self.plans[number] = plan
        self._numbers.setdefault((columns, shapes, plan), {})[variant] = number
        return number

    def release(self, number: int, rows: int) -> None:
        """Subtract rows; without any, the signature is removed."""
        self.row_counts[number] -= rows
        if self.row_counts[number] == 0:
            key = self.columns[number], self.shapes[number], int(self.plans[number])
            variants = self._numbers[key]
            del variants[self.variants[number]]
            if not variants:
                del self._numbers[key]
            self._free.append(number)

    def forget_unused(self) -> None:
        """Remove signatures that never got rows."""
        known = [number for variants in self._numbers.values() for number in variants.values()]
        for number in known:
            self.release(number, 0)

    def in_use(self) -> list[int]:
        """The numbers of signatures with rows."""
        return [number for number, rows in enumerate(self.row_counts) if rows]


ALL = 1 << 62  # more than any event matches


class RowArrays(Protocol):
    """Arrays by row number: the fields of a row (`row_kernels`), and the subscription's id."""

    @property
    def rows(self) -> npt.NDArray[np.int32]: ...

    @property
    def ids(self) -> Ids: ...


class RowStore(ABC):
    """Rows of interval tests; bounds are matrices lows[t, i] and highs[t, i] of test t and row i."""

    arrays: RowArrays

    def __init__(self, event_type: EventType) -> None:
        self.event_type = event_type
        self.schema = SchemaColumns(event_type)
        self.signatures = Signatures()
        self._row_numbers = Runs("rows")

    def widen(self, event_type: EventType, schema: SchemaColumns) -> None:
        """Allow tests on the columns of a schema that begins with the present one."""
        self.event_type, self.schema = event_type, schema

    # --- numbers ----------------------------------------------------------------------------------

    @abstractmethod
    def _resize_rows(self, size: int) -> None:
        """Give arrays by row number `size` places."""

    @property
    def row_top(self) -> int:
        """One more than the highest row number ever allocated."""
        return self._row_numbers.top

    @abstractmethod
    def widen_ids(self) -> None:
        """Make room for ids of 64 bits."""

    def new_rows(self, count: int, each: int) -> Numbers:
        """The first rows of `count` runs of `each` rows; allocates none if it raises."""
        top, capacity = self._row_numbers.top_after(count, each), len(self.arrays.ids)
        if top > capacity:
            self._resize_rows(max(top, capacity + capacity // 4))
        return self._row_numbers.allocate(count, each)

    def free_rows(self, firsts: Numbers, each: int) -> None:
        """Free runs of rows that have been removed."""
        self._row_numbers.free(firsts, each)

    def signature(self, columns: tuple[int, ...], shapes: tuple[int, ...] = (), plan: int = 0) -> int:
        """The number of a signature, a new one if there is none."""
        number = self.signatures.find(columns, shapes, plan).get(0)
        return self.signatures.add(columns, shapes, plan) if number is None else number

    def signatures_of(self, rows: Numbers) -> Numbers:
        signatures: Numbers = self.arrays.rows[rows, ROW_SIGNATURE].astype(np.int64)
        return signatures

    def plans_of(self, rows: Numbers) -> Numbers:
        """The plan of every row; rows must be in the structure, or have no box."""
        signatures = self.signatures_of(rows)
        return np.where(signatures < 0, ~signatures, self.signatures.plans[np.maximum(signatures, 0)])

    def plan_of(self, row: int) -> int:
        """As `plans_of`, of one row."""
        signature = int(self.arrays.rows[row, ROW_SIGNATURE])
        return ~signature if signature < 0 else int(self.signatures.plans[signature])

    def _sign(self, rows: Numbers, signature: int) -> None:
        set_signature(self.arrays.rows, rows, signature)
        self.signatures.row_counts[signature] += len(rows)

    def _count_signatures(self, rows: Numbers) -> list[tuple[int, int]]:
        signatures = self.arrays.rows[rows, ROW_SIGNATURE]
        if len(rows) == 1:
            return [(int(signatures[0]), 1)]
        distinct, counts = np.unique(signatures, return_counts=True)
        return list(zip(distinct.tolist(), counts.tolist(), strict=True))

    def _release_signatures(self, rows: Numbers) -> None:
        for signature, count in self._count_signatures(rows):
            self.signatures.release(signature, count)
        self.arrays.rows[rows, ROW_SIGNATURE] = -1

    # --- rows in the structure --------------------------------------------------------------------

    @abstractmethod
    def insert(self, rows: Numbers, signature: int, lows: Keys, highs: Keys) -> None:
        """Insert rows of one signature."""

    def insert_chosen(
        self, rows: Numbers, signature: int, lows: Keys, highs: Keys, positions: Numbers
    ) -> None:
        chosen = [np.ascontiguousarray(bounds[:, positions]) for bounds in (lows, highs)]
        self.insert(rows[positions], signature, *chosen)

    def insert_alike(
        self,
        rows: Numbers,
        columns: list[tuple[int, ...]],
        shapes: tuple[int, ...],
        plans: list[int],
        of_plan: Numbers,
        lows: Keys,
        highs: Keys,
    ) -> None:
        """Insert rows of plans that differ in columns alone; row i is of plans[of_plan[i]]."""
        order = np.argsort(of_plan, kind="stable")
        ends = np.cumsum(np.bincount(of_plan, minlength=len(plans)))
        for tested, plan, positions in zip(columns, plans, np.split(order, ends[:-1]), strict=True):
            self.insert_chosen(rows, self.signature(tested, shapes, plan), lows, highs, positions)

    @abstractmethod
    def remove(self, rows: Numbers) -> None:
        """Remove rows that have equally many tests; their numbers stay allocated."""

    @abstractmethod
    def write_parts(self, rows: Numbers, parts: list[int], values: Keys) -> None:
        """Write the bounds values[p, i] of parts[p]: 1 + 2t is test t's low end, 2 + 2t its high end, low
        before high. The rows' plans may differ, but not in the tests written.
        """

    def _with_parts(
        self, rows: Numbers, parts: list[int], values: Keys
    ) -> Iterator[tuple[int, Numbers, Keys, Keys]]:
        """(signature, its rows, their bounds after `write_parts`)"""
        signatures = self.signatures_of(rows)
        for signature in np.unique(signatures).tolist():
            positions = np.flatnonzero(signatures == signature)
            lows, highs = self.read(rows[positions], len(self.signatures.columns[signature]))
            for part, line in zip(parts, values, strict=True):
                (lows if part % 2 else highs)[(part - 1) // 2] = line[positions]
            yield signature, rows[positions], lows, highs

    @abstractmethod
    def read(self, rows: Numbers, tests: int) -> tuple[Keys, Keys]:
        """lows[tests, n] and highs[tests, n] of rows that have so many tests."""

    def testing(self, columns: set[int]) -> Iterator[tuple[Numbers, tuple[int, ...], Keys, Keys]]:
        """(rows of one signature that tests some of these columns, the columns it tests, their bounds)"""
        chosen = [n for n in self.signatures.in_use() if not columns.isdisjoint(self.signatures.columns[n])]
        of_rows = self.arrays.rows[: self.row_top, ROW_SIGNATURE].copy()
        rows = np.flatnonzero(np.isin(of_rows, chosen))
        rows = rows[np.argsort(of_rows[rows], kind="stable")]
        for members in np.split(rows, np.flatnonzero(np.diff(of_rows[rows])) + 1):
            if len(members):
                tested = self.signatures.columns[int(of_rows[members[0]])]
                yield members, tested, *self.read(members, len(tested))

    # --- matching and inspection ------------------------------------------------------------------

    @abstractmethod
    def begin_match(self, keys: Keys) -> None:
        """Do the work deferred to the next match, which is of these events."""

    @abstractmethod
    def ids(self, keys: Keys, *, shared: bool) -> tuple[Numbers, Numbers]:
        """CSR offsets and ids of matching subscriptions, each id once; `shared`: several rows may match."""

    @abstractmethod
    def counts(self, keys: Keys, *, shared: bool, most: int = ALL) -> Numbers:
        """How many subscriptions each event matches; a search may end after `most`."""

    @abstractmethod
    def set_interfaces(self, keys: Keys, bits: npt.NDArray[np.uint64], in_use: int) -> None:
        """Set the bits of the interfaces that each event matches; `in_use` of them have subscriptions."""

    def row_bytes(self) -> int:
        """Bytes of the fields and ids of rows."""
        return self.arrays.rows.nbytes + self.arrays.ids.nbytes

    @abstractmethod
    def structure_bytes(self) -> dict[str, int]:
        """Bytes of the structure, by part."""

    @abstractmethod
    def render(self, columns: Columns) -> list[str]:
        """The structure, for people."""
