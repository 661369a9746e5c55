"""The trace of a run: what happened, when and where, as Parquet files that metrics are computed from.

One row per event published, delivered or kept from a user, per change of a subscription, and per message
that arrived. A trace is a folder of parts, `part-00000.parquet` and so on, which appear whole while the run
goes on: memory is bounded, and of a run that is killed everything but the last part is there. The first part
says what the run was asked to do, each phase begins a new one, and a part holds `PART_ROWS` rows at most. The
same run gives the same parts, byte for byte: rows are in the order in which things happened, and nothing in
them depends on the machine. A trace without `ended` is that of a run that broke off.

    row           the position of the row, from 0
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
    count         how many events, where there may be several: spurious, dropped, carried;
                  subscribed, updated, answered: the number of the change (`sim/checkers/changes.py`);
                  settled: the epoch;
                  worked: how long the broker has been busy, in nanoseconds since the start
    values        as JSON; published: the event; subscribed, updated: all values of the subscription,
                  of which those that move are objects of value, rate (per second) and since_ns
    text          the filter of a subscription, the reason of a refusal; begun: the scenario as JSON
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from covey.matcher.errors import CoveyError
from covey.overlay.core.messages import Deliver, Publish
from covey.overlay.core.moving.motion import Motion
from covey.sim.checkers.changes import Changes
from covey.sim.simulator.observer import Observer

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType
    from covey.overlay.core.client.actions import DeliverTo, Refused
    from covey.overlay.core.messages import Drop, Message
    from covey.sim.simulator.observer import ObservedClient

_WORD = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema(
    [
        ("row", pa.int64()),
        ("time_ns", pa.int64()),
        ("kind", _WORD),
        ("node", _WORD),
        ("peer", _WORD),
        ("name", _WORD),
        ("publisher", _WORD),
        ("sequence", pa.int64()),
        ("subscription", pa.int64()),
        ("count", pa.int64()),
        ("values", pa.string()),
        ("text", _WORD),
    ]
)
"""The columns of a trace; null where a column says nothing about a row."""

PART_ROWS = 100_000
"""The most rows of a part, and so the most that a run holds in memory and may lose."""


class TraceError(CoveyError, OSError):
    """The trace cannot be written."""


_PART = re.compile(r"\.?part-\d{5,}\.parquet")
"""What a part is called, also one that was begun and not finished."""


def part_name(number: int) -> str:
    """The file name of a part; names are in the order of the parts."""
    return f"part-{number:05}.parquet"


def parts_of(trace: Path) -> list[Path]:
    """The parts of a trace that lie in this folder, in their order."""
    return sorted(trace.glob("part-*.parquet"))


class Trace(Observer):
    """Writes the trace of one run into the folder `path`, in a `with` block; `now` says the virtual time, and
    `scenario` is what the run was asked to do, as plain values."""

    def __init__(
        self, path: str | Path, now: Callable[[], int], scenario: Mapping[str, Any] | None = None
    ) -> None:
        self.rows = 0
        self._now = now
        self._changes: dict[tuple[str, int], Changes] = {}
        """By client and subscription, from its first change on."""
        self._pending: list[tuple[Any, ...]] = []
        self._folder = Path(path)
        self._parts = 0
        self._make_room()
        self._row("begun", text=json.dumps(dict(scenario or {})))
        self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._row("ended")
        self.close()

    def close(self) -> None:
        """Write what is left."""
        self._flush()

    def _make_room(self) -> None:
        """A trace takes the place of one that was there, and of nothing else."""
        folder = self._folder
        try:
            if folder.is_file():
                if not _is_trace(folder):
                    raise TraceError(f"{folder}: cannot be written: a file that is no trace is there already")
                folder.unlink()
            folder.mkdir(exist_ok=True)
            others = sorted(found.name for found in folder.iterdir() if not _PART.fullmatch(found.name))
            if others:
                raise TraceError(f"{folder}: cannot be written: {others[0]} in it is no part of a trace")
            for part in folder.iterdir():
                part.unlink()
        except TraceError:
            raise
        except OSError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: OSError) -> TraceError:
        return TraceError(f"{self._folder}: cannot be written: {error.strerror or error}")

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
        self._pending.append(
            (
                self.rows,
                self._now(),
                kind,
                node,
                peer,
                name,
                publisher,
                sequence,
                subscription,
                count,
                values,
                text,
            )
        )
        self.rows += 1
        if len(self._pending) >= PART_ROWS:
            self._flush()

    def _flush(self) -> None:
        """Write what waits as a part, under another name first: a part is there whole or not at all."""
        if not self._pending:
            return
        columns = list(zip(*self._pending, strict=True))
        self._pending.clear()
        arrays = [
            pa.array(column, pa.string()).dictionary_encode()
            if field.type == _WORD
            else pa.array(column, field.type)
            for column, field in zip(columns, SCHEMA, strict=True)
        ]
        part = self._folder / part_name(self._parts)
        unfinished = part.with_name(f".{part.name}")
        try:
            pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), unfinished, compression="zstd")
            os.replace(unfinished, part)
        except OSError as error:
            raise self._unwritable(error) from None
        self._parts += 1

    # --- the run --------------------------------------------------------------------------------------------

    def phase(self, name: str, busy_ns: Mapping[str, int]) -> None:
        """A phase begins: advertising, subscribing, running, resting or quiet; `busy_ns` says how long each
        broker has worked until now. What is measured happens from `running` on."""
        self._flush()
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
        """By the count of a broker that nobody watched, control messages by sort and events have arrived."""
        for sort, count in received.items():
            for _ in range(count):
                self._row("control", target, source, sort)
        if events:
            self._row("carried", target, source, count=events)

    def dropped(self, broker: str, action: Drop) -> None:
        self._row("dropped", broker, name=action.reason, count=action.events)

    def crashed(self, broker: str) -> None:
        self._row("crashed", broker)

    def restarted(self, broker: str) -> None:
        self._row("restarted", broker)


def _is_trace(file: Path) -> bool:
    """Whether a single file is a trace."""
    try:
        return bool(pq.read_schema(file).names[:3] == SCHEMA.names[:3])
    except (pa.ArrowException, OSError):
        return False


def _json(values: Mapping[str, Any]) -> str:
    def plain(value: Any) -> Any:
        if isinstance(value, Motion):
            return asdict(value)
        return value.isoformat() if isinstance(value, datetime) else value

    return json.dumps({name: plain(value) for name, value in values.items()})
