"""The gRPC service of a broker: Connect, Describe, Inspect, health and reflection.

Every error a caller meets has a status and one sentence. A connection that breaks the rules ends; the broker
goes on.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio
from grpc_reflection.v1alpha import reflection

from covey.matcher.errors import EventError, SubscriptionError
from covey.matcher.jit.compiling import load_in_background
from covey.overlay.core.link.link import LinkError
from covey.overlay.kernel_loader import KernelState, loader
from covey.overlay.node.interface_queue import InterfaceQueue
from covey.overlay.node.node import Node
from covey.overlay.node.overlay import BrokerAddress
from covey.overlay.transport.calls import (
    decode_describe,
    decode_explain,
    decode_follow,
    decode_inspect,
    encode_explanation,
    encode_inspection,
)
from covey.overlay.transport.channel import server_options
from covey.overlay.transport.codec import (
    SERVICE,
    Greeting,
    MalformedPacketError,
    Role,
    decode_packet,
    encode_event_type,
    encode_greeting,
)
from covey.overlay.transport.pump import (
    ACCEPT_AFTER_S,
    ACKNOWLEDGE_AFTER_S,
    STREAM_ERRORS,
    Connection,
    PeerClosedError,
    Pump,
    StreamClosedError,
    say_goodbye,
)

log = logging.getLogger("covey.broker")

KERNELS = "covey.kernels"
"""The name under which the health service says whether the matching kernels are loaded."""

_KERNEL_HEALTH = {
    KernelState.READY: health_pb2.HealthCheckResponse.SERVING,
    KernelState.FAILED: health_pb2.HealthCheckResponse.UNKNOWN,
}

_HELLO_WITHIN_S = 10.0
_PROBE_S = 2.0
_GOODBYE_S = 2.0


class _Context(Protocol):
    """What the handlers use of gRPC's context of a call."""

    def peer(self) -> str: ...
    async def read(self) -> bytes: ...
    async def write(self, data: bytes) -> None: ...
    async def abort(self, code: grpc.StatusCode, details: str) -> None: ...


class AddressError(Exception):
    """The address to listen at cannot be had."""


class Service:
    """The handlers, on one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    # --- Connect ----------------------------------------------------------------------------------

    async def connect(self, _: Any, context: _Context) -> None:
        try:
            greeting = await self._hello(context)
            queue = await self._queue_of(greeting)
        except StreamClosedError as error:
            log.info("a connection from %s was turned away: %s", context.peer(), error)
            await _abort(context, error.status, str(error))
            return
        await self._serve(queue, greeting, context)

    async def _hello(self, context: _Context) -> Greeting:
        if self._node.draining:
            raise StreamClosedError("UNAVAILABLE", f"broker {self._node.name} is shutting down")
        try:
            data = await asyncio.wait_for(context.read(), _HELLO_WITHIN_S)
            if data is grpc.aio.EOF:
                raise StreamClosedError("INVALID_ARGUMENT", "the stream ended without a hello")
            greeting = decode_packet(data)
        except TimeoutError:
            raise StreamClosedError("DEADLINE_EXCEEDED", f"no hello within {_HELLO_WITHIN_S:g} s") from None
        except MalformedPacketError as error:
            raise StreamClosedError("INVALID_ARGUMENT", str(error)) from None
        if not isinstance(greeting, Greeting):
            raise StreamClosedError("INVALID_ARGUMENT", "the stream begins with a frame: expected a hello")
        return greeting

    async def _queue_of(self, greeting: Greeting) -> InterfaceQueue:
        """The interface that a hello is from; its older connection, if there is one, gives way."""
        node = self._node
        if greeting.role is Role.BROKER:
            check_neighbour(node, greeting)
            queue = node.queues[f"broker/{greeting.id}"]
        else:
            old = node.queues.get(f"client/{greeting.id}")
            if old is not None and old.link.peer_incarnation != greeting.hello.incarnation:
                await self._probe(old)
            queue = node.session(greeting)
        if queue.pump is not None:
            queue.pump.close("ABORTED", "a newer connection takes the place of this one")
            queue.pump = None
        return queue

    async def _probe(self, queue: InterfaceQueue) -> None:
        """Whether the client that goes by a name is really there: then nobody else can have the name."""
        heard = queue.heard
        queue.link.probe()
        if queue.pump is not None:
            queue.pump.wake()
        waited = 0.0
        while waited < _PROBE_S and queue.pump is not None:
            await asyncio.sleep(0.02)
            waited += 0.02
            if queue.heard != heard:
                name = queue.interface.removeprefix("client/")
                raise StreamClosedError(
                    "ALREADY_EXISTS", f"a client named {name!r} is here already: choose another name"
                )

    async def _serve(self, queue: InterfaceQueue, greeting: Greeting, context: _Context) -> None:
        node = self._node
        answer = encode_greeting(node.greeting(queue))
        try:
            node.resume(queue, greeting)
        except LinkError as error:
            node.lost(queue, str(error))
            await _abort(context, "INVALID_ARGUMENT", str(error))
            return
        ended = await self._pump(queue, context, answer)
        if ended is not None:
            await _abort(context, ended.status, str(ended))

    async def _pump(
        self, queue: InterfaceQueue, connection: Connection, answer: bytes
    ) -> StreamClosedError | None:
        """The life of a connection that has greeted; what to tell the peer of its end, if anything."""
        node = self._node
        pump = Pump(
            queue.link,
            connection,
            lambda messages: node.take(queue, messages),
            heard=queue.hear,
            schemas=queue.is_broker,
            busy=None if queue.is_broker else node.flooded,
            acknowledge_after_s=ACKNOWLEDGE_AFTER_S if queue.is_broker else ACCEPT_AFTER_S,
        )
        queue.attach(pump)
        why = "the connection broke"
        ended: StreamClosedError | None = None
        left = False
        try:
            await connection.write(answer)
            await pump.run()
        except PeerClosedError as error:
            why, left = str(error), error.status == "OK"
        except StreamClosedError as error:
            why, ended = str(error), error
        except (LinkError, MalformedPacketError) as error:
            why, ended = str(error), StreamClosedError("INVALID_ARGUMENT", str(error))
            log.warning("%s broke the protocol: %s", queue.interface, error)
            await say_goodbye(connection, ended.status, why)
        except STREAM_ERRORS:
            pass
        finally:
            if queue.pump is pump:
                queue.pump = None
                if left and not queue.is_broker:
                    node.end_session(queue, why)
                else:
                    node.lost(queue, why)
        return ended

    # --- Describe and Inspect ---------------------------------------------------------------------

    async def describe(self, request: bytes, context: _Context) -> bytes:
        try:
            name = decode_describe(request)
        except MalformedPacketError as error:
            await _abort(context, "INVALID_ARGUMENT", str(error))
            return b""
        event_type = self._node.event_type(name)
        if event_type is None:
            await _abort(context, "NOT_FOUND", self._node.unknown_type(name))
            return b""
        return encode_event_type(event_type)

    async def explain(self, request: bytes, context: _Context) -> bytes:
        try:
            interface, subscription_id, text = decode_explain(request)
            answer = self._node.explain(interface, subscription_id, _event_of(text))
        except SubscriptionError as error:
            await _abort(context, "NOT_FOUND", str(error))
            return b""
        except (MalformedPacketError, EventError) as error:
            await _abort(context, "INVALID_ARGUMENT", str(error))
            return b""
        return encode_explanation(json.dumps(answer))

    async def follow(self, request: bytes, context: _Context) -> bytes:
        try:
            answer = self._node.follow(*decode_follow(request))
        except MalformedPacketError as error:
            await _abort(context, "INVALID_ARGUMENT", str(error))
            return b""
        return encode_explanation(json.dumps(answer))

    async def inspect(self, request: bytes, context: _Context) -> bytes:
        try:
            listed = decode_inspect(request)
        except MalformedPacketError as error:
            await _abort(context, "INVALID_ARGUMENT", str(error))
            return b""
        return encode_inspection(self._node.render(listed), json.dumps(self._node.inspect(listed)))


def _event_of(text: str) -> dict[str, object]:
    """The event that a text describes. `EventError` for one that is no JSON object."""
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise EventError(f"event {text[:60]!r}: expected a JSON object")
    return event


def check_neighbour(node: Node, greeting: Greeting) -> None:
    """`StreamClosedError` unless the hello is from a broker next to this one in the same overlay."""
    if greeting.role is not Role.BROKER:
        raise StreamClosedError("FAILED_PRECONDITION", f"{greeting.id!r} is no broker")
    if greeting.overlay != node.overlay.name:
        raise StreamClosedError(
            "FAILED_PRECONDITION",
            f"broker {greeting.id!r} is of overlay {greeting.overlay!r}: expected {node.overlay.name!r}",
        )
    neighbours = node.overlay.neighbours(node.name)
    if greeting.id not in neighbours:
        raise StreamClosedError(
            "FAILED_PRECONDITION",
            f"broker {greeting.id!r} is no neighbour of {node.name}: it has {', '.join(neighbours)}",
        )


async def _abort(context: _Context, status: str, reason: str) -> None:
    await context.abort(grpc.StatusCode[status], reason)


async def _try_to_bind(listen: str) -> None:
    """`OSError` if an address cannot be had: gRPC itself would say so in many words, on stderr."""
    host, _, port = listen.rpartition(":")
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


class Server:
    """A gRPC server for one node, with its health; it serves while the kernels load in the background."""

    def __init__(self, node: Node, address: BrokerAddress) -> None:
        self._node = node
        self._address = address
        self._service = Service(node)
        self._health = health_aio.HealthServicer()
        self._server = grpc.aio.server(options=server_options(node.overlay.limits.max_frame_bytes))

    async def start(self) -> None:
        """Listen. `AddressError` with one clear sentence if that cannot be."""
        service = self._service
        handlers = {
            "Connect": grpc.stream_stream_rpc_method_handler(service.connect),
            "Describe": grpc.unary_unary_rpc_method_handler(service.describe),
            "Inspect": grpc.unary_unary_rpc_method_handler(service.inspect),
            "Explain": grpc.unary_unary_rpc_method_handler(service.explain),
            "Follow": grpc.unary_unary_rpc_method_handler(service.follow),
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
                else "the address cannot be had"
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
        """Turn new connections away, let what was accepted reach the next stop, then end all connections."""
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._node.drain(drain_s)
        self._node.dismiss()
        if dialers:
            await asyncio.wait(dialers, timeout=_GOODBYE_S)
        for dialer in dialers:
            dialer.cancel()
        await asyncio.gather(*dialers, return_exceptions=True)
        await self._server.stop(1.0)
        loader.remove_listener(self._kernels_changed)
        self._node.close()
