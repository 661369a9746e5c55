"""Connections of neighbours and clients (RPC Connect). Every error for a peer has a status and one sentence.
A connection that breaks the protocol ends; the broker continues."""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial

from covey.overlay.core.access.identity import NEIGHBOUR, neighbour_denial
from covey.overlay.core.access.rights import Rights
from covey.overlay.core.endpoint.connections import ConnectionRefusedError, ConnectRequest
from covey.overlay.core.link.link import Hello, LinkError
from covey.overlay.core.messages import Interface
from covey.overlay.node.declared_types import as_options, conflicts
from covey.overlay.node.node import Node
from covey.overlay.node.overlay import difference
from covey.overlay.transport.address import CallError
from covey.overlay.transport.calls import RpcCall
from covey.overlay.transport.packets import (
    Goodbye,
    Greeting,
    LinkEnd,
    PeerClosedError,
    Role,
    StreamClosedError,
    decode_packet,
    encode_goodbye,
    encode_greeting,
)
from covey.overlay.transport.wire_values import MalformedPacketError

log = logging.getLogger("covey.broker")
_HELLO_WITHIN_S = 10.0
_SLICE = 50
"""Clients per turn of the event loop: to verify a token takes some 100 µs."""
_REASON = "its permissions have changed"


def greeting(node: Node, interface: Interface, hello: Hello) -> Greeting:
    overlay = node.overlay
    options = {}
    if interface.startswith("broker/"):
        options = overlay.shared_options() | as_options(overlay.event_types)
    return Greeting(Role.BROKER, node.name, hello, overlay.name, limits=overlay.limits, options=options)


class NodeConnection:
    """`dialled`: this node opened the connection. `durable`: the client's session outlives it."""

    def __init__(
        self, node: Node, interface: Interface, call: RpcCall, *, dialled: bool, durable: bool = False
    ) -> None:
        self._node = node
        self._interface = interface
        self._call = call
        self.wake = call.wake
        self._durable = durable
        self._dialled = dialled
        self._refusal: StreamClosedError | None = None
        self._decided = asyncio.Event()

    async def run(self) -> None:
        """`StreamClosedError` for the peer if this side ends the connection."""
        await self._decided.wait()
        refusal, self._refusal = self._refusal, None
        if refusal is not None:
            try:
                raise refusal
            finally:
                refusal = None  # its traceback has this frame
        node, endpoint, interface, call = self._node, self._node.endpoint, self._interface, self._call
        # A starting broker lacks the event types of subscriptions, as does the client of a durable session.
        of_broker = interface.startswith("broker/")
        end = LinkEnd(
            partial(node.receive, interface, self),
            partial(endpoint.next_frame, interface, self),
            self._durable or of_broker,
            None if of_broker else partial(endpoint.delay_ns, interface),
        )
        why = "the connection broke"
        left = False
        try:
            await call.exchange(end, await_end=self._dialled)
            why = call.details or why
        except PeerClosedError as error:
            moves = interface.startswith("client/") or node.repairing is not None
            why, left = str(error), error.status == "OK" and moves
        except StreamClosedError as error:
            why = str(error)
            raise
        except (LinkError, MalformedPacketError) as error:
            why = str(error)
            log.warning("%s broke the protocol: %s", interface, error)
            call.send(encode_goodbye(Goodbye("INVALID_ARGUMENT", why)))
            raise StreamClosedError("INVALID_ARGUMENT", why) from None
        except Exception as error:
            node.fail(error)
            raise
        finally:
            del end  # it has this connection, and a traceback may have this frame: a reference cycle
            if left:
                node.goodbye(interface, self, why)
            else:
                node.lost(interface, self, why)

    def keeps(self, rights: Rights | None) -> bool:
        """Whether a client would get the same rights now."""
        try:
            name = self._interface.partition("/")[2]
            return self._node.authentication.rights(self._call, name) == rights
        except CallError:
            return False

    # --- what the endpoint calls ----------------------------------------------------------------------------

    def opened(self, answer: Hello, resumed: bool) -> None:
        self._call.send(encode_greeting(greeting(self._node, self._interface, answer)))
        self.began(resumed)

    def began(self, resumed: bool) -> None:
        log.info("%s connected%s", self._interface, ", resumed" if resumed else "")
        self._node.partings.pop(self._interface, None)
        self._call.trust()
        self._decided.set()

    def close(self, status: str, reason: str) -> None:
        if not self._decided.is_set():
            self._refusal = StreamClosedError(status, reason)
            self._decided.set()
        else:
            self._call.close(status, reason)

    def charge(self, permits: float) -> None:
        self._call.charge(permits)


async def accept(node: Node, call: RpcCall) -> None:
    try:
        connection = await _accepted(node, call)
    except CallError as error:
        log.info("refused a connection from %s: %s", call.peer, error)
        node.count_refused_connection(error.status)
        raise
    await connection.run()


async def _accepted(node: Node, call: RpcCall) -> NodeConnection:
    """The connection that a call's hello begins. `CallError` if refused."""
    if node.draining:
        raise StreamClosedError("UNAVAILABLE", f"broker {node.name} is shutting down")
    try:
        data = await asyncio.wait_for(call.read(), _HELLO_WITHIN_S)
    except TimeoutError:
        raise StreamClosedError("DEADLINE_EXCEEDED", f"no hello within {_HELLO_WITHIN_S:g} s") from None
    if data is None:
        raise StreamClosedError("INVALID_ARGUMENT", "the stream ended without a hello")
    try:
        greeting = decode_packet(data)
        if not isinstance(greeting, Greeting):
            raise StreamClosedError("INVALID_ARGUMENT", "the stream begins with a frame: expected a hello")
        interface = f"{greeting.role.value}/{greeting.id}"
        rights = _admit(node, call, greeting)
        connection = NodeConnection(node, interface, call, dialled=False, durable=greeting.durable)
        principal = call.host if rights is None else rights.subject
        node.accept(
            ConnectRequest(
                interface, greeting.hello, greeting.slow_consumer, greeting.durable, rights, principal
            ),
            connection,
        )
    except ConnectionRefusedError as error:
        raise StreamClosedError(error.status, str(error)) from None
    except (MalformedPacketError, LinkError) as error:
        raise StreamClosedError("INVALID_ARGUMENT", str(error)) from None
    if greeting.role is Role.BROKER:
        compare_types(node, greeting)
    return connection


def _admit(node: Node, call: RpcCall, greeting: Greeting) -> Rights | None:
    """A peer's rights. `CallError` for a broker that is no neighbour, a client without rights, or a durable
    session where the broker has no durable types."""
    if greeting.role is Role.BROKER:
        # Where neighbours reach this one by a socket file, its permissions say who may be one.
        own = node.overlay.brokers[node.name].address
        if not (call.peer.startswith("unix:") and own.startswith("unix:")):
            check_identity(node, greeting.id, call)
        check_neighbour(node, greeting)
        return None
    rights = node.authentication.rights(call, greeting.id)
    if greeting.durable and node.storage is None:
        reason = f"broker {node.name} has no durable types: expected a session that is not durable"
        raise StreamClosedError("FAILED_PRECONDITION", reason)
    return rights


def check_identity(node: Node, name: str, call: RpcCall) -> None:
    """`StreamClosedError` unless the peer's certificate names this broker, where the overlay has TLS."""
    denial = None if node.overlay.tls is None else neighbour_denial(node.overlay.name, name, call.certified)
    if denial is not None:
        node.denials[NEIGHBOUR] += 1
        raise StreamClosedError(denial.status, str(denial))


def check_neighbour(node: Node, greeting: Greeting) -> None:
    """`StreamClosedError` unless the hello is from a neighbour in the same overlay with equal options."""
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


def compare_types(node: Node, greeting: Greeting) -> None:
    interface = f"broker/{greeting.id}"
    found = conflicts(node.name, node.overlay.event_types, greeting.id, greeting.options)
    node.type_conflicts[interface] = found
    for sentence in found:
        log.warning("%s has another overlay file: %s", interface, sentence)


async def reauthenticate(node: Node) -> int:
    """Returns how many clients were disconnected, since their rights have changed."""
    disconnected = 0
    for number, (interface, queue) in enumerate(list(node.queues.items()), 1):
        if number % _SLICE == 0:
            await asyncio.sleep(0)
        connection = queue.connection
        if node.failed or queue.is_broker or not isinstance(connection, NodeConnection):
            continue
        if not connection.keeps(queue.rights):
            node.endpoint.disconnect(interface, _REASON, time.monotonic_ns())
            disconnected += 1
    return disconnected
