"""Requests for earlier events through the slot that covers an interest: replays, and last events of keys.

A neighbour answers a request by what the slot has when the request arrives. On a busy link that may be newer:
an Update that waits absorbs later ones of its slot (`link/control_queue.py`). Another interest may have moved
the slot from the one that has asked, which a third slot covers by then. So until a request is acknowledged it
stays with its slot, and is made again through the other one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from covey.overlay.core.messages import Unsubscribe, Update
from covey.overlay.core.routing.slots import Request

if TYPE_CHECKING:
    from covey.overlay.core.covering.interest import Interest
    from covey.overlay.core.routing.call import Call
    from covey.overlay.core.routing.peers import Peer
    from covey.overlay.core.routing.slots import Slot, SlotMessage
    from covey.overlay.core.routing.tables import Tables
    from covey.overlay.core.routing.type_state import TypeState


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
    """Have a neighbour replay the events since, or send the last ones of keys, that match a slot: for the
    interest that it covers, or None for whatever it has. The epoch of the request.
    """
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
    """The slots of a neighbour have changed by these messages: make requests again of interests that another
    slot covers now. Whoever has asked waits for these as well.
    """
    requests = state.outgoing[neighbour.name].requests
    for message in messages:
        if isinstance(message, Unsubscribe):
            requests.pop(message.subscription_id, None)
        if not isinstance(message, Update):
            continue  # a request that is pending absorbs none of these
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
                continue  # its source has lost its state, and says all of it again
            waits = {neighbour.name: epoch}
            tables.acks.open(interest.interface, interest.epoch, waits)
            if for_views:
                state.answers.open_request(interest.interface, interest.epoch, interest.epoch, waits)
