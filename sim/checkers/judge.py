"""The judge of what clients get (Jayaram et al., section 3.3). It knows every event and every change, and
nothing of routing.

- STRICTNESS: an event that is delivered matches the values that are newest at that moment.
- COVERAGE: an event is owed to a subscription if, when it is published, the advertisement of its publisher
  and the subscription have taken effect, and it matches every version of the subscription from the last
  settled one on, up to its delivery. What is owed and has not come when all is quiet was missed. An update
  without gaps counts as settled from the moment of its call, for what is advertised until it takes effect.
- Values that move by themselves are what they were when the event entered the overlay; as events that travel
  together share the earliest of their times, an event is owed if it matches at any that it may be given.
- No event twice for one subscription, and the events of one publisher in order, replays apart.

A broker that crashes may take events with it, so nothing is owed from then until all is quiet again. With
`lossy` (the static baseline that unsubscribes first) a change may lose events, which is what it is measured
for: an event that meets a change and is missed is counted, and no finding.

Those who watch are told what is owed and what is no longer, so that what was missed can be told from a trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from covey.overlay.core.link.joining import INGRESS_SPAN_NS
from covey.overlay.core.moving.motion import moves, still
from covey.sim.checkers.columns import Columns
from covey.sim.checkers.findings import Findings
from covey.sim.simulator.observer import Observer

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType, Filter
    from covey.overlay.core.client.actions import DeliverTo, Refused
    from covey.sim.simulator.observer import ObservedClient

EventId = tuple[str, int]
_Event = tuple[Mapping[str, Any], int]
"""Attributes, and when it entered the overlay."""


class _Wanted:
    """A subscription as the judge knows it."""

    __slots__ = (
        "client",
        "columns",
        "crossed",
        "filter",
        "marks",
        "owed",
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
        """The values from the last settled version on, or all, each with the epoch that carries it."""
        self.settled = False
        self.owed: dict[EventId, _Event] = {}
        self.crossed: set[EventId] = set()
        """Of those, the ones that met a change on their way; kept where a change may lose events."""
        self.seen: set[EventId] | None = None
        """All that was delivered since the first update without gaps, if there was one."""
        self.marks: dict[str, int] = {}
        """The highest sequence number delivered, by publisher."""
        self.row = columns.add(self, values)

    @property
    def name(self) -> str:
        return f"{self.client}#{self.subscription_id}"

    @property
    def newest(self) -> dict[str, Any]:
        return self.versions[-1][1]


class Judge(Observer):
    """Judges one run; `now` says the virtual time, and `observers` are told what is owed."""

    def __init__(
        self,
        findings: Findings,
        now: Callable[[], int],
        *,
        lossy: bool = False,
        observers: Iterable[Observer] = (),
    ) -> None:
        self.observers = list(observers)
        self.delivered_events = 0
        self.expected_events = 0
        """Deliveries that were owed, whether they came or not."""
        self.lost_events = 0
        """Deliveries that were owed, met a change and did not come, where a change may lose them."""
        self.excused_events = 0
        """Events published while nothing was owed."""
        self._findings = findings
        self._now = now
        self._lossy = lossy
        self._subscriptions: dict[str, dict[int, _Wanted]] = {}
        self._unsettled: dict[str, dict[int, _Wanted]] = {}
        self._columns: dict[str, dict[Filter, Columns]] = {}
        self._adverts: dict[str, dict[str, int | None]] = {}
        """By client and type: the epoch that has to settle first, None once it has."""
        self._unsure = False
        self._excused: dict[str, list[range]] = {}
        """By client: the sequence numbers of events published while nothing was owed."""

    # --- clients --------------------------------------------------------------------------------------------

    def joined(self, client: ObservedClient) -> None:
        self._subscriptions[client.name] = {}
        self._unsettled[client.name] = {}
        self._adverts[client.name] = {}

    def left(self, client: ObservedClient, vanished: bool) -> None:
        for wanted in self._subscriptions.pop(client.name).values():
            self._excuse(wanted, list(wanted.owed))
            wanted.columns.discard(wanted.row)
        del self._unsettled[client.name], self._adverts[client.name]
        self._withdraw(client)
        if vanished:  # with what it had published and not yet got rid of
            publisher = client.session.publisher
            for wanted in self._everything():
                self._excuse(wanted, [event for event in wanted.owed if event[0] == publisher])

    def moved(self, client: ObservedClient, broker: str) -> None:
        """What was on its way to its old broker is lost; all has to settle again at the new one."""
        epoch = client.session.epoch + 1
        for subscription_id, wanted in self._subscriptions[client.name].items():
            self._excuse(wanted, list(wanted.owed))
            self._unsettle(client.name, subscription_id, wanted, epoch)
        for name in self._adverts[client.name]:
            self._adverts[client.name][name] = epoch
        self._withdraw(client)

    def _unsettle(self, client: str, subscription_id: int, wanted: _Wanted, epoch: int) -> None:
        wanted.versions = [(epoch, wanted.newest)]
        wanted.settled = False
        wanted.columns.ready[wanted.row] = False
        self._unsettled[client][subscription_id] = wanted

    def crashed(self, broker: str) -> None:
        self._unsure = True
        for wanted in self._everything():
            self._excuse(wanted, list(wanted.owed))

    def _excuse(self, wanted: _Wanted, events: list[EventId]) -> None:
        """These are no longer owed."""
        for event in events:
            del wanted.owed[event]
            for observer in self.observers:
                observer.excused(wanted.client, wanted.subscription_id, *event)
        wanted.crossed.difference_update(events)

    def _everything(self) -> list[_Wanted]:
        return [wanted for mine in self._subscriptions.values() for wanted in mine.values()]

    # --- what they say --------------------------------------------------------------------------------------

    def advertised(self, client: ObservedClient, event_type: EventType) -> None:
        self._adverts[client.name][event_type.name] = client.session.epoch

    def unadvertised(self, client: ObservedClient, type_name: str) -> None:
        del self._adverts[client.name][type_name]
        self._withdraw(client, type_name)

    def _withdraw(self, client: ObservedClient, type_name: str | None = None) -> None:
        """A client advertises a type, or anything, no more where it did: what is replayed is what is still
        advertised when an update without gaps arrives.
        """
        life = client.name.removeprefix("client/")  # a client that moves is another publisher, `c1~2`
        for unsettled in self._unsettled.values():
            for wanted in unsettled.values():
                if wanted.seen is not None and type_name in (None, wanted.filter.event_type.name):
                    gone = [event for event in wanted.owed if event[0].partition("~")[0] == life]
                    self._excuse(wanted, gone)

    def subscribed(self, client: ObservedClient, subscription_id: int) -> None:
        filter = client.subscriptions[subscription_id]
        by_filter = self._columns.setdefault(filter.event_type.name, {})
        columns = by_filter.get(filter)
        if columns is None:
            columns = by_filter[filter] = Columns(filter)
        values = client.session.values(subscription_id)
        wanted = _Wanted(client.name, subscription_id, filter, columns, client.session.epoch, values)
        self._subscriptions[client.name][subscription_id] = wanted
        self._unsettled[client.name][subscription_id] = wanted

    def updated(self, client: ObservedClient, subscription_id: int, old: Mapping[str, Any]) -> None:
        wanted = self._subscriptions[client.name][subscription_id]
        newest = client.session.values(subscription_id)
        wanted.versions.append((client.session.epoch, newest))
        wanted.columns.set(wanted.row, newest)
        self._unsettled[client.name][subscription_id] = wanted
        unwanted = [
            event for event, (row, at_ns) in wanted.owed.items() if not _owes(wanted, row, newest, at_ns)
        ]
        self._excuse(wanted, unwanted)
        if self._lossy:
            wanted.crossed.update(wanted.owed)

    def updated_gapless(self, client: ObservedClient, subscription_id: int) -> None:
        wanted = self._subscriptions[client.name][subscription_id]
        del wanted.versions[:-1]
        if wanted.seen is None:
            wanted.seen = set()

    def unsubscribed(self, client: ObservedClient, subscription_id: int) -> None:
        wanted = self._subscriptions[client.name].pop(subscription_id)
        self._unsettled[client.name].pop(subscription_id, None)
        self._excuse(wanted, list(wanted.owed))
        wanted.columns.discard(wanted.row)

    def settled(self, client: ObservedClient, epoch: int) -> None:
        if client.name not in self._subscriptions:
            return
        unsettled = self._unsettled[client.name]
        for subscription_id, wanted in list(unsettled.items()):
            done = sum(version <= epoch for version, _ in wanted.versions)
            if done:
                del wanted.versions[: done - 1]
                wanted.settled = True
                wanted.columns.ready[wanted.row] = True
                if len(wanted.versions) == 1:
                    del unsettled[subscription_id]
        adverts = self._adverts[client.name]
        for name, awaited in adverts.items():
            if awaited is not None and awaited <= epoch:
                adverts[name] = None

    def refused(self, client: ObservedClient, action: Refused) -> None:
        if action.count:
            # Events may be refused if their advertisement had not settled when they were published and was
            # taken back since; a crash may take an advertisement with it that events on their way relied on.
            first = action.first_sequence
            if self._unsure or any(first in excused for excused in self._excused.get(client.name, ())):
                return
        self._findings.add("refusal", self._now(), f"{client.name} was refused: {action.reason}")

    # --- events ---------------------------------------------------------------------------------------------

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        name = batch.event_type.name
        adverts = self._adverts.get(client.name, {})
        if self._unsure or adverts.get(name, 0) is not None:
            self.excused_events += len(batch)
            first = batch.first_sequence
            self._excused.setdefault(client.name, []).append(range(first, first + len(batch)))
            return
        groups = self._columns.get(name)
        if not groups:
            return
        at_ns = batch.ingress_ns
        for row, sequence in zip(batch.to_pylist(), batch.sequences().tolist(), strict=True):
            event = (batch.publisher, sequence)
            for columns in groups.values():
                for wanted in columns.wanting(row, lambda wanted: still(wanted.newest, at_ns)):
                    if len(wanted.versions) > 1 or moves(wanted.newest):
                        if not all(_owes(wanted, row, values, at_ns) for _, values in wanted.versions):
                            continue
                        if self._lossy and len(wanted.versions) > 1:
                            wanted.crossed.add(event)
                    wanted.owed[event] = row, at_ns
                    self.expected_events += 1
                    for observer in self.observers:
                        observer.expected(wanted.client, wanted.subscription_id, *event)

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        batch = action.batch
        if not len(batch):
            return
        self.delivered_events += len(batch)
        wanted = self._subscriptions.get(client.name, {}).get(action.subscription_id)
        if wanted is None:
            if client.present:
                self._findings.add(
                    "strictness",
                    self._now(),
                    f"{client.name}#{action.subscription_id} got events after it was cancelled",
                )
            return
        publisher, newest = batch.publisher, still(wanted.newest, batch.ingress_ns)
        mark = wanted.marks.get(publisher, -1)
        for row, sequence in zip(batch.to_pylist(), batch.sequences().tolist(), strict=True):
            event = (publisher, sequence)
            again = wanted.seen is not None and event in wanted.seen
            if wanted.seen is not None:
                wanted.seen.add(event)
            if again or (sequence <= mark and not action.replayed):
                self._findings.add(
                    "duplicate",
                    self._now(),
                    f"{wanted.name} got event {sequence} of {publisher} after {mark}",
                )
            if not action.replayed:
                mark = max(mark, sequence)
            if not wanted.filter.matches(row, newest):
                self._findings.add(
                    "strictness",
                    self._now(),
                    f"{wanted.name} got {row}, but wants {wanted.filter} with {newest}",
                )
            wanted.owed.pop(event, None)
            wanted.crossed.discard(event)
        wanted.marks[publisher] = mark

    @property
    def expecting(self) -> bool:
        """Whether something that is owed has not come yet."""
        return any(wanted.owed for wanted in self._everything())

    # --- the end --------------------------------------------------------------------------------------------

    def quiet(self) -> None:
        """All is quiet: what is still owed was missed. Afterwards everything is owed again."""
        for wanted in self._everything():
            for (publisher, sequence), (row, _) in wanted.owed.items():
                if (publisher, sequence) in wanted.crossed:
                    self.lost_events += 1
                    continue
                self._findings.add(
                    "coverage",
                    self._now(),
                    f"{wanted.name} wants {wanted.filter} with {wanted.newest} and missed event {sequence} "
                    f"of {publisher}, {row}",
                )
            wanted.owed.clear()
            wanted.crossed.clear()
        self._unsure = False


def _owes(wanted: _Wanted, row: Mapping[str, Any], values: Mapping[str, Any], at_ns: int) -> bool:
    """Whether values want an event that entered at this time, or, if they move, up to a span before."""
    if not moves(values):
        return wanted.filter.matches(row, values)
    times = (at_ns, at_ns - INGRESS_SPAN_NS)
    return all(wanted.filter.matches(row, still(values, time_ns)) for time_ns in times)
