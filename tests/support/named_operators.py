"""Small named operators for tests, registered while a test runs. Their solutions are few and overlap, so that
joins and constraints meet often."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from covey.matcher.events.event_type import Kind
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter, Takes
from covey.matcher.operators.table import register, unregister

_NUMBERS = pa.list_(pa.float64())


def _near(values: pa.Array, center: float, radius: float) -> pa.Array:
    return pa.array([abs(v - center) <= radius for v in values.to_pylist()], pa.bool_())


def _resembles(texts: pa.Array, *samples: str) -> pa.Array:
    return pa.array([text[:1] in [s[:1] for s in samples] for text in texts.to_pylist()], pa.bool_())


def tallies(text: str) -> list[float]:
    """The solutions of `tally`: the lengths of the text's halves, and of the whole."""
    return sorted({float(len(text) // 2), float(len(text))}) if text else []


def spans(value: float) -> list[tuple[float, float]]:
    """The solutions of `span`: some pairs of numbers near a value."""
    if value != value or abs(value) > 1e6:
        return []
    whole = float(int(value))
    return [(whole, whole + 1), (whole, whole), (1.0, whole)]


def letters(text: str) -> list[str]:
    """The solutions of `letter`: the different characters of a text."""
    return sorted(set(text))


def _tally(texts: pa.Array) -> pa.Array:
    return pa.array([tallies(text) for text in texts.to_pylist()], _NUMBERS)


def _span(values: pa.Array, floor: float) -> pa.Array:
    struct = pa.list_(pa.struct([("low", pa.float64()), ("high", pa.float64())]))
    rows = [
        [{"low": low, "high": high} for low, high in spans(float(value)) if low >= floor]
        for value in values.to_pylist()
    ]
    return pa.array(rows, struct)


def _letter(texts: pa.Array) -> pa.Array:
    return pa.array([letters(text) for text in texts.to_pylist()], pa.list_(pa.string()))


def _constant(name: str, kind: Kind) -> Parameter:
    return Parameter(name, frozenset({kind}), Takes.CONSTANT)


def _attribute(name: str, *kinds: Kind) -> Parameter:
    return Parameter(name, frozenset(kinds), Takes.ATTRIBUTE)


def _free(name: str, kind: Kind) -> Parameter:
    return Parameter(name, frozenset({kind}), Takes.FREE)


NEAR = NamedOperator(
    "near",
    (
        Parameter("value", NUMBERS, Takes.ATTRIBUTE),
        Parameter("center", NUMBERS, Takes.CONSTANT),
        Parameter("radius", NUMBERS, Takes.CONSTANT),
    ),
    _near,
    summary="the value is at most so far from the center",
)
RESEMBLES = NamedOperator(
    "resembles",
    (_attribute("text", Kind.STRING), _constant("sample", Kind.STRING)),
    _resembles,
    summary="the text begins with the letter of a sample",
    variadic=True,
)
TALLY = NamedOperator(
    "tally",
    (_attribute("text", Kind.STRING), _free("count", Kind.FLOAT64)),
    _tally,
    summary="the lengths of a text and of its half",
)
SPAN = NamedOperator(
    "span",
    (
        Parameter("value", NUMBERS, Takes.ATTRIBUTE),
        _free("low", Kind.FLOAT64),
        _free("high", Kind.FLOAT64),
        _constant("floor", Kind.FLOAT64),
    ),
    lambda values, floor: _span(values, floor),
    summary="pairs of numbers around a value, not below a floor",
)
LETTER = NamedOperator(
    "letter",
    (_attribute("text", Kind.STRING), _free("letter", Kind.STRING)),
    _letter,
    summary="the letters of a text",
)
ALL = (NEAR, RESEMBLES, TALLY, SPAN, LETTER)


@contextmanager
def registered(*operators: NamedOperator) -> Iterator[tuple[NamedOperator, ...]]:
    """Register these operators, by default all of this module."""
    chosen: Any = operators or ALL
    for operator in chosen:
        register(operator)
    try:
        yield chosen
    finally:
        for operator in chosen:
            unregister(operator.name)
