"""Columns of values in users' forms."""

from datetime import UTC, date, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from covey.matcher import EventBatch, EventType, VariableError, create_engine, parse
from covey.matcher.events.value_columns import column_of, columns_of, taken, taken_all

T = EventType("T", {"n": "float64", "s": "string", "b": "bool", "t": "timestamp"})
FILTER = parse("n >= $n and s == $s and b == $b and t >= $t", T)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROWS: dict[str, list[Any]] = {"n": [1, 2], "s": ["a", "é"], "b": [True, False], "t": [NOON, NOON]}


class Exported:
    """A column with Arrow's C interface alone, as other libraries have."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self._column.__arrow_c_array__(requested_schema)


class Polars:
    """Polars' own export, in chunks and with its strings."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column

    def __len__(self) -> int:
        return len(self._column)

    def to_arrow(self) -> pa.ChunkedArray:
        column = self._column
        if pa.types.is_string(column.type):
            column = column.cast(pa.large_string())
        return pa.chunked_array([column[:1], column[1:]])


def narrow(column: pa.Array, kind: type[np.number[Any]]) -> Any:
    values = column.to_numpy(zero_copy_only=False)
    return values.astype(kind) if values.dtype == np.int64 else column


def pandas_series(column: pa.Array) -> Any:
    return pytest.importorskip("pandas").Series(column.to_pylist())


def polars_series(column: pa.Array) -> Any:
    return pytest.importorskip("polars").Series(column.to_pylist())


FORMS = {
    "list": lambda column: column.to_pylist(),
    "tuple": lambda column: tuple(column.to_pylist()),
    "numpy": lambda column: np.array(column.to_pylist()),
    "objects": lambda column: np.array(column.to_pylist(), dtype=object),
    "int32": lambda column: narrow(column, np.int32),
    "uint64": lambda column: narrow(column, np.uint64),
    "float32": lambda column: narrow(column, np.float32),
    "masked": lambda column: np.ma.masked_array(column.to_numpy(zero_copy_only=False)),
    "arrow": lambda column: column,
    "arrow slice": lambda column: pa.concat_arrays([column[:1], column])[1:],
    "chunks": lambda column: pa.chunked_array([column[:1], column[1:]]),
    "dictionary": lambda column: column.dictionary_encode(),
    "exported": Exported,
    "polars by hand": Polars,
    "pandas": pandas_series,
    "polars": polars_series,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_column_has_the_effect_of_its_elements(form: str) -> None:
    values = {name: FORMS[form](pa.array(column)) for name, column in ROWS.items()}
    if form == "numpy":
        values["t"] = np.array(["2026-01-01T12"] * 2, dtype="datetime64[ms]")
    elif form == "masked":
        values["t"] = [NOON, NOON]
    events = [{"n": 1.5, "s": "a", "b": True, "t": NOON}, {"n": 2.0, "s": "é", "b": False, "t": NOON}]
    for name in ("cluster", "naive"):
        engine = create_engine(name, T)
        engine.add_many([1, 2], FILTER, values)
        engine.add_all((5, 6), [FILTER, FILTER], values)
        engine.add_many(np.arange(3, 5), FILTER, {"n": 9, "s": "", "b": True, "t": NOON})
        engine.update_many((3, 4), values)
        _, ids = engine.match(EventBatch.from_pylist(T, events)).ordered()
        assert ids.tolist() == [1, 3, 5, 2, 4, 6]


def test_times_of_any_unit_and_zone() -> None:
    column = pa.array([NOON, NOON])
    berlin = column.cast(pa.timestamp("ns", "Europe/Berlin"))
    for times in (column, berlin, column.cast(pa.timestamp("s")), pa.array([date(2026, 1, 1)] * 2)):
        engine = create_engine("cluster", T)
        engine.add_many([1, 2], parse("t <= $t", T), {"t": times})
        assert len(engine.match(EventBatch.from_pylist(T, [{"t": NOON}]))[0]) == (
            0 if times.type == "date32" else 2
        )


WRONG: list[tuple[Any, str]] = [
    (pa.array([1.0, None]), "1 nulls among 2 values"),
    (pa.nulls(2), "2 nulls among 2 values"),
    (np.ma.masked_array([1.0, 2.0], mask=[False, True]), "1 nulls among 2 values"),
    (pa.array([[1], [2]]), "Arrow type list"),
    (pa.array([b"a", b"b"]), "Arrow type binary"),
    (pa.array([1, 2], pa.duration("s")), "Arrow type duration"),
    (pa.array([1.0]), "1 values, expected one or 2"),
    ({"a": 1}, "expected a number"),
]


@pytest.mark.parametrize(("column", "message"), WRONG)
def test_wrong_columns_are_refused(column: Any, message: str) -> None:
    engine = create_engine("cluster", T)
    above = parse("n >= $n", T)
    with pytest.raises(VariableError, match=message):
        engine.add_many([1, 2], above, {"n": column})
    engine.add_many([1, 2], above, {"n": 1})
    with pytest.raises(VariableError, match=message):
        engine.update_many([1, 2], {"n": column})
    assert len(engine) == 2


def test_nulls_of_pandas_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    for column in (pandas.Series([1.0, None]), pandas.Series([1, None], dtype="Int64")):
        with pytest.raises(VariableError, match="1 nulls"):
            taken_all(columns_of({"x": column}))
    mixed = taken("x", column_of("x", pandas.Series([2**53 + 1, 1.5], dtype=object)))
    assert mixed == [2**53 + 1, 1.5]  # which neither int64 nor float64 holds


def test_nulls_that_no_subscription_takes_are_no_matter() -> None:
    for name in ("cluster", "naive"):
        engine = create_engine(name, T)
        filters = [parse("n >= $n", T), parse("s == $s", T)]
        columns = {"n": pa.array([1.0, None, 2.0]), "s": pa.array([None, "a", None])}
        engine.add_all([1, 2, 3], filters, columns, numbers=[0, 1, 0])
        assert engine.match(EventBatch.from_pylist(T, [{"n": 1.5, "s": "a"}])).ordered()[1].tolist() == [1, 2]
        with pytest.raises(VariableError, match=r"\$n"):
            engine.add_all([4, 5], filters, {"s": "a", "n": pa.array([None, 1.0])}, numbers=[0, 1])
        assert len(engine) == 3
