"""The client's end of its link: session, outbox and link, without I/O and without a clock.

Calls of the user go to `session`, and the messages that it returns to `transmit`; events to `publish` and
`publish_batch`. A frame goes to `receive`, each of its messages to `handle`, and then `received` is called.
After anything, `next_frame` returns what to write.

A connection that resumes loses and repeats nothing. If the broker has lost the session, the link is reset:
the session sends its whole state, then unacknowledged events again, under the same identities. Control that
piles up without a connection is dropped beyond a bound, and the next connection begins with the whole state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType
from covey.matcher.events.plain_rows import PlainRows, Row
from covey.matcher.events.trace_contexts import TraceContext
from covey.overlay.core.client.actions import ClientAction, Transmit
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.endpoint.limits import Limits, RefusedError, admit
from covey.overlay.core.endpoint.outbox import OUTBOX_BYTES, OUTBOX_EVENTS, UNTRACED, Confirmation, Outbox
from covey.overlay.core.link.link import Frame, Hello, Link
from covey.overlay.core.messages import Acknowledge, Gap, Hold, Message, Publish, Refuse, Subscribe, SyncEnd

M = TypeVar("M")

MAX_CONTROL = 10_000
GAPS = 100


class ClientEndpoint:
    """One client. `stamp` gives a batch its identity as it leaves the outbox, by default the session's. A
    `durable` one first gets the subscriptions of its durable session from the broker."""

    def __init__(
        self,
        session: ClientSession,
        link: Link,
        *,
        outbox_events: int = OUTBOX_EVENTS,
        outbox_bytes: int = OUTBOX_BYTES,
        stamp: Callable[[EventBatch], Publish] | None = None,
        durable: bool = False,
        ticket: str = "",
    ) -> None:
        self.ticket = ticket
        self.adopting = durable
        """Whether the subscriptions of its durable session are still to come."""
        self.session = session
        self.link = link
        self.outbox = Outbox(stamp or session.publish, max_events=outbox_events, max_bytes=outbox_bytes)
        self.connected = False
        self._handshake = False
        """Whether a hello is under way: until it is answered the link keeps its incarnation."""
        self.expired: list[int] = []
        """Subscriptions that ended while the broker did not have the session, for the caller to take."""
        self.resets = 0
        """How often the link was reset: earlier credit is void."""
        self.gaps: deque[Gap] = deque(maxlen=GAPS)
        self._forms: dict[str, PlainRows] = {}
        self.more = False
        """Whether there may have been a frame behind the last one."""
        self._acknowledged = 0
        """The newest frame acknowledged by a frame: behind a hello's acknowledgement, refusals may follow."""

    # --- calls of the user ----------------------------------------------------------------------------------

    def transmit(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.link.send(message)
        if not (self.connected or self._handshake):
            self.link.give_up_control()

    def unadvertise(self, type_name: str) -> None:
        """Withdraw an advertisement, behind the events published before. `EventTypeError` without one."""
        if type_name in self.session.advertised:
            self.outbox.drain(type_name, self.link)
            self._forms.pop(type_name, None)
        self.transmit(self.session.unadvertise(type_name))

    def publishable(self, type_name: str) -> EventType:
        """The schema of new events of a type. `RefusedError` if the client does not advertise it."""
        event_type = self.session.publishable(type_name)
        if event_type is None:
            known = ", ".join(self.session.advertised) or "nothing yet"
            raise RefusedError(
                "FAILED_PRECONDITION",
                f"event type {type_name!r} is not advertised by this client: it advertises {known}",
            )
        return event_type

    def row(self, type_name: str, values: Mapping[str, object]) -> tuple[PlainRows, Row, int]:
        """For `Outbox.put_row`. `EventError` or `RefusedError` if it does not fit its type or the broker's
        limit."""
        event_type = self.session.publishable(type_name) or self.publishable(type_name)
        form = self._forms.get(type_name)
        if form is None or form.event_type is not event_type:
            form = self._forms[type_name] = PlainRows(event_type)
        row, size = form.row(values)
        if size > self.outbox.limits.max_event_bytes:
            _, refusal = self.publish_batch(form.batch([row]))
            assert refusal is not None
            raise refusal
        return form, row, size

    def publish(self, type_name: str, values: Mapping[str, object], traceparent: str = UNTRACED) -> bool:
        """Put an event into the outbox, however full; False if the next frame can wait for the timer. Raises
        as `row`."""
        return self.outbox.put_row(*self.row(type_name, values), traceparent)

    def publish_batch(
        self, batch: EventBatch, traceparent: str = UNTRACED
    ) -> tuple[int, RefusedError | None]:
        """Put events into the outbox, however full; returns how many, and the first refusal of those above
        the broker's size limit, which are left out."""
        limits = replace(self.outbox.limits, max_batch_events=len(batch))
        admitted, refusals = admit(batch, limits)
        if admitted is not None and traceparent:
            admitted = admitted.consecutive()
            first = admitted.first_sequence
            context = TraceContext(first, first + admitted.count - 1, traceparent)
            admitted = admitted.with_contexts((context,))
        if admitted is not None:
            self.outbox.put_batch(admitted)
        refusal = RefusedError(refusals[0].status, refusals[0].reason) if refusals else None
        return 0 if admitted is None else len(admitted), refusal

    # --- connections ----------------------------------------------------------------------------------------

    def open(self, peer: Hello, limits: Limits, now_ns: int = 0) -> bool:
        """A connection has opened with the broker's hello; True if the link resumes. `LinkError` for an
        invalid hello."""
        self.ticket = peer.ticket or self.ticket
        self.outbox.limits = limits
        self.link.max_frame_bytes = limits.max_frame_bytes
        self._handshake = False
        acknowledged = self.link.acknowledged
        resumed = self.link.resume(peer)
        self.connected = True
        if not resumed:
            self.resets += 1
            self.outbox.acknowledged(acknowledged)  # only acknowledged by the hello, and not sent again
            self._acknowledged = 0
            self.outbox.restart()
            if not self.adopting:
                self._sync(now_ns)
        return resumed

    def _sync(self, now_ns: int) -> None:
        self.expired += self.session.expire(now_ns)
        self.transmit(self.session.sync(now_ns))

    def hello(self) -> Hello:
        self._handshake = True
        return replace(self.link.hello(), ticket=self.ticket)

    def lost(self) -> None:
        self.connected = self._handshake = False
        if self.adopting:
            self.link.forget_peer()  # so that the broker sends them again

    @property
    def idle(self) -> bool:
        return self.link.idle and not self.outbox.pending

    # --- frames ---------------------------------------------------------------------------------------------

    def receive(self, frame: Frame[M], now_ns: int) -> tuple[M | Acknowledge, ...]:
        """The messages of a frame that has arrived. `LinkError` for a frame out of order."""
        messages = self.link.receive(frame, now_ns)
        self._acknowledged = max(self._acknowledged, frame.received)
        return messages

    def handle(self, message: Message, now_ns: int = 0) -> list[ClientAction | Gap]:
        """Handle one message of the broker; returns what it means, in order."""
        if isinstance(message, Hold):
            self.link.events.set_held(message.type_name, message.held)
            self.outbox.set_held(message.type_name, message.held)
            return []
        if self.adopting and isinstance(message, Subscribe):
            self.session.adopt(message, now_ns)
            return []
        if self.adopting and isinstance(message, SyncEnd):
            self.adopting = False
            self._sync(now_ns)
            return []
        if isinstance(message, Gap):
            self.gaps.append(message)
            self.session.lost(message.type_name)
            return [message]
        actions: list[ClientAction | Gap] = []
        for action in self.session.receive(message):
            if isinstance(action, Transmit):
                self.transmit([action.message])
                continue
            if isinstance(action, Refuse) and action.count:
                error = RefusedError(action.status, action.reason)
                self.outbox.refuse(action.type_name, action.first_sequence, action.count, error)
            actions.append(action)
        return actions

    def received(self) -> None:
        """All messages of the received frames were handled: events that these acknowledge are accepted."""
        if self.outbox.frames:
            self.outbox.acknowledged(self._acknowledged)

    def take_finished(self) -> list[Confirmation]:
        finished, self.outbox.finished = self.outbox.finished, []
        return finished

    @property
    def ready(self) -> bool:
        return self.link.ready or (bool(self.outbox.waiting) and self.outbox.wait_ns is None)

    def next_frame(self, now_ns: int) -> Frame[Message] | None:
        """The next frame to write, or None; `more` then is whether there may be another one."""
        link, outbox = self.link, self.outbox
        outbox.wait_ns = None
        if outbox.waiting:
            outbox.pass_events(link, now_ns)
        if outbox.awaited if outbox.events else outbox.unfinished:
            link.ask()
        frame = link.next_frame()
        if frame is not None and frame.sequence:
            outbox.framed(frame)
        self.more = link.more or (frame is not None and bool(outbox.waiting) and outbox.wait_ns is None)
        return frame

    # --- time -----------------------------------------------------------------------------------------------

    def next_timer(self) -> int | None:
        """When `handle_timer` is due, by the clock of the other calls; None if it is not."""
        link_ns, outbox_ns = self.link.due_ns, self.outbox.wait_ns
        if link_ns is None or outbox_ns is None:
            return outbox_ns if link_ns is None else link_ns
        return min(link_ns, outbox_ns)

    def handle_timer(self, now_ns: int) -> None:
        self.link.handle_timer(now_ns)
        if self.outbox.wait_ns is not None and self.outbox.wait_ns <= now_ns:
            self.outbox.wait_ns = None
