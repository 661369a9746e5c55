"""The baseline of `covey bench chain`: a chain of bare gRPC relays, each a process, with a source and a sink.

A relay parses each batch, filters its events by price and forwards them: no subscriptions, credit,
acknowledgements, sequence numbers, resumption or batching. It measures the cost of gRPC, Arrow and the
machine.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio
import pyarrow as pa
import pyarrow.compute as pc

from covey.sim.experiments.bench.chain_worker import TICK, Arrivals, Publisher, Role, serve_commands

SERVICE = "covey.bench.Relay"
FORWARD = f"/{SERVICE}/Forward"
SCHEMA = TICK.arrow_schema


def to_bytes(batch: pa.RecordBatch) -> bytes:
    data: bytes = batch.serialize().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(data), SCHEMA)


class Source(Publisher):
    """Sends each batch, or each single event, as one message."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._write_lock = asyncio.Lock()

    async def start(self) -> dict[str, Any]:
        self._channel = grpc.aio.insecure_channel(self._address)
        self._call = self._channel.stream_stream(FORWARD)()
        return {}

    async def stop(self) -> None:
        await self._channel.close()

    async def send(self, batch: pa.RecordBatch) -> None:
        async with self._write_lock:
            await self._call.write(to_bytes(batch))

    async def send_event(self, event: dict[str, Any]) -> None:
        await self.send(pa.RecordBatch.from_pylist([event], SCHEMA))


class Relay:
    """Forwards events with a price of at least 0 to the relay or the sink at `next_address`."""

    def __init__(self, next_address: str) -> None:
        self._next_address = next_address

    async def start(self) -> dict[str, Any]:
        self._server, port = await serve(self._forward)
        return {"address": f"127.0.0.1:{port}"}

    async def _forward(self, _: AsyncIterator[bytes], context: Any) -> None:
        async with grpc.aio.insecure_channel(self._next_address) as channel:
            call = channel.stream_stream(FORWARD)()
            while (data := await context.read()) is not grpc.aio.EOF:
                batch = from_bytes(data)
                selected = pc.greater_equal(batch.column("price"), 0.0)
                await call.write(to_bytes(batch.filter(selected)))

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def stop(self) -> None:
        await self._server.stop(None)


class Sink:
    """Receives a number of events and reports their arrival times and latencies."""

    def __init__(self) -> None:
        self._batches: asyncio.Queue[pa.RecordBatch] = asyncio.Queue()

    async def start(self) -> dict[str, Any]:
        self._server, port = await serve(self._receive)
        return {"address": f"127.0.0.1:{port}"}

    async def _receive(self, _: AsyncIterator[bytes], context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            self._batches.put_nowait(from_bytes(data))

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        arrivals = Arrivals(arguments["events"])
        while not arrivals.add(await self._batches.get()):
            pass
        return arrivals.as_response()

    async def stop(self) -> None:
        await self._server.stop(None)


async def serve(behaviour: Callable[..., Any]) -> tuple[grpc.aio.Server, int]:
    """A server with one method on a free loopback port, and the port."""
    server = grpc.aio.server()
    method = grpc.stream_stream_rpc_method_handler(behaviour)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Forward": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


ROLES: dict[str, Callable[..., Role]] = {"source": Source, "relay": Relay, "sink": Sink}

if __name__ == "__main__":
    asyncio.run(serve_commands(ROLES[sys.argv[1]](**json.loads(sys.argv[2]))))
