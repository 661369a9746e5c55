"""SUB, UPD and USUB: handlers of subscriptions, of the end of their validity period, and of replays.

A *gapless* update carries the time of its call. Each broker that it reaches replays, to the interface it came
from, the events that match now, entered the overlay since, and were not sent to it. It always travels on to
the publishers' brokers, even where another filter covers it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import numpy as np

from covey.matcher.errors import CapacityError, EventTypeError, FilterError, VariableError
from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.matching.interest_matching import TravellingResults
from covey.overlay.core.messages import Deliver, Expire, Expired, Publish, Subscribe, Unsubscribe, Update
from covey.overlay.core.moving.motion import check_values, moves
from covey.overlay.core.routing.interest_changes import exchange, move, request
from covey.overlay.core.routing.keyed import check_for_views, check_view, on_update_for_views
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.tables import Call, Tables
from covey.overlay.core.routing.type_state import TypeState

if TYPE_CHECKING:
    from covey.matcher import Filter
    from covey.matcher.expressions.expression import Scalar


_MAX_MERGED = 1 << 32
"""By how much an update for views may exceed its own epoch with the newest that it stands for."""


def on_subscribe(tables: Tables, call: Call, message: Subscribe, peer: Peer) -> None:
    """SUB (Fig. 3 lines 13-19, Fig. 6 lines 10-19)."""
    event_type, subscription_id = message.filter.event_type, message.subscription_id
    try:
        values = _checked(tables, call, peer, message.filter, message.values)
        state = tables.declare(event_type)
        old = peer.subscriptions.get(subscription_id)
        _check_room(state, peer, message.filter, values, old)
        if message.for_views:
            check_for_views(state, peer, message.filter)
        state.note_subscribed(event_type)
    except (FilterError, EventTypeError) as error:
        reason = f"subscription {subscription_id} of {peer.name}: {error}"
        call.refuse(peer, message, _status(error), reason, event_type.name)
        tables.maybe_idle[event_type.name] = None  # the type may have been declared for this alone
        return
    peer.stale_subscriptions.pop(subscription_id, None)
    if old is not None and old.filter == message.filter:
        old = move(tables, call, peer, old, values)
        old.epoch = message.epoch
        _begin_view(tables, call, peer, message)
        return
    new = tables.registry.make(peer.name, peer.number, subscription_id, message.filter, values)
    new.epoch = message.epoch
    if old is None:
        exchange(tables, call, state, peer, [new], [])
    elif old.filter.event_type.name == event_type.name:
        exchange(tables, call, state, peer, [new], [old])
    else:
        exchange(tables, call, state, peer, [new], [])
        exchange(tables, call, tables.types[old.filter.event_type.name], peer, [], [old])
        peer.subscriptions[subscription_id] = new
    _begin_view(tables, call, peer, message)


def _begin_view(tables: Tables, call: Call, peer: Peer, message: Subscribe) -> None:
    """Send a view the matching keys; a subscription that was a view's and no longer is leaves the table."""
    interest = peer.subscriptions[message.subscription_id]
    table = tables.types[message.filter.event_type.name].keys
    if not message.for_views:
        if table is not None:
            table.views.discard(interest.uid)
    else:
        assert table is not None
        table.views.add(interest.uid)
        on_update_for_views(tables, call, peer, interest, message.epoch, message.epoch)


def on_update(tables: Tables, call: Call, message: Update, peer: Peer) -> None:
    """UPD (Fig. 6 lines 42-47)."""
    interest = peer.subscriptions.get(message.subscription_id)
    if interest is None:
        what = f"update of subscription {message.subscription_id}: {peer.name} has none of that id"
        call.refuse(peer, message, "NOT_FOUND", f"{what}; it has ended or was never made", "")
        return
    filter = interest.filter
    try:
        values = _checked(tables, call, peer, filter, message.values, partial=True)
        if filter.texts or filter.calls:
            state = tables.types[filter.event_type.name]
            _check_room(state, peer, filter, {**interest.values, **values}, interest)
        if message.for_views:
            _check_update_for_views(tables, message, peer, interest)
    except FilterError as error:
        reason = f"update of subscription {message.subscription_id}: {error}"
        call.refuse(peer, message, _status(error), reason, filter.event_type.name)
        return
    call.traceparent = message.traceparent
    follows = message.after_epoch and message.after_epoch == interest.epoch
    before = interest.values if follows and not moves(interest.values) else None
    interest = move(tables, call, peer, interest, values)
    interest.epoch = message.epoch
    if message.since_ns or message.for_views:
        tables.changes += 1
    if message.since_ns:
        _replay_since(tables, call, peer, interest, message.since_ns)
    if message.for_views:
        on_update_for_views(tables, call, peer, interest, message.epoch, message.for_views, before)


def _check_update_for_views(tables: Tables, message: Update, peer: Peer, interest: Interest) -> None:
    if not peer.is_broker:
        check_view(tables.types[interest.filter.event_type.name], interest)
    if message.for_views > message.epoch + _MAX_MERGED:
        highest = message.epoch + _MAX_MERGED
        raise FilterError(f"for_views {message.for_views}: expected at most {highest}")


def on_unsubscribe(tables: Tables, call: Call, message: Unsubscribe, peer: Peer) -> None:
    """USUB (Fig. 3 lines 20-26, Fig. 6 lines 29-37). An unknown subscription is no error."""
    interest = peer.subscriptions.get(message.subscription_id)
    if interest is not None:
        peer.stale_subscriptions.pop(message.subscription_id, None)
        exchange(tables, call, tables.types[interest.filter.event_type.name], peer, [], [interest])


def on_expire(tables: Tables, call: Call, message: Expire, peer: Peer) -> None:
    """As USUB, without an epoch; the client gets Expired."""
    interest = peer.subscriptions.get(message.subscription_id)
    if interest is not None:
        name = interest.filter.event_type.name
        peer.stale_subscriptions.pop(message.subscription_id, None)
        exchange(tables, call, tables.types[name], peer, [], [interest])
        call.send(peer, Expired(message.subscription_id, name))


def _check_room(
    state: TypeState, peer: Peer, filter: Filter, values: Mapping[str, Scalar], old: Interest | None
) -> None:
    matching = state.links if peer.is_broker else state.sessions
    matching.check_room(filter, values, -1 if old is None else old.uid)


def _status(error: Exception) -> str:
    if isinstance(error, CapacityError):
        return "RESOURCE_EXHAUSTED"
    return "INVALID_ARGUMENT" if isinstance(error, FilterError) else "ALREADY_EXISTS"


def _checked(
    tables: Tables,
    call: Call,
    peer: Peer,
    filter: Filter,
    values: Mapping[str, Scalar],
    *,
    partial: bool = False,
) -> dict[str, Scalar]:
    """Checked values. Motion is accepted from clients under parametric routing."""
    try:
        return filter.check_values(values, partial=partial)
    except VariableError:
        if not moves(values):
            raise
    if peer.is_broker or not tables.accepts_motion:
        raise VariableError(
            f"a variable that moves by itself: expected a number, from {peer.name} and under routing "
            f"{tables.routing} with engine {tables.engine}"
        )
    return check_values(filter, values, partial=partial, now_ns=call.now_ns)


def _replay_since(tables: Tables, call: Call, peer: Peer, interest: Interest, since_ns: int) -> None:
    state = tables.types[interest.filter.event_type.name]
    for neighbour, slot in state.covering_slots(interest):
        request(tables, call, state, tables.peers[neighbour], slot, interest, since_ns=since_ns)
    for replayed in replay(interest, peer, state, tables.results, since_ns):
        peer.counters.events_sent += len(replayed.batch)
        call.send(peer, replayed)


def replay(
    interest: Interest, peer: Peer, state: TypeState, results: TravellingResults, since_ns: int
) -> Iterator[Publish | Deliver]:
    ring = state.ring
    if ring is None:
        return
    if peer.is_broker:
        if peer.name not in state.advertised_to:
            return  # the advertisement was withdrawn: events would meet no interest there
        for batch in ring.to_link(peer.serial, peer.number, interest, since_ns, state.links):
            yield Publish(results.sealed(batch), True)
        return
    subscription_id = interest.subscription_id
    for batch, is_unsure in ring.to_session(peer.serial, interest, since_ns, state.sessions):
        own = results.sealed(batch, peer.call_keys() if is_unsure else ())
        ids = np.full(len(batch), subscription_id, np.int64)
        yield Deliver(own, np.arange(len(batch) + 1), ids, 0 if is_unsure else peer.received, True)
