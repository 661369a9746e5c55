"""Delays that the overlay file adds to links and to the connections of clients."""

from __future__ import annotations

import asyncio
import time

import grpc
import grpc.aio
import pytest
from running import QUOTE, Brokers, on_a_loop

from covey.overlay import Client
from covey.overlay.node.delay import MOST_FRAMES, delayed
from covey.overlay.transport.pump import say_goodbye


class Pipe:
    """A connection whose other end is a list, and a queue."""

    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self.broken: Exception | None = None

    async def read(self) -> bytes:
        return await self.incoming.get()

    async def write(self, data: bytes) -> None:
        if self.broken is not None:
            raise self.broken
        self.written.append(data)


@on_a_loop
async def test_frames_keep_their_order_and_none_comes_before_its_time() -> None:
    pipe = Pipe()
    frames = [bytes([i]) for i in range(100)]
    started = time.monotonic()
    async with delayed(pipe, sent_s=0.05, read_s=0.08) as connection:
        for frame in frames:
            await connection.write(frame)
            pipe.incoming.put_nowait(frame)
        pipe.incoming.put_nowait(grpc.aio.EOF)
        assert time.monotonic() - started < 0.05
        assert not pipe.written
        read = [await connection.read() for _ in frames]
        assert time.monotonic() - started >= 0.08
        assert read == frames == pipe.written
        assert await connection.read() is grpc.aio.EOF
        await connection.write(b"last")
    assert pipe.written[-1] == b"last", "what was written arrives before the end"


@on_a_loop
async def test_a_full_line_holds_back_who_writes_and_a_broken_one_says_so() -> None:
    pipe = Pipe()
    async with delayed(pipe, sent_s=1.0) as connection:
        for _ in range(MOST_FRAMES + 1):  # the first is under way already
            await connection.write(b"x")
            await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(connection.write(b"too much"), 0.02)
        pipe.broken = asyncio.InvalidStateError()
        await asyncio.sleep(1.1)
        with pytest.raises(asyncio.InvalidStateError):
            await connection.write(b"y")
    assert pipe.written == []
    assert delayed(pipe).__class__.__name__ == "nullcontext"


@on_a_loop
@pytest.mark.parametrize(
    "error",
    [
        asyncio.InvalidStateError(),
        grpc.aio.UsageError(),
        grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata()),
        ConnectionResetError(),
    ],
    ids=lambda error: type(error).__name__,
)
async def test_whatever_a_broken_stream_raises_meets_who_writes_next_and_holds_up_nobody(
    error: Exception,
) -> None:
    pipe = Pipe()
    pipe.broken = error
    async with delayed(pipe, sent_s=0.01) as connection:
        for _ in range(3):
            await connection.write(b"x")
        await asyncio.sleep(0.05)
        with pytest.raises(type(error)):
            await connection.write(b"y")
        await say_goodbye(pipe, "UNAVAILABLE", "it is broken")
        left = time.monotonic()
    assert time.monotonic() - left < 0.5


@on_a_loop
async def test_an_update_and_an_event_take_as_long_as_their_way() -> None:
    links = [("b1", "b2"), ("b2", "b3")]
    delays_ms = {("b1", "b2"): 30.0, ("b3", "b2"): 50.0}
    async with Brokers(links, delays_ms=delays_ms, client_delay_ms=10.0) as overlay:
        async with (
            Client(overlay.address("b3"), "feed") as feed,
            Client(overlay.address("b1"), "buyer") as buyer,
        ):
            await feed.advertise(QUOTE)
            cheap = await buyer.subscribe("Quote", "price < $limit", limit=10.0)
            started = time.monotonic()
            await cheap.update(limit=20.0)
            took_ms = 1e3 * (time.monotonic() - started)
            assert took_ms >= 2 * (10 + 30 + 50)
            started = time.monotonic()
            publishing = [
                asyncio.ensure_future(feed.publish("Quote", firm="IBM", price=1.0, volume=i))
                for i in range(50)
            ]
            first = await asyncio.wait_for(anext(cheap), 5)
            took_ms = 1e3 * (time.monotonic() - started)
            assert took_ms >= 10 + 50 + 30 + 10
            rest = [await asyncio.wait_for(anext(cheap), 5) for _ in range(49)]
            assert [event["volume"] for event in (first, *rest)] == list(range(50))
            await asyncio.gather(*publishing)
        await overlay.quiet()
