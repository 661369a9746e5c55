"""The reader of a stream, called as Spark calls it: offsets, partitions that repeat, bounds, loss."""

import asyncio
import logging
import os
import pickle
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from live_brokers import LiveBrokers
from pyspark.sql.datasource import CaseInsensitiveDict
from running import QUOTE, eventually

from covey.overlay import Client
from covey.spark import CoveySource, SourceError, stream_reader, update
from covey.spark.receiver import Receiver
from covey.spark.stream_reader import EventStreamReader, Offsets

pytestmark = pytest.mark.xdist_group("spark")


def source(broker: str, **options: object) -> CoveySource:
    given = {"broker": broker, "type": "Quote", **{name: str(value) for name, value in options.items()}}
    return CoveySource(CaseInsensitiveDict(given))


@contextmanager
def reading(live: LiveBrokers, **options: object) -> Iterator[EventStreamReader]:
    of = source(live.far, **options)
    reader = of.streamReader(of.schema())
    reader.initialOffset()
    try:
        yield reader
    finally:
        reader.stop()


@contextmanager
def receiving(live: LiveBrokers, **options: object) -> Iterator[tuple[EventStreamReader, Receiver]]:
    """A reader, and the receiver that it has opened."""
    receivers: list[Receiver] = []

    def opened(*arguments: Any) -> Receiver:
        receivers.append(Receiver(*arguments))
        return receivers[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stream_reader, "Receiver", opened)
        with reading(live, **options) as reader:
            (receiver,) = receivers
            yield reader, receiver


def latest(reader: EventStreamReader, events: int) -> Offsets:
    """The offsets, once there are so many events."""
    offsets: Offsets = {}

    def reached() -> bool:
        nonlocal offsets
        offsets = reader.latestOffset()
        return sum(offset["events"] for offset in offsets.values()) >= events

    eventually(reached, f"{events} events")
    return offsets


def rows(reader: EventStreamReader, start: Offsets, end: Offsets) -> list[dict[str, Any]]:
    """The rows of a micro-batch, by a reader pickled as for a worker."""
    travelled = pickle.loads(pickle.dumps(reader))
    partitions = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    return [row for each in partitions for batch in travelled.read(each) for row in batch.to_pylist()]


def quotes(count: int, start: int = 0) -> list[tuple[str, float, int]]:
    return [(f"firm {i % 3}", float(i % 10), i) for i in range(start, start + count)]


def test_what_matches_comes_once_and_in_order_of_its_publisher(live: LiveBrokers) -> None:
    with reading(live, filter="price < $limit", values='{"limit": 5}', metadata=True) as reader:
        start = reader.initialOffset()
        other = live.another("other")
        live.publish(*quotes(100))
        live.publish(*quotes(50, 1_000), by=other)
        live.publish(*quotes(100, 100))
        end = latest(reader, 125)
        found = rows(reader, start, end)
        live.run(other.close())
        expected = {q[2] for q in [*quotes(200), *quotes(50, 1_000)] if q[1] < 5}
        assert sorted(row["volume"] for row in found) == sorted(expected)
        for publisher in {row["_publisher"] for row in found}:
            own = [(row["_sequence"], row["volume"]) for row in found if row["_publisher"] == publisher]
            assert own == sorted(own)
        assert {row["_broker"] for row in found} == {live.far}
        assert latest(reader, 125) == end


def test_a_micro_batch_repeats_until_it_is_committed(live: LiveBrokers) -> None:
    with reading(live) as reader:
        start = reader.initialOffset()
        live.publish(*quotes(20))
        middle = latest(reader, 20)
        live.publish(*quotes(20, 20))
        end = latest(reader, 40)
        first = rows(reader, start, middle)
        assert [row["volume"] for row in first] == list(range(20))
        assert rows(reader, start, middle) == first
        reader.commit(middle)
        assert [row["volume"] for row in rows(reader, middle, end)] == list(range(20, 40))
        assert rows(reader, end, end) == []


def test_a_micro_batch_has_no_more_events_than_its_option_says(live: LiveBrokers) -> None:
    with reading(live, batch_events=7) as reader:
        before = reader.initialOffset()
        live.publish(*quotes(20))
        sizes, volumes = [], []
        while len(volumes) < 20:
            after = reader.latestOffset()
            found = rows(reader, before, after)
            reader.commit(after)
            sizes.append(len(found))
            volumes += [row["volume"] for row in found]
            before = after
        assert max(sizes) == 7
        assert volumes == list(range(20))


def test_what_is_held_has_a_bound_and_nothing_is_lost(live: LiveBrokers) -> None:
    bound = 16 << 10
    with receiving(live, buffer_bytes=bound, slow_consumer="block") as (reader, receiver):
        (held,) = receiver.held.values()
        before, volumes = reader.initialOffset(), []
        live.run(_publish_without_waiting(live.market, 20_000))
        eventually(lambda: held.full, "the bound")
        largest = 0
        while len(volumes) < 20_000:
            after = reader.latestOffset()
            volumes += [row["volume"] for row in rows(reader, before, after)]
            largest = max([largest, *(item.bytes for item in held.items())])
            assert held.bytes <= 2 * (bound + largest)
            reader.commit(before)  # Spark commits a micro-batch with the next one, at the earliest
            before = after
        assert volumes == list(range(20_000))
        live.run(live.market.flush())


def test_a_reader_goes_on_that_found_the_buffer_full_while_spark_made_room(live: LiveBrokers) -> None:
    with receiving(live, buffer_bytes=1_024) as (_, receiver), pytest.MonkeyPatch.context() as patch:
        (held,) = receiver.held.values()
        finish = held.finish

        def finish_full(stop: int) -> None:
            live.publish(*quotes(100))
            eventually(lambda: held.full, "the bound")
            time.sleep(0.05)  # until its reader waits for room
            finish(held.stop)

        patch.setattr(held, "finish", finish_full)
        receiver.finish(live.far, 0)
        live.publish(*quotes(1))
        eventually(lambda: held.stop == 101, "the events after it")


async def _publish_without_waiting(client: Client, count: int) -> None:
    for start in range(0, count, 500):
        batch = [dict(zip(QUOTE.names, row, strict=True)) for row in quotes(500, start)]
        await client.publish_batch("Quote", batch)


def test_dropped_events_are_counted_and_are_rows_on_request(live: LiveBrokers) -> None:
    with reading(live, buffer_bytes=1_024, slow_consumer="drop_newest", gaps="rows") as reader:
        before, events, missed = reader.initialOffset(), 0, 0
        live.run(_publish_without_waiting(live.market, 30_000))
        live.run(live.market.flush())

        def all_accounted() -> bool:
            nonlocal before, events, missed
            after = reader.latestOffset()
            for row in rows(reader, before, after):
                missed += row["_missed"] or 0
                events += row["_missed"] is None
            reader.commit(after)
            before = after
            return events + missed >= 30_000

        eventually(all_accounted, "every event, or its gap")
        assert missed
        assert events + missed == 30_000
        assert before[live.far]["missed"] == missed


def test_variables_of_a_running_query_change(live: LiveBrokers) -> None:
    options = {"filter": "price < $limit", "values": '{"limit": 1}', "name": "moving"}
    with reading(live, **options) as reader:
        start = reader.initialOffset()
        update("moving", limit=3)
        live.publish(*quotes(10))
        end = latest(reader, 3)
        assert [row["volume"] for row in rows(reader, start, end)] == [0, 1, 2]
        with pytest.raises(SourceError, match=r"'moving': variable \$limt is unknown"):
            update("moving", limt=4)
        with pytest.raises(SourceError, match="option name is 'moving': a running query"):
            source(live.far, **options).streamReader(source(live.far).schema()).initialOffset()
    with pytest.raises(SourceError, match="no query of this user"):
        update("moving", limit=3)


def test_stop_ends_the_session(live: LiveBrokers) -> None:
    with reading(live, name="short"):
        assert "client/short" in live.clients()
    eventually(lambda: "client/short" not in live.clients(), "the end of the session")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for goodbyes on a busy machine."""
    for place in ("overlay.client.driver", "spark.receiver"):
        monkeypatch.setattr(f"covey.{place}._GOODBYE_S", 60.0)


@pytest.mark.usefixtures("patient")
def test_a_query_that_is_stopped_while_it_connects_ends_its_session(
    live: LiveBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_at_once = Client.open

    async def open_slowly(client: Client) -> None:
        await open_at_once(client)
        try:
            await asyncio.sleep(60)
        except BaseException:
            await asyncio.sleep(0.2)  # as a client that is still sending
            await client.close()
            raise

    def stop() -> None:
        eventually(lambda: "client/early" in live.clients(), "the session")
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Client, "open", open_slowly)
    before = signal.getsignal(signal.SIGTERM)
    stopping = threading.Thread(target=stop)
    stopping.start()
    try:
        with pytest.raises(SystemExit), reading(live, name="early"):
            pass
    finally:
        stopping.join()
        signal.signal(signal.SIGTERM, before)
    eventually(lambda: "client/early" not in live.clients(), "the end of the session, before its lease")


@pytest.mark.usefixtures("patient")
def test_a_signal_while_sessions_end_does_not_stop_them_from_it(
    live: LiveBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    close_at_once = Client.close

    async def close_slowly(client: Client, *, grace: float) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.2)
        await close_at_once(client, grace=grace)

    with reading(live, name="twice"):
        monkeypatch.setattr(Client, "close", close_slowly)
    eventually(lambda: "client/twice" not in live.clients(), "the end of the session, before its lease")


def test_what_an_earlier_run_left_is_reported_as_lost(
    live: LiveBrokers, caplog: pytest.LogCaptureFixture
) -> None:
    with reading(live) as reader:
        start = reader.initialOffset()
        live.publish(*quotes(5))
        end = latest(reader, 5)
    with reading(live) as reader, caplog.at_level(logging.WARNING, "covey.spark"):
        assert rows(reader, start, end) == []
        assert "5 events" in caplog.text
        live.publish(*quotes(3))
        assert [row["volume"] for row in rows(reader, end, latest(reader, 3))] == [0, 1, 2]
        assert "between two runs" in caplog.text
    with (
        reading(live, on_loss="fail") as reader,
        pytest.raises(SourceError, match="option on_loss is 'fail': 5 events"),
    ):
        reader.partitions(start, end)


def test_two_brokers_of_one_overlay_are_refused(live: LiveBrokers) -> None:
    both = f"{live.brokers.address('b1')},{live.far}"
    of = source(both)
    reader = of.streamReader(of.schema())
    try:
        reader.initialOffset()
        live.publish(*quotes(1))
        with pytest.raises(SourceError, match="expected one broker of each overlay"):
            eventually(lambda: bool(reader.latestOffset()) and False)
    finally:
        reader.stop()
