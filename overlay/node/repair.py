"""Gives links that move their time (`core/endpoint/repairing.py`), and probes brokers.

A probe is a call of the health service: a process that was stopped takes connections and does not answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from covey.overlay.core.endpoint.repairing import Repairing
from covey.overlay.node.health import SERVICE, is_serving
from covey.overlay.node.node import Node
from covey.overlay.transport.address import CallError
from covey.overlay.transport.channel import Channel

_CHECK = f"/{SERVICE}/Check"
_ANSWER_WITHIN_S = 1.0
_AT_ONCE = 8
"""How many brokers are probed at the same time."""


async def keep_repaired(node: Node, repairing: Repairing, changed: Callable[[], None]) -> None:
    """See to the links of a broker until it drains; `changed` is called when there may be somebody to
    dial.
    """
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
    """Ask whom there is to ask."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def ask(name: str) -> None:
        async with free:
            answered = await _answers(node, name)
        repairing.probed(name, answered, time.monotonic_ns())

    async with asyncio.TaskGroup() as asking:
        for name in repairing.to_probe():
            asking.create_task(ask(name))


async def _answers(node: Node, name: str) -> bool:
    """Whether a broker serves."""
    broker = node.overlay.brokers.get(name)
    if broker is None:
        return False
    try:
        async with asyncio.timeout(_ANSWER_WITHIN_S):
            async with Channel(broker.address, credentials=node.credentials) as channel:
                return is_serving(await channel.unary(_CHECK, b""))
    except (CallError, TimeoutError):
        return False
