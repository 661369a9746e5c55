"""The bare relays of `covey bench chain`, by grpc.aio and by TCP: the cost of the transport, of Arrow and of
the machine. A relay parses each batch, filters its events by price and forwards them, without Covey's
protocol. Each batch, and each single event, is one message. By TCP that is its length in four bytes,
big-endian, and its bytes, and the relays run on the event loop that brokers run on."""

from __future__ import annotations

import asyncio
import sys
from abc import abstractmethod
from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import grpc
import grpc.aio
import pyarrow as pa
import pyarrow.compute as pc

from covey.overlay.transport.event_loop import run
from covey.sim.experiments.bench.chain_clients import TICK, Publisher, Sink
from covey.sim.experiments.processes import Role, serve

_SCHEMA = TICK.arrow_schema


def encode(batch: pa.RecordBatch) -> bytes:
    data: bytes = batch.serialize().to_pybytes()
    return data


def decode(data: bytes) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(data), _SCHEMA)


def forwarded(data: bytes) -> bytes:
    """A message with the events that have a price of at least 0."""
    batch = decode(data)
    return encode(batch.filter(pc.greater_equal(batch.column("price"), 0.0)))


class RelaySource(Publisher):
    def __init__(self, address: str) -> None:
        self.address = address

    @abstractmethod
    async def write(self, message: bytes) -> None: ...

    async def send(self, batch: pa.RecordBatch) -> None:
        await self.write(encode(batch))

    async def send_event(self, event: dict[str, Any]) -> None:
        await self.write(encode(pa.RecordBatch.from_pylist([event], _SCHEMA)))


class RelaySink(Sink):
    def __init__(self) -> None:
        self._batches: asyncio.Queue[pa.RecordBatch] = asyncio.Queue()

    def take(self, message: bytes) -> None:
        self._batches.put_nowait(decode(message))

    async def arrived(self) -> pa.RecordBatch:
        return await self._batches.get()


# --- by grpc.aio --------------------------------------------------------------------------------------------

SERVICE = "covey.bench.Relay"
FORWARD = f"/{SERVICE}/Forward"


class GrpcSource(RelaySource):
    async def start(self) -> None:
        self._channel = grpc.aio.insecure_channel(self.address)
        self._call = self._channel.stream_stream(FORWARD)()

    async def stop(self) -> None:
        await self._channel.close()

    async def write(self, message: bytes) -> None:
        await self._call.write(message)


class GrpcRelay:
    def __init__(self, next_address: str) -> None:
        self._next_address = next_address

    async def start(self) -> dict[str, Any]:
        self._server, port = await listen_grpc(self._forward)
        return {"address": f"127.0.0.1:{port}"}

    async def _forward(self, _: AsyncIterator[bytes], context: Any) -> None:
        async with grpc.aio.insecure_channel(self._next_address) as channel:
            call = channel.stream_stream(FORWARD)()
            while (message := await context.read()) is not grpc.aio.EOF:
                await call.write(forwarded(message))

    async def stop(self) -> None:
        await self._server.stop(None)


class GrpcSink(RelaySink):
    async def start(self) -> dict[str, Any]:
        self._server, port = await listen_grpc(self._take_all)
        return {"address": f"127.0.0.1:{port}"}

    async def _take_all(self, _: AsyncIterator[bytes], context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            self.take(message)

    def source(self, address: str) -> Publisher:
        return GrpcSource(address)

    async def stop(self) -> None:
        await self._server.stop(None)


async def listen_grpc(behaviour: Callable[..., Any]) -> tuple[grpc.aio.Server, int]:
    """A server with one method on a free loopback port, and the port."""
    server = grpc.aio.server()
    method = grpc.stream_stream_rpc_method_handler(behaviour)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Forward": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


# --- by TCP -------------------------------------------------------------------------------------------------

_PREFIX = 4


class Messages(asyncio.Protocol):
    """One end of a connection: `take` gets arriving messages; `paused` is called with True when the peer
    stops reading, and with False when it goes on."""

    def __init__(
        self, take: Callable[[bytes], None] | None = None, paused: Callable[[bool], None] | None = None
    ) -> None:
        self._take = take
        self._paused = paused
        self._buffer = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        assert self._take is not None
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _PREFIX:
            end = start + _PREFIX + int.from_bytes(buffer[start : start + _PREFIX], "big")
            if end > len(buffer):
                break
            self._take(bytes(buffer[start + _PREFIX : end]))
            start = end
        del buffer[:start]

    def pause_writing(self) -> None:
        if self._paused is not None:
            self._paused(True)

    def resume_writing(self) -> None:
        if self._paused is not None:
            self._paused(False)

    def write(self, message: bytes) -> None:
        self.transport.write(len(message).to_bytes(_PREFIX, "big") + message)


async def connect(address: str, paused: Callable[[bool], None]) -> Messages:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    _, protocol = await loop.create_connection(lambda: Messages(paused=paused), host, int(port))
    return protocol


async def listen_tcp(made: Callable[[], Messages]) -> tuple[asyncio.Server, str]:
    """A server on a free loopback port, and its address."""
    server = await asyncio.get_running_loop().create_server(made, "127.0.0.1", 0)
    return server, f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


class TcpSource(RelaySource):
    async def start(self) -> None:
        self._room = asyncio.Event()
        self._room.set()
        self._next = await connect(self.address, self._set_paused)

    def _set_paused(self, paused: bool) -> None:
        if paused:
            self._room.clear()
        else:
            self._room.set()

    async def write(self, message: bytes) -> None:
        self._next.write(message)
        if not self._room.is_set():
            await self._room.wait()

    async def stop(self) -> None:
        self._next.transport.close()


class TcpRelay:
    """While `next_address` does not read, neither does the relay."""

    def __init__(self, next_address: str) -> None:
        self._next_address = next_address
        self._sources: list[Messages] = []

    async def start(self) -> dict[str, Any]:
        self._next = await connect(self._next_address, self._set_paused)
        self._server, address = await listen_tcp(self._accept)
        return {"address": address}

    def _accept(self) -> Messages:
        source = Messages(lambda message: self._next.write(forwarded(message)))
        self._sources.append(source)
        return source

    def _set_paused(self, paused: bool) -> None:
        for source in self._sources:
            if source.transport.is_closing():
                continue
            if paused:
                source.transport.pause_reading()
            else:
                source.transport.resume_reading()

    async def stop(self) -> None:
        self._server.close()
        self._next.transport.close()


class TcpSink(RelaySink):
    async def start(self) -> dict[str, Any]:
        self._server, address = await listen_tcp(lambda: Messages(self.take))
        return {"address": address}

    def source(self, address: str) -> Publisher:
        return TcpSource(address)

    async def stop(self) -> None:
        self._server.close()


ROLES: dict[str, Callable[..., Role]] = {
    **{"grpc source": GrpcSource, "grpc relay": GrpcRelay, "grpc sink": GrpcSink},
    **{"tcp source": TcpSource, "tcp relay": TcpRelay, "tcp sink": TcpSink},
}

if __name__ == "__main__":
    serve(ROLES, run if sys.argv[1].startswith("tcp") else asyncio.run)
