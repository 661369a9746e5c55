"""Columns of values in users' forms: NumPy arrays, lists, tuples, pandas and Polars Series, Arrow arrays.

Engines take NumPy arrays and lists. An Arrow array stays one until its elements are taken, since a column for
several filters may have nulls where a filter lacks the variable; `taken` refuses nulls."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as is_

from covey.matcher.errors import VariableError

ArrowColumn: TypeAlias = Any  # an Arrow array; Arrow has no types for mypy
_PLAIN = frozenset({float, int, str, bool, datetime, np.ndarray, list})
_VALUES = (list, str, bytes, bool, int, float, date, datetime, np.generic)


def columns_of(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """The values with every column as a NumPy array, a list or an Arrow array; single values as they are.
    `VariableError` names a column of anything but numbers, strings, Booleans or times."""
    if values is None:
        return {}
    check_mapping(values)
    return {name: column_of(name, value) for name, value in values.items()}


def check_mapping(values: object) -> None:
    """`VariableError` for values that are no mapping."""
    if not hasattr(values, "items"):
        kind = type(values).__name__
        raise VariableError(f"values of type {kind}: expected a mapping from variables to values or columns")


def column_of(name: str, value: Any) -> Any:
    """As `columns_of`, for one value."""
    if value.__class__ in _PLAIN or isinstance(value, _VALUES) or not hasattr(value, "__len__"):
        return value
    if isinstance(value, np.ma.MaskedArray):
        return value.filled() if not np.ma.is_masked(value) else pa.array(value)
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, tuple) or (_is_series(value) and value.dtype == np.object_):
        return list(value)
    try:
        column = _arrow(value)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        column = None
    if column is None:
        return value
    if is_.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(column, pa.ChunkedArray):  # of over 2 GiB of text
        column = column.cast(pa.large_string()).combine_chunks()
    if not _is_accepted(column.type):
        raise VariableError(
            f"variable ${name}: a column of Arrow type {column.type}, "
            "expected numbers, strings, Booleans or times"
        )
    return column


def _arrow(value: Any) -> ArrowColumn | None:
    """A column of another library as an Arrow array; None if it is no column."""
    if isinstance(value, (pa.Array, pa.ChunkedArray)):
        return value
    if _is_series(value):
        return pa.Array.from_pandas(value)
    if hasattr(value, "to_arrow"):  # Polars, whatever the version of Arrow
        return value.to_arrow()
    if hasattr(value, "__arrow_c_array__"):
        return pa.array(value)
    return pa.chunked_array(value) if hasattr(value, "__arrow_c_stream__") else None


def _is_series(value: object) -> bool:
    pandas = sys.modules.get("pandas")
    if pandas is None or not hasattr(pandas, "api"):  # another thread is importing it
        return False
    return isinstance(value, (pandas.Series, pandas.Index, pandas.api.extensions.ExtensionArray))


def _is_accepted(kind: pa.DataType) -> bool:
    return bool(
        is_.is_integer(kind) or is_.is_floating(kind) or is_.is_boolean(kind) or is_.is_null(kind)
        or is_text(kind) or is_.is_timestamp(kind) or is_.is_date(kind)
    )  # fmt: skip


def is_text(kind: pa.DataType) -> bool:
    is_view = getattr(is_, "is_string_view", None)
    return bool(is_.is_string(kind) or is_.is_large_string(kind) or (is_view is not None and is_view(kind)))


def is_column(value: object) -> TypeGuard[Any]:
    """Whether a value from `columns_of` is a column."""
    return isinstance(value, list) or (hasattr(value, "__array__") and getattr(value, "ndim", 1) == 1)


def element_of(values: Mapping[str, Any], position: int) -> dict[str, Any]:
    return {name: value[position] if is_column(value) else value for name, value in values.items()}


def elements_of(values: Mapping[str, Any], positions: npt.NDArray[np.int64]) -> dict[str, Any]:
    return {name: elements(value, positions) for name, value in values.items()}


def elements(column: Any, positions: npt.NDArray[np.int64]) -> Any:
    """The elements at these positions of a column from `columns_of`; a single value as it is."""
    if isinstance(column, list):
        return [column[position] for position in positions.tolist()]
    if isinstance(column, np.ndarray):
        return column if column.ndim != 1 else column[positions]
    return column.take(pa.array(positions)) if isinstance(column, pa.Array) else column


def taken(name: str, column: Any, positions: npt.NDArray[np.int64] | None = None) -> Any:
    """The elements at these positions, by default all, as a NumPy array or a list; a single value as it is.
    `VariableError` if an element is null."""
    column = column if positions is None else elements(column, positions)
    if not isinstance(column, pa.Array):
        return column
    if column.null_count:
        raise VariableError(
            f"variable ${name}: a column with {column.null_count} nulls among {len(column)} values, "
            "expected a value for each subscription"
        )
    return column.to_numpy(zero_copy_only=False)


def taken_all(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: taken(name, column) for name, column in values.items()}
