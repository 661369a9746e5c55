"""One end of a link: numbered frames over a connection that may break, without loss, repetition or
reordering.

A link joins two brokers, or a client and its broker, and outlives the connections that carry it. It does no
I/O: the node passes received frames to `receive` and writes what `next_frame` returns.

Invariants. Frames with messages are numbered 1, 2, 3 ... within a pair of incarnations and retained until the
peer acknowledges them. A frame that arrives twice is dropped, a gap is an error. Events are sent only while
their bytes are within the credit that the peer granted. Control needs no credit and overtakes events;
Unadvertise needs none either but stays behind the events before it. While `frames_in_flight` frames are
unacknowledged no events are sent, and with `CONTROL_IN_FLIGHT` no control, so that messages gather while the
link is busy.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

from covey.matcher.errors import CoveyError
from covey.overlay.core.link.control_queue import ControlQueue
from covey.overlay.core.link.joining import join
from covey.overlay.core.link.size import events_in, size_of
from covey.overlay.core.messages import CONTROL, Message

M = TypeVar("M")

DEFAULT_FRAME_BYTES = 4 << 20
DEFAULT_WINDOW_BYTES = 4 << 20
CONTROL_BYTES = 12 << 10
"""About how much control one frame carries, some hundred updates, so that the next broker handles one frame
while this one makes the next: 4,300 awaited updates/s, 512 at a time, through a chain of three brokers and
back (2 cores), against 3,000 with 2,500 bytes and with no bound."""
CONTROL_IN_FLIGHT = 4
"""Control is sent while fewer frames are unacknowledged, even where events may have only one frame in flight,
as a client's: otherwise its broker would wait between frames (4,150 such updates/s instead of 4,550)."""


class LinkError(CoveyError):
    """The peer violated the link protocol: its connection must end."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of each end on a new connection; `credit` is valid only if the link resumes."""

    incarnation: int
    peer_incarnation: int = 0
    received: int = 0
    credit: int = 0


@dataclass(frozen=True, slots=True)
class Frame(Generic[M]):
    """Messages under one sequence number; 0 for a frame that only acknowledges, grants credit or probes.

    The messages of a received frame may still be encoded.
    """

    sequence: int
    received: int
    credit: int
    messages: tuple[M, ...] = ()
    probe: bool = False
    dropped: int = 0


@dataclass(frozen=True, slots=True)
class _Retained:
    frame: Frame[Message]
    control: int
    event_bytes: int
    events: int


class Link:
    """One end of a link.

    `window_bytes` is how many bytes of unconsumed events the peer may send. After `ack_frames` frames an
    acknowledgement is sent at once; sooner with another frame, or on `acknowledge`. `max_control` bounds the
    control messages pending for an unreachable peer (`give_up_control`). Up to `join_events` gathered events
    are joined in one batch (`joining.py`).
    """

    def __init__(
        self,
        incarnation: int,
        *,
        window_bytes: int = DEFAULT_WINDOW_BYTES,
        frames_in_flight: int = 4,
        max_frame_bytes: int = DEFAULT_FRAME_BYTES,
        ack_frames: int = 4,
        max_control: int = 100_000,
        join_events: int = 1,
    ) -> None:
        self.incarnation = incarnation
        self.peer_incarnation = 0
        self.max_frame_bytes = max_frame_bytes
        self._window_bytes = window_bytes
        self._frames_in_flight = frames_in_flight
        self._control_in_flight = max(CONTROL_IN_FLIGHT, frames_in_flight)
        self._ack_frames = ack_frames
        self._max_control = max_control
        self._join_events = join_events
        self._gave_up = False
        # Sending.
        self._control = ControlQueue()
        self._events: deque[tuple[Message, int]] = deque()
        self._retained: deque[_Retained] = deque()
        self._resend: deque[Frame[Message]] = deque()
        self._probe = False
        self.sent = 0
        self.acknowledged = 0
        self._credit = 0
        self._sent_bytes = 0
        self.queued_bytes = 0
        self.queued_events = 0
        self.retained_bytes = 0
        self.retained_events = 0
        self._retained_control = 0
        self.dropped = 0
        self.written = 0
        """Frames that were written on any connection, those that only acknowledge included."""
        # Receiving.
        self.received = 0
        self._announced = 0
        self._frames_since_ack = 0
        self._ack_now = False
        self._consumed = 0
        self._granted = 0
        self._withhold = False
        self._missed = 0
        self._missed_before = 0

    # --- a connection opens ---------------------------------------------------------------------------------

    def hello(self) -> Hello:
        """The hello for the peer. Both ends create theirs before either calls `resume`, so that both come to
        the same decision."""
        return Hello(self.incarnation, self.peer_incarnation, self.received, self._grant())

    def resume(self, peer: Hello) -> bool:
        """Resume the link on a new connection and resend unacknowledged frames; True if that is possible.

        False if either end has another incarnation than the other expects: numbering restarts, queued control
        is void (the caller sends the whole state), and unacknowledged events are queued again. Raises
        `LinkError`.
        """
        if peer.incarnation == 0:
            raise LinkError("the incarnation in the peer's hello is 0: expected a positive number")
        if peer.incarnation != self.peer_incarnation or peer.peer_incarnation != self.incarnation:
            self._reset(peer.incarnation)
            return False
        self._accept_acknowledgement(peer.received)
        self._credit = max(self._credit, peer.credit)
        self._resend = deque(retained.frame for retained in self._retained)
        self._announced = self.received
        self._granted = self._grant()
        self._frames_since_ack = 0
        self._probe = False
        return True

    def _reset(self, peer_incarnation: int) -> None:
        unsent = [m for retained in self._retained for m in retained.frame.messages] + [
            m for m, _ in self._events
        ]
        again = [m for m in unsent if events_in(m)]
        self._events = deque((m, size_of(m)) for m in again)
        self.queued_bytes = sum(size for _, size in self._events)
        self.queued_events = sum(events_in(m) for m in again)
        self._control.clear()
        self._retained.clear()
        self._resend.clear()
        self.retained_bytes = self.retained_events = self._retained_control = 0
        self.sent = self.acknowledged = 0
        self._credit = self._sent_bytes = 0
        self.received = self._announced = self._frames_since_ack = 0
        self._consumed = self._granted = 0
        self._ack_now = True  # the first frame grants credit, even without messages
        self._probe = False
        self._gave_up = False
        self._missed_before += self._missed
        self._missed = self.dropped = 0
        self.peer_incarnation = peer_incarnation

    def give_up_control(self) -> bool:
        """Without a connection: drop control if too much is pending; the next connection cannot resume."""
        if len(self._control) > self._max_control:
            self._control.clear()
            self._gave_up = True
            self.peer_incarnation = 0
            # Else, if the answer to its next hello is lost, the peer's second one would name the old link.
            self.incarnation += 2
        return self._gave_up

    # --- sending --------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        """Queue a message. O(1)."""
        if isinstance(message, CONTROL):
            if not self._gave_up:
                self._control.append(message, self.max_frame_bytes)
            return
        events = events_in(message)
        if not events and self._gave_up:
            return  # as for control: the next connection begins with the whole state
        size = size_of(message) if events else 0
        self._events.append((message, size))
        self.queued_bytes += size
        self.queued_events += events

    def drop_oldest(self) -> int:
        """Drop the oldest events that are in no frame yet; returns how many, 0 if there are none."""
        for index, (message, size) in enumerate(self._events):
            events = events_in(message)
            if events:
                del self._events[index]
                self.queued_bytes -= size
                self.queued_events -= events
                return events
        return 0

    def probe(self) -> None:
        """Probe the peer: it answers at once."""
        self._probe = True

    @property
    def backlog_bytes(self) -> int:
        """Bytes of events that are queued or unacknowledged."""
        return self.queued_bytes + self.retained_bytes

    @property
    def backlog_events(self) -> int:
        return self.queued_events + self.retained_events

    @property
    def queued_control(self) -> int:
        return len(self._control)

    @property
    def backlog_control(self) -> int:
        """Control messages that are queued or unacknowledged. Refusals are sent at once, however many are in
        flight.
        """
        return len(self._control) + self._retained_control

    @property
    def idle(self) -> bool:
        """Whether nothing is queued or unacknowledged."""
        return not (self._control or self._events or self._retained)

    @property
    def open_for_events(self) -> bool:
        """Whether events queued now would be in the next frame."""
        return (
            not self._events
            and not self._resend
            and len(self._retained) < self._frames_in_flight
            and self._sent_bytes < self._credit
        )

    @property
    def ready(self) -> bool:
        """Whether `next_frame` returns a frame."""
        if self._ack_now or self._probe or self._resend or self._control.urgent:
            return True
        if self._control and len(self._retained) < self._control_in_flight:
            return True
        if len(self._retained) >= self._frames_in_flight:
            return False
        return bool(self._events) and (self._sent_bytes < self._credit or not events_in(self._events[0][0]))

    def next_frame(self) -> Frame[Message] | None:
        """The next frame to write, or None."""
        if self._resend:
            again = self._resend.popleft()
            return self._frame(again.sequence, again.messages)
        in_flight = len(self._retained)
        room_for_control = in_flight < self._control_in_flight or self._control.urgent
        room_for_events = in_flight < self._frames_in_flight
        if (self._control.waiting and room_for_control) or (self._events and room_for_events):
            messages, size = self._control.take(min(CONTROL_BYTES, self.max_frame_bytes))
            control = len(messages)
            event_bytes, events = self._take_events(messages, size) if room_for_events else (0, 0)
            if messages:
                self.sent += 1
                frame = self._frame(self.sent, tuple(messages))
                self._retained.append(_Retained(frame, control, event_bytes, events))
                self._retained_control += control
                return frame
        if self._ack_now or self._probe:
            return self._frame(0, ())
        return None

    def _take_events(self, messages: list[Message], size: int) -> tuple[int, int]:
        taken: list[Message] = []
        taken_bytes = total_bytes = total_events = 0
        while self._events and not self._control:
            message, event_bytes = self._events[0]
            events = events_in(message)
            if events and self._sent_bytes + taken_bytes >= self._credit:
                break
            if (messages or taken) and size + taken_bytes + event_bytes > self.max_frame_bytes:
                break
            self._events.popleft()
            taken.append(message)
            taken_bytes += event_bytes
            total_events += events
        if len(taken) > 1 and self._join_events > 1:
            taken = join(taken, self._join_events, self.max_frame_bytes // 2)
        for message in taken:
            total_bytes += size_of(message) if events_in(message) else 0
        messages += taken
        self._sent_bytes += total_bytes
        self.queued_bytes -= taken_bytes
        self.queued_events -= total_events
        self.retained_bytes += total_bytes
        self.retained_events += total_events
        return total_bytes, total_events

    def _frame(self, sequence: int, messages: tuple[Message, ...]) -> Frame[Message]:
        """A frame with the current acknowledgement and credit."""
        self.written += 1
        self._announced = self.received
        self._granted = self._grant()
        self._frames_since_ack = 0
        self._ack_now = False
        probe, self._probe = self._probe, False
        return Frame(sequence, self.received, self._granted, messages, probe, self.dropped)

    # --- receiving ------------------------------------------------------------------------------------------

    def receive(self, frame: Frame[M]) -> tuple[M, ...]:
        """The messages of a received frame; none if it is a repetition. Raises `LinkError` for a gap."""
        self._accept_acknowledgement(frame.received)
        self._credit = max(self._credit, frame.credit)
        self._missed = max(self._missed, frame.dropped)
        if frame.probe:
            self._ack_now = True
        if frame.sequence == 0:
            if frame.messages:
                raise LinkError("a frame with messages has sequence 0: expected a number from 1 on")
            return ()
        if frame.sequence <= self.received:
            self._ack_now = True
            return ()
        if frame.sequence != self.received + 1:
            raise LinkError(
                f"frame {frame.sequence} follows frame {self.received}: expected {self.received + 1}"
            )
        self.received = frame.sequence
        self._frames_since_ack += 1
        if self._frames_since_ack >= self._ack_frames:
            self._ack_now = True
        return frame.messages

    def _accept_acknowledgement(self, received: int) -> None:
        if received > self.sent:
            raise LinkError(f"the peer says that frame {received} arrived: only {self.sent} were sent")
        while self._retained and self._retained[0].frame.sequence <= received:
            retained = self._retained.popleft()
            self.retained_bytes -= retained.event_bytes
            self.retained_events -= retained.events
            self._retained_control -= retained.control
        self.acknowledged = max(self.acknowledged, received)
        while self._resend and self._resend[0].sequence <= received:
            self._resend.popleft()

    @property
    def missed(self) -> int:
        """Events for this end that the peer dropped."""
        return self._missed_before + self._missed

    def consume(self, size: int) -> None:
        """Event messages of this size (`size_of`) were processed: grant as much credit again."""
        self._consumed += size
        if self._grant() - self._granted >= max(1, self._window_bytes // 4):
            self._ack_now = True

    def withhold_credit(self, withhold: bool) -> None:
        """Withhold credit, or grant it again."""
        if self._withhold != withhold:
            self._withhold = withhold
            if not withhold and self._grant() > self._granted:
                self._ack_now = True

    def acknowledge(self) -> None:
        """Send an acknowledgement and credit at once, if either is due."""
        if self.acknowledgement_due:
            self._ack_now = True

    @property
    def acknowledgement_due(self) -> bool:
        """Whether an acknowledgement or credit has not been sent yet."""
        return self._announced != self.received or self._granted != self._grant()

    def _grant(self) -> int:
        return self._granted if self._withhold else self._consumed + self._window_bytes
