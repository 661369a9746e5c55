"""Views: who gets the events of a key, whatever their contents.

A *view* is a subscription, to a type with a key, whose reader tracks for every key whether its last event is
inside of the filter. So whoever was sent the last event of a key is sent the next one as well: where it does
not match, as a *departure* (`for_views`). The receiver gets no more of the key, passes the departure on to
whom it sent the key, and removes it. A neighbour that has lost its state may yet get what was on its way: it
is sent the next event of its former keys, and again the last ones that views request.

So a broker's table (`key_table.py`) has the true last event of each of its keys, and answers updates for
views: to a view all matching events, to a neighbour those that it does not have. The update goes on to the
neighbours that publish. Invariant: a neighbour's bit is set if and only if it has, or will get before
anything else of the key, the event of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from covey.matcher.errors import FilterError
from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.matching.event_points import EventPoints
from covey.overlay.core.matching.matching import FilterAt, Matching
from covey.overlay.core.messages import ENDED, Answered, Deliver, Publish, Receiver, Store
from covey.overlay.core.moving.motion import still
from covey.overlay.core.routing.acks import UNSYNCED
from covey.overlay.core.routing.dispatch import Departures, Dispatch
from covey.overlay.core.routing.interest_changes import request
from covey.overlay.core.routing.key_columns import Bits
from covey.overlay.core.routing.key_table import Int64s, KeyTable
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.tables import Call, Tables
from covey.overlay.core.routing.type_state import TypeState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from covey.matcher.events.batch import EventBatch
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter
    from covey.overlay.core.messages import Interface


# --- events ---------------------------------------------------------------------------------------------


def followed_by_links(tables: Tables, call: Call, dispatched: Dispatch, source: Peer) -> None:
    """Store events just sent to the neighbours that they match, and send departures to those that have an
    earlier event of the key and did not get this one."""
    state, batch = dispatched.state, dispatched.batch.with_results(None)
    table = state.keys
    assert table is not None
    rows = table.take(batch, source.serial, call.now_ns)
    tables.key_ages.stored(state.event_type.name, call.now_ns)
    bits = [table.links.add(link.name) for link, _ in dispatched.links]
    receivers = table.links.none(batch.count)
    for bit, (_, mask) in zip(bits, dispatched.links, strict=True):
        receivers[slice(None) if mask is None else mask, bit >> 6] |= np.uint64(1 << (bit & 63))
    left = table.links.advance(rows, receivers)
    _depart_links(tables, call, table, batch, left, source)


def followed_by_views(tables: Tables, call: Call, dispatched: Dispatch) -> None:
    """As `followed_by_links`, for views of this broker, after its sessions got what they match."""
    table, batch = dispatched.state.keys, dispatched.batch.with_results(None)
    assert table is not None
    if len(table.views):
        events, uids = dispatched.pairs
        left = table.views.advance(table.rows_of(batch), table.views.of_pairs(batch.count, events, uids))
        _depart_views(tables, call, table, batch, left)
    while len(excess := table.excess()):
        table.evicted += len(excess)
        retire(tables, call, table, excess)


def on_departures(tables: Tables, call: Call, batch: EventBatch, state: TypeState, source: Peer) -> None:
    """Pass departures of a neighbour on to the neighbours that have the key."""
    table = state.keys
    if table is None:
        return
    came = table.came_from(batch, source.serial)
    if not came.all():  # keys that have come from another interface since
        batch = batch.filter(came)
    rows = table.rows_of(batch)
    left = table.links.advance(rows, table.links.none(batch.count))
    table.leave(rows)
    _depart_links(tables, call, table, batch, left, source)
    departures = Departures(batch, source, state)
    if call.deferred is None:
        departed_for_views(tables, call, departures)
    else:
        call.deferred.append(departures)


def departed_for_views(tables: Tables, call: Call, departures: Departures) -> None:
    """Pass departures on to the views that have the key, and remove it, unless it has come back since."""
    table, batch = departures.state.keys, departures.batch
    assert table is not None
    rows = table.rows_of(batch)
    left = table.views.advance(rows, table.views.none(batch.count))
    table.drop_left(rows)
    _depart_views(tables, call, table, batch, left)


def retire_source(tables: Tables, call: Call, state: TypeState, source: Interface, serial: int) -> None:
    """An interface no longer publishes, or has lost its state: its keys leave all views. For a client of a
    durable type that is stored, even if others have all of its keys now (`durable_keys.py`)."""
    stored = state.stored.pop(source, None)
    if stored is not None:
        call.actions.append(Store(stored, (Receiver(ENDED + source, np.zeros(0, np.int64)),)))
    if state.keys is not None:
        retire(tables, call, state.keys, state.keys.of_source(serial))


def evict_over_common(tables: Tables, call: Call) -> None:
    """Evict keys of the largest types down to the common bound. Call while no delivery is deferred: views get
    events before their keys leave."""
    while tables.key_bytes.used > tables.key_bytes.bound:
        keys = (state.keys for state in tables.types.values() if state.keys is not None)
        largest = max(keys, key=lambda table: table.nbytes)
        rows = largest.quarter()
        largest.evicted += len(rows)
        retire(tables, call, largest, rows)


def retire_old(tables: Tables, call: Call) -> None:
    """Retire keys published or restored here whose last event is too old."""
    for name in tables.key_ages.due(call.now_ns):
        table = tables.types[name].keys if name in tables.types else None
        if table is None:
            continue
        serials = [peer.serial for peer in tables.peers.values() if not peer.is_broker]
        serials += tables.types[name].restored.values()
        rows, oldest_ns = table.came_before(call.now_ns - tables.key_ages.max_age_ns[name], serials)
        table.aged += len(rows)
        retire(tables, call, table, rows)
        if oldest_ns:
            tables.key_ages.looked(name, oldest_ns, call.now_ns)


def retire(tables: Tables, call: Call, table: KeyTable, rows: Int64s) -> None:
    if not len(rows):
        return
    for batch, own in table.events(rows):
        _depart_links(tables, call, table, batch, table.links.clear(own), None)
        _depart_views(tables, call, table, batch, table.views.clear(own))
    table.drop(rows)


def _depart_links(
    tables: Tables, call: Call, table: KeyTable, batch: EventBatch, left: Bits, source: Peer | None
) -> None:
    for name, events in table.links.divided(left):
        peer = tables.peers.get(name)
        if peer is not None and peer is not source:
            peer.counters.events_sent += len(events)
            call.send(peer, Publish(batch.take(events), for_views=True))


def _depart_views(tables: Tables, call: Call, table: KeyTable, batch: EventBatch, left: Bits) -> None:
    for uid, events in table.views.divided(left):
        interest = tables.registry.live[uid]
        _deliver(call, tables.peers[interest.interface], interest, batch.take(events), replayed=False)


def _deliver(call: Call, session: Peer, interest: Interest, batch: EventBatch, *, replayed: bool) -> None:
    session.counters.events_sent += batch.count
    ids = np.full(batch.count, interest.subscription_id, np.int64)
    offsets = np.arange(batch.count + 1)
    call.send(session, Deliver(batch, offsets, ids, session.received, replayed, for_views=True))


# --- updates for views ----------------------------------------------------------------------------------


def check_for_views(state: TypeState, peer: Peer, filter: Filter) -> None:
    """`FilterError` for a view of a neighbour, of a type without a key, or with calls of operators."""
    if peer.is_broker:
        reason = "of a neighbour: expected one of a client"
    elif state.keys is None:
        reason = "without a key: expected one with a key"
    elif filter.calls:
        reason = f"with {filter}: expected no calls of operators"
    else:
        return
    raise FilterError(f"a view of event type {state.event_type.name} {reason}")


def check_view(state: TypeState, interest: Interest) -> None:
    """`FilterError` for a client's subscription that is not a view's."""
    if state.keys is None or interest.uid not in state.keys.views.bits:
        raise FilterError("an update for views: expected one of a view")


def on_update_for_views(
    tables: Tables,
    call: Call,
    peer: Peer,
    interest: Interest,
    epoch: int,
    newest: int,
    before: Mapping[str, Scalar] | None = None,
) -> None:
    """Send the last events of matching keys, and request them of the neighbours that publish. The request has
    this epoch, and stands for those up to `newest`. With `before`, a view gets only events that it was not
    sent, or that did not match these values."""
    state = tables.types[interest.filter.event_type.name]
    waits = dict.fromkeys(tables.unsynced, UNSYNCED)
    waits |= {each.name: UNSYNCED for each in tables.peers.neighbours() if not each.synced}
    table = state.keys
    if table is not None:
        state.has_views = True
        if peer.is_broker:
            state.viewing[peer.name] = None
        for neighbour, slot in state.covering_slots(interest):
            publisher = tables.peers[neighbour]
            requested = request(tables, call, state, publisher, slot, interest, for_views=True)
            waits.setdefault(neighbour, requested)
        _send_last_events(tables, call, state, peer, interest, before)
    waits.pop(peer.name, None)
    state.answers.open_request(peer.name, epoch, newest, waits)
    tables.answering[state.event_type.name] = None


def _send_last_events(
    tables: Tables,
    call: Call,
    state: TypeState,
    peer: Peer,
    interest: Interest,
    before: Mapping[str, Scalar] | None,
) -> None:
    table = state.keys
    assert table is not None
    if not peer.is_broker:
        rows = _matching(table, state, interest, still(interest.values, call.now_ns), table.everything())
        if before is not None:
            had = rows[table.views.has(interest.uid, rows)]
            had = _matching(table, state, interest, before, had)
            rows = np.setdiff1d(rows, had, assume_unique=True)
    elif peer.name in state.advertised_to or state.floods:
        rows = table.not_at(peer.name, peer.serial)
        rows = _matching(table, state, interest, still(interest.values, call.now_ns), rows)
    else:
        return  # the advertisement was withdrawn: events would meet no interest there
    for batch, own in table.joined(rows):
        if peer.is_broker:
            table.links.mark(peer.name, own)
            peer.counters.events_sent += batch.count
            call.send(peer, Publish(batch, True, for_views=True))
        else:
            table.views.mark(interest.uid, own)
            _deliver(call, peer, interest, batch, replayed=True)


def _matching(
    table: KeyTable, state: TypeState, interest: Interest, values: Mapping[str, Scalar], rows: Int64s
) -> Int64s:
    rows, exact = table.inside(interest.routed.region(values), rows)
    if exact or not len(rows):
        return rows
    matching = Matching("cluster", state.event_type)
    matching.put(FilterAt(1, interest.routed, values), 0)
    matched = [own[matching.match(EventPoints(batch)).any()] for batch, own in table.joined(rows)]
    return np.concatenate(matched)


def ask_for_views(tables: Tables, call: Call, state: TypeState, neighbour: Peer) -> int:
    """Request what views want of a neighbour that publishes, or has lost its state; returns the last epoch,
    or 0."""
    requested = 0
    if state.has_views and neighbour.name in state.outgoing:
        for slot in state.outgoing[neighbour.name].slots:
            requested = request(tables, call, state, neighbour, slot, for_views=True)
    return requested


def ask_through_another(tables: Tables, call: Call, state: TypeState, neighbour: Peer) -> int:
    """A neighbour has refused one of several open requests: repeat it through a slot that it has not refused,
    whose answer covers all. Returns the epoch, 0 without such a slot or open requests."""
    if state.answers.settled(neighbour.name):
        return 0
    slots = state.outgoing[neighbour.name].slots
    other = next((slot for slot in slots if not slot.refused), None)
    return 0 if other is None else request(tables, call, state, neighbour, other, for_views=True)


# --- the ends of answers ----------------------------------------------------------------------------------


def send_answers(tables: Tables, call: Call) -> None:
    types, tables.answering = tables.answering, {}
    for name in types:
        state = tables.types.get(name)
        if state is None:
            continue
        for source, epoch in state.answers.take(lambda each: tables.peers[each].received, call.source):
            call.send(tables.peers[source], Answered(name, epoch))
        if state.answers.waits_for_epochs:
            tables.answering[name] = None
