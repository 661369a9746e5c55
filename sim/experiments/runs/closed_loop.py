"""Publishers with a window, the closed loop of a simulated run, and the events that are under way.

A publisher draws a pause, waits until it has passed, waits until its window has room for a batch, and
publishes; then it draws the next pause. Pauses are exponential, with the mean that `event_rate` gives, so
this is the highest rate: time spent waiting for the window is not made up for. Pauses and events are drawn
from a generator of each publisher, so the n-th event of a publisher, and all updates, are the same whatever
the compared system makes of them.

An event is in the window while a copy of it is: one from its publisher to a broker, and one for each
interface to which a broker sends it. A copy ends when the broker or client that gets it has handled it: a
broker when the time that it takes has passed, a client at once, and with the session of the client. A crash
loses copies unseen, so a run with crashes is not followed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from covey.overlay.core.messages import Action, Deliver, Disconnect, Interface, Message, Publish, Send
from covey.sim.simulator.clock import NS_PER_S, Clock
from covey.sim.simulator.observer import ObservedClient, Observer

if TYPE_CHECKING:
    from covey.matcher import EventBatch
    from covey.sim.scenario.load import Load
    from covey.sim.scenario.scenario import Scenario

_Event = tuple[str, int]


class UnderWay(Observer):
    """Counts the events under way of each publisher; calls `ended` with the publisher of each that ends."""

    def __init__(self, ended: Callable[[str], None] = lambda publisher: None) -> None:
        self.by_publisher: dict[str, int] = {}
        """The number of events under way; a publisher's identity is that of its session."""
        self._ended = ended
        self._copies: dict[_Event, int] = {}
        self._delivering: dict[tuple[Interface, Interface], set[_Event]] = {}
        """By broker and client: the events on their way from one to the other."""

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        for event in _events(batch):
            self._copies[event] = 1
        self.by_publisher[batch.publisher] = self.by_publisher.get(batch.publisher, 0) + len(batch)

    def handled(
        self, broker: str, source: str, messages: Sequence[Message], actions: Sequence[Action]
    ) -> None:
        for action in actions:
            if not isinstance(action, Send) or not isinstance(action.message, Publish | Deliver):
                continue
            events = _events(action.message.batch)
            for event in events:
                self._copies[event] = self._copies.get(event, 0) + 1
            if isinstance(action.message, Deliver):
                self._delivering.setdefault((broker, action.interface), set()).update(events)
        for message in messages:
            if isinstance(message, Publish):
                self._end(_events(message.batch))
            elif isinstance(message, Disconnect):
                self._end(sorted(self._delivering.pop((broker, source), ())))

    def received(self, source: str, target: str, message: Message) -> None:
        if isinstance(message, Deliver):
            delivering = self._delivering.get((source, target), set())
            arrived = [event for event in _events(message.batch) if event in delivering]
            delivering.difference_update(arrived)
            self._end(arrived)

    def _end(self, events: Iterable[_Event]) -> None:
        for event in events:
            self._copies[event] -= 1
            if not self._copies[event]:
                del self._copies[event]
                self.by_publisher[event[0]] -= 1
                self._ended(event[0])


def _events(batch: EventBatch) -> list[_Event]:
    publisher = batch.publisher
    return [(publisher, sequence) for sequence in batch.sequences().tolist()]


class ClosedLoop:
    """The publishers of a scenario, from `start` on; `publish` is called with the number of one and a batch.

    `under_way` is to observe the simulation.
    """

    def __init__(
        self, scenario: Scenario, load: Load, clock: Clock, publish: Callable[[int, EventBatch], None]
    ) -> None:
        self.under_way = UnderWay(self._on_end)
        self._scenario = scenario
        self._load = load
        self._clock = clock
        self._publish = publish
        self._draws = [random.Random(f"publisher {n} {scenario.seed}") for n in range(scenario.publishers)]
        self._numbers: dict[str, int] = {}
        self._waiting: set[int] = set()
        self._end_ns = 0

    def start(self, publishers: list[str], end_ns: int) -> None:
        """Publish until a time. `publishers` are the identities of all publishers, by number."""
        self._end_ns = end_ns
        self._numbers = {name: number for number, name in enumerate(publishers)}
        self._names = publishers
        if self._scenario.event_rate:
            for number in range(len(publishers)):
                self._pause(number)

    def _pause(self, number: int) -> None:
        rate = self._scenario.event_rate / self._scenario.batch
        self._clock.after(round(self._draws[number].expovariate(rate) * NS_PER_S), self._on_pause, number)

    def _on_pause(self, number: int) -> None:
        if self._has_room(number):
            self._publish_next(number)
        else:
            self._waiting.add(number)

    def _on_end(self, publisher: str) -> None:
        number = self._numbers.get(publisher)
        if number in self._waiting and self._has_room(number):
            self._waiting.discard(number)
            self._clock.after(0, self._publish_next, number)

    def _has_room(self, number: int) -> bool:
        under_way = self.under_way.by_publisher.get(self._names[number], 0)
        return under_way + self._scenario.batch <= self._scenario.window

    def _publish_next(self, number: int) -> None:
        if self._clock.now_ns < self._end_ns:
            self._publish(number, self._load.events(number, self._scenario.batch, self._draws[number]))
            self._pause(number)
