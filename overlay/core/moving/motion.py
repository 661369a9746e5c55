"""Variables that move by themselves: a value, a rate, and since when.

`$limit = Motion(100.0, 0.5)` is 100 now and 0.5 more every second, so that a vehicle at constant speed sends
no updates. A filter is evaluated at the ingress time of the event, by the clock that stamps events, so that
the result is the same everywhere; joined events share one ingress time (`joining.py`). A moving variable may
only be a bound of an attribute, in `<`, `<=`, `>`, `>=` or `between`: brokers announce a wider, temporary
bound for it (`announcing.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from covey.matcher.errors import VariableError
from covey.matcher.evaluation.bound_calls import is_stateful
from covey.matcher.expressions.expression import And, Call, Expression, Leaf, Or, Predicate, Variable
from covey.matcher.expressions.operators import SPECS

if TYPE_CHECKING:
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter


@dataclass(frozen=True, slots=True)
class Motion:
    """`value + rate * t`, t in seconds since `since_ns`; 0 stands for the time of the call that takes it."""

    value: float
    rate: float
    since_ns: int = 0

    def at(self, now_ns: int) -> float:
        return self.value + self.rate * ((now_ns - self.since_ns) / 1e9)

    def __str__(self) -> str:
        return f"{self.value:g}{'-' if self.rate < 0 else '+'}{abs(self.rate):g}*t"


def leaves(expression: Expression) -> list[Leaf]:
    """The leaves of an expression, in order."""
    if isinstance(expression, And | Or):
        return [leaf for part in expression.parts for leaf in leaves(part)]
    return [expression]


def predicates(expression: Expression) -> list[Predicate]:
    """The leaves that are predicates, in order."""
    return [leaf for leaf in leaves(expression) if isinstance(leaf, Predicate)]


def directions(filter: Filter) -> dict[str, int]:
    """For each variable the direction that widens the filter: 1 up, -1 down, 0 neither.

    A variable that occurs in both directions has 0, and so has one of a call. Exact for a structure, where
    each variable occurs once.
    """
    signs: dict[str, int] = {}
    for leaf in leaves(filter.expression):
        widening = {} if isinstance(leaf, Call) else SPECS[leaf.operator].widening
        for number, operand in enumerate(_operands(leaf)):
            if isinstance(operand, Variable):
                sign = widening.get(number, 0) * (1 if operand.scale > 0 else -1)
                signs[operand.name] = sign if signs.get(operand.name, sign) == sign else 0
    return signs


def _operands(leaf: Leaf) -> tuple[object, ...]:
    if isinstance(leaf, Predicate):
        return leaf.operands
    return leaf.arguments if isinstance(leaf, Call) else (leaf.operand,)


def moves(values: Mapping[str, object]) -> bool:
    """Whether any of these values is a motion."""
    return Motion in map(type, values.values())


def still(values: Mapping[str, Scalar], now_ns: int) -> Mapping[str, Scalar]:
    """The values at one time."""
    if not moves(values):
        return values
    return {name: value.at(now_ns) if isinstance(value, Motion) else value for name, value in values.items()}


def check_values(
    filter: Filter, values: Mapping[str, object], *, partial: bool = False, now_ns: int = 0
) -> dict[str, Scalar]:
    """As `Filter.check_values`, with motions among the values; those without `since_ns` start at `now_ns`.

    `VariableError` names a moving variable that is not a bound, whose value or rate is not finite, or whose
    filter calls an operator with state: each batch would have other values, and state belongs to them.
    """
    if not moves(values):
        return filter.check_values(values, partial=partial)
    for call in filter.calls:
        if is_stateful(call):
            raise VariableError(
                f"filter {filter} has a variable that moves, and calls {call.operator}, which has state: "
                "expected values"
            )
    plain = {name: value.value if isinstance(value, Motion) else value for name, value in values.items()}
    checked = filter.check_values(plain, partial=partial)
    for name, value in values.items():
        if not isinstance(value, Motion):
            continue
        for what in ("value", "rate"):
            number = getattr(value, what)
            if isinstance(number, bool) or not isinstance(number, int | float) or not math.isfinite(number):
                raise VariableError(
                    f"variable ${name} moves with {what} {number!r}: expected a finite number"
                )
        for leaf in leaves(filter.expression):
            if isinstance(leaf, Predicate) and SPECS[leaf.operator].widening:
                continue
            if any(isinstance(operand, Variable) and operand.name == name for operand in _operands(leaf)):
                raise VariableError(
                    f"variable ${name} moves, and stands in {_shown(leaf)}: "
                    "expected a bound of an attribute, in <, <=, >, >= or between"
                )
        checked[name] = cast("Scalar", value if value.since_ns else replace(value, since_ns=now_ns))
    return checked


def _shown(leaf: Leaf) -> str:
    if isinstance(leaf, Predicate):
        return f"{leaf.attribute} {leaf.operator.value}"
    return f"a call of {leaf.operator}" if isinstance(leaf, Call) else "a value constraint"
