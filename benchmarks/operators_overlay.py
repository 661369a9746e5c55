"""Filters with operators that cost 100 µs in a chain of brokers: who asks, and how often.

The subscriptions of Liu et al.'s workload, calls alone, are spread over the clients of all brokers, and a
client of the first broker publishes. The brokers are the simulator's, over wires without delay, in one
process on one core. All placements get the same events; their deliveries are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.spinning import EVENT_TYPE, Alone, OperatorsPlan, Spinning, call_texts, regions
from covey.matcher import EventBatch, parse
from covey.matcher.errors import CoveyError
from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.evaluation.problem import Chains, Int64s
from covey.matcher.evaluation.runner import Compute, Outcome
from covey.matcher.operators.named_operator import NamedOperator
from covey.overlay.core.messages import Publish
from covey.sim.progress import Progress
from covey.sim.simulator import Observer, Simulation, WireOptions
from covey.sim.topology import make_topology
from covey.sim.workload.overlapping import Overlapping, draw_truths

if TYPE_CHECKING:
    from covey.overlay.core.client.actions import DeliverTo
    from covey.overlay.core.messages import Message
    from covey.sim.simulator.observer import ObservedClient

BROKERS = 5


def _pass_on(operator: NamedOperator, key: int, events: int, compute: Compute) -> Outcome:
    """The runner of who does not ask."""
    return Outcome([], 0)


def _placements(spinning: Spinning) -> Mapping[str, Mapping[str, Any]]:
    """The options of a simulation, by name of the placement; the last is that of Covey's brokers."""
    return {
        "each subscription by itself": {
            "evaluator": lambda: Evaluator(Alone(spinning)),
            "share_results": False,
        },
        "each broker by itself, naive": {"evaluator": lambda: Evaluator("naive"), "share_results": False},
        "each broker by itself": {"share_results": False},
        "at the subscribers' brokers alone": {"link_evaluator": lambda: Evaluator(run=_pass_on)},
        "results travel": {},
    }


@dataclass(frozen=True, slots=True)
class PlacementResult:
    """One placement, per event."""

    placement: str
    evaluations: float
    """Answers of the operator's function, in all brokers and clients."""
    messages: float
    """Events over the links of the chain."""
    deliveries: float
    events_per_s: float


Delivered = dict[tuple[str, int], list[int]]
"""The numbers of the events that each subscription of a client got."""


class _Counts(Observer):
    """What arrived where."""

    def __init__(self) -> None:
        self.to_clients: Delivered = {}
        self.over_links = 0

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        key = client.name, action.subscription_id
        self.to_clients.setdefault(key, []).extend(action.batch.values("number"))

    def received(self, source: str, target: str, message: Message) -> None:
        if isinstance(message, Publish) and source.startswith("broker/"):
            self.over_links += len(message.batch)


def measure_placements(plan: OperatorsPlan, progress: Progress) -> list[PlacementResult]:
    """Publish the same events under every placement. `CoveyError` if one delivers other events."""
    chains = Overlapping(plan.subscriptions, plan.calls, 1.0, matching=plan.matching).chains(plan.seed)
    events = plan.events * plan.rounds
    spinning = Spinning(draw_truths(chains, events, plan.seed), plan.cost_us)
    results: list[PlacementResult] = []
    expected: Delivered | None = None
    with spinning.registered():
        placements = _placements(spinning)
        for step, (name, options) in enumerate(placements.items()):
            progress(name, step / len(placements))
            result, delivered = _measure(plan, name, options, chains, spinning)
            if expected is not None and delivered != expected:
                raise CoveyError(f"placement {name}: delivered other events than {results[0].placement}")
            expected = delivered
            results.append(result)
    return results


def _measure(
    plan: OperatorsPlan,
    placement: str,
    options: Mapping[str, Any],
    chains: Chains,
    spinning: Spinning,
) -> tuple[PlacementResult, Delivered]:
    counts = _Counts()
    simulation = Simulation(observers=[counts], wire=WireOptions(delay_ns=0), **options)
    simulation.build(make_topology("line", BROKERS, delay_ms=0))
    brokers = list(simulation.brokers)
    clients = [simulation.join(f"client/c{number}", name) for number, name in enumerate(brokers)]
    publisher = simulation.join("client/p", brokers[0])
    publisher.advertise(EVENT_TYPE)
    simulation.run()
    for number in range(plan.subscriptions):
        predicates = chains.predicates[chains.offsets[number] : chains.offsets[number + 1]].tolist()
        filter = parse(call_texts(len(predicates)), EVENT_TYPE)
        values = {f"p{place}": predicate for place, predicate in enumerate(predicates)}
        clients[number % BROKERS].subscribe(filter, values)
    simulation.run()
    evaluations, started = spinning.events, perf_counter()
    total = plan.events * plan.rounds
    for first in range(0, total, plan.events):
        numbers: Int64s = np.arange(first, first + plan.events)
        columns = {"number": numbers, "region": regions(numbers)}
        publisher.publish(EventBatch.from_arrow(EVENT_TYPE, pa.record_batch(columns)))
        simulation.run()
    took_s = perf_counter() - started
    delivered = {key: sorted(numbers) for key, numbers in counts.to_clients.items() if numbers}
    result = PlacementResult(
        placement,
        (spinning.events - evaluations) / total,
        counts.over_links / total,
        sum(map(len, delivered.values())) / total,
        total / took_s,
    )
    return result, delivered
