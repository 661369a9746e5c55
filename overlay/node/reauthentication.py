"""What becomes of connected clients when the rules for clients change.

A client whose rights are the same stays. Another one is disconnected and comes back by itself, as a new
client with its new rights, or is refused.
"""

from __future__ import annotations

import asyncio
import time

from covey.overlay.node.node import Node
from covey.overlay.node.node_connection import NodeConnection

_SLICE = 50
"""Clients between two turns of the event loop: verifying a token takes some 100 µs."""
_REASON = "its permissions have changed"


async def reauthenticate(node: Node) -> int:
    """Disconnect the clients that have other rights by now; how many."""
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
