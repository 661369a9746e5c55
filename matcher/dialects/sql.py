"""Selectors of SQL-92, as in JMS, translated to the filter language.

Conditions are `=`, `<>`, `<`, `<=`, `>`, `>=`, `BETWEEN`, `IN`, `LIKE` with `ESCAPE`, `IS NULL`, their
negations, `AND`, `OR`, `NOT`, `TRUE`, `FALSE`, and a bool attribute alone; numbers may be computed with `+ -
* /`. Keywords are of any case; attribute names are case-sensitive, and may be in double quotes. `:limit` is
the variable `$limit`, which may be scaled and shifted by numbers. Both languages have three truth values:
neither a predicate on a missing attribute nor its negation is true, and De Morgan's laws hold."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from covey.matcher.dialects.wildcards import Wildcard, joined, like
from covey.matcher.errors import FilterSyntaxError
from covey.matcher.events.int64 import INT64_MAX
from covey.matcher.expressions.expression import Constant, Variable
from covey.matcher.expressions.writing import write_operand

_MOST_NESTED = 200
_TOKEN = re.compile(
    r"""\s*(?:(?P<NUMBER>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.$])
      | (?P<NAME>[A-Za-z_]\w*|"[^"]*")
      | (?P<VARIABLE>:\w+)
      | (?P<STRING>'(?:[^']|'')*')
      | (?P<SYMBOL><>|<=|>=|[=<>()+*/,-])
      | (?P<END>\Z))""",
    re.VERBOSE | re.ASCII,
)
_KEYWORDS = frozenset(["AND", "OR", "NOT", "BETWEEN", "IN", "LIKE", "ESCAPE", "IS", "NULL", "TRUE", "FALSE"])
_COMPARISONS = {"=": "==", "<>": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class _Token(NamedTuple):
    kind: str
    text: str
    column: int


@dataclass(frozen=True, slots=True)
class _Name:
    name: str
    column: int


@dataclass(frozen=True, slots=True)
class _Value:
    """A constant, or a variable times a number plus a number."""

    operand: Constant | Variable
    column: int

    @property
    def constant(self) -> object:
        return self.operand.value if isinstance(self.operand, Constant) else None


@dataclass(frozen=True, slots=True)
class _Condition:
    """Text of the filter language; `joint` is "or" or "and" if that is its outermost operator."""

    text: str
    joint: str = ""


_Node = _Name | _Value | _Condition


def translate_selector(text: str) -> str:
    """The filter of a selector; an empty selector selects everything, as the empty filter does."""
    return _Parser(text).all()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._read()
        self._next = next(self._tokens)
        self._depth = 0

    def all(self) -> str:
        if self._next.kind == "END":
            return ""
        first = self._next
        condition = self._condition(self._or(), first)
        if self._next.kind != "END":
            self._fail("expected AND, OR or the end of the selector", self._next.column)
        return condition.text

    def _read(self) -> Iterator[_Token]:
        position = 0
        while True:
            found = _TOKEN.match(self._text, position)
            if found is None or found.lastgroup is None:
                column = len(self._text) - len(self._text[position:].lstrip())
                self._fail("expected a word, a number, a text in '…' or an operator", column)
            kind, text = found.lastgroup, found[found.lastgroup]
            if kind == "NAME" and text.upper() in _KEYWORDS:
                kind, text = "KEYWORD", text.upper()
            yield _Token(kind, text, found.start(found.lastgroup))
            position = found.end()

    def _fail(self, message: str, column: int) -> NoReturn:
        raise FilterSyntaxError(f"SQL selector: {message}", self._text, column)

    def _take(self) -> _Token:
        token = self._next
        if token.kind != "END":
            self._next = next(self._tokens)
        return token

    def _takes(self, *words: str) -> bool:
        """Take the next token if it is one of these keywords and symbols; returns whether it was."""
        found = self._next.kind in ("KEYWORD", "SYMBOL") and self._next.text in words
        if found:
            self._take()
        return found

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            self._fail(f"expected {word}", self._next.column)

    # --- conditions -----------------------------------------------------------------------------------------

    def _or(self) -> _Node:
        return self._joint("OR", self._and)

    def _and(self) -> _Node:
        return self._joint("AND", self._not)

    def _joint(self, word: str, part: Callable[[], _Node]) -> _Node:
        first = self._next
        node = part()
        if not (self._next.kind == "KEYWORD" and self._next.text == word):
            return node
        texts = [self._condition(node, first)]
        while self._takes(word):
            first = self._next
            texts.append(self._condition(part(), first))
        inside = {"AND": ("or",), "OR": ()}[word]
        parts = [f"({each.text})" if each.joint in inside else each.text for each in texts]
        return _Condition(f" {word.lower()} ".join(parts), word.lower())

    def _not(self) -> _Node:
        if not self._takes("NOT"):
            return self._comparison()
        self._deeper()
        first = self._next
        condition = self._condition(self._not(), first)
        self._depth -= 1
        return _Condition(f"not ({condition.text})" if condition.joint else f"not {condition.text}")

    def _deeper(self) -> None:
        self._depth += 1
        if self._depth > _MOST_NESTED:
            what = f"expected at most {_MOST_NESTED} parentheses and NOT inside each other"
            self._fail(what, self._next.column)

    def _condition(self, node: _Node, token: _Token) -> _Condition:
        if isinstance(node, _Condition):
            return node
        if isinstance(node, _Name):
            return _Condition(f"{node.name} == true")
        if isinstance(node.constant, bool):
            return _Condition("true" if node.constant else "false")
        self._fail("expected a condition", token.column)

    def _comparison(self) -> _Node:
        left = self._sum()
        token = self._next
        if token.kind == "SYMBOL" and token.text in _COMPARISONS:
            self._take()
            return self._compared(left, _COMPARISONS[token.text], self._sum(), token)
        if self._takes("IS"):
            negated = self._takes("NOT")
            self._expect("NULL")
            return _Condition(f"{'' if negated else 'not '}exists({self._name(left, token).name})")
        negated = self._takes("NOT")
        if self._takes("BETWEEN"):
            low = self._operand(self._sum(), token)
            self._expect("AND")
            bounds = f"{low} and {self._operand(self._sum(), token)}"
            return self._tested(left, "between", bounds, token, negated)
        if self._takes("IN"):
            self._expect("(")
            values = [self._operand(self._sum(), token)]
            while self._takes(","):
                values.append(self._operand(self._sum(), token))
            self._expect(")")
            return self._tested(left, "in", f"({', '.join(values)})", token, negated)
        if self._takes("LIKE"):
            return _Condition(like(self._name(left, token).name, self._pattern(), negated=negated))
        if negated:
            self._fail("expected BETWEEN, IN or LIKE", self._next.column)
        return left

    def _tested(self, left: _Node, test: str, operands: str, token: _Token, negated: bool) -> _Condition:
        before = "not " if negated else ""
        return _Condition(f"{self._name(left, token).name} {before}{test} {operands}")

    def _compared(self, left: _Node, comparison: str, right: _Node, token: _Token) -> _Condition:
        if isinstance(right, _Name) and not isinstance(left, _Name):
            left, right, comparison = right, left, _MIRRORED.get(comparison, comparison)
        if isinstance(left, _Value) and isinstance(right, _Value):
            first, second = left.constant, right.constant
            try:
                if first is None or second is None:
                    raise TypeError
                return _Condition("true" if _COMPARE[comparison](first, second) else "false")
            except TypeError:
                self._fail("expected an attribute on one side", token.column)
        return _Condition(f"{self._name(left, token).name} {comparison} {self._operand(right, token)}")

    def _pattern(self) -> list[str | Wildcard]:
        token = self._take()
        if token.kind != "STRING":
            self._fail("LIKE: expected a text in '…'", token.column)
        escape = ""
        if self._takes("ESCAPE"):
            escaping = self._take()
            escape = _unquoted(escaping.text) if escaping.kind == "STRING" else ""
            if len(escape) != 1:
                self._fail("ESCAPE: expected a text of one character in '…'", escaping.column)
        pieces: list[str | Wildcard] = []
        characters = iter(_unquoted(token.text))
        for character in characters:
            if character == escape:
                following = next(characters, "")
                if following not in ("%", "_", escape):
                    self._fail(f"LIKE: expected %, _ or {escape} behind {escape}", token.column)
                pieces.append(following)
            else:
                pieces.append({"%": Wildcard.ANY, "_": Wildcard.ONE}.get(character, character))
        return joined(pieces)

    def _name(self, node: _Node, token: _Token) -> _Name:
        if not isinstance(node, _Name):
            self._fail(f"{token.text}: expected an attribute on its left", token.column)
        return node

    def _operand(self, node: _Node, token: _Token) -> str:
        if isinstance(node, _Name):
            self._fail(f"{token.text}: expected a constant or a variable, no second attribute", node.column)
        if isinstance(node, _Condition):
            self._fail(f"{token.text}: expected a constant or a variable, no condition", token.column)
        return write_operand(node.operand)

    # --- values ---------------------------------------------------------------------------------------------

    def _sum(self) -> _Node:
        node = self._product()
        while (token := self._next).kind == "SYMBOL" and token.text in "+-":
            self._take()
            node = self._computed(node, token, self._product())
        return node

    def _product(self) -> _Node:
        node = self._factor()
        while (token := self._next).kind == "SYMBOL" and token.text in "*/":
            self._take()
            node = self._computed(node, token, self._factor())
        return node

    def _factor(self) -> _Node:
        token = self._take()
        column = token.column
        if token.kind == "NAME":
            name = token.text.strip('"')
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                self._fail(f"{name!r}: expected a name of letters, digits and _", column)
            return _Name(name, column)
        if token.kind == "NUMBER":
            return _Value(Constant(self._number(token)), column)
        if token.kind == "STRING":
            return _Value(Constant(_unquoted(token.text)), column)
        if token.kind == "VARIABLE":
            return _Value(Variable(token.text[1:]), column)
        if token.text in ("TRUE", "FALSE"):
            return _Value(Constant(token.text == "TRUE"), column)
        if token.kind == "SYMBOL" and token.text in "+-":
            self._deeper()
            factor = self._factor()
            self._depth -= 1
            return self._computed(_Value(Constant(0), column), token, factor)
        if token.kind == "SYMBOL" and token.text == "(":
            self._deeper()
            node = self._or()
            self._depth -= 1
            self._expect(")")
            return node
        if token.text == "NULL":
            self._fail("NULL equals nothing: expected IS NULL or IS NOT NULL", column)
        self._fail("expected an attribute, a constant, a variable or a condition in parentheses", column)

    def _number(self, token: _Token) -> int | float:
        try:
            number: int | float = int(token.text)
        except ValueError:
            number = float(token.text)
        if not -INT64_MAX <= number <= INT64_MAX and isinstance(number, int):
            self._fail("expected an integer of 64 bits", token.column)
        return number

    def _computed(self, left: _Node, token: _Token, right: _Node) -> _Value:
        scale, name, offset = self._affine(left, token)
        scale2, name2, offset2 = self._affine(right, token)
        if name and name2:
            self._fail(f"{token.text}: expected at most one variable", token.column)
        if token.text == "/":
            if name2 or not offset2:
                self._fail("/: expected a number other than 0 on its right", token.column)
            scale, offset = scale / offset2, offset / offset2 if name else _divided(offset, offset2)
        elif token.text == "*":
            factor = offset if name2 else offset2
            scale, name, offset = (scale + scale2) * factor, name or name2, offset * offset2
        else:
            sign = 1 if token.text == "+" else -1
            scale, name, offset = scale + sign * scale2, name or name2, offset + sign * offset2
        column = left.column if isinstance(left, _Value) else token.column
        return _Value(Variable(name, scale, offset) if name else Constant(offset), column)

    def _affine(self, node: _Node, token: _Token) -> tuple[int | float, str, int | float]:
        """Scale, variable name and offset; 0 and "" without a variable."""
        if isinstance(node, _Value):
            if isinstance(node.operand, Variable):
                return node.operand.scale, node.operand.name, node.operand.offset
            value = node.operand.value
            if isinstance(value, int | float) and not isinstance(value, bool):
                return 0, "", value
        if isinstance(node, _Name):
            self._fail(f"{token.text}: expected no attribute in sums and products", node.column)
        self._fail(f"{token.text}: expected numbers and variables", token.column)


def _divided(number: int | float, by: int | float) -> int | float:
    """As in SQL: integers are divided towards zero."""
    if isinstance(number, int) and isinstance(by, int):
        quotient = abs(number) // abs(by)
        return quotient if (number < 0) == (by < 0) else -quotient
    return number / by


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")
