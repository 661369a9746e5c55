"""Judges damage to disks: it is reported, no damaged event is delivered, and only events of damaged records
are lost. The judge of deliveries excuses the events of records in which a bit has flipped, for their stored
receivers. If one of them was expected and missed, a broker of such a record must have reported damage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from covey.sim.checkers.findings import Findings
from covey.sim.simulator.observer import ObservedClient, Observer

if TYPE_CHECKING:
    from covey.matcher import EventBatch
    from covey.overlay.core.client.actions import DeliverTo
    from covey.sim.checkers.judge import Judge
    from covey.sim.simulator.storage import StoredEvents

Event = tuple[str, int]


class Damage(Observer):
    """`behind(broker, interface)` returns the brokers reached through an interface, `reported()` the number
    of damaged records that each broker has reported."""

    def __init__(
        self,
        findings: Findings,
        now: Callable[[], int],
        judge: Judge,
        behind: Callable[[str, str], set[str]],
        reported: Callable[[], Mapping[str, int]],
    ) -> None:
        self._findings = findings
        self._now = now
        self._judge = judge
        self._behind = behind
        self._reported = reported
        self._published: dict[Event, Mapping[str, Any]] = {}
        self._brokers: dict[str, set[str]] = {}
        """By client, every broker at which it has been: its stored events follow its session."""
        self.events = 0

    def damaged(self, broker: str, type_name: str, events: StoredEvents) -> None:
        clients = [receiver for receiver in events.receivers if receiver.startswith("client/")]
        reached = set[str]().union(
            *(self._behind(broker, receiver) for receiver in events.receivers if receiver not in clients)
        )
        clients += [client for client, brokers in self._brokers.items() if not reached.isdisjoint(brokers)]
        for sequence in events.sequences:
            self.events += 1
            self._judge.damaged(broker, (events.publisher, sequence), clients)

    def joined(self, client: ObservedClient) -> None:
        self._brokers[client.name] = {client.broker}

    def moved(self, client: ObservedClient, broker: str) -> None:
        self._brokers[client.name].add(broker)

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        for row, sequence in zip(batch.to_pylist(), batch.sequences().tolist(), strict=True):
            self._published[batch.publisher, sequence] = row

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        batch = action.batch
        for row, sequence in zip(batch.to_pylist(), batch.sequences().tolist(), strict=True):
            event = batch.publisher, sequence
            was = self._published.get(event)
            # Where types are widened, the reader's may have other attributes than the publisher's.
            if was is None or any(was.get(name) != value for name, value in row.items()):
                what = f"{client.name} got {row} as event {sequence} of {batch.publisher}"
                what += ", which was never published" if was is None else f", which was {was}"
                self._findings.add("damage", self._now(), what)

    def quiet(self) -> None:
        """Report losses without reported damage. Call it when all is at rest, after the judge's `quiet`."""
        reported = self._reported()
        for brokers, (client, (publisher, sequence)) in self._judge.lost_to_damage.items():
            if not any(reported.get(broker) for broker in brokers):
                what = f"event {sequence} of {publisher} for {client} is lost by damage"
                where = f"at {' or '.join(brokers)}, and none was reported there"
                self._findings.add("damage", self._now(), f"{what} {where}")
        self._judge.lost_to_damage.clear()
