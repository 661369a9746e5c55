"""Filters with operators that cost 100 µs: time and evaluations per event by strategy (Liu et al.).

Subscriptions are those of Liu et al.'s workload (`sim/workload/overlapping.py`). They are matched by the
cluster engine, as a program would: once as calls alone, so that every event is open for every subscription,
and once behind a cheap predicate, the gate, which the engine tests first. All cases match the same events in
turns, in an order that rotates, so that they share what else the machine does; times are medians. Every
answer is compared with the truth.

`operators_overlay.py` measures evaluations in an overlay of brokers; this module knows no broker.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import mean, median
from time import perf_counter
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import typer

from benchmarks.operators_overlay import BROKERS, measure_placements
from benchmarks.spinning import EVENT_TYPE, REGIONS, OperatorsPlan, Spinning, call_texts, regions
from covey.cli.support.options import Json, Seed
from covey.cli.support.output import print_json, print_table
from covey.cli.support.progress import compile_once, progress
from covey.matcher import EventBatch, create_engine, parse
from covey.matcher.engine import Engine
from covey.matcher.errors import CoveyError
from covey.matcher.evaluation.problem import TRUE, Chains, Int64s, Truths
from covey.matcher.evaluation.strategies import STRATEGIES
from covey.sim.progress import Progress
from covey.sim.workload.overlapping import Overlapping, draw_truths

Mask = npt.NDArray[np.bool_]

ALONE, GATED = "operators only", "gated"
_WARM_UP = 1
"""Rounds before those that are measured, from which engines learn selectivities."""


@dataclass(frozen=True, slots=True)
class OperatorsResult:
    """One strategy, with or without a gate, per event."""

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
    ms: list[float]
    evaluations: list[int]
    calls: list[int]
    matches: list[int]


def measure_operators(plan: OperatorsPlan, progress: Progress) -> list[OperatorsResult]:
    """Match the same batches with every strategy, without and with a gate.

    Raises `CoveyError` if an engine answers wrongly.
    """
    chains = Overlapping(plan.subscriptions, plan.calls, 1.0, matching=plan.matching).chains(plan.seed)
    total = _WARM_UP + plan.rounds
    truths = draw_truths(chains, plan.events * total, plan.seed)
    subscribed = np.random.default_rng(plan.seed).integers(0, REGIONS, plan.subscriptions)
    spinning = Spinning(truths, plan.cost_us)
    with spinning.registered():
        cases = [
            _Case(
                filters, name, _engine(name, chains, subscribed if filters == GATED else None), [], [], [], []
            )
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
    case.ms.append(1e3 * (perf_counter() - start))
    case.evaluations.append(spinning.events - evaluations)
    case.calls.append(spinning.calls - calls)
    case.matches.append(len(ids))
    wrong = not np.array_equal(ids, np.nonzero(expected)[1])
    if wrong or not np.array_equal(np.diff(offsets), expected.sum(axis=1)):
        raise CoveyError(f"strategy {case.strategy}: matched other subscriptions than expected")


def _result(case: _Case, events: int) -> OperatorsResult:
    def per_event(values: list[int]) -> float:
        return mean(values[_WARM_UP:]) / events

    return OperatorsResult(
        case.filters,
        case.strategy,
        median(case.ms[_WARM_UP:]) / events,
        per_event(case.evaluations),
        per_event(case.calls),
        per_event(case.matches),
    )


def operators(
    subscriptions: Annotated[int, typer.Option(min=1, help="Number of subscriptions.")] = 1_000,
    calls: Annotated[int, typer.Option(min=5, help="Distinct calls that they share.")] = 200,
    events: Annotated[int, typer.Option(min=1, help="Events per batch.")] = 64,
    rounds: Annotated[int, typer.Option(min=1, help="Batches that each strategy matches.")] = 5,
    cost_us: Annotated[float, typer.Option(min=0, help="Cost of one call for one event, in µs.")] = 100.0,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Match filters whose calls cost real time, by every strategy of evaluation.

    Each subscription has 3 to 5 calls; 0.2 % of them match an event. "operators only": filters are calls
    alone. "gated": each filter also tests an attribute, which leaves one in 20 open for an event, and which
    the cluster engine tests first. All strategies match the same batches in turns; answers are compared.
    Then the calls alone are subscribed to in a chain of 5 simulated brokers, in one process: evaluations in
    all of them, with and without answers that subscriptions share and results that travel.

    Example: python -m benchmarks operators --cost-us 20 --json
    """
    plan = OperatorsPlan(subscriptions, calls, events, rounds, cost_us, seed=seed)
    compile_once()
    with progress() as on_progress:
        results = measure_operators(plan, on_progress)
        placements = measure_placements(plan, on_progress)
    if json_output:
        print_json(
            {
                "matching": [asdict(result) for result in results],
                "overlay": [asdict(result) for result in placements],
            }
        )
        return
    naive = {result.filters: result for result in results if result.strategy == "naive"}
    rows = [
        [
            result.filters,
            result.strategy,
            round(result.evaluations, 1),
            f"{1 - result.evaluations / max(naive[result.filters].evaluations, 1e-9):.0%}",
            round(result.calls, 2),
            round(result.ms, 3),
            round(result.ms - result.evaluations * cost_us / 1e3, 3),
            round(result.matches, 2),
        ]
        for result in results
    ]
    print_table(
        f"{subscriptions:,} subscriptions, {calls:,} distinct calls of {cost_us:g} µs, per event",
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
            for result in placements
        ],
    )
