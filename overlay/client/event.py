"""One event, as a subscriber gets it. Objects exist only where a user reads single events; batches are the
cheap form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from covey.matcher import EventBatch
from covey.matcher.events.trace_contexts import traceparents


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


def event_of(batch: EventBatch) -> Event:
    """The event of a batch of one."""
    columns = batch.columns
    if columns is None or batch.contexts:
        return events_of(batch)[0]
    (sequence,) = batch.sequence_numbers()
    return Event(batch.event_type.name, columns.row(0), batch.publisher, sequence, batch.ingress_ns)
