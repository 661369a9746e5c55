"""The observer that writes the trace of one run: what happens becomes rows of the tables in `tables.py`, and
pending rows become parts.

Rows do not depend on the machine: the same run gives the same parts, byte for byte. Time never goes back: if
the clock is set back, time stands still until the clock has caught up, and `history` has a row.

Pending rows have `cells`, int64, `width` per row: time, then the other columns; a word is its code, null is
-1. `texts` has one text per row, for the column that rarely repeats. Words have codes until the next flush,
so memory is bounded by the pending rows: at most `PENDING_ROWS` and a batch.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.overlay.core.messages import Deliver, Publish
from covey.sim.simulator.observer import Observer
from covey.sim.trace.manifest import Attempt, Choices, TraceError
from covey.sim.trace.tables import PHASES, TABLES, WORD, event_texts, values_text

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType
    from covey.overlay.core.client.actions import DeliverTo
    from covey.overlay.core.messages import Drop, Message, Refuse
    from covey.sim.simulator.observer import ObservedClient
    from covey.sim.trace.storage import Folder

PENDING_ROWS = 200_000
"""Pending rows of all tables at which they are written."""

NULL = -1
_SAME = ("run", "phase")


class Words(dict[str, int]):
    """The code of each word since the last flush; a look-up of a new word adds it."""

    def __missing__(self, word: str) -> int:
        code = self[word] = len(self)
        return code


class PendingTable:
    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.names = [field.name for field in schema if field.name not in _SAME and field.type != pa.string()]
        self.cells = array("q")
        self.texts: list[str] = []

    def __len__(self) -> int:
        return len(self.cells) // len(self.names)

    def add_block(self, count: int, *columns: int | npt.NDArray[np.int64]) -> None:
        """Append `count` rows; a column is one number for all of them, or an array of one for each."""
        if count == 1:  # as of most publishers; a block would take twice as long
            self.cells.extend([c if isinstance(c, int) else int(c[0]) for c in columns])
            return
        block = np.empty((count, len(self.names)), np.int64)
        for number, column in enumerate(columns):
            block[:, number] = column
        self.cells.frombytes(block.tobytes())

    def take(self, words: npt.NDArray[Any], run: str, phase: str) -> pa.Table:
        """Remove the pending rows and return them as a table."""
        count = len(self)
        cells = np.frombuffer(self.cells, np.int64).reshape(count, len(self.names)) if count else None
        arrays = []
        for field in self.schema:
            if field.name in _SAME:
                values = pa.array([run if field.name == "run" else phase][: min(count, 1)], pa.string())
                arrays.append(pa.DictionaryArray.from_arrays(pa.array(np.zeros(count, np.int32)), values))
            elif field.type == pa.string():
                arrays.append(pa.array(self.texts, pa.string()))
            else:
                column = np.empty(0, np.int64) if cells is None else cells[:, self.names.index(field.name)]
                arrays.append(_array(np.ascontiguousarray(column), field.type, words))
        table = pa.Table.from_arrays(arrays, schema=self.schema)
        del cells
        self.cells, self.texts = array("q"), []
        return table


def _array(column: npt.NDArray[np.int64], kind: pa.DataType, words: npt.NDArray[Any]) -> pa.Array:
    absent = column == NULL
    mask = absent if absent.any() else None
    if kind == WORD:
        used = np.zeros(len(words) + 1, np.bool_)
        used[column] = True  # the last one stands for null
        used[-1] = False
        codes = (np.cumsum(used) - 1)[column].astype(np.int32)
        return pa.DictionaryArray.from_arrays(
            pa.array(codes, mask=mask), pa.array(words[used[:-1]], pa.string())
        )
    if kind == pa.bool_():
        return pa.array(column.astype(np.bool_), mask=mask)
    return pa.array(column, kind, mask=mask)


class PartWriter:
    """Writes parts of all tables at once: an attempt always has everything up to one moment."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.rows = 0
        self.words = Words()
        self.tables = {name: PendingTable(schema) for name, schema in TABLES.items()}
        self._phase: str = PHASES[0]

    @property
    def pending(self) -> int:
        return sum(map(len, self.tables.values()))

    def begin(self, phase: str) -> None:
        self.flush()
        self._phase = phase

    def flush(self, *, empty: bool = False) -> None:
        """Write the pending rows; with `empty` each table without parts gets one without rows."""
        words = np.array([*self.words], object)
        run, written = self.attempt.manifest.run, self.attempt.manifest.tables
        parts = {}
        for name, table in self.tables.items():
            if len(table) or (empty and name not in written):
                parts[name] = table.take(words, run, self._phase)
        self.words.clear()
        if parts:
            self.attempt.write(parts)
            self.rows += sum(part.num_rows for part in parts.values())


_CHECKED_EVERY = 1024
"""Rows between two checks of the number of pending ones."""


class Trace(Observer):
    """Writes the trace of one run into the folder `place`, a path or a URI, in a `with` block.

    `now` returns the virtual time in ns; `scenario` has plain values; `real`, `inputs` and `choices` are for
    the `Manifest`. Set `summary` before the block ends. Raises `TraceError` if the folder cannot be written,
    or has other content than a trace.
    """

    def __init__(
        self,
        place: str | Path | Folder,
        now: Callable[[], int],
        scenario: Mapping[str, Any] | None = None,
        *,
        real: bool = False,
        inputs: Mapping[str, str] | None = None,
        choices: Choices | None = None,
    ) -> None:
        plain = json.loads(json.dumps(dict(scenario or {})))
        self.attempt = Attempt(place, plain)
        self.attempt.manifest.real = real
        self.attempt.manifest.inputs = None if inputs is None else dict(inputs)
        self.attempt.manifest.choices = dict(choices or {})
        self.summary: Mapping[str, Any] | None = None
        self._now = now
        self._clock_ns = self._last_ns = 0
        self._writer = PartWriter(self.attempt)
        self._words, self._tables = self._writer.words, self._writer.tables
        self._versions: dict[str, dict[int, int]] = {}
        self._unchecked = 0
        self._ended = False
        self._happened("begun", text=json.dumps(plain))
        self._writer.flush()

    @property
    def rows(self) -> int:
        return self._writer.rows + self._writer.pending

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            for step in (self._writer.flush, self.attempt.fail):
                with suppress(TraceError):  # the error of the block says more
                    step()
            return
        self.end()
        self.attempt.manifest.summary = self.summary
        self.attempt.complete()

    def end(self) -> None:
        """The run has ended: write pending rows. The end of the block completes the trace."""
        if not self._ended:
            self._ended = True
            self._happened("ended")
            self._writer.flush(empty=True)

    # --- time and rows --------------------------------------------------------------------------------------

    def _time(self) -> int:
        """The time of the next rows; call it once for everything that happens at one moment."""
        now_ns = self._now()
        if now_ns < self._clock_ns:
            back_ns = self._clock_ns - now_ns
            self._clock_ns = now_ns
            self.attempt.manifest.clock_steps += 1
            self._happened("clock", number=back_ns)
        self._clock_ns = now_ns
        self._last_ns = max(self._last_ns, now_ns)
        self._unchecked += 1
        if self._unchecked >= _CHECKED_EVERY:
            self._unchecked = 0
            if self._writer.pending >= PENDING_ROWS:
                self._writer.flush()
        return self._last_ns

    def _happened(
        self,
        what: str,
        node: str | None = None,
        peer: str | None = None,
        name: str | None = None,
        number: int | None = None,
        text: str | None = None,
    ) -> None:
        time_ns, code = self._time(), self._code
        row = (
            time_ns,
            self._words[what],
            code(node),
            code(peer),
            code(name),
            NULL if number is None else number,
            code(text),
        )
        self._tables["history"].cells.extend(row)

    def _code(self, word: str | None) -> int:
        return NULL if word is None else self._words[word]

    # --- the run --------------------------------------------------------------------------------------------

    def phase(self, name: str, busy_ns: Mapping[str, int]) -> None:
        """A phase of `PHASES` begins; `busy_ns` is the accumulated working time of each broker."""
        self._writer.begin(name)
        self.attempt.manifest.phases[name] = self._time()
        self._happened("phase", name=name)
        words, cells = self._words, self._tables["work"].cells
        for broker, worked_ns in busy_ns.items():
            cells.extend((self._last_ns, words[broker], worked_ns))

    # --- clients --------------------------------------------------------------------------------------------

    def joined(self, client: ObservedClient) -> None:
        self._happened("joined", client.name, client.broker)

    def moved(self, client: ObservedClient, broker: str) -> None:
        self._happened("moved", client.name, broker)

    def left(self, client: ObservedClient, vanished: bool) -> None:
        self._versions.pop(client.name, None)
        self._happened("left", client.name, client.broker, "vanished" if vanished else None)

    def advertised(self, client: ObservedClient, event_type: EventType) -> None:
        self._add_kinds(event_type)
        self._happened("advertised", client.name, client.broker, event_type.name)

    def _add_kinds(self, event_type: EventType) -> None:
        kinds = self.attempt.manifest.event_types.setdefault(event_type.name, {})
        if len(kinds) < len(event_type.attributes):
            kinds.update((name, str(kind)) for name, kind in event_type.attributes.items())

    def unadvertised(self, client: ObservedClient, type_name: str) -> None:
        self._happened("unadvertised", client.name, client.broker, type_name)

    def subscribed(self, client: ObservedClient, subscription_id: int) -> None:
        self._versions.setdefault(client.name, {})[subscription_id] = 0
        self._add_kinds(client.subscriptions[subscription_id].event_type)
        self._add_version(client, subscription_id, 0)

    def updated(self, client: ObservedClient, subscription_id: int, old: Mapping[str, Any]) -> None:
        versions = self._versions.setdefault(client.name, {})
        number = versions[subscription_id] = versions.get(subscription_id, 0) + 1
        self._add_version(client, subscription_id, number)

    def _add_version(self, client: ObservedClient, subscription_id: int, number: int) -> None:
        filter = client.subscriptions[subscription_id]
        table, time_ns, words = self._tables["versions"], self._time(), self._words
        table.cells.extend(
            (
                time_ns,
                words[client.name],
                subscription_id,
                number,
                words[client.broker],
                words[filter.event_type.name],
                words[str(filter.lift()[0])],
            )
        )
        table.texts.append(values_text(filter, client.session.values(subscription_id)))

    def unsubscribed(self, client: ObservedClient, subscription_id: int) -> None:
        self._versions.get(client.name, {}).pop(subscription_id, None)
        name = client.subscriptions[subscription_id].event_type.name
        self._happened("unsubscribed", client.name, client.broker, name, subscription_id)

    def settled(self, client: ObservedClient, epoch: int) -> None:
        self._happened("settled", client.name, client.broker, number=epoch)

    def refused(self, client: ObservedClient, action: Refuse) -> None:
        name = action.type_name or None
        self._happened("refused", client.name, client.broker, name, action.count, action.reason)

    # --- events ---------------------------------------------------------------------------------------------

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        self._unchecked += len(batch)
        table, time_ns, words = self._tables["events"], self._time(), self._words
        table.add_block(
            len(batch),
            time_ns,
            words[batch.publisher],
            batch.sequences(),
            words[client.name],
            words[client.broker],
            words[batch.event_type.name],
        )
        table.texts += event_texts(batch)

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        batch, subscription_id = action.batch, action.subscription_id
        self._unchecked += len(batch)
        time_ns, words = self._time(), self._words
        name, broker, type_name = words[client.name], words[client.broker], words[batch.event_type.name]
        if action.spurious:
            row = time_ns, name, subscription_id, broker, type_name, action.spurious
            self._tables["spurious"].cells.extend(row)
        if len(batch):
            self._tables["deliveries"].add_block(
                len(batch),
                time_ns,
                words[batch.publisher],
                batch.sequences(),
                name,
                subscription_id,
                broker,
                type_name,
                self._versions.get(client.name, {}).get(subscription_id, NULL),
                batch.ingress_ns,
            )

    def expected(self, client: str, subscription_id: int, publisher: str, sequence: int) -> None:
        self._add_obligation(client, subscription_id, publisher, sequence, 0)

    def excused(self, client: str, subscription_id: int, publisher: str, sequence: int) -> None:
        self._add_obligation(client, subscription_id, publisher, sequence, 1)

    def _add_obligation(
        self, client: str, subscription_id: int, publisher: str, sequence: int, excused: int
    ) -> None:
        time_ns, words = self._time(), self._words
        row = time_ns, words[publisher], sequence, words[client], subscription_id, excused
        self._tables["obligations"].cells.extend(row)

    # --- the overlay ----------------------------------------------------------------------------------------

    def received(self, source: str, target: str, message: Message) -> None:
        events = len(message.batch) if isinstance(message, Publish | Deliver) else 0
        if events or not isinstance(message, Publish | Deliver):
            self._add_messages(source, target, type(message).__name__, 1, events)

    def counted(self, source: str, target: str, received: Mapping[str, int], events: int) -> None:
        """Messages by kind, and events, that arrived according to the counters of a real broker."""
        for kind, count in received.items():
            if count:
                self._add_messages(source, target, kind, count, events if kind == "Publish" else 0)

    def _add_messages(self, source: str, target: str, kind: str, messages: int, events: int) -> None:
        time_ns, words = self._time(), self._words
        row = time_ns, words[source], words[target], words[kind], messages, events
        self._tables["messages"].cells.extend(row)

    def dropped(self, broker: str, action: Drop) -> None:
        self._happened("dropped", broker, name=action.reason, number=action.events)

    def crashed(self, broker: str) -> None:
        self._happened("crashed", broker)

    def restarted(self, broker: str) -> None:
        self._happened("restarted", broker)
