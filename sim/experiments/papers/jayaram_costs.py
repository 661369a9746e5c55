"""A: the costs of a change's messages and of an event at one broker, as functions of the number of filters.

One broker core with two neighbours. Half of the filters are a client's, half the first neighbour's; the
second neighbour publishes, and in the shape "boxes" so does the first.

- *boxes*: HTM, boxes of one size, none of which covers another
- *thresholds*: AT with one poset, where thresholds on one commodity form chains
- *types*: AT with a poset per event type

At each number of filters, blocks of changes alternate with as many events of the changed types. An engine
applies changes at an event, so the excess of these events over later ones is added to the changes. Times are
CPU time of this thread: the mean of a block, then the median of the blocks, against other load and slow
calls; and the median of passes, since a shared processor is slow for minutes.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np

from covey.overlay.core.messages import (
    Acknowledge,
    Action,
    Advertise,
    Connect,
    Message,
    Publish,
    Subscribe,
    Unsubscribe,
    Update,
)
from covey.overlay.core.routing.broker import Broker
from covey.sim.baselines.options import POSETS, broker_options
from covey.sim.experiments.papers.provenance import measured_now
from covey.sim.progress import Progress, silent
from covey.sim.scenario.loads import Load, SubscriberState
from covey.sim.scenario.scenario import Scenario
from covey.sim.scenario.schedule import create_load, create_topology
from covey.sim.simulator.costs import CostTable, Points, save_costs

SHAPES = {"boxes": "highway", "thresholds": "market", "types": "trading"}
SYSTEMS = {
    "siena-static": ("poset", "diagram", "static"),
    "siena-parametric": ("poset", "diagram", "parametric"),
    "siena-parametric-local": ("poset", "diagram-local", "parametric"),
    "rete-static": ("rete", "diagram", "static"),
    "rete-parametric": ("rete", "diagram", "parametric"),
    "rete-parametric-local": ("rete", "diagram-local", "parametric"),
    "covey-static": ("cluster", "forest", "static"),
    "covey-parametric": ("cluster", "forest", "parametric"),
}

_CLIENT, _BELOW, _ABOVE = "client/c", "broker/below", "broker/above"
_BLOCK = 8
"""Changes of a block, and events after it."""
_FLUSHING = 12
"""Further events of each type, after which no engine has pending changes."""


@dataclass(frozen=True, slots=True)
class CostPlan:
    """What is measured: every system in every shape at these numbers of filters, in `rounds` blocks in each
    of `passes`."""

    filters: tuple[int, ...] = (10, 30, 100, 300, 1_000, 3_000)
    systems: tuple[str, ...] = tuple(name for name, (_, poset, _) in SYSTEMS.items() if poset in POSETS)
    shapes: tuple[str, ...] = tuple(SHAPES)
    rounds: int = 9
    passes: int = 3
    seed: int = 0


def measure_costs(plan: CostPlan, progress: Progress = silent) -> CostTable:
    """Cost: loading a diagram takes half a minute per system with 3,000 boxes, eight with 10,000."""
    cases = [(system, shape) for shape in plan.shapes for system in plan.systems]
    passes: list[CostTable] = []
    for number in range(plan.passes):
        table: dict[str, dict[str, Mapping[str, Points]]] = {}
        for done, (system, shape) in enumerate(cases):
            progress(f"{system}, {shape}", (number + done / len(cases)) / plan.passes)
            table.setdefault(system, {})[shape] = _measure(system, shape, plan)
        passes.append(table)
    return pooled(medians(passes))


def medians(tables: Sequence[CostTable]) -> CostTable:
    """Of each point of tables that have the same ones."""
    return {
        system: {
            shape: {
                operation: [
                    [filters, round(median(each[system][shape][operation][at][1] for each in tables))]
                    for at, (filters, _) in enumerate(points)
                ]
                for operation, points in curves.items()
            }
            for shape, curves in shapes.items()
        }
        for system, shapes in tables[0].items()
    }


def pooled(table: CostTable) -> CostTable:
    """Events and acknowledgements run the same code in all systems of one matcher: each gets their median, so
    that noise is no difference between systems."""
    result: dict[str, dict[str, dict[str, Points]]] = {
        system: {shape: dict(curves) for shape, curves in shapes.items()} for system, shapes in table.items()
    }
    for system, shapes in result.items():
        alike = [table[other] for other in table if other.partition("-")[0] == system.partition("-")[0]]
        for shape, curves in shapes.items():
            for operation in ("publish", "acknowledge"):
                points = zip(*(other[shape][operation] for other in alike), strict=True)
                curves[operation] = [[same[0][0], round(median(ns for _, ns in same))] for same in points]
    return result


def _measure(system: str, shape: str, plan: CostPlan) -> dict[str, list[tuple[float, float]]]:
    engine, poset, routing = SYSTEMS[system]
    broker = Broker("b", routing=routing, **broker_options(engine, poset))
    load = _MeasuredBroker(broker, shape, plan.seed)
    curves: dict[str, list[tuple[float, float]]] = {}
    gc.disable()
    try:
        for filters in plan.filters:
            load.grow(filters)
            for operation, ns in load.measure(plan.rounds, static=routing == "static").items():
                curves.setdefault(operation, []).append((filters, round(ns)))
    finally:
        gc.enable()
    return curves


class _MeasuredBroker:
    def __init__(self, broker: Broker, shape: str, seed: int) -> None:
        scenario = Scenario(load=SHAPES[shape], brokers=20, publishers=20, types=200, seed=seed)
        self._load: Load = create_load(scenario, create_topology(scenario))
        self._broker = broker
        self._rng = np.random.default_rng(seed)
        self._members: list[tuple[str, int, int, SubscriberState]] = []
        self._epochs: dict[str, int] = {}
        self._next_id = 0
        self._drawn = 0
        self._publishers_of: dict[str, list[int]] = {}
        event_types = {}
        for number in range(scenario.publishers):
            for event_type in self._load.publisher(number)[1]:
                self._publishers_of.setdefault(event_type.name, []).append(number)
                event_types[event_type.name] = event_type
        for interface in (_CLIENT, _BELOW, _ABOVE):
            broker.handle(Connect(), interface, 0)
        publishing = (_ABOVE, _BELOW) if shape == "boxes" else (_ABOVE,)
        for interface in publishing:
            for event_type in event_types.values():
                self._handle(Advertise(self._epoch(interface), event_type), interface)

    def grow(self, filters: int) -> None:
        while len(self._members) < filters:
            number = len(self._members)
            interface = _CLIENT if number % 2 else _BELOW
            state = self._load.subscriber(number)
            subscribe = Subscribe(self._epoch(interface), self._id(), state.filter, dict(state.values))
            self._handle(subscribe, interface)
            self._members.append((interface, subscribe.subscription_id, number, state))
        for name in {state.filter.event_type.name: None for *_, state in self._members}:
            for _ in range(_FLUSHING):
                self._event(name)

    def measure(self, rounds: int, static: bool) -> dict[str, float]:
        """Nanoseconds by operation; a static broker has no updates, a parametric one has all."""
        times: dict[str, list[float]] = {}
        changes = {"subscribe": self._resubscribe} | ({} if static else {"update": self._update})
        for _ in range(rounds):
            for name, change in changes.items():
                block: dict[str, list[float]] = {}
                places = self._rng.integers(0, len(self._members), _BLOCK).tolist()
                for place in places:
                    change(place, block)
                names = [self._members[place][3].filter.event_type.name for place in places]
                dirty = [self._event(name) for name in names]
                for name_of_type in {*names}:
                    for _ in range(_FLUSHING):
                        self._event(name_of_type)
                clean = [self._event(name_of_type) for name_of_type in names]
                times.setdefault(f"applying {name}", []).append(fmean(dirty) - fmean(clean))
                times.setdefault("publish", []).append(fmean(clean))
                for operation, values in block.items():
                    times.setdefault(operation, []).append(fmean(values))
        medians = {operation: median(values) for operation, values in times.items()}
        for name in changes:
            medians[name] += max(0.0, medians.pop(f"applying {name}"))
        return dict(sorted(medians.items()))

    # --- changes --------------------------------------------------------------------------------------------

    def _update(self, place: int, block: dict[str, list[float]]) -> None:
        interface, subscription_id, _, _ = self._members[place]
        values = self._moved(place)
        self._time("update", Update(self._epoch(interface), subscription_id, values), interface, block)

    def _resubscribe(self, place: int, block: dict[str, list[float]]) -> None:
        interface, old_id, number, state = self._members[place]
        self._moved(place)
        new_id = self._id()
        subscribe = Subscribe(self._epoch(interface), new_id, state.filter, dict(state.values))
        self._time("subscribe", subscribe, interface, block)
        self._time("unsubscribe", Unsubscribe(self._epoch(interface), old_id), interface, block)
        self._members[place] = (interface, new_id, number, state)

    def _moved(self, place: int) -> dict[str, Any]:
        """The next values of a member, which has them from now on."""
        _, _, number, state = self._members[place]
        values, _ = self._load.next_values(number, state)
        state.values |= values
        return values

    def _time(self, operation: str, message: Message, interface: str, block: dict[str, list[float]]) -> None:
        clock = time.thread_time_ns
        started = clock()
        actions = self._broker.handle(message, interface, 0)
        block.setdefault(operation, []).append(clock() - started)
        for target, epoch in _to_acknowledge(actions).items():
            started = clock()
            self._broker.handle(Acknowledge(epoch), target, 0)
            block.setdefault("acknowledge", []).append(clock() - started)

    def _event(self, type_name: str) -> float:
        publishers = self._publishers_of[type_name]
        publisher = publishers[int(self._rng.integers(len(publishers)))]
        batch = self._load.events(publisher, 1)
        while batch.event_type.name != type_name:
            batch = self._load.events(publisher, 1)
        batch = batch.stamped(publisher=f"p{publisher}", first_sequence=self._drawn, ingress_ns=1)
        self._drawn += 1
        started = time.thread_time_ns()
        self._broker.handle(Publish(batch), _ABOVE, 0)
        return float(time.thread_time_ns() - started)

    # --- messages -------------------------------------------------------------------------------------------

    def _handle(self, message: Message, interface: str) -> None:
        for target, epoch in _to_acknowledge(self._broker.handle(message, interface, 0)).items():
            self._broker.handle(Acknowledge(epoch), target, 0)

    def _epoch(self, interface: str) -> int:
        self._epochs[interface] = epoch = self._epochs.get(interface, 0) + 1
        return epoch

    def _id(self) -> int:
        self._next_id += 1
        return self._next_id


def _to_acknowledge(actions: Sequence[Action]) -> Mapping[str, int]:
    """The newest epoch of each neighbour that was sent a control message."""
    newest: dict[str, int] = {}
    for action in actions:
        message: Any = getattr(action, "message", None)
        if isinstance(message, Subscribe | Unsubscribe | Update | Advertise):
            newest[action.interface] = message.epoch  # type: ignore[union-attr]
    return newest


def main() -> None:
    """Measure all, on an idle machine, and write the checked-in file: `python -m` this module."""
    from covey.matcher import compile_kernels

    compile_kernels()
    table = measure_costs(CostPlan(), lambda step, share: print(f"{share:4.0%}  {step}", flush=True))
    note = (
        f"measured by sim/experiments/papers/jayaram_costs.py, {measured_now()}; CPU time of one core, "
        f"medians of {CostPlan().passes} passes"
    )
    save_costs(Path(__file__).with_suffix(".json"), table, note)


if __name__ == "__main__":
    import typer

    typer.run(main)
