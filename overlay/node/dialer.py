"""Keeps the connection to one neighbour open: dials, waits longer after each failure, dials again."""

from __future__ import annotations

import asyncio
import logging

from covey.overlay.core.link.link import LinkError
from covey.overlay.node.acceptor import check_neighbour
from covey.overlay.node.interface_queue import InterfaceQueue
from covey.overlay.node.node import Node
from covey.overlay.transport.backoff import Backoff
from covey.overlay.transport.channel import CONNECT, Channel, error_of
from covey.overlay.transport.errors import CallError, MalformedPacketError
from covey.overlay.transport.packets import Greeting, decode_packet, encode_greeting
from covey.overlay.transport.pump import Pump, StreamClosedError
from covey.overlay.transport.rpc_call import RpcCall

log = logging.getLogger("covey.broker")

_ANSWER_WITHIN_S = 5.0


async def keep_connected(node: Node, neighbour: str) -> None:
    """Dial a neighbour for as long as this task lives."""
    queue = node.queues[f"broker/{neighbour}"]
    address = node.overlay.brokers[neighbour].address
    backoff = Backoff()
    logged = ""
    while not node.draining:
        try:
            await _connection(node, queue, address, backoff)
            why = "the connection ended"
        except (CallError, LinkError, MalformedPacketError) as error:
            why = str(error)
        except TimeoutError:
            why = f"no answer from {address} within {_ANSWER_WITHIN_S:g} s"
        if node.draining:
            return
        if why != logged:
            log.info("broker/%s at %s: %s; retrying", neighbour, address, why)
            logged = why
        await asyncio.sleep(backoff.pause_s())


async def _connection(node: Node, queue: InterfaceQueue, address: str, backoff: Backoff) -> None:
    """One connection, from hello to its end."""
    async with Channel(address, node.overlay.limits.max_frame_bytes) as channel:
        call = channel.call(CONNECT)
        queue.greeting = True
        try:
            call.send(encode_greeting(node.greeting(queue)))
            data = await asyncio.wait_for(call.read(), _ANSWER_WITHIN_S)
            if data is None:
                raise error_of(call, address)
            greeting = decode_packet(data)
            if not isinstance(greeting, Greeting):
                raise StreamClosedError("INVALID_ARGUMENT", f"{address} began with a frame: expected a hello")
            check_neighbour(node, greeting)
            if f"broker/{greeting.id}" != queue.interface:
                raise StreamClosedError(
                    "FAILED_PRECONDITION", f"{address} is {greeting.id}'s, not {queue.interface}'s"
                )
            node.resume(queue, greeting)
            backoff.connected()
        finally:
            queue.greeting = False
        await _pump(node, queue, call)


async def _pump(node: Node, queue: InterfaceQueue, call: RpcCall) -> None:
    pump = Pump(
        queue.link,
        call,
        lambda messages: node.take(queue, messages),
        received=queue.frame_received,
        schemas=True,  # a broker that starts does not know the type yet
        await_end=True,
    )
    queue.attach(pump)
    why = "the connection broke"
    try:
        await pump.run()
        why = call.details or "it ended the stream"
    except (StreamClosedError, LinkError, MalformedPacketError) as error:
        why = str(error)
        raise
    finally:
        queue.pump = None
        node.disconnected(queue, why)
