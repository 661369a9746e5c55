"""Peers outside the protocol: their connection ends with a clear status, and the broker goes on."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpcio import grpcio_channel
from running import QUOTE, Brokers, on_a_loop, until

from covey.matcher import EventBatch
from covey.overlay import Client
from covey.overlay.core.endpoint import interface_queue
from covey.overlay.core.endpoint.limits import Limits, SessionLimits
from covey.overlay.core.introspection.inspection import inspect
from covey.overlay.core.link.link import Frame, Hello, Link
from covey.overlay.core.messages import Acknowledge, Advertise, Message, Publish, Refuse, Update
from covey.overlay.transport.codec import decode_message
from covey.overlay.transport.packets import (
    CONNECT,
    DESCRIBE,
    Goodbye,
    Greeting,
    Role,
    decode_packet,
    encode_frame,
    encode_greeting,
)
from covey.proto import broker_pb2 as pb


class Stranger:
    """A client that sends what a test chooses."""

    def __init__(self, call: Any) -> None:
        self.call = call
        self.link = Link(99)
        self.heard: deque[Message] = deque()

    async def greet(self, greeting: Greeting | None = None) -> Greeting:
        hello = greeting or Greeting(Role.CLIENT, "stranger", self.link.hello())
        await self.call.write(encode_greeting(hello))
        answer = decode_packet(await self.call.read())
        assert isinstance(answer, Greeting)
        self.link.resume(answer.hello)
        return answer

    async def say(self, *messages: Message) -> None:
        for message in messages:
            self.link.send(message)
        frame = self.link.next_frame()
        assert frame is not None
        await self.call.write(encode_frame(frame))

    async def hear(self, sort: type) -> Any:
        """The next message of this kind."""
        while True:
            while self.heard:
                message = self.heard.popleft()
                if isinstance(message, sort):
                    return message
            packet = decode_packet(await self.call.read())
            assert isinstance(packet, Frame)
            for m in self.link.receive(packet, 0):
                is_core = isinstance(m, Acknowledge)
                self.heard.append(m if is_core else decode_message(m, {"Quote": QUOTE}.get))

    async def ended(self) -> tuple[str, str]:
        """Status and reason of the stream's end; the goodbye and the status agree."""
        said = None
        try:
            while (data := await self.call.read()) is not grpc.aio.EOF:
                packet = decode_packet(data)
                if isinstance(packet, Goodbye):
                    said = packet.status
        except grpc.aio.AioRpcError:
            pass
        code = (await self.call.code()).name
        assert said in (None, code)
        return code, await self.call.details()


@asynccontextmanager
async def stranger_at(overlay: Brokers, name: str = "b1") -> AsyncIterator[Stranger]:
    async with grpcio_channel(overlay.address(name)) as channel:
        yield Stranger(channel.stream_stream(CONNECT)())


async def still_works(overlay: Brokers) -> None:
    async with Client(overlay.address("b1")) as client:
        await client.advertise(QUOTE)
        mine = await client.subscribe("Quote", "price < $limit", limit=5.0)
        await client.publish("Quote", price=1.0)
        assert (await asyncio.wait_for(anext(mine), 60))["price"] == 1.0


FRAME = encode_frame(Frame(1, 0, 0, (Update(1, 1, {}),)))


@on_a_loop
@pytest.mark.parametrize(
    ("first", "status", "reason"),
    [
        (b"\xff\xff\xff", "INVALID_ARGUMENT", "3 bytes are no packet of covey.v1.Broker"),
        (FRAME, "INVALID_ARGUMENT", "begins with a frame: expected a hello"),
        (
            encode_greeting(Greeting(Role.BROKER, "b9", Hello(5), "test")),
            "FAILED_PRECONDITION",
            "broker 'b9' is no neighbour of b1: it has b2",
        ),
        (
            encode_greeting(Greeting(Role.BROKER, "b2", Hello(5), "other")),
            "FAILED_PRECONDITION",
            "broker 'b2' is of overlay 'other': expected 'test'",
        ),
    ],
)
async def test_first_packets_other_than_an_acceptable_hello_are_refused(
    first: bytes, status: str, reason: str
) -> None:
    async with Brokers([("b1", "b2")]) as overlay:
        async with stranger_at(overlay) as stranger:
            await stranger.call.write(first)
            code, details = await stranger.ended()
            assert code == status
            assert reason in details
        await still_works(overlay)


@on_a_loop
@pytest.mark.parametrize(
    ("second", "reason"),
    [
        (b"\xff\xff\xff", "3 bytes are no packet of covey.v1.Broker"),
        (encode_greeting(Greeting(Role.CLIENT, "stranger", Hello(5))), "a second hello from 'stranger'"),
        (encode_frame(Frame(7, 0, 0, (Update(1, 1, {}),))), "frame 7 follows frame 0: expected 1"),
    ],
)
async def test_packets_that_break_the_protocol(second: bytes, reason: str) -> None:
    async with Brokers() as overlay:
        async with stranger_at(overlay) as stranger:
            await stranger.greet()
            await stranger.call.write(second)
            code, details = await stranger.ended()
            assert code == "INVALID_ARGUMENT"
            assert reason in details
        await still_works(overlay)


@on_a_loop
async def test_a_stream_that_ends_without_a_goodbye_keeps_its_session() -> None:
    async with Brokers() as overlay:
        async with stranger_at(overlay) as stranger:
            await stranger.greet()
            await stranger.call.done_writing()
            await stranger.ended()
        await until(lambda: not overlay.nodes["b1"].queues["client/stranger"].connected)
        async with stranger_at(overlay) as stranger:
            await stranger.call.done_writing()
            assert await stranger.ended() == ("INVALID_ARGUMENT", "the stream ended without a hello")


@on_a_loop
async def test_a_session_that_was_not_resumed_ends_with_its_lease() -> None:
    async with Brokers(sessions=SessionLimits(lease_s=0.2)) as overlay:
        held = overlay.nodes["b1"].queues
        async with stranger_at(overlay) as stranger, stranger_at(overlay) as again:
            answer = await stranger.greet()
            hello = Hello(99, answer.hello.incarnation, received=50)
            await again.call.write(encode_greeting(Greeting(Role.CLIENT, "stranger", hello)))
            code, details = await again.ended()
            assert code == "INVALID_ARGUMENT"
            assert "frame 50 arrived: only" in details
            assert await stranger.ended() == ("ABORTED", "a newer connection replaces this one")
        await until(lambda: "client/stranger" not in held)


@on_a_loop
async def test_an_event_that_is_too_large_is_refused_and_takes_no_other_with_it() -> None:
    limits = Limits(max_event_bytes=1_000, max_batch_events=10, max_frame_bytes=100_000)
    async with Brokers(limits=limits) as overlay, Client(overlay.address("b1")) as reader:
        async with stranger_at(overlay) as stranger:
            assert (await stranger.greet()).limits == limits
            await stranger.say(Advertise(1, QUOTE))
            await stranger.hear(Acknowledge)
            mine = await reader.subscribe(QUOTE)
            rows = [{"firm": "x" * size, "volume": i} for i, size in enumerate((5, 2_000, 7, 990))]
            batch = EventBatch.from_pylist(QUOTE, rows, publisher="stranger/1", first_sequence=100)
            await stranger.say(Publish(batch))
            for sequence, size in ((101, 2_020), (103, 1_010)):
                refusal = await stranger.hear(Refuse)
                assert refusal == Refuse(
                    0,
                    "RESOURCE_EXHAUSTED",
                    f"event {sequence} of Quote has {size} bytes: expected at most 1000",
                    0,
                    "Quote",
                    sequence,
                    1,
                )
            many = EventBatch.from_pylist(QUOTE, [{}] * 11, publisher="stranger/1", first_sequence=200)
            await stranger.say(Publish(many))
            refusal = await stranger.hear(Refuse)
            assert refusal.reason == "a batch of 11 events of Quote: expected at most 10"
            assert (refusal.first_sequence, refusal.count) == (200, 11)
            got = [(await anext(mine)).sequence for _ in range(2)]
            assert got == [100, 102]
        await still_works(overlay)


@on_a_loop
async def test_invalid_messages_are_refused_one_by_one() -> None:
    async with Brokers() as overlay:
        async with stranger_at(overlay) as stranger:
            await stranger.greet()
            await stranger.say(Advertise(1, QUOTE))
            await stranger.hear(Acknowledge)
            bad = pb.Frame(sequence=2, credit=1 << 20)
            for epoch, text in ((2, "price <<"), (3, "price < 5"), (4, "cost < 5")):
                subscribe = pb.Subscribe(epoch=epoch, subscription_id=epoch, type_name="Quote", filter=text)
                bad.messages.add(subscribe=subscribe)
            events = pb.Events(type_name="Quote", count=1, record_batch=b"x")
            bad.messages.add(publish=pb.Publish(events=events))
            bad.messages.add(update=pb.Update(epoch=5, subscription_id=9))
            stranger.link.sent = 2
            await stranger.call.write(pb.Packet(frame=bad).SerializeToString())
            statuses = [await stranger.hear(Refuse) for _ in range(4)]
            assert [(r.epoch, r.status) for r in statuses] == [
                (2, "INVALID_ARGUMENT"),
                (4, "INVALID_ARGUMENT"),
                (0, "INVALID_ARGUMENT"),
                (5, "NOT_FOUND"),
            ]
            node = overlay.nodes["b1"]
            assert inspect(node.core)["interfaces"]["client/stranger"]["subscriptions"] == 1
            assert inspect(node.core)["interfaces"]["client/stranger"]["epoch_acknowledged"] == 5
        await still_works(overlay)


@on_a_loop
async def test_a_client_that_sends_invalid_messages_and_reads_no_refusal_is_disconnected(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(interface_queue, "MAX_SESSION_CONTROL", 500)
    caplog.set_level("INFO", "covey.broker")
    async with Brokers() as overlay:
        async with stranger_at(overlay) as stranger:
            await stranger.greet()
            with suppress(asyncio.InvalidStateError, grpc.RpcError):  # it may be out before all is said
                for number in range(1, 21):
                    wrong = tuple(Update(100 * number + i, 9, {}) for i in range(100))
                    await stranger.call.write(encode_frame(Frame(number, 0, 0, wrong)))
            await until(lambda: "client/stranger" not in overlay.nodes["b1"].queues)
        assert "client/stranger disconnected: session ended: it does not keep up" in caplog.text
        await still_works(overlay)


@on_a_loop
async def test_describe_health_and_reflection() -> None:
    async with Brokers() as overlay, grpcio_channel(overlay.address("b1")) as channel:
        for request, status, reason in (
            (b"\xff\xff", "INVALID_ARGUMENT", "2 bytes are no DescribeRequest"),
            (b"", "NOT_FOUND", "broker b1 has no event type ''; it has none yet"),
        ):
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await channel.unary_unary(DESCRIBE.path)(request)
            assert raised.value.code().name == status
            assert reason in raised.value.details()
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", "covey.v1.Broker"):
            reply = await health.Check(health_pb2.HealthCheckRequest(service=service))
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo(iter([ask]))
        names = [service.name async for r in call for service in r.list_services_response.service]
        assert "covey.v1.Broker" in names
