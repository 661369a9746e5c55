"""`python -m benchmarks drift`: a hashing configuration under changing subscriptions and events, the last two
experiments of Fabret et al. 2001, section 6.4.

At every step, new subscriptions of another kind replace the oldest ones. *Dynamic* adapts; *no change* keeps
its initial configuration; at the end a *static* one for the final state is the reference for both, in the
same turns. At the start and at the end engines have *settled*: none moves rows while it is measured. In
between that work counts.

- `attributes`: subscriptions test one half of the 32 attributes at first, the other half at the end.
- `skew`: the two attributes that all subscriptions test have 35 values at first, then two, for subscribers
  and publishers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from covey.matcher import Engine, EventBatch, create_engine
from covey.matcher.errors import InputError
from covey.sim.progress import Progress
from covey.sim.workload import Domain, Fabret, SubscriptionGroup

_FIRST = Fabret(name="first", focus=16)
_TWO = Domain(1, 2)
_ADAPTATION_PASSES = 2
SETTLING = 12
"""Events per subscription after which an engine has finished moving its rows. Until then events pay for some
of that work, and are searched in two arrangements for part of the time."""
DRIFTS: dict[str, tuple[Fabret, Fabret]] = {
    "attributes": (_FIRST, _FIRST.with_(first_attribute=16)),
    "skew": (_FIRST, _FIRST.with_(domains={0: _TWO, 1: _TWO}, event_domains={0: _TWO, 1: _TWO})),
}


@dataclass(frozen=True, slots=True)
class DriftPlan:
    """`subscriptions` are replaced in `steps`; events are matched in batches of `batch`."""

    drift: str
    subscriptions: int = 100_000
    steps: int = 8
    events: int = 20_000
    batch: int = 1_000
    repetitions: int = 5
    seed: int = 0
    clock: Callable[[], float] = perf_counter
    """Seconds of matching; `process_time` excludes other processes."""

    def __post_init__(self) -> None:
        if self.drift not in DRIFTS:
            raise InputError(f"drift {self.drift!r}: expected one of {', '.join(DRIFTS)}")


@dataclass(slots=True)
class DriftResult:
    """`rates` are events per second of each configuration at the start, after each step and settled."""

    drift: str
    subscriptions: int
    rates: dict[str, list[float]] = field(default_factory=dict)
    optimum: float = 0.0
    repetitions: dict[str, list[list[float]]] = field(default_factory=dict)
    """`rates` are their medians; `optimum` is the median of `static`."""

    def as_json(self) -> dict[str, Any]:
        return {
            "drift": self.drift,
            "subscriptions": self.subscriptions,
            "events_per_s": {name: [round(rate, 1) for rate in rates] for name, rates in self.rates.items()},
            "static_optimum": round(self.optimum, 1),
            "dynamic_of_optimum": round(self.rates["dynamic"][-1] / self.optimum, 3),
        }


def measure_drift(plan: DriftPlan, progress: Progress) -> DriftResult:
    before, after = DRIFTS[plan.drift]
    result = DriftResult(plan.drift, plan.subscriptions, {"dynamic": [], "no change": []})
    events = before.events(plan.events, seed=plan.seed)
    engines = {
        name: create_engine("cluster", before.event_type, configuration=kind)
        for name, kind in (("dynamic", "dynamic"), ("no change", "static"))
    }
    for engine in engines.values():
        _load(engine, before.subscriptions(plan.subscriptions, seed=plan.seed), 0, events)
        _settle(engine, events, plan)
    _measure_rates(engines, events, plan, result)
    new = after.subscriptions(plan.subscriptions, seed=plan.seed + 1)
    events = after.events(plan.events, seed=plan.seed + 1)
    for step in range(plan.steps):
        progress(f"step {step + 1} of {plan.steps}", (step + 1) / (plan.steps + 1))
        first, last = (plan.subscriptions * at // plan.steps for at in (step, step + 1))
        for engine in engines.values():
            engine.remove_many(np.arange(first, last))
            for group in _members(new, first, last):
                engine.add_many(group.ids + plan.subscriptions, group.filter, dict(group.values))
        _measure_rates(engines, events, plan, result)
    engines["static"] = create_engine("cluster", before.event_type, configuration="static")
    _load(engines["static"], new, plan.subscriptions, events)
    for engine in engines.values():
        _settle(engine, events, plan)
    _measure_rates(engines, events, plan, result)
    result.optimum = result.rates.pop("static")[0]
    return result


def _members(groups: list[SubscriptionGroup], first: int, last: int) -> Iterator[SubscriptionGroup]:
    for group in groups:
        start, stop = np.searchsorted(group.ids, (first, last)).tolist()
        if stop > start:
            yield group.slice(start, stop)


def _load(engine: Engine, groups: list[SubscriptionGroup], offset: int, events: EventBatch) -> None:
    """Add a tenth first, so that the engine has statistics of events when it clusters the rest."""
    count = sum(len(group) for group in groups)
    for first, last in ((0, count // 10), (count // 10, count)):
        for group in _members(groups, first, last):
            engine.add_many(group.ids + offset, group.filter, dict(group.values))
        engine.match(events).ids()


def _settle(engine: Engine, events: EventBatch, plan: DriftPlan) -> None:
    for _ in range(0, SETTLING * plan.subscriptions, len(events)):
        for batch in _batches(events, plan):
            engine.match(batch).ids()


def _batches(events: EventBatch, plan: DriftPlan) -> list[EventBatch]:
    return [events.slice(start, plan.batch) for start in range(0, len(events), plan.batch)]


def _measure_rates(
    engines: dict[str, Engine], events: EventBatch, plan: DriftPlan, result: DriftResult
) -> None:
    """Measure each engine after two passes in which it may adapt; repetitions alternate between engines."""
    batches = _batches(events, plan)
    rates: dict[str, list[float]] = {name: [] for name in engines}
    for repetition in range(-_ADAPTATION_PASSES + 1, plan.repetitions + 1):
        for name, engine in engines.items():
            start = plan.clock()
            for batch in batches:
                engine.match(batch).ids()
            if repetition > 0:
                rates[name].append(len(events) / (plan.clock() - start))
    for name, repetitions in rates.items():
        result.rates.setdefault(name, []).append(median(repetitions))
        result.repetitions.setdefault(name, []).append(repetitions)
