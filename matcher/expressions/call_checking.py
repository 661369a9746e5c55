"""The check that a call fits its operator: how many arguments it has, and which of them stand where.

A call of an operator that is unknown here is an error, unless it is accepted as it is, as brokers do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from covey.matcher.errors import FilterError, VariableError, closest_of
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.expressions.calls import argument_kinds
from covey.matcher.expressions.checking import NAME, Variables, check_operand, unknown_attribute
from covey.matcher.expressions.expression import (
    Argument,
    Call,
    Column,
    Constant,
    Free,
    Scalar,
    Variable,
)
from covey.matcher.expressions.values import evaluate
from covey.matcher.operators.named_operator import NamedOperator, Takes
from covey.matcher.operators.table import find, names, why_missing

_TAKEN = {
    Takes.ATTRIBUTE: "an attribute",
    Takes.CONSTANT: "a constant or a variable",
    Takes.FREE: "a free variable",
}


def operator_of(name: str, unknown_operators: bool = False) -> NamedOperator | None:
    """The operator of a name; None where it is unknown and may be. `FilterError` says what there is."""
    operator = find(name)
    if operator is not None or unknown_operators:
        return operator
    reason = why_missing(name)
    if reason != "unknown":
        raise FilterError(f"operator {name}: {reason}")
    raise FilterError(f"unknown operator {name!r}{closest_of(name, names()) if names() else ''}")


def check_call(event_type: EventType, call: Call, variables: Variables, unknown_operators: bool) -> Call:
    """The call in normal form, its variables recorded; `FilterError` when it does not fit its operator."""
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
    """A number of arguments, in words."""
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
    """The call, whose arguments fit each by itself. `FilterError` where they do not together."""
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
    """`VariableError` where these checked values are such as an operator cannot take."""
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
    """Why an operator cannot take these values."""
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
