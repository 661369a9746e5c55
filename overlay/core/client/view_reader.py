"""What is inside of a view, how that changes, and what waits for its reader, without I/O.

*State.* Each arrival, and each move of the bounds, gives *changes*. A key's events arrive in order, except
repetitions, which are dropped. Invariant: what was entered and has not left is inside, each key once. Where
keys enter by a narrower filter than they leave by, what only the wider one matches is *hidden* until it
enters.

*Reader.* Arrivals and moves are applied in order, when the state is read: events under the newest values.
Invariant: credit for events is granted again once they are applied, and what was applied and not read is
bounded (`ViewState.net`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.errors import CapacityError
from covey.matcher.events.batch import EventBatch
from covey.overlay.core.watermarks import Watermarks

if TYPE_CHECKING:
    from covey.matcher.events.event_type import EventType
    from covey.overlay.core.client.actions import DeliverTo
    from covey.overlay.core.client.session import ClientSession


Bools = npt.NDArray[np.bool_]
Int64s = npt.NDArray[np.int64]
Inside = Callable[[EventBatch], Bools]
"""bool[events]: which match the newest values."""

ENTER, CHANGE, LEAVE = 0, 1, 2
KINDS = ("enter", "change", "leave")
MAX_KEYS = 1 << 20
_MAX_LEFT = 1 << 16


@dataclass(frozen=True, slots=True)
class Changes:
    """The event `batch[i]` enters, changes or leaves, by `codes[i]`. For a key that leaves it is the one
    outside, or if the bounds have moved, the last one inside."""

    batch: EventBatch
    codes: npt.NDArray[np.int8]


class ViewState:
    """`inside` evaluates the view's filter under the newest values, `enters` the one by which keys enter."""

    def __init__(
        self,
        event_type: EventType,
        inside: Inside,
        max_keys: int = MAX_KEYS,
        enters: Inside | None = None,
    ) -> None:
        assert event_type.key is not None
        self.event_type, self.max_keys = event_type, max_keys
        self._key = event_type.key
        self._inside = inside
        # Two dicts in one order, not one of pairs, which the garbage collector would visit.
        self._events: dict[object, EventBatch] = {}
        self._rows: dict[object, int] = {}
        self._enters = enters
        self._hidden: set[object] = set()
        self._unconfirmed: set[object] = set()
        self._left: dict[object, tuple[str, int]] = {}
        """By key, publisher and number of its departure, the newest last: after a move, a broker may send
        older ones."""
        self._watermarks = Watermarks()
        """Events that are not newer may be inside already."""

    def __len__(self) -> int:
        return len(self._events)

    def arrived(self, batch: EventBatch, *, replayed: bool, departed: bool) -> list[Changes]:
        """The last events of their keys, or if `departed` those with which keys leave. `CapacityError` beyond
        `max_keys`."""
        keys = self._keys_of(batch)
        if len(set(keys)) < len(keys):  # in order, one event per key
            parts = batch.slice(0, len(keys) // 2), batch.slice(len(keys) // 2)
            changes = (self.arrived(part, replayed=replayed, departed=departed) for part in parts)
            return [each for part in changes for each in part]
        inside = np.zeros(batch.count, np.bool_) if departed else self._inside(batch)
        inside &= ~_among(keys, {None})
        known = np.zeros(len(keys), np.bool_)
        if self._watermarks.fresh(batch) is not None and not departed:
            known = self._known(batch, keys)
        inside &= ~known
        held = _among(keys, self._events)
        left = held & ~inside & ~known & (not replayed)
        held, told = self._uncover(batch, keys, held, inside, left)
        rows = np.flatnonzero(inside)
        kept = _at(keys, rows)
        self._events.update(dict.fromkeys(kept, batch))
        self._rows.update(zip(kept, rows.tolist(), strict=True))
        gone = np.flatnonzero(left)
        self._remove(_at(keys, gone))
        self._note_left(batch, _at(keys, gone), gone)
        self._unconfirmed.difference_update(keys)
        if len(self._events) > self.max_keys:
            raise CapacityError(
                f"a view of {self.event_type.name} has {len(self._events)} keys inside: expected at most "
                f"{self.max_keys} (max_keys)"
            )
        codes = np.where(left, LEAVE, np.where(held, CHANGE, ENTER)).astype(np.int8)
        changed = np.flatnonzero((inside | left) & told)
        return [Changes(batch.take(changed), codes[changed])] if len(changed) else []

    def moved(self) -> list[Changes]:
        """The bounds have moved: what is outside now leaves."""
        keys = list(self._events)
        if not keys:
            return []
        held = self._batch()
        inside = self._inside(held)
        shown, told = self._uncover(held, keys, np.ones(len(keys), np.bool_), inside, ~inside)
        left, entered = ~inside & told, inside & ~shown & told
        self._remove_held(_at(keys, np.flatnonzero(~inside)))
        return _changes(held, left, LEAVE) + _changes(held, entered, ENTER)

    def unconfirm(self) -> None:
        """The broker sends again what is inside, up to `confirmed`."""
        self._unconfirmed = set(self._events)

    def confirmed(self) -> list[Changes]:
        """What is inside was sent again: the rest leaves."""
        gone, self._unconfirmed = self._unconfirmed, set()
        if not gone:
            return []
        keys = list(self._events)
        left = _among(keys, gone)
        held = self._batch()
        _, told = self._uncover(held, keys, np.ones(len(keys), np.bool_), np.zeros(len(keys), np.bool_), left)
        self._remove_held(_at(keys, np.flatnonzero(left)))
        return _changes(held, left & told, LEAVE)

    def net(self, queued: Sequence[Changes]) -> list[Changes]:
        """Unread changes combined, in order: of each key none, one, or a leave and an enter."""
        first: dict[object, tuple[int, int]] = {}
        last: dict[object, tuple[int, int]] = {}
        for place, changes in enumerate(queued):
            for row, key in enumerate(self._keys_of(changes.batch)):
                first.setdefault(key, (place, row))
                last[key] = place, row
        kept: dict[int, list[tuple[int, int]]] = {}
        for key, (place, row) in last.items():
            at, of = first[key]
            before, after = int(queued[at].codes[of]), int(queued[place].codes[row])
            if after == LEAVE:
                if before != ENTER:
                    kept.setdefault(place, []).append((row, LEAVE))
                continue
            if before == LEAVE:
                kept.setdefault(at, []).append((of, LEAVE))
            kept.setdefault(place, []).append((row, CHANGE if before == CHANGE else ENTER))
        together = []
        for place in sorted(kept):
            rows, codes = np.array(sorted(kept[place])).T
            together.append(Changes(queued[place].batch.take(rows), codes.astype(np.int8)))
        return together

    def batch(self) -> EventBatch:
        batch = self._batch()
        if self._hidden:
            batch = batch.take([i for i, key in enumerate(self._events) if key not in self._hidden])
        return batch

    def _batch(self) -> EventBatch:
        """Hidden events included, in the order of `_events`."""
        event_type = self.event_type
        if not self._events:
            return EventBatch(event_type, pa.RecordBatch.from_pylist([], event_type.arrow_schema))
        held = list(self._events.values())
        own_rows = np.fromiter(self._rows.values(), np.int64, len(held))
        identities = np.fromiter(map(id, held), np.int64, len(held))
        order = np.argsort(identities, kind="stable")
        edges = np.flatnonzero(np.diff(identities[order])) + 1
        parts = [
            held[own[0]].with_schema(event_type, other_kinds=True).record_batch.take(pa.array(own_rows[own]))
            for own in np.split(order, edges)
        ]
        table = pa.Table.from_batches(parts, schema=event_type.arrow_schema).combine_chunks()
        (ordered,) = table.take(pa.array(np.argsort(order))).combine_chunks().to_batches()
        return EventBatch(event_type, ordered)

    def _uncover(
        self, batch: EventBatch, keys: list[object], held: Bools, inside: Bools, left: Bools
    ) -> tuple[Bools, Bools]:
        """Which keys were shown before, and which of these events to report. What stays inside is hidden
        until it enters, and what has left is no longer hidden."""
        if self._enters is None:
            return held, np.ones(len(keys), np.bool_)
        shown = held & ~_among(keys, self._hidden)
        entered = inside & ~shown & self._enters(batch)
        self._hidden.difference_update(_at(keys, np.flatnonzero(entered | left)))
        self._hidden.update(_at(keys, np.flatnonzero(inside & ~shown & ~entered)))
        return shown, shown | entered

    def _known(self, batch: EventBatch, keys: list[object]) -> Bools:
        """bool[events]: inside already, or older than what is: from an answer, or sent again."""
        known = np.zeros(len(keys), np.bool_)
        numbers: dict[int, npt.NDArray[np.int64]] = {}
        for i, (key, sequence) in enumerate(zip(keys, batch.sequences().tolist(), strict=True)):
            held = self._events.get(key)
            if held is None:
                publisher, number = self._left.get(key, ("", 0))
                known[i] = publisher == batch.publisher and number > sequence
            elif held.publisher == batch.publisher:
                of_held = numbers.get(id(held))
                if of_held is None:
                    of_held = numbers[id(held)] = held.sequences()
                known[i] = int(of_held[self._rows[key]]) >= sequence
        return known

    def _note_left(self, batch: EventBatch, keys: list[object], rows: Int64s) -> None:
        for key, number in zip(keys, batch.sequences()[rows].tolist(), strict=True):
            self._left.pop(key, None)
            self._left[key] = batch.publisher, number
        while len(self._left) > _MAX_LEFT:
            del self._left[next(iter(self._left))]

    def _remove(self, keys: Iterable[object]) -> None:
        for key in keys:
            del self._events[key], self._rows[key]

    def _remove_held(self, keys: list[object]) -> None:
        rows: dict[int, tuple[EventBatch, list[object], list[int]]] = {}
        for key in keys:
            batch = self._events[key]
            _, own, places = rows.setdefault(id(batch), (batch, [], []))
            own.append(key)
            places.append(self._rows[key])
        for batch, own, places in rows.values():
            self._note_left(batch, own, np.array(places))
        self._remove(keys)

    def _keys_of(self, batch: EventBatch) -> list[object]:
        if batch.columns is not None:
            return batch.columns.values(batch.event_type.index(self._key))
        keys: list[object] = batch.record_batch.column(self._key).to_pylist()
        return keys


def _among(keys: list[object], some: Container[object]) -> Bools:
    return np.fromiter(map(some.__contains__, keys), np.bool_, len(keys))


def _mask(rows: Int64s, count: int) -> Bools:
    mask = np.zeros(count, np.bool_)
    mask[rows] = True
    return mask


def _at(items: list[object], rows: npt.NDArray[np.int64]) -> list[object]:
    return [items[row] for row in rows.tolist()]


def _changes(held: EventBatch, rows: Bools, code: int) -> list[Changes]:
    changed = np.flatnonzero(rows)
    return [Changes(held.take(changed), np.full(len(changed), code, np.int8))] if len(changed) else []


_WAITING = 1024
"""Unread events of changes before they are combined."""


class _Signal(Enum):
    MOVED = "moved"
    RESET = "reset"
    CONFIRMED = "confirmed"


class ViewReader:
    """The reader of a view's subscription. `next`, `apply` and `batch` raise `CapacityError` if more than
    `max_keys` keys are inside."""

    def __init__(self, session: ClientSession, subscription_id: int, max_keys: int = MAX_KEYS) -> None:
        self.session, self.id = session, subscription_id
        event_type = session.subscriptions[subscription_id].event_type
        rows_of = session.enter_reader(subscription_id)
        enters = None if rows_of is None else lambda batch: _mask(rows_of(batch), batch.count)
        self.state = ViewState(event_type, self._inside, max_keys, enters)
        self._strict_rows = session.strict_reader(subscription_id)
        self._waiting: deque[tuple[DeliverTo, Callable[[], None]] | _Signal] = deque()
        self._changes: deque[Changes] = deque()
        self._together_at = _WAITING
        self._anew_until = 0
        """The epoch whose Answered ends what is sent again after a loss, 0 for none."""
        self._lost_until = 0
        """The epoch of the newest update after a loss."""

    # --- what happens, in order -----------------------------------------------------------------------------

    def arrived(self, share: DeliverTo, done: Callable[[], None]) -> None:
        """`done` is called once the events are applied."""
        self._waiting.append((share, done))

    def moved(self) -> None:
        """The bounds have moved; after a loss all that is inside is sent again."""
        anew = self.session.view_anew(self.id)
        if anew > self._lost_until:
            self._anew_until = self._lost_until = anew
            self._signal(_Signal.RESET)
        self._signal(_Signal.MOVED)

    def begun_anew(self) -> None:
        """The broker had lost the session, and sends what is inside again."""
        self._anew_until = self.session.view_epoch(self.id)
        self._signal(_Signal.RESET)

    def answered(self, epoch: int) -> None:
        """All that is inside by an epoch of the session has arrived (`messages.Answered`)."""
        if self._anew_until and epoch >= self._anew_until:
            self._anew_until = 0
            self._signal(_Signal.CONFIRMED)

    def discard(self) -> None:
        while self._waiting:
            item = self._waiting.popleft()
            if isinstance(item, tuple):
                item[1]()

    def _signal(self, signal: _Signal) -> None:
        if not self._waiting or self._waiting[-1] is not signal:
            self._waiting.append(signal)

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    # --- reading --------------------------------------------------------------------------------------------

    def next(self) -> Changes | None:
        """The next changes, None if what waits makes none."""
        while not self._changes and self._waiting:
            self._apply_next()
        return self._changes.popleft() if self._changes else None

    def batch(self) -> EventBatch:
        """What is inside by all that has arrived, an event per key; its changes stay unread, combined if
        many."""
        self.apply()
        self._widen()
        return self.state.batch()

    def apply(self) -> None:
        """Apply all that has arrived; as `batch`."""
        while self._waiting:
            self._apply_next()
        if self.unread > self._together_at:
            self._changes = deque(self.state.net(self._changes))
            self._together_at = 2 * self.unread + _WAITING

    @property
    def unread(self) -> int:
        """Events of changes that were applied and not read."""
        return sum(changes.batch.count for changes in self._changes)

    def _widen(self) -> None:
        if self.session.has_subscription(self.id):
            known = self.session.event_type(self.state.event_type.name)
            assert known is not None
            self.state.event_type = known

    def _apply_next(self) -> None:
        self._widen()
        state, item = self.state, self._waiting.popleft()
        if isinstance(item, tuple):
            share, done = item
            done()
            departed = share.for_views and not share.replayed
            self._changes += state.arrived(share.batch, replayed=share.replayed, departed=departed)
        elif item is _Signal.RESET:
            state.unconfirm()
        else:
            self._changes += state.moved() if item is _Signal.MOVED else state.confirmed()

    def _inside(self, batch: EventBatch) -> npt.NDArray[np.bool_]:
        rows = self._strict_rows(batch, -1)
        return np.ones(batch.count, np.bool_) if rows is None else _mask(rows, batch.count)
