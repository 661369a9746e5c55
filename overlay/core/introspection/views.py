"""A broker's state for people (`render`) and for tools (`inspect`). Read-only."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.covering.poset import Poset
from covey.overlay.core.merging.merging import Bundle
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.slots import Slot
from covey.overlay.core.routing.type_state import TypeState

if TYPE_CHECKING:
    from covey.overlay.core.routing.broker import Broker

_EVENT_MESSAGES = ("Publish", "Deliver")


def slot_text(slot: Slot) -> str:
    """A slot's content, as text of the filter language."""
    return str(slot.structure.substitute(slot.values)) or "true"


def render(broker: Broker, listed: int | None = None) -> str:
    """Types, publishers, interest as trees of posets, and slots; one item per line.

    At most `listed` lines for the interest of a group and for the slots at a neighbour, with the number of
    further ones; all if it is None.
    """
    lines = [
        f"broker {broker.tables.broker_id}, routing {broker.tables.routing}, engine {broker.tables.engine}"
    ]
    lines += [f"  {name}: not synced yet, acknowledgements wait for it" for name in broker.tables.unsynced]
    pending = broker.tables.acks.pending()
    for peer in broker.tables.peers.all():
        epochs = pending.get(peer.name)
        waits = f", unacknowledged: {', '.join(map(str, epochs))}" if epochs else ""
        lines.append(f"  {peer.name}: {len(peer.subscriptions)} subscriptions, epoch {peer.received}{waits}")
    for state in broker.tables.types.values():
        attributes = ", ".join(f"{name} {kind}" for name, kind in state.event_type.attributes.items())
        lines.append(f"type {state.event_type.name} ({attributes})")
        lines.append(f"  publishers: {', '.join(state.publishers) or 'none'}")
        for group, poset in state.groups.items():
            lines.append(f"  interest of {group}:")
            lines += _tree(poset, listed)
        for neighbour, outgoing in state.outgoing.items():
            lines.append(f"  slots at {neighbour}:")
            for slot in islice(outgoing.slots, listed):
                waiting = broker.tables.acks.outstanding(neighbour, slot.epoch)
                lines.append(
                    f"    slot {slot.slot_id}: {slot_text(slot)}"
                    f" <- {_origin(slot)}"
                    f"{' (not yet acknowledged)' if waiting else ''}"
                )
            lines += _more(len(outgoing.slots), listed)
    return "\n".join(lines)


def _origin(slot: Slot) -> str:
    """The subscription that a slot is for, or the number of its roots."""
    root = slot.content.root if isinstance(slot.content, Bundle) and slot.content.size == 1 else slot.content
    if isinstance(root, Interest):
        return f"{root.interface}#{root.subscription_id}"
    return f"{root.size} roots" if isinstance(root, Bundle) else "a root"


def _more(count: int, listed: int | None) -> list[str]:
    return [] if listed is None or count <= listed else [f"    and {count - listed} more"]


def _tree(poset: Poset, listed: int | None) -> list[str]:
    """The first nodes of a poset, each below its witness."""
    if listed == 0:
        return _more(len(poset), listed)
    below: dict[int, list[Interest]] = {}
    for node in poset.nodes():
        witness = poset.witness_of(node)
        if witness is not None:
            below.setdefault(witness.uid, []).append(node)
    lines: list[str] = []
    stack = [(root, 0) for root in reversed(list(poset.roots()))]
    while stack and len(lines) != listed:
        node, depth = stack.pop()
        lines.append(f"    {'  ' * depth}{node.concrete()} <- {node.interface}#{node.subscription_id}")
        stack += [(child, depth + 1) for child in reversed(below.get(node.uid, []))]
    return lines + _more(len(poset), listed)


def inspect(broker: Broker, listed: int | None = None) -> dict[str, Any]:
    """State and counters as plain values that JSON can hold; ids are strings, as JSON's keys are.

    At most `listed` subscriptions of a type and slots at a neighbour; `interests` and `slots_in_use` have
    their numbers. All if it is None.
    """
    peers = broker.tables.peers.all()
    pending, awaited = broker.tables.acks.pending(), broker.tables.acks.awaited()
    return {
        "broker": broker.tables.broker_id,
        "routing": broker.tables.routing,
        "engine": broker.tables.engine,
        "unsynced": list(broker.tables.unsynced),
        "interfaces": {
            peer.name: {
                "epoch_received": peer.received,
                "epoch_acknowledged": peer.acknowledged,
                "epoch_sent": peer.epoch,
                "unacknowledged": pending.get(peer.name, []),
                "awaited": awaited.get(peer.name, []),
                "subscriptions": len(peer.subscriptions),
                **peer.counters.to_dict(),
            }
            for peer in peers
        },
        "types": {name: _inspect_type(state, listed) for name, state in broker.tables.types.items()},
        "totals": _totals(peers),
    }


def _inspect_type(state: TypeState, listed: int | None) -> dict[str, Any]:
    interest: dict[str, dict[str, str]] = {}
    for node in islice(state.interests(), listed):
        interest.setdefault(node.interface, {})[str(node.subscription_id)] = node.concrete()
    return {
        "attributes": {name: str(kind) for name, kind in state.event_type.attributes.items()},
        "publishers": list(state.publishers),
        "advertised_to": list(state.advertised_to),
        "contents": {name: str(promise.filter) for name, promise in state.promises.items()},
        "replay": {} if state.ring is None else state.ring.inspect(),
        "interests": sum(len(poset) for poset in state.groups.values()),
        "interest": interest,
        "slots_in_use": {neighbour: len(outgoing.slots) for neighbour, outgoing in state.outgoing.items()},
        "slots": {
            neighbour: {str(slot.slot_id): slot_text(slot) for slot in islice(outgoing.slots, listed)}
            for neighbour, outgoing in state.outgoing.items()
        },
    }


def _totals(peers: list[Peer]) -> dict[str, Any]:
    received: dict[str, int] = {}
    sent: dict[str, int] = {}
    for peer in peers:
        for total, counted in ((received, peer.counters.received), (sent, peer.counters.sent)):
            for kind, count in counted.items():
                total[kind.__name__] = total.get(kind.__name__, 0) + count
    return {
        "received": received,
        "sent": sent,
        "control_received": sum(n for kind, n in received.items() if kind not in _EVENT_MESSAGES),
        "control_sent": sum(n for kind, n in sent.items() if kind not in _EVENT_MESSAGES),
        "events_received": sum(peer.counters.events_received for peer in peers),
        "events_sent": sum(peer.counters.events_sent for peer in peers),
        "events_dropped": sum(peer.counters.events_dropped for peer in peers),
        "events_unwanted": sum(peer.counters.events_unwanted for peer in peers),
    }
