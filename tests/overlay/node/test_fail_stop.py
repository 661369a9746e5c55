"""An unexpected exception stops the broker; its peers send again what it has not handled."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from running import QUOTE, Brokers, free_ports, on_a_loop, two_clients, until

from covey.overlay import Client, ConnectError, NotSettledError
from covey.overlay.core.messages import Publish
from covey.overlay.node.node import Node


def fail_at_events(node: Node) -> None:
    handle_all = node.core.handle_all

    def fail(messages: list[Any], *arguments: Any, **named: Any) -> Any:
        if any(isinstance(message, Publish) for message in messages):
            raise MemoryError("no room")
        return handle_all(messages, *arguments, **named)

    node.core.handle_all = fail


def stops(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The reasons for which brokers stop."""
    return [message for message in caplog.messages if " stops: " in message]


@on_a_loop
@pytest.mark.parametrize("link", [("b1", "b2"), ("b2", "b1")], ids=["dialled", "accepted"])
async def test_events_that_a_broker_failed_at_arrive_after_its_restart(
    link: tuple[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    async with two_clients(QUOTE, [link], "b1", "b2") as (overlay, feed, reader):
        mine = await reader.subscribe("Quote")
        await reader.settled(timeout=60)
        await feed.publish("Quote", volume=0)
        assert (await asyncio.wait_for(anext(mine), 60))["volume"] == 0
        failed = overlay.nodes["b2"]
        fail_at_events(failed)
        for volume in range(1, 101):
            await feed.publish("Quote", volume=volume)
        await until(lambda: failed.failed)
        assert stops(caplog) == ["broker b2 stops: MemoryError('no room')"]
        await until(lambda: not failed.queues["broker/b1"].connected)
        with pytest.raises(ConnectError):
            await Client(overlay.address("b2"), connect_timeout=0.3).open()
        assert not failed.queues["broker/b1"].connected, "it takes no connection"
        assert not overlay.nodes["b1"].failed
        await overlay.crash("b2")
        await overlay.start("b2")
        volumes = [(await asyncio.wait_for(anext(mine), 60))["volume"] for _ in range(100)]
        assert volumes == list(range(1, 101))


@on_a_loop
async def test_a_failed_broker_sends_what_is_queued_and_acknowledges_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with two_clients(QUOTE) as (overlay, feed, reader):
        mine = await reader.subscribe("Quote")
        await reader.settled(timeout=60)
        await feed.publish("Quote", volume=0)
        await feed.flush()
        node = overlay.nodes["b1"]
        fail_at_events(node)
        received = node.queues[f"client/{feed.name}"].link.received
        node.fail(RuntimeError("something else"))
        await feed.publish("Quote", volume=1)
        await until(lambda: not feed.connected)
        assert stops(caplog) == ["broker b1 stops: RuntimeError('something else')"]
        assert node.queues[f"client/{feed.name}"].link.received == received
        assert (await asyncio.wait_for(anext(mine), 60))["volume"] == 0
        await feed.close(grace=0.0)


@on_a_loop
async def test_events_are_acknowledged_after_sessions_were_served_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        Brokers([("b1", "b2")]) as overlay,
        Client(overlay.address("b1")) as feed,
        Client(overlay.address("b1")) as reader,
        Client(overlay.address("b2")) as far,
    ):
        await feed.advertise(QUOTE)
        for each in (reader, far):
            await each.subscribe("Quote")
            await each.settled(timeout=60)
        await feed.publish("Quote", volume=0, confirm=True)
        node = overlay.nodes["b1"]

        def fail() -> list[Any]:
            raise MemoryError("no room")

        monkeypatch.setattr(node.core, "deliver", fail)
        events = [{"volume": 1}, {"volume": 2}]  # of one event sessions get theirs at once
        confirmed = asyncio.create_task(feed.publish_batch("Quote", events, confirm=True))
        await until(lambda: node.failed and not node.queues[f"client/{feed.name}"].connected)
        assert not confirmed.done()
        confirmed.cancel()
        await feed.close(grace=0.0)


@on_a_loop
@pytest.mark.parametrize("broker", ["b1", "b2"], ids=["accepted", "dialled"])
async def test_a_frame_that_cannot_be_made_stops_the_broker(
    broker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Brokers([("b1", "b2")]) as overlay, Client(overlay.address(broker)) as feed:
        node = overlay.nodes[broker]

        def fail(*_: Any) -> None:
            raise RuntimeError("no frame")

        link = node.queues["broker/b2" if broker == "b1" else "broker/b1"].link
        monkeypatch.setattr(type(link), "next_frame", lambda self: fail() if self is link else None)
        advertising = asyncio.create_task(feed.advertise(QUOTE))
        link.ask()
        node.queues["broker/b2" if broker == "b1" else "broker/b1"].wake()
        await until(lambda: node.failed)
        advertising.cancel()
        monkeypatch.undo()
        await feed.close(grace=0.0)


SCRIPT = """
import sys
from covey.overlay.core.messages import Advertise
from covey.overlay.core.routing.broker import Broker
from covey.overlay.node import main

main.FAILED_DRAIN_S = 0.1
handle_all = Broker.handle_all

def fail(self, messages, *arguments, **named):
    if any(isinstance(message, Advertise) for message in messages):
        raise MemoryError("no room")
    return handle_all(self, messages, *arguments, **named)

Broker.handle_all = fail
sys.exit(main.run_broker(sys.argv[1], "b1"))
"""


@on_a_loop
async def test_the_process_of_a_broker_that_fails_ends_with_status_3(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    file = tmp_path / "one.yaml"
    file.write_text(f"overlay: one\nbrokers: {{b1: {{address: '127.0.0.1:{port}'}}}}\n")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SCRIPT, str(file), stderr=subprocess.PIPE
    )
    try:
        async with Client(f"127.0.0.1:{port}", connect_timeout=60) as client:
            with pytest.raises(NotSettledError):
                await client.advertise(QUOTE, timeout=0.1)
            _, errors = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 3
    assert "CRITICAL broker b1 stops: MemoryError('no room')" in errors.decode()
