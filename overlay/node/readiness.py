"""Whether a broker is ready: every neighbour is linked and synchronised, and events are taken.

A broker that is not ready serves all the same: it may be waiting for a neighbour, and a restart would not
bring that back. Kernels that are still compiled delay nothing, since filters are evaluated without them.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from covey.overlay.node.node import Node


@dataclass(frozen=True, slots=True)
class Missing:
    """What keeps a broker from being ready, a broker's interface or "events", why, and for how many
    seconds.
    """

    what: str
    why: str
    seconds: float


def missing(node: Node) -> list[Missing]:
    """What keeps this broker from being ready; nothing if it is. O(neighbours)."""
    now_ns = time.monotonic_ns()
    uptime_s = (time.time_ns() - node.started_ns) / 1e9
    found = []
    if node.draining:
        found.append(Missing("events", "the broker is shutting down", 0.0))
    elif node.endpoint.recovering:
        why = "the broker has started and waits for what its neighbours and clients want"
        found.append(Missing("events", why, uptime_s))
    if node.repairing is not None and node.repairing.describe()[0] is None and node.repairing.uplink.best:
        found.append(Missing("upward link", node.repairing.describe()[1], uptime_s))
    for name in node.neighbours():
        interface = f"broker/{name}"
        queue = node.queues[interface]
        if queue.connected and node.core.tables.peers[interface].synced:
            continue
        if queue.connected:
            why = "not synchronised: its interest has not arrived"
        else:
            fault = node.link_faults.get(interface)
            why = f"not connected: {fault}" if fault else "not connected"
        found.append(Missing(interface, why, (now_ns - queue.since_ns) / 1e9))
    return found
