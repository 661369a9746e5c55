"""From values to the atoms of calls, and to the cuts that calls imply.

As `cutting.py` does for predicates: what does not depend on values is computed once per conjunction. A call
implies that its attributes are present, and that they lie within the bounds that its operator states
(`NamedOperator.bounds`). A variable without a value stays in the atom, which then has no bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from covey.matcher.covering.call_atoms import FREE, CallAtom, Joint, Whole
from covey.matcher.covering.cuts import LINES
from covey.matcher.covering.cutting import Getter, Values, getter
from covey.matcher.covering.intervals import Cuts, union
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.expressions.calls import argument_kinds, kinds_of, operand_kinds
from covey.matcher.expressions.expression import (
    Argument,
    Call,
    Column,
    Constant,
    Constraint,
    Expression,
    Free,
    Operand,
    Scalar,
    Variable,
)
from covey.matcher.expressions.rewriting import lifted
from covey.matcher.expressions.values import Family, coerce
from covey.matcher.expressions.writing import write
from covey.matcher.operators.named_operator import NUMBERS
from covey.matcher.operators.rules import Intervals, bounds_of, is_stateful, note_bounds
from covey.matcher.operators.table import find

Restriction = tuple[str, Cuts]
"""An attribute, and the only values of it for which a call may be true."""


class CallPlan:
    """One call. `free` has the names of its free variables, in order, with repetitions."""

    __slots__ = ("_attributes", "_getters", "_is_known", "_shape", "_values", "expected", "free")

    def __init__(self, event_type: EventType, call: Call) -> None:
        self.expected = call.expected
        self._is_known = find(call.operator) is not None
        self.free = tuple([argument.name for argument in call.arguments if isinstance(argument, Free)])
        self._shape = (call.operator, tuple([_place(argument) for argument in call.arguments]))
        self._attributes = [
            (place, argument.attribute, event_type.attributes[argument.attribute])
            for place, argument in enumerate(call.arguments)
            if isinstance(argument, Column)
        ]
        self._values: list[Scalar | Constant | Variable | None] = [None] * len(call.arguments)
        self._getters: list[tuple[int, Getter, Variable]] = []
        for place, (argument, kind) in enumerate(zip(call.arguments, argument_kinds(call), strict=True)):
            if isinstance(argument, Constant):
                self._values[place] = argument.value
            elif isinstance(argument, Variable):
                self._getters.append((place, getter(argument, kind), argument))

    def present(self) -> list[Restriction]:
        """That its attributes are present."""
        return [(attribute, LINES[kind].present) for _, attribute, kind in self._attributes]

    def atom(self, values: Values) -> CallAtom:
        filled = self._values.copy()
        for place, get, variable in self._getters:
            try:
                filled[place] = get(values)
            except KeyError:
                filled[place] = variable
        if not self._is_known:  # a value may be true or 1, which are equal in Python
            filled = [Constant(value) if isinstance(value, bool) else value for value in filled]
        return CallAtom(self._shape, tuple(filled), self.expected)

    def bounds(self, atom: CallAtom) -> list[Restriction]:
        """The bounds of its attributes, for these values."""
        name, bounds = self._shape[0], self._bounds(atom)
        return [
            (attribute, cuts)
            for place, attribute, kind in (self._attributes if bounds else ())
            if (cuts := _cuts_of(name, kind, bounds[place])) is not None
        ]

    def intervals(self, atom: CallAtom) -> dict[str, list[tuple[float, float]]]:
        """The closed intervals of its numeric attributes that have bounds, for these values."""
        name, bounds = self._shape[0], self._bounds(atom)
        found: dict[str, list[tuple[float, float]]] = {}
        for place, attribute, kind in self._attributes if bounds else ():
            intervals = bounds[place]
            if intervals is not None and kind in NUMBERS and attribute not in found:
                try:
                    found[attribute] = [(_number(low), _number(high)) for low, high in intervals]
                except Exception as error:  # of code that Covey does not know
                    note_bounds(name, error)
        return found

    def _bounds(self, atom: CallAtom) -> Sequence[Intervals | None]:
        if not self.expected or any(isinstance(value, Variable) for value in atom.values):
            return ()
        return bounds_of(self._shape[0], atom.values)


def _number(end: Any) -> float:
    number = coerce(Family.NUMBER, end)
    assert isinstance(number, int | float)
    return number


def _place(argument: Argument) -> str | None:
    if isinstance(argument, Column):
        return argument.attribute
    return FREE if isinstance(argument, Free) else None


def _cuts_of(name: str, kind: Kind, intervals: Intervals | None) -> Cuts | None:
    if intervals is None:
        return None
    line = LINES[kind]
    try:
        if any(low != low or high != high for low, high in intervals):
            raise ValueError("NaN as an end of an interval")
        pairs = [(line.before(low), line.after(high)) for low, high in intervals]
        return union([pair for pair in pairs if pair[0] < pair[1]])
    except Exception as error:  # of code that Covey does not know
        note_bounds(name, error)
        return None


class JointPlan:
    """Calls with common free variables, and the constraints on these."""

    __slots__ = ("_constraints", "calls")

    def __init__(
        self, event_type: EventType, calls: Sequence[Call], constraints: Sequence[Constraint]
    ) -> None:
        self.calls = [CallPlan(event_type, call) for call in calls]
        kinds = kinds_of(event_type.attributes, calls)
        self._constraints = [
            (constraint, getter(constraint.operand, operand_kinds(constraint, kinds)[0]))
            for constraint in constraints
        ]

    def atom(self, values: Values) -> Joint:
        calls = tuple([(call.atom(values), call.free) for call in self.calls])
        constraints = [
            Constraint(constraint.terms, constraint.operator, _operand(constraint.operand, get, values))
            for constraint, get in self._constraints
        ]
        return Joint(calls, tuple(constraints))

    def bounds(self, joint: Joint) -> list[Restriction]:
        """The bounds of the attributes of all calls."""
        return [
            restriction
            for call, (atom, _) in zip(self.calls, joint.calls, strict=True)
            for restriction in call.bounds(atom)
        ]


def _operand(operand: Operand, get: Getter, values: Values) -> Operand:
    try:
        return Constant(get(values))
    except KeyError:
        return operand


class WholePlan:
    """A filter that is one atom, whatever its variables are called."""

    __slots__ = ("_calls", "_operands", "_text")

    def __init__(self, event_type: EventType, expression: Expression, calls: Sequence[Call]) -> None:
        operands: list[Operand] = []
        kinds: list[Kind | None] = []
        self._text = write(lifted(expression, kinds_of(event_type.attributes, calls), operands, kinds))
        pairs = zip(operands, kinds, strict=True)
        self._operands = [(operand, getter(operand, kind)) for operand, kind in pairs]
        self._calls = calls

    def atom(self, values: Values) -> Whole:
        stateful = any(is_stateful(call.operator) for call in self._calls)
        return Whole(self._text, tuple([_operand(*each, values) for each in self._operands]), stateful)


def joint_plans(
    event_type: EventType, calls: Iterable[Call], constraints: Iterable[Constraint]
) -> list[JointPlan]:
    """The plans of calls with free variables and of constraints, one for those that are connected."""
    groups: list[tuple[set[str], list[Call], list[Constraint]]] = []
    members: list[Call | Constraint] = [*calls, *constraints]
    for member in members:
        free = {name for _, name in member.terms} if isinstance(member, Constraint) else set(member.free)
        joined: tuple[set[str], list[Call], list[Constraint]] = (free, [], [])
        rest = []
        for group in groups:
            if group[0].isdisjoint(free):
                rest.append(group)
            else:
                joined[0].update(group[0])
                joined[1].extend(group[1])
                joined[2].extend(group[2])
        if isinstance(member, Constraint):
            joined[2].append(member)
        else:
            joined[1].append(member)
        groups = [*rest, joined]
    return [JointPlan(event_type, *group[1:]) for group in groups]
