"""The routing state of one broker (`Tables`), which only `Broker`'s handlers change, and the context of one
call (`Call`).

*Listener reports* show a publisher that requests them whether its events have listeners (quenching in Elvin).
Invariant: after each call the last report to every publisher is up to date. Cost: none without requests; else
a change of interest visits the roots of its type, up to the first that the promise admits.

*Moving interests*: the engine has a bound that holds for `SHORT_NS` and is renewed every `PERIOD_NS`; the
client drops the excess. Invariant: bound and announcement always cover the subscription. Cost: one hull per
moving interest and period.

*Durable types*: each broker drops events that it received before, which come again after a crash. Invariant:
the latest `WATERMARKS` publishers are stored, those of earlier lives from the log."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.overlay.core.covering.interest import Registry
from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    Advertise,
    Interface,
    ListenersReport,
    Message,
    Refuse,
    Send,
    Subscribe,
    Unsubscribe,
    Update,
)
from covey.overlay.core.moving.motion import LATE_NS, SECOND_NS, hull, moves
from covey.overlay.core.operators.operator_notices import Notices
from covey.overlay.core.routing.acks import Acks
from covey.overlay.core.routing.key_table import KeyAges, KeyBytes
from covey.overlay.core.routing.peers import Peer, Peers
from covey.overlay.core.routing.slots import Slots
from covey.overlay.core.routing.type_state import TypeState
from covey.overlay.core.watermarks import Watermarks

if TYPE_CHECKING:
    from covey.matcher import EventType
    from covey.matcher.evaluation.evaluator import Evaluator
    from covey.matcher.events.batch import EventBatch
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter
    from covey.overlay.core.covering.interest import Interest
    from covey.overlay.core.matching.interest_matching import Matched, TravellingResults
    from covey.overlay.core.routing.dispatch import Departures, Dispatch


class Call:
    """`waits` are the epochs, by neighbour, that the current message's acknowledgement waits for; `deferred`
    are events whose sessions are served after the call, None if within it; `traceparent` is for updates that
    the message causes."""

    __slots__ = ("actions", "deferred", "now_ns", "source", "traceparent", "waits")

    def __init__(self, source: Interface, now_ns: int, *, defer: bool = False) -> None:
        self.source = source
        self.now_ns = now_ns
        self.actions: list[Action] = []
        self.traceparent = ""
        self.waits: dict[Interface, int] = {}
        self.deferred: list[Dispatch | Departures] | None = [] if defer else None

    def send(self, peer: Peer, message: Message) -> None:
        peer.counters.sent[message.__class__] += 1
        self.actions.append(Send(peer.name, message))

    def control(self, peer: Peer, message: Advertise | Subscribe | Update | Unsubscribe) -> None:
        """Send a message that the current one waits for, unless it goes back to the source."""
        if self.traceparent and isinstance(message, Update):
            message = replace(message, traceparent=self.traceparent)
        if peer.name != self.source:
            self.waits[peer.name] = message.epoch
        peer.counters.sent[message.__class__] += 1
        self.actions.append(Send(peer.name, message))

    def wait_for(self, neighbour: Interface, epoch: int) -> None:
        if neighbour != self.source and epoch > self.waits.get(neighbour, 0):
            self.waits[neighbour] = epoch

    def acknowledge(self, peer: Peer, epoch: int) -> None:
        if epoch:
            if epoch > peer.acknowledged:
                peer.acknowledged = epoch
            self.send(peer, Acknowledge(peer.acknowledged))

    def refuse(
        self, peer: Peer, message: Advertise | Subscribe | Update, status: str, reason: str, type_name: str
    ) -> None:
        subscription_id = 0 if isinstance(message, Advertise) else message.subscription_id
        self.send(peer, Refuse(message.epoch, status, reason, subscription_id, type_name))


class ListenerReports:
    """The last report by type and publisher, None before the first; `touched` types may be out of date."""

    def __init__(self) -> None:
        self.reported: dict[str, dict[Interface, bool | None]] = {}
        self.touched: dict[str, None] = {}

    def set(self, peer: Peer, type_name: str, *, report: bool) -> None:
        if report and not peer.is_broker:
            self.reported.setdefault(type_name, {})[peer.name] = None
            self.touched[type_name] = None
        else:
            self.remove(peer, type_name)

    def remove(self, peer: Peer, type_name: str | None = None) -> None:
        for name in [type_name] if type_name is not None else list(self.reported):
            publishers = self.reported.get(name, {})
            publishers.pop(peer.name, None)
            if not publishers:
                self.reported.pop(name, None)

    def touch(self, type_name: str) -> None:
        if type_name in self.reported:
            self.touched[type_name] = None

    def drain(self, types: Mapping[str, TypeState]) -> Iterator[tuple[Interface, ListenersReport]]:
        """The reports to send now, in the order in which publishers requested them."""
        touched, self.touched = self.touched, {}
        for name in touched:
            for interface, reported in self.reported.get(name, {}).items():
                present = _any_listener(types[name], interface)
                if present is not reported:
                    self.reported[name][interface] = present
                    yield interface, ListenersReport(name, present)


def _any_listener(state: TypeState, publisher: Interface) -> bool:
    promise = state.promises.get(publisher)
    return any(
        promise is None or promise.admits(root) for poset in state.groups.values() for root in poset.roots()
    )


PERIOD_NS = SECOND_NS
SHORT_NS = 3 * SECOND_NS


@dataclass(frozen=True, slots=True)
class _ShortHull:
    uid: int
    filter: Filter
    values: Mapping[str, Scalar]


class MovingInterests:
    """In the order in which they began to move. `next_ns` is when the next renewal is due, 0 for none."""

    def __init__(self) -> None:
        self.next_ns = 0
        self._interests: dict[int, Interest] = {}

    def matched(self, interest: Interest, now_ns: int) -> Matched:
        """What the engine gets for an announced interest, which is added if it moves, and removed if not."""
        if not moves(interest.values):
            self.discard(interest)
            return interest
        self._interests[interest.uid] = interest
        if not self.next_ns:
            self.next_ns = now_ns + PERIOD_NS
        values = hull(interest.routed, interest.values, now_ns - LATE_NS, now_ns + SHORT_NS)
        return _ShortHull(interest.uid, interest.structure, values)

    def discard(self, interest: Interest) -> None:
        self._interests.pop(interest.uid, None)
        if not self._interests:
            self.next_ns = 0

    def due(self, now_ns: int) -> Iterator[Interest]:
        if self.next_ns and now_ns >= self.next_ns:
            self.next_ns = now_ns + PERIOD_NS
            yield from list(self._interests.values())

    def __len__(self) -> int:
        return len(self._interests)


class DurableType(Watermarks):
    """The events received of one type. `repeated` counts those that came again and were dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.repeated = 0

    def fresh(self, batch: EventBatch) -> npt.NDArray[np.bool_] | None:
        fresh = super().fresh(batch)
        if fresh is not None:
            self.repeated += int(np.count_nonzero(~fresh))
        return fresh


@dataclass(slots=True)
class Tables:
    """`routing`, `engine` and `damping` are options of `Broker`; `new_type` creates the state of a type.
    `unsynced` neighbours have sent no SyncEnd since this broker started; `pending_sync_ends` are to be sent.
    `results` of the `evaluator` leave with events. Interest in `durable` types goes to all neighbours. At the
    end of a call, answers of `answering` types are sent, and `maybe_idle` types removed. `changes` counts
    messages that changed something or requested events."""

    broker_id: str
    routing: str
    engine: str
    damping: float
    accepts_motion: bool
    new_type: Callable[[EventType], TypeState]
    unsynced: dict[Interface, None]
    evaluator: Evaluator
    results: TravellingResults
    durable: dict[str, DurableType] = field(default_factory=dict)
    peers: Peers = field(default_factory=Peers)
    registry: Registry = field(default_factory=Registry)
    acks: Acks = field(default_factory=Acks)
    types: dict[str, TypeState] = field(default_factory=dict)
    key_bytes: KeyBytes = field(default_factory=KeyBytes)
    key_ages: KeyAges = field(default_factory=lambda: KeyAges({}))
    moving: MovingInterests = field(default_factory=MovingInterests)
    listeners: ListenerReports = field(default_factory=ListenerReports)
    pending_sync_ends: dict[Interface, None] = field(default_factory=dict)
    awaiting_clients: bool = False
    answering: dict[str, None] = field(default_factory=dict)
    maybe_idle: dict[str, None] = field(default_factory=dict)
    changes: int = 0
    notices: Notices = field(init=False)
    parametric: bool = field(init=False)

    def __post_init__(self) -> None:
        self.parametric = self.routing == "parametric"
        self.notices = Notices(self.broker_id, self.registry.callers)

    def new_slots(self, peer: Peer) -> Slots:
        next_epoch = partial(self.acks.next_epoch, peer.name)
        return Slots(next_epoch, peer.next_slot, parametric=self.parametric)

    def declare(self, schema: EventType) -> TypeState:
        """The state of an event type, created if new, widened by this schema; `EventTypeError` if that does
        not agree."""
        state = self.types.get(schema.name)
        if state is None:
            state = self.types[schema.name] = self.new_type(schema)
            state.floods = schema.name in self.durable
            if state.floods:
                for peer in self.peers.neighbours():
                    state.open(peer.name, self.new_slots(peer))
        else:
            state.declare(schema, self.broker_id)
        return state

    def key_of(self, type_name: str) -> str | None:
        """None if the type has no key or is unknown."""
        state = self.types.get(type_name)
        return None if state is None else state.event_type.key

    def remove_idle_types(self) -> None:
        for name in self.maybe_idle:
            if name in self.types and self.types[name].idle:
                state = self.types.pop(name)
                for each in (state.keys, state.ring):
                    if each is not None:
                        each.close()
        self.maybe_idle.clear()
