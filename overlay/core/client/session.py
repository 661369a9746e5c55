"""The client's side of the protocol (Jayaram et al., Figs. 2 and 5), sans-IO: the client library and the
simulator use it.

Calls (`subscribe`, `update`, ...) return the messages to send; `receive` takes in what the broker sent and
returns what it means. A call that raises has changed nothing and sends nothing.

STRICTNESS (Fig. 5 line 10): before an event is delivered its filter is evaluated again on the newest values.
A Deliver says which control epoch of this client the broker had applied when it matched; only where that is
older than the newest change in the event's type there is anything to evaluate, and then it is done for the
whole batch by an engine of the client's own. Events that fail are counted as *spurious*; an event that a
newer filter asks for already is delivered.

An event is never delivered twice: each publisher's events of one type arrive in order, so the highest
sequence number seen is enough (`client_view.py`). A subscription that was updated without gaps gets replays
as well, out of order: it remembers what it had (`recent.py`), and replays are for such subscriptions alone.

In the static mode (`routing="static"`, the paper's baseline) no variables travel: an update is a new
subscription for the old one, in the order that `resubscribe` names. The id that a user knows stays; the ids
underneath change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from covey.matcher.errors import EventError, EventTypeError, SubscriptionError, VariableError
from covey.matcher.events.batch import EventBatch
from covey.overlay.core.client.recent import Recent
from covey.overlay.core.client.view import Held, Int64s, TypeView
from covey.overlay.core.messages import (
    Acknowledge,
    Advertise,
    Deliver,
    Listeners,
    Message,
    Publish,
    Refuse,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Unadvertise,
    Unsubscribe,
    Update,
)
from covey.overlay.core.moving.motion import check_values, moves

if TYPE_CHECKING:
    from covey.matcher.events.event_type import EventType
    from covey.matcher.expressions.expression import Scalar
    from covey.matcher.filters.filter import Filter

_ID_BITS = 40
_ID_MASK = (1 << _ID_BITS) - 1


# --- what a received message means to the client ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DeliverTo:
    """Events for one subscription, none of them delivered before; of those that came, `spurious` were
    filtered out.

    The batch is empty where all were. What is `replayed` is not in the order of its publisher.
    """

    subscription_id: int
    batch: EventBatch
    spurious: int
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Matches:
    """What a Deliver means, undivided: the event `batch[rows[i]]` is for the subscription `ids[i]`.

    Events are none that were delivered before; `spurious` counts, by subscription, those filtered out.
    """

    batch: EventBatch
    rows: Int64s
    ids: Int64s
    spurious: Mapping[int, int]
    replayed: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """Every control message up to this epoch has taken effect wherever it had to, or was refused."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The broker refused a message; see `messages.Refuse`. A refused Subscribe or Advertise is forgotten."""

    epoch: int
    status: str
    reason: str
    subscription_id: int = 0
    type_name: str = ""
    first_sequence: int = 0
    count: int = 0


@dataclass(frozen=True, slots=True)
class Listening:
    """Whether anyone wants anything of what is advertised of a type, from now on."""

    type_name: str
    listening: bool


@dataclass(frozen=True, slots=True)
class Transmit:
    """Send this message to the broker."""

    message: Message


ClientAction = DeliverTo | Settled | Refused | Listening | Transmit


class ClientSession:
    """One client. `publisher` identifies its events and must be new whenever the client has lost its state.

    `routing` and `resubscribe` ("subscribe-first" or "unsubscribe-first") say how updates travel; `engine`
    names the engine that evaluates filters again. Raises `ValueError` for another routing or order.
    """

    def __init__(
        self,
        publisher: str,
        *,
        routing: str = "parametric",
        resubscribe: str = "subscribe-first",
        engine: str = "cluster",
    ) -> None:
        if routing not in ("parametric", "static"):
            raise ValueError(f"routing {routing!r}: expected parametric or static")
        if resubscribe not in ("subscribe-first", "unsubscribe-first"):
            raise ValueError(f"resubscribe {resubscribe!r}: expected subscribe-first or unsubscribe-first")
        self.publisher = publisher
        self.routing = routing
        self.resubscribe = resubscribe
        self.epoch = 0
        """The newest control epoch: once it has settled, so has everything said so far."""
        self.settled = 0
        self._engine = engine
        self._resynchronised = 0
        self._next_id = 1
        self._next_sequence = 1
        self._advertised: dict[str, Advertise] = {}
        self._subscriptions: dict[int, Held] = {}
        self._by_wire: dict[int, int] = {}
        self._publics: Int64s | None = None
        """`_by_wire` as an array, -1 where there is none; made anew after a change, where ids lie dense."""
        self._retired: dict[int, int] = {}
        """Ids that a re-subscription left behind, and the epoch of their Unsubscribe: events may still come
        for them.
        """
        self._views: dict[str, TypeView] = {}
        self._recent: dict[int, Recent] = {}
        """What those subscriptions have had that were updated without gaps."""
        self._reaching: dict[int, tuple[int, int]] = {}
        """Updates without gaps that have not settled: of each subscription the epoch of the last and the time
        of the first, in order of epochs.
        """

    # --- publishing -----------------------------------------------------------------------------------------

    def advertise(
        self, event_type: EventType, filter: Filter | None = None, *, watch: bool = False
    ) -> list[Message]:
        """Announce events of this type, those that `filter` accepts; nothing to send if that was done.

        Another filter takes the place of the earlier one. With `watch` the broker tells whether anyone
        listens. `EventTypeError` for another type of the name, `VariableError` for a filter with variables.
        """
        if filter is not None and filter.variables:
            raise VariableError(f"advertisement of {event_type.name} with {filter}: expected no variables")
        known = self._advertised.get(event_type.name)
        if known is not None:
            if known.event_type != event_type:
                raise EventTypeError(
                    f"event type {event_type.name}: advertised as {known.event_type!r}, now as "
                    f"{event_type!r}; expected the same attributes"
                )
            if (known.filter, known.watch) == (filter, watch):
                return []
        message = self._advertised[event_type.name] = Advertise(self._next_epoch(), event_type, filter, watch)
        return [message]

    def unadvertise(self, type_name: str) -> list[Message]:
        """Take an advertisement back; `EventTypeError` if there is none."""
        if type_name not in self._advertised:
            raise EventTypeError(
                f"event type {type_name!r} is not advertised here; {self._list_advertised()}"
            )
        del self._advertised[type_name]
        return [Unadvertise(self._next_epoch(), type_name)]

    @property
    def advertised(self) -> Mapping[str, Advertise]:
        """By type, the newest advertisement that was not refused or taken back."""
        return self._advertised

    def publish(self, batch: EventBatch) -> Publish:
        """The batch under this publisher's name, numbered on from the last; `EventError` if its type is not
        advertised.
        """
        known = self._advertised.get(batch.event_type.name)
        if known is None or known.event_type != batch.event_type:
            raise EventError(
                f"event type {batch.event_type.name!r} is not advertised with these attributes; "
                f"{self._list_advertised()}"
            )
        first = self._next_sequence
        self._next_sequence += len(batch)
        if batch.sequence_offsets is not None:
            batch = EventBatch(batch.event_type, batch.record_batch, ingress_ns=batch.ingress_ns)
        return Publish(batch.stamped(publisher=self.publisher, first_sequence=first))

    def _list_advertised(self) -> str:
        return f"expected one of {', '.join(self._advertised)}" if self._advertised else "advertise it first"

    # --- subscribing ----------------------------------------------------------------------------------------

    def subscribe(
        self, filter: Filter, values: Mapping[str, object] | None = None, *, now_ns: int = 0
    ) -> tuple[int, list[Message]]:
        """A new subscription: its id, and what to send. `VariableError` for values that do not fit.

        Values may be motions (`motion.py`); those without a beginning begin at `now_ns`.
        """
        subscription = Held(self._next_id, filter, self._checked(filter, values or {}, now_ns))
        view = self._view(filter.event_type)
        self._next_id += 1
        self._subscriptions[subscription.uid] = subscription
        self._by_wire[subscription.wire_id] = subscription.uid
        self._publics = None
        view.put(subscription)
        message = self._subscribe_message(subscription)
        view.newest = self.epoch
        return subscription.uid, [message]

    def update(
        self, subscription_id: int, values: Mapping[str, object], *, since_ns: int = 0, now_ns: int = 0
    ) -> list[Message]:
        """New values for some variables, in force here from now on; nothing to send if none of them differs.

        With `since_ns`, the time by the clock that stamps events, the update is without gaps: what has
        entered the overlay since and only the new values match comes as well, as far as brokers have it.

        Raises `SubscriptionError` for an unknown or cancelled subscription, `VariableError` for values that
        do not fit.
        """
        subscription = self._known(subscription_id)
        checked = self._checked(subscription.filter, values, now_ns, partial=True)
        changed = {name: value for name, value in checked.items() if subscription.values[name] != value}
        if not changed:
            return []
        subscription.values = {**subscription.values, **changed}
        view = self._views[subscription.filter.event_type.name]
        view.put(subscription)
        messages: list[Message]
        if self.routing == "static":
            messages = self._resubscription(subscription)
            if since_ns:
                messages.append(Update(self._next_epoch(), subscription.wire_id, {}, since_ns))
        else:
            messages = [Update(self._next_epoch(), subscription_id, changed, since_ns)]
        if since_ns:
            self._reach_back(subscription, view, since_ns)
        view.newest = self.epoch
        return messages

    def _reach_back(self, subscription: Held, view: TypeView, since_ns: int) -> None:
        """What was said last is an update without gaps."""
        uid = subscription.uid
        if uid not in self._recent:
            # To a broker a re-subscription is another subscription, which has had nothing yet.
            self._recent[uid] = Recent(view.watermarks if self.routing == "static" else None)
        _, first_ns = self._reaching.pop(uid, (0, since_ns))
        self._reaching[uid] = self.epoch, min(first_ns, since_ns)

    def _resubscription(self, subscription: Held) -> list[Message]:
        """The static mode's update: one subscription for another, in either order (section 4.2)."""
        old = subscription.wire_id
        subscription.wire_id = self._next_id
        self._next_id += 1
        self._by_wire[subscription.wire_id] = subscription.uid
        self._publics = None
        messages: list[Message] = []
        if self.resubscribe == "subscribe-first":
            messages.append(self._subscribe_message(subscription))
        messages.append(Unsubscribe(self._next_epoch(), old))
        self._retired[old] = self.epoch
        if self.resubscribe == "unsubscribe-first":
            messages.append(self._subscribe_message(subscription))
        return messages

    def unsubscribe(self, subscription_id: int) -> list[Message]:
        """Cancel a subscription: nothing is delivered to it any more. `SubscriptionError` for an unknown
        one.
        """
        subscription = self._known(subscription_id)
        message = Unsubscribe(self._next_epoch(), subscription.wire_id)
        self._forget(subscription)
        return [message]

    def event_type(self, name: str) -> EventType | None:
        """The event type of this name, as a subscription or an advertisement here has it."""
        view, advertised = self._views.get(name), self._advertised.get(name)
        if view is not None:
            return view.event_type
        return None if advertised is None else advertised.event_type

    def values(self, subscription_id: int) -> dict[str, Scalar]:
        """The newest values of a subscription's variables."""
        return dict(self._known(subscription_id).values)

    def _subscribe_message(self, subscription: Held) -> Subscribe:
        subscription.born = self._next_epoch()
        filter, values = subscription.filter, subscription.values
        if self.routing == "static":
            filter, values = filter.substitute(values), {}
        return Subscribe(subscription.born, subscription.wire_id, filter, values)

    def _known(self, subscription_id: int) -> Held:
        subscription = self._subscriptions.get(subscription_id)
        if subscription is None:
            raise SubscriptionError(f"subscription {subscription_id}: it was cancelled or never made")
        return subscription

    def _forget(self, subscription: Held) -> None:
        del self._subscriptions[subscription.uid], self._by_wire[subscription.wire_id]
        self._recent.pop(subscription.uid, None)
        self._reaching.pop(subscription.uid, None)
        self._publics = None
        for wire in [w for w in self._retired if self._by_wire[w] == subscription.uid]:
            del self._retired[wire], self._by_wire[wire]
        name = subscription.filter.event_type.name
        view = self._views[name]
        view.discard(subscription)
        view.newest = self.epoch
        if not len(view.matching):
            del self._views[name]

    # --- after a broker has lost its state ------------------------------------------------------------------

    def sync(self) -> list[Message]:
        """Everything that holds, for a broker that does not know this session or has lost it.

        To be sent on every connection that does not resume an earlier one. What was not settled yet settles
        with it; updates without gaps reach back to their calls again.
        """
        messages: list[Message] = [SyncBegin()]
        for name, said in self._advertised.items():
            again = self._advertised[name] = replace(said, epoch=self._next_epoch())
            messages.append(again)
        for subscription in self._subscriptions.values():
            messages.append(self._subscribe_message(subscription))
            if subscription.uid in self._reaching:
                _, since_ns = self._reaching[subscription.uid]
                messages.append(Update(self._next_epoch(), subscription.wire_id, {}, since_ns))
            self._views[subscription.filter.event_type.name].newest = self.epoch
        self._resynchronised = self._next_epoch()
        messages.append(SyncEnd(self._resynchronised))
        return messages

    # --- what the broker sends ------------------------------------------------------------------------------

    def receive(self, message: Message) -> list[ClientAction]:
        """Take in one message of the broker; what it means, in order."""
        if isinstance(message, Deliver):
            return self._on_deliver(message)
        if isinstance(message, Acknowledge):
            # An epoch from before a resynchronisation has taken effect once all was said again, not earlier.
            if self.settled < message.epoch <= self.epoch and message.epoch >= self._resynchronised:
                self.settled = message.epoch
                while self._reaching:
                    uid, (epoch, _) = next(iter(self._reaching.items()))
                    if epoch > self.settled:
                        break
                    del self._reaching[uid]
                for wire in [w for w, epoch in self._retired.items() if epoch <= self.settled]:
                    del self._retired[wire], self._by_wire[wire]
                    self._publics = None
                return [Settled(message.epoch)]
            return []
        if isinstance(message, Refuse):
            return self._on_refuse(message)
        if isinstance(message, Listeners):
            return [Listening(message.type_name, message.listening)]
        return []

    def _on_refuse(self, message: Refuse) -> list[ClientAction]:
        public = self._by_wire.get(message.subscription_id, message.subscription_id)
        actions: list[ClientAction] = [
            Refused(
                message.epoch,
                message.status,
                message.reason,
                public,
                message.type_name,
                message.first_sequence,
                message.count,
            )
        ]
        subscription = self._subscriptions.get(public)
        if message.subscription_id:
            if subscription is not None and subscription.born == message.epoch:
                self._forget(subscription)
        elif message.epoch > self.settled:
            known = self._advertised.get(message.type_name)
            if known is not None and known.epoch == message.epoch:
                # Brokers that accepted it before another refused it are to forget it, too.
                actions += [Transmit(m) for m in self.unadvertise(message.type_name)]
        return actions

    def _on_deliver(self, message: Deliver) -> list[ClientAction]:
        batch = message.batch
        view = self._views.get(batch.event_type.name)
        if view is None or view.event_type != batch.event_type:
            return []  # cancelled meanwhile
        fresh = None if message.replayed else view.fresh(batch)
        ids = message.ids
        if (
            fresh is None
            and not self._recent
            and not view.movers
            and not message.replayed
            and message.epoch >= view.newest
            and 0 < len(ids) == len(batch)
            and (ids == ids[0]).all()
        ):
            public = self._by_wire.get(int(ids[0]))  # the common case: all for one
            return [] if public is None else [DeliverTo(public, batch, 0)]
        return self._shares(self._evaluate(message, view, fresh))

    def matches(self, message: Deliver) -> Matches | None:
        """What `receive` would say of a Deliver, undivided: its cost does not grow with the subscriptions it
        is for. Use one or the other for a message. None if nobody wants its event type any more.
        """
        view = self._views.get(message.batch.event_type.name)
        if view is None or view.event_type != message.batch.event_type:
            return None
        fresh = None if message.replayed else view.fresh(message.batch)
        return self._evaluate(message, view, fresh)

    def _evaluate(self, message: Deliver, view: TypeView, fresh: npt.NDArray[np.bool_] | None) -> Matches:
        batch = message.batch
        rows, subscriptions = self._pairs(message)
        if fresh is not None:
            new = fresh[rows]
            rows, subscriptions = rows[new], subscriptions[new]
        spurious: dict[int, int] = {}
        if message.replayed:
            gapless = np.isin(subscriptions, np.fromiter(self._recent, np.int64, len(self._recent)))
            rows, subscriptions = rows[gapless], subscriptions[gapless]
        if message.epoch < view.newest or view.movers:
            offsets, matching = view.match(batch)
            now = np.repeat(np.arange(len(batch)), np.diff(offsets))
            if fresh is not None:
                new = fresh[now]
                now, matching = now[new], matching[new]
            gone = np.setdiff1d(_keys(rows, subscriptions), _keys(now, matching))
            found, counts = np.unique(gone & _ID_MASK, return_counts=True)
            spurious = dict(zip(found.tolist(), counts.tolist(), strict=True))
            if message.replayed:
                kept = np.isin(_keys(rows, subscriptions), _keys(now, matching))
                rows, subscriptions = rows[kept], subscriptions[kept]
            else:
                rows, subscriptions = now, matching
        if self._recent:
            rows, subscriptions = self._once(batch, rows, subscriptions)
        return Matches(batch, rows, subscriptions, spurious, message.replayed)

    def _once(self, batch: EventBatch, rows: Int64s, subscriptions: Int64s) -> tuple[Int64s, Int64s]:
        """The pairs that are not handed out already. A pass for each subscription among them that was updated
        without gaps.
        """
        if not batch.publisher:
            return rows, subscriptions
        sequences = batch.sequences()
        keep = np.ones(len(rows), np.bool_)
        for subscription_id in np.unique(subscriptions).tolist():
            recent = self._recent.get(subscription_id)
            if recent is not None:
                mine = np.flatnonzero(subscriptions == subscription_id)
                keep[mine] = recent.fresh(batch.publisher, sequences[rows[mine]])
        return rows[keep], subscriptions[keep]

    def _pairs(self, message: Deliver) -> tuple[Int64s, Int64s]:
        """The (event, subscription) pairs of a Deliver, under the ids users know; cancelled ones are left
        out.
        """
        rows = np.repeat(np.arange(len(message.batch)), np.diff(message.offsets))
        publics = self._publics_of(np.asarray(message.ids, dtype=np.int64))
        if (publics < 0).any():
            rows, publics = rows[publics >= 0], publics[publics >= 0]
        return rows, publics

    def _publics_of(self, wires: Int64s) -> Int64s:
        """The ids that users know, -1 for cancelled ones."""
        if self._publics is None:
            size = max(self._by_wire, default=0) + 1
            if size > 64 + 4 * len(self._by_wire):
                found, where = np.unique(wires, return_inverse=True)
                return np.array([self._by_wire.get(w, -1) for w in found.tolist()], dtype=np.int64)[where]
            self._publics = np.full(size, -1, dtype=np.int64)
            self._publics[list(self._by_wire)] = list(self._by_wire.values())
        within = wires < len(self._publics)
        if within.all():
            return self._publics[wires]
        return np.where(within, self._publics[np.where(within, wires, 0)], -1)

    @staticmethod
    def _shares(matches: Matches) -> list[ClientAction]:
        batch, rows, subscriptions, spurious = matches.batch, matches.rows, matches.ids, matches.spurious
        shares: dict[int, EventBatch] = {}
        if len(rows):
            order = np.argsort(subscriptions, kind="stable")
            rows, subscriptions = rows[order], subscriptions[order]
            edges = [0, *(np.flatnonzero(np.diff(subscriptions)) + 1).tolist(), len(rows)]
            for start, stop in pairwise(edges):
                shares[int(subscriptions[start])] = batch.take(rows[start:stop])
        return [
            DeliverTo(
                public, shares.get(public, batch.slice(0, 0)), spurious.get(public, 0), matches.replayed
            )
            for public in sorted(shares.keys() | spurious.keys())
        ]

    def _checked(
        self, filter: Filter, values: Mapping[str, object], now_ns: int, *, partial: bool = False
    ) -> dict[str, Scalar]:
        if self.routing == "static" and moves(values):
            raise VariableError("a variable that moves by itself: expected a number under routing static")
        return check_values(filter, values, partial=partial, now_ns=now_ns)

    # --- small things ---------------------------------------------------------------------------------------

    def _next_epoch(self) -> int:
        self.epoch += 1
        return self.epoch

    def _view(self, event_type: EventType) -> TypeView:
        view = self._views.get(event_type.name)
        if view is None:
            view = self._views[event_type.name] = TypeView(event_type, self._engine)
        elif view.event_type != event_type:
            raise EventTypeError(
                f"event type {event_type.name}: subscribed to as {view.event_type!r}, now as {event_type!r}; "
                "expected the same attributes"
            )
        return view


def _keys(rows: Int64s, subscriptions: Int64s) -> Int64s:
    """One number for each (event, subscription) pair; a session counts its subscriptions from 1."""
    return (rows << _ID_BITS) | subscriptions
