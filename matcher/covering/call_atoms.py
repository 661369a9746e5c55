"""Atoms of calls: what covering compares of the calls of named operators in a conjunction.

A call without free variables is one atom (`CallAtom`). Calls with common free variables, and the constraints
on these, are one atom (`Joint`), true where one binding satisfies all of them. A filter with free variables
over the cap of the normal form is one atom (`Whole`). An atom is implied by an equal one, by one with
arguments that the operator's covering rule makes narrower, and a joint one by a homomorphism of its free
variables; nothing else is tried, so a yes is always right. Calls with state are implied by nothing: their
results depend on which events the rest of the filter passes. A call implies that its attributes are present
and within the bounds of its operator, unless it has a variable without a value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zlib import crc32

from covey.matcher.covering.cuts import LINES, Cuts, union
from covey.matcher.covering.cutting import Getter, Values, getter
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
from covey.matcher.expressions.operators import SPECS, Operator
from covey.matcher.expressions.rewriting import lifted
from covey.matcher.expressions.values import Family, coerce
from covey.matcher.expressions.writing import write
from covey.matcher.operators.named_operator import NUMBERS
from covey.matcher.operators.table import (
    Intervals,
    bounds_of,
    covers_arguments,
    find,
    has_covering_rule,
    is_stateful,
    note_bounds,
)

FREE = "?"  # a free variable in the shape of a call

MOST_CALLS = 64  # calls of a joint atom, and of the joint atoms compared with it

STEP_BUDGET = 1024  # calls that a search for a homomorphism tries to map

Shape = tuple[str, tuple[str | None, ...]]
"""The operator of a call, and per argument its attribute, `FREE`, or None for a value."""


@dataclass(frozen=True, slots=True)
class CallAtom:
    """A call. `values` has one entry per argument: a value; a `Variable` without a value; None for an
    attribute or free variable; a `Constant` for true or false of an unknown operator."""

    shape: Shape
    values: tuple[Scalar | Constant | Variable | None, ...]
    expected: bool = True

    def negated(self) -> CallAtom:
        return CallAtom(self.shape, self.values, not self.expected)


@dataclass(frozen=True, slots=True)
class Joint:
    """Calls, each with the names of its free variables in order, and constraints on these."""

    calls: tuple[tuple[CallAtom, tuple[str, ...]], ...]
    constraints: tuple[Constraint, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """A filter, by the text of its structure and the operands: constants where they have values."""

    text: str
    operands: tuple[Operand, ...]
    is_stateful: bool


# --- calls --------------------------------------------------------------------------------------------------


def implies_call(a: CallAtom, b: CallAtom) -> bool:
    """Is call b true wherever call a is?"""
    if a.shape != b.shape or a.expected is not b.expected:
        return False
    wider, narrower = (b, a) if a.expected else (a, b)
    name = a.shape[0]
    if is_stateful(name):
        return False
    if wider.values == narrower.values:
        return True
    if not has_covering_rule(name):
        return False
    wide: list[Scalar | None] = []
    narrow: list[Scalar | None] = []
    for one, other in zip(wider.values, narrower.values, strict=True):
        if isinstance(one, Variable | Constant) or isinstance(other, Variable | Constant):
            if one != other:
                return False
            one = other = None
        wide.append(one)
        narrow.append(other)
    return covers_arguments(name, wide, narrow)


# --- joint atoms --------------------------------------------------------------------------------------------

_Name = tuple[int, str]  # the number of the joint atom, and the free variable's name there
_Terms = tuple[tuple[int | float, _Name], ...]
_Known = dict[_Terms, list[tuple[Operator, Operand]]]


def implies_joint(atoms: Sequence[Joint], joint: Joint) -> bool:
    """Is `joint` true wherever all `atoms` are? Searches a mapping of its free variables to theirs under
    which their calls imply each of its calls, and their constraints each of its constraints."""
    calls = [(call, [(i, name) for name in free]) for i, one in enumerate(atoms) for call, free in one.calls]
    if len(calls) > MOST_CALLS or len(joint.calls) > MOST_CALLS:
        return False
    choices: list[tuple[tuple[str, ...], list[list[_Name]]]] = []
    for call, free in joint.calls:
        images = [names for other, names in calls if implies_call(other, call)]
        if not images:
            return False
        choices.append((free, images))
    choices.sort(key=lambda choice: len(choice[1]))
    known: _Known = {}
    for i, atom in enumerate(atoms):
        for constraint in atom.constraints:
            terms, operator, operand = _normal(constraint, {name: (i, name) for _, name in constraint.terms})
            known.setdefault(terms, []).append((operator, operand))
    return _mapped(choices, joint.constraints, known, {}, [STEP_BUDGET])


def _mapped(
    choices: Sequence[tuple[tuple[str, ...], list[list[_Name]]]],
    constraints: Sequence[Constraint],
    known: _Known,
    mapping: dict[str, _Name],
    budget: list[int],
) -> bool:
    if not choices:
        return all(_satisfied(constraint, known, mapping) for constraint in constraints)
    free, images = choices[0]
    for image in images:
        budget[0] -= 1
        if budget[0] < 0:
            return False
        extended = dict(mapping)
        if all(extended.setdefault(name, to) == to for name, to in zip(free, image, strict=True)) and _mapped(
            choices[1:], constraints, known, extended, budget
        ):
            return True
    return False


def _satisfied(constraint: Constraint, known: _Known, mapping: dict[str, _Name]) -> bool:
    if len({mapping[name] for _, name in constraint.terms}) < len(constraint.terms):
        return False
    terms, operator, operand = _normal(constraint, mapping)
    return any(value_implies(*other, operator, operand) for other in known.get(terms, ()))


def _normal(constraint: Constraint, names: dict[str, _Name]) -> tuple[_Terms, Operator, Operand]:
    """A constraint over other names, two terms sorted and the first positive. Neither step changes a
    floating-point result; sorting three terms or another scale would."""
    terms = [(scale, names[name]) for scale, name in constraint.terms]
    operator, operand = constraint.operator, constraint.operand
    if len(terms) == 2:
        terms.sort(key=lambda term: term[1])
    mirrored = SPECS[operator].mirrored
    if terms[0][0] < 0 and mirrored is not None:
        terms = [(-scale, name) for scale, name in terms]
        operator, operand = mirrored, _minus(operand)
    return tuple(terms), operator, operand


def _minus(operand: Operand) -> Operand:
    if isinstance(operand, Variable):
        return Variable(operand.name, -operand.scale, -operand.offset)
    assert isinstance(operand.value, int | float)
    return Constant(-operand.value)


_ABOVE, _BELOW = (Operator.GT, Operator.GE), (Operator.LT, Operator.LE)


def value_implies(a: Operator, s: Operand, b: Operator, t: Operand) -> bool:
    """Does every value that passes `a s` pass `b t`? False if a simple comparison does not show it."""
    if s == t:
        return a is b or b in SPECS[a].weaker
    if not isinstance(s, Constant) or not isinstance(t, Constant):
        return False
    less, greater = _is_less(s.value, t.value), _is_less(t.value, s.value)
    if b in _ABOVE:
        return greater and a in (*_ABOVE, Operator.EQ)
    if b in _BELOW:
        return less and a in (*_BELOW, Operator.EQ)
    if b is Operator.NE:
        return (greater and a in (*_ABOVE, Operator.EQ)) or (less and a in (*_BELOW, Operator.EQ))
    return False


def _is_less(a: Scalar, b: Scalar) -> bool:
    """Is a less than b, as floats as well? False for values that do not compare."""
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    if isinstance(a, bool) is not isinstance(b, bool) or not (numbers or type(a) is type(b)):
        return False
    less: bool = a < b  # type: ignore[operator]
    return less and (not numbers or float(a) < float(b))  # type: ignore[arg-type]


# --- for the index ------------------------------------------------------------------------------------------


def keys_of(atom: CallAtom | Joint | Whole) -> list[int]:
    """Numbers of 32 bits; the keys of an atom are a subset of the keys of the atoms that imply it."""
    if isinstance(atom, Whole):
        return [crc32(atom.text.encode())]
    if isinstance(atom, Joint):
        return [_key(call) for call, _ in atom.calls]
    return [_key(atom)]


def _key(call: CallAtom) -> int:
    if has_covering_rule(call.shape[0]):
        return _key_of_shape(call.shape, call.expected)
    values = [float(value) if isinstance(value, int) else value for value in call.values]  # 1 equals 1.0
    return crc32(repr((call.shape, values, call.expected)).encode("utf-8", "backslashreplace"))


@lru_cache(1024)
def _key_of_shape(shape: Shape, expected: bool) -> int:
    return crc32(repr((shape, expected)).encode())


Restriction = tuple[str, Cuts]  # the only values of an attribute for which a call may be true


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
        """The bounds of its attributes, for the values in `atom`."""
        name, bounds = self._shape[0], self._bounds(atom)
        return [
            (attribute, cuts)
            for place, attribute, kind in (self._attributes if bounds else ())
            if (cuts := _cuts_of(name, kind, bounds[place])) is not None
        ]

    def intervals(self, atom: CallAtom) -> dict[str, list[tuple[float, float]]]:
        """The closed intervals of its bounded numeric attributes, for the values in `atom`."""
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
    """A filter as one atom, independent of its variables' names."""

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
    """The plans of calls with free variables and of constraints, one per connected group."""
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
