"""Events that a broker has had already, where links move.

In a tree that stays, an event reaches a broker once. While a link moves, it may come a second time over the
new link: it was slower on the longer way. Events of one publisher and type keep their order over every
connection, so whatever is not newer than the newest event of its publisher and type is a repetition.

Invariant: no event is passed to the core twice, except replays, whose recipients drop what they have
(`core/client/recent.py`), and events of publishers that are none of the last `WATERMARKS` ones of their type.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from covey.matcher.events.batch import EventBatch
from covey.overlay.core.messages import Publish
from covey.overlay.core.watermarks import Watermarks


class Repeats:
    """The newest event of each publisher and type that a broker has taken. `dropped` counts repetitions."""

    def __init__(self) -> None:
        self.dropped = 0
        self._marks: dict[str, Watermarks] = {}

    def taken(self, batch: EventBatch) -> EventBatch | None:
        """The events of a batch that are new, None where none is; counts them as taken."""
        name = batch.event_type.name
        marks = self._marks.get(name)
        if marks is None:
            marks = self._marks[name] = Watermarks()
        fresh = marks.fresh(batch)
        if fresh is None:
            return batch
        self.dropped += len(fresh) - int(fresh.sum())
        return batch.filter(fresh) if fresh.any() else None

    def fresh(self, message: Publish) -> Publish | None:
        """A neighbour's events without those that were taken before; None where none is left."""
        if message.replayed or message.for_views:
            return message
        batch = self.taken(message.batch)
        if batch is None or batch is message.batch:
            return message if batch is not None else None
        return replace(message, batch=batch)

    def forget_types(self, known: Container[str]) -> None:
        """Event types that are not known any more have no events."""
        self._marks = {name: marks for name, marks in self._marks.items() if name in known}
