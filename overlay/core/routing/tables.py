"""The tables of a broker, and how what it does with a message is said.

All routing state is here: interfaces, interest, event types, acknowledgements, and what one message has made
so far (actions, and what its acknowledgement waits for), begun anew with each. The handlers of messages are
layers upon it: `subscribing.py`, then `advertisements.py`, then `syncing.py`; and `publishing.py`. `Broker`
is all of them, and its `handle` is the only way in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from covey.overlay.core.covering.interest import Registry
from covey.overlay.core.covering.poset import Poset
from covey.overlay.core.matching.interest_matching import InterestMatching, MatchingFactory
from covey.overlay.core.matching.matching import Matching
from covey.overlay.core.merging.mergers import merger_factory
from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    Advertise,
    Interface,
    Message,
    Refuse,
    Send,
)
from covey.overlay.core.routing.acks import Acks
from covey.overlay.core.routing.movers import Movers
from covey.overlay.core.routing.peers import BROKER, Peer, Peers
from covey.overlay.core.routing.quenching import Quench
from covey.overlay.core.routing.replay import Ring
from covey.overlay.core.routing.slots import SlotMessage, Slots
from covey.overlay.core.routing.type_state import TypeState

if TYPE_CHECKING:
    from covey.matcher import EventType


_ROUTINGS = ("parametric", "static")


class Tables:
    """State, and sending. Raises `ValueError` as `Broker` says."""

    def __init__(
        self,
        broker_id: str,
        *,
        routing: str,
        engine: str | MatchingFactory,
        poset: Callable[[], Poset],
        neighbours: Iterable[str],
        replay_events: int,
        damping: float,
        merging: str,
        merging_budget: int,
    ) -> None:
        if routing not in _ROUTINGS:
            raise ValueError(f"routing {routing!r}: expected one of {', '.join(_ROUTINGS)}")
        self.replaced_engine = not isinstance(engine, str)
        """Whether a factory replaces the engine: it may match what is announced, so nothing may be wider."""
        if damping and self.replaced_engine:
            raise ValueError(f"damping {damping!r}: expected 0 where a factory replaces the engine")
        self.broker_id = broker_id
        self.routing = routing
        self.engine = engine if isinstance(engine, str) else getattr(engine, "__name__", "factory")
        self._new_matching = _engine_factory(engine) if isinstance(engine, str) else engine
        self.peers = Peers()
        self.registry = Registry()
        self.acks = Acks()
        self.types: dict[str, TypeState] = {}
        self.replay_events = replay_events
        self.damping = damping if routing == "parametric" else 0.0
        self._movers = Movers()
        self._quench = Quench()
        self._now_ns = 0
        self._poset = poset
        self._new_merger = merger_factory(merging, merging_budget, routing)
        self._maybe_idle: dict[str, None] = {}
        self._unheard: dict[Interface, None] = dict.fromkeys(BROKER + name for name in neighbours)
        """Neighbours that have not told their state, up to SyncEnd, since this broker started."""
        self._unended: dict[Interface, None] = {}
        """Neighbours that wait for this broker's SyncEnd."""
        self._actions: list[Action] = []
        self._waits: dict[Interface, int] = {}
        self._source: Interface = ""

    # --- sending --------------------------------------------------------------------------------------------

    def _send(self, peer: Peer, message: Message) -> None:
        peer.counters.sent[message.__class__] += 1
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

    # --- event types ----------------------------------------------------------------------------------------

    def _slots(self, peer: Peer) -> Slots:
        return Slots(lambda: self._next_epoch(peer), peer.next_slot, parametric=self.routing == "parametric")

    def _type(self, event_type: EventType) -> TypeState:
        state = self.types.get(event_type.name)
        if state is None:
            state = TypeState(
                event_type, matching=self._new_matching, poset=self._poset, merger=self._new_merger
            )
            if self.replay_events:
                state.ring = Ring(self.replay_events)
            self.types[event_type.name] = state
        return state

    def _forget_idle(self) -> None:
        for name in self._maybe_idle:
            if name in self.types and self.types[name].idle:
                del self.types[name]
        self._maybe_idle.clear()


def _engine_factory(engine: str) -> MatchingFactory:
    def create(event_type: EventType, groups: Mapping[str, Poset], sessions: bool) -> InterestMatching:
        return Matching(engine, event_type)

    return create
