"""A broker's metrics, and their values at one moment.

Values come from existing state, so the data path pays only for `Timings`. Invariants: no label grows without
bound; counters never decrease while the broker runs; `METRICS` has every metric.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

from covey.matcher.jit.kernel_loader import KernelState, loader
from covey.matcher.operators.table import find
from covey.overlay.core.endpoint.observing import Histogram
from covey.overlay.core.routing.peers import Counters
from covey.overlay.node.node import Node
from covey.overlay.node.state import missing
from covey.overlay.scraping import Metric, Samples, Value

if TYPE_CHECKING:
    from covey.overlay.core.routing.type_state import TypeState

MOST_TYPES = 100
"""Event types with their own series; others share `other`."""
LONGEST_LABEL = 100
OTHER = "other"
_SLICE = 1_000
"""Queues visited between two turns of the event loop."""

_LINK = ("neighbour",)
_CLASS = ("class",)
_TYPE = ("event_type",)
_OPERATOR = ("operator",)

METRICS = (
    Metric(
        "covey_broker_info",
        "gauge",
        "1; the labels describe the broker.",
        ("broker", "overlay", "version", "routing", "engine"),
    ),
    Metric("covey_ready", "gauge", "Whether the broker is ready (covey health --ready)."),
    Metric("covey_kernels", "gauge", "Whether the matching kernels are in this state.", ("state",)),
    Metric("covey_link_up", "gauge", "Whether the neighbour is connected.", _LINK),
    Metric("covey_link_synchronised", "gauge", "Whether its interest has arrived since.", _LINK),
    Metric("covey_link_connections_total", "counter", "Connections of the link so far.", _LINK),
    Metric("covey_link_received_events_total", "counter", "Events received from the neighbour.", _LINK),
    Metric("covey_link_sent_events_total", "counter", "Events routed to the neighbour.", _LINK),
    Metric("covey_link_received_event_bytes_total", "counter", "Bytes of events from the neighbour.", _LINK),
    Metric("covey_link_sent_event_bytes_total", "counter", "Bytes of events sent to the neighbour.", _LINK),
    Metric(
        "covey_link_received_messages_total",
        "counter",
        "Messages of the routing protocol from the neighbour, by kind.",
        ("neighbour", "kind"),
    ),
    Metric(
        "covey_link_sent_messages_total",
        "counter",
        "Messages of the routing protocol to the neighbour, by kind.",
        ("neighbour", "kind"),
    ),
    Metric(
        "covey_link_unwanted_events_total",
        "counter",
        "Events from the neighbour that match no subscription here: the excess of merged slots.",
        _LINK,
    ),
    Metric("covey_sessions", "gauge", "Sessions of clients.", ("connected",)),
    Metric("covey_subscriptions", "gauge", "Subscriptions of all sessions."),
    Metric("covey_published_events_total", "counter", "Events received from clients."),
    Metric("covey_delivered_events_total", "counter", "Events routed to clients."),
    Metric("covey_dropped_events_total", "counter", "Events that were dropped, by reason.", ("reason",)),
    Metric("covey_expired_subscriptions_total", "counter", "Subscriptions that ended with their period."),
    Metric("covey_refusals_total", "counter", "Messages that were refused, by status.", ("status",)),
    Metric("covey_refused_connections_total", "counter", "Connections refused, by status.", ("status",)),
    Metric("covey_denials_total", "counter", "What peers tried and may not do.", ("what",)),
    Metric("covey_wire_faults_total", "counter", "Rules of HTTP/2 that peers broke, by code.", ("code",)),
    Metric("covey_pending_events", "gauge", "Events queued or not acknowledged, of all connections.", _CLASS),
    Metric("covey_pending_bytes", "gauge", "Their bytes.", _CLASS),
    Metric("covey_pending_largest_bytes", "gauge", "The bytes of the connection with most of them.", _CLASS),
    Metric("covey_pending_limit_bytes", "gauge", "The bytes at which a queue is full.", _CLASS),
    Metric("covey_full_queues", "gauge", "Queues that are full: their event types are held.", _CLASS),
    Metric("covey_held_event_types", "gauge", "Event types whose sources are held."),
    Metric("covey_event_types", "gauge", "Event types that the broker knows."),
    Metric("covey_publishers", "gauge", "Interfaces that advertise the event type.", _TYPE),
    Metric("covey_interests", "gauge", "Nodes of the covering posets of the event type.", _TYPE),
    Metric("covey_roots", "gauge", "Their roots.", _TYPE),
    Metric("covey_slots", "gauge", "Slots in use at neighbours for the event type.", _TYPE),
    Metric(
        "covey_update_delay_seconds",
        "histogram",
        "From the arrival of an update until all brokers that need it have acknowledged it.",
    ),
    Metric(
        "covey_match_seconds",
        "histogram",
        "Matching and queueing a batch of events, for neighbours (link), or for clients it has (session).",
        _CLASS,
    ),
    Metric("covey_event_loop_lag_seconds", "histogram", "How late a timer of the event loop fires."),
    Metric(
        "covey_log_suppressed_lines_total",
        "counter",
        "Lines of the log that were not written, for there were too many of their kind.",
        ("level",),
    ),
    Metric("covey_log_bytes", "gauge", "Bytes of the log of a durable event type on disk.", _TYPE),
    Metric("covey_log_segments", "gauge", "Its segments.", _TYPE),
    Metric(
        "covey_log_appended_records_total",
        "counter",
        "Records (batches of events) appended to it, in earlier lives of the broker as well.",
        _TYPE,
    ),
    Metric("covey_log_unsynced_records", "gauge", "Records that wait for a sync.", _TYPE),
    Metric("covey_log_oldest_record_seconds", "gauge", "Age of its oldest record, 0 if it has none.", _TYPE),
    Metric(
        "covey_log_damaged_records_total",
        "counter",
        "Records found damaged, at the start of the broker or by readers; they are never sent.",
        _TYPE,
    ),
    Metric(
        "covey_log_unread_records_total",
        "counter",
        "Records that retention removed before all receivers had acknowledged them.",
        _TYPE,
    ),
    Metric("covey_log_sync_seconds", "histogram", "Writing and syncing of what was appended to all logs."),
    Metric("covey_durable_sessions", "gauge", "Durable sessions of clients.", ("connected",)),
    Metric(
        "covey_backlog_records",
        "gauge",
        "Records since the first that a receiver has not acknowledged, of all links or durable sessions.",
        _CLASS,
    ),
    Metric("covey_backlog_largest_records", "gauge", "Those of the receiver with most of them.", _CLASS),
    Metric("covey_operator_calls_total", "counter", "Calls of the named operator.", _OPERATOR),
    Metric("covey_operator_seconds_total", "counter", "Time in the named operator.", _OPERATOR),
    Metric("covey_operator_faults_total", "counter", "Calls that failed or passed the deadline.", _OPERATOR),
    Metric("covey_operator_undecided_total", "counter", "Events that it left undecided.", _OPERATOR),
)


async def snapshot(node: Node, lag: Histogram, suppressed: Mapping[str, int]) -> Samples:
    """All counters are of one moment, although the loop gets a turn each 1,000 sessions. `suppressed` counts
    log lines by level."""
    values: Samples = {metric.name: {} for metric in METRICS}
    overlay = node.overlay
    labels = (node.name, overlay.name, version("covey"), overlay.routing, overlay.engine)
    values["covey_broker_info"][labels] = 1
    values["covey_ready"][()] = not missing(node)
    values["covey_kernels"] = {(state.value,): loader.state is state for state in KernelState}
    _links(node, values)
    _totals(node, values)
    _types(node.core.tables.types.values(), values)
    _operators(node, values)
    values["covey_event_loop_lag_seconds"][()] = lag
    values["covey_log_suppressed_lines_total"] = {(level,): count for level, count in suppressed.items()}
    timings = node.endpoint.timings
    if timings is not None:
        values["covey_update_delay_seconds"][()] = timings.updates
        values["covey_match_seconds"] = {("link",): timings.links, ("session",): timings.sessions}
    _logs(node, values)
    await _queues(node, values)
    return values


def _links(node: Node, values: Samples) -> None:
    peers = node.core.tables.peers
    for name in node.neighbours():
        queue, peer, label = node.queues[f"broker/{name}"], peers.get(f"broker/{name}"), (name,)
        counters = Counters() if peer is None else peer.counters
        values["covey_link_up"][label] = queue.connected
        values["covey_link_synchronised"][label] = queue.connected and peer is not None and peer.synced
        values["covey_link_connections_total"][label] = queue.connections
        values["covey_link_received_events_total"][label] = counters.events_received
        values["covey_link_sent_events_total"][label] = counters.events_sent
        values["covey_link_received_event_bytes_total"][label] = queue.link.event_bytes_received
        values["covey_link_sent_event_bytes_total"][label] = queue.link.event_bytes_sent
        values["covey_link_unwanted_events_total"][label] = counters.events_unwanted
        for metric, counted in (("received", counters.received), ("sent", counters.sent)):
            for kind, count in counted.items():
                values[f"covey_link_{metric}_messages_total"][name, kind.__name__] = count


def _totals(node: Node, values: Samples) -> None:
    """Sums over sessions, ended ones included."""
    endpoint, tables = node.endpoint, node.core.tables
    ended = tables.peers.ended_sessions
    received, sent, subscriptions = ended.events_received, ended.events_sent, 0
    for peer in tables.peers.values():
        if not peer.is_broker:
            counters = peer.counters
            received += counters.events_received
            sent += counters.events_sent
            subscriptions += len(peer.subscriptions)
    values["covey_published_events_total"][()] = received
    values["covey_delivered_events_total"][()] = sent
    values["covey_expired_subscriptions_total"][()] = endpoint.validity.expired
    values["covey_subscriptions"][()] = subscriptions
    values["covey_held_event_types"][()] = len(endpoint.holds.as_dict())
    values["covey_event_types"][()] = len(tables.types)
    for name, counted in (
        ("covey_dropped_events_total", endpoint.dropped()),
        ("covey_refusals_total", endpoint.refused),
        ("covey_refused_connections_total", node.refused_connections),
        ("covey_denials_total", node.denials),
        ("covey_wire_faults_total", {code.name: count for code, count in node.wire_faults.items()}),
    ):
        values[name] = {(label,): count for label, count in counted.items()}


def _types(states: Iterable[TypeState], values: Samples) -> None:
    for number, state in enumerate(states):
        label = (state.event_type.name[:LONGEST_LABEL] if number < MOST_TYPES else OTHER,)
        for name, count in (
            ("covey_publishers", len(state.publishers)),
            ("covey_interests", sum(len(poset) for poset in state.groups.values())),
            ("covey_roots", sum(poset.root_count for poset in state.groups.values())),
            ("covey_slots", sum(len(outgoing.slots) for outgoing in state.outgoing.values())),
        ):
            _add(values[name], label, count)


def _operators(node: Node, values: Samples) -> None:
    for name, account in node.core.tables.evaluator.accounts.items():
        if find(name) is None:
            continue  # filters may name what nobody has
        values["covey_operator_calls_total"][name,] = account.calls
        values["covey_operator_seconds_total"][name,] = account.took_ns / 1e9
        values["covey_operator_faults_total"][name,] = account.failures
        values["covey_operator_undecided_total"][name,] = account.undecided


def _logs(node: Node, values: Samples) -> None:
    if node.storage is None or node.syncing is None:
        return
    values["covey_log_sync_seconds"][()] = node.syncing.durations
    for number, log in enumerate(node.storage.log_states()):
        label = (log.event_type[:LONGEST_LABEL] if number < MOST_TYPES else OTHER,)
        for name, value in (
            ("covey_log_bytes", log.bytes),
            ("covey_log_segments", log.segments),
            ("covey_log_appended_records_total", log.appended),
            ("covey_log_unsynced_records", log.unsynced),
            ("covey_log_damaged_records_total", log.damaged),
            ("covey_log_unread_records_total", log.unread),
        ):
            _add(values[name], label, value)
        ages = values["covey_log_oldest_record_seconds"]
        known = ages.get(label, 0.0)
        assert not isinstance(known, Histogram)
        ages[label] = max(known, log.oldest_s)


def _add(samples: dict[tuple[str, ...], Value], label: tuple[str, ...], value: float) -> None:
    known = samples.get(label, 0)
    assert not isinstance(known, Histogram)
    samples[label] = known + value


_PENDING = (
    "covey_pending_events",
    "covey_pending_bytes",
    "covey_pending_largest_bytes",
    "covey_full_queues",
)
_BACKLOG = ("covey_backlog_records", "covey_backlog_largest_records")


async def _queues(node: Node, values: Samples) -> None:
    totals: dict[str, Counter[str]] = {"link": Counter(), "session": Counter()}
    connected: Counter[bool] = Counter()
    durable: Counter[bool] = Counter()
    for number, queue in enumerate(list(node.queues.values()), 1):
        total, size = totals["link" if queue.is_broker else "session"], queue.link.backlog_bytes
        total["covey_pending_events"] += queue.link.backlog_events
        total["covey_pending_bytes"] += size
        total["covey_pending_largest_bytes"] = max(total["covey_pending_largest_bytes"], size)
        total["covey_full_queues"] += queue.full
        records = node.endpoint.backlog(queue) if queue.durable else 0
        total["covey_backlog_records"] += records
        total["covey_backlog_largest_records"] = max(total["covey_backlog_largest_records"], records)
        if not queue.is_broker:
            connected[queue.connected] += 1
            durable[queue.connected] += queue.durable
        if number % _SLICE == 0:
            await asyncio.sleep(0)
    for kind, total in totals.items():
        limits = node.endpoint.options.queue_limits(session=kind == "session")
        values["covey_pending_limit_bytes"][kind,] = limits.bytes
        for name in _PENDING if node.storage is None else (*_PENDING, *_BACKLOG):
            values[name][kind,] = total[name]
    values["covey_sessions"] = _yes_and_no(connected)
    if node.storage is not None:
        values["covey_durable_sessions"] = _yes_and_no(durable)


def _yes_and_no(counts: Counter[bool]) -> dict[tuple[str, ...], Value]:
    return {("yes",): counts[True], ("no",): counts[False]}
