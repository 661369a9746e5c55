"""The publisher of a sink, called as Spark calls it, without a broker."""

import asyncio
from types import SimpleNamespace

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark import TaskContext
from pyspark.sql.types import LongType, StructField, StructType

from covey.matcher import EventType
from covey.overlay.core.client.session import ClientSession
from covey.spark import sink
from covey.spark.options import SinkOptions, SourceError, read_options

SCHEMA = StructType([StructField("x", LongType())])
QUERY = "5f1c"


@pytest.mark.parametrize(("name", "publisher"), [(None, "spark"), ("mine", "mine")])
def test_a_repeated_micro_batch_has_the_publisher_of_the_first_attempt(
    name: str | None, publisher: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark reads the options anew for each micro-batch, and so after a restart."""
    properties = {sink._BATCH: "7", sink._QUERY: QUERY}
    task = SimpleNamespace(partitionId=lambda: 3, taskAttemptId=lambda: 1, getLocalProperty=properties.get)
    sessions: list[ClientSession] = []

    async def opened(self: sink.EventSink, client: str, session: ClientSession) -> None:
        await asyncio.sleep(0)
        sessions.append(session)
        raise SourceError("enough")

    monkeypatch.setattr(TaskContext, "get", lambda: task)
    monkeypatch.setattr(sink, "find_event_type_or_none", lambda _: EventType("Tick", {"x": "int64"}))
    monkeypatch.setattr(sink.EventSink, "_open", opened)
    given = {"broker": "127.0.0.1:1", "type": "Tick"} | ({} if name is None else {"name": name})
    for _ in range(2):
        writer = sink.StreamWriter(read_options(SinkOptions, given), SCHEMA)
        with pytest.raises(SourceError, match="enough"):
            writer.write(iter([pa.RecordBatch.from_pydict({"x": [1]})]))
    assert [session.publisher for session in sessions] == [f"{publisher}/{QUERY}/3"] * 2
