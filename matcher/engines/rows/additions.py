"""Subscriptions to be added to an engine of rows, and the values of their operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from covey.matcher.compile.bounds import Operands, Values, evaluate_column
from covey.matcher.compile.plan import Plan
from covey.matcher.covering.parts import PartOperand
from covey.matcher.engine import IdArray
from covey.matcher.engines.rows.arrays import Numbers
from covey.matcher.errors import VariableError
from covey.matcher.expressions.expression import Variable


@dataclass(frozen=True, slots=True)
class Addition:
    """Subscriptions to be added: plans that differ in columns alone, which of them each subscription has, and
    the values of their operands.
    """

    plans: list[int]
    of_plan: Numbers
    ids: IdArray
    interfaces: npt.NDArray[np.int64]
    operands: Operands


def operands_of(
    plan: Plan,
    operand_list: Sequence[PartOperand | None],
    values: Mapping[str, Values],
    only: frozenset[int] | None,
) -> Operands:
    """The values of operands by number, of all or `only` these."""
    operands: Operands = {}
    for number, kind in enumerate(plan.kinds):
        if kind is None or (only is not None and number not in only):
            continue
        operand = operand_list[number]
        assert operand is not None
        value: Values = (
            evaluate_column(operand, kind, values[operand.name])
            if isinstance(operand, Variable)
            else operand.value
        )
        operands[number] = value
    return operands


def check_names(plan: Plan, subscription_id: int, values: Mapping[str, object]) -> None:
    """`VariableError` for a variable that the plan's filters do not have. They differ in constants, so an
    error must not show the plan's own filter.
    """
    for name in values:
        if name not in plan.filter.variables:
            known = ", ".join(f"${variable}" for variable in plan.filter.variables) or "none"
            raise VariableError(f"variable ${name} is unknown: subscription {subscription_id} has {known}")
