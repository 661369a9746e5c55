"""The routing state of one broker: interfaces, interest, event types and pending acknowledgements.

Only the handlers of `Broker` change it. The context of a call is in `Call`, not here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from covey.overlay.core.covering.registry import Registry
from covey.overlay.core.messages import Interface
from covey.overlay.core.operators.operator_notices import Notices
from covey.overlay.core.routing.acks import Acks
from covey.overlay.core.routing.durable_type import DurableType
from covey.overlay.core.routing.key_ages import KeyAges
from covey.overlay.core.routing.key_table import KeyBytes
from covey.overlay.core.routing.listener_reports import ListenerReports
from covey.overlay.core.routing.moving_interests import MovingInterests
from covey.overlay.core.routing.peers import Peer, Peers
from covey.overlay.core.routing.slots import Slots
from covey.overlay.core.routing.type_state import TypeState

if TYPE_CHECKING:
    from covey.matcher import EventType
    from covey.matcher.evaluation.evaluator import Evaluator
    from covey.overlay.core.matching.travelling import TravellingResults


@dataclass(slots=True)
class Tables:
    """`routing`, `engine` and `damping` are options of `Broker`; `new_type` creates the state of a type."""

    broker_id: str
    routing: str
    engine: str
    damping: float
    accepts_motion: bool
    """Whether clients may pass motions as values."""
    new_type: Callable[[EventType], TypeState]
    unsynced: dict[Interface, None]
    """Neighbours whose first SyncEnd has not arrived since this broker started."""
    evaluator: Evaluator
    """Asks the named operators that filters call."""
    results: TravellingResults
    """What these have answered, as it leaves with events."""
    durable: dict[str, DurableType] = field(default_factory=dict)
    """The event types whose events are stored; interest in them goes to all neighbours."""
    peers: Peers = field(default_factory=Peers)
    registry: Registry = field(default_factory=Registry)
    acks: Acks = field(default_factory=Acks)
    types: dict[str, TypeState] = field(default_factory=dict)
    key_bytes: KeyBytes = field(default_factory=KeyBytes)
    key_ages: KeyAges = field(default_factory=lambda: KeyAges({}))
    moving: MovingInterests = field(default_factory=MovingInterests)
    listeners: ListenerReports = field(default_factory=ListenerReports)
    pending_sync_ends: dict[Interface, None] = field(default_factory=dict)
    """Neighbours to which a SyncEnd is still to be sent."""
    awaiting_clients: bool = False
    """Whether the SyncEnds wait for the clients of a broker that has lost its state."""
    answering: dict[str, None] = field(default_factory=dict)
    """Types with answers for views that may have ended; looked at at the end of the call."""
    maybe_idle: dict[str, None] = field(default_factory=dict)
    """Types that may have become idle; removed at the end of the call."""
    changes: int = 0
    """How often a message of an interface has changed something, or asked for events."""
    notices: Notices = field(init=False)
    parametric: bool = field(init=False)

    def __post_init__(self) -> None:
        self.parametric = self.routing == "parametric"
        self.notices = Notices(self.broker_id, self.registry.callers)

    def new_slots(self, peer: Peer) -> Slots:
        next_epoch = partial(self.acks.next_epoch, peer.name)
        return Slots(next_epoch, peer.next_slot, parametric=self.parametric)

    def declare(self, schema: EventType) -> TypeState:
        """The state of an event type, created where it is unknown, with the attributes of this schema.
        `EventTypeError` where it does not agree with those in use.
        """
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
        """The key of an event type; None where it has none, or is not known."""
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
