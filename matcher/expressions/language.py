"""The parser of the filter language; docs/filters.md has its grammar.

`not` is pushed to the leaves during parsing. Invariant: parsing takes linear time and no recursion for any
text; text is bounded by TEXT_LIMIT and nesting by DEPTH_LIMIT."""

from __future__ import annotations

from dataclasses import dataclass, field

from covey.matcher.errors import FilterError, FilterSyntaxError
from covey.matcher.events.event_type import RESERVED, EventType, Kind
from covey.matcher.expressions.checking import (
    DEPTH_LIMIT,
    EXPECTED,
    LeafError,
    Variables,
    check_argument,
    check_count,
    check_free_variables,
    check_operand,
    check_operator,
    check_whole,
    counted,
    operator_of,
    unknown_attribute,
)
from covey.matcher.expressions.constraints import Sum, constraint_of
from covey.matcher.expressions.expression import (
    FALSE,
    TRUE,
    Argument,
    Call,
    Column,
    Constant,
    Constraint,
    Expression,
    Free,
    Operand,
    Predicate,
    Variable,
    all_of,
    any_of,
)
from covey.matcher.expressions.operators import COMPARISONS, SPECS, WORDS, Operator, Syntax, spellings
from covey.matcher.expressions.tokens import TEXT_LIMIT, Token, TokenKind, Tokens
from covey.matcher.expressions.values import FAMILY
from covey.matcher.operators.named_operator import NamedOperator
from covey.matcher.operators.table import find


def parse_expression(text: str, event_type: EventType, unknown_operators: bool = False) -> Expression:
    """The checked expression of a text; `FilterSyntaxError` has the column. Calls of operators that are
    unknown here are errors, or accepted as they are."""
    if len(text) > TEXT_LIMIT:
        raise FilterSyntaxError(
            f"filter has {len(text)} characters: expected at most {TEXT_LIMIT}", text, TEXT_LIMIT
        )
    return _Parser(text, event_type, unknown_operators).filter()


@dataclass(slots=True)
class _Frame:
    """An open parenthesis: its column, whether it is under a `not`, and the expressions read in it so far.
    `groups` are joined by `or`, the parts of a group by `and` (the other way round under a `not`)."""

    column: int
    negative: bool
    groups: list[list[Expression]] = field(default_factory=lambda: [[]])

    def expression(self) -> Expression:
        inner, outer = (any_of, all_of) if self.negative else (all_of, any_of)
        return outer([inner(group) for group in self.groups])


class _Parser:
    def __init__(self, text: str, event_type: EventType, unknown_operators: bool) -> None:
        self.event_type = event_type
        self.unknown_operators = unknown_operators
        self.tokens = Tokens(text)
        self.variables = Variables()
        self.columns: list[tuple[Call | Constraint, int]] = []
        """Columns of calls with free variables, and of constraints."""

    def filter(self) -> Expression:
        expression = self.expression()
        if not self.columns:
            return expression
        try:
            return check_free_variables(self.event_type, expression, self.variables)
        except LeafError as error:
            column = next(column for leaf, column in self.columns if leaf is error.leaf)
            raise self.error(str(error), column) from None

    def expression(self) -> Expression:
        tokens = self.tokens
        if tokens.next.kind is TokenKind.END:
            return TRUE
        frames = [_Frame(0, False)]
        while True:
            negative = frames[-1].negative
            while tokens.next.text in ("not", "!") and tokens.next.kind is not TokenKind.STRING:
                tokens.take()
                negative = not negative
            if tokens.next.is_symbol("("):
                if len(frames) > DEPTH_LIMIT:
                    raise self.error(f"parentheses are nested more than {DEPTH_LIMIT} deep")
                frames.append(_Frame(tokens.take().column, negative))
                continue
            frames[-1].groups[-1].append(self.one(negative))
            while tokens.next.is_symbol(")") and len(frames) > 1:
                tokens.take()
                closed = frames.pop()
                frames[-1].groups[-1].append(closed.expression())
            token = tokens.next
            if token.text in ("and", "&&") and token.kind is not TokenKind.STRING:
                tokens.take()
            elif token.text in ("or", "||") and token.kind is not TokenKind.STRING:
                tokens.take()
                frames[-1].groups.append([])
            elif token.kind is not TokenKind.END:
                closing = ", )" if len(frames) > 1 else ""
                raise self.error(f"expected and, or{closing} or the end of the filter{_meant(token)}")
            elif len(frames) > 1:
                raise self.error("this ( is never closed: expected )", frames[-1].column)
            else:
                return frames[0].expression()

    def one(self, negative: bool) -> Expression:
        tokens = self.tokens
        token = tokens.next
        if token.kind is TokenKind.WORD and token.text in ("true", "false"):
            tokens.take()
            if tokens.next.text in COMPARISONS and tokens.next.kind is TokenKind.SYMBOL:
                return self.compared(token, Constant(token.text == "true"), negative)
            return TRUE if (token.text == "true") is not negative else FALSE
        if token.kind is TokenKind.WORD and token.text == "exists":
            return self.exists(negative)
        if token.kind is TokenKind.WORD and token.text not in RESERVED and not self.is_infinity(token):
            return self.predicate(negative)
        if self.starts_operand(token):
            return self.compared(token, self.operand(None, ""), negative)
        raise self.error(
            f"expected a predicate, such as {self.event_type.names[0]} == ..., not, or ({_after(tokens)}"
        )

    def exists(self, negative: bool) -> Predicate:
        tokens = self.tokens
        tokens.take()
        opened = tokens.next.is_symbol("(")
        if opened:
            tokens.take()
        attribute, _ = self.attribute()
        if opened:
            self.symbol(")")
        return Predicate(attribute, Operator.NOT_EXISTS if negative else Operator.EXISTS)

    def predicate(self, negative: bool) -> Predicate | Call:
        token = self.tokens.next
        if token.text not in self.event_type.attributes and self.tokens.is_call():
            self.tokens.take()
            return self.call(token, negative)
        attribute, kind = self.attribute()
        if self.tokens.next.is_symbol("("):
            return self.call(token, negative)
        operator, after = self.operator(attribute, kind)
        syntax = SPECS[operator].syntax
        if syntax is Syntax.LIST:
            operands = self.members(attribute, kind)
        elif syntax is Syntax.RANGE:
            low = self.fitting(attribute, kind, after)
            if self.tokens.next.kind is not TokenKind.WORD or self.tokens.next.text != "and":
                raise self.error("expected and, between the two ends of between")
            self.tokens.take()
            operands = [low, self.fitting(attribute, kind, "and")]
        else:
            operands = [self.fitting(attribute, kind, after)]
        return Predicate(attribute, operator.complement if negative else operator, tuple(operands))

    def operator(self, attribute: str, kind: Kind) -> tuple[Operator, str]:
        token = self.tokens.next
        operator = COMPARISONS.get(token.text) if token.kind is TokenKind.SYMBOL else None
        after = token.text
        if token.kind is TokenKind.WORD and token.text == "not":
            self.tokens.take()
            word = self.tokens.next
            if word.kind is not TokenKind.WORD or word.text not in WORDS:
                raise self.error(f"expected {', '.join(WORDS)} after not")
            operator, after = WORDS[word.text].complement, f"not {word.text}"
        elif token.kind is TokenKind.WORD:
            operator = WORDS.get(token.text)
        if operator is None:
            if token.is_symbol("="):
                raise self.error("= is no operator: expected == to compare")
            expected = _listed(spellings(kind))
            if kind is Kind.BOOL:
                expected += f", as in {attribute} == true"
            raise self.error(f"expected an operator after {attribute}: {expected}{_meant(token)}")
        try:
            check_operator(attribute, kind, operator)
        except FilterError as error:
            raise self.error(str(error), token.column) from None
        self.tokens.take()
        return operator, after

    def members(self, attribute: str, kind: Kind) -> list[Operand]:
        self.symbol("(", " after in")
        operands: list[Operand] = []
        if not self.tokens.next.is_symbol(")"):
            operands.append(self.fitting(attribute, kind, "("))
            while self.tokens.next.is_symbol(","):
                self.tokens.take()
                operands.append(self.fitting(attribute, kind, ","))
        self.symbol(")", " or ,")
        return operands

    def call(self, name: Token, negative: bool) -> Call:
        """`name(arguments)`, after the name."""
        tokens = self.tokens
        try:
            operator = operator_of(name.text, self.unknown_operators)
        except FilterError as error:
            raise self.error(str(error), name.column) from None
        tokens.take()
        arguments: list[Argument] = []
        if not tokens.next.is_symbol(")"):
            arguments.append(self.argument(operator, name.text, 0, "("))
            while tokens.next.is_symbol(","):
                tokens.take()
                arguments.append(self.argument(operator, name.text, len(arguments), ","))
        self.symbol(")", " or ,")
        call = Call(name.text, tuple(arguments), not negative)
        try:
            check_count(call, operator)
            check_whole(call, operator)
        except FilterError as error:
            raise self.error(str(error), name.column) from None
        if call.free:
            self.columns.append((call, name.column))
        return call

    def argument(self, operator: NamedOperator | None, name: str, place: int, after: str) -> Argument:
        token = self.tokens.next
        if operator is not None and place == operator.argument_counts[1]:
            raise self.error(f"expected ) after {counted(place)}, as in {operator.signature}")
        argument: Argument
        if token.kind is not TokenKind.WORD or self.is_infinity(token) or token.text in ("true", "false"):
            argument = self.plain(self.operand(None, after), name, token.column)
        elif token.text in RESERVED:
            raise self.error(f"expected an attribute, a constant or a variable after {after}")
        else:
            argument = Column(token.text)
        try:
            checked = check_argument(self.event_type, operator, name, place, argument, self.variables)
        except FilterError as error:
            raise self.error(str(error), token.column) from None
        if isinstance(argument, Column):
            self.tokens.take()
        return checked

    def plain(self, operand: Operand | Sum, name: str, column: int) -> Operand | Free:
        if not isinstance(operand, Sum):
            return operand
        scale, free = operand.terms[0]
        if len(operand.terms) > 1 or scale != 1 or operand.operand != Constant(0):
            raise self.error(f"expected ?{free} as it is, as an argument of {name}", column)
        return Free(free)

    def compared(self, first: Token, operand: Operand | Sum, negative: bool) -> Predicate | Constraint:
        """`operand comparison attribute`, or a constraint, after its first operand."""
        token = self.tokens.next
        if token.kind is not TokenKind.SYMBOL or token.text not in COMPARISONS:
            raise self.error(f"expected a comparison: {' '.join(COMPARISONS)}")
        self.tokens.take()
        other = self.tokens.next
        if isinstance(operand, Sum) or (other.kind is not TokenKind.WORD and self.starts_operand(other)):
            misplaced = self.error(f"expected an attribute of {self.event_type.name}{_after(self.tokens)}")
            right = self.operand(None, token.text)
            if not isinstance(operand, Sum) and not isinstance(right, Sum):
                raise misplaced
            comparison = COMPARISONS[token.text]
            return self.constraint(first, operand, comparison.complement if negative else comparison, right)
        operator = SPECS[COMPARISONS[token.text]].mirrored
        assert operator is not None
        attribute, kind = self.attribute()
        try:
            check_operator(attribute, kind, operator)
        except FilterError as error:
            raise self.error(str(error), token.column) from None
        checked = self.checked(attribute, kind, operand, first.column)
        return Predicate(attribute, operator.complement if negative else operator, (checked,))

    def constraint(
        self, first: Token, left: Operand | Sum, operator: Operator, right: Operand | Sum
    ) -> Constraint:
        try:
            constraint = constraint_of(left, operator, right)
        except FilterError as error:
            raise self.error(str(error), first.column) from None
        self.columns.append((constraint, first.column))
        return constraint

    def attribute(self) -> tuple[str, Kind]:
        token = self.tokens.next
        if token.kind is not TokenKind.WORD or token.text in RESERVED:
            raise self.error(f"expected an attribute of {self.event_type.name}{_after(self.tokens)}")
        kind = self.event_type.attributes.get(token.text)
        if kind is None:
            operator = find(token.text)
            if operator is not None:
                expected = f"expected a call by itself, as in {operator.signature}"
                raise self.error(f"{token.text} is an operator and no attribute: {expected}")
            raise self.error(unknown_attribute(self.event_type, token.text))
        self.tokens.take()
        return token.text, kind

    def fitting(self, attribute: str, kind: Kind, after: str) -> Operand:
        column = self.tokens.next.column
        return self.checked(attribute, kind, self.operand(kind, after), column)

    def checked(self, attribute: str, kind: Kind, operand: Operand | Sum, column: int) -> Operand:
        if isinstance(operand, Sum):
            raise self.error("free variables are not compared with attributes", column)
        try:
            fit = check_operand(attribute, kind, operand)
            self.variables.use(fit, attribute, kind)
        except FilterError as error:
            raise self.error(str(error), column) from None
        return fit

    def is_infinity(self, token: Token) -> bool:
        return token.text == "inf" and "inf" not in self.event_type.attributes

    def starts_operand(self, token: Token) -> bool:
        if token.kind is TokenKind.WORD:
            return token.text in ("true", "false", "inf")
        return token.kind in _STARTS or token.is_symbol("-") or token.is_symbol("+")

    def operand(self, kind: Kind | None, after: str) -> Operand | Sum:
        token = self.tokens.next
        if not self.starts_operand(token):
            expected = "a constant or a variable" if kind is None else EXPECTED[FAMILY[kind]]
            hint = ""
            if token.kind is TokenKind.WORD and token.text in self.event_type.attributes:
                hint = " (attributes are not compared with each other)"
            elif token.is_symbol("="):
                hint = f" (for {after}= leave no space)" if after in ("<", ">", "!") else ""
            raise self.error(f"expected {expected} after {after}{hint}")
        if token.kind is TokenKind.STRING:
            return Constant(self.tokens.take().text)
        if token.kind is TokenKind.WORD and token.text != "inf":
            return Constant(self.tokens.take().text == "true")
        return self.sum()

    def sum(self) -> Operand | Sum:
        """The terms of an affine operand, collected into one constant or variable, and free variables."""
        variable: Variable | None = None
        free: list[tuple[int | float, str]] = []
        total: int | float = 0
        sign = 1
        while True:
            column = self.tokens.next.column
            term = self.term(sign)
            if isinstance(term, Variable):
                if variable is not None:
                    raise self.error("expected at most one variable in an operand", column)
                variable = term
            elif isinstance(term, tuple):
                free.append(term)
            else:
                total += term
            if not (self.tokens.next.is_symbol("+") or self.tokens.next.is_symbol("-")):
                break
            sign = -1 if self.tokens.take().text == "-" else 1
        operand = Constant(total) if variable is None else Variable(variable.name, variable.scale, total)
        return Sum(tuple(free), operand) if free else operand

    def term(self, sign: int) -> int | float | Variable | tuple[int | float, str]:
        tokens = self.tokens
        while tokens.next.is_symbol("+") or tokens.next.is_symbol("-"):
            sign = -sign if tokens.take().text == "-" else sign
        first = tokens.next
        if first.kind in _NAMED:
            tokens.take()
            if not tokens.next.is_symbol("*"):
                return _scaled(first, sign)
            tokens.take()
            return _scaled(first, self.number(sign, "*"))
        number = self.number(sign, tokens.previous.text if tokens.previous is not None else "")
        if not tokens.next.is_symbol("*"):
            return number
        tokens.take()
        variable = tokens.next
        if variable.kind not in _NAMED:
            raise self.error("expected a variable after *")
        tokens.take()
        return _scaled(variable, number)

    def number(self, sign: int, after: str) -> int | float:
        token = self.tokens.next
        if token.kind is TokenKind.WORD and token.text == "inf":
            self.tokens.take()
            return sign * float("inf")
        if token.kind is not TokenKind.NUMBER:
            raise self.error(f"expected a number{'' if after == '*' else ' or a variable'} after {after}")
        self.tokens.take()
        return sign * token.number

    def symbol(self, expected: str, where: str = "") -> None:
        if not self.tokens.next.is_symbol(expected):
            raise self.error(f"expected {expected}{where}")
        self.tokens.take()

    def error(self, message: str, column: int | None = None) -> FilterSyntaxError:
        return self.tokens.error(message, self.tokens.next.column if column is None else column)


_NAMED = (TokenKind.VARIABLE, TokenKind.FREE)
_STARTS = (TokenKind.NUMBER, TokenKind.STRING, *_NAMED)


def _scaled(token: Token, scale: int | float) -> Variable | tuple[int | float, str]:
    return Variable(token.text, scale) if token.kind is TokenKind.VARIABLE else (scale, token.text)


def _listed(operators: list[str]) -> str:
    return (" or " if len(operators) < 3 else " ").join(operators)


def _after(tokens: Tokens) -> str:
    return f", after {tokens.previous.text}" if tokens.previous is not None else ""


def _meant(token: Token) -> str:
    suggestions = {
        "AND": "and",
        "OR": "or",
        "NOT": "not",
        "IN": "in",
        "BETWEEN": "between",
        "&": "and",
        "|": "or",
    }
    if token.kind is TokenKind.STRING:
        return ""
    suggestion = suggestions.get(token.text.upper() if token.kind is TokenKind.WORD else token.text)
    return "" if suggestion is None else f" (did you mean {suggestion}?)"
