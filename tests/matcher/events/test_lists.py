"""List attributes: values in all forms of batches, and filters on their presence."""

import numpy as np
import pyarrow as pa
import pytest

from covey.matcher import EventBatch, EventType, create_engine, parse
from covey.matcher.errors import EventError, FilterError
from covey.matcher.events.event_type import Kind
from covey.matcher.events.plain_rows import PlainRows

PHOTO = EventType("Photo", {"tags": "list<string>", "place": "string", "width": "int64"})
ROWS = [
    {"tags": ["sea", "sun"], "place": "Rügen", "width": 1},
    {"tags": [], "place": None, "width": 2},
    {"tags": None, "place": "", "width": 3},
    {"tags": ["straße", "", "𝄞"], "place": "x", "width": None},
]


def test_a_batch_holds_lists_however_few_events_it_has() -> None:
    for rows in (ROWS[:1], ROWS, ROWS * 10):
        batch = EventBatch.from_pylist(PHOTO, rows)
        assert batch.columns is None
        assert batch.to_pylist() == rows
        assert batch.values("tags") == [row["tags"] for row in rows]
        assert batch.record_batch.schema.field("tags").type == pa.list_(pa.string())


def test_the_bytes_of_events_count_every_string_and_its_length() -> None:
    batch = EventBatch.from_pylist(PHOTO, ROWS)
    assert batch.event_bytes().tolist() == [16 + 6 + 14, 16, 16, 16 + 1 + 12 + 11]
    assert batch.slice(1, 3).event_bytes().tolist() == batch.event_bytes()[1:].tolist()
    form = PlainRows(PHOTO)
    assert [form.row(row)[1] for row in ROWS] == batch.event_bytes().tolist()
    assert EventBatch.from_pylist(PHOTO, []).event_bytes().tolist() == []


@pytest.mark.parametrize(
    "value", [("a", "b"), ["a", "b"], np.array(["a", "b"]), np.array(["a", "b"], object)]
)
def test_sequences_of_strings_are_lists(value: object) -> None:
    assert EventBatch.from_pylist(PHOTO, [{"tags": value}]).values("tags") == [["a", "b"]]


@pytest.mark.parametrize(
    "value", ["ab", ["a", 1], ["a", None], {"a"}, [["a"]], 3, ["\ud800"], b"ab", {"a": 1}]
)
def test_other_values_are_refused_by_name(value: object) -> None:
    for rows in ([{"tags": value}], [{"tags": ["a"]}, {"tags": value}]):
        with pytest.raises(
            EventError, match=r"attribute tags is list<string>, got .*expected a list of strings"
        ):
            EventBatch.from_pylist(PHOTO, rows)


@pytest.mark.parametrize(
    "kind",
    [pa.large_list(pa.string()), pa.list_(pa.large_string()), pa.list_(pa.field("element", pa.string()))],
)
def test_arrow_lists_of_other_types_are_widened(kind: pa.DataType) -> None:
    column = pa.array([["a", "b"], None, []], kind)
    batch = EventBatch.from_arrow(PHOTO, pa.RecordBatch.from_arrays([column], ["tags"]))
    assert batch.values("tags") == [["a", "b"], None, []]
    assert batch.record_batch.schema == PHOTO.arrow_schema


@pytest.mark.parametrize(
    ("column", "error"),
    [
        (pa.array([["a"], ["a", None]]), "holds a list with a null"),
        (pa.array([[1]]), "expected list<item: string>"),
        (pa.array(["a"]), "expected list<item: string>"),
    ],
)
def test_arrow_lists_with_nulls_or_numbers_are_refused(column: pa.Array, error: str) -> None:
    with pytest.raises(EventError, match=f"column 'tags' .*{error}"):
        EventBatch.from_arrow(PHOTO, pa.RecordBatch.from_arrays([column], ["tags"]))


def test_lists_pass_the_wire_and_survive_parts_and_joins() -> None:
    batch = EventBatch.from_pylist(PHOTO, ROWS)
    assert EventBatch.deserialize(PHOTO, batch.serialized()) == batch
    assert batch.take([3, 0]).to_pylist() == [ROWS[3], ROWS[0]]
    assert EventBatch.concat([batch.slice(0, 1), batch.slice(1)]).to_pylist() == ROWS
    column = pa.array([["a", None]], Kind.STRINGS.arrow)
    nulls = pa.nulls(1, pa.string()), pa.nulls(1, pa.int64())
    hostile = pa.RecordBatch.from_arrays([column, *nulls], schema=PHOTO.arrow_schema)
    with pytest.raises(EventError, match="a list with a null"):
        EventBatch.deserialize(PHOTO, hostile.serialize().to_pybytes())
    with pytest.raises(EventError, match="packed columns, expected Arrow"):
        EventBatch.unpack(PHOTO, b"", 1)


def test_a_type_may_be_widened_by_lists_and_narrowed() -> None:
    narrow = EventType("Photo", {"place": "string"})
    batch = EventBatch.from_pylist(narrow, [{"place": "x"}])
    assert batch.columns is not None
    wide = batch.with_schema(PHOTO)
    assert wide.to_pylist() == [{"tags": None, "place": "x", "width": None}]
    assert EventBatch.deserialize(PHOTO, wide.serialized()).to_pylist() == wide.to_pylist()
    assert EventBatch.from_pylist(PHOTO, ROWS).with_schema(narrow).values("place") == ["Rügen", None, "", "x"]


def test_lists_travel_through_pandas() -> None:
    pytest.importorskip("pandas")
    batch = EventBatch.from_pylist(PHOTO, ROWS)
    assert EventBatch.from_pandas(PHOTO, batch.to_pandas()).values("tags") == batch.values("tags")


@pytest.mark.parametrize(
    ("text", "matching"),
    [
        ("exists(tags)", [0, 1, 3]),
        ("not exists(tags)", [2]),
        ("exists(tags) and width > 1", [1]),
        ("not exists(tags) or width == 1", [0, 2]),
    ],
)
def test_filters_test_the_presence_of_lists(text: str, matching: list[int]) -> None:
    filter = parse(text, PHOTO)
    assert [i for i, row in enumerate(ROWS) if filter.matches(row, {})] == matching
    for name in ("cluster", "naive", "scan"):
        engine = create_engine(name, PHOTO)
        engine.add(7, filter)
        offsets, _ = engine.match(EventBatch.from_pylist(PHOTO, ROWS))
        assert np.flatnonzero(np.diff(offsets)).tolist() == matching


def test_presence_is_covered() -> None:
    exists = parse("exists(tags)", PHOTO)
    assert exists.covers(parse("exists(tags) and width > 1", PHOTO))
    assert not exists.covers(parse("width > 1", PHOTO))
    assert parse("exists(tags) or not exists(tags)", PHOTO).covers(parse("width > 1", PHOTO))
    assert not exists.intersects(parse("not exists(tags)", PHOTO))


@pytest.mark.parametrize(
    "text", ['tags == "a"', 'tags in ("a")', 'tags contains "a"', "tags < $x", '"a" != tags']
)
def test_comparisons_of_lists_are_refused(text: str) -> None:
    with pytest.raises(FilterError, match=r"tags is list<string>: expected exists\(tags\) or a call such as"):
        parse(text, PHOTO)
