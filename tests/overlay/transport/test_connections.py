"""Connections on the event loop: addresses, TLS, peers that are silent, slow or gone."""

import asyncio
import gc
import os
import re
import resource
import weakref
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from made_certificates import tls_of
from rpc_serving import serving
from running import Brokers, Proxy, at_rest, free_ports, on_a_loop, until
from tables import grown, tables

from covey.overlay import Client
from covey.overlay.client import inspect_broker
from covey.overlay.core.endpoint.limits import Limits, SessionLimits
from covey.overlay.core.link.link import Frame
from covey.overlay.core.messages import Message, Unadvertise
from covey.overlay.http2 import frames
from covey.overlay.http2.frames import Http2Options
from covey.overlay.node.node import Node
from covey.overlay.node.overlay import BrokerAddress, Overlay
from covey.overlay.node.server import AddressError, Server, descriptor_limit
from covey.overlay.transport.address import CallError, TcpAddress, UnixAddress, parse_address
from covey.overlay.transport.calls import RpcCall, RpcProtocol
from covey.overlay.transport.channel import Channel
from covey.overlay.transport.credentials import PLAIN, credentials
from covey.overlay.transport.packets import LinkEnd
from covey.overlay.transport.rpc_server import ConnectionLimits, answer_with


class Flood:
    """Sends as much as a call accepts. `served` are the calls, `sent` their messages, `ended` the
    ended ones."""

    def __init__(self) -> None:
        self.served: list[weakref.ref[RpcCall]] = []
        self.sent = 0
        self.ended = 0

    async def serve(self, call: RpcCall) -> None:
        self.served.append(weakref.ref(call))
        while call.status is None:
            call.send(bytes(1 << 20))
            self.sent += 1
            await call.sent()
        self.ended += 1

    async def exchange(self, call: RpcCall) -> None:
        """As `serve`, by frames of a link."""
        self.served.append(weakref.ref(call))
        frame = Frame[Message](1, 0, 0, (Unadvertise(1, "x" * (1 << 20)),))

        def next_frame() -> Frame[Message]:
            self.sent += 1
            call.wake()
            return frame

        await call.exchange(LinkEnd(lambda received, now_ns: len(received), next_frame, schemas=False))
        self.ended += 1

    async def is_full(self, call: RpcCall) -> None:
        await until(lambda: self.sent > 0)
        await at_rest(lambda: (self.sent, call.uncut_bytes))


async def echo(call: RpcCall) -> None:
    while (message := await call.read()) is not None:
        call.send(message)


HANDLERS = {"/t/reverse": answer_with(lambda request: request[::-1]), "/t/echo": echo}


async def takes(address: str, count: int = 1) -> bool:
    """Whether a server of bounded connections accepts so many more at once."""
    try:
        async with AsyncExitStack() as stack:
            for _ in range(count):
                channel = await stack.enter_async_context(Channel(address))
                assert await channel.unary("/t/reverse", b"ab") == b"ba"
    except CallError as error:
        if error.status != "RESOURCE_EXHAUSTED":
            raise
        return False
    return True


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:7001", TcpAddress("localhost", 7001)),
        ("[::1]:7001", TcpAddress("::1", 7001)),
        ("bü.example.:7001", TcpAddress("bü.example.", 7001)),
        ("[fe80::1%eth0]:7001", TcpAddress("fe80::1%eth0", 7001)),
        ("unix:/tmp/b1", UnixAddress("/tmp/b1")),
        ("unix:///tmp/b1", UnixAddress("/tmp/b1")),
        ("unix:b1.sock", UnixAddress("b1.sock")),
    ],
)
def test_addresses(text: str, address: object) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text",
    [
        *("", "b1", ":7001", "b1:", "b1:0", "b1:65536", "b1:\u0661", "http://b1:1", "b\0:1"),
        *("unix:", "unix:" + 108 * "x", "unix:\0b", ".x:1", "x..y:1", f"{64 * 'x'}.y:1", f"{64 * 'ü'}:1"),
    ],
)
def test_texts_that_are_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        parse_address(text)


@on_a_loop
async def test_the_brokers_and_clients_of_a_machine_meet_at_socket_files() -> None:
    folder = Path("/tmp") / f"covey-{os.getpid()}"
    folder.mkdir()
    address = f"unix:{folder / 'b1'}"
    remote = f"127.0.0.1:{free_ports(1)[0]}"
    try:
        overlay = Overlay(
            "t",
            "parametric",
            (),
            {"b1": BrokerAddress("b1", remote, f"{remote}, {address}")},
            (),
            Limits(),
            SessionLimits(),
        )
        server = Server(Node(overlay, "b1"), overlay.brokers["b1"])
        await server.start()
        async with Client(address) as client:
            assert client.broker == "b1"
        second = Server(Node(overlay, "b1"), overlay.brokers["b1"])
        with pytest.raises(AddressError, match=r"cannot listen at 127.*, unix:.*: Address already in use"):
            await second.start()
        for each in (address, remote):
            _, state = await inspect_broker(each)
            assert state["broker"] == "b1"
        await server.stop(0.0)
        assert not (folder / "b1").exists()
        (folder / "b1").touch()
        with pytest.raises(AddressError, match="cannot listen at 127"):
            await second.start()
        (folder / "b1").unlink()
        await second.start()
        await second.stop(0.0)
    finally:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


@on_a_loop
async def test_a_socket_file_without_permission_is_named_as_the_cause(tmp_path: Path) -> None:
    path = tmp_path / "s"
    async with serving(HANDLERS, f"unix:{path}") as (_, address):
        path.chmod(0)
        if not os.access(path, os.W_OK):  # root may use it
            with pytest.raises(CallError, match="Permission denied"):
                await Channel(address).__aenter__()


@on_a_loop
async def test_a_stale_socket_file_is_replaced() -> None:
    path = f"/tmp/covey-stale-{os.getpid()}"
    abandoned = await asyncio.start_unix_server(lambda *_: None, path)
    abandoned.close()
    async with serving(HANDLERS, f"unix:{path}") as (_, address), Channel(address) as channel:
        assert await channel.unary("/t/reverse", b"ab") == b"ba"


@on_a_loop
async def test_ipv4_and_ipv6_at_one_address() -> None:
    (port,) = free_ports(1)
    async with serving(HANDLERS, f"[::]:{port}"):
        for host in ("127.0.0.1", "[::1]", "localhost"):
            async with Channel(f"{host}:{port}") as channel:
                assert await channel.unary("/t/reverse", b"ab") == b"ba"


@on_a_loop
async def test_a_stopped_peer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a fifth of the usual time, which test_hostile.py has in virtual time."""
    soon = partial(Http2Options, keepalive_ns=600_000_000, keepalive_timeout_ns=400_000_000)
    monkeypatch.setattr("covey.overlay.http2.connection.Http2Options", soon)
    async with serving(HANDLERS, limits=ConnectionLimits(1, 1)) as (_, address):
        proxy = await Proxy(int(address.rpartition(":")[2])).start()
        await silent_peer(address, proxy)
        proxy.thaw()
        await proxy.stop()


async def silent_peer(address: str, proxy: Proxy) -> None:
    loop = asyncio.get_running_loop()
    async with Channel(proxy.address) as channel:
        call = channel.call("/t/echo")
        call.send(b"x")
        assert await call.read() == b"x"
        assert not await takes(address)
        proxy.freeze()
        began = loop.time()
        assert await call.read() is None
        assert 0.8 < loop.time() - began < 30
        assert (call.status, call.details) == ("UNAVAILABLE", "the peer was silent for 1 s")
        await until(lambda: takes(address), "the server notices it as well")


@on_a_loop
async def test_a_peer_that_does_not_read_is_sent_no_more_than_its_window() -> None:
    flood = Flood()
    handlers = {**HANDLERS, "/t/flood": flood.serve}
    async with serving(handlers, limits=ConnectionLimits(2, 2)) as (server, address):
        _, writer = await asyncio.open_connection(*address.split(":"))
        async with Channel(address) as channel:
            call = channel.call("/t/flood")
            await flood.is_full(call)
            assert 0 < call.uncut_bytes <= 5 << 20
            assert (flood.sent << 20) - call.uncut_bytes < 2 << 20
            assert await channel.unary("/t/reverse", b"ab") == b"ba", "other calls go on"
            for _ in range(20):
                assert await call.read() == bytes(1 << 20)
        # One that does not even read its socket.
        writer.write(frames.PREFACE + frames.settings_frame({}))
        with suppress(OSError):
            for _ in range(200):
                writer.write(frames.frame(frames.PING, 0, 0, bytes(8)) * 100)
                await writer.drain()
        await until(lambda: sum(server.faults.values()) == 1)
        writer.close()
        await until(lambda: takes(address, 2))


@pytest.mark.parametrize("way", ["serve", "exchange"])
@on_a_loop
async def test_a_call_that_is_cancelled_while_its_writer_waits_lets_it_go_on(way: str) -> None:
    flood = Flood()
    handlers = {**HANDLERS, "/t/flood": getattr(flood, way)}
    async with serving(handlers) as (server, address), Channel(address) as channel:
        assert await channel.unary("/t/reverse", b"ab") == b"ba"
        before = tables(server, "covey.overlay")
        call = channel.call("/t/flood")
        await flood.is_full(call)
        call.cancel()
        await until(lambda: flood.ended == 1)
        assert await channel.unary("/t/reverse", b"ab") == b"ba"
        await until(lambda: not grown(before, tables(server, "covey.overlay")), "nothing is left of it")
        gc.collect()
        assert [each() for each in flood.served] == [None]


@on_a_loop
async def test_connections_are_bounded_in_all_and_per_address() -> None:
    path = f"unix:/tmp/covey-bounded-{os.getpid()}"
    refusals: list[None] = []
    limits = ConnectionLimits(4, 3)
    async with serving(HANDLERS, limits=limits, refused=lambda: refusals.append(None)) as (server, address):
        await server.listen(path)
        idle = tables(server, "covey.overlay")
        async with AsyncExitStack() as stack:
            for each in (address, address, address, path):
                channel = await stack.enter_async_context(Channel(each))
                assert await channel.unary("/t/reverse", b"ab") == b"ba"
            async with Channel(path) as channel:
                with pytest.raises(CallError, match="has 4 connections: expected at most 4") as raised:
                    await channel.unary("/t/reverse", b"ab")
            assert raised.value.status == "RESOURCE_EXHAUSTED"
        await until(lambda: takes(address, 3))
        refusals.clear()
        async with AsyncExitStack() as stack:
            for _ in range(3):
                channel = await stack.enter_async_context(Channel(address))
                assert await channel.unary("/t/reverse", b"ab") == b"ba"
            async with Channel(address) as channel:
                with pytest.raises(CallError, match=r"3 connections of 127.0.0.1: expected at most 3 of one"):
                    await channel.unary("/t/reverse", b"ab")
            silent = [await asyncio.open_connection(*address.split(":")) for _ in range(100)]
            for reader, writer in silent:
                with suppress(ConnectionError):
                    assert len(await asyncio.wait_for(reader.read(), 60)) < 1_000, (
                        "closed, if with SETTINGS before"
                    )
                writer.close()
            assert len(refusals) == 101
            async with Channel(path) as channel:
                assert await channel.unary("/t/reverse", b"ab") == b"ba"
        await until(lambda: takes(address, 3))
        await until(lambda: not grown(idle, tables(server, "covey.overlay")))


def test_connections_leave_descriptors_for_all_else() -> None:
    assert ConnectionLimits(500, 100).within(256) == ConnectionLimits(156, 100)
    assert ConnectionLimits(50, 10).within(256) == ConnectionLimits(50, 10)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 200), hard))
        assert descriptor_limit() == min(hard, 1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@on_a_loop
async def test_what_has_ended_leaves_no_descriptor_and_no_task_to_the_garbage_collector() -> None:
    """150 clients that came and went left 163 descriptors, links that flapped 383 in 18 s."""
    async with Brokers([("b1", "b2")], proxied=[("b1", "b2")]) as overlay:
        proxy = overlay.proxies["b1", "b2"]
        before, tasks = await at_rest(descriptors), len(asyncio.all_tasks())
        gc.disable()
        try:
            for _ in range(20):
                clients = [Client(overlay.address("b1")) for _ in range(5)]
                await asyncio.gather(*(client.__aenter__() for client in clients))
                proxy.cut()
                await asyncio.gather(*(client.__aexit__(None, None, None) for client in clients))
                await inspect_broker(overlay.address("b1"), listed=0)
            proxy.cut()
            await overlay.linked()
            await until(lambda: descriptors() <= before + 2, "descriptors")
            await until(lambda: len(asyncio.all_tasks()) <= tasks, "tasks")
        finally:
            gc.enable()


@on_a_loop
async def test_a_call_that_is_woken_after_its_end_is_freed_without_the_garbage_collector() -> None:
    async with serving(HANDLERS) as (_, address):
        gc.disable()
        try:
            async with Channel(address) as channel:
                call = channel.call("/t/echo")
                call.wake()
            call.wake()
            freed = weakref.ref(call)
            del call, channel
            await until(lambda: freed() is None, "the call is freed")
        finally:
            gc.enable()


@on_a_loop
async def test_nobody_answers() -> None:
    (port,) = free_ports(1)
    for address in (f"127.0.0.1:{port}", "unix:/tmp/covey-nobody", "no.host.invalid:7001"):
        with pytest.raises(CallError, match=f"no broker answers at {address}"):
            async with Channel(address):
                pass
    for address in ("nowhere", "x..y:7001"):  # which TLS and sockets have their own errors for
        for each in (PLAIN, credentials(tls_of(), None)):
            with pytest.raises(CallError, match=f"address '{re.escape(address)}': expected"):
                async with Channel(address, credentials=each):
                    pass


@on_a_loop
async def test_a_server_that_does_not_speak_http2() -> None:
    async def speak(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example.org ESMTP\r\n")
        await writer.drain()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        async with Channel(f"{host}:{port}") as channel:
            with pytest.raises(CallError) as raised:
                await channel.unary("/t/reverse", b"")
        why = f"no broker answers at {host}:{port}: the peer does not speak HTTP/2"
        assert (raised.value.status, str(raised.value)) == ("UNAVAILABLE", why)


@on_a_loop
async def test_an_attempt_to_connect_that_is_given_up_as_it_succeeds_ends_without_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """uvloop closes such a transport without calling the protocol, whose keepalive then wrote to it."""
    soon = partial(Http2Options, keepalive_ns=20_000_000)
    monkeypatch.setattr("covey.overlay.http2.connection.Http2Options", soon)
    loop = asyncio.get_running_loop()
    errors: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: errors.append(context))
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def connect() -> None:
        async with Channel(f"127.0.0.1:{port}"):
            pass

    connecting = asyncio.create_task(connect())
    made = RpcProtocol.connection_made

    def give_up(protocol: RpcProtocol, transport: asyncio.BaseTransport) -> None:
        made(protocol, transport)
        connecting.cancel()

    monkeypatch.setattr(RpcProtocol, "connection_made", give_up)
    await asyncio.wait({connecting})
    await asyncio.sleep(0.2)
    server.close()
    assert connecting.cancelled()
    assert not errors
