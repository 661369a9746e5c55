"""From the values of a filter's variables to those of its structure's, with as few steps as possible."""

from __future__ import annotations

from covey.matcher.covering.cutting import Getter, getter
from covey.matcher.events.event_type import Kind
from covey.matcher.expressions.expression import Operand, Variable

LiftingStep = tuple[str, str, float, float, Getter]
"""A variable of the structure and the operand it stands for. The most frequent operand, a float variable, is
given by its name, scale and offset, which need no call; the name is empty for others.
"""


def lifting_steps(operands: tuple[Operand, ...], kinds: tuple[Kind | None, ...]) -> tuple[LiftingStep, ...]:
    """The steps for the operands of a filter, on attributes of these kinds."""
    pairs = zip(operands, kinds, strict=True)
    return tuple([_step(str(number), *pair) for number, pair in enumerate(pairs, 1)])


def _step(name: str, operand: Operand, kind: Kind | None) -> LiftingStep:
    get = getter(operand, kind)
    if kind is Kind.FLOAT64 and isinstance(operand, Variable):
        return name, operand.name, float(operand.scale), float(operand.offset), get
    return name, "", 1.0, 0.0, get
