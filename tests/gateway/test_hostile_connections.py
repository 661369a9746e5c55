"""Peers hostile below the messages: endless connections, handshakes and frames."""

import asyncio
import json
import os
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from gateways import Browser, EventSource, gateway_to, served
from made_certificates import tls_of
from running import QUOTE, Brokers, on_a_loop
from test_hostile_browsers import everybody_else
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidStatus

from covey.gateway import Limits, protocols
from covey.gateway.limits import Addresses, networks
from covey.gateway.server import BindError, bind, server
from covey.matcher.errors import InputError

UPGRADE = (
    "GET /socket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def opened(address: str, text: str = "") -> Streams:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(text.encode())
    return reader, writer


async def upgraded(address: str) -> Streams:
    reader, writer = await opened(address, UPGRADE + "\r\n")
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def frame(opcode: int, data: bytes, *, final: bool = True) -> bytes:
    """A frame of at most 125 bytes, masked with zeros."""
    return bytes([final << 7 | opcode, 0x80 | len(data)]) + bytes(4) + data


async def ended(reader: asyncio.StreamReader) -> bytes:
    """The bytes until the gateway ends the connection."""
    try:
        return await asyncio.wait_for(reader.read(), 60)
    except ConnectionError:
        return b""


@contextmanager
def soon(*names: str) -> Iterator[None]:
    """Shorten these bounds to fractions of a second, for connections that exceed them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.setattr(protocols, name, 0.2)
        yield


@on_a_loop
async def test_requests_that_are_never_complete_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "_LOOK_S", 0.1)
    whole = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    many = "".join(f"a{number}: b\r\n" for number in range(150))  # which websockets does not take
    async with everybody_else(Limits(max_connections_per_address=20)) as address:
        second = await opened(address, whole)
        assert b"200 OK" in await second[0].readuntil(b"}")
        with soon("_REQUEST_WITHIN_S"):
            second[1].write(b"G")  # a second request, which has no end
            waiting = [
                await opened(address, text)
                for text in ("", "GET /hea", "GET /socket HTTP/1.1\r\na: b\r\n", UPGRADE + many + "\r\n")
            ]
            for reader, _ in (*waiting, second):
                assert b"200 OK" not in await ended(reader)
        # HEAD of a stream that has no end has one.
        reader, writer = await opened(address, "HEAD /events/Quote HTTP/1.1\r\nHost: x\r\n\r\n" + whole)
        assert (await reader.readuntil(b"}")).count(b"200 OK") == 2
        writer.close()


@on_a_loop
async def test_handshakes_of_tls_are_counted_and_end() -> None:
    limits = Limits(max_connections_per_address=3)
    async with (
        Brokers() as overlay,
        gateway_to(overlay.address("b1"), serves_as=tls_of("b1"), limits=limits) as address,
    ):
        trusted = ssl.create_default_context(cafile=str(tls_of().authority))
        with soon("_REQUEST_WITHIN_S"):
            silent = [await opened(address, text) for text in ("", "\x16\x03\x01", "GET / HTTP/1.1\r\n\r\n")]
            for reader, _ in silent:
                await ended(reader)
        async with connect(f"wss://{address}/socket", ssl=trusted) as browser:
            await browser.send('{"kind": "hello"}')
            assert json.loads(await browser.recv())["kind"] == "welcome"
        old = ssl.create_default_context(cafile=str(tls_of().authority))
        old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_2
        old.set_ciphers("AES256-SHA")
        with pytest.raises(OSError):  # noqa: PT011
            await connect(f"wss://{address}/socket", ssl=old)
        held = [await held_open(address, trusted) for _ in range(3)]
        refused = await asyncio.open_connection(*address.split(":"), ssl=trusted)
        refused[1].write(b"GET /health HTTP/1.1\r\n\r\n")
        assert b"max_connections_per_address is 3" in await ended(refused[0])
        for each in held:
            each.transport.abort()


async def held_open(address: str, tls: ssl.SSLContext) -> ClientConnection:
    """A connection; retried while earlier ones are still counted."""
    while True:
        with suppress(InvalidStatus):
            return await connect(f"wss://{address}/socket", ssl=tls)
        await asyncio.sleep(0.05)


@on_a_loop
async def test_refused_connections_that_wait_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "_MOST_REFUSED", 5)
    monkeypatch.setattr(protocols, "_REFUSED_WITHIN_S", 60.0)
    async with everybody_else(Limits(max_connections_per_address=2)) as address:
        held = await opened(address)
        refused = [await opened(address) for _ in range(30)]
        done, _ = await asyncio.wait(
            [asyncio.create_task(ended(reader)) for reader, _ in refused], timeout=60,
            return_when=asyncio.FIRST_COMPLETED,
        )  # fmt: skip
        assert done
        for _, writer in (held, *refused):
            writer.close()


@on_a_loop
async def test_frames_that_are_no_messages_are_bounded() -> None:
    async with everybody_else(Limits(max_messages_per_s=20)) as address:
        fragments = frame(1, b"{", final=False) + frame(0, b"", final=False) * 5_000
        for flood in (frame(9, b"x") * 5_000, fragments):
            reader, writer = await upgraded(address)
            writer.write(frame(1, b'{"kind": "hello"}') + flood)
            assert b"pings and fragments: expected at most 20 a second" in await ended(reader)
            writer.close()


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> list[protocols.WebSocketProtocol]:
    """The gateway's side of the open WebSockets."""
    found: list[protocols.WebSocketProtocol] = []
    begin = protocols.WebSocketProtocol.connection_made
    kept = lambda self, transport: (found.append(self), begin(self, transport))[1]  # noqa: E731
    monkeypatch.setattr(protocols.WebSocketProtocol, "connection_made", kept)
    return found


@on_a_loop
async def test_messages_that_come_at_once_wait_as_bytes(peers: list[protocols.WebSocketProtocol]) -> None:
    """250 kB of the smallest messages would be 11 MB as objects."""
    async with everybody_else(Limits(max_messages_per_s=1)) as address:
        reader, writer = await upgraded(address)
        writer.write(frame(1, b'{"kind": "hello"}') + frame(1, b"?") * 35_000)
        await reader.readuntil(b"the message is no JSON")
        seen = max(each.queue.qsize() for each in peers)
        assert 0 < seen <= 4_096 // len(frame(1, b"?")) + 1
        writer.transport.abort()


@on_a_loop
async def test_peers_that_reset_at_once_leave_their_places() -> None:
    async with everybody_else(Limits(max_connections_per_address=10)) as address:
        host, _, port = address.rpartition(":")
        reset = struct.pack("ii", 1, 0)
        for _ in range(60):
            with socket.create_connection((host, int(port))) as peer:
                peer.sendall((UPGRADE + "\r\n").encode())
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            await asyncio.sleep(0)
        async with Browser(address) as browser:
            assert browser.welcome["kind"] == "welcome"


@on_a_loop
async def test_one_address_has_no_more_sessions_than_connections() -> None:
    async with everybody_else(Limits(max_connections_per_address=5, max_sessions=20)) as address:
        ids: list[str] = []
        for _ in range(40):  # whose connections break, so that the sessions wait for them
            browser = Browser(address)
            await browser.open()
            ids.append(browser.welcome["session"])
            browser.socket.transport.abort()
            await browser.socket.wait_closed()
        newest = Browser(address, session=ids[-1])
        await newest.open()
        assert newest.welcome["resumed"]
        oldest = Browser(address, session=ids[0])
        await oldest.open()
        assert not oldest.welcome["resumed"]
        for each in (newest, oldest):
            await each.socket.close()


@on_a_loop
async def test_a_stream_that_is_not_read_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocols, "_STALL_S", 1.0)
    monkeypatch.setattr(protocols, "_LOOK_S", 0.1)
    limits = Limits(queue_bytes=100_000, window_bytes=20_000)
    async with served(QUOTE, limits=limits) as (exchange, address):
        source = EventSource(address, "/events/Quote")
        await source.open()
        source.writer.transport.pause_reading()
        quotes = [{"firm": "x" * 200, "price": float(number)} for number in range(200)]
        health = EventSource(address, "/health")
        connections = 1
        while connections:
            await exchange.publish_batch("Quote", quotes, confirm=True)
            await health.open()
            connections = (await health.body())["connections"]
            health.writer.close()


@pytest.mark.parametrize("proxy", ["x", "", "*", "10.0.0.0/33", "10.1.2.3/8"])
def test_proxies_that_are_none(proxy: str) -> None:
    with pytest.raises(InputError, match=r"--proxy '.*': expected an IP address, a network such as"):
        networks([proxy])


def test_addresses_that_are_counted_together() -> None:
    counted = Addresses(Limits(max_connections_per_address=2), networks(["10.0.0.0/8", "unix"]))
    for one, other, third in (
        ("2001:db8::1", "2001:db8::2", "2001:db8:0:0:ffff::3"),
        ("192.0.2.1", "::ffff:192.0.2.1", "192.0.2.1"),
    ):
        assert counted.enter(one) is None
        assert counted.enter(other) is None
        assert "max_connections_per_address is 2" in str(counted.enter(third))
    for _ in range(5):
        assert counted.enter("10.9.8.7") is None
        assert counted.enter("unix") is None
    assert counted.enter("2001:db8:0:1::") is None


@on_a_loop
async def test_behind_a_proxy_the_browser_is_whom_the_proxy_names() -> None:
    limits = Limits(max_connections_per_address=2)
    async with (
        Brokers() as overlay,
        gateway_to(overlay.address("b1"), limits=limits, proxies=("127.0.0.1",)) as address,
    ):
        held = [
            await connect(f"ws://{address}/socket", additional_headers={"X-Forwarded-For": f"{said}{real}"})
            for real in ("192.0.2.1", "192.0.2.2")
            for said in ("", "203.0.113.9, ")  # which the browser itself may have put before
        ]
        for real in ("192.0.2.1", "192.0.2.2"):
            with pytest.raises(Exception, match="429"):
                await connect(f"ws://{address}/socket", additional_headers={"X-Forwarded-For": real})
        for each in held:
            await each.close()


def test_a_file_that_is_no_socket_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("kept")
    with pytest.raises(BindError, match=r"cannot listen: Address already in use"):
        bind(f"unix:{path}", tls=False, insecure=False)
    assert path.read_text() == "kept"
    for _ in range(2):  # what a gateway that was killed leaves is no obstacle
        bind(f"unix:{tmp_path / 'socket'}", tls=False, insecure=False).close()
    listening = bind(f"unix:{tmp_path / 'socket'}", tls=False, insecure=False)
    listening.listen()
    with pytest.raises(BindError, match="already in use"):
        bind(f"unix:{tmp_path / 'socket'}", tls=False, insecure=False)
    listening.close()
    assert os.path.exists(tmp_path / "socket")


def test_certificates_that_are_none(tmp_path: Path) -> None:
    from covey.gateway import application

    bad = tmp_path / "bad.pem"
    bad.write_text("no certificate")
    good = tls_of("b1")
    app = application("localhost:1")
    for certificate, key, why in (
        (tmp_path / "none.pem", good.key, "none.pem: cannot be read: No such file"),
        (bad, good.key, "bad.pem and .*: not a certificate and its key in PEM"),
        (good.certificate, tls_of("b2").key, "not a certificate and its key in PEM: KEY_VALUES_MISMATCH"),
    ):
        with pytest.raises(InputError, match=why):
            server(app, Limits(), certificate=certificate, key=Path(str(key)))
