"""The boxes of plans as rows of a store: one row per box and subscription.

Text tests (`prefix`, the order of strings ...) are derived columns, so their values decide which columns a
row tests: a new value takes the row out and inserts it under another signature.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from covey.matcher.compile.bounds import Operands, box_bounds, side_keys
from covey.matcher.compile.plan import BoxPlan
from covey.matcher.encoding.columns import Columns
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.engines.rows.store import RowStore


class BoxRows:
    """Inserts, removes and moves the rows of boxes, and counts the users of their columns."""

    def __init__(self, columns: Columns, store: RowStore) -> None:
        self._columns = columns
        self._store = store

    def insert(self, number: int, plan: BoxPlan, rows: Numbers, operands: Operands) -> None:
        """Insert the rows of one box of a plan of this number, with the values of its operands."""
        self._columns.test(plan.columns, len(rows))
        lows, highs = box_bounds(plan, operands, len(rows))
        for positions, signature in self._signatures(number, plan, len(rows), operands):
            if positions is None:
                self._store.insert(rows, signature, lows, highs)
            else:
                self._store.insert_chosen(rows, signature, lows, highs, positions)

    def remove(self, plan: BoxPlan, rows: Numbers) -> None:
        """Remove the rows of one box."""
        self._columns.untest(plan.columns, len(rows))
        if not plan.texts:
            self._store.remove(rows)
            return
        signatures, counts = np.unique(self._store.signatures_of(rows), return_counts=True)
        derived = [self._derived(plan, signature) for signature in signatures.tolist()]
        self._store.remove(rows)
        for columns, count in zip(derived, counts.tolist(), strict=True):
            for column in columns:
                self._columns.release(column, count)

    def move(
        self, number: int, plan: BoxPlan, rows: Numbers, operands: Operands, changed: frozenset[int]
    ) -> None:
        """Give rows new values of the operands `changed`, texts among them."""
        lows, highs = self._store.read(rows, plan.size)
        for t, test in enumerate(plan.tests):
            if test.lower is not None and test.lower.operand in changed:
                lows[t] = side_keys(test, test.lower, operands, lower=True)
            if test.upper is not None and test.upper.operand in changed:
                highs[t] = side_keys(test, test.upper, operands, lower=False)
        old = self._store.signatures_of(rows).tolist()
        derived = {signature: self._derived(plan, signature) for signature in set(old)}
        self._store.remove(rows)
        by_signature: dict[int, list[int]] = {}
        for position, signature in enumerate(old):
            columns = []
            for attribute, text, column in zip(
                plan.text_columns, plan.texts, derived[signature], strict=True
            ):
                constant = self._columns.constant(column)
                if text.operand in changed:
                    value = operands[text.operand]
                    constant = value[position].as_py() if isinstance(value, pa.Array) else str(value)
                columns.append(self._columns.acquire((attribute, text.operator, constant)))
            fresh = self._store.signature((*plan.columns, *columns), plan.shapes, number)
            by_signature.setdefault(fresh, []).append(position)
        for signature in old:
            for column in derived[signature]:
                self._columns.release(column)
        for signature, positions in by_signature.items():
            self._store.insert_chosen(rows, signature, lows, highs, np.array(positions, dtype=np.int64))

    def _derived(self, plan: BoxPlan, signature: int) -> tuple[int, ...]:
        """The derived columns of a signature of a plan."""
        return self._store.signatures.columns[signature][len(plan.tests) :]

    def _signatures(
        self, number: int, plan: BoxPlan, count: int, operands: Operands
    ) -> Iterator[tuple[Numbers | None, int]]:
        """(positions, or None for all, and their signature)"""
        if not plan.texts:
            yield None, self._store.signature(plan.columns, plan.shapes, number)
            return
        values = [operands[text.operand] for text in plan.texts]
        if count == 1 or not any(isinstance(value, pa.Array) for value in values):
            yield None, self._text_signature(number, plan, tuple([str(value) for value in values]), count)
            return
        columns = [
            value.to_pylist() if isinstance(value, pa.Array) else [str(value)] * count for value in values
        ]
        group_of: dict[tuple[str, ...], int] = {}
        group = np.zeros(count, dtype=np.int64)
        for position, constants in enumerate(zip(*columns, strict=True)):
            group[position] = group_of.setdefault(constants, len(group_of))
        for constants, member in group_of.items():
            positions = np.flatnonzero(group == member)
            yield positions, self._text_signature(number, plan, constants, len(positions))

    def _text_signature(self, number: int, plan: BoxPlan, constants: tuple[str, ...], users: int) -> int:
        derived = [
            self._columns.acquire((column, text.operator, constant), users)
            for column, text, constant in zip(plan.text_columns, plan.texts, constants, strict=True)
        ]
        return self._store.signature((*plan.columns, *derived), plan.shapes, number)
