"""What arrives at a broker's endpoint, on its way to the core: taken from frames, decoded, counted and
admitted.

Invariants: the core gets no message of a client that is over a bound or not permitted, and no event that is
not admitted; each is answered by a refusal. Where links move, no event is passed to the core twice, except
replays, whose recipients drop repetitions (`core/client/reception.py`), and events of publishers beyond the
last `WATERMARKS` of their type. Events of one publisher and type keep their order over every connection, so
whatever is not newer than the newest one is a repetition."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Generic, TypeVar

from covey.matcher.events.batch import EventBatch
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.endpoint.limits import SlowConsumer, Undecodable, admit, refuse_held
from covey.overlay.core.endpoint.state import EndpointState
from covey.overlay.core.link.link import Frame, Link, LinkError, Position
from covey.overlay.core.link.size import FIXED_BYTES
from covey.overlay.core.messages import (
    Acknowledge,
    Hold,
    Message,
    Publish,
    Refuse,
    Subscribe,
    Unsubscribe,
    Update,
)
from covey.overlay.core.watermarks import Watermarks


class Repeats:
    """The newest event of each publisher and type that a broker has taken. `dropped` counts repetitions."""

    def __init__(self) -> None:
        self.dropped = 0
        self._marks: dict[str, Watermarks] = {}

    def taken(self, batch: EventBatch) -> EventBatch | None:
        """The new events of a batch, None for no event; counts them as taken."""
        name = batch.event_type.name
        marks = self._marks.get(name)
        if marks is None:
            marks = self._marks[name] = Watermarks()
        fresh = marks.fresh(batch)
        if fresh is None:
            return batch
        self.dropped += len(fresh) - int(fresh.sum())
        return batch.filter(fresh) if fresh.any() else None

    def fresh(self, message: Publish) -> Publish | None:
        """A neighbour's message without repetitions; None if nothing is left."""
        if message.replayed or message.for_views:
            return message
        batch = self.taken(message.batch)
        if batch is None or batch is message.batch:
            return message if batch is not None else None
        return replace(message, batch=batch)

    def forget_types(self, known: Container[str]) -> None:
        self._marks = {name: marks for name, marks in self._marks.items() if name in known}


M = TypeVar("M")


class ReceivedFrames(Generic[M]):
    """`messages` of `handled` whole frames, and perhaps of a part of the next, up to the weight `most`, at
    least one; without `weigh` whole frames. `weight` is their weight (`flow.py`); `error` ends the connection
    behind them. `idle` frames brought no messages and changed nothing; each weighs as one message."""

    def __init__(
        self,
        link: Link,
        frames: Sequence[Frame[M]],
        now_ns: int,
        most: int,
        weigh: Callable[[M], int] | None,
    ) -> None:
        self.messages: list[M | Acknowledge] = []
        self.handled = self.weight = self.idle = 0
        self.error: LinkError | None = None
        self._link = link
        self._begun: list[tuple[int, Position]] = []
        """Of each frame, where its messages begin, and how far the link was before it."""
        try:
            for frame in frames:
                if self.weight >= most:
                    return
                self._begun.append((len(self.messages), (link.received, link.begun, link.settled_here)))
                if not frame.messages or frame.sequence <= link.received:
                    # Credit alone changes nothing: events sent for earlier credit have returned more permits
                    # than it takes.
                    acknowledged = link.acknowledged
                    settled = link.receive(frame, now_ns)
                    self.messages += settled
                    self.handled += 1
                    if link.acknowledged == acknowledged and (weigh is not None or not settled):
                        self.idle += 1
                        self.weight += 1
                    continue
                if weigh is None or len(frame.messages) == 1:
                    whole = link.receive(frame, now_ns)
                    self.messages += whole
                    self.weight += len(whole) if weigh is None else weigh(frame.messages[0])
                else:
                    part = link.receive(frame, now_ns, most - self.weight, weigh)
                    self.messages.extend(part)
                    self.weight += sum(1 if isinstance(each, Acknowledge) else weigh(each) for each in part)
                if link.begun:
                    return
                self.handled += 1
        except LinkError as broken:
            self.error = broken

    def leave(self, taken: int) -> None:
        """Only `taken` messages were handled: the others are to be received again."""
        self.handled = max(at for at, (start, _) in enumerate(self._begun) if start <= taken)
        start, position = self._begun[self.handled]
        self._link.rewind(position, taken - start)
        self.error = None


_FEW_TYPES = 1_000


class Intake(Generic[M]):
    """`decode` turns a message of a frame, from a neighbour or not, into one of the core."""

    def __init__(self, state: EndpointState, decode: Callable[[M, bool], Message | Undecodable]) -> None:
        self._state = state
        self._refuse = state.enqueue
        self.decode = decode
        self.repeats = Repeats() if state.options.drop_repeats else None
        self._most_types = _FEW_TYPES
        self.batches = 0

    def control(self, queue: InterfaceQueue, message: Message | Undecodable, clock_ns: int) -> Message | None:
        """A message without events, for the core; None if it was refused, or was for the endpoint."""
        if isinstance(message, Undecodable):
            queue.link.consume(message.size)
            refuse = self._state.guard.instead(message.refuse, queue.rights)
            if queue.is_broker and refuse.count:
                self._state.drops.add("malformed or of unknown type", refuse.count)
                return None
            return self._refused(queue, refuse)
        if message.__class__ is Hold:
            if queue.is_broker:  # a client limits what it gets by its credit, for a limited time
                queue.set_held(message.type_name, message.held)
            return None
        if queue.is_broker:
            return message
        interface, rights = queue.interface, queue.rights
        denied = None if rights is None else self._state.guard.refusal(message, interface, rights)
        bounds = self._state.options.bounds
        if denied is None and (message.__class__ is not Update or bounds.session_updates_per_s is not None):
            denied = self._state.quotas.refusal(message, interface, clock_ns)
        if denied is None and queue.policy is SlowConsumer.CONFLATE:
            denied = self._unkeyed(message)
        if denied is not None:
            return self._refused(queue, denied)
        if message.__class__ is Subscribe and rights is not None:
            restricted = self._state.guard.restricted(message, interface, rights)
            return restricted if isinstance(restricted, Subscribe) else self._refused(queue, restricted)
        return message

    def _unkeyed(self, message: Message) -> Refuse | None:
        """The refusal of a subscription, for conflation, to a type without a key."""
        if not isinstance(message, Subscribe):
            return None
        event_type = message.filter.event_type
        if event_type.key is not None or self._state.tables.key_of(event_type.name) is not None:
            return None
        reason = f"{event_type.name} has no key: slow_consumer 'conflate' expects event types with one"
        return Refuse(message.epoch, "FAILED_PRECONDITION", reason, message.subscription_id, event_type.name)

    def events(self, queue: InterfaceQueue, message: Publish, clock_ns: int) -> Publish | None:
        """The admitted part of a message with events; None if nothing is."""
        state, batch = self._state, message.batch
        options = state.options
        type_name, size = batch.event_type.name, FIXED_BYTES + batch.nbytes
        queue.link.consume(size)
        self.batches += 1
        if not queue.is_broker:
            if queue.rights is not None or batch.publisher is not queue.publisher:
                denied = state.guard.refusal(message, queue.interface, queue.rights)
                if denied is not None:  # first, since the client may not learn anything about the type
                    self._refuse(queue, denied)
                    return None
                queue.publisher = batch.publisher
            bounds = options.bounds
            if bounds.session_events_per_s is not None or bounds.session_event_bytes_per_s is not None:
                too_fast = state.quotas.events_refusal(batch, size, queue.interface, clock_ns)
                if too_fast is not None:
                    self._refuse(queue, too_fast)
                    return None
        if state.durability is not None:
            state.durability.arrives(type_name)
        since_hold = state.holds.sent(queue.interface, type_name, size)
        if state.holds.types > self._most_types:
            self._forget_types()
        if queue.is_broker:
            return message if self.repeats is None else self.repeats.fresh(message)
        if since_hold > options.after_hold_bytes:
            self._refuse(queue, refuse_held(message.batch))
            return None
        if queue.publishers != state.publishers:
            self._share_windows(queue)
        admitted: EventBatch | None = batch
        refusals: list[Refuse] = []
        limits = options.limits
        if not 0 < batch.count <= limits.max_batch_events or size > FIXED_BYTES + limits.max_event_bytes:
            admitted, refusals = admit(batch, limits)
        if admitted is not None and queue.rights is not None:
            admitted, denials = state.guard.select(admitted, queue.interface, queue.rights)
            refusals += denials
        for refusal in refusals:
            self._refuse(queue, refusal)
        if admitted is None:
            return None
        if options.stamp_ingress:
            admitted = admitted.stamped(ingress_ns=clock_ns)
        if self.repeats is not None:
            self.repeats.taken(admitted)  # the event may come back over a link that has moved
        return Publish(admitted)

    def _share_windows(self, queue: InterfaceQueue) -> None:
        """The number of publishers has changed since this client's last events: share the window anew."""
        state, sizes = self._state, self._state.options.windows
        state.publishers += queue.publishers is None
        queue.publishers = state.publishers
        share = max(sizes.least, sizes.publishers // state.publishers)
        queue.link.window_bytes = min(queue.widest_window, share)

    def _forget_types(self) -> None:
        known = self._state.tables.types
        self._state.holds.forget_types(known)
        for queue in self._state.queues.values():
            queue.forget_types(known)
        if self.repeats is not None:
            self.repeats.forget_types(known)
        self._most_types = max(_FEW_TYPES, 2 * self._state.holds.types)

    def _refused(self, queue: InterfaceQueue, refuse: Refuse) -> Message | None:
        """Answer a message that the core never gets; an Unsubscribe of no subscription settles its epoch."""
        self._refuse(queue, refuse)
        return Unsubscribe(refuse.epoch, 0) if refuse.epoch else None
