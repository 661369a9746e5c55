"""The history of a scenario: who publishes and who changes what when, drawn before anything happens.

It is the same for the simulator and for real brokers, and for every system that is compared: it depends on
the scenario's seed and load, and on nothing that happens in the overlay.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from covey.sim.scenario.load import Load, Wish
from covey.sim.simulator.clock import NS_PER_S

if TYPE_CHECKING:
    from covey.matcher import EventBatch
    from covey.sim.scenario.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Published:
    """A publisher publishes events, so long after the start."""

    after_ns: int
    publisher: int
    batch: EventBatch


@dataclass(frozen=True, slots=True)
class Changed:
    """A subscriber's subscription takes new values, and it belongs at this broker from then on."""

    after_ns: int
    subscriber: int
    values: dict[str, Any]
    broker: str


def history(scenario: Scenario, load: Load, wishes: list[Wish]) -> Iterator[Published | Changed]:
    """What happens, in order of time, as two Poisson processes; `wishes` are kept up to date on the way."""
    draw = random.Random(f"history {scenario.seed}")
    end_ns = round(scenario.duration_s * NS_PER_S)
    rates = (
        scenario.event_rate / scenario.batch * scenario.publishers,
        scenario.update_rate * len(wishes),
    )

    def later(now_ns: int, rate: float) -> int:
        return now_ns + round(draw.expovariate(rate) * NS_PER_S)

    due = [(later(0, rate), sort) for sort, rate in enumerate(rates) if rate > 0]
    heapq.heapify(due)
    while due and due[0][0] < end_ns:
        now_ns, sort = due[0]
        heapq.heapreplace(due, (later(now_ns, rates[sort]), sort))
        if sort == 0:
            publisher = draw.randrange(scenario.publishers)
            yield Published(now_ns, publisher, load.events(publisher, scenario.batch))
        else:
            number = draw.randrange(len(wishes))
            values, broker = load.move(number, wishes[number])
            wishes[number].values |= values
            yield Changed(now_ns, number, values, broker)
