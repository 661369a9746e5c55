"""Patterns with wildcards as filters: a string operator if one fits, else a regular expression."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto

from covey.matcher.expressions.writing import write_value


class Wildcard(Enum):
    ANY = auto()  # any text, also the empty one
    ONE = auto()  # one character


def like(attribute: str, pattern: Sequence[str | Wildcard], *, negated: bool = False) -> str:
    """The filter that the whole of an attribute matches a pattern of texts and wildcards."""
    before = "not " if negated else ""
    match list(pattern):
        case []:
            return f'{attribute} {"!=" if negated else "=="} ""'
        case [str(text)]:
            return f"{attribute} {'!=' if negated else '=='} {write_value(text)}"
        case [Wildcard.ANY]:
            return "false" if negated else f"exists({attribute})"
        case [str(text), Wildcard.ANY]:
            return f"{attribute} {before}prefix {write_value(text)}"
        case [Wildcard.ANY, str(text)]:
            return f"{attribute} {before}suffix {write_value(text)}"
        case [Wildcard.ANY, str(text), Wildcard.ANY]:
            return f"{attribute} {before}contains {write_value(text)}"
    expression = "".join(
        re.escape(piece) if isinstance(piece, str) else ".*" if piece is Wildcard.ANY else "."
        for piece in pattern
    )
    whole = write_value(rf"(?s)\A{expression}\z")
    return f"{before}matches({attribute}, {whole})"


def joined(pieces: Sequence[str | Wildcard]) -> list[str | Wildcard]:
    """The pieces with adjacent texts joined, and repeated `ANY` once."""
    result: list[str | Wildcard] = []
    for piece in pieces:
        last = result[-1] if result else None
        if isinstance(piece, str) and isinstance(last, str):
            result[-1] = last + piece
        elif piece is not Wildcard.ANY or last is not Wildcard.ANY:
            result.append(piece)
    return result
