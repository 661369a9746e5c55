"""A broker's gRPC server. Single calls except Reload change nothing and list a bounded number of items, so
none delays events. A call that fails has a status and one sentence."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from covey.matcher.errors import EventError
from covey.matcher.jit.compiling import load_in_background
from covey.matcher.jit.kernel_loader import KernelState, loader
from covey.overlay.core.access.identity import DeniedError
from covey.overlay.core.access.rights import Action, Rights
from covey.overlay.core.introspection.inspection import DEFAULT_LISTED, MAX_LISTED
from covey.overlay.node.health import HEALTH_SERVICE, REFLECTION_SERVICE, Health, Status, reflection_handlers
from covey.overlay.node.node import Node
from covey.overlay.node.node_connection import accept
from covey.overlay.node.overlay import BrokerAddress
from covey.overlay.node.state import explain_at, follow_at, inspect_node, missing, render_node
from covey.overlay.transport.address import CallError, split_addresses
from covey.overlay.transport.channel import max_message_bytes
from covey.overlay.transport.packets import (
    CONNECT,
    DESCRIBE,
    EXPLAIN,
    FOLLOW,
    INSPECT,
    RELOAD,
    SERVICE,
    ReloadReply,
    read_body,
)
from covey.overlay.transport.rpc_server import ConnectionLimits, Handler, RpcServer
from covey.overlay.transport.wire_values import UnknownTypeError, encode_event_type

Reload = Callable[[bool], Awaitable[ReloadReply]]
"""Reloads the overlay file; with true the broker leaves, if the file no longer names it. `ConfigError`."""
log = logging.getLogger("covey.broker")
KERNELS = "covey.kernels"
READY = "covey.ready"
_KERNEL_HEALTH = {KernelState.READY: Status.SERVING, KernelState.FAILED: Status.UNKNOWN}
_GOODBYE_S = 2.0
_MOST_DESCRIPTORS = 1 << 20


class Calls:
    def __init__(self, node: Node) -> None:
        self._node = node
        self.reload: Reload | None = None

    def describe(self, request: bytes, rights: Rights | None) -> bytes:
        name = read_body(DESCRIBE.request, request).type_name
        if rights is not None and not rights.may(Action.PUBLISH, name):
            self._require(rights, Action.SUBSCRIBE, name)
        event_type = self._node.core.event_type(name)
        if event_type is None:
            raise UnknownTypeError(self._node.unknown_type(name))
        return encode_event_type(event_type)

    def explain(self, request: bytes, rights: Rights | None) -> bytes:
        body = read_body(EXPLAIN.request, request)
        interface, subscription_id = body.interface, body.subscription_id
        peer = self._node.core.tables.peers.get(interface)
        subscription = None if peer is None else peer.subscriptions.get(subscription_id)
        name = None if subscription is None else subscription.filter.event_type.name
        self._administers(rights, f"explain subscription {subscription_id} of {interface}", name)
        answer = explain_at(self._node, interface, subscription_id, _event_of(body.event))
        return EXPLAIN.reply(json=json.dumps(answer)).SerializeToString()

    def follow(self, request: bytes, rights: Rights | None) -> bytes:
        event = read_body(FOLLOW.request, request)
        self._require(rights, Action.ADMINISTER, event.type_name)
        answer = follow_at(self._node, event.type_name, event.publisher, event.sequence)
        return EXPLAIN.reply(json=json.dumps(answer)).SerializeToString()

    def inspect(self, request: bytes, rights: Rights | None) -> bytes:
        self._administers(rights, "inspect the broker")
        body = read_body(INSPECT.request, request)
        listed = min(body.listed, MAX_LISTED) if body.HasField("listed") else DEFAULT_LISTED
        text, state = render_node(self._node, listed), inspect_node(self._node, listed)
        return INSPECT.reply(text=text, json=json.dumps(state)).SerializeToString()

    async def reload_file(self, request: bytes, rights: Rights | None) -> bytes:
        self._administers(rights, "have the broker reload its overlay file")
        leave = read_body(RELOAD.request, request).leave
        if self.reload is None or self._node.draining:
            raise CallError("UNAVAILABLE", f"broker {self._node.name} starts or stops")
        return (await self.reload(leave)).SerializeToString()

    def _require(self, rights: Rights | None, action: Action, type_name: str) -> None:
        if rights is not None and not rights.may(action, type_name):
            self._node.denials[action.value] += 1
            rights.require(action, type_name)

    def _administers(self, rights: Rights | None, what: str, type_name: str | None = None) -> None:
        """`DeniedError` without the right to administer all types, or this one."""
        if rights is None or rights.may_all(Action.ADMINISTER):
            return
        if type_name is None or not rights.may(Action.ADMINISTER, type_name):
            self._node.denials[Action.ADMINISTER.value] += 1
            raise DeniedError("PERMISSION_DENIED", f"{rights.subject!r} may not {what}")


def _event_of(text: str) -> dict[str, object]:
    """`EventError` unless a JSON object."""
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        event = None
    if not isinstance(event, dict):
        raise EventError(f"event {text[:60]!r}: expected a JSON object")
    return event


def descriptor_limit() -> int:
    """Raises the limit of open descriptors as far as allowed, and returns it."""
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
    """Serves while kernels load in the background."""

    def __init__(self, node: Node, address: BrokerAddress) -> None:
        self._node = node
        self._address = address
        self._status = Status.NOT_SERVING
        health = Health(
            {
                "": lambda: self._status,
                SERVICE: lambda: self._status,
                READY: lambda: Status.NOT_SERVING if missing(node) else Status.SERVING,
                KERNELS: lambda: _KERNEL_HEALTH.get(loader.state, Status.NOT_SERVING),
            }
        )
        self.calls = calls = Calls(node)
        answer_with = node.authentication.answer_with
        handlers: dict[str, Handler] = {
            CONNECT: partial(accept, node),
            DESCRIBE.path: answer_with(calls.describe),
            INSPECT.path: answer_with(calls.inspect),
            EXPLAIN.path: answer_with(calls.explain),
            FOLLOW.path: answer_with(calls.follow),
            RELOAD.path: answer_with(calls.reload_file),
            **health.handlers(),
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
        """`AddressError`, one sentence, if an address cannot be bound."""
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
        self._node.start()
        load_in_background(loader.load)
        loader.load()
        self._status = Status.SERVING

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Open connections stay."""
        self._server.limits = limits.within(descriptor_limit())

    def _log_unacknowledged(self) -> None:
        pending = [queue.link.backlog_events for queue in self._node.queues.values()]
        if any(pending):
            log.warning(
                "stopping with %d events that %d peers have not acknowledged; only durable ones are kept",
                sum(pending),
                sum(map(bool, pending)),
            )

    async def stop(
        self, drain_s: float, dialers: Sequence[asyncio.Task[None]] = (), links_s: float = 0.0
    ) -> None:
        """Refuse connections, drain to the next hop (`Node.drain`), end all connections."""
        self._status = Status.NOT_SERVING
        await self._node.drain(drain_s, links_s)
        self._log_unacknowledged()
        self._node.close_connections()
        if dialers:
            await asyncio.wait(dialers, timeout=_GOODBYE_S)
        for dialer in dialers:
            dialer.cancel()
        await asyncio.gather(*dialers, return_exceptions=True)
        await self._server.stop(1.0)
        self._node.close()
