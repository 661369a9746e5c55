"""The queue of one browser, with the brokers' policies, and the window of frames sent and not acknowledged.
Messages are numbered 1, 2, 3, ... behind the session's first welcome by their order alone, so that a frame's
text is the same for all browsers.

Invariants: at most `queue_bytes` and one frame of events are pending, and at most `window_bytes` and one
frame are sent and not acknowledged; every dropped event is in a gap, which is sent before all pending frames;
answers are never dropped, notices over a bound are.

Conflation follows the rule of a broker's queue (`covey.overlay.core.link.event_queue`). A frame retains the
keys of its events, not their batch, which would retain all its other events.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import randint

import numpy as np

from covey.gateway.encoding import Frame, chosen
from covey.gateway.limits import Limits, Overflow
from covey.gateway.messages import GapNotice, Message, OverflowNotice, encode
from covey.overlay import Gap, RefusedError
from covey.overlay.core.client.rate_gate import RateGate
from covey.overlay.core.link.event_queue import codes_of, last_of_each


@dataclass(slots=True)
class Totals:
    received_messages: int = 0
    sent_messages: int = 0
    sent_events: int = 0
    sent_bytes: int = 0
    dropped_notices: int = 0
    pending_bytes: int = 0
    missed_events: Counter[str] = field(default_factory=Counter)
    overflows: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)


def conflate(frames: Sequence[Frame]) -> tuple[list[Frame], list[tuple[Frame, int]]]:
    """Drop the events that later ones supersede; returns the remaining frames in order, and the frames that
    lost events, with their numbers. Frames without keys are neither changed nor supersede others."""
    by_type: dict[str, list[int]] = defaultdict(list)
    for position, frame in enumerate(frames):
        if frame.keys is not None:
            by_type[frame.type_name].append(position)
    kept: list[Frame | None] = [*frames]
    lost = []
    for positions in by_type.values():
        counts = [frames[position].event_count for position in positions]
        codes = codes_of([frames[position].keys for position in positions])
        numbers = np.repeat([frames[position].subscription for position in positions], counts)
        stays = last_of_each(codes, numbers, np.arange(len(codes)), len(codes)) | (codes < 0)
        for position, mask in zip(positions, np.split(stays, np.cumsum(counts)[:-1]), strict=True):
            gone = len(mask) - int(mask.sum())
            if gone:
                lost.append((frames[position], gone))
                kept[position] = chosen(frames[position], mask) if gone < len(mask) else None
    return [frame for frame in kept if frame is not None], lost


def rate_gate(rate: float) -> RateGate[Frame]:
    return RateGate(rate, conflate, lambda frame: frame.size)


_MOST_CONTROL = 1_000
"""Pending messages other than events; at the bound the gateway stops reading from the browser."""
_FEW_BYTES = 65_536
"""The bytes that may always wait for a browser, under any policy. Each queue draws its own threshold of
conflation from half of it: otherwise browsers with the same events would all conflate at once, 1 ms each."""
_MOST_FORGOTTEN = 10_000
"""Dropped frames of a browser that does not acknowledge: how far back a gap can name lost events."""


class UnacknowledgedError(RefusedError):
    """A browser sends requests and acknowledges nothing; its session goes on."""

    def __init__(self, answers: int, size: int) -> None:
        reason = f"{answers} answers are pending, and {size} bytes that were sent are not acknowledged"
        super().__init__("UNAVAILABLE", reason)


class BrowserQueue:
    """The queue of one session. A browser that cannot acknowledge (server-sent events) has `acknowledges`
    false: then the window keeps the newest frames. `totals` are the gateway's; `conflated` counts superseded
    events; `overflowed` is set when a queue with the policy to disconnect was full."""

    def __init__(
        self, overflow: Overflow, limits: Limits, *, acknowledges: bool, totals: Totals | None = None
    ) -> None:
        self.totals = Totals() if totals is None else totals
        self.dropped = 0
        self.conflated = 0
        self.dropped_notices = 0
        self.overflowed = False
        self.overflow = overflow
        self._limits = limits
        self._acknowledges = acknowledges
        self._pending: deque[Frame] = deque()
        self._pending_bytes = 0
        self._view_bytes = 0
        self._held_bytes = 0
        self._conflated_from = 0
        self._few_bytes = min(randint(_FEW_BYTES // 2, _FEW_BYTES), limits.queue_bytes // 4)
        self._control = 0
        self._sent: deque[Frame] = deque()
        self._sent_bytes = 0
        self._acknowledged = 0
        self._forgotten: deque[Frame] = deque(maxlen=_MOST_FORGOTTEN)
        """The newest frames dropped from the window, without data."""
        self._gaps: dict[tuple[str, str], Gap] = {}
        self._full = False
        self._changed = asyncio.Event()
        self._emptier = asyncio.Event()
        self._emptier.set()
        self._calmer = asyncio.Event()

    # --- what comes ---------------------------------------------------------------------------------

    def put(self, frame: Frame) -> None:
        """Add events. A queue that is not full takes a frame of any size; a full one drops by its policy."""
        if self.overflow is Overflow.CONFLATE:
            self._conflate(frame.size)
        if self._is_full():
            self._overflow_begins()
            if self.overflow is Overflow.DROP_NEWEST or self.overflowed:
                self._drop(frame)
                return
            if self.overflow is Overflow.DROP_OLDEST:
                self._drop_oldest(self._most_bytes() - frame.size)
        self._append(frame)

    def hold(self, size: int) -> None:
        """Count `size` bytes that wait for this browser elsewhere; negative when they leave."""
        self._held_bytes += size
        self.totals.pending_bytes += size

    def close(self) -> None:
        self.totals.pending_bytes -= self.pending_bytes
        self._pending.clear()
        self._pending_bytes = self._view_bytes = self._held_bytes = 0

    def _conflate(self, coming: int) -> None:
        """Conflate when twice as much waits as after the last time, which is O(log n) per event, and before a
        drop. For the same reason a queue that stays full is then emptied to three quarters."""
        if not self._pending_bytes:
            self._conflated_from = 0
        full = self._is_full()
        if self._pending_bytes + coming <= max(self._few_bytes, self._conflated_from) and not full:
            return
        kept, lost = conflate(self._pending)
        self._pending = deque(kept)
        before = self._pending_bytes
        self._pending_bytes = sum(frame.size for frame in kept if frame.event_count and not frame.of_view)
        self.totals.pending_bytes += self._pending_bytes - before
        self.supersede(lost)
        most = self._most_bytes() * 3 // 4
        if full and self._pending_bytes > most:
            self._overflow_begins()
            self._drop_oldest(most)
        self._conflated_from = 2 * self._pending_bytes
        self._relax()

    def _is_full(self) -> bool:
        return self._pending_bytes >= self._most_bytes()

    def _most_bytes(self) -> int:
        """Other browsers' pending events leave every browser `_FEW_BYTES`."""
        limits = self._limits
        if self.totals.pending_bytes < limits.max_pending_bytes:
            return limits.queue_bytes
        return min(_FEW_BYTES, limits.queue_bytes)

    def put_changes(self, frame: Frame) -> None:
        """Add changes of a view, whose caller bounds how many wait here."""
        self._append(frame)

    def supersede(self, lost: Iterable[tuple[Frame, int]]) -> None:
        """Report events that later ones of their keys replace."""
        for frame, count in lost:
            self.conflated += count
            at_ns = int(frame.ingress_ms * 1e6)
            self.lose("conflated", Gap(frame.type_name, at_ns, at_ns, count, conflated=True))

    def tell(self, message: Message) -> None:
        """Add a message that is never dropped."""
        self._append(Frame(encode(message)))

    def notice(self, message: Message) -> None:
        """Add an unrequested message; it is dropped where the browser does not read its answers."""
        if self._control < _MOST_CONTROL:
            self.tell(message)
        else:
            self.dropped_notices += 1
            self.totals.dropped_notices += 1

    def lose(self, cause: str, gap: Gap) -> None:
        self.totals.missed_events[cause] += gap.count
        self._note(cause, gap)

    def _note(self, cause: str, gap: Gap) -> None:
        known = self._gaps.get((cause, gap.type_name))
        self._gaps[cause, gap.type_name] = gap if known is None else known.union(gap)
        self._changed.set()

    async def room(self) -> None:
        """Wait until the queue is no longer full (`block`)."""
        while self._full or self._is_full():
            self._overflow_begins()
            await self._emptier.wait()

    async def calm(self) -> None:
        """Wait until few enough answers are pending. A full window needs an acknowledgement, which has to be
        read, so it allows twice as many; beyond that `UnacknowledgedError`, since the next connection brings
        the number received."""
        while self._control >= _MOST_CONTROL:
            if self._is_window_full():
                if self._control < 2 * _MOST_CONTROL:
                    return
                raise UnacknowledgedError(self._control, self._sent_bytes)
            self._calmer.clear()
            await self._calmer.wait()

    def _append(self, frame: Frame, *, first: bool = False) -> None:
        (self._pending.appendleft if first else self._pending.append)(frame)
        self._count(frame, 1)
        self._changed.set()

    def _count(self, frame: Frame, by: int) -> None:
        """Events are bounded by bytes, other messages by number; changes of a view by their caller."""
        size = by * frame.size if frame.event_count or frame.of_view else 0
        if frame.event_count:
            self.totals.pending_bytes += size
        if frame.of_view:
            self._view_bytes += size
        elif frame.event_count:
            self._pending_bytes += size
        else:
            self._control += by

    def _overflow_begins(self) -> None:
        if not self._full:
            self._full = True
            self.totals.overflows[self.overflow.value] += 1
            self._emptier.clear()
            self.overflowed = self.overflow is Overflow.DISCONNECT
            notice = OverflowNotice(policy=self.overflow.value, pending_bytes=self._pending_bytes)
            self._append(Frame(encode(notice)), first=True)

    def _drop(self, frame: Frame, cause: str = "overflow") -> None:
        self.dropped += frame.event_count
        at_ns = int(frame.ingress_ms * 1e6)
        self.lose(cause, Gap(frame.type_name, at_ns, at_ns, frame.event_count))

    def _drop_oldest(self, most: int) -> None:
        kept: list[Frame] = []
        while self._pending and self._pending_bytes > most:
            frame = self._pending.popleft()
            if frame.event_count and not frame.of_view:
                self._count(frame, -1)
                self._drop(frame)
            else:
                kept.append(frame)
        self._pending.extendleft(reversed(kept))

    @property
    def pending_bytes(self) -> int:
        """Of events, here and before the queue."""
        return self._pending_bytes + self._view_bytes + self._held_bytes

    @property
    def sent_bytes(self) -> int:
        """Sent and not acknowledged."""
        return self._sent_bytes

    @property
    def full(self) -> bool:
        return self._full

    # --- what goes ----------------------------------------------------------------------------------

    async def next(self) -> tuple[int, Frame]:
        """The next message to send, and its number; it is retained until acknowledged."""
        while not self._can_send():
            if self._is_window_full():
                self._calmer.set()
            self._changed.clear()
            await self._changed.wait()
        if self._gaps:
            (cause, _), gap = key, _ = next(iter(self._gaps.items()))
            del self._gaps[key]
            frame = Frame(encode(_gap_notice(cause, gap)), gap=gap)
        else:
            frame = self._pending.popleft()
            self._count(frame, -1)
            self._relax()
            if frame.on_sent is not None:
                frame.on_sent()
                frame = frame._replace(on_sent=None)  # it may be sent again
        self._sent.append(frame)
        size = frame.size
        self._sent_bytes += size
        self.totals.sent_messages += 1
        self.totals.sent_events += frame.event_count
        self.totals.sent_bytes += size
        if not self._acknowledges:
            while self._sent_bytes > self._limits.window_bytes and len(self._sent) > 1:
                self._forgotten.append(self._sent[0]._replace(data="", keys=None))
                self._forget()
        return self._acknowledged + len(self._sent), frame

    def _can_send(self) -> bool:
        return not self._is_window_full() and bool(self._pending or self._gaps)

    def _is_window_full(self) -> bool:
        return self._acknowledges and self._sent_bytes >= self._limits.window_bytes

    def _relax(self) -> None:
        if self._full and self._pending_bytes <= self._most_bytes() // 2:
            self._full = False
        if not self._full:
            self._emptier.set()
        if self._control < _MOST_CONTROL:
            self._calmer.set()

    def acknowledge(self, received: int) -> bool:
        """All messages up to this number have arrived; False for a number that was not sent."""
        if received > self._acknowledged + len(self._sent):
            return False
        while self._acknowledged < received:
            self._forget()
        self._changed.set()
        return True

    def _forget(self) -> None:
        self._sent_bytes -= self._sent.popleft().size
        self._acknowledged += 1

    def resume(self, received: int) -> bool:
        """Send all messages behind this number again, on a new connection; a gap has the events that are no
        longer retained. False for a number that was never sent or is too old for a gap, and where changes of
        a view are lost, which would leave its content wrong."""
        lost = self._acknowledged - received
        if lost > len(self._forgotten):
            return False
        if lost > 0:
            forgotten = [*self._forgotten][-lost:]
            if any(frame.of_view for frame in forgotten):
                return False
            for frame in forgotten:
                if frame.event_count:
                    self._drop(frame, "resume")
                elif frame.gap is not None:
                    self._note("resume", frame.gap)  # which has been counted
            self._forgotten.clear()
            self._acknowledged = received
        elif not self.acknowledge(received):
            return False
        while self._sent:
            frame = self._sent.pop()
            self._sent_bytes -= frame.size
            self._append(frame, first=True)
        self._changed.set()
        return True


def _gap_notice(cause: str, gap: Gap) -> GapNotice:
    first_ms, last_ms = gap.first_ns / 1e6, gap.last_ns / 1e6
    return GapNotice(cause=cause, type=gap.type_name, count=gap.count, first_ms=first_ms, last_ms=last_ms)
