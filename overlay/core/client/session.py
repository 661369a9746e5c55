"""The client's side of the protocol (Jayaram et al., Figs. 2 and 5), without I/O. Calls (`subscribe`,
`update`, ...) return the messages to send; `receive` takes a message of the broker and returns what it means.
A call that raises has changed nothing and sends nothing.

In the static mode (the paper's baseline) no variables travel: an update is a new subscription for the old
one, in the order of `resubscribe`. The user's id stays; the ids on the wire change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from covey.matcher.covering.covering import covers_region
from covey.matcher.errors import (
    CoveyError,
    EventError,
    EventTypeError,
    FilterError,
    SubscriptionError,
    VariableError,
)
from covey.matcher.evaluation.asking import Fault
from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.events.batch import EventBatch
from covey.overlay.core.client.actions import ClientAction, DeliverTo, Int64s, Matches, Settled, Transmit
from covey.overlay.core.client.reception import Recent, Reception
from covey.overlay.core.client.strictness import ClientSubscription
from covey.overlay.core.messages import (
    Acknowledge,
    Advertise,
    Answered,
    Deliver,
    Expired,
    ListenersReport,
    Message,
    Notice,
    Publish,
    Refuse,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Unadvertise,
    Unsubscribe,
    Update,
)
from covey.overlay.core.moving.motion import Motion, check_values, moves

if TYPE_CHECKING:
    from covey.matcher.events.event_type import EventType
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter


class ClientSession:
    """One client. `publisher` identifies its events and must be new whenever the client has lost its state,
    or `first_sequence` above all earlier numbers; repeated events have their old numbers. `clock_ns` of calls
    is by a monotonic clock, which validity periods use. `routing` is "parametric" or "static", `resubscribe`
    "subscribe-first" or "unsubscribe-first". Raises `ValueError` for another routing or order."""

    def __init__(
        self,
        publisher: str,
        *,
        routing: str = "parametric",
        resubscribe: str = "subscribe-first",
        engine: str = "cluster",
        evaluator: Evaluator | None = None,
        first_sequence: int = 1,
    ) -> None:
        if routing not in ("parametric", "static"):
            raise ValueError(f"routing {routing!r}: expected parametric or static")
        if resubscribe not in ("subscribe-first", "unsubscribe-first"):
            raise ValueError(f"resubscribe {resubscribe!r}: expected subscribe-first or unsubscribe-first")
        self.publisher = publisher
        self.routing = routing
        self.resubscribe = resubscribe
        self.epoch = 0
        """The newest control epoch: once it has settled, so has everything sent so far."""
        self.settled = 0
        self._resynchronised = 0
        self._next_id = 1
        self._next_sequence = first_sequence
        self._advertised: dict[str, Advertise] = {}
        self._accepted: dict[str, Advertise] = {}
        """By type, the advertisement in effect while a newer one is pending."""
        self._subscriptions: dict[int, ClientSubscription] = {}
        self.evaluator = evaluator or Evaluator()
        self.evaluator.on_fault = self._note_fault
        self._undecided: dict[str, Notice] = {}
        self._reception = Reception(engine, self.evaluator)
        self._reaching: dict[int, tuple[int, int]] = {}
        """By subscription, unsettled gapless updates: epoch of the last, time of the first, in order of
        epochs."""

    # --- publishing -----------------------------------------------------------------------------------------

    def advertise(
        self, event_type: EventType, filter: Filter | None = None, *, report_listeners: bool = False
    ) -> list[Message]:
        """Announce events of this type that `filter` accepts; nothing to send if that was done.

        Another filter replaces the earlier one. More attributes widen the type. With `report_listeners` the
        broker sends `ListenersReport`. `EventTypeError` if an attribute was advertised with another kind,
        `VariableError` for a filter with variables, `FilterError` for one that calls named operators."""
        if filter is not None and filter.variables:
            raise VariableError(f"advertisement of {event_type.name} with {filter}: expected no variables")
        if filter is not None and filter.calls:
            reason = f"advertisement of {event_type.name} with {filter}: expected no calls of operators"
            raise FilterError(reason)
        known = self._advertised.get(event_type.name)
        if known is not None:
            event_type = known.event_type.union(event_type)
            if (known.event_type, known.filter, known.report_listeners) == (
                event_type,
                filter,
                report_listeners,
            ):
                return []
            if known.epoch <= self.settled:
                self._accepted[event_type.name] = known
        message = self._advertised[event_type.name] = Advertise(
            self._next_epoch(), event_type, filter, report_listeners
        )
        return [message]

    def unadvertise(self, type_name: str) -> list[Message]:
        """Withdraw an advertisement; `EventTypeError` if there is none."""
        if type_name not in self._advertised:
            raise EventTypeError(
                f"event type {type_name!r} is not advertised here; {self._list_advertised()}"
            )
        del self._advertised[type_name]
        self._accepted.pop(type_name, None)
        return [Unadvertise(self._next_epoch(), type_name)]

    @property
    def advertised(self) -> Mapping[str, Advertise]:
        """By type, the newest advertisement that was not refused or withdrawn."""
        return self._advertised

    def publishable(self, type_name: str) -> EventType | None:
        """The schema for new events, the earlier one until a widening has taken effect; None if not
        advertised."""
        known = self._accepted.get(type_name) or self._advertised.get(type_name)
        return None if known is None else known.event_type

    def publish(self, batch: EventBatch) -> Publish:
        """The batch, stamped and numbered on from the last; `EventError` if its attributes are not
        advertised."""
        known = self._advertised.get(batch.event_type.name)
        if known is None or not known.event_type.includes(batch.event_type):
            raise EventError(
                f"event type {batch.event_type.name!r} is not advertised with these attributes; "
                f"{self._list_advertised()}"
            )
        first = self._next_sequence
        self._next_sequence += len(batch)
        return Publish(batch.consecutive().stamped(publisher=self.publisher, first_sequence=first))

    def _list_advertised(self) -> str:
        return f"expected one of {', '.join(self._advertised)}" if self._advertised else "advertise it first"

    # --- subscribing ----------------------------------------------------------------------------------------

    def subscribe(
        self,
        filter: Filter,
        values: Mapping[str, object] | None = None,
        *,
        now_ns: int = 0,
        valid_for_ns: int = 0,
        clock_ns: int = 0,
    ) -> tuple[int, list[Message]]:
        """A new subscription: its id, and what to send. `VariableError` for values that do not fit.

        Values may be motions (`motion.py`), which begin at `now_ns` by default. With `valid_for_ns` it ends
        after that time unless renewed."""
        subscription = ClientSubscription(self._next_id, filter, self._checked(filter, values or {}, now_ns))
        if valid_for_ns:
            subscription.ends_ns = clock_ns + valid_for_ns
        self._reception.declare(filter.event_type)
        self._next_id += 1
        self._subscriptions[subscription.uid] = subscription
        self._reception.wire_ids.add(subscription.wire_id, subscription.uid)
        message = self._subscribe_message(subscription, clock_ns)
        self._reception.put(subscription, self.epoch)
        return subscription.uid, [message]

    def view(
        self, filter: Filter, values: Mapping[str, object] | None = None, *, enters: Filter | None = None
    ) -> tuple[int, list[Message]]:
        """A new subscription whose reader is a view (`view_reader.py`): brokers send the last events of keys,
        now and with each update, and the next event of each key that they have sent. With `enters`, keys
        enter by that filter and leave by `filter`.

        `FilterError` for a type without a key, for calls of named operators, under routing static, and if
        `enters` accepts what `filter` does not; `VariableError` for values that do not fit or move by
        themselves."""
        name = filter.event_type.name
        if filter.event_type.key is None:
            raise FilterError(f"a view of event type {name} without a key: expected one with a key")
        for each in (filter, filter if enters is None else enters):
            if each.calls:
                raise FilterError(f"a view of event type {name} with {each}: expected no calls of operators")
        if self.routing == "static":
            raise FilterError(f"a view of event type {name} under routing static: expected parametric")
        self._check_still(values or {})
        if enters is not None:
            _check_leave(filter, enters, values or {})
        self._reception.in_views[self._next_id] = 0
        try:
            subscription_id, messages = self.subscribe(filter, values)
            if enters is not None:
                subscription = self._subscriptions[subscription_id]
                subscription.enters = ClientSubscription(subscription_id, enters, {})
                self._reception.put(subscription, self.epoch)
            return subscription_id, messages
        except CoveyError:
            self._reception.in_views.pop(self._next_id, None)
            raise

    def lost(self, type_name: str) -> None:
        """Events of a type were dropped: the next update of each of its views requests all that is inside."""
        for uid in self._reception.in_views:
            subscription = self._subscriptions[uid]
            if subscription.filter.event_type.name == type_name:
                subscription.last_epoch = 0

    def view_epoch(self, subscription_id: int) -> int:
        """The epoch of a view's newest request, 0 after its end; once Answered, all inside has arrived."""
        return self._reception.in_views.get(subscription_id, 0)

    def view_anew(self, subscription_id: int) -> int:
        """The epoch of the newest update after a loss (`lost`), 0 if there is none."""
        return self._known(subscription_id).anew

    def _check_still(self, values: Mapping[str, object]) -> None:
        for name, value in values.items():
            if isinstance(value, Motion):
                raise VariableError(f"variable ${name} of a view: value {value}, expected one without a rate")

    def adopt(self, message: Subscribe, clock_ns: int = 0) -> None:
        """Add a subscription of the durable session from an earlier process; `sync` repeats it."""
        values = self._checked(message.filter, message.values, 0)
        subscription = ClientSubscription(message.subscription_id, message.filter, values)
        if message.valid_for_ns:
            subscription.ends_ns = clock_ns + message.valid_for_ns
        self._reception.declare(message.filter.event_type)
        self._next_id = max(self._next_id, subscription.uid + 1)
        self._subscriptions[subscription.uid] = subscription
        self._reception.wire_ids.add(subscription.wire_id, subscription.uid)
        self._reception.put(subscription, self.epoch)

    def update(
        self,
        subscription_id: int,
        values: Mapping[str, object],
        *,
        since_ns: int = 0,
        now_ns: int = 0,
        traceparent: str = "",
        clock_ns: int = 0,
    ) -> list[Message]:
        """New values for some variables, in force here from now on; nothing to send if none differs.

        With `since_ns`, the time by the clock that stamps events, the update is without gaps: events that
        entered the overlay since and only the new values match come as well, as far as brokers have them.
        Raises `SubscriptionError` for an unknown or cancelled subscription, `VariableError` for values that
        do not fit."""
        subscription = self._known(subscription_id)
        checked = self._checked(subscription.filter, values, now_ns, partial=True)
        changed = {name: value for name, value in checked.items() if subscription.values[name] != value}
        if subscription_id in self._reception.in_views:
            self._check_still(values)
            if subscription.enters is not None:
                moved = {**subscription.values, **changed}
                _check_leave(subscription.filter, subscription.enters.filter, moved)
            subscription.values = {**subscription.values, **changed}
            after = subscription.last_epoch
            epoch = subscription.last_epoch = self._next_epoch()
            subscription.anew = subscription.anew if after else epoch
            self._reception.in_views[subscription_id] = epoch
            update = Update(
                epoch, subscription_id, changed, 0, traceparent, for_views=epoch, after_epoch=after
            )
            self._reception.put(subscription, self.epoch)
            return [update]
        if not changed:
            return []
        subscription.values = {**subscription.values, **changed}
        messages: list[Message]
        if self.routing == "static":
            messages = self._resubscription(subscription, clock_ns)
            if since_ns:
                messages.append(Update(self._next_epoch(), subscription.wire_id, {}, since_ns))
        else:
            messages = [Update(self._next_epoch(), subscription_id, changed, since_ns, traceparent)]
        if since_ns:
            self._reach_back(subscription, since_ns)
        self._reception.put(subscription, self.epoch)
        return messages

    def _reach_back(self, subscription: ClientSubscription, since_ns: int) -> None:
        uid = subscription.uid
        if uid not in self._reception.recent:
            # To a broker a re-subscription is another subscription, without any events yet.
            watermarks = self._reception.types[subscription.filter.event_type.name].watermarks
            self._reception.recent[uid] = Recent(watermarks.sequences if self.routing == "static" else None)
        _, first_ns = self._reaching.pop(uid, (0, since_ns))
        self._reaching[uid] = self.epoch, min(first_ns, since_ns)

    def renew(self, subscription_id: int, valid_for_ns: int, clock_ns: int) -> list[Message]:
        """Valid for so long from now on. `SubscriptionError` for an unknown, cancelled or expired one."""
        subscription = self._known(subscription_id)
        subscription.ends_ns = clock_ns + valid_for_ns
        return [Update(self._next_epoch(), subscription.wire_id, {}, valid_for_ns=valid_for_ns)]

    def expire(self, clock_ns: int) -> list[int]:
        """Drop ended subscriptions and return their ids, before `sync`; else the broker sends Expired."""
        ended = [
            each
            for each in self._subscriptions.values()
            if each.ends_ns is not None and each.ends_ns <= clock_ns
        ]
        for subscription in ended:
            self._expire(subscription)
        return [subscription.uid for subscription in ended]

    def _expire(self, subscription: ClientSubscription) -> None:
        self._remove(subscription, self.epoch + 1)
        self._reception.expired[subscription.uid] = subscription

    def forget_expired(self, subscription_id: int) -> None:
        """Call for each expired subscription once all its earlier events are handed out."""
        self._reception.expired.pop(subscription_id, None)

    def ends_ns(self, subscription_id: int) -> int | None:
        """When the validity period of a subscription is over, None for never."""
        return self._known(subscription_id).ends_ns

    def _resubscription(self, subscription: ClientSubscription, clock_ns: int) -> list[Message]:
        """The static mode's update: one subscription for another, in either order (section 4.2)."""
        old = subscription.wire_id
        subscription.wire_id = self._next_id
        self._next_id += 1
        self._reception.wire_ids.add(subscription.wire_id, subscription.uid)
        messages: list[Message] = []
        if self.resubscribe == "subscribe-first":
            messages.append(self._subscribe_message(subscription, clock_ns))
        messages.append(Unsubscribe(self._next_epoch(), old))
        self._reception.wire_ids.retire(old, self.epoch)
        if self.resubscribe == "unsubscribe-first":
            messages.append(self._subscribe_message(subscription, clock_ns))
        return messages

    def unsubscribe(self, subscription_id: int) -> list[Message]:
        """Cancel a subscription: nothing more is delivered to it. `SubscriptionError` for an unknown one."""
        subscription = self._known(subscription_id)
        message = Unsubscribe(self._next_epoch(), subscription.wire_id)
        self._remove(subscription, self.epoch)
        return [message]

    def widen(self, event_type: EventType) -> None:
        """Hand out more attributes of a subscribed type. `EventTypeError` if one has another kind."""
        subscribed = self._reception.types.get(event_type.name)
        if subscribed is not None:
            subscribed.widen(event_type)
            if event_type not in subscribed.widened:
                subscribed.widened.append(event_type)

    def _narrow(self, type_name: str) -> None:
        """A subscription was refused: its schema may have an attribute of another kind than the overlay."""
        subscribed = self._reception.types.get(type_name)
        if subscribed is not None:
            schemas = dict.fromkeys(s.filter.event_type for s in self._subscriptions.values())
            subscribed.narrow(schema for schema in schemas if schema.name == type_name)

    def event_type(self, name: str) -> EventType | None:
        """The event type of this name, as subscribed to or advertised here."""
        subscribed, advertised = self._reception.types.get(name), self._advertised.get(name)
        if subscribed is not None:
            return subscribed.event_type
        return None if advertised is None else advertised.event_type

    def values(self, subscription_id: int) -> dict[str, Scalar]:
        return dict(self._known(subscription_id).values)

    @property
    def subscriptions(self) -> Mapping[int, Filter]:
        return {subscription.uid: subscription.filter for subscription in self._subscriptions.values()}

    def has_subscription(self, subscription_id: int) -> bool:
        return subscription_id in self._subscriptions

    def _subscribe_message(self, subscription: ClientSubscription, clock_ns: int) -> Subscribe:
        subscription.born = subscription.last_epoch = self._next_epoch()
        filter, values = subscription.filter, subscription.values
        if self.routing == "static":
            filter, values = filter.substitute(values), {}
        ends_ns = subscription.ends_ns
        left_ns = 0 if ends_ns is None else max(1, ends_ns - clock_ns)
        for_views = subscription.uid in self._reception.in_views
        if for_views:
            self._reception.in_views[subscription.uid] = subscription.born
        return Subscribe(subscription.born, subscription.wire_id, filter, values, left_ns, for_views)

    def _known(self, subscription_id: int) -> ClientSubscription:
        subscription = self._subscriptions.get(subscription_id)
        if subscription is None:
            raise SubscriptionError(f"subscription {subscription_id}: it has ended or was never made")
        return subscription

    def _remove(self, subscription: ClientSubscription, epoch: int) -> None:
        """Hand out nothing more for a subscription, nor what matched it before `epoch`."""
        del self._subscriptions[subscription.uid]
        self._reaching.pop(subscription.uid, None)
        self._reception.discard(subscription, epoch)

    # --- after a broker has lost its state ------------------------------------------------------------------

    def sync(self, clock_ns: int = 0) -> list[Message]:
        """Everything that holds, for a broker that does not have this session: send it on every connection
        that does not resume an earlier one. What has not settled settles with it; updates without gaps reach
        back to their calls again."""
        messages: list[Message] = [SyncBegin()]
        for name, earlier in self._advertised.items():
            advertise = self._advertised[name] = replace(earlier, epoch=self._next_epoch())
            messages.append(advertise)
        for subscription in self._subscriptions.values():
            messages.append(self._subscribe_message(subscription, clock_ns))
            if subscription.uid in self._reaching:
                _, since_ns = self._reaching[subscription.uid]
                messages.append(Update(self._next_epoch(), subscription.wire_id, {}, since_ns))
        self._resynchronised = self._next_epoch()
        # A broker that has kept the session keeps what is not repeated until the end: under routing static,
        # old subscriptions of updated ones.
        self._reception.resynchronise(self._resynchronised)
        messages.append(SyncEnd(self._resynchronised))
        return messages

    # --- what the broker sends ------------------------------------------------------------------------------

    def receive(self, message: Message) -> list[ClientAction]:
        """Handle one message of the broker; returns what it means, in order."""
        if isinstance(message, Deliver):
            return [*self.shares(message)]
        if isinstance(message, Acknowledge):
            # Epochs from before a resynchronisation take effect once everything was sent again.
            if self.settled < message.epoch <= self.epoch and message.epoch >= self._resynchronised:
                self.settled = message.epoch
                while self._reaching:
                    uid, (epoch, _) = next(iter(self._reaching.items()))
                    if epoch > self.settled:
                        break
                    del self._reaching[uid]
                if self._reception.wire_ids.retired:
                    self._reception.wire_ids.settle(self.settled)
                for name in list(self._accepted):
                    if self._advertised[name].epoch <= self.settled:
                        del self._accepted[name]
                return [Settled(message.epoch)]
            return []
        if isinstance(message, Refuse):
            return self._on_refuse(message)
        if isinstance(message, ListenersReport | Answered):
            return [message]
        if isinstance(message, Notice):
            uids = [self._reception.wire_ids.uid(i) for i in message.subscription_ids]
            known = dict.fromkeys([uid for uid in uids if uid is not None])
            return [replace(message, subscription_ids=tuple(known))] if known else []
        if isinstance(message, Expired):
            subscription = self._subscriptions.get(self._reception.wire_ids.uid(message.subscription_id) or 0)
            if subscription is None or subscription.wire_id != message.subscription_id:
                return []
            self._expire(subscription)
            return [replace(message, subscription_id=subscription.uid)]
        return []

    def _on_refuse(self, message: Refuse) -> list[ClientAction]:
        uid = self._reception.wire_ids.uid(message.subscription_id) or message.subscription_id
        actions: list[ClientAction] = [replace(message, subscription_id=uid)]
        subscription = self._subscriptions.get(uid)
        if message.subscription_id:
            if subscription is None:
                pass
            elif subscription.born == message.epoch:
                self._remove(subscription, self.epoch + 1)  # events may have matched at this very epoch
                self._narrow(subscription.filter.event_type.name)
            elif message.status == "NOT_FOUND" and subscription.ends_ns and message.epoch > subscription.born:
                subscription.ends_ns = 0  # its Expired is on its way, or lost if the session is
            elif uid in self._reception.in_views:
                subscription.last_epoch = 0  # the broker's bounds differ from the view's
        elif message.epoch > self.settled:
            known = self._advertised.get(message.type_name)
            if known is not None and known.epoch == message.epoch:
                # Brokers that accepted it before another refused it must remove it, too.
                accepted = self._accepted.pop(message.type_name, None)
                if accepted is None:
                    actions += [Transmit(m) for m in self.unadvertise(message.type_name)]
                else:
                    restored = replace(accepted, epoch=self._next_epoch())
                    self._advertised[message.type_name] = restored
                    actions.append(Transmit(restored))
        return actions

    # --- handing out events ---------------------------------------------------------------------------------

    def shares(self, message: Deliver) -> list[DeliverTo]:
        lone = self._reception.lone(message)
        if lone is not None:
            return [DeliverTo(lone, message.batch, 0)] if lone else []
        matches = self._reception.matches(message, self.epoch)
        return [] if matches is None else matches.divided()

    def matches(self, message: Deliver) -> Matches | None:
        """As `shares`, undivided: the cost does not grow with the subscriptions. None if none has the event
        type any more. Call only one of the two for a message."""
        return self._reception.matches(message, self.epoch)

    def strict(self, matches: Matches) -> Matches:
        """The pairs of waiting matches that hold now (STRICTNESS), also of expired subscriptions
        (`forget_expired`)."""
        return self._reception.strict(matches, self.epoch)

    def strict_reader(self, subscription_id: int) -> Callable[[EventBatch, int], Int64s | None]:
        """As `strict`, for events that matched one subscription at an epoch of this session: the matching
        rows, None for all, by its last values after its end. `SubscriptionError` for an unknown one."""
        subscription = self._known(subscription_id)

        def strict_rows(batch: EventBatch, epoch: int) -> Int64s | None:
            if epoch >= subscription.changed:
                return None
            rows = self._reception.strict_rows(subscription, batch)
            return None if len(rows) == len(batch) else rows

        return strict_rows

    def enter_reader(self, subscription_id: int) -> Callable[[EventBatch], Int64s] | None:
        """The rows of a batch by which keys of a view enter; None if that is its filter."""
        enters = self._known(subscription_id).enters
        return None if enters is None else lambda batch: self._reception.strict_rows(enters, batch)

    def _note_fault(self, fault: Fault) -> None:
        known = self._undecided.get(fault.operator)
        count = fault.events + (0 if known is None else known.count)
        self._undecided[fault.operator] = Notice(fault.operator, "", fault.reason, count)

    @property
    def has_notices(self) -> bool:
        return bool(self._undecided)

    def take_notices(self) -> list[Notice]:
        """Operators with undecided events since the last call, each with the subscriptions that call it."""
        notices = []
        for operator, notice in self._undecided.items():
            callers = [
                uid
                for uid, subscription in self._subscriptions.items()
                if any(call.operator == operator for call in subscription.filter.calls)
            ]
            notices.append(replace(notice, subscription_ids=tuple(callers)))
        self._undecided.clear()
        return notices

    # --- helpers --------------------------------------------------------------------------------------------

    def _checked(
        self, filter: Filter, values: Mapping[str, object], now_ns: int, *, partial: bool = False
    ) -> dict[str, Scalar]:
        if self.routing == "static" and moves(values):
            raise VariableError("a variable that moves by itself: expected a number under routing static")
        return check_values(filter, values, partial=partial, now_ns=now_ns)

    def _next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch


def _check_leave(leaves: Filter, enters: Filter, given: Mapping[str, object]) -> None:
    """`FilterError` if `enters` accepts events that `leaves` does not, with these values; `VariableError` for
    invalid ones."""
    unknown = [name for name in enters.variables if name not in leaves.variables]
    if unknown:
        raise FilterError(f"leave {str(leaves)!r}: expected the variable ${unknown[0]} of the filter in it")
    values = leaves.check_values(given)
    own = {name: values[name] for name in enters.variables}
    if not covers_region(leaves.region(values), enters.region(own)):
        raise FilterError(
            f"leave {str(leaves.substitute(values))!r}: expected a filter that accepts all that "
            f"{str(enters.substitute(own))!r} accepts"
        )
