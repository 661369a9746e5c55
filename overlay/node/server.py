"""The gRPC server of a broker: its calls, health and reflection, at each of its addresses."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from contextlib import suppress

from covey.matcher.jit.compiling import load_in_background
from covey.matcher.jit.kernel_loader import KernelState, loader
from covey.overlay.node.acceptor import Acceptor
from covey.overlay.node.health import SERVICE as HEALTH_SERVICE
from covey.overlay.node.health import Health, Status
from covey.overlay.node.node import Node
from covey.overlay.node.overlay import BrokerAddress
from covey.overlay.node.readiness import missing
from covey.overlay.node.reflection import SERVICE as REFLECTION_SERVICE
from covey.overlay.node.reflection import reflection_handlers
from covey.overlay.node.unary_calls import Calls
from covey.overlay.transport.address import split_addresses
from covey.overlay.transport.channel import max_message_bytes
from covey.overlay.transport.packets import CONNECT, DESCRIBE, EXPLAIN, FOLLOW, INSPECT, RELOAD, SERVICE
from covey.overlay.transport.rpc_server import ConnectionLimits, RpcServer

log = logging.getLogger("covey.broker")

KERNELS = "covey.kernels"
"""The name under which the health service says whether the matching kernels are loaded."""
READY = "covey.ready"
"""The name under which it says whether the broker is ready."""

_KERNEL_HEALTH = {KernelState.READY: Status.SERVING, KernelState.FAILED: Status.UNKNOWN}

_GOODBYE_S = 2.0
_MOST_DESCRIPTORS = 1 << 20


def descriptor_limit() -> int:
    """How many descriptors this process may have open, once it has been allowed as many as it can be."""
    try:
        import resource
    except ImportError:
        return _MOST_DESCRIPTORS  # this platform has no such limit
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _MOST_DESCRIPTORS)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return most
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    except (OSError, ValueError):
        return soft
    return most


class AddressError(Exception):
    """The address to listen at cannot be bound."""


class Server:
    """A gRPC server for one node, with its health; it serves while the kernels load in the background."""

    def __init__(self, node: Node, address: BrokerAddress) -> None:
        self._node = node
        self._address = address
        self._health = Health()
        self._health.compute(READY, lambda: Status.NOT_SERVING if missing(node) else Status.SERVING)
        self.calls = calls = Calls(node)
        answer_with = node.authentication.answer_with
        handlers = {
            CONNECT: Acceptor(node).connect,
            DESCRIBE: answer_with(calls.describe),
            INSPECT: answer_with(calls.inspect),
            EXPLAIN: answer_with(calls.explain),
            FOLLOW: answer_with(calls.follow),
            RELOAD: answer_with(calls.reload_file),
            **self._health.handlers(),
            **reflection_handlers((SERVICE, HEALTH_SERVICE, REFLECTION_SERVICE)),
        }
        largest = max_message_bytes(node.overlay.limits.max_frame_bytes)
        self._server = RpcServer(
            handlers,
            max_message_bytes=largest,
            faults=node.wire_faults,
            limits=node.overlay.connections.within(descriptor_limit()),
            refused=node.count_refused_connection,
            denied=node.count_failed_handshake,
        )

    async def start(self) -> None:
        """Listen. `AddressError`, one sentence, if the address cannot be bound."""
        listen = self._address.listen
        try:
            for address in split_addresses(listen):
                contexts = None if address.startswith("unix:") else self._node.credentials.tls
                await self._server.listen(address, tls=None if contexts is None else contexts.server)
        except OSError as error:
            await self._server.stop(0.0)
            number = error.errno or 0
            why = os.strerror(number) if number > 0 else error.strerror or str(error)
            raise AddressError(f"broker {self._node.name} cannot listen at {listen}: {why}") from None
        self._loop = asyncio.get_running_loop()
        self._node.start()
        load_in_background(loader.load)
        loader.load()
        loader.add_listener(self._kernels_changed)
        self._set_health(Status.SERVING)

    def set_limits(self, limits: ConnectionLimits) -> None:
        """From now on other limits; connections that are open stay."""
        self._server.limits = limits.within(descriptor_limit())

    def _kernels_changed(self, state: KernelState) -> None:
        """Called from the loading thread."""
        status = _KERNEL_HEALTH.get(state, Status.NOT_SERVING)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._health.set, KERNELS, status)

    def _log_unacknowledged(self) -> None:
        pending = [queue.link.backlog_events for queue in self._node.queues.values()]
        if any(pending):
            log.warning(
                "stopping with %d events that %d peers have not acknowledged; only durable ones are kept",
                sum(pending),
                sum(map(bool, pending)),
            )

    def _set_health(self, status: Status) -> None:
        for name in ("", SERVICE):
            self._health.set(name, status)

    async def stop(
        self, drain_s: float, dialers: Sequence[asyncio.Task[None]] = (), links_s: float = 0.0
    ) -> None:
        """Refuse new connections, drain accepted events to the next hop (`Node.drain`), then end all
        connections."""
        self._set_health(Status.NOT_SERVING)
        await self._node.drain(drain_s, links_s)
        self._log_unacknowledged()
        self._node.close_connections()
        if dialers:
            await asyncio.wait(dialers, timeout=_GOODBYE_S)
        for dialer in dialers:
            dialer.cancel()
        await asyncio.gather(*dialers, return_exceptions=True)
        await self._server.stop(1.0)
        loader.remove_listener(self._kernels_changed)
        self._node.close()
