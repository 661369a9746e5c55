"""A routing core whose calls are observed, charged for, and altered by a defect."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from covey.overlay.core.link.size import events_in
from covey.overlay.core.messages import Action, Drop, Interface, Message
from covey.overlay.core.routing.broker import Broker
from covey.overlay.core.routing.tables import Tables
from covey.sim.simulator.costs import Costs, Sample
from covey.sim.simulator.crash_points import CrashPoints
from covey.sim.simulator.observer import Observer

if TYPE_CHECKING:
    from covey.sim.simulator.defects import Defect


class ObservedCore:
    """What a `BrokerEndpoint` uses of a core; the core is that of production. It serves sessions with
    neighbours in one call, whose whole cost is known then. With a defect it handles one message at a time.
    """

    deferred: Sequence[object] = ()

    def __init__(
        self,
        core: Broker,
        name: str,
        costs: Costs,
        observers: Iterable[Observer],
        defect: Defect | None,
        points: CrashPoints | None = None,
    ) -> None:
        self._points = points
        self._core = core
        self._name = name
        self._costs = costs
        self._observers = observers
        self._defect = defect
        self._cost_ns = 0
        self._unfinished: list[tuple[Interface, Sequence[Message], list[Action]]] = []

    def finish(self) -> None:
        """The cost of all calls so far has passed."""
        unfinished, self._unfinished = self._unfinished, []
        for source, messages, actions in unfinished:
            for observer in self._observers:
                observer.handled(self._name, source, messages, actions)
            if self._points is not None:
                self._points.sending(self._name, actions)

    def take_cost(self) -> int:
        """The cost of all calls since this was asked last."""
        cost_ns, self._cost_ns = self._cost_ns, 0
        return cost_ns

    @property
    def tables(self) -> Tables:
        return self._core.tables

    @property
    def synced(self) -> bool:
        return self._core.synced

    def unsettled(self, interface: Interface) -> int:
        return self._core.unsettled(interface)

    def next_timer(self) -> int | None:
        return self._core.next_timer()

    def handle(self, message: Message, source: Interface, now_ns: int) -> list[Action]:
        return self._altered((message,), source, now_ns)

    def handle_all(
        self, messages: Sequence[Message], source: Interface, now_ns: int, *, defer: bool = False
    ) -> list[Action]:
        for message in messages:
            for observer in self._observers:
                observer.received(source, self._name, message)
            if self._points is not None:
                self._points.received(self._name, message)
        return self._altered(messages, source, now_ns)

    def _altered(self, messages: Sequence[Message], source: Interface, now_ns: int) -> list[Action]:
        if self._defect is None:
            actions = self._handle(messages, source, now_ns)
        else:
            actions = []
            for message in messages:
                actions += self._defect.apply(
                    self._core, source, message, self._handle((message,), source, now_ns)
                )
        self._unfinished.append((source, messages, actions))
        return actions

    def deliver(self) -> list[Action]:
        return []

    def _handle(self, messages: Sequence[Message], source: Interface, now_ns: int) -> list[Action]:
        measures = self._costs.measures
        started_ns = time.thread_time_ns() if measures else 0
        actions = self._core.handle_all(messages, source, now_ns)
        took_ns = time.thread_time_ns() - started_ns if measures else 0
        self._charge(messages, took_ns)
        for action in actions:
            if isinstance(action, Drop):
                for observer in self._observers:
                    observer.dropped(self._name, action)
        return actions

    def _charge(self, messages: Sequence[Message], took_ns: int) -> None:
        """Add the cost of messages that were handled in one call."""
        count = max(1, len(messages))
        for message in messages:
            self._cost_ns += self._costs.charge(self._sample(message, took_ns // count))

    def _sample(self, message: Message, took_ns: int = 0) -> Sample:
        filters = len(self._core.tables.registry)
        return Sample(self._name, type(message).__name__, events_in(message), filters, took_ns)
