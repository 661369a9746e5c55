"""The gRPC server of a broker: its calls, health and reflection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from covey.matcher.jit.compiling import load_in_background
from covey.overlay.kernel_loader import KernelState, loader
from covey.overlay.node.acceptor import Acceptor
from covey.overlay.node.calls import Calls
from covey.overlay.node.node import Node
from covey.overlay.node.overlay import BrokerAddress
from covey.overlay.transport.channel import server_options
from covey.overlay.transport.packets import SERVICE

KERNELS = "covey.kernels"
"""The name under which the health service says whether the matching kernels are loaded."""

_KERNEL_HEALTH = {
    KernelState.READY: health_pb2.HealthCheckResponse.SERVING,
    KernelState.FAILED: health_pb2.HealthCheckResponse.UNKNOWN,
}

_GOODBYE_S = 2.0


class AddressError(Exception):
    """The address to listen at cannot be bound."""


async def _try_to_bind(listen: str) -> None:
    """`OSError` if an address cannot be bound; gRPC would print many lines about it on stderr."""
    host, _, port = listen.rpartition(":")
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = addresses[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


class Server:
    """A gRPC server for one node, with its health; it serves while the kernels load in the background."""

    def __init__(self, node: Node, address: BrokerAddress) -> None:
        self._node = node
        self._address = address
        self._health = health_aio.HealthServicer()
        self._server = grpc.aio.server(options=server_options(node.overlay.limits.max_frame_bytes))

    async def start(self) -> None:
        """Listen. `AddressError`, one sentence, if the address cannot be bound."""
        calls = Calls(self._node)
        handlers = {
            "Connect": grpc.stream_stream_rpc_method_handler(Acceptor(self._node).connect),
            "Describe": grpc.unary_unary_rpc_method_handler(calls.describe),
            "Inspect": grpc.unary_unary_rpc_method_handler(calls.inspect),
            "Explain": grpc.unary_unary_rpc_method_handler(calls.explain),
            "Follow": grpc.unary_unary_rpc_method_handler(calls.follow),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        names = (SERVICE, health_pb2.DESCRIPTOR.services_by_name["Health"].full_name, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, self._server)
        listen = self._address.listen
        try:
            await _try_to_bind(listen)
            self._server.add_insecure_port(listen)
        except (RuntimeError, OSError) as error:
            why = (
                error.strerror
                if isinstance(error, OSError) and error.strerror
                else "the address cannot be bound"
            )
            raise AddressError(f"broker {self._node.name} cannot listen at {listen}: {why}") from None
        self._loop = asyncio.get_running_loop()
        load_in_background(loader.load)
        loader.load()
        loader.add_listener(self._kernels_changed)
        await self._server.start()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    def _kernels_changed(self, state: KernelState) -> None:
        """Called from the loading thread."""
        status = _KERNEL_HEALTH.get(state, health_pb2.HealthCheckResponse.NOT_SERVING)
        with suppress(RuntimeError):  # the loop is closed
            asyncio.run_coroutine_threadsafe(self._health.set(KERNELS, status), self._loop)

    async def _set_health(self, status: Any) -> None:
        for name in ("", SERVICE):
            await self._health.set(name, status)

    async def stop(self, drain_s: float, dialers: Sequence[asyncio.Task[None]] = ()) -> None:
        """Refuse new connections, drain accepted events to the next hop, then end all connections."""
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._node.drain(drain_s)
        self._node.close_connections()
        if dialers:
            await asyncio.wait(dialers, timeout=_GOODBYE_S)
        for dialer in dialers:
            dialer.cancel()
        await asyncio.gather(*dialers, return_exceptions=True)
        await self._server.stop(1.0)
        loader.remove_listener(self._kernels_changed)
        self._node.close()
