"""Proxies that delay the links of a real overlay."""

import asyncio
import time

import pytest
from running import on_a_loop

from covey.matcher import EventType
from covey.overlay import Client
from covey.sim.experiments.local_overlay import DelayedOverlay, DelayProxy

QUOTE = EventType("Quote", {"price": "float64"})


@on_a_loop
async def test_bytes_keep_their_order_and_none_arrives_before_its_time() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            writer.write(data)
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    target = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    proxy = await DelayProxy(target, 0.05).start()
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    sent = b"".join(i.to_bytes(4, "big") for i in range(100_000))
    started = time.monotonic()
    writer.write(sent)
    writer.write_eof()
    received = await reader.readexactly(4)
    assert time.monotonic() - started >= 0.1
    received += await reader.read(-1)
    assert received == sent
    writer.close()
    await proxy.stop()
    server.close()


@on_a_loop
async def test_stopping_a_proxy_closes_its_connections(caplog: pytest.LogCaptureFixture) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    proxy = await DelayProxy(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", 5.0).start()
    host, _, port = proxy.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"x")
    await asyncio.sleep(0.05)
    async with asyncio.timeout(60):
        await proxy.stop()
        assert await reader.read() == b""
    assert caplog.records == [], "connections that end so are no errors"
    writer.close()
    server.close()


@on_a_loop
async def test_an_update_and_an_event_take_the_delays_of_their_links() -> None:
    delays_ms = {("b1", "b2"): 30.0}
    async with DelayedOverlay([("b1", "b2")], delays_ms=delays_ms, client_delay_ms=10.0) as overlay:
        at = overlay.client_addresses
        async with Client(at["b2"], "feed") as feed, Client(at["b1"], "buyer") as buyer:
            await feed.advertise(QUOTE)
            cheap = await buyer.subscribe("Quote", "price < $limit", limit=10.0)
            started = time.monotonic()
            await cheap.update(limit=20.0)
            assert time.monotonic() - started >= 2e-3 * (10 + 30)
            started = time.monotonic()
            publishing = asyncio.ensure_future(feed.publish("Quote", price=1.0))
            assert (await asyncio.wait_for(anext(cheap), 60))["price"] == 1.0
            assert time.monotonic() - started >= 1e-3 * (10 + 30 + 10)
            await publishing
