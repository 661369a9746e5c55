"""Last events of keys of durable types: how views get them, and how they outlive a restart.

Stored events come again after a crash, and late to a receiver that is behind, while `keyed.py` needs one
order of each key on a link. So views get the events beside the stored ones, as `live` Publish and Deliver,
which are neither stored nor sent again. The broker at which an event is published creates them, and stores
the event with its client's name as a receiver (`KEYS`).

A restarted broker gets these records again (RestoreKeys). The keys stay while their publisher may come back,
which claims them when it advertises; the others leave (EndRestored). Keys that left with their publisher have
a record (`ENDED`). Keys of a neighbour that has lost its state stay, *outdated*, until it has sent its
present ones; the others leave."""

from __future__ import annotations

from covey.matcher.errors import EventTypeError
from covey.matcher.events.batch import EventBatch
from covey.overlay.core.messages import Answered, Publish, RestoreKeys
from covey.overlay.core.routing.dispatch import Dispatch
from covey.overlay.core.routing.keyed import (
    ask_through_another,
    followed_by_links,
    followed_by_views,
    retire,
    retire_source,
)
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.tables import Call, Tables
from covey.overlay.core.routing.type_state import TypeState


def live(tables: Tables, call: Call, batch: EventBatch, state: TypeState, source: Peer) -> Dispatch | None:
    """Make stored events of a client the last of their keys; returns their way to views, if any."""
    if source.name not in state.stored:
        state.stored[source.name] = _first(batch)
    message = Publish(batch.with_results(None), for_views=True, live=True)
    dispatched = Dispatch(message, source, state, tables.results)
    if state.has_views:
        return dispatched
    followed_by_links(tables, call, dispatched, source)
    followed_by_views(tables, call, dispatched)
    return None


def _first(batch: EventBatch) -> EventBatch:
    """A copy of the first event, which keeps no other one in memory."""
    return EventBatch.from_pylist(
        batch.event_type,
        batch.slice(0, 1).to_pylist(),
        publisher=batch.publisher,
        first_sequence=int(batch.sequences()[0]),
        ingress_ns=batch.ingress_ns,
    )


# --- a restart of this broker -----------------------------------------------------------------------------


def on_restore_keys(tables: Tables, call: Call, message: RestoreKeys) -> None:
    """Events without a key, or whose schema does not agree any more, are ignored."""
    batch, name = message.batch, message.batch.event_type.name
    try:
        state = tables.declare(batch.event_type)
    except EventTypeError:
        return
    table = state.keys
    if table is None:
        tables.maybe_idle[name] = None  # the type was declared for this alone
        return
    serial = state.restored.get(message.interface)
    if serial is None:
        serial = state.restored[message.interface] = tables.peers.next_serial()
    if message.ended:
        state.stored.pop(message.interface, None)
        table.drop(table.of_source(serial))
        return
    if message.interface not in state.stored:
        state.stored[message.interface] = _first(batch)
    table.take(batch, serial, message.stored_ns)
    tables.key_ages.stored(name, int(message.stored_ns.min()))
    while len(excess := table.excess()):
        table.evicted += len(excess)
        table.drop(excess)


def claim(state: TypeState, source: Peer) -> None:
    serial = state.restored.pop(source.name, None)
    if serial is not None and state.keys is not None:
        state.keys.give(serial, source.serial)


def retire_restored(tables: Tables, call: Call, source: Peer | None = None) -> None:
    """Restored keys that `source`, or any publisher, has not claimed leave all views, for good."""
    for name in tables.durable:
        state = tables.types.get(name)
        if state is None:
            continue
        for interface in [source.name] if source is not None else list(state.restored):
            serial = state.restored.pop(interface, None)
            if serial is not None:
                retire_source(tables, call, state, interface, serial)
                tables.maybe_idle[name] = None


# --- a restart of a neighbour -------------------------------------------------------------------------------


def outdate(state: TypeState, neighbour: Peer) -> None:
    if state.keys is not None:
        state.outdated[neighbour.name] = state.keys.next_batch, 0


def requested_again(tables: Tables, call: Call, state: TypeState, neighbour: Peer, epoch: int) -> None:
    """The neighbour's keys were requested up to this epoch, 0 for no request."""
    if neighbour.name in state.outdated:
        before, _ = state.outdated[neighbour.name]
        state.outdated[neighbour.name] = before, epoch
        if not epoch:
            answered(tables, call, state, neighbour, 0)


def on_answered(tables: Tables, call: Call, message: Answered, peer: Peer) -> None:
    """A neighbour has sent all that was requested."""
    state = tables.types.get(message.type_name)
    if state is not None and peer.is_broker:
        state.answers.acknowledged(peer.name, message.epoch)
        tables.answering[message.type_name] = None
        answered(tables, call, state, peer, message.epoch)


def on_refused_slot(tables: Tables, call: Call, state: TypeState, neighbour: Peer, epoch: int) -> None:
    """A neighbour has refused a slot, and requests through it up to this epoch, since the link may have
    merged them. The refusal has overtaken events that answer requests through other slots, so a new request
    through one of these covers all."""
    requested = ask_through_another(tables, call, state, neighbour)
    if requested:
        before, awaited = state.outdated.get(neighbour.name, (0, 0))
        if awaited:
            state.outdated[neighbour.name] = before, requested
        return
    state.answers.refused(neighbour.name, epoch)
    answered(tables, call, state, neighbour, epoch)
    tables.answering[state.event_type.name] = None


def answered(tables: Tables, call: Call, state: TypeState, neighbour: Peer, epoch: int) -> None:
    """All requested up to this epoch has arrived: earlier keys that were not sent again leave."""
    before, awaited = state.outdated.get(neighbour.name, (0, 0))
    if neighbour.name in state.outdated and epoch >= awaited and (awaited or not epoch):
        del state.outdated[neighbour.name]
        if state.keys is not None:
            retire(tables, call, state.keys, state.keys.of_source(neighbour.serial, before))
