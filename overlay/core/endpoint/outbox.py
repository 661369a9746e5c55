"""Published events on their way to the broker: single ones gather into batches while the link is busy.

Invariants. Events of one type leave in the order of publication, counted from 1; the passed, accepted and
confirmed ones are prefixes. If the broker has accepted all earlier ones, events leave at once; else frames
leave at a bounded rate, so that events gather. A batch has at most `BATCH_EVENTS` gathered events. A held
type keeps its events here, under a bound of their own, and delays no other. An event is *accepted* once the
broker has acknowledged its frame and has not refused it."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from covey.matcher.errors import EventError
from covey.matcher.events.batch import EventBatch
from covey.matcher.events.plain_rows import PlainRows, Row
from covey.matcher.events.trace_contexts import MOST_CONTEXTS, TraceContext
from covey.overlay.core.endpoint.limits import Limits, RefusedError
from covey.overlay.core.link.joining import pieces
from covey.overlay.core.link.link import Frame, Link
from covey.overlay.core.link.size import held_by, size_of
from covey.overlay.core.messages import Message, Publish

UNTRACED, GATHERED = "", "gathered"
"""Traceparents of an event: it is in no trace; the batch in which it is gathered is to begin one."""

BeginTrace = Callable[[str, int], str]
"""(event type, number of events) to the traceparent of a batch, or `UNTRACED`."""


@dataclass(slots=True, eq=False)
class Confirmation:
    """Finished once the broker has accepted or refused certain events; `error` is their first refusal."""

    flushes: bool = False
    error: Exception | None = None
    pending: int = 0

    @property
    def finished(self) -> bool:
        return self.pending == 0


@dataclass(slots=True)
class Sent:
    """Events `first` to `last` of their type, passed to the link; refused here without a sequence number."""

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


@dataclass(slots=True, eq=False)
class Lane:
    """The events of one type. `rows_bytes` is the size of their events, `rows_held` and `bytes` are in
    memory, the latter of all unaccepted events. `rows_gathered` are the first and last row whose batch is to
    begin a trace."""

    name: str
    form: PlainRows | None = None
    batches: deque[tuple[EventBatch, int]] = field(default_factory=deque)
    rows: list[Row] = field(default_factory=list)
    rows_bytes: int = 0
    rows_held: int = 0
    rows_gathered: tuple[int, int] | None = None
    contexts: list[TraceContext] = field(default_factory=list)
    bytes: int = 0
    published: int = 0
    passed: int = 0
    accepted: int = 0
    sent: deque[Sent] = field(default_factory=deque)
    waiting: deque[Waiting] = field(default_factory=deque)
    ended: bool = False

    @property
    def events(self) -> int:
        return self.published - self.accepted

    def note(self, traceparent: str) -> None:
        row = len(self.rows) - 1
        if traceparent == GATHERED:
            self.rows_gathered = (row if self.rows_gathered is None else self.rows_gathered[0], row)
        else:
            self.contexts.append(TraceContext(row, row, traceparent))

    @property
    def gathered(self) -> bool:
        return len(self.contexts) >= MOST_CONTEXTS - 1


OUTBOX_EVENTS = 65_536
OUTBOX_BYTES = 16 << 20
BATCH_EVENTS = 1_024
_BATCH_BYTES = 256 << 10
_ROW_BYTES, _VALUE_BYTES = 250, 64
"""Of an event that is not in a batch yet, besides its size: a dict and its values."""
_FRAME_BYTES = 256 << 10
"""Approximate bytes of events per frame, so that the broker handles one while the next is created."""
_FRAME_EVERY_NS = 667_000
_BURST_NS = 8 * _FRAME_EVERY_NS
"""Frames that leave one by one before the rate is bounded, so that a caller that publishes each event after
the effect of the last, a thousand times a second, is never delayed."""


class Outbox:
    """The events of one client. `stamp` gives a batch its identity; `EventError` if its type is no longer
    advertised.

    `events` and `bytes`, of memory, count unaccepted events without held types; if `full`, a caller must
    wait. `finished` collects finished confirmations for the caller to take."""

    def __init__(
        self,
        stamp: Callable[[EventBatch], Publish],
        *,
        max_events: int = OUTBOX_EVENTS,
        max_bytes: int = OUTBOX_BYTES,
    ) -> None:
        self.limits = Limits()
        self.events = self.bytes = 0
        self.refused = 0
        """Refused events whose publisher did not wait for a confirmation."""
        self.finished: list[Confirmation] = []
        self.wait_ns: int | None = None
        self.begin_trace: BeginTrace | None = None
        self._stamp = stamp
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._lanes: dict[str, Lane] = {}
        self.waiting: dict[str, Lane] = {}
        """Lanes with events to send that are not held, the next one first."""
        self._held: set[str] = set()
        self._in_flight = 0
        self.unfinished = 0
        """Confirmations that somebody waits for."""
        self.frames: deque[tuple[int, list[tuple[Lane, int]]]] = deque()
        """Unacknowledged frames with events, and how many of which lane each has."""
        self._last_frame = 0
        self._next_ns = 0
        self.last_refusal: Exception | None = None
        self._first_refusal: Exception | None = None
        """The first refusal, and the number of refused events, since the last flush."""
        self._refused = 0

    # --- from the publisher ---------------------------------------------------------------------------------

    def full(self, type_name: str) -> bool:
        lane = self._lanes.get(type_name)
        if lane is not None and type_name in self._held:
            return lane.events >= self._max_events or lane.bytes >= self._max_bytes
        return self.events >= self._max_events or self.bytes >= self._max_bytes

    def put_row(self, form: PlainRows, row: Row, size: int, traceparent: str = UNTRACED) -> bool:
        """Add one event of `size` bytes, of `form.row`; False if it waits until `wait_ns` with others."""
        name = form.event_type.name
        lane = self._lanes.get(name) or self._lane(name)
        if lane.form is not form:
            self._gather(lane)
            lane.form = form
        rows = lane.rows
        rows.append(row)
        lane.rows_bytes += size
        held = size + _ROW_BYTES + _VALUE_BYTES * len(row)
        lane.rows_held += held
        if traceparent:
            lane.note(traceparent)
        lane.published += 1
        lane.bytes += held
        if name not in self._held:
            self.events += 1
            self.bytes += held
            self.waiting[name] = lane
        if len(rows) >= BATCH_EVENTS or lane.rows_bytes >= _BATCH_BYTES or (traceparent and lane.gathered):
            self._gather(lane)
            return True
        return self.wait_ns is None

    def put_batch(self, batch: EventBatch) -> None:
        """Add any number of events; they are split by the broker's limits."""
        if len(batch):
            lane = self._lanes.get(batch.event_type.name) or self._lane(batch.event_type.name)
            self._gather(lane)
            batch.compact()
            size = held_by(batch)
            lane.batches.append((batch, size))
            lane.published += len(batch)
            lane.bytes += size
            if lane.name not in self._held:
                self.events += len(batch)
                self.bytes += size
                self.waiting[lane.name] = lane

    def _gather(self, lane: Lane) -> None:
        if not lane.rows:
            return
        assert lane.form is not None
        batch = lane.form.batch(lane.rows)
        if lane.rows_gathered is not None and self.begin_trace is not None:
            traceparent = self.begin_trace(lane.name, len(lane.rows))
            if traceparent != UNTRACED:
                lane.contexts.append(TraceContext(*lane.rows_gathered, traceparent))
        batch.contexts = tuple(lane.contexts)
        held = held_by(batch)
        added = held - lane.rows_held
        lane.bytes += added
        lane.batches.append((batch, held))
        lane.rows, lane.rows_bytes, lane.rows_held, lane.rows_gathered, lane.contexts = [], 0, 0, None, []
        if lane.name not in self._held:
            self.bytes += added

    def _lane(self, name: str) -> Lane:
        lane = self._lanes[name] = Lane(name)
        return lane

    def confirm(self, type_name: str, count: int) -> Confirmation:
        confirmation = Confirmation()
        if count:
            lane = self._lanes[type_name]
            lane.waiting.append(Waiting(lane.published - count + 1, lane.published, confirmation))
            confirmation.pending = 1
            self.unfinished += 1
        return confirmation

    def flush(self) -> Confirmation:
        """A confirmation of all events so far; its `error` is the first refusal since the last flush."""
        confirmation = Confirmation(flushes=True)
        for lane in self._lanes.values():
            if lane.events:
                lane.waiting.append(Waiting(lane.published + 1, lane.published, confirmation))
                confirmation.pending += 1
        if confirmation.finished:
            confirmation.error = self._take_refusal()
        else:
            self.unfinished += 1
        return confirmation

    @property
    def pending(self) -> int:
        return sum(lane.events for lane in self._lanes.values())

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for events to be accepted, or soon will."""
        return (
            self.unfinished > 0 or self.events >= self._max_events // 2 or self.bytes >= self._max_bytes // 2
        )

    # --- to the link ----------------------------------------------------------------------------------------

    def _has_full_batch(self) -> bool:
        return any(lane.published - lane.passed >= BATCH_EVENTS for lane in self.waiting.values())

    def pass_events(self, link: Link, now_ns: int) -> None:
        """Pass the events of the link's next frame, if due; else set `wait_ns` to when they are."""
        if not link.open_for_events:
            return
        due_ns = self._next_ns - _BURST_NS
        if self._in_flight and due_ns > now_ns and not self._has_full_batch():
            self.wait_ns = due_ns
            return
        self._next_ns = max(self._next_ns, now_ns) + _FRAME_EVERY_NS
        room = min(link.max_frame_bytes, _FRAME_BYTES)
        while self.waiting and room > 0:
            name = next(iter(self.waiting))
            lane = self.waiting.pop(name)
            room -= self._pass_batch(lane, link)
            if lane.published > lane.passed:
                self.waiting[name] = lane

    def drain(self, type_name: str, link: Link) -> None:
        """Pass all events of a type, for a message that must come behind them."""
        lane = self._lanes.get(type_name)
        while lane is not None and lane.published > lane.passed:
            self._pass_batch(lane, link)
        self.waiting.pop(type_name, None)
        if lane is not None:
            lane.ended = True
            self._forget(lane)

    def _pass_batch(self, lane: Lane, link: Link) -> int:
        if not lane.batches:
            self._gather(lane)
        batch, size = lane.batches.popleft()
        most = self.limits.max_batch_events
        if batch.count > most:
            rest_bytes = size * (batch.count - most) // batch.count
            lane.batches.appendleft((batch.slice(most), rest_bytes))
            batch, size = batch.slice(0, most), size - rest_bytes
        first = lane.passed + 1
        lane.passed += batch.count
        self._in_flight += batch.count
        sent = Sent(first, lane.passed, size, None)
        lane.sent.append(sent)
        try:
            publish = self._stamp(batch)
        except EventError as error:  # the advertisement was refused or withdrawn meanwhile
            self._refuse(lane, sent.first, sent.last, RefusedError("FAILED_PRECONDITION", str(error)))
            self._accept(lane, 0)
            return 0
        sent.first_sequence = publish.batch.first_sequence
        if batch.count > 1:
            size = size_of(publish)
        if size <= self.limits.max_frame_bytes // 2:
            link.events.append(publish)
        else:
            for piece in pieces(publish, self.limits.max_frame_bytes // 2):
                link.events.append(piece)
        return size

    # --- from the link --------------------------------------------------------------------------------------

    def framed(self, frame: Frame[Message]) -> None:
        if frame.sequence > self._last_frame:
            self._last_frame = frame.sequence
            events = [
                (self._lanes[message.batch.event_type.name], message.batch.count)
                for message in frame.messages
                if isinstance(message, Publish)
            ]
            if events:
                self.frames.append((frame.sequence, events))

    def acknowledged(self, sequence: int) -> None:
        while self.frames and self.frames[0][0] <= sequence:
            for lane, count in self.frames.popleft()[1]:
                self._accept(lane, count)

    def restart(self) -> None:
        """The link was reset: it sends unacknowledged events again, in new frames, and nothing is held."""
        self.frames.clear()
        self._last_frame = 0
        for type_name in list(self._held):
            self.set_held(type_name, False)

    def set_held(self, type_name: str, held: bool) -> None:
        if held == (type_name in self._held):
            return
        (self._held.add if held else self._held.discard)(type_name)
        lane = self._lanes.get(type_name)
        if lane is None:
            return
        if held:
            self.waiting.pop(type_name, None)
            self.events -= lane.events
            self.bytes -= lane.bytes
        else:
            self.events += lane.events
            self.bytes += lane.bytes
            if lane.published > lane.passed:
                self.waiting[type_name] = lane

    def _accept(self, lane: Lane, count: int) -> None:
        """`count` more events have left the outbox, not counting those refused here."""
        before, before_bytes = lane.accepted, lane.bytes
        lane.accepted += count
        while lane.sent:
            sent = lane.sent[0]
            if sent.first_sequence is None and lane.accepted >= sent.first - 1:
                lane.accepted = max(lane.accepted, sent.first - 1) + sent.last - sent.first + 1
            if lane.accepted < sent.last:
                break
            lane.bytes -= sent.size
            lane.sent.popleft()
        self._in_flight -= lane.accepted - before
        if lane.name not in self._held:
            self.events -= lane.accepted - before
            self.bytes -= before_bytes - lane.bytes
        while lane.waiting and lane.waiting[0].last <= lane.accepted:
            self._finish(lane.waiting.popleft().confirmation)
        if lane.ended:
            self._forget(lane)

    def _forget(self, lane: Lane) -> None:
        if not lane.events:
            self._lanes.pop(lane.name, None)

    def _finish(self, confirmation: Confirmation) -> None:
        confirmation.pending -= 1
        if confirmation.finished:
            if confirmation.flushes:
                confirmation.error = self._take_refusal()
            self.unfinished -= 1
            self.finished.append(confirmation)

    # --- refusals -------------------------------------------------------------------------------------------

    def refuse(self, type_name: str, first_sequence: int, count: int, error: Exception) -> None:
        """The broker has refused `count` events of a type, from this sequence number on."""
        lane = self._lanes.get(type_name)
        for sent in () if lane is None else lane.sent:
            if sent.first_sequence is not None:
                offset = sent.first - sent.first_sequence
                low = max(first_sequence + offset, sent.first)
                high = min(first_sequence + count - 1 + offset, sent.last)
                if low <= high:
                    assert lane is not None
                    self._refuse(lane, low, high, error)

    def _refuse(self, lane: Lane, low: int, high: int, error: Exception) -> None:
        """The events `low` to `high` were refused: an error for their confirmations, else the next flush."""
        unconfirmed = high - low + 1
        start = bisect_left(lane.waiting, low, key=lambda waiting: waiting.last)
        for index in range(start, len(lane.waiting)):
            waiting = lane.waiting[index]
            if waiting.first > high:
                break
            overlap = min(high, waiting.last) - max(low, waiting.first) + 1
            if overlap > 0:
                unconfirmed -= overlap
                waiting.confirmation.error = waiting.confirmation.error or error
        if unconfirmed:
            self.last_refusal = error
            self._first_refusal = self._first_refusal or error
            self._refused += unconfirmed
            self.refused += unconfirmed

    def _take_refusal(self) -> Exception | None:
        error, count = self._first_refusal, self._refused
        self._first_refusal, self._refused = None, 0
        if isinstance(error, RefusedError) and count > 1:
            return RefusedError(error.status, f"{error} ({count:,} events were refused in all)")
        return error

    # --- the end --------------------------------------------------------------------------------------------

    def fail(self, error: Exception) -> None:
        """No more events will be sent; `pending` still counts unaccepted ones."""
        for lane in self._lanes.values():
            for waiting in lane.waiting:
                confirmation = waiting.confirmation
                if not confirmation.finished:
                    confirmation.pending = 0
                    confirmation.error = error
                    self.unfinished -= 1
                    self.finished.append(confirmation)
            lane.waiting.clear()
            lane.batches.clear()
            lane.rows.clear()
            lane.sent.clear()
        self.waiting.clear()
        self.frames.clear()
