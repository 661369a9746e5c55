"""The broker of Jayaram et al. (Figs. 3 and 6, with the mends of DESIGN section 4), as a function of its
messages.

All routing state changes here, entered through `Broker.handle`: a message and the interface it came from go
in, a list of actions comes out. Same input, same output; no clock, no randomness, no I/O.

Invariants (`invariants.check` states and checks them): what each neighbour was asked for is the maximal
elements of all interest but its own, in the event types that it publishes; the engines hold exactly the
interest that is there; a control message is acknowledged once it has taken effect here and beyond, in the
order of its interface.

Clients get their own events if they match: "never back where they came from" is about links. A client is
delivered an event once, with the ids of all its subscriptions that match.

Order of the actions of one message: what it makes for the neighbours, neighbour by neighbour, within each as
`slots.py` says; refusals; events to links, then to sessions; acknowledgements last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from covey.matcher.errors import EventTypeError, FilterError, VariableError
from covey.overlay.core import invariants, views
from covey.overlay.core.acks import HELD, Acks
from covey.overlay.core.advertising import Promise, covers
from covey.overlay.core.diagram import Diagram
from covey.overlay.core.dispatch import dispatch, replay
from covey.overlay.core.interest import Interest, Registry, group_of
from covey.overlay.core.mergers import MERGING_BUDGET, merger_factory
from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    Advertise,
    Connect,
    Disconnect,
    Drop,
    Interface,
    Message,
    Publish,
    Refuse,
    Send,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Tick,
    Unadvertise,
    Unsubscribe,
    Update,
)
from covey.overlay.core.motion import check_values, moves
from covey.overlay.core.movers import Movers
from covey.overlay.core.naive_poset import NaivePoset
from covey.overlay.core.peers import BROKER, Peer, Peers
from covey.overlay.core.poset import Forest, Poset
from covey.overlay.core.poset_matching import POSET
from covey.overlay.core.quenching import Quench
from covey.overlay.core.replay import Ring
from covey.overlay.core.slots import SlotMessage, Slots
from covey.overlay.core.type_state import TypeState, difference

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType, Filter
    from covey.matcher.expression import Scalar

_POSETS: dict[str, Callable[[], Poset]] = {"forest": Forest, "naive": NaivePoset, "diagram": Diagram}
POSETS = tuple(_POSETS)
_ROUTINGS = ("parametric", "static")


class Broker:
    """One broker. Give it an id, feed `handle`, and do what it says, in order.

    `routing` is "parametric" or "static" (the paper's baseline), `engine` names a matching engine, `poset` is
    "forest", "naive" or "diagram" (Siena's, which the engine "poset" matches on); `event_types` are known
    from the start. `neighbours` are the ids of the brokers that it will be linked to: one that knows them
    acknowledges, after a restart, only what has taken effect beyond them as well. `replay_events` of each
    type are kept for updates without gaps. `damping` is how many typical steps wider a client's bounds are
    announced to neighbours (`announcing.py`). `merging` is "off", "perfect" or "budget", with at most
    `merging_budget` slots per neighbour and type. Raises `ValueError` for another routing, poset or merging,
    or for damping with the engine "poset", which cannot tell the two apart.
    """

    def __init__(
        self,
        broker_id: str,
        *,
        routing: str = "parametric",
        engine: str = "cluster",
        event_types: Iterable[EventType] = (),
        poset: str = "forest",
        neighbours: Iterable[str] = (),
        replay_events: int = 0,
        damping: float = 0.0,
        merging: str = "off",
        merging_budget: int = MERGING_BUDGET,
    ) -> None:
        if routing not in _ROUTINGS:
            raise ValueError(f"routing {routing!r}: expected one of {', '.join(_ROUTINGS)}")
        if poset not in _POSETS:
            raise ValueError(f"poset {poset!r}: expected one of {', '.join(_POSETS)}")
        if engine == POSET and poset != "diagram":
            raise ValueError(f"poset {poset!r}: expected diagram, which engine {POSET!r} walks")
        if damping and engine == POSET:
            raise ValueError('damping with engine "poset": expected another engine')
        self.broker_id = broker_id
        self.routing = routing
        self.engine = engine
        self.peers = Peers()
        self.registry = Registry()
        self.acks = Acks()
        self.types: dict[str, TypeState] = {}
        self.replay_events = replay_events
        self.damping = damping if routing == "parametric" else 0.0
        self._movers = Movers()
        self._quench = Quench()
        self._now_ns = 0
        self._poset = _POSETS[poset]
        self._new_merger = merger_factory(merging, merging_budget, routing)
        self._maybe_idle: dict[str, None] = {}
        self._unheard: dict[Interface, None] = dict.fromkeys(BROKER + name for name in neighbours)
        """Neighbours that have not told their state, up to SyncEnd, since this broker started."""
        self._unended: dict[Interface, None] = {}
        """Neighbours that wait for this broker's SyncEnd."""
        self._actions: list[Action] = []
        self._waits: dict[Interface, int] = {}
        self._source: Interface = ""
        self._epochal: dict[type[Any], Callable[[Any, Peer], None]] = {
            Subscribe: self._on_subscribe,
            Unsubscribe: self._on_unsubscribe,
            Update: self._on_update,
            Advertise: self._on_advertise,
            Unadvertise: self._on_unadvertise,
            SyncEnd: self._on_sync_end,
        }
        self._plain: dict[type[Any], Callable[[Any, Peer], None]] = {
            Publish: self._on_publish,
            Acknowledge: self._on_acknowledge,
            SyncBegin: self._on_sync_begin,
            Refuse: self._on_refuse,
            Disconnect: self._on_disconnect,
        }
        for event_type in event_types:
            self._type(event_type).pinned = True

    # --- what the node asks ---------------------------------------------------------------------------------

    def event_type(self, name: str) -> EventType | None:
        """The event type of that name, if this broker knows one."""
        state = self.types.get(name)
        return None if state is None else state.event_type

    def known_types(self) -> tuple[str, ...]:
        """The names of all event types that this broker knows, sorted."""
        return tuple(sorted(self.types))

    def declare(self, event_type: EventType) -> None:
        """Know an event type, until it has been used and nobody uses it any more.

        Raises `EventTypeError` naming the attribute when another type of that name is known. A type that
        rides on a Subscribe need not be declared: `handle` takes it from the filter.
        """
        state = self.types.get(event_type.name)
        if state is None:
            self._type(event_type)
        elif state.event_type != event_type:
            raise EventTypeError(difference(state.event_type, event_type, self.broker_id))

    def unheard(self) -> list[Interface]:
        """The neighbours that have not told their state since this broker started: answers wait for them."""
        return list(self._unheard)

    def timer(self) -> float | None:
        """When, as `now`, a Tick is to be handled; None while there is nothing to be done by the clock."""
        return self._movers.next_ns / 1e9 if self._movers.next_ns else None

    def render(self) -> str:
        """The whole routing state, for people."""
        return views.render(self)

    def inspect(self) -> dict[str, Any]:
        """The whole routing state and the counters, as plain values that JSON can hold."""
        return views.inspect(self)

    def validate(self) -> None:
        """Check every invariant; `AssertionError` with a clear sentence where one does not hold. Scans
        everything.
        """
        invariants.check(self)

    # --- the one entry --------------------------------------------------------------------------------------

    def handle(self, message: Message, source: Interface, now: float) -> list[Action]:
        """Take in one message from an interface at time `now`, in seconds since the epoch by the clock that
        stamps events; the actions to do, in order.

        Never raises for anything a peer can send: what does not fit is refused or dropped, by an action that
        says so. Raises `ValueError` for a Connect of an interface whose name is neither a broker's nor a
        client's.
        """
        actions = self._actions = []
        self._waits = {}
        self._source = source
        self._now_ns = round(now * 1e9)
        if isinstance(message, Tick):
            self._on_tick()
        elif isinstance(message, Connect):
            self._on_connect(source)
        else:
            peer = self.peers.get(source)
            if peer is not None:
                self._take(message, peer)
            elif isinstance(message, Publish):
                actions.append(Drop("not connected", len(message.batch), message.batch.event_type.name))
        for name, listeners in self._quench.drain(self.types):
            self._send(self.peers[name], listeners)
        for name, epoch in self.acks.drain():
            self._acknowledge(name, epoch)
        if self._maybe_idle:
            self._forget_idle()
        return actions

    def _take(self, message: Message, peer: Peer) -> None:
        kind = type(message)
        received = peer.counters.received
        received[kind.__name__] = received.get(kind.__name__, 0) + 1
        handler = self._epochal.get(kind)
        if handler is None:
            if kind in self._plain:
                self._plain[kind](message, peer)
            return
        epoch: int = message.epoch  # type: ignore[union-attr]
        if epoch <= peer.received and kind is not Unadvertise:
            self._acknowledge(peer.name, peer.answered)  # said twice: it has been handled
            return
        peer.received = max(peer.received, epoch)
        handler(message, peer)
        for neighbour in self._unheard:
            if neighbour != peer.name:
                self._waits[neighbour] = HELD
        self.acks.open(peer.name, epoch, self._waits)

    # --- sending --------------------------------------------------------------------------------------------

    def _send(self, peer: Peer, message: Message) -> None:
        sent = peer.counters.sent
        name = type(message).__name__
        sent[name] = sent.get(name, 0) + 1
        self._actions.append(Send(peer.name, message))

    def _control(self, peer: Peer, message: Advertise | SlotMessage) -> None:
        """Send what the message being handled waits for, unless it goes back to where that came from."""
        if peer.name != self._source:
            self._waits[peer.name] = message.epoch
        self._send(peer, message)

    def _next_epoch(self, peer: Peer) -> int:
        peer.epoch += 1
        self.acks.sent(peer.name, peer.epoch)
        return peer.epoch

    def _wait_for(self, neighbour: Interface, epoch: int) -> None:
        if neighbour != self._source and epoch > self._waits.get(neighbour, 0):
            self._waits[neighbour] = epoch

    def _acknowledge(self, name: Interface, epoch: int) -> None:
        peer = self.peers.get(name)
        if peer is not None and epoch:
            peer.answered = max(peer.answered, epoch)
            self._send(peer, Acknowledge(peer.answered))

    def _refuse(
        self,
        peer: Peer,
        epoch: int,
        status: str,
        reason: str,
        *,
        subscription_id: int = 0,
        type_name: str = "",
    ) -> None:
        self._send(peer, Refuse(epoch, status, reason, subscription_id, type_name))

    # --- interest -------------------------------------------------------------------------------------------

    def _on_subscribe(self, message: Subscribe, peer: Peer) -> None:
        """SUB (Fig. 3 lines 13-19, Fig. 6 lines 10-19)."""
        event_type, subscription_id = message.filter.event_type, message.subscription_id
        state = self.types.get(event_type.name)
        try:
            values = self._checked(peer, message.filter, message.values)
            if state is not None and state.event_type != event_type:
                raise EventTypeError(difference(state.event_type, event_type, self.broker_id))
        except (FilterError, EventTypeError) as error:
            status = "INVALID_ARGUMENT" if isinstance(error, FilterError) else "ALREADY_EXISTS"
            self._refuse(
                peer,
                message.epoch,
                status,
                f"subscription {subscription_id} of {peer.name}: {error}",
                subscription_id=subscription_id,
                type_name=event_type.name,
            )
            return
        peer.stale_subscriptions.pop(subscription_id, None)
        old = peer.subscriptions.get(subscription_id)
        if old is not None and old.filter == message.filter:
            self._move(peer, old, values)
            peer.subscriptions[subscription_id].epoch = message.epoch
            return
        state = self._type(event_type)
        new = self.registry.make(peer.name, peer.number, subscription_id, message.filter, values)
        new.epoch = message.epoch
        if old is None:
            self._exchange(state, peer, [new], [])
        elif old.filter.event_type == event_type:
            self._exchange(state, peer, [new], [old])
        else:
            self._exchange(state, peer, [new], [])
            self._exchange(self.types[old.filter.event_type.name], peer, [], [old])
            peer.subscriptions[subscription_id] = new

    def _checked(
        self, peer: Peer, filter: Filter, values: Mapping[str, Scalar], *, partial: bool = False
    ) -> dict[str, Scalar]:
        """The values, checked; motion is for clients and parametric routing."""
        if not moves(values):
            return filter.check_values(values, partial=partial)
        if peer.is_broker or self.routing == "static" or self.engine == POSET:
            raise VariableError(
                f"a variable that moves by itself: expected a number, from {peer.name} and under routing "
                f"{self.routing} with engine {self.engine}"
            )
        return check_values(filter, values, partial=partial, now_ns=self._now_ns)

    def _on_update(self, message: Update, peer: Peer) -> None:
        """UPD (Fig. 6 lines 42-47)."""
        interest = peer.subscriptions.get(message.subscription_id)
        if interest is None:
            self._refuse(
                peer,
                message.epoch,
                "NOT_FOUND",
                f"update of subscription {message.subscription_id}: {peer.name} has none of that id; "
                "it was cancelled or never made",
                subscription_id=message.subscription_id,
            )
            return
        try:
            values = self._checked(peer, interest.filter, message.values, partial=True)
        except FilterError as error:
            self._refuse(
                peer,
                message.epoch,
                "INVALID_ARGUMENT",
                f"update of subscription {message.subscription_id}: {error}",
                subscription_id=message.subscription_id,
                type_name=interest.filter.event_type.name,
            )
            return
        self._move(peer, interest, values)
        peer.subscriptions[message.subscription_id].epoch = message.epoch
        if message.since_ns:
            self._reach_back(peer, peer.subscriptions[message.subscription_id], message.since_ns)

    def _reach_back(self, peer: Peer, interest: Interest, since_ns: int) -> None:
        """An update without gaps: replay what is here, and have those beyond replay what they have."""
        state = self.types[interest.filter.event_type.name]
        for neighbour, slot in state.covering_slots(interest):
            slot.epoch = self._next_epoch(self.peers[neighbour])
            self._control(self.peers[neighbour], Update(slot.epoch, slot.slot_id, {}, since_ns))
        for replayed in replay(interest, peer, state, since_ns):
            peer.counters.events_sent += len(replayed.batch)
            self._send(peer, replayed)

    def _on_tick(self) -> None:
        """Look again at what moves by itself."""
        for interest in self._movers.due(self._now_ns):
            state, peer = self.types[interest.filter.event_type.name], self.peers[interest.interface]
            self._put(state, peer, interest)
            announcement = interest.announcement
            if (
                announcement is not None
                and announcement.due(self._now_ns)
                and interest.move({}, self._now_ns)
            ):
                self._tell(state.change(interest.group, moved=[interest]))

    def _put(self, state: TypeState, peer: Peer, interest: Interest) -> None:
        held = self._movers.held(interest, self._now_ns)
        (state.links if peer.is_broker else state.sessions).put(held, peer.number)

    def _may_announce(self, peer: Peer, interest: Interest, *, moving: bool = False) -> None:
        """Damping and motion are an affair of a client and its broker; others hold what is announced."""
        if interest.announcement is None and not peer.is_broker and (self.damping or moving):
            interest.announce(self.damping, self._now_ns)

    def _move(self, peer: Peer, interest: Interest, values: Mapping[str, Scalar]) -> None:
        """New values for a subscription: an update, or in the static mode a new subscription for the old
        one.
        """
        state = self.types[interest.filter.event_type.name]
        if self.routing == "static" and any(interest.values[name] != value for name, value in values.items()):
            merged = {**interest.values, **values}
            new = self.registry.make(
                peer.name, peer.number, interest.subscription_id, interest.filter, merged
            )
            self._exchange(state, peer, [new], [interest])
            return
        if moves(values):
            self._may_announce(peer, interest, moving=True)
        moved = interest.move(values, self._now_ns)
        self._put(state, peer, interest)
        if moved:
            self._quench.touch(state.event_type.name)
            self._tell(state.change(interest.group, moved=[interest]))
        self._wait_for_cover(state, interest)

    def _on_unsubscribe(self, message: Unsubscribe, peer: Peer) -> None:
        """USUB (Fig. 3 lines 20-26, Fig. 6 lines 29-37). One that is not there, or no more, is no error."""
        interest = peer.subscriptions.get(message.subscription_id)
        if interest is not None:
            peer.stale_subscriptions.pop(message.subscription_id, None)
            self._exchange(self.types[interest.filter.event_type.name], peer, [], [interest])

    def _exchange(
        self, state: TypeState, peer: Peer, entered: Sequence[Interest], left: Sequence[Interest]
    ) -> None:
        """Some subscriptions of an interface come and some go, in one change."""
        matching = state.links if peer.is_broker else state.sessions
        self._quench.touch(state.event_type.name)
        for interest in left:
            del peer.subscriptions[interest.subscription_id]
            matching.discard(interest)
            self._movers.discard(interest)
        for interest in entered:
            peer.subscriptions[interest.subscription_id] = interest
            self._may_announce(peer, interest, moving=moves(interest.values))
            self._put(state, peer, interest)
        self._tell(state.change(group_of(peer.name), entered=entered, left=left))
        for interest in left:
            self.registry.release(interest)
        for interest in entered:
            self._wait_for_cover(state, interest)
        if left and state.idle:
            self._maybe_idle[state.event_type.name] = None

    def _tell(self, told: Iterable[tuple[Interface, list[SlotMessage]]]) -> None:
        for neighbour, messages in told:
            peer = self.peers[neighbour]
            for message in messages:
                self._control(peer, message)

    def _wait_for_cover(self, state: TypeState, interest: Interest) -> None:
        """A change that another root hides from a neighbour has taken effect there when that root has."""
        for neighbour in state.outgoing:
            if neighbour == interest.group or self.acks.settled(neighbour):
                continue
            slot = state.covering_slot(interest, neighbour)
            if slot is not None and self.acks.outstanding(neighbour, slot.epoch):
                self._wait_for(neighbour, slot.epoch)

    # --- advertisements -------------------------------------------------------------------------------------

    def _on_advertise(self, message: Advertise, peer: Peer) -> None:
        """AD (Fig. 3 lines 5-7): floods away from where it came, and draws the interest that is there."""
        event_type = message.event_type
        state = self.types.get(event_type.name)
        if state is not None and state.event_type != event_type:
            self._refuse(
                peer,
                message.epoch,
                "ALREADY_EXISTS",
                difference(state.event_type, event_type, self.broker_id),
                type_name=event_type.name,
            )
            return
        if message.filter is not None and message.filter.variables:
            reason = f"advertisement of {event_type.name} with {message.filter}: expected no variables"
            self._refuse(peer, message.epoch, "INVALID_ARGUMENT", reason, type_name=event_type.name)
            return
        state = self._type(event_type)
        state.publishers[peer.name] = peer.advertised[event_type.name] = message.epoch
        rescoped = state.promise(peer.name, message.filter)
        peer.stale_types.pop(event_type.name, None)
        self._quench.watch(peer, event_type.name, wanted=message.watch)
        for neighbour in self.peers.neighbours():
            if neighbour is peer:
                continue
            promise = state.promise_to(neighbour.name)
            known = neighbour.name in state.told and neighbour.name not in state.refused
            if known and covers(state.promised[neighbour.name], promise):
                self._wait_for(neighbour.name, state.told[neighbour.name])
            else:
                state.refused.pop(neighbour.name, None)
                epoch = state.told[neighbour.name] = self._next_epoch(neighbour)
                state.promised[neighbour.name] = promise
                self._control(neighbour, Advertise(epoch, event_type, promise))
        if not peer.is_broker:
            return
        outgoing = state.outgoing.get(peer.name)
        if outgoing is None:
            self._tell([(peer.name, state.open(peer.name, self._slots(peer)))])
        else:
            if rescoped:
                self._tell([(peer.name, state.rescope(peer.name))])
            self._tell([(peer.name, outgoing.slots.resend(refused_only=True))])

    def _on_unadvertise(self, message: Unadvertise, peer: Peer) -> None:
        """The contrary of AD. Void when the sender has advertised again since (an AD may overtake it)."""
        if message.epoch > peer.advertised.get(message.type_name, message.epoch):
            peer.stale_types.pop(message.type_name, None)
            self._withdraw(self.types[message.type_name], peer)

    def _withdraw(self, state: TypeState, peer: Peer) -> None:
        """An interface publishes this type no longer. Nobody has to know at once: no message waits for it."""
        name = state.event_type.name
        del state.publishers[peer.name], peer.advertised[name]
        state.promise(peer.name, None)
        self._quench.forget(peer, name)
        for neighbour in list(state.told):
            if not any(publisher != neighbour for publisher in state.publishers):
                del state.told[neighbour], state.promised[neighbour]
                state.refused.pop(neighbour, None)
                other = self.peers[neighbour]
                self._send(other, Unadvertise(self._next_epoch(other), name))
        if peer.name in state.outgoing:
            messages = state.close(peer.name)
            if self.peers.get(peer.name) is peer:
                self._tell([(peer.name, messages)])
        if state.idle:
            self._maybe_idle[name] = None

    def _on_refuse(self, message: Refuse, peer: Peer) -> None:
        """A neighbour refused what this broker passed on: an AD goes back to those who made it."""
        if not peer.is_broker:
            return
        state = self.types.get(message.type_name)
        if message.subscription_id:
            for outgoing in [s.outgoing[peer.name] for s in self.types.values() if peer.name in s.outgoing]:
                slot = outgoing.slots.get(message.subscription_id)
                if slot is not None:
                    slot.refused = True
        elif state is not None and state.told.get(peer.name) == message.epoch:
            state.refused[peer.name] = None
            for name, epoch in state.publishers.items():
                if name != peer.name:
                    self._refuse(
                        self.peers[name], epoch, message.status, message.reason, type_name=message.type_name
                    )

    # --- events ---------------------------------------------------------------------------------------------

    def _on_publish(self, message: Publish, peer: Peer) -> None:
        """PUB (Fig. 3 lines 8-12, Fig. 6 lines 38-41): to each neighbour and each session that asked for
        it.
        """
        batch = message.batch
        count, name = len(batch), batch.event_type.name
        peer.counters.events_received += count
        state = self.types.get(name)
        if state is None or peer.name not in state.publishers or state.event_type != batch.event_type:
            self._turn_away(batch, state, peer)
            return
        promise = None if peer.is_broker else state.promises.get(peer.name)
        kept = None if promise is None else promise.keeps(batch)
        if promise is not None and kept is not None:
            self._refuse_outside(promise, batch, kept, peer)
            batch = batch.filter(kept)
            message, count = Publish(batch), len(batch)
        if not count:
            return
        for target, event_message in dispatch(message, peer, state, self.peers, self.registry):
            target.counters.events_sent += len(event_message.batch)
            self._send(target, event_message)

    def _refuse_outside(
        self, promise: Promise, batch: EventBatch, kept: npt.NDArray[np.bool_], peer: Peer
    ) -> None:
        """Events that their publisher has not advertised: one refusal for each run of them."""
        outside = np.flatnonzero(~kept)
        peer.counters.events_dropped += len(outside)
        sequences, name = batch.sequences()[outside], batch.event_type.name
        for run in np.split(sequences, np.flatnonzero(np.diff(sequences) != 1) + 1):
            reason = (
                f"{len(run)} events of {name} from number {int(run[0])} on not accepted: outside of what "
                f"{peer.name} advertised, {promise.filter}"
            )
            self._send(peer, Refuse(0, "FAILED_PRECONDITION", reason, 0, name, int(run[0]), len(run)))

    def _turn_away(self, batch: EventBatch, state: TypeState | None, peer: Peer) -> None:
        name = batch.event_type.name
        peer.counters.events_dropped += len(batch)
        if peer.is_broker:
            self._actions.append(Drop("not advertised", len(batch), name))
            return
        if state is None or peer.name not in state.publishers:
            status, reason = (
                "FAILED_PRECONDITION",
                f"{peer.name} has not advertised {name}; advertise it first",
            )
        else:
            status, reason = (
                "INVALID_ARGUMENT",
                difference(state.event_type, batch.event_type, self.broker_id),
            )
        reason = f"{len(batch)} events of {name} not accepted: {reason}"
        self._send(
            peer,
            Refuse(0, status, reason, type_name=name, first_sequence=batch.first_sequence, count=len(batch)),
        )

    # --- acknowledgements, interfaces, resynchronisation ----------------------------------------------------

    def _on_acknowledge(self, message: Acknowledge, peer: Peer) -> None:
        self.acks.acknowledged(peer.name, message.epoch)

    def _on_connect(self, name: Interface) -> None:
        """An interface is there, perhaps again and without its memory: a neighbour is told everything."""
        peer = self.peers.get(name)
        if peer is None:
            peer = self.peers.add(name)
        else:
            peer.received = peer.answered = 0
            self.acks.forget_source(name)
        if not peer.is_broker:
            return
        self._send(peer, SyncBegin())
        for state in self.types.values():
            if any(publisher != name for publisher in state.publishers):
                state.refused.pop(name, None)
                epoch = state.told[name] = self._next_epoch(peer)
                state.promised.pop(name, None)
                state.promised[name] = state.promise_to(name)
                self._send(peer, Advertise(epoch, state.event_type, state.promised[name]))
        for state in self.types.values():
            if name in state.outgoing:
                for message in state.outgoing[name].slots.resend():
                    self._send(peer, message)
        self._unended[name] = None
        self._end_syncs()
        self.acks.defer(name, peer.epoch)

    def _end_syncs(self) -> None:
        """Send the SyncEnds that are due.

        What a starting broker has not repeated is void for its neighbours from its SyncEnd on: so each hears
        it only after the others have told theirs. In an overlay without cycles that waiting ends.
        """
        for name in list(self._unended):
            if all(other == name for other in self._unheard):
                del self._unended[name]
                peer = self.peers[name]
                self._send(peer, SyncEnd(self._next_epoch(peer)))

    def _on_disconnect(self, message: Disconnect, peer: Peer) -> None:
        """An interface is gone for good: what it said is void, and nothing waits for it."""
        self.peers.remove(peer)
        self._quench.forget(peer)
        self.acks.forget_source(peer.name)
        for state in self.types.values():
            state.told.pop(peer.name, None)
            state.promised.pop(peer.name, None)
            state.refused.pop(peer.name, None)
        self._revoke(peer, list(peer.subscriptions), list(peer.advertised))
        if peer.is_broker:
            self.acks.forget_neighbour(peer.name)
            self._unended.pop(peer.name, None)
            self._unheard.pop(peer.name, None)
            self._end_syncs()

    def _on_sync_begin(self, message: SyncBegin, peer: Peer) -> None:
        """What was said before is set aside until SyncEnd.

        The ids of a neighbour's slots begin anew when it does: so that no new slot takes the place of an old
        one that is wanted still, the old ones go by other ids meanwhile. A client keeps its ids.
        """
        if peer.is_broker:
            for interest in peer.subscriptions.values():
                if interest.subscription_id > 0:
                    self.registry.rename(interest, peer.next_aside())
            peer.subscriptions = {i.subscription_id: i for i in peer.subscriptions.values()}
        peer.stale_subscriptions = dict.fromkeys(peer.subscriptions)
        peer.stale_types = dict.fromkeys(peer.advertised)

    def _on_sync_end(self, message: SyncEnd, peer: Peer) -> None:
        """What was not repeated since SyncBegin is void."""
        subscriptions, types = list(peer.stale_subscriptions), list(peer.stale_types)
        peer.stale_subscriptions, peer.stale_types = {}, {}
        self._revoke(peer, subscriptions, types)
        if peer.name in self._unheard:
            del self._unheard[peer.name]
            self.acks.release(peer.name, peer.epoch)
            self._end_syncs()

    def _revoke(self, peer: Peer, subscriptions: list[int], types: list[str]) -> None:
        """Take back several subscriptions, those of one type in one change, and several advertisements."""
        by_type: dict[str, list[Interest]] = {}
        for subscription_id in subscriptions:
            interest = peer.subscriptions[subscription_id]
            by_type.setdefault(interest.filter.event_type.name, []).append(interest)
        for name, interests in by_type.items():
            self._exchange(self.types[name], peer, [], interests)
        for name in types:
            self._withdraw(self.types[name], peer)

    # --- small things ---------------------------------------------------------------------------------------

    def _slots(self, peer: Peer) -> Slots:
        return Slots(lambda: self._next_epoch(peer), peer.next_slot, parametric=self.routing == "parametric")

    def _type(self, event_type: EventType) -> TypeState:
        state = self.types.get(event_type.name)
        if state is None:
            state = TypeState(event_type, engine=self.engine, poset=self._poset, merger=self._new_merger)
            if self.replay_events:
                state.ring = Ring(self.replay_events)
            self.types[event_type.name] = state
        return state

    def _forget_idle(self) -> None:
        for name in self._maybe_idle:
            if name in self.types and self.types[name].idle:
                del self.types[name]
        self._maybe_idle.clear()
