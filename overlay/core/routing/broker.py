"""The broker of Jayaram et al. (Figs. 3 and 6, with what the listings lack), as a function of its messages.

All routing state (`tables.py`) changes through `Broker.handle` alone (and `handle_all`, for messages that
arrived together): a message and the interface it came from go in, a list of actions comes out. Same input,
same output; no clock, no randomness, no I/O. What each message does stands in `subscribing.py`,
`advertisements.py`, `publishing.py` and `syncing.py`.

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

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from covey.overlay.core.covering.poset import Forest, Poset
from covey.overlay.core.introspection import invariants, views
from covey.overlay.core.matching.interest_matching import MatchingFactory
from covey.overlay.core.merging.mergers import MERGING_BUDGET
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
    Subscribe,
    SyncBegin,
    SyncEnd,
    Tick,
    Unadvertise,
    Unsubscribe,
    Update,
)
from covey.overlay.core.routing.acks import HELD
from covey.overlay.core.routing.peers import Peer
from covey.overlay.core.routing.publishing import Publishing
from covey.overlay.core.routing.syncing import Syncing

if TYPE_CHECKING:
    from covey.matcher import EventType


class Broker(Syncing, Publishing):
    """One broker. Give it an id, feed `handle`, and do what it says, in order.

    `routing` is "parametric" or "static" (the paper's baseline). `engine` names a matching engine, or is a
    factory of what replaces it; `poset` creates posets (`baselines/options.py` has those of the measuring
    baselines). `event_types` are never removed. `neighbours` are the ids of the brokers that it will be
    linked to: after a restart the broker acknowledges only what has taken effect in them as well.
    `replay_events` recent events of each type are stored for updates without gaps. `damping` is how many
    typical steps wider a client's bounds are announced to neighbours (`announcing.py`). `merging` is "off",
    "perfect" or "budget", with at most `merging_budget` slots per neighbour and type. Raises `ValueError` for
    another routing or merging, and for damping with a factory as engine, which may match what is announced.
    """

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
    ) -> None:
        super().__init__(
            broker_id,
            routing=routing,
            engine=engine,
            poset=poset,
            neighbours=neighbours,
            replay_events=replay_events,
            damping=damping,
            merging=merging,
            merging_budget=merging_budget,
        )
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

    def unheard(self) -> list[Interface]:
        """The neighbours that have not told their state since this broker started: answers wait for them."""
        return list(self._unheard)

    def timer(self) -> float | None:
        """When, as `now`, a Tick is to be handled; None while there is nothing to be done by the clock."""
        return self._movers.next_ns / 1e9 if self._movers.next_ns else None

    def render(self, listed: int | None = None) -> str:
        """The routing state, for people; see `views.render`."""
        return views.render(self, listed)

    def inspect(self, listed: int | None = None) -> dict[str, Any]:
        """The routing state and the counters, as plain values that JSON can hold; see `views.inspect`."""
        return views.inspect(self, listed)

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
        return self.handle_all((message,), source, now)

    def handle_all(self, messages: Iterable[Message], source: Interface, now: float) -> list[Action]:
        """As `handle`, for messages that arrived together, in order: whoever is owed acknowledgements is sent
        one, after all else.
        """
        actions = self._actions = []
        self._source = source
        self._now_ns = round(now * 1e9)
        for message in messages:
            kind = message.__class__
            peer = self.peers.get(source)
            if kind is Tick:
                self._on_tick()
            elif kind is Connect:
                self._on_connect(source)
            elif peer is not None:
                self._take(message, kind, peer)
            elif isinstance(message, Publish):
                actions.append(Drop("not connected", len(message.batch), message.batch.event_type.name))
        if self._quench.touched:
            for name, listeners in self._quench.drain(self.types):
                self._send(self.peers[name], listeners)
        if self.acks.ready:
            for name, epoch in self.acks.drain():
                self._acknowledge(name, epoch)
        if self._maybe_idle:
            self._forget_idle()
        return actions

    def _take(self, message: Message, kind: type[Message], peer: Peer) -> None:
        peer.counters.received[kind] += 1
        handler = self._epochal.get(kind)
        if handler is None:
            if kind in self._plain:
                self._plain[kind](message, peer)
            return
        epoch: int = message.epoch  # type: ignore[union-attr]
        if epoch > peer.received:
            peer.received = epoch
        elif kind is not Unadvertise:
            self._acknowledge(peer.name, peer.answered)  # said twice: it has been handled
            return
        waits = self._waits = {}
        handler(message, peer)
        for neighbour in self._unheard:
            if neighbour != peer.name:
                waits[neighbour] = HELD
        self.acks.open(peer.name, epoch, waits)
