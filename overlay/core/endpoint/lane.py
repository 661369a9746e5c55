"""The published events of one type that a client's broker has not accepted, and who waits for them.

Invariant: events are counted from 1 as they are published; what is passed to the link, accepted and confirmed
is a prefix of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType


class Confirmation:
    """Finished once the broker has accepted or refused certain events; `error` is their first refusal."""

    __slots__ = ("error", "flushes", "pending")

    def __init__(self, *, flushes: bool = False) -> None:
        self.error: Exception | None = None
        self.flushes = flushes
        self.pending = 0
        """The types of which some events are not accepted."""

    @property
    def finished(self) -> bool:
        return self.pending == 0


@dataclass(slots=True)
class Sent:
    """Events that were passed to the link, `first` to `last` of their type; refused here if they have no
    sequence number.
    """

    first: int
    last: int
    size: int
    first_sequence: int | None


@dataclass(slots=True)
class Waiting:
    """A confirmation of the events `first` to `last` of a type; of a flush, `first` is beyond `last`."""

    first: int
    last: int
    confirmation: Confirmation


class Lane:
    """The events of one type, counted from 1 as they are published."""

    __slots__ = (
        "accepted",
        "batches",
        "bytes",
        "event_type",
        "held",
        "passed",
        "published",
        "rows",
        "rows_bytes",
        "sent",
        "waiting",
    )

    def __init__(self, event_type: EventType) -> None:
        self.event_type = event_type
        """Of the rows."""
        self.batches: deque[tuple[EventBatch, int]] = deque()
        self.rows: list[Mapping[str, object]] = []
        self.rows_bytes = 0
        self.bytes = 0
        """Of all events that are not accepted."""
        self.published = self.passed = self.accepted = 0
        self.sent: deque[Sent] = deque()
        self.waiting: deque[Waiting] = deque()
        self.held = False

    @property
    def pending(self) -> int:
        return self.published - self.passed

    @property
    def events(self) -> int:
        return self.published - self.accepted

    def gather(self) -> None:
        """Turn the rows into a batch."""
        if self.rows:
            self.batches.append((EventBatch.from_pylist(self.event_type, self.rows), self.rows_bytes))
            self.rows, self.rows_bytes = [], 0

    def take(self, max_events: int) -> tuple[EventBatch, int]:
        """The next batch and its bytes."""
        if not self.batches:
            self.gather()
        batch, size = self.batches.popleft()
        if len(batch) > max_events:
            rest = batch.slice(max_events)
            rest_bytes = size * len(rest) // len(batch)
            self.batches.appendleft((rest, rest_bytes))
            batch, size = batch.slice(0, max_events), size - rest_bytes
        return batch, size
