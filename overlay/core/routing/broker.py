"""The broker of Jayaram et al. (Figs. 3 and 6, with the mends of its listings), as a function of messages: a
message and its interface go in, a list of actions comes out. Same input, same output; no clock, no
randomness, no I/O.

Invariants (checked by `sim/invariants.py`): the slots of a neighbour are the maximal elements of all interest
but its own, in the event types that it publishes and in durable ones; the engines have exactly the registered
interests; a control message is acknowledged once it has taken effect here and in every broker further on that
it concerns, in the order of its interface. An event never returns over its link, but clients get their own
events if these match.

Order of the actions of one message: control messages, neighbour by neighbour, each in the order of
`slots.py`; refusals; events to links, then to sessions; acknowledgements last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from covey.matcher.evaluation.asking import Fault
from covey.matcher.evaluation.evaluator import Evaluator
from covey.overlay.core.covering.poset import Forest, Poset
from covey.overlay.core.matching.interest_matching import InterestMatching, MatchingFactory, TravellingResults
from covey.overlay.core.matching.matching import Matching
from covey.overlay.core.matching.operator_matching import OperatorMatching
from covey.overlay.core.merging.budget_merger import MERGING_BUDGET, merger_factory
from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    Advertise,
    Answered,
    AwaitClients,
    Connect,
    Disconnect,
    Drop,
    EndRestored,
    Expire,
    Interface,
    Message,
    Notice,
    Publish,
    Refuse,
    RestoreKeys,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Tick,
    Unadvertise,
    Unsubscribe,
    Update,
    Withdraw,
)
from covey.overlay.core.routing.acks import UNSYNCED
from covey.overlay.core.routing.advertisements import on_advertise, on_refuse, on_unadvertise
from covey.overlay.core.routing.connecting import (
    on_await_clients,
    on_connect,
    on_disconnect,
    on_sync_begin,
    on_sync_end,
    on_withdraw,
)
from covey.overlay.core.routing.dispatch import Departures, Dispatch
from covey.overlay.core.routing.durable_keys import on_answered, on_restore_keys, retire_restored
from covey.overlay.core.routing.event_routing import deliver, on_publish
from covey.overlay.core.routing.interest_changes import renew_moving
from covey.overlay.core.routing.key_table import MAX_KEY_BYTES, KeyAges, KeyBytes
from covey.overlay.core.routing.keyed import evict_over_common, retire_old, send_answers
from covey.overlay.core.routing.peers import BROKER, Peer
from covey.overlay.core.routing.ring import MAX_REPLAY_BYTES, ReplayBytes
from covey.overlay.core.routing.subscriptions import on_expire, on_subscribe, on_unsubscribe, on_update
from covey.overlay.core.routing.tables import Call, DurableType, Tables
from covey.overlay.core.routing.type_state import TypeState

if TYPE_CHECKING:
    from covey.matcher import EventType


def _on_acknowledge(tables: Tables, call: Call, message: Acknowledge, peer: Peer) -> None:
    tables.acks.acknowledged(peer.name, message.epoch)


def on_notice(tables: Tables, call: Call, message: Notice, peer: Peer) -> None:
    """Passes a neighbour's on; clients send none."""
    if peer.is_broker:
        tables.notices.received(message, peer.name)


def send_notices(tables: Tables, call: Call) -> None:
    for interface, notice in tables.notices.due(call.now_ns):
        peer = tables.peers.get(interface)
        if peer is not None:
            call.send(peer, notice)


ROUTINGS = ("parametric", "static")


def _on_tick(tables: Tables, call: Call, message: Tick) -> None:
    renew_moving(tables, call)
    retire_old(tables, call)


_Handler = Callable[[Tables, Call, Any, Peer], None]

_HANDLERS: dict[type[Any], _Handler] = {
    Subscribe: on_subscribe,
    Unsubscribe: on_unsubscribe,
    Update: on_update,
    Advertise: on_advertise,
    Unadvertise: on_unadvertise,
    SyncEnd: on_sync_end,
    Publish: on_publish,
    Answered: on_answered,
    Acknowledge: _on_acknowledge,
    SyncBegin: on_sync_begin,
    Refuse: on_refuse,
    Notice: on_notice,
    Expire: on_expire,
    Disconnect: on_disconnect,
    Withdraw: on_withdraw,
}
_WITH_EPOCH = frozenset((Subscribe, Unsubscribe, Update, Advertise, Unadvertise, SyncEnd))
_OF_ENDPOINT: dict[type[Any], Callable[[Tables, Call, Any], None]] = {
    Tick: _on_tick,
    Connect: on_connect,
    AwaitClients: on_await_clients,
    RestoreKeys: on_restore_keys,
    EndRestored: lambda tables, call, _: retire_restored(tables, call),
}
"""Messages for which no interface need be connected."""


class Broker:
    """One broker: pass messages to `handle` and perform the actions it returns, in order.

    `routing` is "parametric" or "static" (the paper's baseline). `engine` names a matching engine, or is a
    factory of what replaces it. `event_types` are never removed. `neighbours` are ids: after a restart it
    acknowledges only what has taken effect in them as well. `replay_events` recent events of each type are
    stored for updates without gaps. `damping` is how many typical steps wider clients' bounds are announced
    (`motion.py`). `merging` is "off", "perfect" or "budget", with at most `merging_budget` slots per
    neighbour and type. `evaluator` evaluates named operators, by default without time limits; for
    measurement, `link_evaluator` replaces it for the interest of neighbours, and without `share_results` no
    results travel. Events of `durable` types become Store actions. Keys of types in `key_max_age_s` leave all
    views after so many seconds without an event. Last events of keys take at most `max_key_bytes`, events for
    updates without gaps `max_replay_bytes`. Raises `ValueError` for another routing or merging, and for
    damping with a factory as engine, which may match what is announced."""

    def __init__(
        self,
        broker_id: str,
        *,
        routing: str = "parametric",
        engine: str | MatchingFactory = "cluster",
        event_types: Iterable[EventType] = (),
        poset: Callable[[], Poset] = Forest,
        neighbours: Iterable[str] = (),
        replay_events: int = 0,
        damping: float = 0.0,
        merging: str = "off",
        merging_budget: int = MERGING_BUDGET,
        evaluator: Evaluator | None = None,
        link_evaluator: Evaluator | None = None,
        share_results: bool = True,
        durable: Iterable[str] = (),
        key_max_age_s: Mapping[str, float] = MappingProxyType({}),
        max_key_bytes: int = MAX_KEY_BYTES,
        max_replay_bytes: int = MAX_REPLAY_BYTES,
    ) -> None:
        if routing not in ROUTINGS:
            raise ValueError(f"routing {routing!r}: expected one of {', '.join(ROUTINGS)}")
        named = isinstance(engine, str)
        if damping and not named:
            raise ValueError(f"damping {damping!r}: expected 0 where a factory replaces the engine")
        parametric = routing == "parametric"
        evaluator = evaluator or Evaluator()
        key_bytes = KeyBytes(max_key_bytes)
        self.tables = Tables(
            broker_id,
            routing=routing,
            engine=engine if isinstance(engine, str) else getattr(engine, "__name__", "factory"),
            damping=damping if parametric else 0.0,
            accepts_motion=parametric and named,
            new_type=partial(
                TypeState,
                matching=_engine_matching(engine) if isinstance(engine, str) else engine,
                evaluators=(link_evaluator or evaluator, evaluator),
                poset=poset,
                merger=merger_factory(merging, merging_budget, routing),
                replay_events=replay_events,
                key_bytes=key_bytes,
                replay_bytes=ReplayBytes(max_replay_bytes),
            ),
            unsynced=dict.fromkeys(BROKER + name for name in neighbours),
            evaluator=evaluator,
            results=TravellingResults(share=share_results),
            durable={name: DurableType() for name in durable},
            key_bytes=key_bytes,
            key_ages=KeyAges({name: round(age_s * 1e9) for name, age_s in key_max_age_s.items()}),
        )
        for each in {evaluator, link_evaluator or evaluator}:
            each.on_fault = self._note_fault
        self.deferred: list[Dispatch | Departures] = []
        self._now_ns = 0
        for event_type in event_types:
            self.tables.declare(event_type).pinned = event_type

    def event_type(self, name: str) -> EventType | None:
        state = self.tables.types.get(name)
        return None if state is None else state.event_type

    def known_types(self) -> tuple[str, ...]:
        return tuple(sorted(self.tables.types))

    @property
    def synced(self) -> bool:
        """Whether all neighbours have sent their state since this broker started."""
        return not self.tables.unsynced

    def unsettled(self, interface: Interface) -> int:
        """The number of control messages of an interface that have not taken effect everywhere."""
        peer = self.tables.peers.get(interface)
        return 0 if peer is None else peer.received - peer.acknowledged

    def next_timer(self) -> int | None:
        """The `now_ns` at which the next Tick is due, or None."""
        moving_ns, age_ns = self.tables.moving.next_ns, self.tables.key_ages.next_ns
        return min(moving_ns, age_ns) if moving_ns and age_ns else moving_ns or age_ns or None

    def handle(self, message: Message, source: Interface, now_ns: int) -> list[Action]:
        """Process one message at `now_ns`, by the clock that stamps events; returns the actions to perform,
        in order.

        Never raises for a message that a peer can send: an invalid one is refused or dropped. Raises
        `ValueError` for a Connect of an interface whose name is neither a broker's nor a client's."""
        return self.handle_all((message,), source, now_ns)

    def handle_all(
        self, messages: Iterable[Message], source: Interface, now_ns: int, *, defer: bool = False
    ) -> list[Action]:
        """As `handle`, for messages that arrived together, in order. Each interface gets at most one
        acknowledgement, after all other actions. With `defer`, call `deliver` next, which returns the
        deliveries to sessions."""
        tables = self.tables
        call = Call(source, now_ns, defer=defer)
        self._now_ns = now_ns
        if self.deferred:
            call.actions += self.deliver()
        for message in messages:
            kind = message.__class__
            if call.deferred and kind is not Publish:  # events before it must not see its change
                self._deliver(call, call.deferred)
            handler = _HANDLERS.get(kind)
            if handler is None:
                if kind in _OF_ENDPOINT:
                    _OF_ENDPOINT[kind](tables, call, message)
                continue
            peer = tables.peers.get(source)
            if peer is None:
                if isinstance(message, Publish):
                    reason, batch = "not connected", message.batch
                    call.actions.append(Drop(reason, len(batch), batch.event_type.name))
                continue
            peer.counters.received[kind] += 1
            if kind in _WITH_EPOCH:
                _handle_epoch(tables, call, handler, message, peer)
            else:
                handler(tables, call, message, peer)
        if tables.listeners.touched:
            for name, report in tables.listeners.drain(tables.types):
                call.send(tables.peers[name], report)
        if tables.answering:
            send_answers(tables, call)
        if tables.acks.ready:
            ready, tables.acks.ready = tables.acks.ready, {}
            for name, epoch in ready.items():
                peer = tables.peers.get(name)
                if peer is not None:
                    call.acknowledge(peer, epoch)
        if tables.maybe_idle:
            tables.remove_idle_types()
        if call.deferred:
            self.deferred = call.deferred
        elif tables.key_bytes.used > tables.key_bytes.bound:
            evict_over_common(tables, call)
        if tables.notices.touched:
            send_notices(tables, call)
        return call.actions

    def deliver(self) -> list[Action]:
        """The deliveries to sessions that the last `handle_all` deferred, in order."""
        call = Call("", self._now_ns)
        self._deliver(call, self.deferred)
        if self.tables.key_bytes.used > self.tables.key_bytes.bound:
            evict_over_common(self.tables, call)
        if self.tables.notices.touched:
            send_notices(self.tables, call)
        return call.actions

    def _note_fault(self, fault: Fault) -> None:
        self.tables.notices.undecided(fault.operator, fault.reason, fault.events)

    def _deliver(self, call: Call, deferred: list[Dispatch | Departures]) -> None:
        for dispatched in deferred:
            deliver(self.tables, call, dispatched)
        deferred.clear()


def _handle_epoch(tables: Tables, call: Call, handler: _Handler, message: Any, peer: Peer) -> None:
    epoch: int = message.epoch
    if epoch > peer.received:
        peer.received = epoch
    elif not isinstance(message, Unadvertise):
        call.acknowledge(peer, peer.acknowledged)  # a repetition
        return
    waits = call.waits = {}
    call.traceparent = ""
    handler(tables, call, message, peer)
    for neighbour in tables.unsynced:
        if neighbour != peer.name:
            waits[neighbour] = UNSYNCED
    tables.acks.open(peer.name, epoch, waits)


def _engine_matching(engine: str) -> MatchingFactory:
    def create(
        event_type: EventType, groups: Mapping[str, Poset], sessions: bool, evaluator: Evaluator
    ) -> InterestMatching:
        return OperatorMatching(partial(Matching, engine), event_type, evaluator, reads=False)

    return create
