"""One end of a link: numbered frames over a connection that may break, without loss, repetition or
reordering.

It does no I/O and reads no clock: its owner passes received frames to `receive`, writes what `next_frame`
returns, and calls `handle_timer` at `due_ns`.

Invariants. Frames with messages are numbered from 1 within a pair of incarnations and retained until
acknowledged. A frame that arrives twice is dropped; a missing number is an error. Events are sent only within
the peer's credit, and not while it holds their type. Events of one type keep their order. Control needs no
credit and overtakes events; Unadvertise needs none either, but stays behind the events of its type. With
`frames_in_flight` frames unacknowledged no events are sent, with `CONTROL_IN_FLIGHT` more no control, so
messages gather while the peer is busy.

Acknowledgements. The sender requests one (`probe`) when half of its window is in flight or somebody waits
(`ask`). Otherwise the next frame back acknowledges, `ACKNOWLEDGE_AFTER_NS` later at the latest. The settled
epoch (`Acknowledge`) is in every header, so it needs no acknowledgement itself. A frame whose events are not
on disk yet is handled, but not acknowledged, from `hold` until `release`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from covey.matcher.errors import CoveyError
from covey.overlay.core.link.control_queue import ControlQueue
from covey.overlay.core.link.event_queue import MOST_WHOLE, EventQueue, Waiting, Whole, packed
from covey.overlay.core.link.joining import join
from covey.overlay.core.link.size import count_within, events_in
from covey.overlay.core.messages import CONTROL, Acknowledge, Deliver, Gap, Message, Publish
from covey.overlay.core.messages import message as immutable

M = TypeVar("M")

DEFAULT_FRAME_BYTES = 4 << 20
DEFAULT_WINDOW_BYTES = 4 << 20
FRAMES_IN_FLIGHT = 16
CONTROL_BYTES = 12 << 10
"""Some hundred updates, so that the next broker handles one frame while this one makes the next: 4,300
awaited updates/s, 512 at a time, through three brokers and back (2 cores), against 3,000 with 2,500 bytes or
unbounded."""
CONTROL_IN_FLIGHT = 4
"""Frames beyond `frames_in_flight`, so that control passes events that a busy peer has not acknowledged."""
ACKNOWLEDGE_AFTER_NS = 50_000_000
_NO_MESSAGES: list[Message] = []
_NO_ENTRIES: list[Waiting] = []
Position = tuple[int, int, int]
"""What a link has received: `received`, `begun` and `settled_here`."""


@dataclass(slots=True)
class Retained:
    """An unacknowledged frame: messages, the first `control` of which are control, then entries of the event
    queue. `held` is bytes in memory; `stored` is, by event type, the offset of the last record whose events
    it completes."""

    sequence: int
    head: Sequence[Message]
    entries: Sequence[Waiting]
    received: int
    settled: int
    control: int
    held: int
    events: int
    stored: dict[str, int]

    @property
    def messages(self) -> Sequence[Message]:
        return (*self.head, *(each.message for each in self.entries))


class LinkError(CoveyError):
    """The peer violated the link protocol: its connection must end."""


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of each end on a new connection; `credit` is valid only if the link resumes."""

    incarnation: int
    peer_incarnation: int = 0
    received: int = 0
    credit: int = 0
    ticket: str = ""


@immutable
class Frame(Generic[M]):
    """Messages under one sequence number, which is 0 without messages.

    `settled` is the receiver's newest epoch that has taken effect, 0 for none, valid after the messages of
    the frame. Messages of a received frame may be parsed as they are read, which raises `LinkError`."""

    sequence: int
    received: int
    credit: int
    messages: Sequence[M] = ()
    probe: bool = False
    dropped: int = 0
    settled: int = 0


class Link:
    """`window_bytes` is how many bytes of unconsumed events the peer may send; it may be set at any time.
    `max_control` bounds control that is pending for an unreachable peer (`give_up_control`). Up to
    `join_events` gathered events are joined in one batch (`joining.py`). Without `merge_updates` every Update
    leaves. `events` are in no frame yet. `stored` is, by event type, the newest record whose events the peer
    has all acknowledged."""

    __slots__ = """
        _ack_now _acknowledged_only _announced _asking _consumed _consumed_before _control _frames_in_flight
        _gaps _gave_up _granted _half _join_events _max_control _missed _missed_before _probe _probed
        _resend _retained _retained_control _sent_before _sent_bytes _settled _told _withhold acknowledged
        begun credit dropped due_ns events incarnation max_frame_bytes more peer_incarnation received
        retained_bytes retained_events sent settled_here stored window_bytes written
    """.split()

    def __init__(
        self,
        incarnation: int,
        *,
        window_bytes: int = DEFAULT_WINDOW_BYTES,
        frames_in_flight: int = FRAMES_IN_FLIGHT,
        max_frame_bytes: int = DEFAULT_FRAME_BYTES,
        max_control: int = 100_000,
        join_events: int = 1,
        merge_updates: bool = True,
    ) -> None:
        self.incarnation = incarnation
        self.peer_incarnation = 0
        self.max_frame_bytes = max_frame_bytes
        self.window_bytes = window_bytes
        self._frames_in_flight, self._half = frames_in_flight, (frames_in_flight + 1) // 2
        self._max_control = max_control
        self._join_events = join_events
        self._gave_up = False
        # Sending.
        self._control = ControlQueue(merge_updates=merge_updates)
        self.events = EventQueue()
        self._gaps: dict[tuple[str, bool], Gap] = {}
        self._retained: list[Retained] = []
        self._resend: list[Retained] = []
        self._probe = False
        self._asking = False
        self._probed = 0
        self.sent = 0
        self.acknowledged = 0
        self.credit = 0
        """Total bytes of events that the peer takes on this link, including those sent."""
        self._sent_bytes = 0
        self.retained_bytes = 0
        self.retained_events = 0
        self._retained_control = 0
        self.dropped = 0
        self.written = 0
        """Frames written on all connections, including those without messages."""
        self.more = False
        """Whether another frame was ready behind the last one."""
        self._settled = self._told = 0
        """The peer's newest epoch that has taken effect, and the one in the last frame's header."""
        # Receiving.
        self.received = 0
        self._announced = 0
        self._ack_now = False
        self.due_ns: int | None = None
        """When `handle_timer` is due, by the clock of `receive`, or None."""
        self._consumed = 0
        self._granted = 0
        self._withhold = False
        self.settled_here = 0
        """The newest settled epoch of this end."""
        self.begun = 0
        """How many messages of the next frame were taken (`most` of `receive`)."""
        self._missed = 0
        self._missed_before = 0
        self._sent_before = self._consumed_before = 0
        # Durable events.
        self._acknowledged_only: int | None = None
        """The newest frame that may be acknowledged, None for any."""
        self.stored: dict[str, int] = {}

    # --- a connection opens ---------------------------------------------------------------------------------

    @property
    def life(self) -> tuple[int, int]:
        """Changes at each reset."""
        return self.incarnation, self.peer_incarnation

    def hello(self) -> Hello:
        """Both ends create their hello before either calls `resume`, so that both reach the same decision."""
        return Hello(self.incarnation, self.peer_incarnation, self._acknowledgeable, self._grant())

    def resume(self, peer: Hello) -> bool:
        """Resume the link on a new connection and resend unacknowledged frames; True if that is possible.

        False if an incarnation is not the expected one: numbering restarts, queued control is void (the
        caller sends the whole state), holds end, and unacknowledged events are queued again. Raises
        `LinkError`, after which neither end can resume."""
        if peer.incarnation == 0:
            raise LinkError("the incarnation in the peer's hello is 0: expected a positive number")
        if peer.incarnation != self.peer_incarnation or peer.peer_incarnation != self.incarnation:
            self._reset(peer.incarnation)
            return False
        self._accept_acknowledgement(peer.received)
        self.credit = max(self.credit, peer.credit)
        self._resend = self._retained[:]
        self._granted = self._grant()
        self._ack_now = True  # what the last frames acknowledged may be lost
        self._probe = False
        self._probed = self.acknowledged
        return True

    def forget_peer(self) -> None:
        """Make the next connection reset both ends, which may disagree about what was sent."""
        self.peer_incarnation = 0
        # Else, if the answer to its next hello is lost, the peer's second one would name the old link.
        self.incarnation += 2

    def _reset(self, peer_incarnation: int) -> None:
        retained = [m for each in self._retained for m in each.messages]
        self.events.restart([m for m in retained if events_in(m)])
        for message in retained:
            if isinstance(message, Gap):
                self.tell_gap(message)
        self._control.clear()
        self._retained.clear()
        self._resend.clear()
        self.retained_bytes = self.retained_events = self._retained_control = 0
        self.sent = self.acknowledged = self._probed = 0
        self._sent_before += self._sent_bytes
        self._consumed_before += self._consumed
        self.credit = self._sent_bytes = 0
        self._settled = self._told = self.settled_here = 0
        self.received = self._announced = self.begun = 0
        self._acknowledged_only = None
        self._consumed = self._granted = 0
        self._ack_now = True  # the first frame grants credit, even without messages
        self.due_ns = None
        self._probe = False
        self._gave_up = False
        self._missed_before += self._missed
        self._missed = self.dropped = 0
        self.peer_incarnation = peer_incarnation

    def give_up_control(self) -> bool:
        """Without a connection: drop control beyond `max_control`. True once dropped; the next connection
        then resets."""
        if len(self._control) > self._max_control:
            self._control.clear()
            self._gave_up = True
            self.forget_peer()
        return self._gave_up

    # --- sending --------------------------------------------------------------------------------------------

    def send(self, message: Message) -> None:
        if message.__class__ is Publish or message.__class__ is Deliver:
            # Events are kept even without control: the next connection begins with the whole state.
            if message.batch.count or not self._gave_up:
                self.events.append(message)
        elif not self._gave_up:
            if message.__class__ is Acknowledge and not self._control.waiting:
                self._settle(message.epoch)
            elif message.__class__ in CONTROL:
                self._control.append(message, self.max_frame_bytes)
            else:
                self.events.append(message)

    def tell_gap(self, gap: Gap) -> None:
        place = gap.type_name, gap.conflated
        known = self._gaps.get(place)
        self._gaps[place] = gap if known is None else known.union(gap)

    def probe(self) -> None:
        self._probe = True

    def ask(self) -> None:
        """Have the peer acknowledge all that is queued or in flight as soon as it has it."""
        self._asking = not self.idle

    @property
    def event_bytes_sent(self) -> int:
        """Bytes of events in created frames, over all connections."""
        return self._sent_before + self._sent_bytes

    @property
    def event_bytes_received(self) -> int:
        """Bytes of events that were processed, over all connections."""
        return self._consumed_before + self._consumed

    @property
    def backlog_bytes(self) -> int:
        return self.events.bytes + self.retained_bytes

    @property
    def backlog_events(self) -> int:
        return self.events.count + self.retained_events

    def pending_messages(self) -> Iterator[Message]:
        """Unacknowledged messages, gaps and queued events; no queued control."""
        for retained in self._retained:
            yield from retained.messages
        yield from self._gaps.values()
        yield from self.events.messages()

    @property
    def queued_control(self) -> int:
        return len(self._control)

    @property
    def backlog_control(self) -> int:
        return len(self._control.waiting) + self._retained_control

    @property
    def idle(self) -> bool:
        if self._control.waiting or self._retained or self._told < self._settled:
            return False
        return not self.events.waiting

    @property
    def open_for_events(self) -> bool:
        """Whether events queued now would be in the next frame, if their type is not held."""
        return (
            not self.events.ready
            and not self._resend
            and len(self._retained) < self._frames_in_flight
            and self._sent_bytes < self.credit
        )

    @property
    def ready(self) -> bool:
        if self._ack_now or self._probe or self._resend:
            return True
        in_flight, control = len(self._retained), self._control
        if (self._asking or in_flight >= self._half) and self._wants_answer(in_flight):
            return True
        if control.waiting and (control.urgent or in_flight < self._frames_in_flight + CONTROL_IN_FLIGHT):
            return True
        if in_flight >= self._frames_in_flight:
            return False
        ready = self.events.ready
        if ready and (self._sent_bytes < self.credit or not ready[0].events):
            return True
        return bool(self._gaps)

    def next_frame(self) -> Frame[Message] | None:
        """The next frame to write, or None; `more` then is whether another one is ready. It has the current
        credit, and the current acknowledgement unless queued refusals have to precede it."""
        in_flight, head, entries, control = len(self._retained), _NO_MESSAGES, _NO_ENTRIES, 0
        again = None
        if self._resend:
            again = self._resend.pop(0)
            in_flight = 0 if self._resend else in_flight
        elif self._control.waiting or self.events.ready or self._gaps:
            head, entries, control = self._take(in_flight)
            if head or entries:
                self.sent += 1
                in_flight += 1
        wants_answer = (self._asking or in_flight >= self._half) and self._wants_answer(in_flight)
        self.more = False
        if not (again or head or entries or self._ack_now or self._probe or wants_answer):
            return None
        self.written += 1
        if not self._control.urgent:
            self._announced = self.received if self._acknowledged_only is None else self._acknowledgeable
        if not self._withhold and self._consumed + self.window_bytes > self._granted:
            self._granted = self._consumed + self.window_bytes
        probe, self._probe = self._probe, False
        if wants_answer:
            self._probed, probe = self.sent, True
        self._ack_now, self.due_ns = False, None
        sequence, received, settled = 0, self._announced, self._settled
        messages: Sequence[Message] = ()
        if again is not None:
            sequence, received, settled = again.sequence, again.received, again.settled
            messages = again.messages
            # A refusal in a later frame must not come behind the acknowledgement of what it refuses.
            self._ack_now = settled < self._settled or received < self.received
        elif head or entries:
            sequence, held, events = self.sent, 0, 0
            stored: dict[str, int] = {}
            sent = [*head]
            for entry in entries:
                sent.append(entry.message)
                held += entry.held
                events += entry.events
                if entry.is_stored and entry.offset >= 0:
                    stored[entry.type_name] = entry.offset
            if len(entries) > MOST_WHOLE:
                entries = [packed(each.message) for each in entries]
                held = sum(each.held for each in entries)
            messages = tuple(sent)
            self._retained.append(
                Retained(sequence, head, entries, received, settled, control, held, events, stored)
            )
            self._retained_control += control
            self.retained_bytes += held
            self.retained_events += events
        self._told = settled
        waits = self._resend or self._control.waiting or self.events.ready or self._gaps
        self.more = self._ack_now or (bool(waits) and self.ready)
        return Frame(sequence, received, self._granted, messages, probe, self.dropped, settled)

    def _take(self, in_flight: int) -> tuple[list[Message], list[Waiting], int]:
        control, entries = self._control, _NO_ENTRIES
        head: list[Message] = []
        size = controls = 0
        if control.waiting and (control.urgent or in_flight < self._frames_in_flight + CONTROL_IN_FLIGHT):
            taken, size = control.take(min(CONTROL_BYTES, self.max_frame_bytes))
            for message in taken:
                if message.__class__ is Acknowledge:
                    self._settle(message.epoch)
                else:
                    head.append(message)
            controls = len(head)
        if in_flight < self._frames_in_flight:
            if self._gaps:
                head += self._gaps.values()
                self._gaps = {}
            if self.events.ready and not control.waiting:
                credit = self.credit - self._sent_bytes
                entries, sent = self.events.take(credit, self.max_frame_bytes - size, alone=not head)
                if len(entries) > 1 and self._join_events > 1:
                    whole = [each.message for each in entries]
                    joined = join(whole, self._join_events, self.max_frame_bytes // 2)
                    entries = [Whole(message) for message in joined]
                    sent = sum(each.size for each in entries)
                self._sent_bytes += sent
        return head, entries, controls

    def _settle(self, epoch: int) -> None:
        if epoch > self._settled:
            self._settled = epoch
        self._ack_now = True

    def _wants_answer(self, in_flight: int) -> bool:
        if not in_flight or self._probed >= self.sent:
            return False
        if self._asking and not self._control and not self.events.ready:
            return True
        return in_flight >= self._half and self._probed <= self.acknowledged

    # --- receiving ------------------------------------------------------------------------------------------

    def receive(
        self, frame: Frame[M], now_ns: int, most: int | None = None, weigh: Callable[[M], int] | None = None
    ) -> tuple[M | Acknowledge, ...]:
        """The messages of a frame, none if it is a repetition, then an Acknowledge if more has settled.
        Raises `LinkError` for a missing frame, after which neither end can resume.

        With `most`, at most so many messages, or fewer by their weight `weigh`, at least one. The frame
        counts as received with the call that returns its last message; until then pass it again. A frame that
        is resent continues behind the messages already taken."""
        if frame.received > self.acknowledged or self._asking:
            self._accept_acknowledgement(frame.received)
        if frame.credit > self.credit:
            self.credit = frame.credit
        if frame.dropped > self._missed:
            self._missed = frame.dropped
        messages: tuple[M | Acknowledge, ...] = ()
        if frame.sequence == 0:
            if frame.messages:
                raise self._broken("a frame with messages has sequence 0: expected a number from 1 on")
        elif frame.sequence <= self.received:
            self._ack_now = True
        elif frame.sequence != self.received + 1:
            raise self._broken(
                f"frame {frame.sequence} follows frame {self.received}: expected {self.received + 1}"
            )
        else:
            begun = self.begun
            messages = tuple(frame.messages[begun : None if most is None else begun + most])
            if most is not None:
                if weigh is not None:
                    messages = messages[: count_within(most, map(weigh, messages))]  # type: ignore[arg-type]
                if begun + len(messages) < len(frame.messages):
                    self.begun += len(messages)
                    return messages
            self.begun = 0
            self.received = frame.sequence
            if self.due_ns is None:
                self.due_ns = now_ns + ACKNOWLEDGE_AFTER_NS
        if frame.probe:
            self._ack_now = True
        if frame.settled > self.settled_here:
            self.settled_here = frame.settled
            messages = (*messages, Acknowledge(frame.settled))
        return messages

    def rewind(self, position: Position, taken: int) -> None:
        """Go back to `position`, behind which only `taken` messages of one frame were taken."""
        self.received, self.begun, self.settled_here = position
        self.begun += taken

    def _broken(self, why: str) -> LinkError:
        self.forget_peer()  # else every later connection would end in the same way
        return LinkError(why)

    def _accept_acknowledgement(self, received: int) -> None:
        if received > self.sent:
            raise self._broken(f"the peer says that frame {received} arrived: only {self.sent} were sent")
        while self._retained and self._retained[0].sequence <= received:
            retained = self._retained.pop(0)
            if retained.stored:
                self.stored |= retained.stored
            self.retained_bytes -= retained.held
            self.retained_events -= retained.events
            self._retained_control -= retained.control
        if received > self.acknowledged:
            self.acknowledged = received
        if self._asking and self.idle:
            self._asking = False
        while self._resend and self._resend[0].sequence <= received:
            del self._resend[0]

    @property
    def _acknowledgeable(self) -> int:
        limit = self._acknowledged_only
        return self.received if limit is None else min(limit, self.received)

    def hold(self, received: int) -> None:
        """Acknowledge no frame after `received` until `release`; an earlier `hold` stays."""
        if self._acknowledged_only is None:
            self._acknowledged_only = received

    def release(self, received: int | None) -> None:
        """Allow acknowledgement up to frame `received`, None for all: their events are on disk."""
        if self._acknowledged_only is not None:
            self._acknowledged_only = received
            self._ack_now = True

    def acknowledge(self) -> None:
        """Acknowledge all that has arrived with the next frame, at once."""
        self._ack_now = True

    def handle_timer(self, now_ns: int) -> None:
        if self.due_ns is not None and self.due_ns <= now_ns:
            self.due_ns = None
            self._ack_now = True

    @property
    def missed(self) -> int:
        """Events for this end that the peer dropped."""
        return self._missed_before + self._missed

    def consume(self, size: int) -> None:
        """Grant credit again for events of `size` bytes (`size_of`), which were processed."""
        self._consumed += size
        more = self._consumed + self.window_bytes - self._granted
        if more > 0 and more >= self.window_bytes // 4 and not self._withhold:
            self._ack_now = True

    def withhold_credit(self, withhold: bool) -> None:
        if self._withhold != withhold:
            self._withhold = withhold
            if not withhold and self._grant() > self._granted:
                self._ack_now = True

    def _grant(self) -> int:
        due = self._consumed + self.window_bytes
        return due if due > self._granted and not self._withhold else self._granted
