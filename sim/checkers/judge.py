"""The judge of deliveries (Jayaram et al., section 3.3). It sees every event and change, but no routing.

- STRICTNESS: a delivered event matches the values that are newest at that moment.
- COVERAGE: an event is expected at a subscription if its advertisement and the subscription have taken effect
  when it is published, and it matches every version of the subscription from the last settled one until its
  delivery. For a durable subscription an unsettled advertisement suffices. A gapless update counts as settled
  from its call on, for types advertised until it takes effect, unless a broker crashes before.
- Motion: an event is expected if it matches at each ingress time that it may have, since events that travel
  together share the earliest.
- A subscription does not end before its validity period is over, and gets nothing after its end.
- No subscription gets an event twice, or events of one publisher out of order, except replays.

A crashed broker or a moving link may lose events that are not durable: none is expected until all is at rest.
With `lossy` (static routing, unsubscribe-first) missed events that crossed a change are only counted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from covey.overlay.core.link.joining import INGRESS_SPAN_NS
from covey.overlay.core.moving.motion import moves, still
from covey.sim.checkers.columns import Columns, Condition
from covey.sim.checkers.findings import Findings
from covey.sim.simulator.observer import Observer, Observers

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType, Filter
    from covey.overlay.core.client.actions import DeliverTo
    from covey.overlay.core.messages import Gap, Refuse
    from covey.sim.simulator.observer import ObservedClient

EventId = tuple[str, int]
"""Publisher and sequence number."""
Event = tuple[Mapping[str, Any], int]
"""Attributes, and the ingress time in ns."""


class JudgedSubscription:
    __slots__ = (
        "client",
        "columns",
        "crossed",
        "durable",
        "ends",
        "filter",
        "former",
        "marks",
        "pending",
        "row",
        "seen",
        "settled",
        "subscription_id",
        "versions",
    )

    def __init__(
        self,
        client: str,
        subscription_id: int,
        filter: Filter,
        columns: Columns,
        epoch: int,
        values: dict[str, Any],
    ) -> None:
        self.client = client
        self.subscription_id = subscription_id
        self.filter = filter
        self.columns = columns
        self.versions = [(epoch, values)]
        """(epoch, values), from the last settled version on; all versions if none has settled."""
        self.former: list[tuple[int, dict[str, Any]]] = []
        """Versions before an unsettled gapless update, which a crash may turn into an ordinary one."""
        self.ends: list[tuple[int, int | None]] = []
        """(epoch, end of the validity period in ns), from the last settled one on."""
        self.settled = False
        self.durable = False
        """Whether a crash loses none of its events."""
        self.pending: dict[EventId, Event] = {}
        self.crossed: set[EventId] = set()
        """Pending events that crossed a change; only where a change may lose events."""
        self.seen: set[EventId] | None = None
        """All events delivered since the first gapless update, None before it."""
        self.marks: dict[str, int] = {}
        """By publisher, the highest sequence number delivered."""
        self.row = columns.add(self, values)

    @property
    def name(self) -> str:
        return f"{self.client}#{self.subscription_id}"

    @property
    def newest(self) -> dict[str, Any]:
        return self.versions[-1][1]

    def expects(self, row: Mapping[str, Any], values: Mapping[str, Any], at_ns: int) -> bool:
        """Whether values match an event; with Motion at each ingress time from `at_ns` - INGRESS_SPAN_NS to
        `at_ns`, by its ends."""
        if not moves(values):
            return self.columns.matches(row, values)
        times = (at_ns, at_ns - INGRESS_SPAN_NS)
        return all(self.columns.matches(row, still(values, time_ns)) for time_ns in times)


class Judge(Observer):
    """Judges one run; `now` returns the time in ns. Its `observers` are called for expected and excused
    events. `conditions` replace the evaluation of filters, `reaches(publisher, subscriber)` restricts which
    clients' events arrive. Subscriptions of durable sessions to the types in `durable` lose nothing in a
    crash. With `slow` clients other events may be dropped if a Gap reports them. Only if not `prompt`, as
    where clocks are set, may a subscription end before its validity period is over."""

    def __init__(
        self,
        findings: Findings,
        now: Callable[[], int],
        *,
        lossy: bool = False,
        observers: Iterable[Observer] = (),
        conditions: Mapping[Filter, Condition] | None = None,
        durable: Collection[str] = (),
        reaches: Callable[[str, str], bool] | None = None,
        slow: bool = False,
        prompt: bool = True,
    ) -> None:
        self._durable = durable
        self._prompt = prompt
        self._slow = slow
        self._conditions = conditions or {}
        self._reaches = reaches
        self.observers = Observers(observers)
        self.delivered_events = 0
        self.spurious_events = 0
        self.expected_events = 0
        """Expected deliveries; at rest the sum of the fulfilled, excused and missed ones."""
        self.fulfilled_events = 0
        self.excused_events = 0
        self.missed_events = 0
        self.lost_events = 0
        """Missed events that crossed a change where a change may lose events: no violations."""
        self.expired_subscriptions = 0
        self.unjudged_events = 0
        self._findings = findings
        self._now = now
        self._lossy = lossy
        self._subscriptions: dict[str, dict[int, JudgedSubscription]] = {}
        self._unsettled: dict[str, dict[int, JudgedSubscription]] = {}
        self._columns: dict[str, dict[Filter, Columns]] = {}
        self._clients: dict[str, ObservedClient] = {}
        self._adverts: dict[str, dict[str, int | None]] = {}
        """By client and type, the epoch of the advertisement, None once it has settled."""
        self._ending: set[str] = set()
        """Clients that have or had a subscription with a validity period."""
        self._after_crash = False
        self._damaged: dict[tuple[str, EventId], dict[str, None]] = {}
        """By client and event, the brokers where damage to a disk may have lost it."""
        self.lost_to_damage: dict[tuple[str, ...], tuple[str, EventId]] = {}
        """By the brokers with the damage, the first client and expected event that was missed at rest."""
        self._excused: dict[str, list[range]] = {}
        self._withdrawn: set[tuple[str, str]] = set()
        """Clients and durable types that they have withdrawn."""
        self._published: dict[tuple[str, str], list[int]] = {}
        """By publisher and durable type, the sequence numbers of its events, ascending."""

    # --- clients --------------------------------------------------------------------------------------------

    def joined(self, client: ObservedClient) -> None:
        self._clients[client.name] = client
        self._subscriptions[client.name] = {}
        self._unsettled[client.name] = {}
        self._adverts[client.name] = {}

    def left(self, client: ObservedClient, vanished: bool) -> None:
        for subscription in self._subscriptions.pop(client.name).values():
            self._excuse(subscription, list(subscription.pending))
            subscription.columns.discard(subscription.row)
        del self._unsettled[client.name], self._adverts[client.name], self._clients[client.name]
        self._withdraw(client)
        if vanished:  # with events that it had published and not yet sent
            publisher = client.session.publisher
            for subscription in self._all_subscriptions():
                self._excuse(subscription, [event for event in subscription.pending if event[0] == publisher])

    def moved(self, client: ObservedClient, broker: str) -> None:
        """Pending events are lost, except durable ones; everything else settles again at `broker`."""
        epoch = client.session.epoch + 1
        for subscription_id, subscription in self._subscriptions[client.name].items():
            if subscription.durable:
                continue
            self._excuse(subscription, list(subscription.pending))
            self._unsettle(client.name, subscription_id, subscription, epoch)
        for name in self._adverts[client.name]:
            self._adverts[client.name][name] = epoch
        self._withdraw(client)

    def _unsettle(
        self, client: str, subscription_id: int, subscription: JudgedSubscription, epoch: int
    ) -> None:
        subscription.versions = [(epoch, subscription.newest)]
        subscription.settled = False
        subscription.columns.ready[subscription.row] = False
        self._unsettled[client][subscription_id] = subscription

    def crashed(self, broker: str) -> None:
        self._after_crash = True
        for subscription in self._all_subscriptions():
            if not subscription.durable:
                self._excuse(subscription, list(subscription.pending))
            elif subscription.former:  # what was to be replayed may be lost
                former, subscription.former = subscription.former, []
                subscription.versions[:0] = former
                unmatched = [
                    event
                    for event, (row, at_ns) in subscription.pending.items()
                    if not all(subscription.expects(row, values, at_ns) for _, values in former)
                ]
                self._excuse(subscription, unmatched)

    def released(self, broker: str, neighbour: str) -> None:
        self.crashed(broker)

    def damaged(self, broker: str, event: EventId, clients: Iterable[str]) -> None:
        for client in clients:
            self._damaged.setdefault((client, event), {})[broker] = None

    def missed(self, client: ObservedClient, gap: Gap) -> None:
        """Excuses events dropped for a slow client. Durable ones may not be dropped."""
        for subscription in self._subscriptions.get(client.name, {}).values() if self._slow else ():
            if subscription.durable or subscription.filter.event_type.name != gap.type_name:
                continue
            within = [
                event
                for event, (_, at_ns) in subscription.pending.items()
                if gap.first_ns <= at_ns <= gap.last_ns + INGRESS_SPAN_NS
            ]
            self._excuse(subscription, within)

    def _excuse(self, subscription: JudgedSubscription, events: list[EventId]) -> None:
        self.excused_events += len(events)
        for event in events:
            del subscription.pending[event]
            self.observers.excused(subscription.client, subscription.subscription_id, *event)
        subscription.crossed.difference_update(events)

    def _all_subscriptions(self) -> list[JudgedSubscription]:
        return [subscription for group in self._subscriptions.values() for subscription in group.values()]

    # --- control --------------------------------------------------------------------------------------------

    def advertised(self, client: ObservedClient, event_type: EventType) -> None:
        self._adverts[client.name][event_type.name] = client.session.epoch

    def unadvertised(self, client: ObservedClient, type_name: str) -> None:
        del self._adverts[client.name][type_name]
        self._withdraw(client, type_name)
        if type_name in self._durable:
            self._withdrawn.add((client.name, type_name))

    def _withdraw(self, client: ObservedClient, type_name: str | None = None) -> None:
        """A gapless update replays only events whose type is still advertised when it arrives."""
        life = client.name.removeprefix("client/")  # a client that moves is another publisher, `c1/2`
        for unsettled in self._unsettled.values():
            for subscription in unsettled.values():
                if subscription.seen is not None and type_name in (None, subscription.filter.event_type.name):
                    withdrawn = [
                        event for event in subscription.pending if event[0].partition("/")[0] == life
                    ]
                    self._excuse(subscription, withdrawn)

    def subscribed(self, client: ObservedClient, subscription_id: int) -> None:
        filter = client.subscriptions[subscription_id]
        by_filter = self._columns.setdefault(filter.event_type.name, {})
        columns = by_filter.get(filter)
        if columns is None:
            columns = by_filter[filter] = Columns(filter, self._conditions.get(filter))
        values = client.session.values(subscription_id)
        subscription = JudgedSubscription(
            client.name, subscription_id, filter, columns, client.session.epoch, values
        )
        ends_ns = client.session.ends_ns(subscription_id)
        subscription.ends.append((client.session.epoch, ends_ns))
        if ends_ns is not None:
            self._ending.add(client.name)
        subscription.durable = client.durable and filter.event_type.name in self._durable
        self._subscriptions[client.name][subscription_id] = subscription
        self._unsettled[client.name][subscription_id] = subscription

    def updated(self, client: ObservedClient, subscription_id: int, old: Mapping[str, Any]) -> None:
        subscription = self._subscriptions[client.name][subscription_id]
        newest = client.session.values(subscription_id)
        subscription.versions.append((client.session.epoch, newest))
        subscription.columns.set(subscription.row, newest)
        self._unsettled[client.name][subscription_id] = subscription
        excused = [
            event
            for event, (row, at_ns) in subscription.pending.items()
            if not subscription.expects(row, newest, at_ns)
        ]
        self._excuse(subscription, excused)
        if self._lossy:
            subscription.crossed.update(subscription.pending)

    def updated_gapless(self, client: ObservedClient, subscription_id: int) -> None:
        subscription = self._subscriptions[client.name][subscription_id]
        if not (subscription.durable and self._after_crash):
            subscription.former += subscription.versions[:-1]
            del subscription.versions[:-1]
        if subscription.seen is None:
            subscription.seen = set()

    def unsubscribed(self, client: ObservedClient, subscription_id: int) -> None:
        subscription = self._subscriptions[client.name].pop(subscription_id)
        self._unsettled[client.name].pop(subscription_id, None)
        self._excuse(subscription, list(subscription.pending))
        subscription.columns.discard(subscription.row)

    def renewed(self, client: ObservedClient, subscription_id: int) -> None:
        subscription = self._subscriptions[client.name][subscription_id]
        subscription.ends.append((client.session.epoch, client.session.ends_ns(subscription_id)))
        self._unsettled[client.name][subscription_id] = subscription
        self._ending.add(client.name)

    def expired(self, client: ObservedClient, subscription_id: int) -> None:
        subscription = self._subscriptions.get(client.name, {}).get(subscription_id)
        if subscription is None:
            return  # the client has left
        self.expired_subscriptions += 1
        ends_ns = [self._now() + 1 if end_ns is None else end_ns for _, end_ns in subscription.ends]
        if min(ends_ns) > self._now() and self._prompt:
            early_ms = (min(ends_ns) - self._now()) / 1e6
            reason = f"{subscription.name} ended {early_ms:g} ms before its period was over"
            self._findings.add("validity", self._now(), reason)
        self.unsubscribed(client, subscription_id)

    def settled(self, client: ObservedClient, epoch: int) -> None:
        if client.name not in self._subscriptions:
            return
        unsettled = self._unsettled[client.name]
        for subscription_id, subscription in list(unsettled.items()):
            renewed = sum(renewal <= epoch for renewal, _ in subscription.ends)
            del subscription.ends[: max(0, renewed - 1)]
            settled = sum(version <= epoch for version, _ in subscription.versions)
            if settled:
                del subscription.versions[: settled - 1]
                subscription.former.clear()
                subscription.settled = True
                subscription.columns.ready[subscription.row] = True
                if len(subscription.versions) == len(subscription.ends) == 1:
                    del unsettled[subscription_id]
        adverts = self._adverts[client.name]
        for name, awaited in adverts.items():
            if awaited is not None and awaited <= epoch:
                adverts[name] = None

    def refused(self, client: ObservedClient, action: Refuse) -> None:
        if action.count:
            # Valid refusals: of events whose advertisement had not settled when they were published and has
            # been withdrawn since, or was lost in a crash, or with the lease of a client that was away.
            first = action.first_sequence
            excused = any(first in excused for excused in self._excused.get(client.name, ()))
            withdrawn = (client.name, action.type_name) in self._withdrawn
            if self._after_crash or excused or withdrawn:
                self._excuse_refused(client, action)
                return
        if action.status == "NOT_FOUND" and client.name in self._ending:
            subscription = self._subscriptions.get(client.name, {}).get(action.subscription_id)
            if subscription is not None:  # else it has ended, or the client has left
                ends = [each for each in subscription.ends if each[0] != action.epoch]
                subscription.ends = ends or subscription.ends
            return  # a change that came after the end
        self._findings.add("refusal", self._now(), f"{client.name} was refused: {action.reason}")

    def _excuse_refused(self, client: ObservedClient, action: Refuse) -> None:
        """Events sent again after a crash, when their advertisement had been withdrawn."""
        refused: Collection[int] = range(action.first_sequence, action.first_sequence + action.count)
        published = self._published.get((client.session.publisher, action.type_name))
        if published is not None:
            first = bisect_left(published, action.first_sequence)
            refused = frozenset(published[first : first + action.count])
        for subscription in self._all_subscriptions():
            if subscription.filter.event_type.name == action.type_name:
                events = [
                    event
                    for event in subscription.pending
                    if event[0] == client.session.publisher and event[1] in refused
                ]
                self._excuse(subscription, events)

    # --- events ---------------------------------------------------------------------------------------------

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        name = batch.event_type.name
        adverts = self._adverts.get(client.name, {})
        settled, durable = adverts.get(name, 0) is None, name in self._durable
        if not settled or (self._after_crash and not durable):
            first = batch.first_sequence
            self._excused.setdefault(client.name, []).append(range(first, first + len(batch)))
        if durable:
            self._published.setdefault((batch.publisher, name), []).extend(batch.sequences().tolist())
        durable_only = self._after_crash or not settled
        if durable_only and not (durable and name in adverts):
            self.unjudged_events += len(batch)
            return
        groups = self._columns.get(name)
        if not groups:
            return
        at_ns = batch.ingress_ns
        for row, sequence in zip(batch.to_pylist(), batch.sequences().tolist(), strict=True):
            event = (batch.publisher, sequence)
            for columns in groups.values():
                for subscription in columns.matching(
                    row, lambda subscription: still(subscription.newest, at_ns)
                ):
                    if durable_only and not subscription.durable:
                        continue
                    if self._reaches is not None and not self._reaches(client.name, subscription.client):
                        continue
                    if len(subscription.versions) > 1 or moves(subscription.newest):
                        if not all(
                            subscription.expects(row, values, at_ns) for _, values in subscription.versions
                        ):
                            continue
                        if self._lossy and len(subscription.versions) > 1:
                            subscription.crossed.add(event)
                    subscription.pending[event] = row, at_ns
                    self.expected_events += 1
                    self.observers.expected(subscription.client, subscription.subscription_id, *event)

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        batch = action.batch
        self.spurious_events += action.spurious
        if not len(batch):
            return
        self.delivered_events += len(batch)
        subscription = self._subscriptions.get(client.name, {}).get(action.subscription_id)
        if subscription is None:
            if client.present:
                self._findings.add(
                    "strictness",
                    self._now(),
                    f"{client.name}#{action.subscription_id} got events after it unsubscribed",
                )
            return
        publisher, newest = batch.publisher, still(subscription.newest, batch.ingress_ns)
        mark = subscription.marks.get(publisher, -1)
        for row, sequence in zip(batch.to_pylist(), batch.sequences().tolist(), strict=True):
            event = (publisher, sequence)
            repeated = subscription.seen is not None and event in subscription.seen
            if subscription.seen is not None:
                subscription.seen.add(event)
            if repeated or (sequence <= mark and not action.replayed):
                self._findings.add(
                    "duplicate",
                    self._now(),
                    f"{subscription.name} got event {sequence} of {publisher} after {mark}",
                )
            if not action.replayed:
                mark = max(mark, sequence)
            if not subscription.columns.matches(row, newest):
                self._findings.add(
                    "strictness",
                    self._now(),
                    f"{subscription.name} got {row}, but has {subscription.filter} with {newest}",
                )
            self.fulfilled_events += subscription.pending.pop(event, None) is not None
            subscription.crossed.discard(event)
        subscription.marks[publisher] = mark

    @property
    def expecting(self) -> bool:
        return any(subscription.pending for subscription in self._all_subscriptions())

    # --- the end --------------------------------------------------------------------------------------------

    def quiet(self) -> None:
        """Report pending events as missed. Call it when all is at rest; then everything is expected again."""
        for subscription in self._all_subscriptions():
            if any(end_ns is not None for _, end_ns in subscription.ends):
                reason = f"{subscription.name} has a validity period, and has not ended when all is at rest"
                self._findings.add("validity", self._now(), reason)
            self._excuse_damaged(subscription)
            self.missed_events += len(subscription.pending)
            for (publisher, sequence), (row, _) in subscription.pending.items():
                if (publisher, sequence) in subscription.crossed:
                    self.lost_events += 1
                    continue
                self._findings.add(
                    "coverage",
                    self._now(),
                    f"{subscription.name} has {subscription.filter} with {subscription.newest} "
                    f"and missed event {sequence} of {publisher}, {row}",
                )
            subscription.pending.clear()
            subscription.crossed.clear()
        self._after_crash = False
        self._damaged.clear()

    def _excuse_damaged(self, subscription: JudgedSubscription) -> None:
        client = subscription.client
        lost = [event for event in subscription.pending if (client, event) in self._damaged]
        for event in lost:
            self.lost_to_damage.setdefault(tuple(self._damaged[client, event]), (client, event))
        self._excuse(subscription, lost)
