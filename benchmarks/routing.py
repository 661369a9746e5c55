"""`routing`: the cost of SUB, UPD and USUB at a broker with many subscriptions. A broker core
(`Broker.handle`) has the subscriptions of one client, and a neighbour that publishes and acknowledges every
message at once, within the measured time. Each poset handles the same messages of a workload; one that
compares a filter with every other is skipped above `scan_limit` filters. With merging, events measure the
excess."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.harness import Counts, Words, command, show_fields
from covey.cli.support.options import Seed
from covey.cli.support.output import load_kernels
from covey.matcher import EventBatch, EventType, create_engine
from covey.overlay.core.merging.budget_merger import MERGINGS
from covey.overlay.core.messages import (
    Acknowledge,
    Advertise,
    Connect,
    Message,
    Publish,
    Subscribe,
    Unsubscribe,
    Update,
)
from covey.overlay.core.routing.broker import Broker
from covey.overlay.core.routing.slots import Slot
from covey.sim.baselines.options import POSETS
from covey.sim.progress import Progress, silent
from covey.sim.workload import WORKLOADS, Workload

CLIENT, PUBLISHING = "client/c", "broker/p"
SCANNING = ("naive", "diagram")
"""Posets whose changes cost time linear in the number of filters."""


@dataclass(frozen=True, slots=True)
class RoutingPlan:
    """Measure the cost of SUB, UPD and USUB at an edge broker with many subscriptions.

    Runs a broker core in process, with the subscriptions and updates of a workload and one neighbour that
    publishes. The poset "naive" compares each filter with every other.

    Example: python -m benchmarks routing --workload VEHICLES --filters 1000,100000 --json
    """

    workload: Annotated[tuple[str, ...], Words("Workloads", WORKLOADS)] = ("SYMBOLS", "VEHICLES")
    filters: Annotated[tuple[int, ...], Counts("Subscriptions")] = (1_000, 10_000, 100_000)
    posets: Annotated[tuple[str, ...], Words("Posets", POSETS)] = ("forest", "naive")
    updates: Annotated[int, typer.Option(min=1, help="Updates per case.")] = 5_000
    scan_limit: Annotated[
        int, typer.Option(min=0, help="Skip posets that compare all filters above this number of them.")
    ] = 1_000
    merging: Annotated[tuple[str, ...], Words("Of the forest", MERGINGS)] = ("off",)
    merging_budget: Annotated[int, typer.Option(min=1, help="Slots, for merging within a budget.")] = 64
    seed: Seed = 0
    cancels: int = 1_000
    events: int = 10_000


@dataclass(frozen=True, slots=True)
class RoutingResult:
    """Microseconds of one core per message, None for a skipped poset. `sent` are messages to the neighbour
    per UPD, `slots` its slots, and `excess` the share of the events matching these that no subscription
    matches."""

    workload: Annotated[str, ""]
    filters: int
    poset: str
    merging: str
    sub_us: Annotated[float | None, "SUB µs"] = None
    upd_us: Annotated[float | None, "UPD µs"] = None
    upd_median_us: Annotated[float | None, "UPD median µs"] = None
    usub_us: Annotated[float | None, "USUB µs"] = None
    sent: Annotated[float | None, "sent per UPD"] = None
    slots: int | None = None
    excess: Annotated[float | None, "excess events"] = None


def measure_routing(plan: RoutingPlan, progress: Progress = silent) -> list[RoutingResult]:
    cases = [
        (WORKLOADS[name], count, poset, merging)
        for name in plan.workload
        for count in plan.filters
        for poset in plan.posets
        for merging in (("off",) if poset in SCANNING else plan.merging)
    ]
    results: list[RoutingResult] = []
    for done, (workload, count, poset, merging) in enumerate(cases):
        progress(f"{workload.name}, {count:,} filters, {poset}, merging {merging}", done / len(cases))
        if poset in SCANNING and count > plan.scan_limit:
            results.append(RoutingResult(workload.name, count, poset, merging))
        else:
            results.append(_measure_one(workload, count, poset, merging, plan))
    return results


def _measure_one(
    workload: Workload, count: int, poset: str, merging: str, plan: RoutingPlan
) -> RoutingResult:
    edge = _Edge(workload.event_type, poset, merging, plan.merging_budget)
    subscribes, updates = _messages(workload, count, plan)
    sub = edge.time(subscribes)
    sent = edge.sent
    upd = edge.time(updates)
    sent = edge.sent - sent
    slots = len(edge.slots)
    excess = edge.excess(workload.events(plan.events, seed=plan.seed))
    cancels = np.random.default_rng(plan.seed).permutation(count)[: plan.cancels].tolist()
    usub = edge.time(
        Unsubscribe(len(subscribes) + len(updates) + i + 1, cancelled + 1)
        for i, cancelled in enumerate(cancels)
    )
    return RoutingResult(
        workload.name,
        count,
        poset,
        merging,
        round(sum(sub) / len(sub), 1),
        round(sum(upd) / len(upd), 1),
        round(median(upd), 1),
        round(sum(usub) / len(usub), 1),
        round(sent / len(upd), 2),
        slots,
        round(excess, 4),
    )


def _messages(workload: Workload, count: int, plan: RoutingPlan) -> tuple[list[Subscribe], list[Update]]:
    """A SUB per subscription in the order of ids, then UPDs of random ones."""
    groups = workload.subscriptions(count, seed=plan.seed)
    subscribes: dict[int, Subscribe] = {}
    for group in groups:
        for identity, values in zip(group.ids.tolist(), _rows(group.values), strict=True):
            subscribes[identity] = Subscribe(identity + 1, identity + 1, group.filter, values)
    updates: list[Update] = []
    draw = 0
    rng = np.random.default_rng([plan.seed, 3])
    while len(updates) < plan.updates:
        draw += 1
        moves: dict[int, dict[str, Any]] = {}
        for group in groups:
            moved = workload.moves(group, seed=plan.seed + draw)
            moves.update(zip(group.ids.tolist(), _rows(moved), strict=True))
        for identity in rng.permutation(count).tolist()[: plan.updates - len(updates)]:
            updates.append(Update(count + len(updates) + 1, identity + 1, moves[identity]))
    return [subscribes[identity] for identity in range(count)], updates


def _rows(columns: Any) -> Iterator[dict[str, Any]]:
    names = list(columns)
    for row in zip(*[columns[name].tolist() for name in names], strict=True):
        yield dict(zip(names, row, strict=True))


class _Edge:
    """An edge broker: one client, and one neighbour that publishes and acknowledges at once."""

    def __init__(self, event_type: EventType, poset: str, merging: str, budget: int) -> None:
        self._broker = Broker("edge", poset=POSETS[poset], merging=merging, merging_budget=budget)
        self._type = event_type
        self.sent = 0
        for name in (CLIENT, PUBLISHING):
            self._broker.handle(Connect(), name, 0)
        self._broker.handle(Advertise(1, event_type), PUBLISHING, 0)

    @property
    def slots(self) -> list[Slot]:
        return list(self._broker.tables.types[self._type.name].outgoing[PUBLISHING].slots)

    def excess(self, batch: EventBatch) -> float:
        """The share of the events matching the neighbour's slots that no subscription matches."""
        engine = create_engine("cluster", self._type)
        for slot in self.slots:
            engine.add(slot.slot_id, slot.structure, slot.values)
        sent = batch.filter(engine.match(batch).any())
        if not len(sent):
            return 0.0
        before = self._unwanted
        self._broker.handle(Publish(sent), PUBLISHING, 0)
        return (self._unwanted - before) / len(sent)

    @property
    def _unwanted(self) -> int:
        return self._broker.tables.peers[PUBLISHING].counters.events_unwanted

    def time(self, messages: Iterable[Message]) -> list[float]:
        """Handle messages of the client; microseconds of each, with the neighbour's acknowledgement, by this
        thread's CPU time, which excludes other load."""
        handle, clock = self._broker.handle, time.thread_time_ns
        times_us: list[float] = []
        for message in messages:
            newest = 0
            start = clock()
            for action in handle(message, CLIENT, 0):
                if action.interface == PUBLISHING:  # type: ignore[union-attr]
                    newest = action.message.epoch  # type: ignore[union-attr]
                    self.sent += 1
            if newest:
                handle(Acknowledge(newest), PUBLISHING, 0)
            times_us.append((clock() - start) / 1000)
        return times_us


def show(plan: RoutingPlan, results: list[RoutingResult]) -> None:
    for name in plan.workload:
        mine = [result for result in results if result.workload == name]
        show_fields(f"{name}: µs of one core per message", mine)


routing = command(RoutingPlan, measure_routing, show, prepare=load_kernels)
