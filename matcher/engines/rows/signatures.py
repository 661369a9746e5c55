"""Signatures: the plan of a row, the columns that it tests, and the shapes of its tests, by number."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Columns = tuple[int, ...]
Shapes = tuple[int, ...]
"""`plan.Shape` of each test; empty where a store makes no use of them."""


_SMALLEST = 16
_NONE: Mapping[int, int] = {}


class Signatures:
    """A number per signature while rows have it; `columns`, `shapes`, `plans`, `variants` and `row_counts`
    are by number. Rows that a store lays out in different ways have different *variants* of one signature.
    """

    def __init__(self) -> None:
        self.columns: list[Columns] = []
        self.shapes: list[Shapes] = []
        self.plans: npt.NDArray[np.int32] = np.zeros(_SMALLEST, dtype=np.int32)
        self.variants: list[int] = []
        self.row_counts: list[int] = []
        self._numbers: dict[tuple[Columns, Shapes, int], dict[int, int]] = {}  # by variant
        self._free: list[int] = []

    def __len__(self) -> int:
        """How many are in use."""
        return sum(map(len, self._numbers.values()))

    def find(self, columns: Columns, shapes: Shapes, plan: int) -> Mapping[int, int]:
        """The numbers of a signature by variant."""
        return self._numbers.get((columns, shapes, plan), _NONE)

    def add(self, columns: Columns, shapes: Shapes, plan: int, variant: int = 0) -> int:
        """A number for a signature that has none; it has no rows yet."""
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
        """Count so many rows less; without rows a signature is gone."""
        self.row_counts[number] -= rows
        if self.row_counts[number] == 0:
            key = self.columns[number], self.shapes[number], int(self.plans[number])
            variants = self._numbers[key]
            del variants[self.variants[number]]
            if not variants:
                del self._numbers[key]
            self._free.append(number)

    def forget_unused(self) -> None:
        """Remove those that never got rows."""
        known = [number for variants in self._numbers.values() for number in variants.values()]
        for number in known:
            self.release(number, 0)

    def in_use(self) -> list[int]:
        """The numbers of signatures with rows."""
        return [number for number, rows in enumerate(self.row_counts) if rows]
