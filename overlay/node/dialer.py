"""Dials neighbours, and drives links that move (`core/endpoint/repairing.py`), for which it probes brokers: a
health check, since a stopped process still accepts connections."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from typing import Any

from covey.overlay.core.endpoint.connections import ConnectionRefusedError
from covey.overlay.core.endpoint.repairing import Repairing
from covey.overlay.core.link.link import LinkError
from covey.overlay.core.messages import Interface
from covey.overlay.node.health import HEALTH_SERVICE, is_serving
from covey.overlay.node.node import Node
from covey.overlay.node.node_connection import (
    NodeConnection,
    check_identity,
    check_neighbour,
    compare_types,
    greeting,
)
from covey.overlay.transport.address import CallError
from covey.overlay.transport.channel import Channel, error_of
from covey.overlay.transport.event_loop import Backoff
from covey.overlay.transport.packets import (
    CONNECT,
    Greeting,
    StreamClosedError,
    decode_packet,
    encode_greeting,
)
from covey.overlay.transport.wire_values import MalformedPacketError

_CHECK = f"/{HEALTH_SERVICE}/Check"
_PROBED_WITHIN_S = 1.0
_AT_ONCE = 8
log = logging.getLogger("covey.broker")
_REPAIR = ""
"""In place of a neighbour: the task of `keep_repaired`."""
_ANSWER_WITHIN_S = 5.0
_LASTING = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "UNAUTHENTICATED", "PERMISSION_DENIED")
"""For versions, overlay files or certificates that disagree: retries fail until somebody acts."""


async def keep_repaired(node: Node, repairing: Repairing, changed: Callable[[], None]) -> None:
    """Repair links until the broker drains; `changed` is called when there may be a neighbour to dial."""
    probes: asyncio.Task[None] | None = None
    try:
        while not node.draining:
            await asyncio.sleep(repairing.interval_ns / 1e9)
            if probes is None or probes.done():
                probes = asyncio.create_task(_probe(node, repairing))
            node.repair()
            changed()
    finally:
        if probes is not None:
            probes.cancel()


async def _probe(node: Node, repairing: Repairing) -> None:
    free = asyncio.Semaphore(_AT_ONCE)

    async def ask(name: str) -> None:
        async with free:
            answered = await _answers(node, name)
        repairing.probed(name, answered, time.monotonic_ns())

    async with asyncio.TaskGroup() as asking:
        for name in repairing.to_probe():
            asking.create_task(ask(name))


async def _answers(node: Node, name: str) -> bool:
    broker = node.overlay.brokers.get(name)
    if broker is None:
        return False
    try:
        async with asyncio.timeout(_PROBED_WITHIN_S):
            async with Channel(broker.address, credentials=node.credentials) as channel:
                return is_serving(await channel.unary(_CHECK, b""))
    except (CallError, TimeoutError):
        return False


class Dialers:
    """One task per neighbour to dial. A defect in one calls `failed`: a broker must not run without its
    link."""

    def __init__(self, node: Node, failed: Callable[[BaseException], None]) -> None:
        self._node = node
        self._failed = failed
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return list(self._tasks.values())

    def update(self) -> None:
        """Start missing tasks; others end by themselves."""
        node = self._node
        self._tasks = {name: task for name, task in self._tasks.items() if not task.done()}
        if node.repairing is not None and _REPAIR not in self._tasks:
            self._start(_REPAIR, keep_repaired(node, node.repairing, self.update))
        for neighbour, dials in node.neighbours().items():
            if dials and neighbour not in self._tasks:
                self._start(neighbour, keep_connected(node, neighbour))

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[name] = asyncio.create_task(work)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)


async def keep_connected(node: Node, neighbour: str) -> None:
    backoff = Backoff()
    why = logged = status = ""
    interface = f"broker/{neighbour}"
    while not node.draining and node.neighbours().get(neighbour):
        address = node.overlay.brokers[neighbour].address
        try:
            if not node.queues[interface].connected:  # the neighbour may dial, too
                await _connection(node, interface, address, backoff)
                why, status = "the connection ended", ""
        except (CallError, LinkError, MalformedPacketError, ConnectionRefusedError) as error:
            why, status = str(error), getattr(error, "status", "")
        except TimeoutError:
            why, status = f"no answer from {address} within {_ANSWER_WITHIN_S:g} s", ""
        if node.draining or neighbour not in node.neighbours():
            return
        node.link_faults[interface] = why
        if why != logged:
            level = logging.WARNING if status in _LASTING else logging.INFO
            log.log(level, "broker/%s at %s: %s; retrying", neighbour, address, why)
            logged = why
        await asyncio.sleep(backoff.pause_s())


async def _connection(node: Node, interface: Interface, address: str, backoff: Backoff) -> None:
    limits = node.overlay.limits
    async with Channel(address, limits.max_frame_bytes, credentials=node.credentials) as channel:
        queue = node.queues.get(interface)
        if queue is None or queue.connected:
            return
        call = channel.call(CONNECT)
        if not address.startswith("unix:"):
            check_identity(node, interface.removeprefix("broker/"), call)
        try:
            hello = node.endpoint.hello_for(interface)
            call.send(encode_greeting(greeting(node, interface, hello)))
            data = await asyncio.wait_for(call.read(), _ANSWER_WITHIN_S)
            if data is None:
                raise error_of(call, address)
            answer = decode_packet(data)
            if not isinstance(answer, Greeting):
                raise StreamClosedError("INVALID_ARGUMENT", f"{address} began with a frame: expected a hello")
            check_neighbour(node, answer)
            if f"broker/{answer.id}" != interface:
                raise StreamClosedError(
                    "FAILED_PRECONDITION", f"{address} is {answer.id}'s, not {interface}'s"
                )
            if node.queues.get(interface) is not queue:
                raise StreamClosedError("ABORTED", f"{interface} was removed meanwhile")
            connection = NodeConnection(node, interface, call, dialled=True)
            connection.began(node.answer(interface, answer.hello, connection))
            compare_types(node, answer)
            backoff.connected()
            node.link_faults.pop(interface, None)
        finally:
            queue.handshake = False
        await connection.run()
        raise error_of(call, address)
