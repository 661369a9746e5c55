"""Advertise and Unadvertise: which interfaces publish a type, and to which neighbours that is forwarded.

An Advertise with more attributes than a neighbour has seen widens the type there, and goes on likewise: an
attribute passes each link once. Schemas are united by attributes' names, so the order of widenings does not
matter. One that does not agree with the type is refused; the refusal goes back to the publishers that
declared it, not to those whose schema was accepted before."""

from __future__ import annotations

from covey.matcher.errors import EventTypeError
from covey.overlay.core.messages import Advertise, Refuse, Subscribe, Unadvertise
from covey.overlay.core.routing import durable_keys
from covey.overlay.core.routing.interest_changes import forward
from covey.overlay.core.routing.keyed import ask_for_views, retire_source
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.promises import covers
from covey.overlay.core.routing.tables import Call, Tables
from covey.overlay.core.routing.type_state import Advertised, TypeState


def on_advertise(tables: Tables, call: Call, message: Advertise, peer: Peer) -> None:
    """AD (Fig. 3 lines 5-7): floods away from its source, and existing interest flows to the source."""
    event_type = message.event_type
    if message.filter is not None and (message.filter.variables or message.filter.calls):
        without = "variables" if message.filter.variables else "calls of operators"
        reason = f"advertisement of {event_type.name} with {message.filter}: expected no {without}"
        call.refuse(peer, message, "INVALID_ARGUMENT", reason, event_type.name)
        return
    try:
        state = tables.declare(event_type)
    except EventTypeError as error:
        call.refuse(peer, message, "ALREADY_EXISTS", str(error), event_type.name)
        return
    if event_type == state.event_type:
        event_type = state.event_type  # so that a batch's schema is compared by identity
    known = state.declared.get(peer.name)
    if known is not None and peer.name not in state.refused:
        event_type = known.union(event_type)
    state.refused.pop(peer.name, None)
    state.declared[peer.name] = event_type
    state.publishers[peer.name] = peer.advertised[event_type.name] = message.epoch
    rescoped = state.set_promise(peer.name, message.filter)
    tables.changes += rescoped or event_type != known
    peer.stale_types.pop(event_type.name, None)
    tables.listeners.set(peer, event_type.name, report=message.report_listeners)
    for neighbour in tables.peers.neighbours():
        if neighbour is not peer:
            _forward_advertisement(tables, call, state, neighbour)
    if not peer.is_broker:
        durable_keys.claim(state, peer)
        return
    outgoing = state.outgoing.get(peer.name)
    if outgoing is None:  # not of a type that floods
        forward(tables, call, state, [(peer.name, state.open(peer.name, tables.new_slots(peer)))])
        ask_for_views(tables, call, state, peer)
        return
    messages = state.rescope(peer.name) if rescoped and not state.floods else []
    messages += outgoing.slots.resend(refused_only=True)
    forward(tables, call, state, [(peer.name, messages)])
    if any(isinstance(each, Subscribe) for each in messages):  # the neighbour did not have this interest
        ask_for_views(tables, call, state, peer)


def _forward_advertisement(tables: Tables, call: Call, state: TypeState, neighbour: Peer) -> None:
    name = neighbour.name
    promise, schema = state.promise_for(name), state.schema_for(name)
    sent = state.advertised_to.get(name)
    accepted = None
    if sent is not None:
        if not sent.refused and covers(sent.promise, promise) and sent.schema.includes(schema):
            call.wait_for(name, sent.epoch)
            return
        pending = sent.refused or tables.acks.outstanding(name, sent.epoch)
        accepted = sent.accepted if pending else sent.schema
    epoch = tables.acks.next_epoch(name)
    state.advertised_to[name] = Advertised(epoch, schema, promise, accepted)
    call.control(neighbour, Advertise(epoch, schema, promise))


def on_unadvertise(tables: Tables, call: Call, message: Unadvertise, peer: Peer) -> None:
    """Void if the sender has advertised again since: an Advertise may overtake an Unadvertise."""
    if message.epoch > peer.advertised.get(message.type_name, message.epoch):
        peer.stale_types.pop(message.type_name, None)
        withdraw(tables, call, tables.types[message.type_name], peer)


def withdraw(tables: Tables, call: Call, state: TypeState, peer: Peer) -> None:
    """An interface no longer publishes this type. No acknowledgement waits for the Unadvertises sent."""
    tables.changes += 1
    name = state.event_type.name
    if not (state.floods and peer.is_broker):  # such a neighbour sends departures, and may have more
        retire_source(tables, call, state, peer.name, peer.serial)
        state.answers.remove_neighbour(peer.name)
    del state.publishers[peer.name], state.declared[peer.name], peer.advertised[name]
    state.refused.pop(peer.name, None)
    state.set_promise(peer.name, None)
    tables.listeners.remove(peer, name)
    for neighbour in list(state.advertised_to):
        if not any(publisher != neighbour for publisher in state.publishers):
            del state.advertised_to[neighbour]
            other = tables.peers[neighbour]
            call.send(other, Unadvertise(tables.acks.next_epoch(other.name), name))
    tables.answering[name] = None
    if peer.name in state.outgoing and not state.floods:
        messages = state.close(peer.name)
        if tables.peers.get(peer.name) is peer:
            forward(tables, call, state, [(peer.name, messages)])
    if state.idle:
        tables.maybe_idle[name] = None


def on_refuse(tables: Tables, call: Call, message: Refuse, peer: Peer) -> None:
    """A neighbour refused a slot, or an advertisement, whose refusal goes on to the publishers."""
    if not peer.is_broker:
        return
    state = tables.types.get(message.type_name)
    if message.subscription_id:
        for each in [state for state in tables.types.values() if peer.name in state.outgoing]:
            slot = each.outgoing[peer.name].slots.get(message.subscription_id)
            if slot is not None:
                slot.refused = True
                durable_keys.on_refused_slot(tables, call, each, peer, max(message.epoch, slot.epoch))
        return
    sent = None if state is None else state.advertised_to.get(peer.name)
    if state is None or sent is None or sent.epoch != message.epoch:
        return
    sent.refused = True
    for name, epoch in state.publishers.items():
        accepted = sent.accepted is not None and sent.accepted.includes(state.declared[name])
        if name != peer.name and not accepted:
            state.refused[name] = None
            refusal = Refuse(epoch, message.status, message.reason, type_name=message.type_name)
            call.send(tables.peers[name], refusal)
