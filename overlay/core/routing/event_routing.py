"""PUB: forwards events to interested interfaces; refuses or drops those that were not advertised."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.overlay.core.messages import KEYS, Drop, Publish, Receiver, Refuse, Store
from covey.overlay.core.routing import durable_keys
from covey.overlay.core.routing.dispatch import Departures, Dispatch
from covey.overlay.core.routing.keyed import (
    departed_for_views,
    followed_by_links,
    followed_by_views,
    on_departures,
)
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.promises import Promise
from covey.overlay.core.routing.tables import Call, Tables
from covey.overlay.core.routing.type_state import difference

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType
    from covey.overlay.core.routing.type_state import TypeState


def on_publish(tables: Tables, call: Call, message: Publish, peer: Peer) -> None:
    """PUB (Fig. 3 lines 8-12, Fig. 6 lines 38-41)."""
    batch, event_type = message.batch, message.batch.event_type
    count, name = batch.count, event_type.name
    peer.counters.events_received += count
    state = tables.types.get(name)
    declared = None if state is None else state.declared.get(peer.name)
    admitted = declared is event_type or (declared is not None and declared.includes(event_type))
    if not admitted and state is not None and peer.is_broker and name in tables.durable:
        admitted = state.event_type.agrees(event_type)  # stored events of a publisher that has left
        if admitted:  # other kinds of attributes, with no other user, would not fit recent events
            state.declare(event_type, tables.broker_id)
    if state is None or not admitted:
        _reject(tables, call, batch, declared, peer)
        return
    if message.for_views and not (message.replayed or message.live) and peer.is_broker:
        on_departures(tables, call, batch, state, peer)
        return
    promise = state.promises.get(peer.name) if state.promises and not peer.is_broker else None
    promised = None if promise is None else promise.select(batch)
    if promise is not None and promised is not None:
        _refuse_outside(call, promise, batch, promised, peer)
        batch = batch.filter(promised)
        message, count = replace(message, batch=batch), len(batch)
    durable = None
    if name in tables.durable and not (message.replayed or message.live):
        durable = tables.durable[name]
    if durable is not None and count:
        fresh = durable.fresh(batch)
        if fresh is not None:
            batch = batch.filter(fresh)
            message, count = Publish(batch), len(batch)
    if not count:
        return
    dispatched = Dispatch(message, peer, state, tables.results)
    if durable is not None:
        published = state.keys is not None and not peer.is_broker
        _store(tables, call, batch, dispatched, KEYS + peer.name if published else "")
        shown = durable_keys.live(tables, call, batch, state, peer) if published else None
        if shown is None:
            return
        dispatched, message = shown, shown.message
    if dispatched.goes_on:
        for link, publish in dispatched.to_links(tables.peers):
            link.counters.events_sent += publish.batch.count
            call.send(link, publish)
    if not dispatched.ends_here:
        dispatched.pass_by()
        return
    if state.keys is not None and _is_last(message, state):
        followed_by_links(tables, call, dispatched, peer)
    # Deliveries wait for what is on its way to links, unless it is one event or nothing.
    if call.deferred is None or not (call.deferred or (count > 1 and dispatched.links)):
        deliver(tables, call, dispatched)
    else:
        call.deferred.append(dispatched)


def _store(tables: Tables, call: Call, batch: EventBatch, dispatched: Dispatch, publisher: str) -> None:
    receivers = dispatched.receivers(tables.peers, tables.registry)
    for receiver in receivers:
        rows = receiver.rows
        tables.peers[receiver.interface].counters.events_sent += batch.count if rows is None else len(rows)
    if publisher:
        receivers = (*receivers, Receiver(publisher))
    if receivers:
        call.actions.append(Store(batch.with_results(None), receivers))


def _is_last(message: Publish, state: TypeState) -> bool:
    """Whether events are the last of their keys so far; replayed ones may be older."""
    return state.keys is not None and (message.for_views or not message.replayed)


def deliver(tables: Tables, call: Call, dispatched: Dispatch | Departures) -> None:
    """The sessions' part of a PUB."""
    if dispatched.__class__ is Dispatch:
        for session, message in dispatched.to_sessions(tables.peers, tables.registry):
            session.counters.events_sent += message.batch.count
            call.send(session, message)
        if dispatched.state.keys is not None and _is_last(dispatched.message, dispatched.state):
            followed_by_views(tables, call, dispatched)
    elif isinstance(dispatched, Departures):
        departed_for_views(tables, call, dispatched)


def _refuse_outside(
    call: Call, promise: Promise, batch: EventBatch, promised: npt.NDArray[np.bool_], peer: Peer
) -> None:
    outside = np.flatnonzero(~promised)
    peer.counters.events_dropped += len(outside)
    sequences, name = batch.sequences()[outside], batch.event_type.name
    for run in np.split(sequences, np.flatnonzero(np.diff(sequences) != 1) + 1):
        reason = (
            f"{len(run)} events of {name} from number {int(run[0])} on not accepted: outside of what "
            f"{peer.name} advertised, {promise.filter}"
        )
        call.send(peer, Refuse(0, "FAILED_PRECONDITION", reason, 0, name, int(run[0]), len(run)))


def _reject(tables: Tables, call: Call, batch: EventBatch, declared: EventType | None, peer: Peer) -> None:
    name = batch.event_type.name
    peer.counters.events_dropped += len(batch)
    if peer.is_broker:
        call.actions.append(Drop("not advertised", len(batch), name))
        return
    if declared is None:
        status, reason = "FAILED_PRECONDITION", f"{peer.name} has not advertised {name}; advertise it first"
    else:
        status = "INVALID_ARGUMENT"
        reason = difference(declared, batch.event_type, tables.broker_id)
    reason = f"{len(batch)} events of {name} not accepted: {reason}"
    refusal = Refuse(0, status, reason, type_name=name, first_sequence=batch.first_sequence, count=len(batch))
    call.send(peer, refusal)
