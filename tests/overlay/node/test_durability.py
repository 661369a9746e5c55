"""Durable types and sessions on real brokers: across restarts of clients, and kill -9 of brokers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import yaml
from running import on_a_loop, until

from covey.matcher import EventType, VariableError
from covey.overlay import Client, ConnectError
from covey.overlay.documents import ConfigError
from covey.overlay.node.broker_storage import BrokerStorage, Retention
from covey.overlay.node.config import check_storage, load_overlay
from covey.overlay.node.main import run_broker
from covey.overlay.node.storage_directory import open_storage
from covey.overlay.storage.files import StorageError
from covey.sim.experiments.local_overlay import LocalOverlay, chain, free_addresses

ORDER = EventType("Order", {"number": "int64", "text": "string"})


@asynccontextmanager
async def publishing(overlay: LocalOverlay, broker: str) -> AsyncIterator[Client]:
    async with Client(overlay.addresses[broker]) as client:
        await client.advertise(ORDER)
        yield client


async def orders(client: Client, numbers: range) -> None:
    for number in numbers:
        await client.publish("Order", number=number, text="x")
    await client.flush()


async def take(client: Client, count: int) -> list[int]:
    subscription = await client.subscribe(ORDER, "number >= $least", least=0)
    numbers: list[int] = []
    async with asyncio.timeout(60):
        async for event in subscription:
            numbers.append(event["number"])
            if len(numbers) == count:
                break
    return numbers


@on_a_loop
async def test_a_durable_session_gets_what_came_while_its_client_was_away(local_brokers: None) -> None:
    async with (
        LocalOverlay(chain(2), event_types=[ORDER], durable=["Order"], compiled=False) as overlay,
        publishing(overlay, "b1") as publisher,
    ):
        async with Client(overlay.addresses["b2"], "reader", durable=True) as reader:
            await reader.subscribe(ORDER, "number >= $least", least=0)
        await orders(publisher, range(100))
        async with Client(overlay.addresses["b2"], "reader", durable=True) as reader:
            assert await take(reader, 100) == [*range(100)]
        await orders(publisher, range(100, 150))
        await overlay.kill("b2")
        await orders(publisher, range(150, 200))
        await overlay.start("b2")
        async with Client(overlay.addresses["b2"], "reader", durable=True) as reader:
            assert await take(reader, 100) == [*range(100, 200)]
            assert len(reader.session.subscriptions) == 1
            await reader.close(end=True)
        await orders(publisher, range(200, 210))
        async with Client(overlay.addresses["b2"], "reader", durable=True) as reader:
            assert not reader.session.subscriptions


@on_a_loop
async def test_a_subscription_of_an_earlier_process_waits_until_it_is_claimed_with_values_that_fit(
    local_brokers: None,
) -> None:
    """Claimed and lost, it had no reader, and its events filled its client's window."""
    async with LocalOverlay(chain(1), event_types=[ORDER], durable=["Order"], compiled=False) as overlay:
        async with Client(overlay.addresses["b1"], "reader", durable=True) as reader:
            earlier = await reader.subscribe(ORDER, "number >= $least", least=0)
        async with Client(overlay.addresses["b1"], "reader", durable=True) as reader:
            with pytest.raises(VariableError):
                await reader.subscribe(ORDER, "number >= $least", least="few")
            again = await reader.subscribe(ORDER, "number >= $least", least=1)
            assert again.id == earlier.id
            assert [*reader.session.subscriptions] == [earlier.id]


@on_a_loop
async def test_a_broker_without_durable_types_refuses_a_durable_session(brokers_in_process: None) -> None:
    async with LocalOverlay(chain(2), compiled=False) as overlay:
        with pytest.raises(ConnectError, match="b1 has no durable types"):
            async with Client(overlay.addresses["b1"], "reader", durable=True):
                pass


def arrived_after(numbers: list[int], number: int) -> bool:
    return numbers[-1] > number + 500


@pytest.mark.thorough
@on_a_loop
async def test_kill_of_each_broker_in_turn_loses_nothing_and_repeats_nothing() -> None:
    async with (
        LocalOverlay(chain(3), event_types=[ORDER], durable=["Order"]) as overlay,
        publishing(overlay, "b1") as publisher,
        Client(overlay.addresses["b3"], "reader", durable=True) as reader,
    ):
        subscription = await reader.subscribe(ORDER)
        numbers: list[int] = []
        published, stopping = 0, asyncio.Event()

        async def read() -> None:
            async for batch in subscription.batches():
                numbers.extend(row["number"] for row in batch.to_pylist())

        async def flood() -> None:
            nonlocal published
            while not stopping.is_set():
                for _ in range(20):
                    await publisher.publish("Order", number=published, text="x" * 100)
                    published += 1
                await asyncio.sleep(0.02)

        async with asyncio.TaskGroup() as tasks:
            reading, flooding = tasks.create_task(read()), tasks.create_task(flood())
            await until(lambda: len(numbers) > 1_000, "events arrive")
            for broker in ("b1", "b2", "b3", "b2"):
                await overlay.kill(broker)
                await until(partial(lambda gone_at: published > gone_at + 500, published))
                await overlay.start(broker)
                back_at = published
                await until(partial(arrived_after, numbers, back_at), f"events arrive after {broker}", 60.0)
            stopping.set()  # cancelled, it may have published an event that it has not counted
            await flooding
            await publisher.flush()
            await until(lambda: len(numbers) >= published, "all have arrived", 60.0)
            reading.cancel()
        assert numbers == [*range(published)]


# --- what is wrong with a directory -------------------------------------------------------------------------


def overlay_file(folder: Path, **more: object) -> Path:
    file = folder / "overlay.yaml"
    (address,) = free_addresses(1)
    brokers = {"b1": {"address": address}}
    content = {"overlay": "one", "brokers": brokers, "durable": {"Order": None}, **more}
    file.write_text(yaml.safe_dump(content))
    return file


def test_durable_types_need_a_directory(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="durable names Order: expected a directory"):
        check_storage(load_overlay(overlay_file(tmp_path), {}))
    overlay = load_overlay(overlay_file(tmp_path), {"COVEY_STORAGE": "/elsewhere"})
    assert overlay.storage == "/elsewhere"
    overlay = load_overlay(overlay_file(tmp_path, storage="data"), {})
    assert overlay.storage == str(tmp_path / "data")
    assert overlay.durable == {"Order": Retention()}


@pytest.mark.parametrize(
    ("in_use", "why"), [(True, "uses it: expected a directory that no other process uses"), (False, "")]
)
def test_a_directory_that_cannot_be_used_is_one_sentence(
    in_use: bool, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, directory = overlay_file(tmp_path, storage="data"), tmp_path / "data"
    if in_use:
        storage = open_storage(directory / "b1", {"Order": Retention()})
    else:
        directory.write_text("a file")
    assert run_broker(file, "b1") == 1
    assert "covey: broker b1 cannot use its storage: " in (said := capsys.readouterr().err)
    assert why in said
    assert len(said.splitlines()) == 1
    if in_use:
        storage.close()
        open_storage(directory / "b1", {"Order": Retention()}).close()


@on_a_loop
async def test_a_full_disk_stops_the_broker_and_nothing_is_confirmed(
    brokers_in_process: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: BrokerStorage) -> None:
        raise StorageError("full", "/data", "no room is left on the disk")

    async with (
        LocalOverlay(chain(2), event_types=[ORDER], durable=["Order"], compiled=False) as overlay,
        publishing(overlay, "b1") as publisher,
        Client(overlay.addresses["b2"], "reader", durable=True) as reader,
    ):
        await reader.subscribe(ORDER)
        monkeypatch.setattr(BrokerStorage, "run_sync", full)
        await publisher.publish("Order", number=1, text="x")
        await until(lambda: "since it cannot store events: /data: no room" in caplog.text, "it stops")
        assert publisher.pending == 1
        assert "Traceback" not in caplog.text
        monkeypatch.undo()
        await publisher.close(grace=0.0)
        await reader.close(grace=0.0)


@pytest.mark.usefixtures("brokers_in_process")
@on_a_loop
async def test_the_log_says_whether_a_session_stays(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "covey.broker")
    async with LocalOverlay(chain(2), event_types=[ORDER], durable=["Order"], compiled=False) as overlay:
        for end, sentence in (
            (False, "client/reader disconnected, its session stays: closed by the client"),
            (True, "session of client/reader ended: closed by the client"),
        ):
            client = Client(overlay.addresses["b1"], "reader", durable=True)
            await client.open()
            await client.subscribe(ORDER, "number >= $least", least=0)
            await client.close(end=end)
            await until(lambda sentence=sentence: sentence in caplog.messages)
