"""What a pump passes to its end of the messages that have arrived, over a connection."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from running import free_ports, on_a_loop, until

from covey.overlay.core.link.link import Frame
from covey.overlay.core.messages import Unadvertise
from covey.overlay.transport.channel import Channel
from covey.overlay.transport.errors import MalformedPacketError
from covey.overlay.transport.packets import Goodbye, encode_frame, encode_goodbye
from covey.overlay.transport.pump import LinkEnd, PeerClosedError, Pump
from covey.overlay.transport.rpc_call import RpcCall
from covey.overlay.transport.rpc_server import RpcServer


class Receiving:
    """A server whose calls are pumped to an end that is done with `most` frames at a time."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.offered: list[list[int]] = []
        """The sequence numbers of frames that were received together."""
        self.errors: list[Exception] = []

    async def serve(self, call: RpcCall) -> None:
        pump = Pump(LinkEnd(lambda _: 0, self._receive, lambda: None), call, schemas=False)
        try:
            await pump.run()
        except Exception as error:
            self.errors.append(error)
        call.finish("OK")

    def _receive(self, frames: Sequence[Frame[Any]], now_ns: int) -> int:
        assert now_ns
        self.offered.append([frame.sequence for frame in frames])
        return min(len(frames), self.most)


async def pumped(messages: Sequence[bytes], most: int) -> Receiving:
    """What an end gets of messages that arrive together."""
    receiving = Receiving(most)
    (port,) = free_ports(1)
    server = RpcServer({"/t/pump": receiving.serve}, max_message_bytes=1 << 20, faults=Counter())
    await server.listen(f"127.0.0.1:{port}")
    async with Channel(f"127.0.0.1:{port}") as channel:
        call = channel.call("/t/pump")
        for message in messages:
            call.send(message)
        call.end_request()
        await until(lambda: call.status is not None)
    await server.stop(0.0)
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
    receiving = await pumped([*frames, last, encode_frame(Frame(4, 0, 0))], most=2)
    assert receiving.offered == [[1, 2, 3], [3]]
    assert [type(each) for each in receiving.errors] == [error]


@on_a_loop
async def test_frames_that_arrive_together_are_decoded_some_at_a_time() -> None:
    name = bytes(8_000).decode()
    frames = [encode_frame(Frame(number, 0, 0, (), dropped=number)) for number in range(1, 4)]
    large = encode_frame(Frame(9, 0, 0, (Unadvertise(1, name),)))
    receiving = await pumped([*frames, *[large] * 6], most=100)
    assert receiving.offered == [[1, 2, 3, 9, 9, 9, 9, 9], [9]]
    assert not receiving.errors
