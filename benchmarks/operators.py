"""Filters with operators that cost 100 µs: time and evaluations per event (Liu et al.).

Subscriptions of Liu et al.'s workload (`sim/workload/overlapping.py`) are matched by the cluster engine with
every strategy: as calls alone, so that every event is open for every subscription, and behind a cheap
predicate, the gate, which the engine tests first. All cases match the same events in turns, in a rotating
order, so that they share the machine's other load; times are medians, and every answer is compared with the
truth.

Then the calls alone are spread over the clients of a chain of simulated brokers, without delays, in one
process on one core, to count who evaluates and how often. All placements get the same events; their
deliveries are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import mean, median
from time import perf_counter, perf_counter_ns
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import typer

from benchmarks.harness import command
from covey.cli.support.options import Seed
from covey.cli.support.output import print_table
from covey.matcher import EventBatch, EventType, create_engine, parse
from covey.matcher.engine import Engine
from covey.matcher.errors import CoveyError, InputError
from covey.matcher.evaluation.chainwise import ChainTable, Naive
from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.evaluation.problem import FALSE, TRUE, Chains, Int64s, Truths
from covey.matcher.evaluation.runner import Compute, Outcome
from covey.matcher.evaluation.strategies import STRATEGIES
from covey.matcher.events.event_type import Kind
from covey.matcher.operators.named_operator import NamedOperator, Parameter, Takes
from covey.matcher.operators.table import register, unregister
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.messages import Message, Publish
from covey.sim.progress import Progress
from covey.sim.simulator import Observer, Simulation, WireOptions
from covey.sim.simulator.observer import ObservedClient
from covey.sim.topology import make_topology
from covey.sim.workload.overlapping import Overlapping, draw_truths

NAME = "spin"
REGIONS = 20
EVENT_TYPE = EventType("frame", {"number": "int64", "region": "int64"})
"""`number` is the event's number, `region` one of REGIONS, which a cheap predicate tests."""


@dataclass(frozen=True, slots=True)
class OperatorsPlan:
    """Match filters whose calls cost real time, by every strategy of evaluation.

    Each subscription has 3 to 5 calls; 0.2 % of them match an event. "operators only": filters are calls
    alone. "gated": each filter also tests an attribute, which leaves one in 20 open for an event, and which
    the cluster engine tests first. All strategies match the same batches in turns; answers are compared.
    Then the calls alone are subscribed to in a chain of 5 simulated brokers, in one process: evaluations in
    all of them, with and without answers that subscriptions share and results that travel.

    Example: python -m benchmarks operators --cost-us 20 --json
    """

    subscriptions: Annotated[int, typer.Option(min=1, help="Number of subscriptions.")] = 1_000
    calls: Annotated[int, typer.Option(min=5, help="Distinct calls that they share.")] = 200
    events: Annotated[int, typer.Option(min=1, help="Events per batch.")] = 64
    rounds: Annotated[int, typer.Option(min=1, help="Batches that each strategy matches.")] = 5
    cost_us: Annotated[float, typer.Option(min=0, help="Cost of one call for one event, in µs.")] = 100.0
    seed: Seed = 0
    matching: float = 0.002


class Spinning:
    """`spin(number, p)`: from a table, the truth of predicate p for event `number`, after `cost_us` of real
    time. Counts the events and calls."""

    def __init__(self, truths: Truths, cost_us: float) -> None:
        self._truths = truths
        self._cost_ns = cost_us * 1_000
        self.events = self.calls = 0
        self.operator = NamedOperator(
            NAME,
            (
                Parameter("number", frozenset({Kind.INT64}), Takes.ATTRIBUTE),
                Parameter("predicate", frozenset({Kind.INT64}), Takes.CONSTANT),
            ),
            self._evaluate,
            "Spins, then looks its answer up.",
            cost_us=cost_us,
        )

    def _evaluate(self, numbers: pa.Array, predicate: int) -> pa.Array:
        answers = self._truths[predicate, numbers.to_numpy()] == TRUE
        self.calls += 1
        self.spin(len(numbers))
        return pa.array(answers)

    def spin(self, events: int) -> None:
        """Spend the time of one predicate for so many events, and count them."""
        end = perf_counter_ns() + self._cost_ns * events
        self.events += events
        while perf_counter_ns() < end:
            pass

    @contextmanager
    def registered(self) -> Iterator[None]:
        """Register the operator `spin` during the block. `CoveyError` where another has the name."""
        register(self.operator)
        try:
            yield
        finally:
            unregister(NAME)


class Alone(Naive):
    """Each subscription by itself: no answer is reused, and a repeated question spins again."""

    def __init__(self, spinning: Spinning) -> None:
        self._spinning = spinning

    def decide_chain(self, table: ChainTable, chain: int, rows: Int64s) -> Truths:
        predicates, left = table.predicates(chain), rows
        for predicate in predicates.tolist():
            before = self._spinning.events
            answers = table.ask(predicate, left)
            self._spinning.spin(len(left) - (self._spinning.events - before))
            left = left[answers != FALSE]
            if not len(left):
                break
        truths: Truths = table.known(predicates, rows).min(axis=0)
        return truths


def call_texts(count: int) -> str:
    """A conjunction of calls of `spin`, with the variables $p0, $p1, ..."""
    if count < 1:
        raise InputError(f"{count} calls: expected at least 1")
    return " and ".join(f"{NAME}(number, $p{place})" for place in range(count))


def regions(events: Int64s) -> Int64s:
    return events * 7 % REGIONS


BROKERS = 5


def _pass_on(operator: NamedOperator, key: int, events: int, compute: Compute) -> Outcome:
    """The runner of a broker that never evaluates."""
    return Outcome([], 0)


def _placements(spinning: Spinning) -> Mapping[str, Mapping[str, Any]]:
    """The options of a simulation, by placement; the last is that of Covey's brokers."""
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
    placement: str
    evaluations: float
    """Answers of the operator's function, in all brokers and clients."""
    messages: float
    """Events over the links of the chain."""
    deliveries: float
    events_per_s: float


Delivered = dict[tuple[str, int], list[int]]
"""The numbers of the delivered events, by client and subscription."""


class _Counts(Observer):
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
    """Publish the same events under every placement. `CoveyError` if deliveries differ."""
    chains = Overlapping(plan.subscriptions, plan.calls, 1.0, matching=plan.matching).chains(plan.seed)
    events = plan.events * plan.rounds
    spinning = Spinning(draw_truths(chains, events, plan.seed), plan.cost_us)
    results: list[PlacementResult] = []
    expected: Delivered | None = None
    with spinning.registered():
        placements = _placements(spinning)
        for step, (name, options) in enumerate(placements.items()):
            progress(name, step / len(placements))
            result, delivered = _measure_placement(plan, name, options, chains, spinning)
            if expected is not None and delivered != expected:
                raise CoveyError(f"placement {name}: delivered other events than {results[0].placement}")
            expected = delivered
            results.append(result)
    return results


def _measure_placement(
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


Mask = npt.NDArray[np.bool_]

ALONE, GATED = "operators only", "gated"
_WARM_UP = 1
"""Rounds before the measured ones, from which engines learn selectivities."""


@dataclass(frozen=True, slots=True)
class OperatorsResult:
    filters: str
    strategy: str
    ms: float
    """Median over the rounds."""
    evaluations: float
    calls: float
    """Of the operator's function, each for one or more events."""
    matches: float


@dataclass(slots=True)
class _Case:
    filters: str
    strategy: str
    engine: Engine
    rounds: list[tuple[float, int, int, int]] = field(default_factory=list)
    """Per round: ms, evaluations, calls and matches."""


def measure_operators(plan: OperatorsPlan, progress: Progress) -> list[OperatorsResult]:
    """Match the same batches with every strategy, without and with a gate. `CoveyError` for a wrong
    answer."""
    chains = Overlapping(plan.subscriptions, plan.calls, 1.0, matching=plan.matching).chains(plan.seed)
    total = _WARM_UP + plan.rounds
    truths = draw_truths(chains, plan.events * total, plan.seed)
    subscribed = np.random.default_rng(plan.seed).integers(0, REGIONS, plan.subscriptions)
    spinning = Spinning(truths, plan.cost_us)
    with spinning.registered():
        cases = [
            _Case(filters, name, _engine(name, chains, subscribed if filters == GATED else None))
            for filters in (ALONE, GATED)
            for name in reversed(STRATEGIES)
        ]
        for number in range(total):
            events = np.arange(number * plan.events, (number + 1) * plan.events)
            expected = _expected(chains, truths[:, events])
            for step in range(len(cases)):
                case = cases[(step + number) % len(cases)]
                progress(f"{case.filters}, {case.strategy}", (number + step / len(cases)) / total)
                gate = subscribed == regions(events)[:, np.newaxis] if case.filters == GATED else True
                _match(case, events, expected & gate, spinning)
    return [_result(case, plan.events) for case in cases]


def _engine(strategy: str, chains: Chains, subscribed: Int64s | None) -> Engine:
    """A cluster engine with all subscriptions; with `subscribed`, each for events of its region."""
    engine = create_engine("cluster", EVENT_TYPE, evaluation=strategy)
    lengths = np.diff(chains.offsets)
    for length in np.unique(lengths).tolist():
        ids = np.flatnonzero(lengths == length)
        places = chains.offsets[ids][:, np.newaxis] + np.arange(length)
        predicates = chains.predicates[places]
        values = {f"p{place}": predicates[:, place] for place in range(length)}
        text = call_texts(length)
        if subscribed is not None:
            text = f"region == $region and {text}"
            values["region"] = subscribed[ids]
        engine.add_many(ids, parse(text, EVENT_TYPE), values)
    return engine


def _expected(chains: Chains, truths: Truths) -> Mask:
    """Which subscriptions' calls are all true: bool[events, subscriptions]."""
    least: Truths = np.minimum.reduceat(truths[chains.predicates], chains.offsets[:-1])
    expected: Mask = (least == TRUE).T
    return expected


def _match(case: _Case, events: Int64s, expected: Mask, spinning: Spinning) -> None:
    columns = {"number": events, "region": regions(events)}
    batch = EventBatch.from_arrow(EVENT_TYPE, pa.RecordBatch.from_pydict(columns))
    evaluations, calls = spinning.events, spinning.calls
    start = perf_counter()
    offsets, ids = case.engine.match(batch).ordered()
    ms = 1e3 * (perf_counter() - start)
    case.rounds.append((ms, spinning.events - evaluations, spinning.calls - calls, len(ids)))
    wrong = not np.array_equal(ids, np.nonzero(expected)[1])
    if wrong or not np.array_equal(np.diff(offsets), expected.sum(axis=1)):
        raise CoveyError(f"strategy {case.strategy}: matched other subscriptions than expected")


def _result(case: _Case, events: int) -> OperatorsResult:
    ms, *counts = zip(*case.rounds[_WARM_UP:], strict=True)
    return OperatorsResult(
        case.filters, case.strategy, median(ms) / events, *(mean(c) / events for c in counts)
    )


def measure(plan: OperatorsPlan, progress: Progress) -> dict[str, list[Any]]:
    return {"matching": measure_operators(plan, progress), "overlay": measure_placements(plan, progress)}


def show(plan: OperatorsPlan, results: dict[str, list[Any]]) -> None:
    naive = {result.filters: result for result in results["matching"] if result.strategy == "naive"}
    rows = [
        [
            result.filters,
            result.strategy,
            round(result.evaluations, 1),
            f"{1 - result.evaluations / max(naive[result.filters].evaluations, 1e-9):.0%}",
            round(result.calls, 2),
            round(result.ms, 3),
            round(result.ms - result.evaluations * plan.cost_us / 1e3, 3),
            round(result.matches, 2),
        ]
        for result in results["matching"]
    ]
    calls = f"{plan.calls:,} distinct calls of {plan.cost_us:g} µs"
    print_table(
        f"{plan.subscriptions:,} subscriptions, {calls}, per event",
        ["filters", "strategy", "evaluations", "less than naive", "calls", "ms", "of it other", "matches"],
        rows,
    )
    print_table(
        f"a chain of {BROKERS} brokers, per event",
        ["placement", "evaluations", "events per link", "deliveries", "events/s"],
        [
            [
                result.placement,
                round(result.evaluations, 1),
                round(result.messages / (BROKERS - 1), 2),
                round(result.deliveries, 2),
                round(result.events_per_s),
            ]
            for result in results["overlay"]
        ],
    )


operators = command(OperatorsPlan, measure, show)
