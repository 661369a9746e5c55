"""The check that constraints fit the calls that bind their free variables.

A filter is true for an event if some choice of its calls' solutions satisfies it. So a call binds each free
variable of a constraint in every alternative: in every conjunction of the disjunctive normal form, which is
not computed for this. (Range restriction; Liu et al., section 2.1.)
"""

from __future__ import annotations

from covey.matcher.errors import FilterError
from covey.matcher.events.event_type import EventType, Kind
from covey.matcher.expressions.calls import argument_kinds, operand_kinds
from covey.matcher.expressions.checking import NAME, Variables, check_factor, check_operand, check_operator
from covey.matcher.expressions.constraints import positive
from covey.matcher.expressions.expression import (
    And,
    Call,
    Constraint,
    Expression,
    Free,
    Or,
    all_of,
    any_of,
)
from covey.matcher.expressions.operators import COMPARISONS
from covey.matcher.expressions.values import FAMILY, Family

FREE_LIMIT = 64
"""The most free variables of a filter."""

_COMPARISONS = frozenset(COMPARISONS.values())


class LeafError(FilterError):
    """A `FilterError` about one leaf."""

    def __init__(self, message: str, leaf: Call | Constraint) -> None:
        super().__init__(message)
        self.leaf = leaf


def check_free_variables(event_type: EventType, expression: Expression, variables: Variables) -> Expression:
    """The expression with its constraints in normal form, their variables recorded; `LeafError` where a
    constraint does not fit.
    """
    check = _Check(event_type, variables)
    check.read(expression)
    if not check.has_constraints:
        return expression
    return check.checked(expression, 0)


class _Check:
    def __init__(self, event_type: EventType, variables: Variables) -> None:
        self.kinds: dict[str, Kind | None] = {**event_type.attributes}
        self.variables = variables
        self.bits: dict[str, int] = {}
        """Of each free variable that a call binds."""
        self.bound: dict[int, int] = {}
        """Of a node by identity: the bits of the free variables that each of its alternatives binds."""
        self.has_constraints = False

    def read(self, expression: Expression) -> None:
        """Collect the free variables and their kinds, from the left."""
        pending = [expression]
        while pending:
            part = pending.pop()
            if isinstance(part, Call):
                self.bind(part)
            elif isinstance(part, Constraint):
                self.has_constraints = True
            elif isinstance(part, (And, Or)):
                pending.extend(reversed(part.parts))

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
        """The bits of the free variables that every alternative binds; of the false expression, all."""
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
        """The expression in normal form where the expressions around it bind these bits."""
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
    """The constraint, its operand unchecked; `FilterError` for what is no comparison of free variables."""
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
