"""The floor under `covey bench chain`: bare gRPC relays in a row, each a process, with a source and a sink.

A relay parses each batch of events, keeps those with a price, and passes them on: no subscriptions, no
credit, no acknowledgements, no numbers, nothing kept for a connection that breaks, and no gathering: what is
one message stays one. So this is what gRPC, Arrow and the machine cost by themselves.
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

from covey.sim.experiments.bench.chain_worker import TICK, Arrivals, Publisher, Role, work

SERVICE = "covey.bench.Relay"
PASS = f"/{SERVICE}/Pass"
SCHEMA = TICK.arrow_schema


def to_bytes(batch: pa.RecordBatch) -> bytes:
    data: bytes = batch.serialize().to_pybytes()
    return data


def from_bytes(data: bytes) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(pa.py_buffer(data), SCHEMA)


class Source(Publisher):
    """Writes each batch, or each single event, as one message."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._one_at_a_time = asyncio.Lock()

    async def start(self) -> dict[str, Any]:
        self._channel = grpc.aio.insecure_channel(self._address)
        self._call = self._channel.stream_stream(PASS)()
        return {}

    async def stop(self) -> None:
        await self._channel.close()

    async def send(self, batch: pa.RecordBatch) -> None:
        async with self._one_at_a_time:
            await self._call.write(to_bytes(batch))

    async def send_event(self, event: dict[str, Any]) -> None:
        await self.send(pa.RecordBatch.from_pylist([event], SCHEMA))


class Relay:
    """Passes on what has a price, to the relay or the sink at `onward`."""

    def __init__(self, onward: str) -> None:
        self._onward = onward

    async def start(self) -> dict[str, Any]:
        self._server, port = await serve(self._pass)
        return {"address": f"127.0.0.1:{port}"}

    async def _pass(self, _: AsyncIterator[bytes], context: Any) -> None:
        async with grpc.aio.insecure_channel(self._onward) as channel:
            call = channel.stream_stream(PASS)()
            while (data := await context.read()) is not grpc.aio.EOF:
                batch = from_bytes(data)
                wanted = pc.greater_equal(batch.column("price"), 0.0)
                await call.write(to_bytes(batch.filter(wanted)))

    async def obey(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def stop(self) -> None:
        await self._server.stop(None)


class Sink:
    """Receives a number of events and says when they came and how long each took."""

    def __init__(self) -> None:
        self._batches: asyncio.Queue[pa.RecordBatch] = asyncio.Queue()

    async def start(self) -> dict[str, Any]:
        self._server, port = await serve(self._take)
        return {"address": f"127.0.0.1:{port}"}

    async def _take(self, _: AsyncIterator[bytes], context: Any) -> None:
        while (data := await context.read()) is not grpc.aio.EOF:
            self._batches.put_nowait(from_bytes(data))

    async def obey(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        arrivals = Arrivals(arguments["events"])
        while not arrivals.add(await self._batches.get()):
            pass
        return arrivals.as_answer()

    async def stop(self) -> None:
        await self._server.stop(None)


async def serve(behaviour: Callable[..., Any]) -> tuple[grpc.aio.Server, int]:
    """A server on a free port of loopback with one method, and the port."""
    server = grpc.aio.server()
    method = grpc.stream_stream_rpc_method_handler(behaviour)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Pass": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    return server, port


ROLES: dict[str, Callable[..., Role]] = {"source": Source, "relay": Relay, "sink": Sink}

if __name__ == "__main__":
    asyncio.run(work(ROLES[sys.argv[1]](**json.loads(sys.argv[2]))))
