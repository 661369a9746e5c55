"""`covey top` and its page: all brokers from any of them, rates, and problems, within five seconds."""

import asyncio
import io
import json
import re
import resource
import shutil
from collections import namedtuple
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from chromium import chromium
from commands import run
from rich.console import Console
from running import QUOTE, Brokers, on_a_loop, until

from covey.cli.top import cells, show
from covey.matcher import EventBatch
from covey.overlay import Client, ConnectError
from covey.overlay.client import unary as overview_module
from covey.overlay.client.unary import OverviewReader
from covey.overlay.core.endpoint.observing import Histogram
from covey.overlay.node.broker_storage import Retention
from covey.overlay.node.metrics_server import MetricsServer
from covey.overlay.storage.files import StorageError
from covey.sim.experiments.local_overlay import LocalOverlay, free_addresses

LINKS = [("b1", "b2"), ("b2", "b3")]


async def flood(publisher: Client, batches: int) -> None:
    for number in range(batches):
        rows = [{"firm": "IBM", "price": 1.0, "volume": number}] * 500
        await publisher.publish_batch("Quote", EventBatch.from_pylist(QUOTE, rows).record_batch)


@on_a_loop
async def test_all_brokers_are_read_from_one_with_what_is_wrong() -> None:
    async with Brokers(LINKS) as brokers, Client(brokers.address("b1"), name="source") as source:
        await source.advertise(QUOTE)
        proxy = await brokers.proxy("b3")
        slow = Client(proxy.address, name="slow")
        await slow.open()
        await slow.subscribe(QUOTE, "price < $limit", limit=5)
        reader = OverviewReader(brokers.address("b1"))
        overview = await reader.read()
        assert [row.broker for row in overview.brokers] == ["b1", "b2", "b3"]
        assert [row.links for row in overview.brokers] == ["1/1", "2/2", "1/1"]
        assert [row.subscriptions for row in overview.brokers] == [0, 0, 1]
        assert overview.problems == []
        assert [(each["interface"], each["broker"]) for each in overview.largest] == [("client/slow", "b3")]
        proxy.freeze()
        await flood(source, 20)
        waiting = brokers.nodes["b3"].queues["client/slow"].link
        await until(lambda: waiting.backlog_events > 1_000, "events wait for the slow client")
        for _ in range(50):
            overview = await reader.read()
            if overview.problems:
                break
            await asyncio.sleep(0.1)
        (problem,) = overview.problems
        size = r"[\d,]+ events wait, [\d.]+ MiB"
        assert re.fullmatch(f"slow is too slow: {size}, it takes nothing", problem.text)
        assert (problem.broker, problem.page) == ("b3", "publishing.md#events-that-a-subscriber-does-not-get")
        assert overview.slowest[0]["interface"] == "client/slow"
        assert overview.brokers[2].waiting_events > 1_000
        await brokers.crash("b2")
        await until(lambda: not brokers.nodes["b1"].queues["broker/b2"].connected, "b2 has gone")
        overview = await reader.read()
        assert [row.state for row in overview.brokers] == ["not ready", "no answer", "not ready"]
        assert {each.broker for each in overview.problems} == {"b1", "b2", "b3"}
        proxy.thaw()
        await slow.close(grace=0.0)


@on_a_loop
async def test_rates_are_those_since_the_reading_before() -> None:
    async with Brokers() as brokers, Client(brokers.address("b1")) as client:
        await client.advertise(QUOTE)
        wanted = await client.subscribe(QUOTE, "price < $limit", limit=5)
        reader = OverviewReader(brokers.address("b1"))
        (row,) = (await reader.read()).brokers
        assert (row.events_in, row.events_out, row.updates) == (0, 0, 0)
        await flood(client, 2)
        await wanted.update(limit=6)
        core = brokers.nodes["b1"].core.tables.peers[f"client/{client.name}"].counters
        await until(lambda: core.events_sent == 1_000, "all are delivered")
        (row,) = (await reader.read()).brokers
        assert row.events_in == row.events_out > 0
        assert row.updates == pytest.approx(row.events_in / 1_000)
        assert cells(row)[0] == "b1"


@on_a_loop
async def test_without_a_broker_there_is_one_sentence() -> None:
    (address,) = free_addresses(1)
    with pytest.raises(ConnectError, match=address):
        await OverviewReader(address).read()


@on_a_loop
async def test_the_page_shows_what_the_command_shows() -> None:
    (address,) = free_addresses(1)
    async with Brokers(LINKS, metrics={"b1": address}) as brokers:
        server = MetricsServer(brokers.nodes["b1"], address, overview=OverviewReader)
        server.start()
        try:
            answer = await asyncio.to_thread(lambda: urlopen(f"http://{address}/overview.json").read())
            assert [row["broker"] for row in json.loads(answer)["brokers"]] == ["b1", "b2", "b3"]
            with pytest.raises(HTTPError, match=r"expected /metrics or / or /overview\.json"):
                await asyncio.to_thread(urlopen, f"http://{address}/nothing")

            def shown() -> str:
                with chromium() as browser:
                    page = browser.new_page()
                    page.call("Page.navigate", url=f"http://{address}/")
                    page.until("document.querySelectorAll('tbody tr').length === 3")
                    text: str = page.value("document.body.innerText")
                    assert page.logged == []
                    return text

            text = await asyncio.to_thread(shown)
            assert "b3\tserving\t1/1" in text
            assert "nothing" in text
        finally:
            await server.stop()


@on_a_loop
async def test_the_command_prints_one_table_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def shown(*words: str) -> tuple[int | str | None, str, str]:
        status = await asyncio.to_thread(run, "top", "--broker", address, *words)
        return status, *capsys.readouterr()

    async with Brokers(LINKS) as brokers:
        address = brokers.address("b3")
        status, table, error = await shown()
        assert status == 0, error
        assert [line.split()[:3] for line in table.splitlines()[1:4]] == [
            ["b1", "serving", "1/1"], ["b2", "serving", "2/2"], ["b3", "serving", "1/1"],
        ]  # fmt: skip
        assert "nothing is wrong" in table
        assert len(json.loads((await shown("--json"))[1])["brokers"]) == 3
    status, table, error = await shown()
    assert (status, table) == (1, "")
    assert error.startswith("covey: ")
    assert error.count("\n") == 1


@on_a_loop
async def test_what_a_slow_client_loses_is_counted_while_it_is_there() -> None:
    async with Brokers() as brokers, Client(brokers.address("b1"), name="source") as source:
        await source.advertise(QUOTE)
        proxy = await brokers.proxy("b1")
        slow = Client(proxy.address, name="slow", slow_consumer="drop_oldest")
        await slow.open()
        await slow.subscribe(QUOTE, "price < $limit", limit=5)
        reader = OverviewReader(brokers.address("b1"))
        await reader.read()
        proxy.freeze()
        await flood(source, 200)
        drops = brokers.nodes["b1"].queues["client/slow"].drops.by_reason
        await until(lambda: sum(drops.values()) > 0, "events are dropped for the slow client")
        overview = await reader.read()
        assert overview.brokers[0].dropped > 0
        assert any("events dropped since the last reading" in each.text for each in overview.problems)
        proxy.thaw()
        await slow.close(grace=0.0)


@on_a_loop
async def test_a_broker_with_a_full_disk_shows_up_within_five_seconds() -> None:
    """A limit on file sizes stands for a full disk: the broker stops, and its neighbour gets its goodbye."""
    links = [("b1", "b2")]
    async with (
        LocalOverlay(links, event_types=[QUOTE], durable=["Quote"], compiled=False) as overlay,
        Client(overlay.addresses["b2"]) as source,
        Client(overlay.addresses["b1"], "wanting", durable=True) as wanting,
    ):
        await source.advertise(QUOTE)
        await wanting.subscribe("Quote", "volume > $least", least=0)
        reader = OverviewReader(overlay.addresses["b1"])
        assert (await reader.read()).problems == []
        process = overlay.process_ids()["b2"]
        _, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
        resource.prlimit(process, resource.RLIMIT_FSIZE, (16, hard))
        await source.publish("Quote", volume=1)
        assert await asyncio.wait_for(overlay.exit_status("b2"), 60) == 3
        overview = await reader.read()
        texts = {(each.broker, each.page): each.text for each in overview.problems}
        full = "durability.md#a-full-disk"
        why = "broker b2 stops, since it cannot store events: the file may not grow further: expected room"
        assert texts["b2", full].startswith(why)
        assert why in texts["b1", full]
        assert [row.state for row in overview.brokers] == ["not ready", "no answer"]
        await source.close(grace=0.0)


@on_a_loop
async def test_a_disk_that_is_nearly_full_shows_up_before_the_broker_stops() -> None:
    import tempfile

    usage = namedtuple("usage", "total used free")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        durable = {"Quote": Retention()}
        async with Brokers(durable=durable, storage=folder, event_types=[QUOTE]) as brokers:
            reader = OverviewReader(brokers.address("b1"))
            assert (await reader.read()).problems == []
            patched.setattr(shutil, "disk_usage", lambda path: usage(1 << 30, 1 << 30, 3 << 20))
            (problem,) = (await reader.read()).problems
            assert problem.text == "the disk on which it stores is nearly full: 3.0 MiB are free"
            assert problem.page == "durability.md#a-full-disk"
            brokers.nodes["b1"].fail(StorageError("full", str(Path(folder) / "secret"), "no room is left"))
            await brokers.crash("b1")
            (problem,) = (await reader.read()).problems
            assert problem.text.endswith("; the disk on which it stores is nearly full: 3.0 MiB are free")


@on_a_loop
async def test_brokers_beyond_the_most_are_counted() -> None:
    async with Brokers([*LINKS, ("b2", "b4")]) as brokers:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(overview_module, "MOST_BROKERS", 2)
            reader = OverviewReader(brokers.address("b1"))
            overview = await reader.read()
        assert [row.broker for row in overview.brokers] == ["b1", "b2"]
        assert overview.others == 2
        console = Console(width=200, file=io.StringIO())
        console.print(show(overview))
        text = console.file.getvalue()
        assert "2 brokers are read; others that they are linked with: 2" in text


def test_a_quantile_is_a_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.5, 1.5, 99.0):
        histogram.observe(value)
    assert [histogram.quantile(share) for share in (0.25, 0.5, 0.75, 1.0)] == [1.0, 2.0, 2.0, 2.0]
