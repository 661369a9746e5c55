"""Metrics of a broker: those of the documentation, with the right values."""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from running import QUOTE, Brokers, on_a_loop, until

from covey.matcher import EventBatch, EventType
from covey.overlay import Client, scraping
from covey.overlay.core.endpoint.observing import MOST_PENDING, Histogram, Timings
from covey.overlay.core.messages import Receiver, Update
from covey.overlay.node import metrics_server
from covey.overlay.node.broker_storage import BrokerStorage, LogState, Retention
from covey.overlay.node.metrics import LONGEST_LABEL, METRICS, MOST_TYPES, OTHER, snapshot
from covey.overlay.node.state_store import StateStore
from covey.overlay.storage.files import OsFiles
from covey.sim.experiments.local_overlay import free_addresses

DOCS = Path(__file__).resolve().parents[3] / "docs"
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def test_metrics_that_documents_name_exist() -> None:
    names = {metric.name for metric in METRICS}
    assert all(metric.name.endswith("_total") is (metric.kind == "counter") for metric in METRICS)
    named = {
        name
        for page in DOCS.glob("*.md")
        for name in re.findall(r"`(covey_\w*[a-z])`", page.read_text())
        if not name.startswith("covey_gateway_")
    }
    assert len(named) > 10
    assert named <= names


@asynccontextmanager
async def exposing(
    links: Sequence[tuple[str, str]] = (), **options: Any
) -> AsyncIterator[tuple[Brokers, str]]:
    """Brokers, of which b1 exposes its metrics at the address."""
    with ExitStack() as held:  # or the brokers might have its port
        (address,) = free_addresses(1, held)
        async with Brokers(links, metrics={"b1": address}, **options) as brokers:
            server = metrics_server.MetricsServer(brokers.nodes["b1"], address)
            server.start()
            try:
                yield brokers, address
            finally:
                await server.stop()


async def scrape(address: str) -> tuple[dict[str, str], Series]:
    """The types by name, and the samples by name and labels."""
    from prometheus_client.parser import text_string_to_metric_families

    request = Request(f"http://{address}/metrics", headers={"Accept": "text/plain; version=0.0.4"})
    answer = await asyncio.to_thread(lambda: urlopen(request).read())
    types: dict[str, str] = {}
    samples: Series = {}
    for family in text_string_to_metric_families(answer.decode()):
        name = family.name + ("_total" if family.type == "counter" else "")
        types[name] = family.type
        for sample in family.samples:
            samples[sample.name, frozenset(sample.labels.items())] = sample.value
    return types, samples


def value(samples: Series, name: str, **labels: str) -> float:
    return samples[name, frozenset(labels.items())]


@on_a_loop
async def test_a_broker_exposes_what_it_does() -> None:
    async with exposing([("b1", "b2")]) as (brokers, address):
        async with (
            Client(brokers.address("b1"), name="near") as near,
            Client(brokers.address("b2"), name="far") as far,
        ):
            await near.advertise(QUOTE)
            mine = await near.subscribe("Quote", "price < $limit", limit=10.0)
            theirs = await far.subscribe(QUOTE)
            await far.settled(timeout=60)
            for limit in (20.0, 30.0, 40.0):
                await mine.update(limit=limit)
            for volume in range(50):
                await near.publish("Quote", firm="IBM", price=5.0, volume=volume)
            for subscription in (mine, theirs):
                for _ in range(50):
                    await asyncio.wait_for(anext(subscription), 60)
            await brokers.quiet()
            types, samples = await scrape(address)
        exposed = {name for name in types if not name.startswith("process_")}
        assert exposed == {m.name for m in METRICS}
        assert {m.name: m.kind for m in METRICS} == {name: types[name] for name in exposed}
        for metric in METRICS:
            names = {m for m, _ in samples}
            stored = metric.name.startswith("covey_log_sync")
            assert metric.kind != "histogram" or stored or f"{metric.name}_bucket" in names
        assert value(samples, "covey_ready") == 1
        assert value(samples, "covey_link_up", neighbour="b2") == 1
        assert value(samples, "covey_link_sent_events_total", neighbour="b2") == 50
        assert value(samples, "covey_link_received_messages_total", neighbour="b2", kind="Subscribe") == 1
        assert value(samples, "covey_link_sent_event_bytes_total", neighbour="b2") > 0
        assert value(samples, "covey_published_events_total") == 50
        assert value(samples, "covey_delivered_events_total") == 50
        assert value(samples, "covey_sessions", connected="yes") == 1
        assert value(samples, "covey_subscriptions") == 1
        assert value(samples, "covey_interests", event_type="Quote") == 2
        assert value(samples, "covey_update_delay_seconds_count") == 3
        assert value(samples, "covey_match_seconds_count", **{"class": "link"}) >= 1
        assert value(samples, "covey_pending_events", **{"class": "session"}) == 0
        await until(lambda: not brokers.nodes["b1"].core.tables.peers.get("client/near"), "it has left")
        _, later = await scrape(address)
        for counter in ("covey_published_events_total", "covey_delivered_events_total"):
            assert value(later, counter) == 50  # of a session that has ended


@on_a_loop
async def test_logs_and_durable_sessions_have_metrics(tmp_path: Path) -> None:
    durable = {"Quote": Retention()}
    async with (
        exposing(durable=durable, storage=str(tmp_path)) as (brokers, address),
        Client(brokers.address("b1"), name="feed") as feed,
    ):
        await feed.advertise(QUOTE)
        async with Client(brokers.address("b1"), name="reader", durable=True) as reader:
            await reader.subscribe(QUOTE)
        for volume in range(5):
            await feed.publish("Quote", firm="IBM", price=5.0, volume=volume, confirm=True)
        _, samples = await scrape(address)
        assert value(samples, "covey_log_appended_records_total", event_type="Quote") == 5
        assert value(samples, "covey_log_bytes", event_type="Quote") > 0
        assert value(samples, "covey_log_segments", event_type="Quote") == 1
        assert value(samples, "covey_log_unsynced_records", event_type="Quote") == 0
        assert 0 < value(samples, "covey_log_oldest_record_seconds", event_type="Quote") < 300
        assert value(samples, "covey_log_sync_seconds_count") >= 5
        assert value(samples, "covey_durable_sessions", connected="no") == 1
        assert value(samples, "covey_backlog_records", **{"class": "session"}) == 5
        assert value(samples, "covey_backlog_largest_records", **{"class": "session"}) == 5
        async with Client(brokers.address("b1"), name="reader", durable=True) as reader:
            subscription = await reader.subscribe(QUOTE)
            for _ in range(5):
                await asyncio.wait_for(anext(subscription), 60)
            queue = brokers.nodes["b1"].queues["client/reader"]
            await until(lambda: brokers.nodes["b1"].endpoint.backlog(queue) == 0, "acknowledged")


def test_what_retention_removes_unread_and_damage_are_counted(tmp_path: Path) -> None:
    (tmp_path / "Quote").mkdir()
    state = StateStore(":memory:")

    def opened() -> BrokerStorage:
        retention = {"Quote": Retention(max_bytes=4_000)}
        files = lambda name: OsFiles(tmp_path / name)  # noqa: E731
        return BrokerStorage(retention, files, state, salt=7, now_ns=time.time_ns, segment_bytes=1_000)

    def log() -> LogState:
        (found,) = storage.log_states()
        return found

    storage = opened()
    for volume in range(100):
        batch = EventBatch.from_pylist(QUOTE, [{"volume": volume}], publisher="p", first_sequence=volume)
        storage.append(batch, [Receiver("client/c")])
        storage.begin_sync()
        storage.run_sync()
        storage.end_sync()
    storage.trim("Quote", 3)
    records, _, missing = storage.read("Quote", 0, 1 << 20, "client/c")
    assert log().unread == records[0].offset - 3 == missing - 3 > 0
    assert (log().appended, log().damaged) == (100, 0)

    oldest = sorted((tmp_path / "Quote").glob("*.segment"))[0]
    data = bytearray(oldest.read_bytes())
    data[len(data) // 2] ^= 1
    oldest.write_bytes(data)
    for _ in range(2):
        storage.read("Quote", records[0].offset, 1 << 20, "client/c")
    assert log().damaged == 1
    storage.close()


@on_a_loop
async def test_a_scrape_may_name_the_metrics_that_it_wants() -> None:
    async with exposing() as (_, address):
        url = f"http://{address}/metrics?name[]=covey_ready&name[]=covey_refusals_total"
        answer = await asyncio.to_thread(lambda: urlopen(url).read().decode())
    assert re.findall(r"# TYPE (\w+)", answer) == ["covey_ready"]
    assert "covey_ready 1.0" in answer


@on_a_loop
async def test_whoever_connects_cannot_keep_prometheus_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async with exposing() as (_, address), contextlib.AsyncExitStack() as stack:
        host, _, port = address.rpartition(":")

        async def begun() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            writer.write(b"GET /metrics HTT")
            return reader, writer

        for _ in range(scraping._CONNECTIONS - 2):
            await begun()
        await scrape(address)
        for path, status in (("", 404), ("/metrics/x", 404), ("/favicon.ico", 404), ("/metrics?x=1", 200)):
            assert await status_of(f"http://{address}{path}") == status, path
        assert await status_of(f"http://{address}/metrics", data=b"x") == 501
        monkeypatch.setattr(scraping, "_REQUEST_WITHIN_S", 0.5)
        reader, writer = await begun()
        with contextlib.suppress(ConnectionError):
            for _ in range(300):  # a request that goes on and on
                writer.write(b"x")
                if await ended(reader):
                    break
            else:
                raise AssertionError("expected an end of the connection")


async def ended(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            return await reader.read(1_000) == b""
    return False


async def status_of(url: str, data: bytes | None = None) -> int:
    def ask() -> int:
        try:
            return int(urlopen(Request(url, data)).status)
        except HTTPError as error:
            return error.code

    return await asyncio.to_thread(ask)


@on_a_loop
async def test_a_scrape_of_a_busy_or_faulty_broker_has_a_status(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    async with exposing() as (_, address):
        for error, status in ((TimeoutError(), 503), (KeyError("x"), 500)):
            monkeypatch.setattr(metrics_server, "snapshot", AsyncMock(side_effect=error))
            assert await status_of(f"http://{address}/metrics") == status
    assert [each.getMessage() for each in caplog.records if "metrics" in each.getMessage()] == [
        "the metrics were not read: KeyError('x')"
    ]
    assert "Traceback" not in capfd.readouterr().err


@on_a_loop
async def test_event_types_beyond_a_number_share_their_series() -> None:
    async with Brokers() as brokers, Client(brokers.address("b1")) as client:
        for number in range(MOST_TYPES + 5):
            await client.advertise(EventType(f"T{number}" + 200 * "x", {"a": "int64"}))
        node = brokers.nodes["b1"]
        await until(lambda: len(node.core.tables.types) == MOST_TYPES + 5, "types are known")
        values = await snapshot(node, Histogram([1.0]), {})
        assert len(values["covey_publishers"]) == MOST_TYPES + 1
        assert values["covey_publishers"][OTHER,] == 5
        assert max(len(name) for (name,) in values["covey_publishers"]) == LONGEST_LABEL


def test_a_histogram_counts_by_upper_bounds() -> None:
    histogram = Histogram([1.0, 2.0])
    for each in (0.5, 1.0, 1.5, 3.0):
        histogram.observe(each)
    histogram.observe(2.0, 10)
    assert (histogram.counts, histogram.total) == ([2, 11, 1], 26.0)


def test_updates_are_timed_until_they_settle_and_few_wait_to_be() -> None:
    now_ns = 0
    timings = Timings(lambda: now_ns)
    for epoch in range(1, 2 * MOST_PENDING + 1):
        timings.arrived("client/c", [Update(epoch, 1, {})])
    now_ns = 3_000_000
    timings.settled("client/c", 10)
    assert (sum(timings.updates.counts), round(timings.updates.total, 9)) == (10, 0.03)
    timings.settled("client/c", 10 * MOST_PENDING)
    assert sum(timings.updates.counts) == MOST_PENDING
    timings.arrived("client/c", [Update(1, 1, {}), Update(2, 1, {})])
    timings.forget("client/c")
    timings.settled("client/c", 2)
    assert sum(timings.updates.counts) == MOST_PENDING


@on_a_loop
async def test_a_request_without_a_thread_keeps_no_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with exposing() as (_, address):
        host, _, port = address.rpartition(":")
        with monkeypatch.context() as patched:
            patched.setattr(scraping.threading.Thread, "start", Mock(side_effect=RuntimeError("none")))
            for _ in range(scraping._CONNECTIONS):
                reader, writer = await asyncio.open_connection(host, int(port))
                assert await reader.read(1) == b""
                writer.close()
        assert await status_of(f"http://{address}/metrics") == 200
    assert "the metrics were not read: RuntimeError('none')" in caplog.messages
