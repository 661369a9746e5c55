"""The trace of a run: a row per event published or delivered, per change, and per message received.

Metrics are computed from it. The first part contains the scenario, and each phase begins a new part. Rows are
in the order of the happenings and do not depend on the machine, so the same run gives the same parts, byte
for byte. A trace without `ended` is that of a run that was interrupted.

    row           the number of the row, from 0
    time_ns       virtual time
    kind          begun, phase, worked, ended: the run;
                  joined, moved, left: clients; advertised, unadvertised, subscribed, updated, unsubscribed,
                  settled, refused: control;
                  published, delivered, spurious, answered: events;
                  expected, excused: deliveries that the judge expects, and no longer expects;
                  control, carried: messages that arrived; dropped, crashed, restarted: brokers
    node, peer    where it happened, and the other end: the interfaces of a client and its broker, or of the
                  receiver and the sender of a message
    name          the event type, the kind of a control message, the reason of a drop, the name of a phase
    publisher, sequence   which event
    subscription  which of the client's subscriptions
    count         spurious, dropped, carried: the number of events;
                  subscribed, updated, answered: the number of the change (`sim/checkers/changes.py`);
                  settled: the epoch;
                  worked: the working time of the broker so far, in nanoseconds
    values        as JSON; published: the event; subscribed, updated: all values of the subscription,
                  those with Motion as objects of value, rate (per second) and since_ns
    text          the filter of a subscription, the reason of a refusal; begun: the scenario as JSON
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from covey.overlay.core.messages import Deliver, Publish
from covey.overlay.core.moving.motion import Motion
from covey.sim.checkers.changes import Changes
from covey.sim.simulator.observer import Observer
from covey.sim.trace.first_parts import PartWriter

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType
    from covey.overlay.core.client.actions import DeliverTo, Refused
    from covey.overlay.core.messages import Drop, Message
    from covey.sim.simulator.observer import ObservedClient


class Trace(Observer):
    """Writes the trace of one run into the folder `path`, in a `with` block.

    `now` returns the virtual time; `scenario` has plain values.
    """

    def __init__(
        self, path: str | Path, now: Callable[[], int], scenario: Mapping[str, Any] | None = None
    ) -> None:
        self._now = now
        self.summary: Mapping[str, Any] | None = None
        self._ended = False
        self._changes: dict[tuple[str, int], Changes] = {}
        """By client and subscription, from its first change on."""
        self._parts = PartWriter(Path(path))
        self._row("begun", text=json.dumps(dict(scenario or {})))
        self._parts.flush()

    @property
    def rows(self) -> int:
        """The number of rows so far."""
        return self._parts.rows

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.end()
        self._parts.flush()

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._row("ended")
            self._parts.flush()

    def _row(
        self,
        kind: str,
        node: str | None = None,
        peer: str | None = None,
        name: str | None = None,
        publisher: str | None = None,
        sequence: int | None = None,
        subscription: int | None = None,
        count: int | None = None,
        values: str | None = None,
        text: str | None = None,
    ) -> None:
        which = publisher, sequence, subscription
        self._parts.add(self._now(), kind, node, peer, name, *which, count, values, text)

    # --- the run --------------------------------------------------------------------------------------------

    def phase(self, name: str, busy_ns: Mapping[str, int]) -> None:
        """A phase begins: advertising, subscribing, running, resting or quiet; `busy_ns` is the working time
        of each broker so far. The measurement begins with `running`."""
        self._parts.flush()
        self._row("phase", name=name)
        for broker, worked_ns in busy_ns.items():
            self._row("worked", broker, count=worked_ns)

    # --- clients --------------------------------------------------------------------------------------------

    def joined(self, client: ObservedClient) -> None:
        self._row("joined", client.name, client.broker)

    def moved(self, client: ObservedClient, broker: str) -> None:
        self._row("moved", client.name, broker)

    def left(self, client: ObservedClient, vanished: bool) -> None:
        self._row("left", client.name, client.broker, "vanished" if vanished else None)

    def advertised(self, client: ObservedClient, event_type: EventType) -> None:
        self._row("advertised", client.name, client.broker, event_type.name)

    def unadvertised(self, client: ObservedClient, type_name: str) -> None:
        self._row("unadvertised", client.name, client.broker, type_name)

    def subscribed(self, client: ObservedClient, subscription_id: int) -> None:
        filter = client.subscriptions[subscription_id]
        self._row(
            "subscribed",
            client.name,
            client.broker,
            filter.event_type.name,
            subscription=subscription_id,
            count=0,
            values=_json(client.session.values(subscription_id)),
            text=str(filter),
        )

    def updated(self, client: ObservedClient, subscription_id: int, old: Mapping[str, Any]) -> None:
        filter = client.subscriptions[subscription_id]
        values = client.session.values(subscription_id)
        changes = self._changes.get((client.name, subscription_id))
        if changes is None:
            changes = self._changes[client.name, subscription_id] = Changes(filter, old)
        self._row(
            "updated",
            client.name,
            client.broker,
            filter.event_type.name,
            subscription=subscription_id,
            count=changes.change(values),
            values=_json(values),
        )

    def unsubscribed(self, client: ObservedClient, subscription_id: int) -> None:
        self._changes.pop((client.name, subscription_id), None)
        name = client.subscriptions[subscription_id].event_type.name
        self._row("unsubscribed", client.name, client.broker, name, subscription=subscription_id)

    def settled(self, client: ObservedClient, epoch: int) -> None:
        self._row("settled", client.name, client.broker, count=epoch)

    def refused(self, client: ObservedClient, action: Refused) -> None:
        self._row(
            "refused",
            client.name,
            client.broker,
            action.type_name or None,
            subscription=action.subscription_id or None,
            count=action.count,
            text=action.reason,
        )

    # --- events ---------------------------------------------------------------------------------------------

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        for event, sequence in zip(batch.to_pylist(), batch.sequences().tolist(), strict=True):
            self._row(
                "published",
                client.name,
                client.broker,
                batch.event_type.name,
                batch.publisher,
                sequence,
                values=_json(event),
            )

    def expected(self, client: str, subscription_id: int, publisher: str, sequence: int) -> None:
        self._row("expected", client, None, None, publisher, sequence, subscription_id)

    def excused(self, client: str, subscription_id: int, publisher: str, sequence: int) -> None:
        self._row("excused", client, None, None, publisher, sequence, subscription_id)

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        batch, subscription_id = action.batch, action.subscription_id
        name = batch.event_type.name
        if action.spurious:
            self._row(
                "spurious",
                client.name,
                client.broker,
                name,
                subscription=subscription_id,
                count=action.spurious,
            )
        if not len(batch):
            return
        changes = self._changes.get((client.name, subscription_id))
        events = [{}] * len(batch) if changes is None else batch.to_pylist()
        for event, sequence in zip(events, batch.sequences().tolist(), strict=True):
            answered = [] if changes is None else changes.deliver(event, batch.ingress_ns)
            which = client.name, client.broker, name, batch.publisher, sequence, subscription_id
            self._row("delivered", *which)
            for number in answered:
                self._row("answered", *which, count=number)

    # --- the overlay ----------------------------------------------------------------------------------------

    def received(self, source: str, target: str, message: Message) -> None:
        if not isinstance(message, Publish | Deliver):
            self._row("control", target, source, type(message).__name__)
        elif len(message.batch):
            self._row("carried", target, source, message.batch.event_type.name, count=len(message.batch))

    def counted(self, source: str, target: str, received: Mapping[str, int], events: int) -> None:
        """Control messages by kind, and events, that arrived according to the counters of a real broker."""
        for kind, count in received.items():
            if kind == "Publish":
                continue
            for _ in range(count):
                self._row("control", target, source, kind)
        if events:
            self._row("carried", target, source, count=events)

    def dropped(self, broker: str, action: Drop) -> None:
        self._row("dropped", broker, name=action.reason, count=action.events)

    def crashed(self, broker: str) -> None:
        self._row("crashed", broker)

    def restarted(self, broker: str) -> None:
        self._row("restarted", broker)


def _json(values: Mapping[str, Any]) -> str:
    def plain(value: Any) -> Any:
        if isinstance(value, Motion):
            return asdict(value)
        return value.isoformat() if isinstance(value, datetime) else value

    return json.dumps({name: plain(value) for name, value in values.items()})
