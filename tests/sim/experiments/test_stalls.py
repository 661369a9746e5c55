"""Histories with stalled clients and brokers hold, and fail without a mechanism of the endpoint.

The freezes that they seldom meet are in `tests/sim/simulator/test_freezes.py`.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from draws import some_seeds
from histories import play_all

from covey.overlay.core.endpoint.flow import Holds
from covey.overlay.core.endpoint.recovery import Recovery
from covey.overlay.core.link.event_queue import EventQueue, packed
from covey.overlay.core.link.link import Link
from covey.overlay.core.messages import Message
from covey.sim.experiments.fuzz import FuzzOptions, play_history

Patch = pytest.MonkeyPatch
OPTIONS = FuzzOptions(stalls=True)


@some_seeds("fuzzer, stalls", parts=4)
def test_histories(seeds: range) -> None:
    play_all(seeds, OPTIONS)


def holds_of_all_types(patch: Patch) -> None:
    genuine = Holds.set_full

    def set_full(self: Holds, interface: str, types: Any) -> None:
        genuine(self, interface, list(self._sources) if list(types) else ())

    patch.setattr(Holds, "set_full", set_full)


def no_holds(patch: Patch) -> None:
    patch.setattr(Holds, "set_full", lambda *_: None)


def credit_at_once_after_a_restart(patch: Patch) -> None:
    patch.setattr(Recovery, "begins", lambda *_: False)


def held_types_in_the_way_of_others(patch: Patch) -> None:
    def append(self: EventQueue, message: Message) -> None:
        entry = packed(message)
        self._count(entry)
        self.ready.append(entry)

    def set_held(self: EventQueue, type_name: str, held: bool) -> None:
        for each, empty in ((self.aside, deque()), (self._held_bytes, 0)):
            each[type_name] = empty
            if not held:
                del each[type_name]

    def behind_held(genuine: Callable[[Link], Any]) -> Callable[[Link], Any]:
        def call(self: Link) -> Any:
            events, ready = self.events, self.events.ready
            if ready and ready[0].type_name in events.aside:
                events.ready = deque()
            try:
                return genuine(self)
            finally:
                events.ready = ready

        return call

    for method in (append, set_held):
        patch.setattr(EventQueue, method.__name__, method)
    patch.setattr(Link, "next_frame", behind_held(Link.next_frame))
    patch.setattr(Link, "ready", property(behind_held(Link.ready.fget)))


def gaps_that_are_not_told(patch: Patch) -> None:
    patch.setattr(Link, "tell_gap", lambda *_: None)


def newest_events_that_supersede_nothing(patch: Patch) -> None:
    patch.setattr(EventQueue, "conflate", lambda *_: [])


MECHANISMS = (
    holds_of_all_types,
    no_holds,
    credit_at_once_after_a_restart,
    held_types_in_the_way_of_others,
    gaps_that_are_not_told,
    newest_events_that_supersede_nothing,
)


@pytest.mark.thorough
@pytest.mark.parametrize("switch_off", MECHANISMS, ids=lambda mechanism: mechanism.__name__)
def test_histories_fail_without_a_mechanism(switch_off: Callable[[Patch], None], monkeypatch: Patch) -> None:
    switch_off(monkeypatch)
    assert any(play_history(seed, OPTIONS).failed for seed in range(24))
