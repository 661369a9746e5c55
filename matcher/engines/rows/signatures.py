"""Signatures: the columns that a row tests, and the shapes of its tests, by number."""

from __future__ import annotations

Columns = tuple[int, ...]
Shapes = tuple[int, ...]
"""`plan.Shape` of each test; empty where a store makes no use of them."""


class Signatures:
    """A number per signature while rows have it; `columns`, `shapes`, `variants` and `row_counts` are by
    number. Rows that a store lays out in different ways have different *variants* of one signature.
    """

    def __init__(self) -> None:
        self.columns: list[Columns] = []
        self.shapes: list[Shapes] = []
        self.variants: list[int] = []
        self.row_counts: list[int] = []
        self._numbers: dict[tuple[Columns, Shapes, int], int] = {}
        self._free: list[int] = []

    def __len__(self) -> int:
        """How many are in use."""
        return len(self._numbers)

    def find(self, columns: Columns, shapes: Shapes, variant: int = 0) -> int | None:
        return self._numbers.get((columns, shapes, variant))

    def add(self, columns: Columns, shapes: Shapes, variant: int = 0) -> int:
        """A number for a signature that has none; it has no rows yet."""
        number = self._free.pop() if self._free else len(self.columns)
        if number == len(self.columns):
            self.columns.append(columns)
            self.shapes.append(shapes)
            self.variants.append(variant)
            self.row_counts.append(0)
        self.columns[number], self.shapes[number], self.variants[number] = columns, shapes, variant
        self._numbers[columns, shapes, variant] = number
        return number

    def release(self, number: int, rows: int) -> None:
        """Count so many rows less; without rows a signature is gone."""
        self.row_counts[number] -= rows
        if self.row_counts[number] == 0:
            del self._numbers[self.columns[number], self.shapes[number], self.variants[number]]
            self._free.append(number)

    def in_use(self) -> list[int]:
        """The numbers of signatures with rows."""
        return [number for number, rows in enumerate(self.row_counts) if rows]
