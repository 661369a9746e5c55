"""Batches from and to pandas DataFrames."""

import sys
from datetime import UTC, datetime
from types import ModuleType
from typing import Any

import pandas as pd
import pytest

from covey.matcher import CoveyError, EventBatch, EventError, EventType
from covey.matcher.events.python_rows import is_data_frame
from covey.matcher.events.value_columns import columns_of

QUOTE = EventType(
    "Quote", {"firm": "string", "price": "float64", "volume": "int64", "open": "bool", "time": "timestamp"}
)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ROWS: list[dict[str, Any]] = [
    {"firm": "IBM", "price": 9.5, "volume": 2**63 - 2, "open": True, "time": NOON},
    {"firm": None, "price": None, "volume": None, "open": None, "time": None},
]


def test_a_batch_round_trips_through_pandas() -> None:
    batch = EventBatch.from_pylist(QUOTE, ROWS)
    frame = batch.to_pandas()
    assert [str(dtype) for dtype in frame.dtypes[1:]] == [
        "float64",
        "Int64",
        "boolean",
        "datetime64[us, UTC]",
    ]
    again = EventBatch.from_pandas(QUOTE, frame, publisher="p", first_sequence=7, ingress_ns=8)
    assert again.to_pylist() == ROWS
    assert (again.publisher, again.first_sequence, again.ingress_ns) == ("p", 7, 8)


def test_no_value_is_of_pandas_while_another_thread_imports_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", ModuleType("pandas"))
    assert not is_data_frame(ROWS)
    assert columns_of({"limit": [1, 2]}) == {"limit": [1, 2]}


@pytest.mark.parametrize("rows", [[], ROWS[:1], ROWS[1:]])
def test_dtypes_do_not_depend_on_the_values(rows: list[dict[str, Any]]) -> None:
    frame = EventBatch.from_pylist(QUOTE, rows).to_pandas()
    assert list(frame.dtypes[1:]) == list(EventBatch.from_pylist(QUOTE, ROWS).to_pandas().dtypes[1:])


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ({"volume": [1, None]}, [1, None]),  # float64 in pandas
        ({"volume": pd.array([1, None], dtype="Int32")}, [1, None]),
        ({"price": [1, 2]}, [1.0, 2.0]),
        ({"price": [1.5, float("nan")]}, [1.5, None]),
        ({"firm": pd.Categorical(["a", None])}, ["a", None]),
        ({"open": [True, None]}, [True, None]),  # object in pandas
        ({"time": pd.to_datetime(["2026-01-31T12:00:00", None])}, [NOON, None]),
        ({"time": pd.to_datetime(["2026-01-31T13:00:00+01:00", None])}, [NOON, None]),
        ({"time": ["2026-01-31T12:00:00Z", None]}, [NOON, None]),
        ({"time": [NOON, None]}, [NOON, None]),
    ],
)
def test_columns_of_other_dtypes_are_converted(column: dict[str, Any], expected: list[object]) -> None:
    frame = pd.DataFrame(column, index=[5, 5])
    (name,) = column
    assert [event[name] for event in EventBatch.from_pandas(QUOTE, frame)] == expected


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (pd.DataFrame({"size": [1]}), "unknown column 'size'"),
        (pd.DataFrame([[1.0, 2.0]], columns=["price", "price"]), "appears 2 times"),
        (pd.DataFrame({"volume": [1.5]}), "column 'volume' does not fit int64"),
        (pd.DataFrame({"price": ["high"]}), "(price is float64, got 'high'|column 'price')"),
        (pd.DataFrame({"open": [1, True]}, dtype=object), "event 0 of Quote: attribute open is bool, got 1"),
        (pd.DataFrame({"firm": [1]}), "column 'firm' has Arrow type int64"),
        (pd.DataFrame({"firm": ["a", 1]}, dtype=object), "column 'firm' does not fit string"),
        ([{"price": 1.0}], "expected a pandas DataFrame, got list"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_by_name(frame: object, sentence: str) -> None:
    with pytest.raises(EventError, match=sentence):
        EventBatch.from_pandas(QUOTE, frame)


def test_without_pandas_to_pandas_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(CoveyError, match="needs pandas"):
        EventBatch.from_pylist(QUOTE, ROWS).to_pandas()
