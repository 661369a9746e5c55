"""A subscription as the judge of deliveries follows it: its versions, and the events it still expects."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from covey.overlay.core.link.joining import INGRESS_SPAN_NS
from covey.overlay.core.moving.motion import moves, still

if TYPE_CHECKING:
    from covey.matcher import Filter
    from covey.sim.checkers.columns import Columns

EventId = tuple[str, int]
"""Publisher and sequence number."""
Event = tuple[Mapping[str, Any], int]
"""Attributes, and when it entered the overlay."""


class JudgedSubscription:
    __slots__ = (
        "client",
        "columns",
        "crossed",
        "durable",
        "ends",
        "filter",
        "former",
        "marks",
        "pending",
        "row",
        "seen",
        "settled",
        "subscription_id",
        "versions",
    )

    def __init__(
        self,
        client: str,
        subscription_id: int,
        filter: Filter,
        columns: Columns,
        epoch: int,
        values: dict[str, Any],
    ) -> None:
        self.client = client
        self.subscription_id = subscription_id
        self.filter = filter
        self.columns = columns
        self.versions = [(epoch, values)]
        """The values from the last settled version on, or all, each with the epoch that carries it."""
        self.former: list[tuple[int, dict[str, Any]]] = []
        """Versions before a gapless update that has not settled: a crash may make it one like others."""
        self.ends: list[tuple[int, int | None]] = []
        """When its validity period is over, as it was said last and settled, and later, with the epochs."""
        self.settled = False
        self.durable = False
        """Whether it loses nothing in a crash."""
        self.pending: dict[EventId, Event] = {}
        """Expected events that have not been delivered."""
        self.crossed: set[EventId] = set()
        """Pending events that met a change on their way; kept where a change may lose events."""
        self.seen: set[EventId] | None = None
        """All events delivered since the first gapless update, if there was one."""
        self.marks: dict[str, int] = {}
        """The highest sequence number delivered, by publisher."""
        self.row = columns.add(self, values)

    @property
    def name(self) -> str:
        return f"{self.client}#{self.subscription_id}"

    @property
    def newest(self) -> dict[str, Any]:
        return self.versions[-1][1]

    def expects(self, row: Mapping[str, Any], values: Mapping[str, Any], at_ns: int) -> bool:
        """Whether values match an event that entered at this time or, with Motion, up to a span before."""
        if not moves(values):
            return self.columns.matches(row, values)
        times = (at_ns, at_ns - INGRESS_SPAN_NS)
        return all(self.columns.matches(row, still(values, time_ns)) for time_ns in times)
