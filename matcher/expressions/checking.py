"""The check that an expression fits its event type.

Filters from text and from Python pass it, and so fail with the same messages. Checked expressions are in
normal form: constants as from `values.normal`, scales and offsets as from `values.shortest`. A filter with
free variables is true for an event if some choice of its calls' solutions satisfies it, so a call must bind
each free variable of a constraint in every conjunction of the disjunctive normal form. (Range restriction;
Liu et al., section 2.1.)"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from math import isfinite

from covey.matcher.errors import FilterError, VariableError, closest_of
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.expressions.calls import argument_kinds, common_family, family_of, operand_kinds
from covey.matcher.expressions.constraints import positive
from covey.matcher.expressions.expression import (
    And,
    Argument,
    Call,
    Column,
    Constant,
    Constraint,
    Expression,
    Free,
    Operand,
    Or,
    Predicate,
    Scalar,
    Variable,
    all_of,
    any_of,
    leaves,
)
from covey.matcher.expressions.operators import COMPARISONS, SPECS, Operator, spellings
from covey.matcher.expressions.values import FAMILY, Family, coerce, evaluate, normal, shortest
from covey.matcher.operators.named_operator import NamedOperator, Takes
from covey.matcher.operators.table import find, names, why_missing

# --- predicates -----------------------------------------------------------------------------------


DEPTH_LIMIT = 200
"""The deepest nesting of parentheses. Each may have an `and` in an `or`: a tree is at most twice as deep."""

NAME = re.compile(r"[A-Za-z0-9_]+\Z")
_LONGEST_OFFSET_S = 10**9 * 86_400

EXPECTED = {
    Family.NUMBER: "a number or a variable",
    Family.STRING: "a string or a variable",
    Family.BOOL: "true, false or a variable",
    Family.TIMESTAMP: 'a time such as "2026-01-31T12:00:00" or a variable',
    Family.ANY: "a constant or a variable",
}

_SCALED = (Family.NUMBER, Family.ANY)


class Variables:
    """The variables of a filter, in order of first appearance, each with the family of its first use."""

    __slots__ = ("_first", "families")

    def __init__(self) -> None:
        self.families: dict[str, Family] = {}
        self._first: dict[str, tuple[str, Kind | None]] = {}

    def use(self, operand: Operand, attribute: str, kind: Kind | None) -> None:
        """Record a use; `FilterError` if an earlier use was of another family."""
        if not isinstance(operand, Variable):
            return
        new = FAMILY[kind] if kind is not None else family_of(operand, kind)
        family = self.families.setdefault(operand.name, new)
        first = self._first.setdefault(operand.name, (attribute, kind))
        if family is new:
            return
        both = common_family(family, new)
        if both is None:
            raise FilterError(
                f"variable ${operand.name} is compared with {first[0]} ({first[1] or family}) "
                f"and with {attribute} ({kind or new}): expected attributes of one kind"
            )
        self.families[operand.name] = both


def unknown_attribute(event_type: EventType, name: str) -> str:
    """The error message for an unknown attribute, with the attributes of the type and the closest name."""
    names = event_type.names
    listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    close = get_close_matches(name, names, n=1)
    hint = f" (did you mean {close[0]}?)" if close else ""
    return f"{event_type.name} has no attribute {name!r}; it has {listed}{hint}"


def check_operator(attribute: str, kind: Kind, operator: Operator) -> None:
    """`FilterError` unless this operator tests attributes of this kind."""
    kinds = SPECS[operator].kinds
    if kind in kinds:
        return
    if kind is Kind.STRINGS:
        raise FilterError(
            f"{attribute} is {kind}: expected exists({attribute}) or a call such as "
            f'has_any({attribute}, "a"), not {operator}'
        )
    if len(kinds) == 1:
        raise FilterError(f"{attribute} is {kind}: {operator} needs a {min(kinds)} attribute")
    raise FilterError(f"{attribute} is {kind}: expected {' or '.join(spellings(kind))}, not {operator}")


def check_operand(attribute: str, kind: Kind | None, operand: Operand) -> Operand:
    """The operand in normal form; `FilterError` if it does not fit attributes of this kind. The kind is None
    for an argument of an unknown operator."""
    family = Family.ANY if kind is None else FAMILY[kind]
    if isinstance(operand, Constant):
        try:
            return Constant(normal(kind, coerce(family, operand.value)))
        except ValueError as error:
            reason = f"expected {EXPECTED[family]}" if str(error) == f"expected {family}" else str(error)
            raise FilterError(f"{_typed(attribute, kind)}: {reason}, not {_shown(operand.value)}") from None
    if not isinstance(operand, Variable):
        raise FilterError(f"{attribute}: operand {operand!r}, expected a constant or a variable")
    if not isinstance(operand.name, str) or not NAME.match(operand.name):
        raise FilterError(f"variable {operand.name!r}: expected a name of letters, digits and _")
    variable = f"variable ${operand.name}"
    scale = check_factor(operand.scale, variable, "scale")
    offset = check_factor(operand.offset, variable, "offset")
    if scale == 0:
        raise FilterError(f"{variable}: scale 0, expected a number other than 0")
    if family not in _SCALED and (scale != 1 or (offset != 0 and family is not Family.TIMESTAMP)):
        plus = ", plus or minus seconds" if family is Family.TIMESTAMP else ""
        raise FilterError(f"{_typed(attribute, kind)}: expected ${operand.name} as it is{plus}")
    if family is Family.TIMESTAMP and abs(offset) > _LONGEST_OFFSET_S:
        raise FilterError(
            f"variable ${operand.name}: offset {offset} s, expected at most {_LONGEST_OFFSET_S} s"
        )
    return Variable(operand.name, scale, offset)


def _typed(attribute: str, kind: Kind | None) -> str:
    return attribute if kind is None else f"{attribute} is {kind}"


def check_factor(number: int | float, of: str, field: str) -> int | float:
    """A scale or offset in normal form; `FilterError` unless it is a finite number."""
    try:
        checked = coerce(Family.NUMBER, number)
        assert isinstance(checked, (int, float))
        if not isfinite(checked):
            raise ValueError("expected a finite number")
    except ValueError as error:
        raise FilterError(f"{of}: {field} {number!r}, {error}") from None
    return shortest(checked)


def _shown(value: Scalar) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def check_predicate(event_type: EventType, predicate: Predicate, variables: Variables) -> Predicate:
    """The predicate in normal form, its variables recorded; `FilterError` if it does not fit its type."""
    attribute = predicate.attribute
    kind = event_type.attributes.get(attribute)
    if kind is None:
        raise FilterError(unknown_attribute(event_type, attribute))
    operator = Operator(predicate.operator)
    check_operator(attribute, kind, operator)
    expected = SPECS[operator].operand_count
    if expected is not None and len(predicate.operands) != expected:
        raise FilterError(f"{attribute} {operator}: {len(predicate.operands)} operands, expected {expected}")
    operands = tuple([check_operand(attribute, kind, operand) for operand in predicate.operands])
    for operand in operands:
        variables.use(operand, attribute, kind)
    return Predicate(attribute, operator, operands)


# --- calls ----------------------------------------------------------------------------------------


_TAKEN = {
    Takes.ATTRIBUTE: "an attribute",
    Takes.CONSTANT: "a constant or a variable",
    Takes.FREE: "a free variable",
}


def operator_of(name: str, unknown_operators: bool = False) -> NamedOperator | None:
    """The operator of a name; None if it is unknown and `unknown_operators`, else `FilterError`."""
    operator = find(name)
    if operator is not None or unknown_operators:
        return operator
    reason = why_missing(name)
    if reason != "unknown":
        raise FilterError(f"operator {name}: {reason}")
    raise FilterError(f"unknown operator {name!r}{closest_of(name, names()) if names() else ''}")


def check_call(event_type: EventType, call: Call, variables: Variables, unknown_operators: bool) -> Call:
    """The call in normal form, its variables recorded; `FilterError` if it does not fit its operator."""
    operator = operator_of(call.operator, unknown_operators)
    check_count(call, operator)
    arguments = [
        check_argument(event_type, operator, call.operator, place, argument, variables)
        for place, argument in enumerate(call.arguments)
    ]
    return check_whole(replace(call, arguments=tuple(arguments)), operator)


def check_count(call: Call, operator: NamedOperator | None) -> None:
    """`FilterError` for too few or too many arguments."""
    least, most = (1, None) if operator is None else operator.argument_counts
    count = len(call.arguments)
    if count < least or (most is not None and count > most):
        signature = call.operator if operator is None else operator.signature
        expected = f"{least}"
        if most != least:
            expected += " or more" if most is None else f" to {most}"
        raise FilterError(f"{call.operator} has {counted(count)}: expected {expected}, as in {signature}")


def counted(count: int) -> str:
    return "1 argument" if count == 1 else f"{count} arguments"


def check_argument(
    event_type: EventType,
    operator: NamedOperator | None,
    name: str,
    place: int,
    argument: Argument,
    variables: Variables,
) -> Argument:
    """The argument at a place in normal form, its variable recorded; `FilterError` names the parameter."""
    parameter = None if operator is None else operator.parameter(place)
    if parameter is None or operator is None:
        where, kind = f"argument {place + 1} of {name}", None
    else:
        where, kind = f"{parameter.name} of {operator.signature}", parameter.kind
        taken = _taken(argument)
        if taken not in parameter.takes:
            expected = " or ".join([text for each, text in _TAKEN.items() if each in parameter.takes])
            raise FilterError(f"{where}: expected {expected}, not {_TAKEN[taken]}")
    if isinstance(argument, Free):
        if not isinstance(argument.name, str) or not NAME.match(argument.name):
            raise FilterError(f"free variable {argument.name!r}: expected a name of letters, digits and _")
        return argument
    if isinstance(argument, Column):
        its_kind = event_type.attributes.get(argument.attribute)
        if its_kind is None:
            raise FilterError(unknown_attribute(event_type, argument.attribute))
        if parameter is not None and its_kind not in parameter.kinds:
            expected = " or ".join(sorted(parameter.kinds))
            raise FilterError(f"{where}: expected {expected}, not {argument.attribute}, which is {its_kind}")
        return argument
    operand = check_operand(where, kind, argument)
    if kind is Kind.INT64 and isinstance(operand, Constant) and not isinstance(operand.value, int):
        raise FilterError(f"{where}: expected an integer of 64 bits, not {operand.value!r}")
    variables.use(operand, where, kind)
    return operand


def check_whole(call: Call, operator: NamedOperator | None) -> Call:
    """The call, whose arguments are checked; `FilterError` if they do not fit together."""
    if not call.attributes:
        raise FilterError(f"{call.operator} has no attribute among its arguments: expected at least one")
    if call.free and not call.expected:
        raise FilterError(
            f"not before {call.operator}, which binds ?{call.free[0]}: expected a negated constraint instead"
        )
    problem = _refused(operator, [a.value if isinstance(a, Constant) else None for a in call.arguments])
    if problem is not None:
        raise FilterError(problem)
    return call


def check_call_values(calls: Iterable[Call], values: Mapping[str, Scalar]) -> None:
    """`VariableError` if an operator refuses these checked values."""
    for call in calls:
        operator = find(call.operator)
        if operator is None or (operator.check is None and not operator.takes_integers):
            continue
        arguments: list[Scalar | None] = []
        for place, (argument, kind) in enumerate(zip(call.arguments, argument_kinds(call), strict=True)):
            value: Scalar | None = None
            if isinstance(argument, Constant) or (isinstance(argument, Variable) and argument.name in values):
                value = evaluate(argument, values, kind)
                if kind is Kind.INT64 and not isinstance(value, int):
                    where = f"{operator.parameter(place).name} of {operator.signature}"
                    raise VariableError(f"{where}: expected an integer of 64 bits, not {value!r}")
            arguments.append(value)
        problem = _refused(operator, arguments)
        if problem is not None:
            raise VariableError(problem)


def _refused(operator: NamedOperator | None, arguments: Sequence[Scalar | None]) -> str | None:
    if operator is None or operator.check is None:
        return None
    try:
        operator.check(arguments)
    except Exception as error:  # of a function that Covey does not know
        return f"{operator.name}: {error}"
    return None


def _taken(argument: object) -> Takes:
    if isinstance(argument, Column):
        return Takes.ATTRIBUTE
    if isinstance(argument, Free):
        return Takes.FREE
    if isinstance(argument, Constant | Variable):
        return Takes.CONSTANT
    raise FilterError(f"argument {argument!r}: expected a Column, Constant, Variable or Free")


# --- free variables -------------------------------------------------------------------------------


FREE_LIMIT = 64  # the most free variables of a filter

_COMPARISONS = frozenset(COMPARISONS.values())


class LeafError(FilterError):
    def __init__(self, message: str, leaf: Call | Constraint) -> None:
        super().__init__(message)
        self.leaf = leaf


def check_free_variables(event_type: EventType, expression: Expression, variables: Variables) -> Expression:
    """The expression with constraints in normal form, their variables recorded; `LeafError` if one does not
    fit."""
    check = _FreeVariables(event_type, variables)
    check.read(expression)
    if not check.has_constraints:
        return expression
    return check.checked(expression, 0)


class _FreeVariables:
    def __init__(self, event_type: EventType, variables: Variables) -> None:
        self.kinds: dict[str, Kind | None] = {**event_type.attributes}
        self.variables = variables
        self.bits: dict[str, int] = {}  # of each free variable that a call binds
        self.bound: dict[int, int] = {}
        """By id of a node: the bits of the free variables that each of its alternatives binds."""
        self.has_constraints = False

    def read(self, expression: Expression) -> None:
        for leaf in leaves(expression):
            if isinstance(leaf, Call):
                self.bind(leaf)
            self.has_constraints |= isinstance(leaf, Constraint)

    def bind(self, call: Call) -> None:
        for argument, kind in zip(call.arguments, argument_kinds(call), strict=True):
            if not isinstance(argument, Free):
                continue
            if self.bits.setdefault(argument.name, 1 << len(self.bits)) == 1 << FREE_LIMIT:
                raise LeafError(f"filter has more than {FREE_LIMIT} free variables", call)
            name = f"?{argument.name}"
            earlier = self.kinds.get(name)
            if earlier is not None and kind is not None and FAMILY[earlier] is not FAMILY[kind]:
                raise LeafError(
                    f"{name} is {FAMILY[earlier]} in an earlier call and {FAMILY[kind]} in {call.operator}: "
                    "expected one family",
                    call,
                )
            self.kinds[name] = kind if earlier is None else earlier

    def bits_of(self, expression: Expression) -> int:
        """The bits of the free variables that every alternative binds; all bits for the false expression."""
        if isinstance(expression, Call):
            return sum([self.bits[name] for name in expression.free])
        if not isinstance(expression, (And, Or)):
            return 0
        known = self.bound.get(id(expression))
        if known is None:
            known = 0 if isinstance(expression, And) else -1
            for part in expression.parts:
                bits = self.bits_of(part)
                known = known | bits if isinstance(expression, And) else known & bits
            self.bound[id(expression)] = known
        return known

    def checked(self, expression: Expression, bound: int) -> Expression:
        """The expression in normal form, inside expressions that bind these bits."""
        if isinstance(expression, Constraint):
            return self.constraint(expression, bound)
        if not isinstance(expression, (And, Or)):
            return expression
        if isinstance(expression, And):
            bound |= self.bits_of(expression)
        parts: list[Expression] = []
        for part in expression.parts:
            parts.append(self.checked(part, bound))  # noqa: PERF401 (saves stack)
        return all_of(parts) if isinstance(expression, And) else any_of(parts)

    def constraint(self, constraint: Constraint, bound: int) -> Constraint:
        for _, name in constraint.terms:
            if not self.bits.get(name, 0) & bound:
                where = " in every alternative" if name in self.bits else ""
                raise LeafError(f"no call binds ?{name}{where}: expected one, joined by and", constraint)
        try:
            return self.fitting(positive(constraint))
        except FilterError as error:
            raise LeafError(str(error), constraint) from None

    def fitting(self, constraint: Constraint) -> Constraint:
        names = [name for _, name in constraint.terms]
        plain = len(names) == 1 and constraint.terms[0][0] == 1
        for name in names:
            kind = self.kinds[f"?{name}"]
            if not plain and kind is not None and FAMILY[kind] is not Family.NUMBER:
                raise FilterError(f"?{name} is {kind}: expected ?{name} as it is, without a sum or a scale")
        (kind,) = operand_kinds(constraint, self.kinds)
        shown = f"?{names[0]}" if plain else "a sum of free variables"
        if kind is not None:
            check_operator(shown, kind, constraint.operator)
        operand = check_operand(shown, kind, constraint.operand)
        self.variables.use(operand, shown, kind)
        return Constraint(constraint.terms, constraint.operator, operand)


def check_terms(constraint: Constraint) -> Constraint:
    """The constraint, its operand unchecked; `FilterError` unless it compares free variables."""
    if constraint.operator not in _COMPARISONS:
        raise FilterError(f"operator {constraint.operator} in a constraint: expected a comparison")
    names = [name for _, name in constraint.terms]
    if not names or len(set(names)) != len(names):
        raise FilterError(f"constraint of {names}: expected free variables, each once")
    for _, name in constraint.terms:
        if not isinstance(name, str) or not NAME.match(name):
            raise FilterError(f"free variable {name!r}: expected a name of letters, digits and _")
    if any(scale == 0 for scale, _ in constraint.terms):
        raise FilterError(f"constraint of {names}: scale 0, expected a number other than 0")
    terms = [(check_factor(scale, f"?{name}", "scale"), name) for scale, name in constraint.terms]
    return Constraint(tuple(terms), constraint.operator, constraint.operand)


# --- whole expressions ----------------------------------------------------------------------------


def check_expression(
    event_type: EventType, expression: Expression, unknown_operators: bool = False
) -> Expression:
    """The expression in normal form; `FilterError` if a part does not fit, or it is too deep."""
    return _Check(event_type, unknown_operators).whole(expression)


class _Check:
    def __init__(self, event_type: EventType, unknown_operators: bool) -> None:
        self.event_type = event_type
        self.unknown_operators = unknown_operators
        self.variables = Variables()
        self.has_calls = False

    def whole(self, expression: Expression) -> Expression:
        checked = self.checked(expression, 0)
        if self.has_calls:
            return check_free_variables(self.event_type, checked, self.variables)
        return checked

    def checked(self, expression: Expression, depth: int) -> Expression:
        if isinstance(expression, Predicate):
            return check_predicate(self.event_type, expression, self.variables)
        if not isinstance(expression, (And, Or)):
            return self.leaf(expression)
        if depth > 2 * DEPTH_LIMIT + 1:
            raise FilterError(f"filter is nested more than {DEPTH_LIMIT} deep")
        parts: list[Expression] = []
        for part in expression.parts:
            parts.append(self.checked(part, depth + 1))  # noqa: PERF401 (saves stack)
        return all_of(parts) if isinstance(expression, And) else any_of(parts)

    def leaf(self, leaf: Call | Constraint) -> Call | Constraint:
        self.has_calls = True
        if isinstance(leaf, Call):
            return check_call(self.event_type, leaf, self.variables, self.unknown_operators)
        if not isinstance(leaf, Constraint):
            raise FilterError(f"expression {leaf!r}: expected a Predicate, Call, Constraint, And or Or")
        return check_terms(leaf)
