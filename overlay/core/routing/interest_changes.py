"""Changes of interest, and the messages to neighbours that follow.

A change goes to the group's poset and from there to the posets of the neighbours that publish
(`type_state.py`), then to slots (`slots.py`). It is acknowledged when the slots that cover its subject have
been.

*Requests* for earlier events (replays, last events of keys) go through the slot that covers an interest. A
neighbour answers by the slot's values of that time, which on a busy link may be newer, since a waiting Update
absorbs later ones (`link/control_queue.py`), and another slot may cover the interest by then. So a request is
kept until acknowledged, and repeated through the other slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from covey.overlay.core.covering.interest import Interest, group_of
from covey.overlay.core.messages import Interface, Unsubscribe, Update
from covey.overlay.core.moving.motion import moves
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.slots import Request, SlotMessage
from covey.overlay.core.routing.tables import Call, Tables
from covey.overlay.core.routing.type_state import TypeState

if TYPE_CHECKING:
    from covey.matcher.expressions.expression import Scalar
    from covey.overlay.core.routing.slots import Slot


def exchange(
    tables: Tables,
    call: Call,
    state: TypeState,
    peer: Peer,
    entered: Sequence[Interest],
    left: Sequence[Interest],
) -> None:
    matching = state.links if peer.is_broker else state.sessions
    tables.listeners.touch(state.event_type.name)
    tables.changes += 1
    for interest in left:
        del peer.subscriptions[interest.subscription_id]
        matching.discard(interest)
        if state.keys is not None:
            state.keys.views.discard(interest.uid)
        tables.moving.discard(interest)
    for interest in entered:
        peer.subscriptions[interest.subscription_id] = interest
        announce(tables, call, peer, interest, moving=moves(interest.values))
        put(tables, call, state, peer, interest)
    forward(tables, call, state, state.change(group_of(peer.name), entered=entered, left=left))
    for interest in left:
        tables.registry.release(interest)
    for interest in entered:
        wait_for_cover(tables, call, state, interest)
    if left and state.idle:
        tables.maybe_idle[state.event_type.name] = None


def move(
    tables: Tables, call: Call, peer: Peer, interest: Interest, values: Mapping[str, Scalar]
) -> Interest:
    """Apply new values, under static routing by a new subscription; returns the interest that has them."""
    state = tables.types[interest.filter.event_type.name]
    if not values.items() <= interest.values.items():
        tables.changes += 1
        if not tables.parametric:
            values = {**interest.values, **values}
            new = tables.registry.make(
                peer.name, peer.number, interest.subscription_id, interest.filter, values
            )
            exchange(tables, call, state, peer, [new], [interest])
            return new
    if tables.accepts_motion and not peer.is_broker and moves(values):
        announce(tables, call, peer, interest, moving=True)
    moved = interest.move(values, call.now_ns)
    put(tables, call, state, peer, interest)
    if moved:
        if tables.listeners.reported:
            tables.listeners.touch(state.event_type.name)
        messages = state.change(interest.group, moved=[interest])
        if messages:
            forward(tables, call, state, messages)
    if state.outgoing:
        wait_for_cover(tables, call, state, interest)
    return interest


def renew_moving(tables: Tables, call: Call) -> None:
    """Renew engine bounds of moving interests, and announcements that end soon."""
    for interest in tables.moving.due(call.now_ns):
        state, peer = tables.types[interest.filter.event_type.name], tables.peers[interest.interface]
        put(tables, call, state, peer, interest)
        announcement = interest.announcement
        if announcement is not None and announcement.due(call.now_ns) and interest.move({}, call.now_ns):
            tables.listeners.touch(state.event_type.name)
            forward(tables, call, state, state.change(interest.group, moved=[interest]))


def put(tables: Tables, call: Call, state: TypeState, peer: Peer, interest: Interest) -> None:
    matching = state.links if peer.is_broker else state.sessions
    still = interest.announcement is None  # moving interests are announced
    matching.put(interest if still else tables.moving.matched(interest, call.now_ns), peer.number)
    if interest.filter.calls:
        peer.changed_calls = True


def announce(tables: Tables, call: Call, peer: Peer, interest: Interest, *, moving: bool) -> None:
    """For damping or motion, of clients only: a neighbour's slot holds announced values."""
    if interest.announcement is None and not peer.is_broker and (tables.damping or moving):
        interest.announce(tables.damping, call.now_ns)


def forward(
    tables: Tables,
    call: Call,
    state: TypeState,
    messages: Iterable[tuple[Interface, list[SlotMessage]]],
) -> None:
    for neighbour, slot_messages in messages:
        peer = tables.peers[neighbour]
        for message in slot_messages:
            call.control(peer, message)
        outgoing = state.outgoing.get(neighbour)
        if outgoing is not None and outgoing.requests:
            repeat(tables, call, state, peer, slot_messages)


def wait_for_cover(tables: Tables, call: Call, state: TypeState, interest: Interest) -> None:
    """Wait for the slots that cover an interest: a covered change has taken effect when its root has."""
    acks = tables.acks
    for neighbour in state.outgoing:
        if neighbour == interest.group or call.waits.get(neighbour) == acks.newest_sent(neighbour):
            continue  # already awaited
        if acks.settled(neighbour):
            continue
        slot = state.covering_slot(interest, neighbour)
        if slot is not None and acks.outstanding(neighbour, slot.epoch):
            call.wait_for(neighbour, slot.epoch)


def request(
    tables: Tables,
    call: Call,
    state: TypeState,
    neighbour: Peer,
    slot: Slot,
    interest: Interest | None = None,
    *,
    since_ns: int = 0,
    for_views: bool = False,
) -> int:
    """Request a replay since `since_ns`, or the last events of keys, that match a slot: for an interest that
    it covers, or None for all. Returns the epoch of the request."""
    epoch = slot.epoch = tables.acks.next_epoch(neighbour.name)
    for_epoch = epoch if for_views else 0
    call.control(neighbour, Update(epoch, slot.slot_id, {}, since_ns, for_views=for_epoch))
    if for_views:
        state.answers.sent(neighbour.name, epoch)
    if interest is not None:
        made = Request(epoch, since_ns, for_views)
        acknowledged = tables.acks.newest_acknowledged(neighbour.name)
        state.outgoing[neighbour.name].requests.note(slot.slot_id, interest, made, acknowledged)
    return epoch


def repeat(
    tables: Tables, call: Call, state: TypeState, neighbour: Peer, messages: Iterable[SlotMessage]
) -> None:
    """After these messages about a neighbour's slots, repeat requests of interests that another slot covers
    now. Their sources wait for these as well."""
    requests = state.outgoing[neighbour.name].requests
    for message in messages:
        if isinstance(message, Unsubscribe):
            requests.pop(message.subscription_id, None)
        if not isinstance(message, Update):
            continue  # only Updates absorb a pending request
        made_through = requests.get(message.subscription_id, {})
        for interest, made in list(made_through.items()):
            slot = None
            if tables.acks.outstanding(neighbour.name, made.epoch) and state.has(interest):
                slot = state.covering_slot(interest, neighbour.name)
            if slot is not None and slot.slot_id == message.subscription_id:
                continue
            del made_through[interest]
            if slot is None:
                continue
            _, since_ns, for_views = made
            epoch = request(
                tables, call, state, neighbour, slot, interest, since_ns=since_ns, for_views=for_views
            )
            if interest.epoch > tables.peers[interest.interface].received:
                continue  # its source has lost its state and will repeat it
            waits = {neighbour.name: epoch}
            tables.acks.open(interest.interface, interest.epoch, waits)
            if for_views:
                state.answers.open_request(interest.interface, interest.epoch, interest.epoch, waits)
