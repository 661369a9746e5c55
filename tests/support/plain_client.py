"""A client written from docs/wire.md: grpcio and the messages of broker.proto, no code of Covey's. It writes
packed columns, reads these and Arrow, of int64 attributes alone, and evaluates no filter again."""

import asyncio
import secrets
import struct
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import grpc.aio
import pyarrow as pa

from covey.proto import broker_pb2 as pb

WINDOW_BYTES = 1 << 20
LAZY_S = 0.05
TRANSIENT = {"OK", "UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED"}
OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", 8 << 20)]


class PlainClient:
    """One session. `deliveries` has (type, values, ids) of every event, `gaps` the losses, `refusals` the
    broker's refusals."""

    def __init__(self, address: str, name: str, slow_consumer: int = 0) -> None:
        self.name = name
        self.publisher = f"{name}/{secrets.token_hex(6)}"
        self.deliveries: asyncio.Queue[tuple[str, list[int], list[int]]] = asyncio.Queue()
        self.gaps: list[Any] = []
        self.refusals: list[Any] = []
        self.resumed: list[bool] = []
        self.goodbye: Any = None
        self.held: set[str] = set()
        self.probes = 0
        self.reading = True
        self.heeds_holds = True
        self.protocols = (2, 2)  # the newest, the oldest
        self._address = address
        self._slow_consumer = slow_consumer
        self._incarnation = secrets.randbits(63) | 1
        self._peer_incarnation = 0
        self._epoch = self._settled = 0
        self._state: dict[object, Any] = {}  # what to repeat after a reset, in order
        self._types: dict[str, int] = {}  # by advertised or subscribed type, its number of attributes
        self._schemas: dict[str, bytes] = {}
        self._sequences: dict[str, int] = {}
        self._seen: dict[tuple[str, str], int] = {}
        self._changed = asyncio.Event()
        self._wake = asyncio.Event()
        self._pump: asyncio.Task[None] | None = None
        self._closing = False
        self._reset()

    def _reset(self) -> None:
        self._sent = self._acknowledged = 0
        self._retained: deque[tuple[Any, int]] = deque()
        self._credit = self._sent_bytes = 0
        self._received = self._consumed = self._granted = 0
        self._settled = 0
        self.held.clear()
        self._control: deque[Any] = deque()
        self._events: deque[Any] = deque(getattr(self, "_events", ()))
        self._now = True  # the first frame grants credit

    # --- the connection -------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        self._pump = asyncio.create_task(self._run())
        await self._until(lambda: bool(self.resumed) or self._closing)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._wake.set()
        assert self._pump is not None
        await asyncio.wait({self._pump}, timeout=10)
        self._pump.cancel()

    async def _run(self) -> None:
        while not self._closing:
            try:
                async with grpc.aio.insecure_channel(self._address, options=OPTIONS) as channel:
                    await self._connect(channel)
            except grpc.aio.AioRpcError as error:
                if error.code().name not in TRANSIENT:
                    self.goodbye = pb.Goodbye(status=error.code().name, reason=error.details())
                    self._closing = True
            self._changed.set()
            await asyncio.sleep(0.05)

    async def _connect(self, channel: grpc.aio.Channel) -> None:
        call = channel.stream_stream(
            "/covey.v1.Broker/Connect",
            request_serializer=pb.Packet.SerializeToString,
            response_deserializer=pb.Packet.FromString,
        )()
        hello = pb.Hello(role=pb.Hello.ROLE_CLIENT, id=self.name)
        hello.protocol, hello.oldest_protocol = self.protocols
        hello.incarnation, hello.peer_incarnation = self._incarnation, self._peer_incarnation
        hello.received, hello.credit = self._received, self._granted
        hello.slow_consumer = self._slow_consumer
        await call.write(pb.Packet(hello=hello))
        answer = await call.read()
        if answer is grpc.aio.EOF:
            return
        self._greet(answer.hello)
        writing = asyncio.create_task(self._write(call))
        try:
            await self._read(call)
        finally:
            writing.cancel()

    def _greet(self, hello: Any) -> None:
        resumes = hello.incarnation == self._peer_incarnation and hello.peer_incarnation == self._incarnation
        again: list[Any] = []
        if resumes:
            self._acknowledge(hello.received)
            self._credit = max(self._credit, hello.credit)
            again = [frame for frame, _ in self._retained]
            self._now = True
        else:
            unacknowledged = [
                m for frame, _ in self._retained for m in frame.messages if m.HasField("publish")
            ]
            self._reset()
            self._events.extendleft(reversed(unacknowledged))
            self._peer_incarnation = hello.incarnation
            self._put_state()
        self._again = deque(again)
        self.resumed.append(resumes)
        self._wake.set()
        self._changed.set()

    def _put_state(self) -> None:
        """Send the whole state again, with new epochs."""
        self._control.append(pb.Message(sync_begin=pb.SyncBegin()))
        for message in self._state.values():
            kind = message.WhichOneof("kind")
            getattr(message, kind).epoch = self._next_epoch()
            self._control.append(message)
        self._control.append(pb.Message(sync_end=pb.SyncEnd(epoch=self._next_epoch())))

    # --- frames ---------------------------------------------------------------------------------------------

    async def _write(self, call: Any) -> None:
        while True:
            while (frame := self._next_frame()) is not None:
                await call.write(pb.Packet(frame=frame))
            if self._closing:
                await call.write(pb.Packet(goodbye=pb.Goodbye(status="OK", reason="closed")))
                return
            self._wake.clear()
            await self._wake.wait()

    def _next_frame(self) -> Any:
        if self._again:
            frame = self._again.popleft()
            return frame  # as it was, its `received` included
        messages, size = list(self._control), 0
        self._control.clear()
        waiting: deque[Any] = deque()
        while self._events and self._sent_bytes + size < self._credit:
            message = self._events.popleft()
            if self.heeds_holds and message.publish.events.type_name in self.held:
                waiting.append(message)
                continue
            messages.append(message)
            size += 64 + len(message.publish.events.packed_columns)
        self._events.extendleft(reversed(waiting))
        if not messages and not self._now:
            return None
        frame = pb.Frame(messages=messages, received=self._received)
        if messages:
            self._sent += 1
            frame.sequence = self._sent
            frame.probe = True
            self._sent_bytes += size
            self._retained.append((frame, size))
        self._granted = max(self._granted, self._consumed + WINDOW_BYTES) if self.reading else self._granted
        frame.credit = self._granted
        self._now = False
        return frame

    async def _read(self, call: Any) -> None:
        while (packet := await call.read()) is not grpc.aio.EOF:
            if packet.HasField("goodbye"):
                self.goodbye = packet.goodbye
                continue
            assert packet.HasField("frame")
            self._take(packet.frame)
            self._changed.set()
            self._wake.set()

    def _take(self, frame: Any) -> None:
        self._credit = max(self._credit, frame.credit)
        if frame.probe:
            self.probes += 1
            self._now = True
        if frame.sequence:
            assert frame.sequence <= self._received + 1
            if frame.sequence == self._received + 1:
                self._received = frame.sequence
                asyncio.get_running_loop().call_later(LAZY_S, self._acknowledge_now)
                for message in frame.messages:
                    self._handle(message)
            else:
                self._now = True
        self._settled = max(self._settled, frame.settled)
        self._acknowledge(frame.received)

    def _acknowledge_now(self) -> None:
        self._now = True
        self._wake.set()

    def _acknowledge(self, received: int) -> None:
        while self._retained and self._retained[0][0].sequence <= received:
            self._retained.popleft()
        self._acknowledged = max(self._acknowledged, received)

    # --- messages -------------------------------------------------------------------------------------------

    def _handle(self, message: Any) -> None:
        match message.WhichOneof("kind"):
            case "deliver":
                self._deliver(message.deliver)
            case "hold":
                (self.held.add if message.hold.held else self.held.discard)(message.hold.type_name)
            case "gap":
                self.gaps.append(message.gap)
            case "refuse":
                self.refusals.append(message.refuse)

    def _deliver(self, deliver: Any) -> None:
        events = deliver.events
        count = events.count
        payload = len(events.packed_columns) or len(events.record_batch)
        ids = struct.unpack(f"<{len(deliver.ids) // 4}I", deliver.ids)
        if deliver.offsets:
            offsets = struct.unpack(f"<{count + 1}I", deliver.offsets)
            each = [list(ids[offsets[i] : offsets[i + 1]]) for i in range(count)]
        else:
            each = [list(ids)] * count
        self._consumed += 64 + payload + 4 * (count + 1 + sum(map(len, each)))
        if self.reading and self._consumed + WINDOW_BYTES - self._granted >= WINDOW_BYTES // 4:
            self._now = True
        schema = pb.EventType.FromString(events.schema)
        if events.sequence_offsets:
            numbers = struct.unpack(f"<{count}I", events.sequence_offsets)
        else:
            numbers = tuple(range(count))
        if events.packed_columns:
            columns = _unpack(events.packed_columns, len(schema.attributes), count)
        else:
            arrow = pa.schema([(attribute.name, pa.int64()) for attribute in schema.attributes])
            records = pa.ipc.read_record_batch(pa.py_buffer(events.record_batch), arrow)
            columns = [column.to_pylist() for column in records.columns]
        key = events.type_name, events.publisher
        for i in range(count):
            number = events.first_sequence + numbers[i]
            if number > self._seen.get(key, -1):
                self._seen[key] = number
                self.deliveries.put_nowait((events.type_name, [column[i] for column in columns], each[i]))

    def _next_epoch(self) -> int:
        self._epoch += 1
        return self._epoch

    # --- calls of the user ----------------------------------------------------------------------------------

    async def advertise(self, type_name: str, *attributes: str) -> None:
        event_type = pb.EventType(name=type_name)
        for attribute in attributes:
            event_type.attributes.add(name=attribute, kind=pb.KIND_INT64)
        self._schemas[type_name] = event_type.SerializeToString()
        message = pb.Message(advertise=pb.Advertise(epoch=self._next_epoch(), event_type=event_type))
        self._state[type_name] = message
        await self._change(message)

    async def subscribe(self, subscription_id: int, type_name: str, filter: str, **values: int) -> None:
        message = pb.Message(
            subscribe=pb.Subscribe(
                epoch=self._next_epoch(),
                subscription_id=subscription_id,
                type_name=type_name,
                filter=filter,
                values={name: pb.Value(int64=value) for name, value in values.items()},
            )
        )
        self._state[subscription_id] = message
        await self._change(message)

    async def update(self, subscription_id: int, **values: int) -> None:
        known = self._state[subscription_id].subscribe
        update = pb.Update(epoch=self._next_epoch(), subscription_id=subscription_id)
        for name, value in values.items():
            known.values[name].int64 = value
            update.values[name].int64 = value
        await self._change(pb.Message(update=update))

    def send_control(self, message: Any) -> None:
        copy = pb.Message()
        copy.CopyFrom(message)
        self._control.append(copy)
        self._wake.set()

    def grant(self) -> None:
        """Grant credit for consumed events, after a time without reading."""
        self._acknowledge_now()

    async def _change(self, message: Any) -> None:
        """Send control, and wait until it has taken effect everywhere."""
        self.send_control(message)
        await self.settled()

    async def settled(self) -> None:
        await self._until(lambda: self._settled >= self._epoch)

    def publish(self, type_name: str, *rows: list[int], contexts: Sequence[pb.TraceContext] = ()) -> None:
        """Up to 16 events."""
        first = self._sequences.get(type_name, 1)
        self._sequences[type_name] = first + len(rows)
        events = pb.Events(
            type_name=type_name,
            publisher=self.publisher,
            first_sequence=first,
            count=len(rows),
            schema=self._schemas[type_name],
            packed_columns=_pack(rows),
            contexts=contexts,
        )
        self._events.append(pb.Message(publish=pb.Publish(events=events)))
        self._wake.set()

    @property
    def unacknowledged(self) -> int:
        """The number of sent, unacknowledged frames."""
        return len(self._retained)

    async def flush(self) -> None:
        """Wait until the broker has accepted or refused all events."""
        await self._until(lambda: not self._events and not self._retained)

    async def _until(self, holds: Any) -> None:
        while not holds():
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), 60)


def _pack(rows: tuple[list[int], ...]) -> bytes:
    """Values of int64 attributes, none absent."""
    columns = list(zip(*rows, strict=True))
    absent = bytes((len(columns) * len(rows) + 7) // 8)
    return absent + b"".join(struct.pack(f"<{len(rows)}q", *column) for column in columns)


def _unpack(data: bytes, attributes: int, count: int) -> list[list[int]]:
    start = (attributes * count + 7) // 8
    assert not any(data[:start])
    values = struct.unpack_from(f"<{attributes * count}q", data, start)
    return [list(values[i * count : (i + 1) * count]) for i in range(attributes)]
