"""Publishers with a window, the closed loop of a simulated run.

A publisher draws a pause, waits until it has passed, waits until its window has room for a batch, and
publishes; then it draws the next pause. Pauses are exponential, with the mean that `event_rate` gives, so
this is the highest rate: time spent waiting for the window is not made up for. With a rate above what the
overlay carries, a publisher publishes as soon as there is room.

An event is in the window from its publication until it is no longer under way (`simulator/under_way.py`).
Pauses and events are drawn from a generator of each publisher, so the n-th event of a publisher, and all
updates, are the same whatever the compared system makes of them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from covey.sim.simulator.clock import NS_PER_S, Clock
from covey.sim.simulator.under_way import UnderWay

if TYPE_CHECKING:
    from covey.matcher import EventBatch
    from covey.sim.scenario.load import Load
    from covey.sim.scenario.scenario import Scenario


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
