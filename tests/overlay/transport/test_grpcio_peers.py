"""grpcio as client of Covey's server, and as server of Covey's client."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import grpc.aio
import pytest
from grpcio import grpcio_channel
from rpc_serving import serving
from running import on_a_loop, until

from covey.overlay.transport.address import CallError
from covey.overlay.transport.calls import RpcCall
from covey.overlay.transport.channel import Channel
from covey.overlay.transport.rpc_server import Handler, answer_with

SIZES = (0, 1, 4, 5, 300, 16_379, 16_384, 65_535, 65_536, 1 << 20, 3 << 20)
CANCELLED: list[str] = []
STARTED: list[str] = []


async def echo(call: RpcCall) -> None:
    while (message := await call.read()) is not None:
        call.send(message)
        await call.sent()


async def refuse(call: RpcCall) -> None:
    await call.read()
    raise CallError("FAILED_PRECONDITION", "não: 100 % \n wrong")


async def mute(call: RpcCall) -> None:
    STARTED.append("mute")
    await call.ended()
    assert call.status is not None
    CANCELLED.append(call.status)


async def fail(call: RpcCall) -> None:
    raise ValueError("a defect")


async def early(call: RpcCall) -> None:
    await call.read()
    call.send(b"enough")


def trusting(handler: Handler) -> Handler:
    """Trust any caller, as a broker's handlers do: else a hundred calls at once are a flood."""

    async def handle(call: RpcCall) -> None:
        call.trust()
        await handler(call)

    return handle


HANDLERS: dict[str, Handler] = {
    "/t/echo": trusting(echo),
    "/t/reverse": trusting(answer_with(lambda request: request[::-1])),
    "/t/refuse": trusting(refuse),
    "/t/mute": trusting(mute),
    "/t/fail": trusting(fail),
    "/t/early": trusting(early),
}


@asynccontextmanager
async def covey_serving() -> AsyncIterator[str]:
    async with serving(HANDLERS) as (_, address):
        yield address


class GrpcioHandlers(grpc.GenericRpcHandler):
    def service(self, details: Any) -> Any:
        async def echo(_: Any, context: Any) -> None:
            while (message := await context.read()) is not grpc.aio.EOF:
                await context.write(message)

        async def reverse(request: bytes, _: Any) -> bytes:
            return request[::-1]

        async def refuse(request: bytes, context: Any) -> None:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "não: 100 % \n wrong")

        async def mute(_: Any, context: Any) -> None:
            STARTED.append("mute")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                CANCELLED.append("CANCELLED")
                raise

        async def early(_: Any, context: Any) -> None:
            await context.read()
            await context.write(b"enough")

        return {
            "/t/echo": grpc.stream_stream_rpc_method_handler(echo),
            "/t/reverse": grpc.unary_unary_rpc_method_handler(reverse),
            "/t/refuse": grpc.unary_unary_rpc_method_handler(refuse),
            "/t/mute": grpc.stream_stream_rpc_method_handler(mute),
            "/t/early": grpc.stream_stream_rpc_method_handler(early),
        }.get(details.method)


@asynccontextmanager
async def grpcio_serving() -> AsyncIterator[str]:
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((GrpcioHandlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


@on_a_loop
async def test_grpcio_calls_covey_with_messages_of_any_size() -> None:
    async with covey_serving() as address, grpcio_channel(address) as channel:
        for size in SIZES:
            message = bytes(i % 251 for i in range(min(size, 1_000))) * (size // 1_000 + 1)
            assert await channel.unary_unary("/t/reverse")(message[:size]) == message[:size][::-1]
        call = channel.stream_stream("/t/echo")()
        for size in SIZES:
            await call.write(bytes(size))
            assert len(await call.read()) == size
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


@on_a_loop
async def test_covey_calls_grpcio_with_messages_of_any_size() -> None:
    async with grpcio_serving() as address, Channel(address) as channel:
        for size in SIZES:
            message = bytes(i % 251 for i in range(min(size, 1_000))) * (size // 1_000 + 1)
            assert await channel.unary("/t/reverse", message[:size]) == message[:size][::-1]
        call = channel.call("/t/echo")
        for size in SIZES:
            call.send(bytes(size))
            reply = await call.read()
            assert reply is not None
            assert len(reply) == size
        call.end_request()
        assert await call.read() is None
        await call.ended()
        assert (call.status, call.details) == ("OK", "")


BURST = [number.to_bytes(4, "big") * 50_000 for number in range(100)]
"""Larger than every window."""


@on_a_loop
async def test_a_burst_of_covey_arrives_at_grpcio_and_back_in_order() -> None:
    async with grpcio_serving() as address, Channel(address) as channel:
        call = channel.call("/t/echo")

        async def write() -> None:
            for message in BURST:
                call.send(message)
                await call.sent()
            call.end_request()

        writing = asyncio.create_task(write())
        assert [await call.read() for _ in BURST] == BURST
        assert await call.read() is None
        await writing


@on_a_loop
async def test_a_burst_of_grpcio_arrives_at_covey_and_back_in_order() -> None:
    async with covey_serving() as address, grpcio_channel(address) as channel:
        call = channel.stream_stream("/t/echo")()

        async def write() -> None:
            for message in BURST:
                await call.write(message)
            await call.done_writing()

        writing = asyncio.create_task(write())
        assert [await call.read() for _ in BURST] == BURST
        await writing
        assert await call.read() is grpc.aio.EOF


@on_a_loop
async def test_many_calls_share_a_connection() -> None:
    async with covey_serving() as address, grpcio_channel(address) as channel:
        reverse = channel.unary_unary("/t/reverse")
        replies = await asyncio.gather(*(reverse(str(number).encode()) for number in range(300)))
        assert [int(reply[::-1]) for reply in replies] == list(range(300))
    async with grpcio_serving() as address, Channel(address) as own:
        for _ in range(3):
            requests = (own.unary("/t/reverse", str(number).encode()) for number in range(90))
            assert [int(reply[::-1]) for reply in await asyncio.gather(*requests)] == list(range(90))


@on_a_loop
async def test_grpcio_learns_how_calls_of_covey_end() -> None:
    async with serving(HANDLERS, max_message_bytes=1_000) as (_, address), grpcio_channel(address) as channel:
        for method, request, status, details in (
            ("/t/refuse", b"", "FAILED_PRECONDITION", "não: 100 % \n wrong"),
            ("/t/none", b"", "UNIMPLEMENTED", "no method /t/none"),
            ("/t/fail", b"", "INTERNAL", "the handler failed"),
            (
                "/t/reverse",
                bytes(1_001),
                "RESOURCE_EXHAUSTED",
                "a message of 1001 bytes: expected at most 1000",
            ),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await channel.unary_unary(method)(request)
            assert (raised.value.code().name, raised.value.details()) == (status, details)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.unary_unary("/t/reverse")(b"x" * 900, compression=grpc.Compression.Gzip)
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED
        assert raised.value.details() == "grpc-encoding gzip: expected identity"
        early = channel.stream_stream("/t/early")()
        await early.write(b"x")
        assert await early.read() == b"enough"
        assert await early.read() is grpc.aio.EOF
        assert await early.code() is grpc.StatusCode.OK


@on_a_loop
async def test_covey_learns_how_calls_of_grpcio_end() -> None:
    async with grpcio_serving() as address, Channel(address) as channel:
        for method, status, details in (
            ("/t/refuse", "FAILED_PRECONDITION", "não: 100 % \n wrong"),
            ("/t/none", "UNIMPLEMENTED", f"the server at {address} is not a Covey broker"),
        ):
            with pytest.raises(CallError) as raised:
                await channel.unary(method, b"")
            assert (raised.value.status, str(raised.value)) == (status, details)
        early = channel.call("/t/early")
        early.send(b"x")
        assert await early.read() == b"enough"
        assert await early.read() is None
        assert early.status == "OK"


@on_a_loop
async def test_cancellation_and_deadlines_reach_the_handler() -> None:
    CANCELLED.clear()
    async with covey_serving() as address, grpcio_channel(address) as channel:
        call = channel.stream_stream("/t/mute")()
        await call.write(b"x")
        call.cancel()
        await until(lambda: CANCELLED == ["CANCELLED"])
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.unary_unary("/t/mute")(b"x", timeout=0.2)
        assert raised.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: len(CANCELLED) == 2)
        assert CANCELLED[1] in ("CANCELLED", "DEADLINE_EXCEEDED")
    CANCELLED.clear()
    STARTED.clear()
    async with grpcio_serving() as address, Channel(address) as own:
        late = own.call("/t/mute", timeout_s=0.2)
        assert await late.read() is None
        assert late.status == "DEADLINE_EXCEEDED"
        cancelled = own.call("/t/mute")
        cancelled.send(b"x")
        await until(lambda: len(STARTED) == 2)
        cancelled.cancel()
        await until(lambda: len(CANCELLED) == 2)


@on_a_loop
async def test_a_connection_that_breaks_ends_its_calls() -> None:
    async with covey_serving() as address, grpcio_channel(address) as channel:
        CANCELLED.clear()
        await channel.unary_unary("/t/reverse")(b"x")
        async with Channel(address) as own:
            STARTED.clear()
            call = own.call("/t/mute")
            call.send(b"x")
            await until(lambda: bool(STARTED))
        assert call.status == "UNAVAILABLE"
        await until(lambda: CANCELLED == ["UNAVAILABLE"])


@on_a_loop
async def test_a_server_that_stops_lets_open_calls_end() -> None:
    async with (
        serving(HANDLERS) as (server, address),
        grpcio_channel(address) as channel,
        Channel(address) as own,
    ):
        theirs = channel.stream_stream("/t/echo")()
        await theirs.write(b"x")
        assert await theirs.read() == b"x"
        ours = own.call("/t/echo")
        ours.send(b"x")
        assert await ours.read() == b"x"
        stopping = asyncio.create_task(server.stop(60.0))
        with pytest.raises(CallError, match="takes no more calls"):
            await until(lambda: not own.call("/t/echo"))
        await theirs.write(b"y")
        assert await theirs.read() == b"y"
        await theirs.done_writing()
        assert await theirs.read() is grpc.aio.EOF
        ours.send(b"y")
        ours.end_request()
        assert await ours.read() == b"y"
        assert await ours.read() is None
        assert ours.status == "OK"
        await asyncio.wait_for(stopping, 60)
