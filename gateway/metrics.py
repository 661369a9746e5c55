"""The metrics of a gateway, for Prometheus. Gauges are computed from the sessions at a scrape. No label grows
without bound: causes, policies and statuses are words of this code."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from covey.overlay.scraping import Metric, Samples, SnapshotCollector

if TYPE_CHECKING:
    from covey.gateway.sessions import Sessions

METRICS = {
    "covey_gateway_connections": "Connections of browsers, by WebSocket and as event streams.",
    "covey_gateway_sessions": "Sessions, by whether their browser is connected or away.",
    "covey_gateway_subscriptions": "Subscriptions and views of all sessions.",
    "covey_gateway_pending_bytes": "Bytes of events that wait for browsers.",
    "covey_gateway_unacknowledged_bytes": "Bytes that were sent and not acknowledged.",
    "covey_gateway_full_queues": "Sessions whose queue is full.",
    "covey_gateway_received_messages_total": "Messages of browsers.",
    "covey_gateway_sent_messages_total": "Messages that were passed to connections.",
    "covey_gateway_sent_events_total": "Events in them.",
    "covey_gateway_sent_bytes_total": "Bytes of them.",
    "covey_gateway_missed_events_total": "Events that a browser did not get, by the cause in its gap.",
    "covey_gateway_dropped_notices_total": "Notices to browsers that did not read them.",
    "covey_gateway_overflows_total": "Queues that became full, by policy.",
    "covey_gateway_refused_total": "Requests that failed, by status.",
    "covey_gateway_refused_connections_total": "Connections over a bound.",
}
"""By name, the help of each metric; counters end in `_total`."""
_LABELS = {
    "covey_gateway_sessions": ("state",),
    "covey_gateway_missed_events_total": ("cause",),
    "covey_gateway_overflows_total": ("policy",),
    "covey_gateway_refused_total": ("status",),
}
_SLICE = 1_000
"""Sessions read between two turns of the event loop."""


async def snapshot(sessions: Sessions) -> Samples:
    totals, none = sessions.totals, ()
    gauges: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for number, (session, connected) in enumerate(sessions.all()):
        if number % _SLICE == _SLICE - 1:
            await asyncio.sleep(0)
        queue = session.queue
        gauges["sessions", ("connected" if connected else "away",)] += 1
        gauges["subscriptions", none] += session.subscription_count
        gauges["pending_bytes", none] += queue.pending_bytes
        gauges["unacknowledged_bytes", none] += queue.sent_bytes
        gauges["full_queues", none] += queue.full
    values: Samples = {name: {} if name in _LABELS else {none: 0.0} for name in METRICS}
    values["covey_gateway_sessions"] = {("connected",): 0.0, ("away",): 0.0}
    for (name, labels), value in gauges.items():
        values[f"covey_gateway_{name}"][labels] = value
    values["covey_gateway_connections"][none] = sessions.addresses.total
    values["covey_gateway_refused_connections_total"][none] = sessions.refused_connections
    for name in ("received_messages", "sent_messages", "sent_events", "sent_bytes", "dropped_notices"):
        values[f"covey_gateway_{name}_total"][none] = getattr(totals, name)
    for name in ("missed_events", "overflows", "refused"):
        counts: Counter[str] = getattr(totals, name)
        values[f"covey_gateway_{name}_total"] = {(word,): count for word, count in counts.items()}
    return values


def collector(sessions: Sessions) -> SnapshotCollector:
    """Call it on the gateway's event loop; another thread collects the registry."""
    metrics = [
        Metric(name, "counter" if name.endswith("_total") else "gauge", text, _LABELS.get(name, ()))
        for name, text in METRICS.items()
    ]
    return SnapshotCollector(metrics, partial(snapshot, sessions))
