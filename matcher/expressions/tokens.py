"""The tokens of the filter language, read one at a time.

Invariant: `next` is the first token not taken, and the text after it is unread, so the leftmost error is
reported."""

from __future__ import annotations

import re
from enum import Enum, auto
from sys import intern
from typing import NamedTuple

from covey.matcher.errors import FilterSyntaxError
from covey.matcher.events.int64 import INT64_MAX
from covey.matcher.expressions.operators import COMPARISONS

TEXT_LIMIT = 2**20  # the longest text of a filter, in characters

_SYMBOLS = sorted([*COMPARISONS, "&&", "||", *"!=(),*+-&|"], key=len, reverse=True)
_SPACE = re.compile(r"\s*")
_TOKEN = re.compile(
    rf"""\s*(?:(?P<NUMBER>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
      | (?P<WORD>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<VARIABLE>\$[A-Za-z0-9_]+)
      | (?P<FREE>\?[A-Za-z0-9_]+)
      | (?P<STRING>"[^"\\]*(?:\\.[^"\\]*)*"|'[^'\\]*(?:\\.[^'\\]*)*')
      | (?P<SYMBOL>{"|".join(map(re.escape, _SYMBOLS))})
      | (?P<END>\Z))""",
    re.VERBOSE | re.DOTALL,
)
_AFTER_NUMBER = re.compile(r"[A-Za-z0-9_.$?]")
_OPENING = re.compile(r"\s*\(")
_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", '"': '"', "'": "'"}


class TokenKind(Enum):
    NUMBER = auto()
    WORD = auto()
    VARIABLE = auto()
    FREE = auto()
    STRING = auto()
    SYMBOL = auto()
    END = auto()


_KINDS = {kind.name: kind for kind in TokenKind}


class Token(NamedTuple):
    """One token; `text` is a string's value, a variable's name without $ or ?, else the text as it stands."""

    kind: TokenKind
    text: str
    column: int
    number: int | float = 0

    def is_symbol(self, text: str) -> bool:
        return self.kind is TokenKind.SYMBOL and self.text == text


class Tokens:
    """The tokens of a text: `next` looks, `take` advances. `FilterSyntaxError` if the text is no token."""

    __slots__ = ("_position", "_text", "next", "previous")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0
        self.previous: Token | None = None
        self.next = self._read()

    def take(self) -> Token:
        self.previous = self.next
        if self.next.kind is not TokenKind.END:
            self.next = self._read()
        return self.previous

    def is_call(self) -> bool:
        """Whether a parenthesis follows the next token, without reading on."""
        return _OPENING.match(self._text, self._position) is not None

    def error(self, message: str, column: int) -> FilterSyntaxError:
        return FilterSyntaxError(message, self._text, column)

    def _read(self) -> Token:
        match = _TOKEN.match(self._text, self._position)
        if match is None:
            space = _SPACE.match(self._text, self._position)
            raise self._unreadable(space.end() if space else self._position)
        name = match.lastgroup or "END"
        kind, content, column = _KINDS[name], match[name], match.start(name)
        self._position = match.end()
        if kind is TokenKind.NUMBER:
            return Token(kind, content, column, self._number(content, column))
        if kind is TokenKind.STRING:
            return Token(kind, self._string(content, column), column)
        named = kind is TokenKind.VARIABLE or kind is TokenKind.FREE
        text = intern(content[1:] if named else content)
        return Token(kind, text, column)

    def _unreadable(self, column: int) -> FilterSyntaxError:
        character = self._text[column]
        if character in "\"'":
            return self.error(f"this string is never closed: expected {character}", column)
        if character == "$":
            return self.error("expected the name of a variable after $", column + 1)
        if character == "?":
            return self.error("expected the name of a free variable after ?", column + 1)
        return self.error(f"unexpected character {character!r}", column)

    def _number(self, digits: str, column: int) -> int | float:
        if _AFTER_NUMBER.match(self._text, self._position):
            raise self.error("expected the number to end here", self._position)
        if digits.isdigit():
            # 2**63 itself is let through for its negative; a positive one fails the check of the operand.
            if len(digits.lstrip("0")) > 19 or int(digits) > INT64_MAX + 1:
                raise self.error("expected an integer of 64 bits (1e30 is a float)", column)
            return int(digits)
        value = float(digits)
        if value == float("inf"):
            raise self.error("expected a number within float64 (inf is infinity)", column)
        return value

    def _string(self, quoted: str, column: int) -> str:
        if "\\" not in quoted:
            return quoted[1:-1]

        def replaced(escape: re.Match[str]) -> str:
            code = escape[1]
            if len(code) > 1:
                number = int(code[1:], 16)
                if number <= 0x10FFFF:
                    return chr(number)
            elif code in _ESCAPED:
                return _ESCAPED[code]
            raise self.error(f"unknown escape {escape[0]}", column + 1 + escape.start())

        return _ESCAPE.sub(replaced, quoted[1:-1])
