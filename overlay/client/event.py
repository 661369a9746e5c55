"""Single events for users, made on demand from parts of messages; batches are cheaper."""

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
"""See `ClientSession.strict_reader`."""


class Event(Mapping[str, Any]):
    """Attributes by name; a missing one is None. `(publisher, sequence)` identifies the event. `ingress_ns`
    is its entry into the overlay, in ns since the epoch; `traceparent` is its W3C Trace Context, if any."""

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
    """Credit of one message, released once all its parts are done. Numbers follow the order of arrival."""

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
    """A batch whose events matched a subscription at `epoch`. After a change of the subscription events are
    evaluated again in chunks of one, two, four, ..., since readers may move it after each event."""

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
        """The first row not handed out."""
        self._evaluated_to = 0
        self._events: deque[tuple[int, Event]] = deque()
        self._evaluated_at = epoch
        """The epoch at which the rows before `_evaluated_to` were evaluated."""
        self._chunk = share.batch.count

    def rest(self) -> EventBatch:
        return self.batch.slice(self.start) if self.start else self.batch

    def skip(self, count: int) -> None:
        """Skip `count` events, fewer than are left."""
        self.start += count
        self._evaluated_to, self._chunk = self.start, self.batch.count
        self._events.clear()

    def matches(self, subscription_id: int) -> Matches:
        rest = self.rest()
        ids = np.full(len(rest), subscription_id, dtype=np.int64)
        return Matches(rest, np.arange(len(rest)), ids, {}, self.replayed, self.epoch)

    def next_event(self, strict_rows: StrictRows, changed: int) -> tuple[Event | None, int]:
        """The next event for the newest values (None at the end), and how many were skipped. `changed` is the
        epoch of the subscription's last change."""
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
