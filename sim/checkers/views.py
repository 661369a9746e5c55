"""The judge of views. It sees events, bounds, the changes that users read, and what clients send to brokers.

The *last event* of a key is the last one that a broker has taken from a client, until that client withdraws
its advertisement there, its session ends, or the broker crashes. The judge demands:

- A key enters only from outside, and changes or leaves only from inside, with published events in the order
  of publication, none twice. But a key leaves with the event with which it was inside, and enters again with
  the same event if the bounds have moved or the session was lost.
- What enters or changes matches the newest values. What leaves does not, unless the key has no last event, an
  update is not complete, or was called before the publisher's advertisement had settled.
- When an update is complete, a view has of each key its last event at the call or a later one, if that
  matches the newest values; only for keys whose publisher's advertisement had settled at the call.
- At rest a view has exactly the keys whose last event matches the newest values, each with it, unless its
  client had a Gap of the type and has not updated the view since.

From a crash until all is at rest a key may leave and enter again without a cause. Keys of durable types keep
their last event over a crash if their publisher advertises again within its lease. What damage or a crash may
undo is excused until the next event of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from covey.overlay.core.client.view_reader import ENTER, KINDS, LEAVE
from covey.overlay.core.messages import (
    Action,
    Advertise,
    Disconnect,
    EndRestored,
    Gap,
    Message,
    Publish,
    Refuse,
    Send,
    SyncBegin,
    SyncEnd,
    Unadvertise,
)
from covey.sim.checkers.findings import Findings
from covey.sim.simulator.observer import Observer

if TYPE_CHECKING:
    from covey.matcher import EventBatch, Filter
    from covey.overlay.core.client.view_reader import Changes
    from covey.sim.simulator.client import SimulatedClient
    from covey.sim.simulator.observer import ObservedClient
    from covey.sim.simulator.storage import StoredEvents

EventId = tuple[str, int]
Key = tuple[str, object]
"""Event type and value of the key attribute."""


@dataclass(slots=True, eq=False)
class _Event:
    key: Key
    row: dict[str, Any]
    number: int
    """Counts the events of a run in order of publication."""
    place: tuple[str, str] = ("", "")


@dataclass(slots=True)
class _View:
    name: str
    filter: Filter
    inside: dict[object, _Event] = field(default_factory=dict)
    told: dict[object, tuple[_Event, int]] = field(default_factory=dict)
    """By key, the newest event of a change, and `moves` at that moment."""
    moves: int = 0
    pending: bool = True
    lost: bool = False
    """Whether events may have been dropped since the newest update."""
    places: set[tuple[str, str]] = field(default_factory=set)
    """(broker, client) whose advertisements had settled at the newest update."""
    base: dict[object, _Event] = field(default_factory=dict)
    """The last events from `places` at the newest update, by key."""


class Views(Observer):
    """Judges the views of one run; `now` returns the time in ns."""

    def __init__(self, findings: Findings, now: Callable[[], int], durable: Collection[str] = ()) -> None:
        self.changes = 0
        self._findings = findings
        self._now = now
        self._events: dict[EventId, _Event] = {}
        self._views: dict[tuple[str, int], _View] = {}
        self._last: dict[Key, _Event] = {}
        self._advertised: dict[tuple[str, str], dict[str, int]] = {}
        """By broker and client, the epoch of each type that the client advertises there."""
        self._stale: dict[tuple[str, str], set[str]] = {}
        self._settled: dict[str, int] = {}
        self._of_key: dict[Key, list[_Event]] = {}
        self._disturbed = False
        """Whether a broker has crashed or a link moved since all was at rest."""
        self._ended: set[Key] = set()
        """Keys that have lost their last event since all was at rest."""
        self._durable = frozenset(durable)
        self._restored: dict[tuple[str, str], set[str]] = {}
        """By broker and client, the durable types that it may still advertise there after a crash."""
        self._withdrawn: dict[Key, str] = {}
        """Keys of durable types that left with their publisher since all was at rest, and the broker."""
        self._unsure: set[Key] = set()
        """Keys of durable types whose last event is uncertain after a crash or damage."""

    # --- the last events of keys ----------------------------------------------------------------------------

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        name, key = batch.event_type.name, batch.event_type.key
        if key is None:
            return
        for row, sequence in zip(batch.to_pylist(), batch.sequences().tolist(), strict=True):
            if row[key] is not None:
                event = _Event((name, row[key]), row, len(self._events))
                self._events[batch.publisher, sequence] = event
                self._of_key.setdefault(event.key, []).append(event)

    def handled(
        self, broker: str, source: str, messages: Sequence[Message], actions: Sequence[Action]
    ) -> None:
        if any(isinstance(message, EndRestored) for message in messages):
            for place in [place for place in self._restored if place[0] == broker]:
                self._withdraw(place, self._restored.pop(place))
        if not source.startswith("client/"):
            return
        place = broker, source
        refusals = [
            action.message
            for action in actions
            if isinstance(action, Send) and action.interface == source and isinstance(action.message, Refuse)
        ]
        for message in messages:
            if isinstance(message, Publish):
                self._entered(place, message.batch, refusals)
            elif isinstance(message, Advertise):
                if all(refusal.epoch != message.epoch for refusal in refusals):
                    self._advertised.setdefault(place, {})[message.event_type.name] = message.epoch
                    self._stale.get(place, set()).discard(message.event_type.name)
                    self._restored.get(place, set()).discard(message.event_type.name)
            elif isinstance(message, Unadvertise):
                if message.epoch > self._advertised.get(place, {}).get(message.type_name, message.epoch):
                    self._withdraw(place, [message.type_name])
            elif isinstance(message, SyncBegin):
                self._stale[place] = set(self._advertised.get(place, ()))
            elif isinstance(message, SyncEnd):
                self._withdraw(place, self._stale.pop(place, set()) | self._restored.pop(place, set()))
            elif isinstance(message, Disconnect):
                self._withdraw(place, {*self._advertised.get(place, ()), *self._restored.pop(place, ())})

    def _entered(self, place: tuple[str, str], batch: EventBatch, refusals: Iterable[Refuse]) -> None:
        refused: set[int] = set()
        for refusal in refusals:
            if refusal.count and refusal.type_name == batch.event_type.name:
                refused.update(range(refusal.first_sequence, refusal.first_sequence + refusal.count))
        for sequence in batch.sequences().tolist():
            event = self._events.get((batch.publisher, sequence))
            if event is not None and sequence not in refused:
                taken_before = event.place[0] == place[0] and event.key not in self._last
                event.place = place
                if taken_before and event.key[0] in self._durable:
                    self._unsure.add(event.key)
                    continue
                self._last[event.key] = event
                self._unsure.discard(event.key)
                self._withdrawn.pop(event.key, None)

    def _withdraw(self, place: tuple[str, str], types: Iterable[str]) -> None:
        for name in types:
            self._advertised.get(place, {}).pop(name, None)
        ended = set(types)
        self._end(lambda last: last.key[0] in ended and last.place == place)

    def _end(self, ends: Callable[[_Event], bool]) -> None:
        gone = [key for key, last in self._last.items() if ends(last)]
        for key in gone:
            last = self._last.pop(key)
            if key[0] in self._durable:
                self._withdrawn[key] = last.place[0]
        self._ended.update(gone)

    def crashed(self, broker: str) -> None:
        self._disturbed = True
        for place in [place for place in self._advertised if place[0] == broker]:
            advertised = self._advertised.pop(place)
            self._restored.setdefault(place, set()).update(self._durable.intersection(advertised))
            self._stale.pop(place, None)
        self._end(lambda last: last.place[0] == broker and last.key[0] not in self._durable)
        self._unsure.update(key for key, where in self._withdrawn.items() if where == broker)

    def damaged(self, events: StoredEvents) -> None:
        for sequence in events.sequences:
            event = self._events.get((events.publisher, sequence))
            if event is not None:
                self._unsure.add(event.key)

    def released(self, broker: str, neighbour: str) -> None:
        self._disturbed = True

    # --- views ----------------------------------------------------------------------------------------------

    def viewed(self, client: ObservedClient, view_id: int) -> None:
        filter = client.session.subscriptions[view_id]
        view = self._views[client.name, view_id] = _View(f"{client.name}#{view_id}", filter)
        self._ask(view)

    def view_moved(self, client: ObservedClient, view_id: int) -> None:
        self._ask(self._views[client.name, view_id])

    def view_reset(self, client: ObservedClient, view_id: int) -> None:
        if (client.name, view_id) in self._views:
            self._ask(self._views[client.name, view_id])

    def _ask(self, view: _View) -> None:
        view.moves += 1
        view.pending = True
        view.lost = False
        name = view.filter.event_type.name
        view.places = {
            place
            for place, types in self._advertised.items()
            if name in types and types[name] <= self._settled.get(place[1], 0)
        }
        view.base = {
            key[1]: last for key, last in self._last.items() if key[0] == name and last.place in view.places
        }

    def missed(self, client: ObservedClient, gap: Gap) -> None:
        for (name, _), view in self._views.items():
            if name == client.name and view.filter.event_type.name == gap.type_name:
                view.lost = True

    def settled(self, client: ObservedClient, epoch: int) -> None:
        self._settled[client.name] = epoch

    def view_answered(self, client: ObservedClient, view_id: int) -> None:
        view = self._views.get((client.name, view_id))
        if view is None or not view.pending:
            return
        view.pending = False
        values, matches = client.session.values(view_id), view.filter.matches
        name = view.filter.event_type.name
        for key, base in view.base.items() if not (self._disturbed or view.lost) else ():
            if (name, key) in self._ended or (name, key) in self._unsure:
                continue
            since = [event for event in self._of_key[name, key] if event.number >= base.number]
            held = view.inside.get(key)
            allowed = held in since if held is not None else not all(matches(e.row, values) for e in since)
            if not allowed:
                self._report(
                    "answer",
                    f"{view.name}, {view.filter} with {values}, is complete and has "
                    f"{None if held is None else held.row} of {key}, which was {base.row} at the call",
                )

    def view_closed(self, client: ObservedClient, view_id: int) -> None:
        del self._views[client.name, view_id]

    def left(self, client: ObservedClient, vanished: bool) -> None:
        for place in [place for place in self._views if place[0] == client.name]:
            del self._views[place]

    def view_changed(self, client: ObservedClient, view_id: int, changes: Changes) -> None:
        view = self._views.get((client.name, view_id))
        if view is None:
            return  # the client has left
        values, batch = client.session.values(view_id), changes.batch
        publisher = batch.publisher
        for row, sequence, code in zip(
            batch.to_pylist(), batch.sequences().tolist(), changes.codes.tolist(), strict=True
        ):
            self.changes += 1
            key = row[str(batch.event_type.key)]
            # Where the bounds have moved, events of several publishers leave together, without identities.
            event = self._events.get((publisher, sequence)) if publisher else view.inside.get(key)
            what = f"{view.name}, {view.filter} with {values}: {KINDS[code]} of {row}"
            if event is None or event.row != row:
                self._report("damage", f"{what}, which was not published")
                return
            self._judge(view, code, event, view.filter.matches(row, values), what)

    def _judge(self, view: _View, code: int, event: _Event, matches: bool, what: str) -> None:
        key = event.key[1]
        held, (told, moves) = view.inside.get(key), view.told.get(key, (None, 0))
        if (held is None) is not (code == ENTER):
            self._report("change", f"{what}, which was {'outside' if held is None else 'inside'}")
        excused = self._disturbed or event.key in self._ended
        if told is not None and event.number < told.number and not excused:
            self._report("order", f"{what}, after {told.row}")
        flickers = view.pending or event.place not in view.places
        again = code == LEAVE or (code == ENTER and (flickers or view.moves > moves))
        if told is event and not again and not excused:
            self._report("duplicate", f"{what}, for the second time")
        crossed = code == LEAVE and (excused or flickers)
        if matches is (code == LEAVE) and not crossed:
            self._report("strictness", what)
        view.told[key] = event, view.moves
        if code == LEAVE:
            view.inside.pop(key, None)
        else:
            view.inside[key] = event

    def _report(self, what: str, sentence: str) -> None:
        self._findings.add(f"view {what}", self._now(), sentence)

    # --- the end --------------------------------------------------------------------------------------------

    def quiet(self, clients: Iterable[SimulatedClient]) -> None:
        """Call it when all is at rest; from then on every change needs a cause again."""
        self._restored.clear()
        self._end(
            lambda last: (
                last.key[0] in self._durable and last.key[0] not in self._advertised.get(last.place, ())
            )
        )
        for client in clients:
            for view_id, reader in client.views.items():
                view = self._views[client.name, view_id]
                if view.pending:
                    self._report("answer", f"{view.name} has an update that is not complete at rest")
                if view.lost:
                    continue
                values = client.session.values(view_id)
                name = view.filter.event_type.name
                expected = {
                    key[1]: last.row
                    for key, last in self._last.items()
                    if key[0] == name and view.filter.matches(last.row, values)
                }
                shown = {key: event.row for key, event in view.inside.items()}
                key_name = str(reader.state.event_type.key)
                held = {row[key_name]: row for row in reader.batch().to_pylist()}
                for whose, inside in (("shows", shown), ("has", held)):
                    what = f"{view.name}, {view.filter} with {values}, {whose}"
                    self._compare(name, what, inside, expected)
        self._disturbed = False
        self._ended.clear()
        self._withdrawn.clear()

    def _compare(self, name: str, what: str, inside: dict[object, Any], expected: dict[object, Any]) -> None:
        for key in {**inside, **expected}:
            if (name, key) in self._unsure:
                continue
            if inside.get(key) != expected.get(key):
                self._report("state", f"{what} {inside.get(key)}, expected {expected.get(key)}")
