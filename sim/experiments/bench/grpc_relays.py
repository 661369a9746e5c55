"""A baseline of `covey bench chain`: bare relays whose messages travel by grpc.aio."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import grpc.aio

from covey.sim.experiments.bench.chain_load import Publisher, Role, serve_commands
from covey.sim.experiments.bench.relays import RelaySink, RelaySource, forwarded

SERVICE = "covey.bench.Relay"
FORWARD = f"/{SERVICE}/Forward"


class Source(RelaySource):
    async def start(self) -> dict[str, Any]:
        self._channel = grpc.aio.insecure_channel(self.address)
        self._call = self._channel.stream_stream(FORWARD)()
        return {}

    async def stop(self) -> None:
        await self._channel.close()

    async def write(self, message: bytes) -> None:
        await self._call.write(message)


class Relay:
    """Forwards to the relay or the sink at `next_address`."""

    def __init__(self, next_address: str) -> None:
        self._next_address = next_address

    async def start(self) -> dict[str, Any]:
        self._server, port = await serve(self._forward)
        return {"address": f"127.0.0.1:{port}"}

    async def _forward(self, _: AsyncIterator[bytes], context: Any) -> None:
        async with grpc.aio.insecure_channel(self._next_address) as channel:
            call = channel.stream_stream(FORWARD)()
            while (message := await context.read()) is not grpc.aio.EOF:
                await call.write(forwarded(message))

    async def execute(self, command: str, arguments: dict[str, Any]) -> dict[str, Any]:
        return {}

    async def stop(self) -> None:
        await self._server.stop(None)


class GrpcSink(RelaySink):
    async def start(self) -> dict[str, Any]:
        self._server, port = await serve(self._take_all)
        return {"address": f"127.0.0.1:{port}"}

    async def _take_all(self, _: AsyncIterator[bytes], context: Any) -> None:
        while (message := await context.read()) is not grpc.aio.EOF:
            self.take(message)

    def source(self, address: str) -> Publisher:
        return Source(address)

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


ROLES: dict[str, Callable[..., Role]] = {"source": Source, "relay": Relay, "sink": GrpcSink}

if __name__ == "__main__":
    asyncio.run(serve_commands(ROLES[sys.argv[1]](**json.loads(sys.argv[2]))))
