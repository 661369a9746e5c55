"""grpclib, a gRPC of its own on h2, as client of Covey's server and as server of Covey's client."""

from __future__ import annotations

from typing import Any

import pytest
from running import free_ports, on_a_loop
from test_grpcio_peers import SIZES, serving

from covey.overlay.transport.channel import Channel

client = pytest.importorskip("grpclib.client")
server = pytest.importorskip("grpclib.server")
const = pytest.importorskip("grpclib.const")
exceptions = pytest.importorskip("grpclib.exceptions")
base = pytest.importorskip("grpclib.encoding.base")

STREAM, UNARY = const.Cardinality.STREAM_STREAM, const.Cardinality.UNARY_UNARY


class Bytes(base.CodecBase):
    __content_subtype__ = "proto"

    def encode(self, message: bytes, _: object) -> bytes:
        return message

    def decode(self, data: bytes, _: object) -> bytes:
        return data


class Service:
    async def echo(self, stream: Any) -> None:
        while (message := await stream.recv_message()) is not None:
            await stream.send_message(message)

    async def reverse(self, stream: Any) -> None:
        await stream.send_message((await stream.recv_message())[::-1])

    def __mapping__(self) -> dict[str, Any]:
        return {
            "/t/echo": const.Handler(self.echo, STREAM, bytes, bytes),
            "/t/reverse": const.Handler(self.reverse, UNARY, bytes, bytes),
        }


async def refused(channel: Any) -> None:
    async with channel.request("/t/refuse", UNARY, bytes, bytes) as stream:
        await stream.send_message(b"", end=True)
        await stream.recv_message()


@on_a_loop
async def test_grpclib_calls_covey() -> None:
    async with serving() as address:
        host, _, port = address.rpartition(":")
        async with client.Channel(host, int(port), codec=Bytes()) as channel:
            async with channel.request("/t/echo", STREAM, bytes, bytes) as stream:
                for size in SIZES:
                    await stream.send_message(bytes(size))
                    assert len(await stream.recv_message()) == size
                await stream.end()
                assert await stream.recv_message() is None
            with pytest.raises(exceptions.GRPCError) as raised:
                await refused(channel)
            assert raised.value.status.name == "FAILED_PRECONDITION"
            assert raised.value.message == "não: 100 % \n wrong"


@on_a_loop
async def test_covey_calls_grpclib() -> None:
    (port,) = free_ports(1)
    theirs = server.Server([Service()], codec=Bytes())
    await theirs.start("127.0.0.1", port)
    async with Channel(f"127.0.0.1:{port}") as channel:
        assert await channel.unary("/t/reverse", b"abc") == b"cba"
        call = channel.call("/t/echo")
        for size in SIZES:
            call.send(bytes(size))
            reply = await call.read()
            assert reply is not None
            assert len(reply) == size
        call.end_request()
        assert await call.read() is None
        assert (call.status, call.details) == ("OK", "")
    theirs.close()
    await theirs.wait_closed()
