"""A broker's state for people (`render`) and for tools (`inspect`). Read-only.

Invariant: a bounded listing costs at most `TOTAL` items whatever the broker stores, long texts counting as
several, so that it never delays events; items left off are counted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.covering.poset import Poset
from covey.overlay.core.merging.merging import Bundle
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.slots import Slot
from covey.overlay.core.routing.type_state import TypeState

if TYPE_CHECKING:
    from covey.overlay.core.routing.broker import Broker


T = TypeVar("T")

DEFAULT_LISTED = 100
MAX_LISTED = 1_000
TOTAL = 2_000
_LONGEST_TEXT = 2_000
_ITEM_TEXT = 200
"""Characters of text that cost as much as an item."""


class Listing:
    """At most `listed` items of each list, and `TOTAL` of all; everything if None."""

    def __init__(self, listed: int | None) -> None:
        self.listed = listed
        self.left_off: dict[str, int] = {}
        self._left = TOTAL

    def first(self, items: Iterable[T], count: int, name: str) -> Iterator[T]:
        """The listed ones of `count` items."""
        room = count if self.listed is None else min(count, self.listed)
        shown = 0
        for item in islice(items, room):
            if self.listed is not None and self._left <= 0:
                break
            self._left -= 1
            shown += 1
            yield item
        if shown < count:
            self.left_off[name] = count - shown

    def text(self, text: str) -> str:
        if self.listed is None:
            return text
        self._left -= len(text) // _ITEM_TEXT
        if len(text) <= _LONGEST_TEXT:
            return text
        return f"{text[:_LONGEST_TEXT]} ... ({len(text):,} characters)"

    def of(self, *names: str) -> dict[str, int]:
        """Remove and return the counts left off of these lists."""
        return {name: self.left_off.pop(name) for name in names if name in self.left_off}

    def more(self, name: str, indent: str = "    ") -> list[str]:
        return [f"{indent}and {count:,} more" for count in self.of(name).values()]


_EVENT_MESSAGES = ("Publish", "Deliver")
_LISTED_EPOCHS = 10


def slot_text(slot: Slot) -> str:
    return str(slot.structure.substitute(slot.values)) or "true"


def render(broker: Broker, listed: int | None = None) -> str:
    """Types, publishers, interest as trees of posets, and slots; one item per line. At most `listed` items of
    each list and `TOTAL` of all; all if None. Neighbours are always listed. Cost: O(items listed +
    interfaces)."""
    listing = Listing(listed)
    tables = broker.tables
    lines = [f"broker {tables.broker_id}, routing {tables.routing}, engine {tables.engine}"]
    lines += [f"  {name}: not synced yet, acknowledgements wait for it" for name in tables.unsynced]
    for peer in _listed_peers(broker, listing):
        count, epochs = tables.acks.pending_of(peer.name, _LISTED_EPOCHS)
        waits = f", unacknowledged: {', '.join(map(str, epochs))}" if epochs else ""
        if count > len(epochs):
            waits += f" and {count - len(epochs):,} more"
        lines.append(f"  {peer.name}: {len(peer.subscriptions)} subscriptions, epoch {peer.received}{waits}")
    lines += listing.more("interfaces", "  ")
    for state in listing.first(tables.types.values(), len(tables.types), "types"):
        attributes = ", ".join(f"{name} {kind}" for name, kind in state.event_type.attributes.items())
        key = "" if state.event_type.key is None else f", key {state.event_type.key}"
        lines.append(f"type {state.event_type.name} ({listing.text(attributes)}{key})")
        publishers = ", ".join(listing.first(state.publishers, len(state.publishers), "publishers"))
        others = "".join(listing.more("publishers", " "))
        lines.append(f"  publishers: {publishers or 'none'}{others}")
        for group, poset in state.groups.items():
            lines.append(f"  interest of {group}:")
            lines += _tree(poset, listing)
        for neighbour, outgoing in state.outgoing.items():
            lines.append(f"  slots at {neighbour}:")
            for slot in listing.first(outgoing.slots, len(outgoing.slots), "slots"):
                waiting = tables.acks.outstanding(neighbour, slot.epoch)
                lines.append(
                    f"    slot {slot.slot_id}: {listing.text(slot_text(slot))}"
                    f" <- {_origin(slot)}"
                    f"{' (not yet acknowledged)' if waiting else ''}"
                )
            lines += listing.more("slots")
    return "\n".join(lines + listing.more("types", ""))


def _listed_peers(broker: Broker, listing: Listing) -> Iterator[Peer]:
    peers = broker.tables.peers
    neighbours = peers.neighbours()
    yield from neighbours
    clients = (peer for peer in peers.values() if not peer.is_broker)
    yield from listing.first(clients, len(peers) - len(neighbours), "interfaces")


def _origin(slot: Slot) -> str:
    root = slot.content.root if isinstance(slot.content, Bundle) and slot.content.size == 1 else slot.content
    if isinstance(root, Interest):
        return f"{root.interface}#{root.subscription_id}"
    return f"{root.size} roots" if isinstance(root, Bundle) else "a root"


def _tree(poset: Poset, listing: Listing) -> list[str]:
    """The first nodes of a poset, each below its witness."""
    lines = [
        f"    {'  ' * depth}{listing.text(node.concrete())} <- {node.interface}#{node.subscription_id}"
        for node, depth in listing.first(_walk(poset, listing.listed), len(poset), "interest")
    ]
    return lines + listing.more("interest")


def _walk(poset: Poset, most: int | None) -> Iterator[tuple[Interest, int]]:
    """Nodes with their depth, each behind its witness; at most `most` of each witness can be listed."""
    stack = [(root, 0) for root in reversed(list(islice(poset.roots(), most)))]
    while stack:
        node, depth = stack.pop()
        yield node, depth
        below = sorted(islice(poset.witnessed_by(node), most), key=lambda child: child.uid)
        stack += [(child, depth + 1) for child in reversed(below)]


def inspect(broker: Broker, listed: int | None = None) -> dict[str, Any]:
    """State and counters as values for JSON, with ids as strings. `listed` as for `render`; `not_listed`
    counts items left off, by list. `interests` and `slots_in_use` count all."""
    listing = Listing(listed)
    tables = broker.tables
    interfaces = {peer.name: _inspect_peer(broker, peer) for peer in _listed_peers(broker, listing)}
    types = {
        name: _inspect_type(state, listing)
        for name, state in listing.first(tables.types.items(), len(tables.types), "types")
    }
    return {
        "broker": tables.broker_id,
        "routing": tables.routing,
        "engine": tables.engine,
        "unsynced": list(tables.unsynced),
        "interfaces": interfaces,
        "types": types,
        "not_listed": listing.of("interfaces", "types"),
        "totals": _totals(tables.peers.values()),
    }


def _inspect_peer(broker: Broker, peer: Peer) -> dict[str, Any]:
    pending, epochs = broker.tables.acks.pending_of(peer.name, _LISTED_EPOCHS)
    awaited, first_awaited = broker.tables.acks.awaited_of(peer.name)
    return {
        "epoch_received": peer.received,
        "epoch_acknowledged": peer.acknowledged,
        "epoch_sent": broker.tables.acks.newest_sent(peer.name),
        "unacknowledged": epochs,
        "unacknowledged_count": pending,
        "awaited": first_awaited,
        "awaited_count": awaited,
        "subscriptions": len(peer.subscriptions),
        **peer.counters.to_dict(),
    }


def _inspect_type(state: TypeState, listing: Listing) -> dict[str, Any]:
    count = sum(len(poset) for poset in state.groups.values())
    interest: dict[str, dict[str, str]] = {}
    for node in listing.first(state.interests(), count, "interest"):
        interest.setdefault(node.interface, {})[str(node.subscription_id)] = listing.text(node.concrete())
    slots = {
        neighbour: {
            str(slot.slot_id): listing.text(slot_text(slot))
            for slot in listing.first(outgoing.slots, len(outgoing.slots), f"slots at {neighbour}")
        }
        for neighbour, outgoing in state.outgoing.items()
    }
    publishers = list(listing.first(state.publishers, len(state.publishers), "publishers"))
    contents = listing.first(state.promises.items(), len(state.promises), "contents")
    return {
        "attributes": {name: str(kind) for name, kind in state.event_type.attributes.items()},
        "key": state.event_type.key,
        "publishers": publishers,
        "advertised_to": list(state.advertised_to),
        "contents": {name: listing.text(str(promise.filter)) for name, promise in contents},
        "keys": {} if state.keys is None else state.keys.inspect(),
        "replay": {} if state.ring is None else state.ring.inspect(),
        "interests": count,
        "interest": interest,
        "slots_in_use": {neighbour: len(outgoing.slots) for neighbour, outgoing in state.outgoing.items()},
        "slots": slots,
        "not_listed": listing.of("publishers", "contents", "interest", *(f"slots at {n}" for n in slots)),
    }


def _totals(peers: Collection[Peer]) -> dict[str, Any]:
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
