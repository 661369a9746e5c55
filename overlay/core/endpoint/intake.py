"""What arrives at a broker's endpoint, on its way to the core: decoded, counted and admitted.

Invariant: the core gets no message of a client that is over a bound or that the client may not send, and no
event that is not admitted; each is answered by a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from covey.matcher import EventBatch
from covey.overlay.core.endpoint.admission import Undecodable, admit, refuse_held
from covey.overlay.core.endpoint.interface_queue import InterfaceQueue
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.core.endpoint.repeats import Repeats
from covey.overlay.core.endpoint.state import EndpointState
from covey.overlay.core.link.size import FIXED_BYTES
from covey.overlay.core.messages import (
    Hold,
    Message,
    Publish,
    Refuse,
    Subscribe,
    Unsubscribe,
)

M = TypeVar("M")

_FEW_TYPES = 1_000


class Intake(Generic[M]):
    """That of one endpoint; `refuse` sends a refusal to an interface."""

    def __init__(
        self,
        state: EndpointState,
        *,
        decode: Callable[[M, bool], Message | Undecodable],
        refuse: Callable[[InterfaceQueue, Refuse], None],
    ) -> None:
        self._state = state
        self._decode = decode
        self._refuse = refuse
        self.repeats = Repeats() if state.options.drop_repeats else None
        self._most_types = _FEW_TYPES
        self.batches = 0
        """Of events that have arrived."""

    def take(self, queue: InterfaceQueue, wire: M, clock_ns: int) -> Message | None:
        """The message, or the admitted part of it; None if it was refused, or was for the endpoint."""
        message = self._decode(wire, queue.is_broker)
        if message.__class__ is Publish:
            return self._events(queue, message, clock_ns)
        if isinstance(message, Undecodable):
            queue.link.consume(message.size)
            refuse = self._state.guard.instead(message.refuse, queue.rights)
            if queue.is_broker and refuse.count:
                self._state.drops.add("malformed or of unknown type", refuse.count)
                return None
            return self._refused(queue, refuse)
        if message.__class__ is Hold:
            if queue.is_broker:  # a client limits what it gets by its credit, and that for a time only
                queue.set_held(message.type_name, message.held)
            return None
        if queue.is_broker:
            return message
        interface, rights = queue.interface, queue.rights
        denied = None if rights is None else self._state.guard.refusal(message, interface, rights)
        if denied is None:
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
        """The refusal of a subscription whose slow client could not be told which event supersedes which."""
        if not isinstance(message, Subscribe):
            return None
        event_type = message.filter.event_type
        if event_type.key is not None or self._state.tables.key_of(event_type.name) is not None:
            return None
        reason = f"{event_type.name} has no key: slow_consumer 'conflate' expects event types with one"
        return Refuse(message.epoch, "FAILED_PRECONDITION", reason, message.subscription_id, event_type.name)

    def _events(self, queue: InterfaceQueue, message: Publish, clock_ns: int) -> Publish | None:
        batch, options = message.batch, self._state.options
        type_name, size = batch.event_type.name, FIXED_BYTES + batch.nbytes
        queue.link.consume(size)
        self.batches += 1
        if not queue.is_broker:
            if queue.rights is not None or batch.publisher is not queue.publisher:
                denied = self._state.guard.refusal(message, queue.interface, queue.rights)
                if denied is not None:  # before what depends on the type: the client may not know of it
                    self._refuse(queue, denied)
                    return None
                queue.publisher = batch.publisher
            bounds = options.bounds
            if bounds.session_events_per_s is not None or bounds.session_event_bytes_per_s is not None:
                too_fast = self._state.quotas.events_refusal(batch, size, queue.interface, clock_ns)
                if too_fast is not None:
                    self._refuse(queue, too_fast)
                    return None
        if self._state.durability is not None:
            self._state.durability.arrives(type_name)
        since_hold = self._state.holds.sent(queue.interface, type_name, size)
        if self._state.holds.types > self._most_types:
            self._forget_types()
        if queue.is_broker:
            return message if self.repeats is None else self.repeats.fresh(message)
        if since_hold > options.after_hold_bytes:
            self._refuse(queue, refuse_held(message.batch))
            return None
        if queue.publishers != self._state.windows.publishers:
            self._state.windows.published(queue)
        admitted: EventBatch | None = batch
        refusals: list[Refuse] = []
        limits = options.limits
        if not 0 < batch.count <= limits.max_batch_events or size > FIXED_BYTES + limits.max_event_bytes:
            admitted, refusals = admit(batch, limits)
        if admitted is not None and queue.rights is not None:
            admitted, denials = self._state.guard.select(admitted, queue.interface, queue.rights)
            refusals += denials
        for refusal in refusals:
            self._refuse(queue, refusal)
        if admitted is None:
            return None
        if options.stamp_ingress:
            admitted = admitted.stamped(ingress_ns=clock_ns)
        if self.repeats is not None:
            self.repeats.taken(admitted)  # it may come back over a link that has moved
        return Publish(admitted)

    def _forget_types(self) -> None:
        """Event types come and go: what is noted of those that have gone is dropped, now and then."""
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
