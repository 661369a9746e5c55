"""`match` against the oracle, in every form of filters and results."""

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from draws import SEED, examples
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from random_filters import event_types, events, filters, values_of

from covey.matcher import EventBatch, EventType, Matcher, parse
from covey.sim.metrics import spark_session
from covey.spark import SourceError, match, matching
from covey.spark.filter_set import filter_set
from covey.spark.matching import _Matching
from covey.spark.schemas import spark_schema

pytestmark = pytest.mark.xdist_group("spark")

QUOTE = EventType("Event", {"firm": "string", "price": "float64", "volume": "int64"})


@examples(100)
@given(data=st.data())
def test_random_filters_match_what_the_oracle_says(data: st.DataObject) -> None:
    """Without a job of Spark: a worker's code on a file and batches, in small parts."""
    event_type = data.draw(event_types())
    drawn = data.draw(st.lists(filters(event_type), min_size=1, max_size=6))
    ready = [each.substitute(data.draw(values_of(each.variables))) for each in drawn]
    rows = data.draw(st.lists(events(event_type), max_size=9))
    records = EventBatch.from_pylist(event_type, rows).record_batch
    chosen = filter_set({f"f{i}": str(each) for i, each in enumerate(ready)}, None, event_type)
    schema = spark_schema(EventType("T", {**event_type.attributes, "found": "list<string>"}))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching.SparkFiles, "get", lambda name: str(Path(folder) / name))
        patch.setattr(matching, "_FIRST_EVENTS", 2)
        patch.setattr(matching, "_MOST_IDS", 3)
        digest, file = chosen.save(Path(folder))
        run = _Matching(digest, file.name, chosen.event_type, chosen.labels, "ids", schema).run
        found = [row["found"] for batch in run(iter([records])) for row in batch.to_pylist()]
    expected = [[f"f{i}" for i, each in enumerate(ready) if each.matches(row)] for row in rows]
    assert [sorted(each) for each in found] == expected


def test_the_first_events_are_few_where_filters_are_many(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(matching, "_MOST_IDS", 40)
    monkeypatch.setattr(matching.SparkFiles, "get", lambda name: str(tmp_path / name))
    chosen = filter_set({f"f{i}": "price > 0" for i in range(20)}, None, QUOTE)
    digest, file = chosen.save(tmp_path)
    schema = spark_schema(EventType("T", {**QUOTE.attributes, "found": "list<string>"}))
    running = _Matching(digest, file.name, chosen.event_type, chosen.labels, "ids", schema)
    records = EventBatch.from_pylist(QUOTE, [{"price": 1.0}] * 10).record_batch
    parts = [sum(map(len, part["found"].to_pylist())) for part in running.run(iter([records]))]
    assert parts == [40] * 5


@pytest.fixture
def quotes(spark: None) -> DataFrame:
    random = np.random.default_rng(SEED)
    table = pa.table(
        {
            "firm": random.choice(["AAPL", "IBM", "MSFT"], 200),
            "price": random.integers(0, 100, 200).astype(float),
            "volume": random.integers(0, 1_000, 200),
            "note": [None] * 200,
        },
        schema=pa.schema([*QUOTE.arrow_schema, ("note", pa.decimal128(5))]),
    )
    return session().createDataFrame(table).repartition(2).cache()


def session() -> SparkSession:
    return spark_session()


TEXTS = {3: 'firm == "IBM" and price < 50', 8: "volume > 500 or price >= 90", 11: "price > 1000", 2: ""}


def expected_of(quotes: DataFrame, texts: dict[Any, str]) -> Counter[tuple[Any, ...]]:
    parsed = {each: parse(text, QUOTE) for each, text in texts.items()}
    rows = [row.asDict() for row in quotes.collect()]
    return Counter(
        (row["firm"], row["price"], row["volume"], each)
        for row in rows
        for each, filter in parsed.items()
        if filter.matches({name: row[name] for name in QUOTE.names})
    )


def test_ids_rows_and_counts_agree_with_the_oracle(quotes: DataFrame) -> None:
    expected = expected_of(quotes, TEXTS)
    found = match(quotes, TEXTS).collect()
    assert len(found) == 200
    pairs = [(row.firm, row.price, row.volume, each) for row in found for each in row.filters]
    assert Counter(pairs) == expected
    rows = match(quotes, TEXTS, output="rows").drop("note").collect()
    assert Counter(map(tuple, rows)) == expected
    counts = match(quotes, TEXTS, output="counts").collect()
    by_filter = Counter(pair[3] for pair in expected.elements())
    assert {row["filter"]: row.events for row in counts} == by_filter
    assert 11 not in by_filter


LIMITS = {"firm": ["IBM", "AAPL", "IBM"], "limit": [10.0, 60.5, 90.0], "id": [7, -1, 5]}


@pytest.mark.parametrize("form", [dict, pa.table, pd.DataFrame, pl.DataFrame, "spark"])
def test_values_come_as_a_table_of_any_library(quotes: DataFrame, form: Any) -> None:
    table = session().createDataFrame(pa.table(LIMITS)) if form == "spark" else form(LIMITS)
    found = match(quotes, "firm == $firm and price < $limit", values=table, output="counts").collect()
    texts = {
        each: f'firm == "{firm}" and price < {limit}'
        for firm, limit, each in zip(*LIMITS.values(), strict=True)
    }
    expected = Counter(pair[3] for pair in expected_of(quotes, texts).elements())
    assert {row["filter"]: row.events for row in found} == expected


def test_filters_come_as_a_table_with_names_or_as_a_matcher(quotes: DataFrame) -> None:
    table = pd.DataFrame(
        {
            "id": ["dear", "cheap"],
            "filter": ["price > $low", "price < $high"],
            "low": [90, None],
            "high": [None, 5],
        }
    )
    texts = {"dear": "price > 90", "cheap": "price < 5"}
    expected = Counter(pair[3] for pair in expected_of(quotes, texts).elements())
    found = match(quotes, table, output="counts", column="name").collect()
    assert {row["name"]: row.events for row in found} == expected
    matcher = Matcher()
    matcher.add(1, parse("price > 90", QUOTE))
    assert match(quotes, matcher, output="counts").collect() == [(1, expected["dear"])]


@pytest.mark.parametrize(
    ("filters", "options", "sentence"),
    [
        ({1: "pric < 3"}, {}, "filter 'pric < 3': .*did you mean price"),
        ({1: "price <"}, {}, "filter 'price <': .*, at column 8"),
        ("price < $limit", {"values": {"limt": [1]}}, r"variable \$limt is unknown"),
        ("price < $limit", {"values": {"limit": ["x"]}}, r"filters: variable \$limit"),
        ({1: "price < 3"}, {"values": {"a": [1]}}, "expected filters to be one text"),
        ({1.5: "price < 3"}, {}, "ids of filters are double"),
        ({1: 3}, {}, "filters of type int64: expected text"),
        (pa.table({"text": ["price < 3"]}), {}, "filters have the columns text: expected 'filter'"),
        (3, {}, "filters are int: expected a table"),
        (pa.table({"filter": ["price < 3", None]}), {}, "1 of 2 filters are null: expected text"),
        ({1: "price < 3", 2: 5}, {}, "filters are int, str: expected text"),
        (pa.table({"filter": ["price < 3"] * 3, "id": ["a", "b", "a"]}), {}, "is 'a' more than once"),
        (pa.table({"filter": ["volume < 3"], "id": pa.nulls(1, pa.int64())}), {}, "1 of 1 ids"),
        (pa.table({"filter": ["volume < 3"], "id": pa.nulls(1, pa.string())}), {}, "1 of 1 ids"),
        (pa.table({"filter": ["volume < 3"], "id": pa.array([1 << 63], pa.uint64())}), {}, "is 922"),
        ({1 << 63: "price < 3"}, {}, r"id of filters is 9223372036854775808: expected an int64, from -2\^63"),
        ({-1 - (1 << 63): "price < 3"}, {}, "id of filters is -9223372036854775809: expected an int64"),
        ({1: "price < 3", "a": "price < 3"}, {}, "ids of filters are int, str: expected all integers, or"),
        ({1: "price < 3"}, {"output": "row"}, "output is 'row': expected one of ids, rows, counts"),
        ({1: "price < 3"}, {"column": "price"}, "column is 'price': events have a column"),
        ({1: "price < 3"}, {"event_type": EventType("Q", {"price": "string"})}, "column 'price' is double"),
    ],
)
def test_mistakes_are_one_sentence(
    quotes: DataFrame, filters: Any, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(SourceError, match=sentence):
        match(quotes, filters, **options)


def test_columns_of_one_name_are_refused(quotes: DataFrame) -> None:
    with pytest.raises(SourceError, match="events have several columns 'price': expected each name once"):
        match(quotes.select("price", "volume", "price"), {1: "price < 3"})
