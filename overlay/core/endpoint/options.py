"""The options of a broker's endpoint."""

from __future__ import annotations

from dataclasses import dataclass, field

from covey.overlay.core.endpoint.endings import PART
from covey.overlay.core.endpoint.limits import Limits, LinkLimits, QueueLimits, SessionLimits
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.endpoint.turns import TURN_MESSAGES
from covey.overlay.core.endpoint.windows import WindowSizes


@dataclass(frozen=True, slots=True)
class EndpointOptions:
    """The limits of a broker. Up to `join_events` events that came in several messages are matched as one
    batch. Without `stamp_ingress` events of clients keep the ingress time that they come with: a simulation
    in which something must be known of it in advance.

    While more than `max_queued_control` messages are queued for a neighbour, the broker reads nothing from
    clients with more than `max_unsettled` changes on their way. `after_hold_bytes` is what a client may send
    of a type after it was told to hold it, several times what is on its way then: more is refused, or a
    client that does not heed holds would fill queues that only holds bound. `drop_repeats` is for links that
    move (`repeats.py`). A turn has at most `turn_messages` messages (`turns.py`). Of subscriptions that end
    together `ending_part` are withdrawn at once (`endings.py`).
    """

    limits: Limits = field(default_factory=Limits)
    sessions: SessionLimits = field(default_factory=SessionLimits)
    links: LinkLimits = field(default_factory=LinkLimits)
    bounds: Bounds = field(default_factory=Bounds)
    join_events: int = Limits().max_batch_events
    stamp_ingress: bool = True
    windows: WindowSizes = field(default_factory=WindowSizes)
    max_queued_control: int = 50_000
    max_unsettled: int = 1_000
    after_hold_bytes: int = 16 << 20
    drop_repeats: bool = False
    turn_messages: int = TURN_MESSAGES
    ending_part: int = PART

    def queue_limits(self, *, session: bool) -> QueueLimits:
        """Those of a session's queue, or of a link's."""
        sessions, links = self.sessions, self.links
        if session:
            return QueueLimits(sessions.queue_bytes, links.held_bytes, sessions.queue_events)
        return QueueLimits(links.queue_bytes, links.held_bytes)
