"""Filters that have no normal form under the cap: their expression tree, evaluated over a whole batch at
a time.

A predicate is one mask over the events, made from the same keys and columns that rows use; `and` and `or`
combine masks. Cost: one pass over the batch per predicate and subscription; nothing grows exponentially
(DESIGN section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from covey.matcher.columns import Columns
from covey.matcher.event_type import Kind
from covey.matcher.expression import And, Expression, Operand, Operator, Predicate, Scalar
from covey.matcher.filter import Filter
from covey.matcher.keys import MISSING, Keys, largest_key, lower_key, upper_key
from covey.matcher.values import evaluate

Mask = npt.NDArray[np.bool_]
_Evaluate = Callable[[Keys], Mask]

_NEGATIONS = {
    Operator.NE: Operator.EQ,
    Operator.NOT_IN: Operator.IN,
    Operator.NOT_PREFIX: Operator.PREFIX,
    Operator.NOT_SUFFIX: Operator.SUFFIX,
    Operator.NOT_CONTAINS: Operator.CONTAINS,
}


@dataclass(slots=True)
class Tree:
    """One subscription: its filter with values in place, made ready for key matrices."""

    filter: Filter
    values: dict[str, Scalar]
    interface: int
    evaluate: _Evaluate
    derived: list[int]
    codes: list[int]


def make_tree(filter: Filter, values: Mapping[str, Scalar], interface: int, columns: Columns) -> Tree:
    """A tree over checked values; it holds its derived columns until `release_tree`."""
    maker = _Maker(filter, values, columns, [], [])
    evaluate_tree = maker.node(filter.expression)
    return Tree(filter, dict(values), interface, evaluate_tree, maker.derived, maker.codes)


def release_tree(tree: Tree, columns: Columns) -> None:
    """Give a tree's derived columns back."""
    for number in tree.derived:
        columns.release(number)


@dataclass(slots=True)
class _Maker:
    filter: Filter
    values: Mapping[str, Scalar]
    columns: Columns
    derived: list[int]
    codes: list[int]

    def node(self, expression: Expression) -> _Evaluate:
        if isinstance(expression, Predicate):
            return self.predicate(expression)
        parts = [self.node(part) for part in expression.parts]
        combine, neutral = (np.logical_and, True) if isinstance(expression, And) else (np.logical_or, False)

        def evaluate_node(keys: Keys) -> Mask:
            mask = np.full(len(keys), neutral)
            for part in parts:
                combine(mask, part(keys), out=mask)
            return mask

        return evaluate_node

    def predicate(self, predicate: Predicate) -> _Evaluate:
        event_type = self.filter.event_type
        column, kind = event_type.index(predicate.attribute), event_type.attributes[predicate.attribute]
        operator = predicate.operator
        if operator is Operator.NOT_EXISTS:
            return lambda keys: keys[:, column] == MISSING
        if operator is Operator.BETWEEN and kind is Kind.STRING:
            first, last = predicate.operands
            ends = (
                Predicate(predicate.attribute, Operator.GE, (first,)),
                Predicate(predicate.attribute, Operator.LE, (last,)),
            )
            return self.node(And(ends))
        negated = operator in _NEGATIONS
        operator = _NEGATIONS.get(operator, operator)
        masks = self.masks(operator, column, kind, predicate.operands)

        def evaluate_predicate(keys: Keys) -> Mask:
            mask = np.zeros(len(keys), dtype=np.bool_)
            for low, high, tested in masks:
                mask |= (keys[:, tested] >= low) & (keys[:, tested] <= high)
            return (keys[:, column] != MISSING) & ~mask if negated else mask

        return evaluate_predicate

    def masks(
        self, operator: Operator, column: int, kind: Kind, operands: tuple[Operand, ...]
    ) -> list[tuple[int, int, int]]:
        """(low, high, column) of intervals, one of which must hold."""
        values = [evaluate(operand, self.values, kind) for operand in operands]
        if operator is Operator.EXISTS:
            return [(MISSING + 1, 2**63 - 1, column)]
        if kind is Kind.STRING and operator not in (Operator.EQ, Operator.IN):
            return self.textual(operator, column, [str(value) for value in values])
        if kind is Kind.STRING:
            values = [self.code(str(value)) for value in values]
        least, largest = MISSING + 1, largest_key(kind)
        if operator in (Operator.EQ, Operator.IN):
            return [(lower_key(kind, v, False), upper_key(kind, v, False), column) for v in values]
        if operator is Operator.BETWEEN:
            return [(lower_key(kind, values[0], False), upper_key(kind, values[1], False), column)]
        if operator is Operator.NOT_BETWEEN:
            below = (least, upper_key(kind, values[0], True), column)
            return [below, (lower_key(kind, values[1], True), largest, column)]
        if operator in (Operator.LT, Operator.LE):
            return [(least, upper_key(kind, values[0], operator is Operator.LT), column)]
        return [(lower_key(kind, values[0], operator is Operator.GT), largest, column)]

    def textual(self, operator: Operator, column: int, texts: list[str]) -> list[tuple[int, int, int]]:
        if operator is Operator.NOT_BETWEEN:
            return [
                *self.textual(Operator.LT, column, texts[:1]),
                *self.textual(Operator.GT, column, texts[1:]),
            ]
        number = self.columns.acquire((column, operator, texts[0]))
        self.derived.append(number)
        return [(1, 1, number)]

    def code(self, text: str) -> int:
        found = self.columns.strings.code(text)
        self.codes.append(found)
        return found
