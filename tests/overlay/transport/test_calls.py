"""Frames that a call passes to the end of a link, over a connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from rpc_serving import serving
from running import on_a_loop, until

from covey.overlay.core.link.link import Frame
from covey.overlay.core.messages import Unadvertise
from covey.overlay.http2.frames import DEFAULT_WINDOW, Http2Options
from covey.overlay.http2.messages import PREFIX_BYTES
from covey.overlay.http2.rpc import RpcConnection
from covey.overlay.transport.calls import RpcCall, RpcProtocol
from covey.overlay.transport.packets import Goodbye, LinkEnd, PeerClosedError, encode_frame, encode_goodbye
from covey.overlay.transport.rpc_server import answer_with
from covey.overlay.transport.wire_values import MalformedPacketError


class Receiving:
    """The end of a link that handles `most` frames at a time, and takes none while it is busy."""

    def __init__(self, most: int, *, trusts: bool = False) -> None:
        self.most = most
        self.trusts = trusts
        self.offered: list[list[int]] = []
        """The sequence numbers of frames received together."""
        self.errors: list[Exception] = []
        self.busy = False
        self.delays = 0
        """The number of postponed turns."""
        self.calls: list[RpcCall] = []
        self.ended = False

    async def serve(self, call: RpcCall) -> None:
        self.calls.append(call)
        if self.trusts:
            call.trust()
        try:
            await call.exchange(LinkEnd(self._receive, lambda: None, schemas=False, delay_ns=self._delay_ns))
        except Exception as error:
            self.errors.append(error)
        self.ended = True
        call.finish("OK")

    def _delay_ns(self, now_ns: int) -> int:
        self.delays += self.busy
        return 1_000_000 if self.busy else 0

    def _receive(self, frames: Sequence[Frame[Any]], now_ns: int) -> int:
        assert now_ns
        self.offered.append([frame.sequence for frame in frames])
        return min(len(frames), self.most)


@asynccontextmanager
async def called(receiving: Receiving) -> AsyncIterator[tuple[RpcProtocol, RpcCall]]:
    """A call to the end of a link, and its connection, which has another method too."""
    handlers = {"/t/frames": receiving.serve, "/t/reverse": answer_with(lambda request: request[::-1])}
    async with serving(handlers) as (_, address):
        rpc = RpcConnection(now_ns=time.monotonic_ns(), authority=address)
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(partial(RpcProtocol, rpc), *address.split(":"))
        call = connection.start("/t/frames", None)
        assert call is not None
        yield connection, call
        connection.close()
        await connection.lost


async def exchanged(messages: Sequence[bytes], most: int) -> Receiving:
    """The messages that an end gets, of those that arrive together."""
    receiving = Receiving(most)
    async with called(receiving) as (_, call):
        for message in messages:
            call.send(message)
        call.end_request()
        await until(lambda: call.status is not None)
    return receiving


@pytest.mark.parametrize(
    ("last", "error"),
    [(b"\xff", MalformedPacketError), (encode_goodbye(Goodbye("OK", "over")), PeerClosedError)],
)
@on_a_loop
async def test_frames_before_a_packet_that_ends_the_connection_count(
    last: bytes, error: type[Exception]
) -> None:
    frames = [encode_frame(Frame(number, 0, 0)) for number in (1, 2, 3)]
    receiving = await exchanged([*frames, last, encode_frame(Frame(4, 0, 0))], most=2)
    assert receiving.offered == [[1, 2, 3], [3]]
    assert [type(each) for each in receiving.errors] == [error]


@on_a_loop
async def test_frames_that_arrive_together_are_decoded_some_at_a_time() -> None:
    name = bytes(8_000).decode()
    frames = [encode_frame(Frame(number, 0, 0, (), dropped=number)) for number in range(1, 4)]
    large = encode_frame(Frame(9, 0, 0, (Unadvertise(1, name),)))
    receiving = await exchanged([*frames, *[large] * 6], most=100)
    assert receiving.offered == [[1, 2, 3, 9, 9, 9, 9, 9], [9]]
    assert not receiving.errors


@on_a_loop
async def test_frames_that_wait_are_received_later_and_the_exchange_ends_behind_them() -> None:
    receiving = Receiving(10)
    frames = [encode_frame(Frame(number, 0, 0)) for number in range(6)]
    async with called(receiving) as (connection, call):
        await until(lambda: bool(receiving.calls))
        for frame in frames[1:4]:
            call.send(frame)
        await until(lambda: bool(receiving.offered))
        assert receiving.offered == [[1, 2, 3]]
        (served,) = receiving.calls
        receiving.busy = True
        call.send(frames[4])
        await until(lambda: receiving.delays > 0)
        call.send(frames[5])
        await until(lambda: served.uncut_bytes == size_of(frames[5:]))
        call.end_request()
        other = connection.start("/t/reverse", None)
        assert other is not None
        other.send(b"ab")
        assert await other.read() == b"ba", "the end of the request has arrived as well"
        assert receiving.offered == [[1, 2, 3]]
        assert not receiving.ended
        receiving.busy, receiving.most = False, 1
        await until(lambda: receiving.ended)
        assert receiving.offered == [[1, 2, 3], [4], [5]]
        assert not receiving.errors


@on_a_loop
async def test_a_large_message_behind_one_that_waits_does_not_keep_the_connection_from_being_read() -> None:
    receiving = Receiving(10)
    large = encode_frame(Frame(2, 0, 0, (Unadvertise(1, "x" * 100_000),)))
    async with called(receiving) as (_, call):
        await until(lambda: bool(receiving.calls))
        (served,) = receiving.calls
        receiving.busy = True
        call.send(encode_frame(Frame(1, 0, 0)))
        await until(lambda: receiving.delays > 0)
        call.send(large)
        await until(lambda: served.uncut_bytes > len(large))
        receiving.busy = False
        await until(lambda: receiving.offered == [[1], [2]])
        call.send(encode_frame(Frame(3, 0, 0)))
        await until(lambda: receiving.offered == [[1], [2], [3]])


@pytest.fixture
def plain_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The window of a connection is HTTP/2's without options, bytes given back are granted at once, and a
    trusted peer is served at once."""
    options = partial(Http2Options, connection_window=1, permits_per_s=10**9)
    monkeypatch.setattr("covey.overlay.http2.connection.Http2Options", options)


@pytest.mark.usefixtures("plain_windows")
@on_a_loop
async def test_small_messages_are_given_back_to_the_windows_some_at_a_time_and_at_the_end_of_their_call() -> (
    None
):
    receiving = Receiving(10)
    frame = encode_frame(Frame(1, 2, 3, (Unadvertise(1, "x" * 2_000),)))
    size = len(frame) + PREFIX_BYTES
    async with called(receiving) as (connection, call):
        await until(lambda: bool(receiving.calls))
        http2 = connection.rpc.http2
        assert http2.window == DEFAULT_WINDOW
        for number in range(1, 12):
            call.send(frame)
            await until(lambda number=number: len(receiving.offered) == number)  # type: ignore[misc]
            if number * size < 16 << 10:
                assert http2.window == DEFAULT_WINDOW - number * size
            else:
                await until(lambda: http2.window > DEFAULT_WINDOW - (16 << 10))
        assert http2.window < DEFAULT_WINDOW
        call.end_request()
        await until(lambda: call.status is not None)
        await until(lambda: http2.window == DEFAULT_WINDOW)


@pytest.mark.parametrize("way", ["received", "dropped", "failed"])
@pytest.mark.usefixtures("plain_windows")
@on_a_loop
async def test_what_waits_as_the_peer_ends_its_call_is_given_back_to_the_connection(way: str) -> None:
    """It is dropped where its turns would come long after the peer has gone."""
    receiving = Receiving(10, trusts=way != "dropped")
    frames = [encode_frame(Frame(number, 0, 0)) for number in range(1, 4)]
    if way == "failed":
        frames[1] = b"\xff"
    async with called(receiving) as (connection, call):
        await until(lambda: bool(receiving.calls))
        (served,) = receiving.calls
        receiving.busy = True
        call.send(frames[0])
        await until(lambda: receiving.delays > 0)
        for frame in frames[1:]:
            call.send(frame)
        await until(lambda: served.uncut_bytes == size_of(frames[1:]))
        assert connection.rpc.http2.window < DEFAULT_WINDOW
        call.cancel()
        await until(lambda: served.status is not None)
        receiving.busy, receiving.most = False, 1
        await until(lambda: receiving.ended)
        assert receiving.offered == {"received": [[1], [2, 3], [3]], "dropped": [], "failed": [[1]]}[way]
        await until(lambda: connection.rpc.http2.window == DEFAULT_WINDOW)


def size_of(messages: Sequence[bytes]) -> int:
    return sum(PREFIX_BYTES + len(message) for message in messages)
