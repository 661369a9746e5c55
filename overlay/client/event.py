"""One event, as a subscriber gets it, and the events of one message for one subscription until they are
handed out.

Objects exist only where a user reads single events; batches are the cheap form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from covey.matcher import EventBatch
from covey.matcher.events.trace_contexts import traceparents
from covey.overlay.core.client.actions import DeliverTo, Matches

StrictRows = Callable[[EventBatch, int], npt.NDArray[np.int64] | None]
"""As of `ClientSession.strict_reader`."""


class Event(Mapping[str, Any]):
    """The attributes of an event by name; an absent one is None. `(publisher, sequence)` identifies it.

    `ingress_ns` is when it entered the overlay, in nanoseconds since the epoch by the clock of that broker;
    `traceparent` is its W3C Trace Context, None if it is in no trace.
    """

    __slots__ = ("_values", "ingress_ns", "publisher", "sequence", "traceparent", "type_name")

    def __init__(
        self,
        type_name: str,
        values: dict[str, Any],
        publisher: str,
        sequence: int,
        ingress_ns: int,
        traceparent: str | None = None,
    ) -> None:
        self._values = values
        self.type_name = type_name
        self.publisher = publisher
        self.sequence = sequence
        self.ingress_ns = ingress_ns
        self.traceparent = traceparent

    def __getitem__(self, attribute: str) -> Any:
        try:
            return self._values[attribute]
        except KeyError:
            known = ", ".join(self._values)
            raise KeyError(f"{self.type_name} has no attribute {attribute!r}; it has {known}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self._values.items() if value is not None)
        return f"{self.type_name}({shown})"


def events_of(batch: EventBatch) -> list[Event]:
    """The events of a batch, one object each."""
    name, publisher, ingress_ns = batch.event_type.name, batch.publisher, batch.ingress_ns
    rows = zip(batch.to_pylist(), batch.sequence_numbers(), strict=True)
    if not batch.contexts:
        return [Event(name, values, publisher, sequence, ingress_ns) for values, sequence in rows]
    traced = traceparents(batch.contexts, batch.sequences())
    return [
        Event(name, values, publisher, sequence, ingress_ns, traceparent)
        for (values, sequence), traceparent in zip(rows, traced, strict=True)
    ]


class Claim:
    """Bytes of credit that are granted again once every part of a message is done; messages are numbered as
    they come."""

    __slots__ = ("_parts", "_release", "number")

    def __init__(self, number: int, parts: int, release: Callable[[], None]) -> None:
        self.number = number
        self._parts = parts
        self._release = release
        if not parts:
            release()

    def done(self) -> None:
        self._parts -= 1
        if self._parts == 0:
            self._release()


class Part:
    """A batch whose events matched a subscription at `epoch` of its client.

    Single events are evaluated again in chunks: where the subscription has changed, the next chunk is one
    event, then two, four, ..., so that a reader that moves its subscription after each event does not
    evaluate the whole rest each time.
    """

    __slots__ = (
        "_chunk",
        "_evaluated_at",
        "_evaluated_to",
        "_events",
        "batch",
        "claim",
        "epoch",
        "replayed",
        "share",
        "start",
    )

    def __init__(self, share: DeliverTo, epoch: int, claim: Claim) -> None:
        self.share = share
        self.batch = share.batch
        self.replayed = share.replayed
        self.epoch = epoch
        self.claim = claim
        self.start = 0
        """The first row that was not handed out; their number once all were."""
        self._evaluated_to = 0
        """The first row that was not evaluated."""
        self._events: deque[tuple[int, Event]] = deque()
        self._evaluated_at = epoch
        """The epoch at which the rows up to `_evaluated_to` were evaluated."""
        self._chunk = share.batch.count

    def rest(self) -> EventBatch:
        """The events that were not handed out, not evaluated again."""
        return self.batch.slice(self.start) if self.start else self.batch

    def skip(self, count: int) -> None:
        """The next so many events, fewer than are left, were handed out or passed over."""
        self.start += count
        self._evaluated_to, self._chunk = self.start, self.batch.count
        self._events.clear()

    def matches(self, subscription_id: int) -> Matches:
        """The rest in undivided form."""
        rest = self.rest()
        ids = np.full(len(rest), subscription_id, dtype=np.int64)
        return Matches(rest, np.arange(len(rest)), ids, {}, self.replayed, self.epoch)

    def next_event(self, strict_rows: StrictRows, changed: int) -> tuple[Event | None, int]:
        """The next event that matches the newest values, None where none is left, and how many events were
        passed over. `changed` is the epoch of the subscription's last change.
        """
        batch = self.batch
        count = batch.count
        if count == 1:
            rows = strict_rows(batch, self.epoch)
            self.start = 1
            if rows is not None and not len(rows):
                return None, 1
            if batch.columns is None or batch.contexts:
                return events_of(batch)[0], 0
            (sequence,) = batch.sequence_numbers()
            values = batch.columns.row(0)
            return Event(batch.event_type.name, values, batch.publisher, sequence, batch.ingress_ns), 0
        if self.start < self._evaluated_to and self._evaluated_at < changed:
            self._evaluated_to, self._chunk = self.start, 1
            self._events.clear()
        while not self._events and self._evaluated_to < count:
            chunk = batch.slice(self._evaluated_to, self._chunk)
            rows = strict_rows(chunk, self.epoch)
            self._evaluated_at = changed
            if rows is None:
                self._events.extend(enumerate(events_of(chunk), self._evaluated_to))
            else:
                matching = events_of(chunk.take(rows))
                self._events.extend(zip((rows + self._evaluated_to).tolist(), matching, strict=True))
            self._evaluated_to += len(chunk)
            self._chunk *= 2
        row, event = self._events.popleft() if self._events else (count, None)
        passed_over = row - self.start
        self.start = row + 1
        if not self._events and self._evaluated_to >= count:
            passed_over += max(0, count - self.start)
            self.start = count
        return event, passed_over
