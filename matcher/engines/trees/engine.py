"""The engine of trees: filters outside normal form, each evaluated only on events that pass its access rows.

A row is one subscription: the bounds of its tree's leaves, and its access rows in a cluster store. An event's
candidates are the rows with an access row that the event passes. Access rows have copies of leaves' bounds,
so a write to a leaf writes both. Invariant: the access rows of a row are consecutive, and their subscription
is the row's number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.form_model import PASSED
from covey.matcher.compile.plan import Shape, TestPlan
from covey.matcher.compile.tree_plan import Row, access_rows
from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys
from covey.matcher.encoding.schema_columns import SchemaColumns
from covey.matcher.engines.cluster.store import ClusterStore
from covey.matcher.engines.cluster.tuning.configuration import Policy
from covey.matcher.engines.reference.reference_store import SearchedStore
from covey.matcher.engines.rows.arrays import Numbers, Runs, grown, object_bytes
from covey.matcher.engines.rows.engine import RowEngine
from covey.matcher.engines.rows.plans import TreePlans, show_tree
from covey.matcher.engines.rows.row_kernels import ROW_PLACE, ROW_SIGNATURE, describe_rows
from covey.matcher.engines.trees import tree_kernels as k
from covey.matcher.errors import CoveyError
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType
from covey.matcher.events.int64 import FIRST, LAST, MISSING, NOTHING

CERTAINTY = 8  # events; the weight of the prior where events are sampled
_SAMPLED = 256  # events that a leaf is tried on, at most


_Kind = TypeVar("_Kind", bound=np.generic)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The layout of a signature's rows: bounds per row, each leaf's offset, the leaves of each access row."""

    size: int
    shapes: tuple[int, ...]
    offsets: tuple[int, ...]
    access: tuple[Row, ...]
    leaf_run: int
    word_run: int
    words: int

    def ends(self, leaf: int) -> tuple[int, int]:
        """Where a leaf's low and high end are in a row's bounds, -1 for an open end."""
        at, shape = self.offsets[leaf], self.shapes[leaf]
        if shape == Shape.LOW:
            return at, -1
        if shape == Shape.HIGH:
            return -1, at
        return at, at + (shape == Shape.BOTH)


class TreeStore(SearchedStore):
    def __init__(self, event_type: EventType, plans: TreePlans) -> None:
        super().__init__(event_type)
        self._plans = plans
        self.access = ClusterStore(event_type, Policy.of("adaptive"))
        self._several = 0  # rows that have several access rows
        self._layouts: dict[int, _Layout] = {}
        self._places, self._lines, self._words = (
            Runs("bounds"),
            Runs("leaves of trees"),
            Runs("words of trees"),
        )
        self._firsts: npt.NDArray[np.int32] = np.zeros(len(self.arrays.ids), dtype=np.int32)  # access rows
        self._trees = k.Trees(
            heads=np.zeros((16, 2), dtype=np.int32),
            leaves=np.zeros((64, 3), dtype=np.int32),
            words=np.zeros(64, dtype=np.int32),
            bounds=np.zeros(64, dtype=np.int64),
            tops=_tops(self.schema),
            stack=np.zeros((16, 2), dtype=np.int64),
        )

    def widen(self, event_type: EventType, schema: SchemaColumns) -> None:
        super().widen(event_type, schema)
        self.access.widen(event_type, schema)
        self._trees = self._trees._replace(tops=_tops(schema))

    def _resize_rows(self, size: int) -> None:
        super()._resize_rows(size)
        self._firsts = grown(self._firsts, size)

    # --- rows in the structure --------------------------------------------------------------------

    def insert(self, rows: Numbers, signature: int, lows: Keys, highs: Keys) -> None:
        if not len(rows):
            return
        layout = self._layouts.get(signature)
        if layout is None:
            layout = self._describe(signature, lows[:, 0], highs[:, 0])
        places = None
        try:
            places = self._places.allocate(len(rows), layout.size)
            self._trees = self._trees._replace(bounds=_fitting(self._trees.bounds, self._places.top))
            self._insert_access(layout, signature, rows, lows, highs)
        except (CoveyError, MemoryError):
            if places is not None:
                self._places.free(places, layout.size)
            self._forget([signature])
            raise
        self._sign(rows, signature)
        self.arrays.rows[rows, ROW_PLACE] = places
        matrix = np.empty((len(rows), layout.size), dtype=np.int64)
        for leaf, shape in enumerate(layout.shapes):
            low, high = layout.ends(leaf)
            if shape <= Shape.FIXED:
                matrix[:, low] = np.where(lows[leaf] == highs[leaf], lows[leaf], NOTHING)
                continue
            if low >= 0:
                matrix[:, low] = lows[leaf]
            if high >= 0:
                matrix[:, high] = highs[leaf]
        self._trees.bounds[places[:, None] + np.arange(layout.size)] = matrix
        self._several += len(rows) if len(layout.access) > 1 else 0

    def _insert_access(self, layout: _Layout, signature: int, rows: Numbers, lows: Keys, highs: Keys) -> None:
        access, each = self.access, len(layout.access)
        columns = self.signatures.columns[signature]
        firsts = access.new_rows(len(rows), each)
        try:
            describe_rows(firsts, each, rows, 0, np.zeros_like(rows), access.arrays.rows, access.arrays.ids)
            for n, leaves in enumerate(layout.access):
                tested = tuple([columns[leaf] for leaf in leaves])
                shapes = tuple([layout.shapes[leaf] for leaf in leaves])
                access.insert(
                    firsts + n, access.signature(tested, shapes), lows[list(leaves)], highs[list(leaves)]
                )
        except (CoveyError, MemoryError):  # no room
            for n in range(each):
                inserted = firsts + n
                inserted = inserted[access.signatures_of(inserted) >= 0]
                if len(inserted):
                    access.remove(inserted)
            access.signatures.forget_unused()
            access.free_rows(firsts, each)
            raise
        self._firsts[rows] = firsts

    def remove(self, rows: Numbers) -> None:
        for signature, mine in self._by_signature(rows):
            layout = self._layouts[signature]
            each, firsts = len(layout.access), self._firsts[mine].astype(np.int64)
            for n in range(each):
                self.access.remove(firsts + n)
            self.access.free_rows(firsts, each)
            self._places.free(self.arrays.rows[mine, ROW_PLACE].astype(np.int64), layout.size)
            self._several -= len(mine) if each > 1 else 0
        signatures = {signature for signature, _ in self._count_signatures(rows)}
        self._release_signatures(rows)
        self._forget(signatures)

    def write_parts(self, rows: Numbers, parts: list[int], values: Keys) -> None:
        bounds = self._trees.bounds
        for signature, mine, positions in self._parted(rows):
            layout = self._layouts[signature]
            places = self.arrays.rows[mine, ROW_PLACE].astype(np.int64)
            lines = values if positions is None else values[:, positions]
            for part, line in zip(parts, lines, strict=True):
                leaf, is_high = (part - 1) // 2, part % 2 == 0
                at = layout.ends(leaf)[is_high]
                if at < 0:
                    continue
                if layout.shapes[leaf] <= Shape.FIXED and is_high:
                    line = np.where(bounds[places + at] == line, line, NOTHING)
                bounds[places + at] = line
            for n, leaves in enumerate(layout.access):
                copied = [
                    (2 * leaves.index((part - 1) // 2) + 2 - part % 2, number)
                    for number, part in enumerate(parts)
                    if (part - 1) // 2 in leaves
                ]
                if copied:
                    firsts = self._firsts[mine].astype(np.int64) + n
                    chosen = np.ascontiguousarray(lines[[number for _, number in copied]])
                    self.access.write_parts(firsts, [part for part, _ in copied], chosen)

    def read(self, rows: Numbers, tests: int) -> tuple[Keys, Keys]:
        lows = np.full((tests, len(rows)), FIRST, dtype=np.int64)
        highs = np.empty((tests, len(rows)), dtype=np.int64)
        if not len(rows):
            return lows, highs
        signature = int(self.arrays.rows[rows[0], ROW_SIGNATURE])
        layout, columns = self._layouts[signature], self.signatures.columns[signature]
        places = self.arrays.rows[rows, ROW_PLACE].astype(np.int64)
        for leaf, shape in enumerate(layout.shapes):
            low, high = layout.ends(leaf)
            if low >= 0:
                lows[leaf] = self._trees.bounds[places + low]
            highs[leaf] = self._trees.tops[columns[leaf]] if high < 0 else self._trees.bounds[places + high]
            if shape <= Shape.FIXED:
                highs[leaf][lows[leaf] == NOTHING] = MISSING
        return lows, highs

    def _parted(self, rows: Numbers) -> Iterator[tuple[int, Numbers, Numbers | None]]:
        """(signature, its rows, their positions or None for all)"""
        signatures = self.arrays.rows[rows, ROW_SIGNATURE]
        distinct = np.unique(signatures).tolist()
        for signature in distinct:
            if len(distinct) == 1:
                yield signature, rows, None
            else:
                positions = np.flatnonzero(signatures == signature)
                yield signature, rows[positions], positions

    def _by_signature(self, rows: Numbers) -> Iterator[tuple[int, Numbers]]:
        for signature, mine, _ in self._parted(rows):
            yield signature, mine

    # --- descriptions of signatures ---------------------------------------------------------------

    def _describe(self, signature: int, lows: Keys, highs: Keys) -> _Layout:
        """Lay out a new signature, whose first row has these bounds."""
        number, columns = int(self.signatures.plans[signature]), self.signatures.columns[signature]
        shape, shapes = self._plans.shapes[number], self.signatures.shapes[signature]
        sizes = [2 if each == Shape.BOTH else 1 for each in shapes]
        offsets = np.cumsum([0, *sizes], dtype=np.int64)
        passed = self._passed(number, columns, shapes, lows, highs)
        leaf_run = int(self._lines.allocate(1, max(len(shapes), 1))[0])
        word_run = int(self._words.allocate(1, len(shape.words))[0])
        trees = self._trees = self._trees._replace(
            heads=_fitting(self._trees.heads, len(self.signatures.columns)),
            leaves=_fitting(self._trees.leaves, self._lines.top),
            words=_fitting(self._trees.words, self._words.top),
            stack=_fitting(self._trees.stack, shape.depth + 1),
        )
        trees.heads[signature] = leaf_run, word_run
        trees.words[word_run : word_run + len(shape.words)] = shape.words
        lines = np.array([columns, shapes, offsets[:-1]], dtype=np.int32).T
        trees.leaves[leaf_run : leaf_run + len(shapes)] = lines
        layout = self._layouts[signature] = _Layout(
            max(int(offsets[-1]), 1),
            tuple(map(int, shapes)),
            tuple(offsets[:-1].tolist()),
            access_rows(shape.words.tolist(), passed).rows,
            leaf_run,
            word_run,
            len(shape.words),
        )
        return layout

    def _passed(
        self, number: int, columns: tuple[int, ...], shapes: tuple[int, ...], lows: Keys, highs: Keys
    ) -> list[float]:
        """The estimated fraction of events that passes each leaf: a prior by shape, and sampled events."""
        tests = self._plans[number].plan.boxes[0].tests
        passed = [
            1.0 if test is not None and _is_presence(test) else PASSED[Shape(shape)]
            for shape, test in zip(shapes, [*tests, *[None] * (len(shapes) - len(tests))], strict=True)
        ]
        keys = self.access.placement.events.keys(max(columns, default=-1) + 1)[-_SAMPLED:]
        if len(keys):
            tested = keys[:, list(columns)]
            hits = ((tested >= lows) & (tested <= highs)).sum(axis=0)
            passed = [
                (int(hit) + CERTAINTY * prior) / (len(keys) + CERTAINTY)
                for hit, prior in zip(hits, passed, strict=True)
            ]
        return passed

    def _forget(self, signatures: Iterable[int]) -> None:
        for signature in signatures:
            if self.signatures.row_counts[signature] == 0:
                layout = self._layouts.pop(signature)
                self._lines.free(np.array([layout.leaf_run]), max(len(layout.shapes), 1))
                self._words.free(np.array([layout.word_run]), layout.words)

    # --- matching ---------------------------------------------------------------------------------

    def begin_match(self, keys: Keys) -> None:
        self.access.begin_match(keys)

    def _match(self, keys: Keys, start: int, offsets: Numbers, found: Numbers) -> int:
        starts, candidates = self.access.ids(keys[start:], shared=self._several > 0)
        done: int = k.evaluate_candidates(
            self._trees, self.arrays.rows, keys, start, starts, candidates, offsets, found
        )
        return done

    # --- inspection -------------------------------------------------------------------------------

    def structure_bytes(self) -> dict[str, int]:
        t = self._trees
        return {
            "bounds": t.bounds.nbytes + self._places.nbytes,
            "trees": t.heads.nbytes + t.leaves.nbytes + t.words.nbytes + object_bytes([self._layouts]),
            "access rows": self._firsts.nbytes
            + self.access.row_bytes()
            + sum(self.access.structure_bytes().values())
            + object_bytes([self.access.signatures]),
        }

    def render(self, columns: Columns) -> list[str]:
        return [f"access rows: {line}" for line in self.access.render(columns)]


def _is_presence(test: TestPlan) -> bool:
    return test.lower is None and test.upper is None and test.low != test.high


def _tops(schema: SchemaColumns) -> Keys:
    """By column, the high end of a test that has only a lower bound."""
    tops = schema.tops()
    return np.concatenate([tops, np.full(schema.top - len(tops), LAST, dtype=np.int64)])


def _fitting(array: npt.NDArray[_Kind], size: int) -> npt.NDArray[_Kind]:
    return array if size <= len(array) else grown(array, max(size, len(array) * 3 // 2))


class TreeEngine(RowEngine):
    """Matches every filter as a tree, whatever its normal form."""

    name: ClassVar[str] = "trees"
    plans: TreePlans
    store: TreeStore

    def _new_plans(self) -> TreePlans:
        return TreePlans(self.columns.schema)

    def _new_store(self) -> TreeStore:
        return TreeStore(self.event_type, self.plans)

    def _explain(self, number: int, first: int, event: EventBatch) -> list[str]:
        return show_tree(self.plans, number, super()._explain(number, first, event))
