"""The lowest and highest keys of a plan's tests, from the values of its operands.

A variable's value is one Scalar for all subscriptions, in inner form (`values.py`), or a column with one
each:
    numbers  int64, float64, or object (Python ints and floats mixed, or outside both types)
    times    int64 microseconds        bools  int64 0 and 1        strings  an Arrow string array
Invariant: a column has the same effect on every subscription as its element as a Scalar."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.compile import bound_kernels as k
from covey.matcher.compile.plan import SKELETONS, BoxPlan, BoxSkeleton
from covey.matcher.encoding.columns import Columns
from covey.matcher.encoding.keys import Keys, bound_keys, lower_key, upper_key
from covey.matcher.engine import Column
from covey.matcher.errors import VariableError
from covey.matcher.events.event_type import Kind
from covey.matcher.events.int64 import INT64_MAX
from covey.matcher.events.times import FIRST_US, LAST_US, microseconds
from covey.matcher.events.value_columns import is_column
from covey.matcher.expressions.expression import Scalar, Variable
from covey.matcher.expressions.values import Family, affine, normal, offset_microseconds
from covey.matcher.filters.filter import Filter

Numbers = npt.NDArray[Any]
StringColumn: TypeAlias = Any  # an Arrow string array; Arrow has no types for mypy
Values: TypeAlias = Scalar | Numbers | StringColumn

_MOST_TEXT = 1 << 31  # bytes: as far as the offsets of an Arrow string array reach


def check_columns(
    filter: Filter, values: Mapping[str, Scalar | Column], count: int, *, partial: bool = False
) -> dict[str, Values]:
    """The values in their inner form, for `count` >= 1 subscriptions. `VariableError` as
    `Filter.check_values`, or for a column whose length is not `count`."""
    columns: dict[str, Column] = {}
    floats: dict[str, Numbers] = {}
    checked: dict[str, Values] = {}
    for name, value in values.items():
        if not is_column(value):
            continue
        if len(value) != count:
            raise VariableError(f"variable ${name}: {len(value)} values, expected one or {count}")
        numbers = _numbers(value) if filter.family(name) is Family.NUMBER else None
        if numbers is None:
            columns[name] = value
        elif numbers.dtype.kind == "f":
            floats[name] = numbers
        else:
            checked[name] = numbers
    if floats:  # at once, for most groups are small
        plain = _plain(np.concatenate(list(floats.values())))
        if plain is None:
            columns |= floats
        else:
            checked.update(zip(floats, plain.reshape(len(floats), count), strict=True))
    samples = {
        name: columns[name][0] if name in columns else value
        for name, value in values.items()
        if name not in checked
    }
    checked.update(filter.check_values(samples, partial=True))
    if not partial and len(checked) < len(filter.variables):
        raise filter.no_value_for(checked)
    for name, value in columns.items():
        column = None if count == 1 else _column(value, checked[name])
        if column is None:
            each = [filter.check_values({name: element}, partial=True)[name] for element in value]
            column = _from_checked(each) if count > 1 else each[0]
        checked[name] = column
    return checked


def _numbers(column: Column) -> Numbers | None:
    """An array of int64 or float whose type alone proves it valid, apart from NaN; else None."""
    if not isinstance(column, np.ndarray):
        return None
    dtype = column.dtype
    if dtype.kind == "i" or (dtype.kind == "u" and dtype.itemsize < 8):
        return column.astype(np.int64, copy=False)
    return column if dtype.kind == "f" and dtype.itemsize <= 8 else None


def _plain(numbers: Numbers) -> Numbers | None:
    if numbers.dtype == np.int64:
        return numbers
    return None if np.count_nonzero(numbers != numbers) else numbers.astype(np.float64, copy=False) + 0.0


def _column(column: Column, sample: Values) -> Values | None:
    """The column, if its type and range prove every element valid; else None."""
    if isinstance(column, list):
        if isinstance(sample, str):
            return _strings(column)
        if isinstance(sample, datetime | bool) or len(set(map(type, column))) > 1:
            return None
        try:
            column = np.array(column)
        except (ValueError, OverflowError):
            return None
    dtype = column.dtype
    if isinstance(sample, bool):
        return column.astype(np.int64) if dtype == np.bool_ else None
    if isinstance(sample, str):
        return _strings(column)
    if isinstance(sample, datetime):
        if dtype.kind != "M":
            return None
        times = column.astype("datetime64[us]")
        exact = times.astype(np.int64)
        right = (times == column).all() and exact.min() >= FIRST_US and exact.max() <= LAST_US
        return exact if right else None
    numbers = _numbers(column)
    return None if numbers is None else _plain(numbers)


def _strings(column: Column) -> StringColumn | None:
    try:
        strings = _text_array(column)
    except (pa.ArrowException, ValueError, TypeError):
        return None
    plain = isinstance(column, np.ndarray) and column.dtype.kind in "UT"
    plain = plain or set(map(type, column)) <= {str, np.str_}
    return strings if plain and strings.null_count == 0 else None


def _text_array(texts: Column | list[Scalar]) -> pa.StringArray:
    """One array: Arrow makes several chunks of a NumPy column with much text. `VariableError` over 2 GiB."""
    strings = pa.array(texts, type=pa.string())
    if isinstance(strings, pa.ChunkedArray):
        size = strings.nbytes
        strings = strings.combine_chunks() if size < _MOST_TEXT else strings
        if isinstance(strings, pa.ChunkedArray):
            raise VariableError(f"a column of {size:,} bytes of text: expected less than 2 GiB in one call")
    return strings


def _from_checked(each: list[Scalar]) -> Values:
    if isinstance(each[0], str):
        return _text_array(each)
    if isinstance(each[0], datetime):
        return np.array([microseconds(moment) for moment in each], dtype=np.int64)  # type: ignore[arg-type]
    if isinstance(each[0], bool):
        return np.array(each, dtype=np.int64)
    return np.array(each, dtype=object)


def constant_column(constants: list[Scalar], of_each: Numbers) -> Values:
    if isinstance(constants[0], str):
        return _text_array(constants).take(pa.array(of_each))
    types = set(map(type, constants))
    if types == {float} or types == {int}:
        return np.array(constants, dtype=np.float64 if float in types else np.int64)[of_each]
    return np.asarray(_from_checked(constants))[of_each]


def evaluate_column(operand: Variable, kind: Kind, value: Values) -> Values:
    """`values.evaluate` of an operand, for each element of a column."""
    if not isinstance(value, np.ndarray):
        return value if isinstance(value, pa.Array) else normal(kind, affine(operand, value))
    scale, offset = operand.scale, operand.offset
    if scale == 1 and offset == 0:
        return value
    if kind is Kind.TIMESTAMP:
        offset_us = min(max(offset_microseconds(operand), FIRST_US - LAST_US), LAST_US - FIRST_US)
        return np.clip(value.astype(np.int64) + offset_us, FIRST_US, LAST_US)
    if value.dtype == np.int64 and isinstance(scale, int) and isinstance(offset, int):
        reach = abs(scale) * max(-int(value.min()), int(value.max()), 0) + abs(offset)
        if reach <= INT64_MAX and abs(scale) <= INT64_MAX and abs(offset) <= INT64_MAX:
            return value * np.int64(scale) + np.int64(offset)
    if value.dtype != np.object_ and not (
        value.dtype == np.int64 and isinstance(scale, int) and isinstance(offset, int)
    ):
        with np.errstate(over="ignore", invalid="ignore"):
            return value.astype(np.float64) * float(scale) + float(offset)
    exact = [normal(kind, affine(operand, element)) for element in value.tolist()]
    return np.array(exact, dtype=object)


def bound_key(kind: Kind, value: Values, strict: bool, *, lower: bool) -> int | npt.NDArray[np.int64]:
    """`keys.lower_key` or `keys.upper_key` of each value; strings come as ids."""
    if isinstance(value, np.ndarray):
        return bound_keys(kind, value, strict, lower=lower)
    return lower_key(kind, value, strict) if lower else upper_key(kind, value, strict)


Operands = dict[int, Values]  # by number: one for all subscriptions, or one for each

Source = tuple[int, Kind, int, bool]
"""(operand, kind of the bounded test, test number if of strings else 0, `Side.past`)."""

_INTEGERS = frozenset({np.dtype(np.int64).char, "int", "bool"})
_FAMILIES = {Kind.INT64: k.INTEGER, Kind.FLOAT64: k.FLOAT}


@dataclass(frozen=True, slots=True)
class Sides:
    """The ends of a box's tests and texts as lines of `bound_kernels`; operand o is sources[o]."""

    sources: tuple[Source, ...]
    lines: npt.NDArray[np.int64]


@lru_cache(SKELETONS)
def _sides(box: BoxSkeleton) -> Sides:
    numbers: dict[Source, int] = {}
    lines: list[int] = []
    for t, test in enumerate(box.tests):
        lines.append(_FAMILIES.get(test.kind, k.PLAIN))
        for side, constant in ((test.lower, test.low), (test.upper, test.high)):
            if side is None:
                lines += (k.NO_OPERAND, 0, constant)
            else:
                of = t if test.kind is Kind.STRING else 0
                source = side.operand, test.kind, of, side.past
                lines += (numbers.setdefault(source, len(numbers)), side.strict, 0)
    for text in box.texts:
        lines += (k.PLAIN, k.NO_OPERAND, 0, text.expected, k.NO_OPERAND, 0, text.expected)
    array = np.array(lines, dtype=np.int64).reshape(-1, k.SIDE_FIELDS)
    return Sides(tuple(numbers), array)


def ranked_operands(plan: BoxPlan) -> Iterator[tuple[int, int, bool]]:
    for operand, kind, test, past in _sides(plan.skeleton).sources:
        if kind is Kind.STRING and plan.tests[test].is_ranked:
            yield operand, plan.columns[test], past


def box_bounds(plan: BoxPlan, operands: Operands, count: int, columns: Columns) -> tuple[Keys, Keys]:
    """lows[t, i] and highs[t, i] of the tests and texts of a box, for `count` rows."""
    lows = np.empty((plan.size, count), dtype=np.int64)
    highs = np.empty((plan.size, count), dtype=np.int64)
    sides = _sides(plan.skeleton)
    values = _plain_values(plan, sides, operands, count, columns)
    if values is not None:
        k.make_bounds(sides.lines, values, lows, highs)
        return lows, highs
    for t in range(len(plan.tests)):
        lows[t] = end_keys(plan, t, operands, columns, lower=True)
        highs[t] = end_keys(plan, t, operands, columns, lower=False)
    for t, text in enumerate(plan.texts, start=len(plan.tests)):
        lows[t] = highs[t] = text.expected
    return lows, highs


def _plain_values(
    plan: BoxPlan, sides: Sides, operands: Operands, count: int, columns: Columns
) -> Keys | None:
    """The operands' values, int64[source, i], floats by their bits; None if a value has another type."""
    integers = np.empty((len(sides.sources), count), dtype=np.int64)
    floats = integers.view(np.float64)
    for slot, (operand, kind, test, past) in enumerate(sides.sources):
        value: Any = operands[operand]
        if kind is Kind.STRING:
            integers[slot] = columns.text_keys(plan.columns[test], past, value)
            continue
        type_name = value.dtype.char if isinstance(value, np.ndarray) else type(value).__name__
        if kind is Kind.FLOAT64 and type_name in ("d", "float"):
            floats[slot] = value
        elif kind is not Kind.FLOAT64 and type_name in _INTEGERS:
            integers[slot] = value
        elif isinstance(value, datetime):
            integers[slot] = microseconds(value)
        else:
            return None
    return integers


def end_keys(plan: BoxPlan, t: int, operands: Operands, columns: Columns, *, lower: bool) -> int | Keys:
    test = plan.tests[t]
    side = test.lower if lower else test.upper
    if side is None:
        return test.low if lower else test.high
    value = operands[side.operand]
    if test.kind is Kind.STRING:
        value = columns.text_keys(plan.columns[t], side.past, value)
    return bound_key(test.kind, value, side.strict, lower=lower)
