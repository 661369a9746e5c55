"""Hostile texts of filters: made by the grammar, then nested, repeated, cut, mutated.

The judge: a text is a filter or raises `CoveyError`, nothing else, and what a filter is written as is a
filter again.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from covey.matcher import EventType, parse
from covey.matcher.errors import CoveyError

HOSTILE_TYPE = EventType(
    "Quote",
    {
        **{"firm": "string", "price": "float64", "volume": "int64"},
        **{"up": "bool", "at": "timestamp", "tags": "list<string>"},
    },
)
_NAMES = (*HOSTILE_TYPE.names, "colour", "$x", "é", "_", "and", "")
_OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "prefix", "suffix", "contains", "=", "<<")
_OPERANDS = (
    *("1", "-1", "0", "1e308", "1e999", "-0.0", "9223372036854775807", "9" * 400, "0x10", "1_0", "nan"),
    *("'IBM'", '"a"', "'", "'" + "x" * 300 + "'", "'\\u0000'", "'\ud800'", "'é\U0001f600'", "true", "null"),
    *("$x", "$y - 5", "1.01 * $ref", "$x * $y", "$", "$1", "$x + 1e308", "(1, 2)", "('a', 'b')", "()"),
    *("2026-01-31T12:00:00Z", "'2026-01-31'", "'9999-12-31T23:59:59.999999Z'", "[1]", "{}"),
)
_PLAIN = ("volume in (1, 2, 3)", "firm prefix 'I'", "price != 3", "up == true", "firm contains 'x'")
_CALLS = (
    *("matches(firm, 'a+')", "matches(firm, '(((((')", "matches(firm, $x)", "weekday(at)", "no_such(price)"),
    *("within(price, price, $x, $y, 500)", "matches()", "weekday(at) == 1", "matches(firm, 'a', 'b')"),
)
_MARKS = "()'\"$,.<>=!-+* \t\n\0[]{}#;\\é\U0001f600aA09"


def hostile_filter(draw: random.Random) -> str:
    """A text for `HOSTILE_TYPE`; about a third are filters."""
    text = _expression(draw, draw.randrange(4))
    chance = draw.random()
    if chance < 0.01:
        text = _blown_up(draw, text)
    elif chance < 0.20:
        where = draw.randrange(len(text) + 1)
        text = text[:where] + draw.choice(_MARKS) + text[where + draw.randrange(2) :]
    elif chance < 0.25:
        text = text[: draw.randrange(len(text) + 1)]
    elif chance < 0.28:
        text = "".join(draw.choices(_MARKS, k=draw.randrange(1, 60)))
    elif chance < 0.30:
        text = text * draw.choice((2, 30))
    return text


def _expression(draw: random.Random, depth: int) -> str:
    if depth and draw.random() < 0.6:
        parts = [_expression(draw, depth - 1) for _ in range(draw.randint(1, 3))]
        joined = f"({draw.choice((' and ', ' or ')).join(parts)})"
        return f"not {joined}" if draw.random() < 0.2 else joined
    chance = draw.random()
    name = draw.choice(_NAMES if chance < 0.2 else HOSTILE_TYPE.names)
    if chance < 0.1:
        return draw.choice(_CALLS)
    if chance < 0.15:
        return f"exists({name})" if draw.random() < 0.5 else f"{name} exists"
    if chance < 0.25:
        return f"{name} between {draw.choice(_OPERANDS)} and {draw.choice(_OPERANDS)}"
    if chance < 0.7:  # well-formed, so that engines get some
        return draw.choice(("price < $p", "price >= $q", *_PLAIN))
    return f"{name} {draw.choice(_OPERATORS)} {draw.choice(_OPERANDS)}"


def _blown_up(draw: random.Random, text: str) -> str:
    many = draw.choice((50, 199, 201, 1_000, 5_000))
    return draw.choice(
        (
            "(" * many + text + ")" * many,
            "(" * many,
            "not " * many + text,
            "not (" * many + text + ")" * many,
            " and ".join([text] * (many // 10)),
            " or ".join(f"price == {i}" for i in range(many)),
            " and ".join(f"(price == {i} or volume == {i})" for i in range(many // 5)),
            f"volume in ({', '.join(map(str, range(many)))})",
            f"firm == '{'x' * 40 * many}'",
            "price < " + "-" * many + "1",
            f"price < ${'v' * many}",
            "(price > 1 and " * many + "up == true" + " or volume < 2)" * many,
        )
    )


@dataclass(slots=True)
class FilterFuzzResult:
    """What came of some texts; `violations` name the seed and the number of each."""

    texts: int = 0
    filters: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.texts:,} texts, {self.filters:,} of them filters"


def fuzz_filters(seed: int, count: int) -> Iterator[FilterFuzzResult]:
    """Parse so many texts; the result so far, now and then."""
    draw = random.Random(seed)
    result = FilterFuzzResult()
    for number in range(1, count + 1):
        text = hostile_filter(draw)
        result.texts = number
        place = f"seed {seed}, text {number}: {text[:200]!r}"
        try:
            filter = parse(text, HOSTILE_TYPE, unknown_operators=draw.random() < 0.5)
            written = str(filter)
            if number % 16 == 0 and str(parse(written, HOSTILE_TYPE, unknown_operators=True)) != written:
                result.violations.append(f"{place} is written in two ways")
            result.filters += 1
        except CoveyError:
            pass
        except Exception as error:
            result.violations.append(f"{place}: {type(error).__name__}: {error}")
        if number % 500 == 0 or number == count:
            yield result
