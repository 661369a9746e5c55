"""Keeps the connection to one neighbour open: dials, waits longer after each failure, dials again.

The pauses double up to a bound and vary at random, so that brokers that lost a common neighbour do not
return as one.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import grpc.aio

from covey.overlay.core.link.link import LinkError
from covey.overlay.node.delay import delayed
from covey.overlay.node.node import Node
from covey.overlay.node.outlets import Outlet
from covey.overlay.node.service import check_neighbour
from covey.overlay.transport.channel import CONNECT, open_channel, reason_of
from covey.overlay.transport.codec import Greeting, MalformedPacketError, decode_packet, encode_greeting
from covey.overlay.transport.pump import STREAM_ERRORS, ClosedError, Connection, Pump

log = logging.getLogger("covey.broker")

_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 2.0
_ANSWER_WITHIN_S = 5.0


class Backoff:
    """Pauses between attempts."""

    def __init__(self) -> None:
        self._pause_s = _FIRST_PAUSE_S

    def reset(self) -> None:
        self._pause_s = _FIRST_PAUSE_S

    def pause_s(self) -> float:
        """How long to wait before the next attempt; each time about twice as long, up to the bound."""
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, _LONGEST_PAUSE_S)
        return pause_s * random.uniform(0.5, 1.0)


async def keep_connected(node: Node, neighbour: str) -> None:
    """Dial a neighbour for as long as this task lives."""
    outlet = node.outlets[f"broker/{neighbour}"]
    address = node.overlay.brokers[neighbour].address
    backoff = Backoff()
    said = ""
    while not node.draining:
        connections = outlet.connections
        try:
            await _connection(node, outlet, address)
            why = "the connection ended"
        except (ClosedError, LinkError, MalformedPacketError) as error:
            why = str(error)
        except grpc.aio.AioRpcError as error:
            why = reason_of(error, address)
        except TimeoutError:
            why = f"no answer from {address} within {_ANSWER_WITHIN_S:g} s"
        except STREAM_ERRORS:
            why = "the connection broke"
        if outlet.connections != connections:
            backoff.reset()
            said = ""
        if why != said:
            log.info("broker/%s at %s: %s; dialling again", neighbour, address, why)
            said = why
        if not node.draining:
            await asyncio.sleep(backoff.pause_s())


async def _connection(node: Node, outlet: Outlet, address: str) -> None:
    """One connection, from hello to its end."""
    async with open_channel(address, node.overlay.limits.max_frame_bytes) as channel:
        call = channel.stream_stream(CONNECT)()
        outlet.greeting = True
        try:
            await call.write(encode_greeting(node.greeting(outlet)))
            data = await asyncio.wait_for(call.read(), _ANSWER_WITHIN_S)
            if data is grpc.aio.EOF:
                raise ClosedError("UNAVAILABLE", await call.details() or "the stream ended without a hello")
            greeting = decode_packet(data)
            if not isinstance(greeting, Greeting):
                raise ClosedError("INVALID_ARGUMENT", f"{address} began with a frame: expected a hello")
            check_neighbour(node, greeting)
            if f"broker/{greeting.id}" != outlet.interface:
                raise ClosedError(
                    "FAILED_PRECONDITION", f"{address} is {greeting.id}'s, not {outlet.interface}'s"
                )
            node.resume(outlet, greeting)
        finally:
            outlet.greeting = False
        sent_s, read_s = node.delays_s(outlet)
        async with delayed(call, sent_s=sent_s, read_s=read_s) as connection:
            await _pump(node, outlet, call, connection)


async def _pump(node: Node, outlet: Outlet, call: Any, connection: Connection) -> None:
    pump = Pump(
        outlet.link,
        connection,
        lambda messages: node.take(outlet, messages),
        heard=outlet.hear,
        schemas=True,  # a broker that starts does not know the type yet
        await_end=True,
    )
    outlet.attach(pump)
    why = "the connection broke"
    try:
        await pump.run()
        why = await call.details() or "it ended the stream"
    except (ClosedError, LinkError, MalformedPacketError) as error:
        why = str(error)
        raise
    finally:
        outlet.pump = None
        node.lost(outlet, why)
