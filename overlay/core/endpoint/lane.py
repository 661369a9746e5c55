"""The published events of one type that a client's broker has not accepted, and who waits for them.

Invariant: events are counted from 1 as they are published; what is passed to the link, accepted and confirmed
is a prefix of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.plain_rows import PlainRows, Row
from covey.matcher.events.trace_contexts import MOST_CONTEXTS, TraceContext
from covey.overlay.core.link.size import held_by

UNTRACED, GATHERED = "", "gathered"
"""Traceparents of an event: it is in no trace; the batch in which it is gathered is to begin one."""

BeginTrace = Callable[[str, int], str]
"""Gets an event type and a number of events; the traceparent of a batch, or `UNTRACED`."""


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
        "contexts",
        "form",
        "held",
        "name",
        "passed",
        "published",
        "rows",
        "rows_bytes",
        "rows_gathered",
        "rows_held",
        "sent",
        "waiting",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.form: PlainRows | None = None
        """Of the rows."""
        self.batches: deque[tuple[EventBatch, int]] = deque()
        self.rows: list[Row] = []
        self.rows_bytes = self.rows_held = 0
        """Of the events, and what they take in memory."""
        self.rows_gathered: tuple[int, int] | None = None
        """The first and the last row whose batch is to begin a trace."""
        self.contexts: list[TraceContext] = []
        """Of rows that are in a trace, by their positions."""
        self.bytes = 0
        """What all events that are not accepted take in memory."""
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

    def note(self, traceparent: str) -> None:
        """The last row is in a trace, or its batch is to begin one."""
        row = len(self.rows) - 1
        if traceparent == GATHERED:
            self.rows_gathered = (row if self.rows_gathered is None else self.rows_gathered[0], row)
        else:
            self.contexts.append(TraceContext(row, row, traceparent))

    @property
    def gathered(self) -> bool:
        """Whether the rows are to be a batch, for no more of them can be in a trace."""
        return len(self.contexts) >= MOST_CONTEXTS - 1

    def gather(self, begin_trace: BeginTrace | None) -> int:
        """Turn the rows into a batch; by how many bytes of memory the lane grows."""
        if not self.rows:
            return 0
        assert self.form is not None
        batch = self.form.batch(self.rows)
        if self.rows_gathered is not None and begin_trace is not None:
            traceparent = begin_trace(self.name, len(self.rows))
            if traceparent != UNTRACED:
                self.contexts.append(TraceContext(*self.rows_gathered, traceparent))
        batch.contexts = tuple(self.contexts)
        held = held_by(batch)
        added = held - self.rows_held
        self.bytes += added
        self.batches.append((batch, held))
        self.rows, self.rows_bytes, self.rows_held, self.rows_gathered, self.contexts = [], 0, 0, None, []
        return added

    def take(self, max_events: int) -> tuple[EventBatch, int]:
        """The next batch of those that are gathered, and its bytes."""
        batch, size = self.batches.popleft()
        if batch.count > max_events:
            rest = batch.slice(max_events)
            rest_bytes = size * len(rest) // len(batch)
            self.batches.appendleft((rest, rest_bytes))
            batch, size = batch.slice(0, max_events), size - rest_bytes
        return batch, size
