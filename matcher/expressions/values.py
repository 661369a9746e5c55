"""Values of constants and variables: which a kind accepts, and how an operand is evaluated.

The kinds form families; a variable belongs to one. In its inner form a value is an exact `bool`, `int` (of 64
bits), `float` (never NaN, never -0.0), `str` (without lone surrogates) or a UTC `datetime`; `coerce` converts
users' values. Invariant: equal values are equal in this form, however they were written (10 and 10.0, a
datetime and its ISO text)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from math import inf, isfinite
from typing import cast

import numpy as np

from covey.matcher.errors import VariableError
from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import INT64_MAX, INT64_MIN
from covey.matcher.events.times import EARLIEST, LATEST
from covey.matcher.expressions.expression import Constant, Operand, Scalar, Variable

NUMBERS = (int, float, np.integer, np.floating)  # without bool, though it is an int

_MICROSECOND = timedelta(microseconds=1)


class Family(StrEnum):
    """Kinds whose values compare with each other. The text is what a value is expected to be."""

    NUMBER = "a number"
    STRING = "a string"
    BOOL = "true or false"
    TIMESTAMP = "a time such as 2026-01-31T12:00:00"
    STRINGS = "a list of strings"  # of attributes alone: no constant and no variable is a list
    SHIFTABLE = "a number or a time"
    """Of a variable with an offset, as an argument of an operator unknown here."""
    ANY = "a value"  # of a variable as an argument of an operator unknown here


FAMILY: dict[Kind, Family] = {
    Kind.INT64: Family.NUMBER,
    Kind.FLOAT64: Family.NUMBER,
    Kind.STRING: Family.STRING,
    Kind.BOOL: Family.BOOL,
    Kind.TIMESTAMP: Family.TIMESTAMP,
    Kind.STRINGS: Family.STRINGS,
}


def coerce(family: Family, value: object) -> Scalar:
    """The value in its inner form; `ValueError` has what was expected if the family has no such value.
    Accepts numpy scalars; for times also dates, ISO 8601 text and datetimes of any zone (none means UTC)."""
    if isinstance(value, np.generic) and not isinstance(value, (float, str)):
        value = _from_numpy(value)
    if family is Family.NUMBER:
        return _number(value)
    if family is Family.STRING:
        return _string(value)
    if family is Family.BOOL:
        if isinstance(value, bool):
            return value
        raise ValueError(f"expected {family}")
    if family is Family.STRINGS:
        if isinstance(value, list | tuple | np.ndarray):
            return cast("Scalar", [_string(text) for text in value])  # no constant, but the value of an event
        raise ValueError(f"expected {family}")
    if family is Family.TIMESTAMP or isinstance(value, date):
        return _time(value)
    if family is Family.ANY and isinstance(value, bool):
        return value
    if family is Family.ANY and isinstance(value, str):
        return _string(value)
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise ValueError(f"expected {family}")
    return _number(value)


def _from_numpy(value: np.generic) -> object:
    if isinstance(value, np.datetime64):
        whole = value.astype("datetime64[us]")
        if np.isnat(value) or whole != value:
            raise ValueError("expected a time in whole microseconds")
        return whole.item()
    return value.item()


def _number(value: object) -> int | float:
    if isinstance(value, int) and not isinstance(value, bool):
        if INT64_MIN <= value <= INT64_MAX:
            return int(value)
        raise ValueError("expected an integer of 64 bits, or a float")
    if isinstance(value, float):
        if value == value:
            return float(value) + 0.0  # -0.0 becomes 0.0
        raise ValueError("expected a number that is not NaN")
    raise ValueError(f"expected {Family.NUMBER}")


def _string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected {Family.STRING}")
    text = str.__str__(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("expected a string without lone surrogates") from None
    return text


def _time(value: object) -> datetime:
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            raise ValueError(f"expected {Family.TIMESTAMP}") from None
    elif isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day)
    if getattr(value, "nanosecond", 0):  # of a pandas.Timestamp
        raise ValueError("expected a time in whole microseconds")
    if (
        not isinstance(value, datetime) or value != value
    ):  # a NaT of pandas is a datetime that differs from itself
        raise ValueError(f"expected {Family.TIMESTAMP}")
    try:
        t = value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except (OverflowError, ValueError):
        raise ValueError("expected a time between the years 1 and 9999") from None
    return datetime(t.year, t.month, t.day, t.hour, t.minute, t.second, t.microsecond, UTC)


def normal(kind: Kind | None, value: Scalar) -> Scalar:
    """The one form of a value for comparison with attributes of a kind; no comparison changes its outcome.

    For int64, integral floats become ints, and numbers outside 64 bits an infinity. For float64, ints become
    floats if that is exact (an integer outside 64 bits, which only an affine operand has, becomes the nearest
    float). For None, of an unknown operator, only such an integer becomes a float."""
    if kind is Kind.FLOAT64:
        if not isinstance(value, int):
            return value
        try:
            nearest = float(value)
        except OverflowError:
            return inf if value > 0 else -inf
        return nearest if nearest == value or not INT64_MIN <= value <= INT64_MAX else value
    if kind is Kind.INT64:
        assert isinstance(value, (int, float))
        if value > INT64_MAX:
            return inf
        if value < INT64_MIN:
            return -inf
        return int(value) if value == value // 1 else value
    if kind is None and isinstance(value, int) and not INT64_MIN <= value <= INT64_MAX:
        return normal(Kind.FLOAT64, value)
    return value


def shortest(number: int | float) -> int | float:
    """An integral float of 64 bits as the equal int, so that `2.0 * $x` and `2 * $x` are one operand."""
    if (
        isinstance(number, float)
        and isfinite(number)
        and INT64_MIN <= number <= INT64_MAX
        and number.is_integer()
    ):
        return int(number)
    return number


def offset_microseconds(operand: Variable) -> int:
    """The offset of a variable on a timestamp attribute, in seconds, as whole microseconds."""
    return timedelta(seconds=operand.offset) // _MICROSECOND


def affine(operand: Variable, value: Scalar) -> Scalar:
    """`scale * value + offset`, for a value in its inner form. Integers are combined exactly (the result may
    exceed 64 bits); if any of the three is a float, in float64. Times stop at the first and the last
    microsecond of the years 1 to 9999."""
    scale, offset = operand.scale, operand.offset
    if scale == 1 and offset == 0:
        return value
    if isinstance(value, datetime):
        try:
            return value + timedelta(seconds=offset)
        except OverflowError:
            return LATEST if offset > 0 else EARLIEST
    assert isinstance(value, (int, float))
    if isinstance(value, int) and isinstance(scale, int) and isinstance(offset, int):
        return scale * value + offset
    return float(scale) * float(value) + float(offset)


def evaluate(operand: Operand, values: Mapping[str, Scalar], kind: Kind | None) -> Scalar:
    """The value of an operand on an attribute of a kind, as from `normal`. `values` are in their inner form,
    as from `Filter.check_values`; `VariableError` names a missing one."""
    if isinstance(operand, Constant):
        return operand.value
    try:
        value = values[operand.name]
    except KeyError:
        raise VariableError(f"variable ${operand.name} has no value") from None
    return normal(kind, affine(operand, value))
