"""Accepts the connections of neighbours and clients (RPC Connect), and serves them until they end.

Every error that a peer gets has a status and one sentence. A connection that breaks the protocol ends; the
broker goes on.
"""

from __future__ import annotations

import asyncio
import logging

from covey.overlay.core.link.link import LinkError
from covey.overlay.node.interface_queue import InterfaceQueue
from covey.overlay.node.node import Node
from covey.overlay.node.overlay import difference
from covey.overlay.transport.errors import MalformedPacketError
from covey.overlay.transport.packets import Greeting, Role, decode_packet, encode_greeting
from covey.overlay.transport.pump import (
    PeerClosedError,
    Pump,
    StreamClosedError,
    say_goodbye,
)
from covey.overlay.transport.rpc_call import RpcCall

log = logging.getLogger("covey.broker")

_HELLO_WITHIN_S = 10.0
_PROBE_S = 2.0


class Acceptor:
    """The handler of Connect, on one node."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def connect(self, call: RpcCall) -> None:
        try:
            greeting = await self._hello(call)
            queue = await self._queue_of(greeting)
        except StreamClosedError as error:
            log.info("refused a connection from %s: %s", call.peer, error)
            raise
        await self._serve(queue, greeting, call)

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

    async def _queue_of(self, greeting: Greeting) -> InterfaceQueue:
        """The queue of the interface that sent a hello; closes its older connection, if there is one."""
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
            queue.pump.close("ABORTED", "a newer connection replaces this one")
            queue.pump = None
        return queue

    async def _probe(self, queue: InterfaceQueue) -> None:
        """`StreamClosedError` if the client that has a name still answers: no other client may take the name.
        """
        frames = queue.frames_received
        queue.link.probe()
        if queue.pump is not None:
            queue.pump.wake()
        waited = 0.0
        while waited < _PROBE_S and queue.pump is not None:
            await asyncio.sleep(0.02)
            waited += 0.02
            if queue.frames_received != frames:
                name = queue.interface.removeprefix("client/")
                raise StreamClosedError(
                    "ALREADY_EXISTS", f"a client named {name!r} is connected already: choose another name"
                )

    async def _serve(self, queue: InterfaceQueue, greeting: Greeting, call: RpcCall) -> None:
        node = self._node
        answer = encode_greeting(node.greeting(queue))
        try:
            node.resume(queue, greeting)
        except LinkError as error:
            node.disconnected(queue, str(error))
            raise StreamClosedError("INVALID_ARGUMENT", str(error)) from None
        call.send(answer)
        await self._pump(queue, call)

    async def _pump(self, queue: InterfaceQueue, call: RpcCall) -> None:
        """Serve a connection whose hello was accepted until it ends. `StreamClosedError` for the peer."""
        node = self._node
        pump = Pump(
            queue.link,
            call,
            lambda messages: node.take(queue, messages),
            received=queue.frame_received,
            schemas=queue.is_broker,
            busy=None if queue.is_broker else node.overloaded,
        )
        queue.attach(pump)
        why = "the connection broke"
        goodbye = False
        try:
            await pump.run()
        except PeerClosedError as error:
            why, goodbye = str(error), error.status == "OK"
        except StreamClosedError as error:
            why = str(error)
            raise
        except (LinkError, MalformedPacketError) as error:
            why = str(error)
            log.warning("%s broke the protocol: %s", queue.interface, error)
            say_goodbye(call, "INVALID_ARGUMENT", why)
            raise StreamClosedError("INVALID_ARGUMENT", why) from None
        finally:
            if queue.pump is pump:
                queue.pump = None
                if goodbye and not queue.is_broker:
                    node.end_session(queue, why)
                else:
                    node.disconnected(queue, why)


def check_neighbour(node: Node, greeting: Greeting) -> None:
    """`StreamClosedError` unless a neighbour in the same overlay sent the hello."""
    if greeting.role is not Role.BROKER:
        raise StreamClosedError("FAILED_PRECONDITION", f"{greeting.id!r} is not a broker")
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
    differing = difference(node.overlay.shared_options(), greeting.options)
    if differing is not None:
        option, mine, theirs = differing
        raise StreamClosedError(
            "FAILED_PRECONDITION",
            f"broker {greeting.id!r} has {option} {theirs!r}: expected {mine!r}, as broker {node.name} has",
        )
