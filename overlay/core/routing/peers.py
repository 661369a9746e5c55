"""The interfaces of a broker: state received from each, epochs in both directions, and counters.

Invariant: `subscriptions` and `advertised` are the interface's that are not withdrawn, across all event
types; the `stale` ones precede its last SyncBegin and were not repeated since."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.messages import Interface, Message

BROKER = "broker/"
CLIENT = "client/"
_EVENTS = ("events_received", "events_sent", "events_dropped", "events_unwanted")


@dataclass(slots=True)
class Counters:
    """`events_unwanted` from a neighbour matched no subscription here: the excess of merged slots."""

    received: defaultdict[type[Message], int] = field(default_factory=lambda: defaultdict(int))
    sent: defaultdict[type[Message], int] = field(default_factory=lambda: defaultdict(int))
    events_received: int = 0
    events_sent: int = 0
    events_dropped: int = 0
    events_unwanted: int = 0

    def add(self, other: Counters) -> None:
        """Add the events of an ended interface."""
        for name in _EVENTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def to_dict(self) -> dict[str, object]:
        return {
            "received": {kind.__name__: count for kind, count in self.received.items()},
            "sent": {kind.__name__: count for kind, count in self.sent.items()},
            **{name: getattr(self, name) for name in _EVENTS},
        }


@dataclass(slots=True)
class Peer:
    """One interface. `number` is its bit among links, or its number among sessions; `serial` is never reused.
    `received` is the newest control epoch from it. `synced`: its SyncEnd has arrived since its last Connect.
    `last_stale_id`, negative, is the last id given to a subscription from before a SyncBegin."""

    name: Interface
    number: int
    serial: int = 0
    received: int = 0
    acknowledged: int = 0
    last_slot: int = 0
    last_stale_id: int = 0
    subscriptions: dict[int, Interest] = field(default_factory=dict)
    advertised: dict[str, int] = field(default_factory=dict)
    synced: bool = False
    stale_subscriptions: dict[int, None] = field(default_factory=dict)
    stale_types: dict[str, None] = field(default_factory=dict)
    counters: Counters = field(default_factory=Counters)
    changed_calls: bool = True
    _call_keys: frozenset[int] | None = None
    is_broker: bool = field(init=False)

    def __post_init__(self) -> None:
        self.is_broker = self.name.startswith(BROKER)

    def call_keys(self) -> frozenset[int] | None:
        """The keys of its calls; None where an operator is unknown here. O(subscriptions) after a change of
        calls."""
        if self.changed_calls:
            self.changed_calls = False
            keys = [i.call_keys() for i in self.subscriptions.values() if i.filter.calls]
            known = [each for each in keys if each is not None]
            self._call_keys = frozenset(chain.from_iterable(known)) if len(known) == len(keys) else None
        return self._call_keys

    def next_stale_id(self) -> int:
        self.last_stale_id -= 1
        return self.last_stale_id

    def next_slot(self) -> int:
        self.last_slot += 1
        return self.last_slot


class Peers(dict[Interface, Peer]):
    """By name in order of connection; `by_number` has neighbours, `serials` sessions' by number."""

    def __init__(self) -> None:
        super().__init__()
        self.ended_sessions = Counters()
        self.links: dict[int, Peer] = {}
        self.by_number: list[Peer] = []
        self.sessions: dict[int, Peer] = {}
        self.serials = np.zeros(0, np.int64)
        self._free: dict[str, list[int]] = {BROKER: [], CLIENT: []}
        self._next: dict[str, int] = {BROKER: 0, CLIENT: 0}
        self._serials = 0

    def add(self, name: Interface) -> Peer:
        """A new interface; `ValueError` for a name that is neither a broker's nor a client's."""
        kind = BROKER if name.startswith(BROKER) else CLIENT
        if not name.startswith(kind) or len(name) == len(kind):
            raise ValueError(f"interface {name!r}: expected {BROKER}NAME or {CLIENT}NAME")
        free = self._free[kind]
        if free:
            number = free.pop()
        else:
            number = self._next[kind]
            self._next[kind] += 1
        peer = self[name] = Peer(name, number, self.next_serial())
        (self.links if peer.is_broker else self.sessions)[number] = peer
        if peer.is_broker:
            self.by_number = [self.links[each] for each in sorted(self.links)]
        else:
            if number >= len(self.serials):
                self.serials = np.resize(self.serials, 2 * number + 64)
            self.serials[number] = peer.serial
        return peer

    def next_serial(self) -> int:
        self._serials += 1
        return self._serials

    def remove(self, peer: Peer) -> None:
        """Its number may be reused, its serial is not."""
        del self[peer.name]
        del (self.links if peer.is_broker else self.sessions)[peer.number]
        if peer.is_broker:
            self.by_number = [self.links[each] for each in sorted(self.links)]
        else:
            self.ended_sessions.add(peer.counters)
        self._free[BROKER if peer.is_broker else CLIENT].append(peer.number)

    def neighbours(self) -> list[Peer]:
        return list(self.links.values())
