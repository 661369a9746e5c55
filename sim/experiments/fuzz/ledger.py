"""What becomes of each event of a history: published, delivered, told as dropped, or lost in a crash."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from covey.overlay.core.messages import Deliver, Gap, Publish
from covey.sim.simulator.broker import SimulatedBroker
from covey.sim.simulator.observer import ObservedClient, Observer

if TYPE_CHECKING:
    from covey.matcher import EventBatch
    from covey.overlay.core.client.actions import DeliverTo

Event = tuple[str, int]
"""Its publisher and its sequence number."""
Reader = tuple[str, str]
"""A client and an event type. It has one subscription to the type, which all of its events match."""


class Ledger(Observer):
    """Observes clients that have at most one subscription to a type, which all of its events match."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self.publications: dict[str, dict[Event, int]] = {}
        """By type, when each event was published."""
        self.deliveries: dict[Reader, dict[Event, int]] = {}
        """When each event arrived first."""
        self.gaps: dict[Reader, int] = {}
        """Events in gaps."""
        self.newest: dict[str, dict[object, Event]] = {}
        """By type with a key, the last event of each key. Its events come from one publisher."""
        self.lost_events: dict[str, dict[Event, None]] = {}
        """By type, those that a broker had taken, and no other had acknowledged, when it crashed."""
        self.lost_gaps: dict[Reader, int] = {}
        """Events in gaps that no client had acknowledged when its broker crashed."""
        self._now_ns = now_ns

    def missing(self, reader: Reader) -> int:
        """How many events have not arrived, without those that were lost in a crash."""
        _, type_name = reader
        arrived, lost = self.deliveries.get(reader, {}), self.lost_events.get(type_name, {})
        events = self.publications.get(type_name, {})
        return sum(event not in arrived and event not in lost for event in events)

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        known = self.publications.setdefault(batch.event_type.name, {})
        known.update(dict.fromkeys(_events(batch), self._now_ns()))
        if batch.event_type.key is not None:
            keys = batch.values(batch.event_type.key)
            self.newest.setdefault(batch.event_type.name, {}).update(zip(keys, _events(batch), strict=True))

    def unseen(self, reader: Reader) -> list[object]:
        """Keys whose last event has not arrived, without those that were lost in a crash."""
        _, type_name = reader
        arrived, lost = self.deliveries.get(reader, {}), self.lost_events.get(type_name, {})
        newest = self.newest.get(type_name, {})
        return [key for key, event in newest.items() if event not in arrived and event not in lost]

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        known = self.deliveries.setdefault((client.name, action.batch.event_type.name), {})
        for event in _events(action.batch):
            known.setdefault(event, self._now_ns())

    def missed(self, client: ObservedClient, gap: Gap) -> None:
        reader = client.name, gap.type_name
        self.gaps[reader] = self.gaps.get(reader, 0) + gap.count

    def crashes(self, broker: SimulatedBroker) -> None:
        """The broker is about to crash."""
        for name, queue in broker.endpoint.queues.items():
            for message in queue.link.pending_messages():
                if isinstance(message, Gap):
                    reader = name, message.type_name
                    self.lost_gaps[reader] = self.lost_gaps.get(reader, 0) + message.count
                elif isinstance(message, Publish | Deliver):
                    known = self.lost_events.setdefault(message.batch.event_type.name, {})
                    known.update(dict.fromkeys(_events(message.batch)))


def _events(batch: EventBatch) -> Iterator[Event]:
    return ((batch.publisher, sequence) for sequence in batch.sequences().tolist())
