"""A broker process's state: readiness, and what `covey inspect`, `explain` and `follow` show.

A broker is ready if every neighbour is linked and synchronised and it accepts events. Otherwise it serves
too, since a restart would not bring a neighbour back. Kernels may still be compiling.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from dataclasses import asdict, dataclass
from heapq import nlargest
from pathlib import Path
from typing import Any

from covey.matcher.jit.kernel_loader import loader
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.introspection.explanations import explain, follow
from covey.overlay.core.introspection.inspection import Listing, inspect, render
from covey.overlay.node.node import Node
from covey.overlay.node.operators import inspect_operators, render_operators
from covey.overlay.node.storage_directory import broker_directory

_MOST_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Missing:
    """`what` is an interface, "events" or "upward link"."""

    what: str
    why: str
    seconds: float


def missing(node: Node) -> list[Missing]:
    """O(neighbours)."""
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


def explain_at(node: Node, interface: str, subscription_id: int, event: dict[str, object]) -> dict[str, Any]:
    """As the core's `explain`, with each neighbour's address, and whether it is connected."""
    return explain(node.core, interface, subscription_id, event, time.time_ns()) | _neighbours(node)


def follow_at(node: Node, type_name: str, publisher: str, sequence: int) -> dict[str, Any]:
    """As the core's `follow`, with each neighbour's address, and whether it is connected."""
    return follow(node.core, type_name, publisher, sequence) | _neighbours(node)


def _neighbours(node: Node) -> dict[str, Any]:
    return {
        "neighbours": {
            name: {
                "address": node.overlay.brokers[name].address,
                "connected": node.queues[f"broker/{name}"].connected,
            }
            for name in node.neighbours()
        }
    }


def inspect_node(node: Node, listed: int) -> dict[str, Any]:
    """As plain values for JSON, with at most `listed` items per list (`core/introspection/inspection.py`)."""
    listing = Listing(listed)
    queues = _listed_queues(node, listing)
    return {
        "broker": node.name,
        "overlay": node.overlay.name,
        "routing": node.overlay.routing,
        "process": os.getpid(),
        "kernels": loader.state,
        "missing": [asdict(each) for each in missing(node)],
        "upward_link": _upward_link(node),
        "uptime_s": round((time.time_ns() - node.started_ns) / 1e9, 3),
        "core": inspect(node.core, listed),
        "interfaces": {name: queue.inspect() for name, queue in queues},
        "sessions": sum(not queue.is_broker for queue in node.queues.values()),
        "durable_sessions": sum(queue.durable and not queue.is_broker for queue in node.queues.values()),
        "operators": _operators(node, listing),
        "not_listed": listing.of("interfaces", "operators"),
        "dropped": dict(node.endpoint.drops.by_reason),
        "held": node.endpoint.holds.as_dict(),
        "refused": dict(node.endpoint.refused),
        "tasks": len(asyncio.all_tasks()),
        **_waiting(node),
        **_subscriptions(node),
        "dropped_events": node.endpoint.dropped().total(),
        "update_delay_s": _update_delay(node),
        "stored_bytes": None if node.storage is None else sum(log.bytes for log in node.storage.log_states()),
        "free_bytes": _free_bytes(node),
        "resident_bytes": _resident_bytes(),
        "partings": {interface.removeprefix("broker/"): why for interface, why in node.partings.items()},
        "type_conflicts": {
            interface.removeprefix("broker/"): found
            for interface, found in node.type_conflicts.items()
            if found
        },
        **_neighbours(node),
        "refused_connections": dict(node.refused_connections),
        "denied": dict(node.denials),
        "wire_faults": {code.name: count for code, count in node.wire_faults.items()},
    }


def _waiting(node: Node) -> dict[str, Any]:
    waiting = [queue for queue in node.queues.values() if queue.link.backlog_bytes]
    slowest = nlargest(_MOST_SHOWN, waiting, key=lambda queue: queue.link.backlog_bytes)
    return {
        "waiting_events": sum(queue.link.backlog_events for queue in waiting),
        "waiting_bytes": sum(queue.link.backlog_bytes for queue in waiting),
        "slowest": [
            {
                "interface": queue.interface,
                "connected": queue.connected,
                "full": queue.full,
                "events": queue.link.backlog_events,
                "bytes": queue.link.backlog_bytes,
                "frames_acknowledged": queue.link.acknowledged,
            }
            for queue in slowest
        ],
    }


def _subscriptions(node: Node) -> dict[str, Any]:
    peers = node.core.tables.peers.values()
    counts = [(len(peer.subscriptions), peer.name) for peer in peers if not peer.is_broker]
    largest = nlargest(_MOST_SHOWN, counts)
    return {
        "subscriptions": sum(count for count, _ in counts),
        "largest": [{"interface": name, "subscriptions": count} for count, name in largest if count],
    }


def _update_delay(node: Node) -> dict[str, float] | None:
    """Bounds of the median and 99th percentile, if timings are taken (`metrics:`)."""
    timings = node.endpoint.timings
    if timings is None or not (count := sum(timings.updates.counts)):
        return None
    return {"p50": timings.updates.quantile(0.5), "p99": timings.updates.quantile(0.99), "updates": count}


def _free_bytes(node: Node) -> int | None:
    """None without storage, or if its directory is gone."""
    if node.storage is None:
        return None
    try:
        return shutil.disk_usage(broker_directory(node.overlay.storage, node.name)).free
    except OSError:
        return None


def _resident_bytes() -> int | None:
    """None where the system does not show it."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def render_node(node: Node, listed: int) -> str:
    """With at most `listed` items per list."""
    listing = Listing(listed)
    lines = [render(node.core, listed).rstrip(), "", "interfaces"]
    for name, queue in _listed_queues(node, listing):
        state = "connected" if queue.connected else "disconnected"
        pending = queue.link.events.count
        lines.append(f"  {name}: {state}" + (f", {pending} events pending" if pending else ""))
        lines += [f"    {events} events dropped: {why}" for why, events in queue.drops.by_reason.items()]
    lines += listing.more("interfaces", "  ")
    lines += [f"  {events} events dropped: {why}" for why, events in node.endpoint.drops.by_reason.items()]
    lines += render_operators(_operators(node, listing), listing)
    return "\n".join(lines) + "\n"


def _upward_link(node: Node) -> dict[str, Any] | None:
    """None unless links move."""
    if node.repairing is None:
        return None
    broker, why = node.repairing.describe()
    return {"broker": broker, "why": why}


def _operators(node: Node, listing: Listing) -> dict[str, Any]:
    tables = node.core.tables
    return inspect_operators(tables.registry.callers, tables.evaluator.accounts, node.operators, listing)


def _listed_queues(node: Node, listing: Listing) -> list[tuple[str, InterfaceQueue]]:
    """Neighbours first."""
    neighbours = [(name, queue) for name, queue in node.queues.items() if queue.is_broker]
    clients = ((name, queue) for name, queue in node.queues.items() if not queue.is_broker)
    return neighbours + list(listing.first(clients, len(node.queues) - len(neighbours), "interfaces"))
