"""Interfaces that connect, lose their state, and disconnect; resynchronisation.

A neighbour that connects gets the whole control state between SyncBegin and SyncEnd, as ordinary messages.
Its own earlier state stays until its SyncEnd; what it has not repeated by then is void."""

from __future__ import annotations

from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.messages import (
    Advertise,
    AwaitClients,
    Connect,
    Disconnect,
    SyncBegin,
    SyncEnd,
    Withdraw,
)
from covey.overlay.core.routing import durable_keys
from covey.overlay.core.routing.acks import UNSYNCED
from covey.overlay.core.routing.advertisements import withdraw
from covey.overlay.core.routing.interest_changes import exchange
from covey.overlay.core.routing.keyed import ask_for_views, retire_source
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.tables import Call, Tables
from covey.overlay.core.routing.type_state import Advertised


def on_connect(tables: Tables, call: Call, message: Connect) -> None:
    name = call.source
    peer = tables.peers.get(name)
    if peer is None:
        peer = tables.peers.add(name)
    else:
        peer.received = peer.acknowledged = 0
        peer.synced = False
        tables.acks.remove_source(name)
        for state in tables.types.values():
            state.answers.remove_source(name)
    if not peer.is_broker:
        return
    for state in tables.types.values():
        state.answers.defer(name, UNSYNCED)
        if state.floods:
            durable_keys.outdate(state, peer)
        else:
            retire_source(tables, call, state, name, peer.serial)
        if state.keys is not None:
            state.keys.links.lose(name)
    call.send(peer, SyncBegin())
    for state in tables.types.values():
        if any(publisher != name for publisher in state.publishers):
            state.advertised_to.pop(name, None)
            promise, schema = state.promise_for(name), state.schema_for(name)
            sent = state.advertised_to[name] = Advertised(tables.acks.next_epoch(name), schema, promise)
            call.send(peer, Advertise(sent.epoch, schema, promise))
    for state in tables.types.values():
        if name in state.outgoing:
            messages = state.outgoing[name].slots.resend()
        else:
            messages = state.open(name, tables.new_slots(peer)) if state.floods else []
        for each in messages:
            call.send(peer, each)
    tables.pending_sync_ends[name] = None
    _send_sync_ends(tables, call)
    tables.acks.defer(name, tables.acks.newest_sent(name))


def _send_sync_ends(tables: Tables, call: Call) -> None:
    """Send the pending SyncEnds for which all other neighbours have synced.

    A neighbour drops what a restarted broker has not repeated by its SyncEnd, so the broker needs the state
    of the others first. Without cycles that waiting ends. It also waits for clients (`AwaitClients`)."""
    if tables.awaiting_clients:
        return
    for name in list(tables.pending_sync_ends):
        if all(other == name for other in tables.unsynced):
            del tables.pending_sync_ends[name]
            peer = tables.peers[name]
            call.send(peer, SyncEnd(tables.acks.next_epoch(name)))


def on_await_clients(tables: Tables, call: Call, message: AwaitClients) -> None:
    tables.awaiting_clients = message.begin
    _send_sync_ends(tables, call)


def on_disconnect(tables: Tables, call: Call, message: Disconnect, peer: Peer) -> None:
    tables.peers.remove(peer)
    tables.listeners.remove(peer)
    tables.acks.remove_source(peer.name)
    for state in tables.types.values():
        state.answers.remove_source(peer.name)
        state.advertised_to.pop(peer.name, None)
        if state.keys is not None:
            state.keys.links.discard(peer.name)
        if state.floods:
            state.outgoing.pop(peer.name, None)
            state.viewing.pop(peer.name, None)
            state.outdated.pop(peer.name, None)
    _revoke(tables, call, peer, list(peer.subscriptions), list(peer.advertised))
    if not peer.is_broker:
        durable_keys.retire_restored(tables, call, peer)
    else:
        for name, state in tables.types.items():
            retire_source(tables, call, state, peer.name, peer.serial)
            state.answers.remove_neighbour(peer.name)
            tables.answering[name] = None
        tables.acks.remove_neighbour(peer.name)
        tables.pending_sync_ends.pop(peer.name, None)
        tables.unsynced.pop(peer.name, None)
        _send_sync_ends(tables, call)


def on_withdraw(tables: Tables, call: Call, message: Withdraw, peer: Peer) -> None:
    """Subscriptions of a client that has left, or has not repeated them, are void."""
    for each in message.subscription_ids:
        peer.stale_subscriptions.pop(each, None)
    _revoke(tables, call, peer, [each for each in message.subscription_ids if each in peer.subscriptions], [])


def on_sync_begin(tables: Tables, call: Call, message: SyncBegin, peer: Peer) -> None:
    """A restarted neighbour numbers slots from 1 again, so its stale slots, still needed, get other ids."""
    if peer.is_broker:
        for interest in peer.subscriptions.values():
            if interest.subscription_id > 0:
                tables.registry.rename(interest, peer.next_stale_id())
        peer.subscriptions = {i.subscription_id: i for i in peer.subscriptions.values()}
    peer.stale_subscriptions = dict.fromkeys(peer.subscriptions)
    peer.stale_types = dict.fromkeys(peer.advertised)


def on_sync_end(tables: Tables, call: Call, message: SyncEnd, peer: Peer) -> None:
    peer.synced = True
    subscriptions, types = list(peer.stale_subscriptions), list(peer.stale_types)
    peer.stale_subscriptions, peer.stale_types = {}, {}
    _revoke(tables, call, peer, subscriptions, types)
    if not peer.is_broker:
        durable_keys.retire_restored(tables, call, peer)
    for name, state in tables.types.items() if peer.is_broker else ():
        requested = ask_for_views(tables, call, state, peer)
        state.answers.synced(peer.name, requested)
        durable_keys.requested_again(tables, call, state, peer, requested)
        tables.answering[name] = None
    if peer.name in tables.unsynced:
        del tables.unsynced[peer.name]
        tables.acks.synced(peer.name, tables.acks.newest_sent(peer.name))
        _send_sync_ends(tables, call)


def _revoke(tables: Tables, call: Call, peer: Peer, subscriptions: list[int], types: list[str]) -> None:
    by_type: dict[str, list[Interest]] = {}
    for subscription_id in subscriptions:
        interest = peer.subscriptions[subscription_id]
        by_type.setdefault(interest.filter.event_type.name, []).append(interest)
    for name, interests in by_type.items():
        exchange(tables, call, tables.types[name], peer, [], interests)
    for name in types:
        withdraw(tables, call, tables.types[name], peer)
