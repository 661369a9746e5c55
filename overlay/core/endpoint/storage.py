"""What a broker stores, as its endpoint sees it: logs of durable types, and each receiver's place in them.

A record is a batch and its receivers, as routing found them on arrival, so what is sent after a restart does
not depend on later subscriptions. Offsets count the records of a type from 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from covey.overlay.core.messages import Deliver, Interface, Publish, Receiver, RestoreKeys

if TYPE_CHECKING:
    from covey.matcher import EventBatch, Filter
    from covey.matcher.expressions.expression import Scalar

RECORD_BYTES = 2 << 20
"""The most that a record of several events takes, so that it fits into messages of a session that moves."""


@dataclass(frozen=True, slots=True)
class Record:
    offset: int
    batch: EventBatch
    receivers: Sequence[Receiver]


@dataclass(frozen=True, slots=True)
class StoredSubscription:
    """A subscription of a durable session; `ends_ns` is by the clock that stamps events, 0 for never."""

    subscription_id: int
    filter: Filter
    values: Mapping[str, Scalar]
    ends_ns: int = 0


@dataclass(frozen=True, slots=True)
class Arrival:
    """What waits for a session that has come from another broker: records of this broker's logs with
    `receiver`, below the offsets `ends` by type, before its own. Until `origin` is empty, that broker has yet
    to confirm the handover, in the attempt `number`."""

    receiver: Interface
    ends: Mapping[str, int]
    origin: str = ""
    number: int = 0


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A durable session. Its `identity` is unique among sessions of the name, at all brokers."""

    identity: str
    subscriptions: Sequence[StoredSubscription]
    arrival: Arrival | None = None


SubscriptionChanges = tuple[Iterable[StoredSubscription], Iterable[int]]
"""The new or changed subscriptions of a session, and the ids of removed ones."""


class Storage(Protocol):
    """The storage of one broker. An appended record is safe once a sync that began later has ended."""

    @property
    def types(self) -> Sequence[str]:
        """The durable types."""

    @property
    def unsynced(self) -> bool:
        """Whether a record may be lost in a crash."""

    def append(self, batch: EventBatch, receivers: Sequence[Receiver]) -> int:
        """Store a batch; returns its offset."""

    def append_copy(self, batch: EventBatch, receiver: Receiver) -> int:
        """Store a batch that was stored for a session at another broker; not counted in watermarks."""

    def read(
        self, type_name: str, offset: int, max_bytes: int, receiver: Interface
    ) -> tuple[Sequence[Record], int, int]:
        """Records from an offset on with only this receiver, where to read on, and how many records, of any
        receiver, retention has removed or damage lost."""

    def published(self, type_name: str) -> Iterator[RestoreKeys]:
        """The newest records that clients have published here, and ends of their keys."""

    def end(self, type_name: str) -> int:
        """The offset of the next record."""

    def synced(self, type_name: str) -> int:
        """The offset below which all records are on disk."""

    def watermarks(self, type_name: str) -> Mapping[str, int]:
        """The highest stored sequence number by publisher."""

    def cursor(self, interface: Interface, type_name: str) -> int:
        """A lower bound of the first unacknowledged offset, 0 if unknown."""

    def save_cursors(self, cursors: Mapping[tuple[Interface, str], int]) -> None: ...

    def trim(self, type_name: str, before: int) -> None:
        """No receiver needs a record from before this offset."""

    def sessions(self) -> Mapping[Interface, StoredSession]:
        """The durable sessions."""

    def awaited(self) -> Sequence[Interface]:
        """The clients that a restarted broker waits for."""

    def save_awaited(self, added: Sequence[Interface], removed: Sequence[Interface]) -> None: ...

    def save_session(
        self,
        interface: Interface,
        identity: str,
        subscriptions: Iterable[StoredSubscription],
        arrival: Arrival | None = None,
    ) -> None:
        """Store a session at once, with its arrival if it comes from another broker."""

    def save_subscriptions(
        self, changes: Mapping[Interface, SubscriptionChanges], *, synced: bool = True
    ) -> None:
        """Store changes of sessions, on return, or unless `synced` with a sync that begins later."""

    def forget_sessions(self, interfaces: Iterable[Interface]) -> None:
        """Remove ended sessions."""

    def hand_over(self, interface: Interface, moved_to: str, number: int) -> None:
        """A session now belongs to another broker, by this attempt."""

    def save_arrival(self, interface: Interface, arrival: Arrival | None) -> None: ...

    def moved_to(self, interface: Interface) -> tuple[str, int]:
        """The broker to which the client's session was handed over last, "" for none, and the attempt."""


def parts_of(
    batch: EventBatch, receivers: Sequence[Receiver]
) -> Iterator[tuple[EventBatch, Sequence[Receiver]]]:
    """Halve a batch and its receivers until a record of each part takes at most `RECORD_BYTES`, or has one
    event. Store them in order: after a crash between two the publisher sends the second one again."""
    if batch.count < 2 or batch.nbytes + 4 * sum(map(_numbers, receivers)) <= RECORD_BYTES:
        yield batch, receivers
        return
    middle = batch.count // 2
    for start, stop in ((0, middle), (middle, batch.count)):
        parts = [part for each in receivers if (part := _part(each, start, stop)) is not None]
        if parts:
            yield from parts_of(batch.slice(start, stop - start), parts)


def _numbers(receiver: Receiver) -> int:
    return sum(each.size for each in (receiver.rows, receiver.offsets, receiver.ids) if each is not None)


def _part(receiver: Receiver, start: int, stop: int) -> Receiver | None:
    rows = receiver.rows
    if rows is not None:
        first = start
        start, stop = np.searchsorted(rows, (start, stop)).tolist()
        if start == stop:
            return None
        rows = rows[start:stop] - first
    offsets, ids = receiver.offsets, receiver.ids
    if offsets is None or ids is None:
        return replace(receiver, rows=rows)
    low, high = int(offsets[start]), int(offsets[stop])
    return replace(receiver, rows=rows, offsets=offsets[start : stop + 1] - low, ids=ids[low:high])


def message_of(record: Record, receiver: Receiver, *, late: bool = False) -> Publish | Deliver:
    """A receiver's message. `late`: a client evaluates it again, since filters may have changed."""
    batch = record.batch if receiver.rows is None else record.batch.take(receiver.rows)
    if receiver.ids is None or receiver.offsets is None:
        return Publish(batch, offset=record.offset)
    epoch = 0 if late else receiver.epoch
    return Deliver(batch, receiver.offsets, receiver.ids, epoch, offset=record.offset)
