"""Accepts the connections of neighbours and clients (RPC Connect), and serves them until they end.

Every error that a peer gets has a status and one sentence. A connection that breaks the protocol ends; the
broker goes on.
"""

from __future__ import annotations

import asyncio
import logging

from covey.overlay.core.access.identity import NEIGHBOUR, neighbour_denial
from covey.overlay.core.access.rights import Rights
from covey.overlay.core.endpoint.connections import ConnectionRefusedError, Peer
from covey.overlay.core.link.link import LinkError
from covey.overlay.node.node import Node
from covey.overlay.node.node_connection import NodeConnection
from covey.overlay.node.overlay import difference
from covey.overlay.transport.address import CallError
from covey.overlay.transport.packets import Greeting, Role, decode_packet
from covey.overlay.transport.rpc_call import RpcCall, StreamClosedError
from covey.overlay.transport.wire_values import MalformedPacketError

log = logging.getLogger("covey.broker")

_HELLO_WITHIN_S = 10.0


class Acceptor:
    """The handler of Connect, on one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def connect(self, call: RpcCall) -> None:
        node = self._node
        try:
            greeting = await self._hello(call)
            interface = f"{greeting.role.value}/{greeting.id}"
            if greeting.role is Role.BROKER:
                self._authenticate(call, greeting)
                check_neighbour(node, greeting)
                rights = None
            else:
                rights = self._rights(call, greeting)
                if greeting.durable:
                    self._check_durable()
            connection = NodeConnection(node, interface, call, dialled=False, durable=greeting.durable)
            try:
                principal = call.host if rights is None else rights.subject
                peer = Peer(
                    interface, greeting.hello, greeting.slow_consumer, greeting.durable, rights, principal
                )
                node.accept(peer, connection)
            except ConnectionRefusedError as error:
                raise StreamClosedError(error.status, str(error)) from None
            except LinkError as error:
                raise StreamClosedError("INVALID_ARGUMENT", str(error)) from None
        except StreamClosedError as error:
            log.info("refused a connection from %s: %s", call.peer, error)
            node.count_refused_connection(error.status)
            raise
        await connection.run()

    def _rights(self, call: RpcCall, greeting: Greeting) -> Rights | None:
        try:
            return self._node.authentication.rights(call, greeting.id)
        except CallError as error:
            raise StreamClosedError(error.status, str(error)) from None

    def _authenticate(self, call: RpcCall, greeting: Greeting) -> None:
        """`StreamClosedError` unless the peer is the broker that it says it is. Where neighbours reach this
        one by a socket file, its permissions say who may be one.
        """
        overlay, name = self._node.overlay, self._node.name
        by_file = call.peer.startswith("unix:") and overlay.brokers[name].address.startswith("unix:")
        if overlay.tls is None or by_file:
            return
        denial = neighbour_denial(overlay.name, greeting.id, call.certified)
        if denial is not None:
            self._node.denials[NEIGHBOUR] += 1
            raise StreamClosedError(denial.status, str(denial))

    def _check_durable(self) -> None:
        """`StreamClosedError` unless this broker keeps durable sessions."""
        if self._node.storage is None:
            reason = f"broker {self._node.name} has no durable types: expected a session that is not durable"
            raise StreamClosedError("FAILED_PRECONDITION", reason)

    async def _hello(self, call: RpcCall) -> Greeting:
        if self._node.draining:
            raise StreamClosedError("UNAVAILABLE", f"broker {self._node.name} is shutting down")
        try:
            data = await asyncio.wait_for(call.read(), _HELLO_WITHIN_S)
            if data is None:
                raise StreamClosedError("INVALID_ARGUMENT", "the stream ended without a hello")
            greeting = decode_packet(data)
        except TimeoutError:
            raise StreamClosedError("DEADLINE_EXCEEDED", f"no hello within {_HELLO_WITHIN_S:g} s") from None
        except MalformedPacketError as error:
            raise StreamClosedError("INVALID_ARGUMENT", str(error)) from None
        if not isinstance(greeting, Greeting):
            raise StreamClosedError("INVALID_ARGUMENT", "the stream begins with a frame: expected a hello")
        return greeting


def check_neighbour(node: Node, greeting: Greeting) -> None:
    """`StreamClosedError` unless a neighbour in the same overlay sent the hello."""
    if greeting.role is not Role.BROKER:
        raise StreamClosedError("FAILED_PRECONDITION", f"{greeting.id!r} is not a broker")
    if greeting.overlay != node.overlay.name:
        raise StreamClosedError(
            "FAILED_PRECONDITION",
            f"broker {greeting.id!r} is of overlay {greeting.overlay!r}: expected {node.overlay.name!r}",
        )
    neighbours = node.neighbours()
    may_be = node.repairing is not None and node.repairing.rule.may_link(greeting.id, node.name)
    if greeting.id not in neighbours and not may_be:
        raise StreamClosedError(
            "FAILED_PRECONDITION",
            f"broker {greeting.id!r} is no neighbour of {node.name}: it has {', '.join(neighbours)}",
        )
    differing = difference(node.overlay.shared_options(), greeting.options)
    if differing is not None:
        option, mine, theirs = differing
        raise StreamClosedError(
            "FAILED_PRECONDITION",
            f"broker {greeting.id!r} has {option} {theirs!r}: expected {mine!r}, as broker {node.name} has",
        )
