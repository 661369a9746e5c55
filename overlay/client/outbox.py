"""Published events on their way to the broker: single ones gather into batches while the link is busy.

Invariants: events leave in the order in which they were published; a call to publish returns once the broker
has accepted its events, and raises if it has not. An idle link takes events at once; while frames are in
flight, events gather, so batches form by themselves; none has more bytes than a frame takes, unless it is a
single event. A call that is cancelled before its events are passed to the link publishes none of them.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from covey.matcher import EventBatch, EventType
from covey.matcher.errors import EventError
from covey.overlay.client.errors import RefusedError
from covey.overlay.core.client.actions import Refused
from covey.overlay.core.endpoint.admission import admit
from covey.overlay.core.endpoint.limits import Limits
from covey.overlay.core.link.link import Frame, Link
from covey.overlay.core.link.size import size_of
from covey.overlay.core.link.splitting import pieces
from covey.overlay.core.messages import Message, Publish

Accepted = asyncio.Future[None]

_SWEEP_AT = 1_024
"""Cancelled calls are removed when more entries than this are pending, so that a caller that retries while
the broker is away does not fill memory."""


@dataclass(slots=True)
class _Row:
    event_type: EventType
    values: Mapping[str, object]
    accepted: Accepted


@dataclass(slots=True)
class _Batch:
    batch: EventBatch
    accepted: Accepted
    last: bool


@dataclass(slots=True)
class _Sent:
    """A Publish that the broker has not acknowledged yet, and the futures of its events, in order."""

    publish: Publish
    waiting: list[Accepted]
    whole: bool
    last: bool


class Outbox:
    """Events of a client, from the call to the broker's acknowledgement. `stamp` gives batches their
    identity.
    """

    def __init__(self, stamp: Callable[[EventBatch], Publish]) -> None:
        self.limits = Limits()
        self._stamp = stamp
        self._entries: deque[_Row | _Batch] = deque()
        self._sweep_at = _SWEEP_AT
        self._sent: deque[_Sent] = deque()
        self._frames: deque[tuple[int, int]] = deque()
        self._last_frame = 0

    def put_row(self, event_type: EventType, values: Mapping[str, object]) -> Accepted:
        accepted: Accepted = asyncio.get_running_loop().create_future()
        self._put(_Row(event_type, values, accepted))
        return accepted

    def put_batch(self, batch: EventBatch) -> Accepted:
        """Any number of events; split into batches and frames."""
        accepted: Accepted = asyncio.get_running_loop().create_future()
        step = self.limits.max_batch_events
        for start in range(0, len(batch), step):
            self._put(_Batch(batch.slice(start, step), accepted, start + step >= len(batch)))
        if not len(batch):
            accepted.set_result(None)
        return accepted

    def _put(self, entry: _Row | _Batch) -> None:
        if len(self._entries) >= self._sweep_at:
            self._entries = deque(entry for entry in self._entries if not entry.accepted.cancelled())
            self._sweep_at = max(_SWEEP_AT, 2 * len(self._entries))
        self._entries.append(entry)

    @property
    def idle(self) -> bool:
        """Whether the broker has accepted all published events."""
        return not self._entries and not self._sent

    # --- to the link ------------------------------------------------------------------------------

    def flush(self, link: Link) -> None:
        """Pass as many events to the link as its next frame takes."""
        if self._entries and link.open_for_events:
            self._pass(link, link.max_frame_bytes)

    def drain(self, link: Link) -> None:
        """Pass all events to the link, for a message that must come behind them."""
        self._pass(link, math.inf)

    def _pass(self, link: Link, room: float) -> None:
        while self._entries and room > 0:
            if isinstance(self._entries[0], _Batch):
                entry = self._entries.popleft()
                assert isinstance(entry, _Batch)
                if entry.accepted.cancelled():
                    continue
                room -= self._send(link, entry.batch, [entry.accepted], whole=True, last=entry.last)
            else:
                room -= self._send_rows(link)

    def _send_rows(self, link: Link) -> int:
        rows: list[_Row] = []
        while self._entries and len(rows) < self.limits.max_batch_events:
            entry = self._entries[0]
            if not isinstance(entry, _Row) or (rows and entry.event_type != rows[0].event_type):
                break
            self._entries.popleft()
            if not entry.accepted.cancelled():
                rows.append(entry)
        if not rows:
            return 0
        event_type = rows[0].event_type
        try:
            batch = EventBatch.from_pylist(event_type, [row.values for row in rows])
        except EventError:
            rows = [row for row in rows if _fits(row)]
            if not rows:
                return 0
            batch = EventBatch.from_pylist(event_type, [row.values for row in rows])
        return self._send(link, batch, [row.accepted for row in rows], whole=False, last=True)

    def _send(
        self, link: Link, batch: EventBatch, waiting: list[Accepted], *, whole: bool, last: bool
    ) -> int:
        first = int(batch.sequences()[0])
        admitted, refusals = admit(batch, self.limits, 0)
        refused: set[int] = set()
        for refusal in refusals:
            error = RefusedError(refusal.status, refusal.reason)
            at = refusal.first_sequence - first
            for i in (0,) if whole else range(at, at + refusal.count):
                _fail(waiting[i], error)
                refused.add(i)
        if admitted is None:
            return 0
        remaining = waiting if whole else [accepted for i, accepted in enumerate(waiting) if i not in refused]
        try:
            publish = self._stamp(admitted.consecutive())
        except EventError as error:  # The advertisement was refused or taken back meanwhile.
            for accepted in remaining:
                _fail(accepted, RefusedError("FAILED_PRECONDITION", str(error)))
            return 0
        at = 0
        for piece in pieces(publish, self.limits.max_frame_bytes // 2):
            assert isinstance(piece, Publish)
            end = at + len(piece.batch)
            parts = remaining if whole else remaining[at:end]
            self._sent.append(_Sent(piece, parts, whole, not whole or (last and end == len(admitted))))
            link.send(piece)
            at = end
        return size_of(publish)

    # --- from the link ----------------------------------------------------------------------------

    def framed(self, frame: Frame[Message]) -> None:
        """A frame was sent. The number of its Publishes identifies them, as they keep their order."""
        if frame.sequence > self._last_frame:
            self._last_frame = frame.sequence
            count = sum(isinstance(message, Publish) for message in frame.messages)
            if count:
                self._frames.append((frame.sequence, count))

    def acknowledged(self, sequence: int) -> None:
        """The broker has received all frames up to this one."""
        while self._frames and self._frames[0][0] <= sequence:
            for _ in range(self._frames.popleft()[1]):
                sent = self._sent.popleft()
                if sent.last:
                    for accepted in sent.waiting:
                        if not accepted.done():
                            accepted.set_result(None)

    def restart(self) -> None:
        """The link was reset, and queues unacknowledged messages again: in the same order, in new frames."""
        self._frames.clear()
        self._last_frame = 0

    def refused(self, refuse: Refused) -> None:
        """The broker refused some events."""
        error = RefusedError(refuse.status, refuse.reason)
        for sent in self._sent:
            batch = sent.publish.batch
            if batch.event_type.name != refuse.type_name:
                continue
            low = max(refuse.first_sequence, batch.first_sequence)
            high = min(refuse.first_sequence + refuse.count, batch.first_sequence + len(batch))
            if low < high:
                first = batch.first_sequence
                for accepted in sent.waiting if sent.whole else sent.waiting[low - first : high - first]:
                    _fail(accepted, error)

    def fail(self, error: Exception) -> None:
        """No more events will be sent."""
        for entry in self._entries:
            _fail(entry.accepted, error)
        for sent in self._sent:
            for accepted in sent.waiting:
                _fail(accepted, error)
        self._entries.clear()
        self._sent.clear()
        self._frames.clear()


def _fits(row: _Row) -> bool:
    """Whether an event fits its type; fails the call that published it if not."""
    try:
        EventBatch.from_pylist(row.event_type, [row.values])
    except EventError as error:
        _fail(row.accepted, error)
        return False
    return True


def _fail(accepted: Accepted, error: Exception) -> None:
    if not accepted.done():
        accepted.set_exception(error)
