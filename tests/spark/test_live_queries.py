"""Queries of Spark over live brokers: a stream into memory, and DataFrames into the sink."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from live_brokers import LiveBrokers
from pyspark.sql import DataFrame, SparkSession
from running import eventually

from covey.matcher import EventBatch, EventType
from covey.overlay import Client, Subscription
from covey.sim.metrics import spark_session
from covey.spark import CoveySource
from covey.spark.schemas import arrow_schema, spark_schema
from covey.spark.stream_reader import EventRecords

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]

EVERYTHING = EventType(
    "Everything",
    {"a": "int64", "b": "float64", "c": "string", "d": "bool", "e": "timestamp", "f": "list<string>"},
)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def session() -> SparkSession:
    session = spark_session()
    session.dataSource.register(CoveySource)
    return session


def test_a_stream_has_what_matches_and_stopping_it_ends_its_session(
    live: LiveBrokers, session: SparkSession, tmp_path: Path
) -> None:
    stream = (
        session.readStream.format("covey")
        .options(broker=live.far, type="Quote", filter="price < $limit", values='{"limit": 5}')
        .options(name="into-memory", metadata=True)
        .load()
    )
    query = (
        stream.writeStream.format("memory")
        .queryName("quotes")
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    eventually(lambda: query.lastProgress is not None, "the first micro-batch, which is empty")
    assert "client/into-memory" in live.clients()
    rows = [("IBM", float(i % 10), i) for i in range(1_000)]
    live.publish(*rows)
    eventually(lambda: session.table("quotes").count() >= 500, "500 events")
    query.processAllAvailable()
    found = session.table("quotes").collect()
    assert Counter(tuple(row)[:3] for row in found) == Counter(row for row in rows if row[1] < 5)
    assert [row["_sequence"] for row in found] == sorted(row["_sequence"] for row in found)
    assert '"events": 500, "missed": 0' in query.lastProgress["sources"][0]["endOffset"]
    query.stop()
    eventually(lambda: "client/into-memory" not in live.clients(), "the end of the session")


async def _subscribe(live: LiveBrokers, event_type: EventType) -> tuple[Client, Subscription]:
    client = Client(live.brokers.address("b1"))
    await client.open()
    return client, await client.subscribe(event_type)


async def _events(subscription: Subscription, count: int) -> list[tuple[object, ...]]:
    events: list[tuple[object, ...]] = []
    async with asyncio.timeout(120):
        async for batch in subscription.batches():
            events += [tuple(each.values()) for each in batch]
            if len(events) >= count:
                break
    return events


async def _publish_at(address: str, event_type: EventType, event: dict[str, object]) -> None:
    async with Client(address) as client:
        await client.advertise(event_type)
        await client.publish(event_type.name, event, confirm=True)


def test_a_data_frame_of_every_type_is_published(live: LiveBrokers, session: SparkSession) -> None:
    client, subscription = live.run(_subscribe(live, EVERYTHING))
    rows = [(1, 2.5, "x", True, NOON, ["p", "q"]), (None,) * 6, (3, None, "", False, None, [])]
    frame = session.createDataFrame(rows, spark_schema(EVERYTHING)).repartition(2)
    frame.write.format("covey").mode("append").options(broker=live.far, type="Everything").save()
    found = live.run(_events(subscription, 3))
    assert sorted(map(str, found)) == sorted(map(str, rows))
    live.run(client.close())


def test_a_stream_of_any_columns_is_published_in_order(
    live: LiveBrokers, session: SparkSession, tmp_path: Path
) -> None:
    ticks = EventType("Tick", {"value": "int64", "half": "float64"})
    client, subscription = live.run(_subscribe(live, ticks))
    table = tmp_path / "table"
    for part in range(2):
        session.range(part * 100, part * 100 + 100, numPartitions=1).selectExpr(
            "id as value", "cast(id / 2 as float) half"
        ).write.mode("append").parquet(str(table))
    stream = session.readStream.schema("value bigint, half float").option("maxFilesPerTrigger", 1)
    query = (
        stream.parquet(str(table))
        .writeStream.format("covey")
        .options(broker=live.far, type="Tick", checkpointLocation=str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    found = live.run(_events(subscription, 200))
    assert found == [(value, value / 2) for value in range(200)]
    live.run(client.close())


def test_writes_of_one_micro_batch_are_not_taken_for_repetitions(
    live: LiveBrokers, session: SparkSession, tmp_path: Path
) -> None:
    """Each call of `df.write` has an identity of its own, in `foreachBatch` as well."""
    parts = EventType("Part", {"value": "int64"})
    client, subscription = live.run(_subscribe(live, parts))
    table = str(tmp_path / "table")
    session.range(0, 20, numPartitions=1).selectExpr("id as value").write.parquet(table)

    def write_halves(batch: DataFrame, _: int) -> None:
        for half in ("value < 10", "value >= 10"):
            writer = batch.where(half).write.format("covey").mode("append")
            writer.options(broker=live.far, type="Part", name="halves").save()

    stream = session.readStream.schema("value bigint").parquet(table)
    query = stream.writeStream.foreachBatch(write_halves).trigger(availableNow=True).start()
    query.awaitTermination(60)
    live.run(_publish_at(live.far, parts, {"value": 20}))
    found: list[tuple[object, ...]] = []
    while (20,) not in found:  # which is behind all others
        found += live.run(_events(subscription, 1))
    assert found == [(value,) for value in range(21)]
    live.run(client.close())


def test_records_have_the_schema_that_spark_expects() -> None:
    batch = EventBatch.from_pylist(EVERYTHING, [{"f": ["p"]}, {"a": 1}], publisher="p")
    schema = spark_schema(EVERYTHING)
    (records,) = EventRecords(EVERYTHING, schema).build("b", [batch])
    assert records.schema.equals(arrow_schema(schema))
    assert [row["f"] for row in records.to_pylist()] == [["p"], None]
