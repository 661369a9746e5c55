"""Atoms of calls: what covering compares of the calls of named operators in a conjunction.

A call without free variables is an atom by itself (`CallAtom`). Calls with common free variables, and the
constraints on these, are one atom (`Joint`), true where one binding satisfies all of them. A filter with free
variables over the cap of the normal form is one atom as a whole (`Whole`), since a tree of regions would bind
each part by itself.

An atom is implied by an equal one, by one whose arguments the operator's covering rule calls narrower, and a
joint one by a homomorphism of its free variables. Nothing else is tried, so that a yes is always right. The
calls of an operator with state are implied by nothing: what they answer depends on the events that the rest
of their filter lets through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from zlib import crc32

from covey.matcher.expressions.expression import Constant, Constraint, Operand, Scalar, Variable
from covey.matcher.expressions.operators import SPECS, Operator
from covey.matcher.operators.rules import covers_arguments, has_covering_rule, is_stateful

FREE = "?"
"""Stands for a free variable in the shape of a call."""

MOST_CALLS = 64
"""The most calls of a joint atom, and of the joint atoms that it is compared with."""

STEP_BUDGET = 1024
"""The most calls that a search for a homomorphism tries to map."""

Shape = tuple[str, tuple[str | None, ...]]
"""The operator of a call, and per argument the attribute, `FREE`, or None for a value."""


@dataclass(frozen=True, slots=True)
class CallAtom:
    """A call. `values` has an entry per argument: a value, a `Variable` without one, None for an attribute or
    free variable, a `Constant` for true and false of an unknown operator.
    """

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
    """A filter, by the text of its structure and the operands, constants where they have values."""

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

_Name = tuple[int, str]
"""A free variable: the number of its joint atom, and its name there."""
_Terms = tuple[tuple[int | float, _Name], ...]
_Known = dict[_Terms, list[tuple[Operator, Operand]]]


def implies_joint(atoms: Sequence[Joint], joint: Joint) -> bool:
    """Is a joint atom true wherever these are? A mapping of its free variables to theirs shows it, under
    which each of its calls is implied by one of their calls, and each of its constraints by one of theirs.
    """
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
    """Whether the free variables of the first call can be mapped, and then those of the others."""
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
    """A constraint over other names; two terms in order, the first of them positive. Neither changes what is
    computed in floating point, unlike another order of three terms, or another scale.
    """
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
    """Does every value that passes `a s` pass `b t`? False where a simple comparison does not show it."""
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
    """Is a less than b, also once both are floats? False for values that do not compare."""
    numbers = isinstance(a, int | float) and isinstance(b, int | float)
    if isinstance(a, bool) is not isinstance(b, bool) or not (numbers or type(a) is type(b)):
        return False
    less: bool = a < b  # type: ignore[operator]
    return less and (not numbers or float(a) < float(b))  # type: ignore[arg-type]


# --- for the index ------------------------------------------------------------------------------------------


def keys_of(atom: CallAtom | Joint | Whole) -> list[int]:
    """Numbers of 32 bits: those of an atom are among those of the atoms that imply it."""
    if isinstance(atom, Whole):
        return [crc32(atom.text.encode())]
    if isinstance(atom, Joint):
        return [_key(call) for call, _ in atom.calls]
    return [_key(atom)]


def _key(call: CallAtom) -> int:
    if has_covering_rule(call.shape[0]):
        return _key_of_shape(call.shape, call.expected)
    return crc32(repr((call.shape, call.values, call.expected)).encode("utf-8", "backslashreplace"))


@lru_cache(1024)
def _key_of_shape(shape: Shape, expected: bool) -> int:
    return crc32(repr((shape, expected)).encode())
