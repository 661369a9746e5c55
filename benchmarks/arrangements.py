"""`arrangements`: the cluster engine beside itself without each of its arrangements, measured in turns. A
figure is the median of the rounds' ratios to the whole engine: 0.5 is half as fast, or half the bytes."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import median
from time import process_time
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import typer

from benchmarks.harness import Counts, Words, command
from covey.cli.support.options import Seed
from covey.cli.support.output import load_kernels, print_table
from covey.matcher import Engine, EventBatch, create_engine
from covey.matcher.engines.cluster import placement, row_bounds_kernels, store
from covey.matcher.engines.cluster.layout import arrays as a
from covey.matcher.engines.cluster.placement import Placement
from covey.matcher.engines.cluster.tuning import planning
from covey.matcher.engines.cluster.tuning.configuration import Policy
from covey.matcher.engines.cluster.tuning.costs import range_costs
from covey.matcher.engines.rows.store import RowStore
from covey.sim.progress import Progress, parts, silent
from covey.sim.workload import WORKLOADS, Boolean, Fabret, Subscriptions, Workload
from covey.sim.workload.boolean import pairs

NOTHING = "as it is"
MEASURES = ("load", "ids", "counts", "interfaces", "one event", "updates", "bytes")
_BATCH = 1_000
_UPDATES = 100_000
_INTERFACES = 16

Patches = Callable[[], Iterator[Any]]


def _ranges(most: int) -> Iterator[Any]:
    costs = range_costs
    yield patch.object(
        planning, "range_costs", lambda *given: [*costs(*given)[: most + 1], *[np.inf] * (2 - most)]
    )


def _unordered() -> Iterator[Any]:
    empty = Placement._empty

    def without(placement: Placement, arrays: a.StoreArrays) -> Any:
        arrangement = empty(placement, arrays)
        arrangement._ordered = False
        return arrangement

    yield patch.object(Placement, "_empty", without)


def _unfetched() -> Iterator[Any]:
    of = Policy.of
    yield patch.object(Policy, "of", lambda kind: replace(of(kind), lookahead=-1))


def _static() -> Iterator[Any]:
    of = Policy.of
    yield patch.object(Policy, "of", lambda kind: replace(of(kind), maintains=False))


def _wide_bounds() -> Iterator[Any]:
    def find_widths(_signatures: Any, _signature: int, _lows: Any, _highs: Any, widths: Any) -> int:
        widths[:] = a.EIGHT_BYTES
        return int(a.EIGHT_BYTES)

    yield patch.object(row_bounds_kernels, "find_widths", find_widths)


def _apart() -> Iterator[Any]:
    yield patch.object(store.ClusterStore, "insert_alike", RowStore.insert_alike)


ARRANGEMENTS: dict[str, Patches] = {
    NOTHING: lambda: iter(()),
    "zones of ordered buckets": _unordered,
    "tables by first test": lambda: iter(
        [patch.object(planning, "_ALIKE", np.inf), patch.object(planning, "_APART", np.inf)]
    ),
    "several equalities": lambda: iter([patch.object(planning, "ACCESS", 1)]),
    "hashed ranges": lambda: _ranges(0),
    "a second hashed range": lambda: _ranges(1),
    "leaves with bitmaps": lambda: iter([patch.object(planning, "_FEWEST_IN_LEAVES", 1 << 60)]),
    "prefetching": _unfetched,
    "maintenance": _static,
    "narrow bounds": _wide_bounds,
    "searches of a few events": lambda: iter([patch.object(store, "MOST_FEW", 0)]),
    "structures loaded together": _apart,
    "codes kept while loading": lambda: iter([patch.object(placement, "_KEPT_TESTS", 0)]),
    "the model of forms": lambda: iter(()),
}
"""By name: the patches that switch an arrangement off."""
SWITCHED = tuple(name for name in ARRANGEMENTS if name != NOTHING)
KNOWN = {**WORKLOADS, "fabret": Fabret(), "boolean": Boolean(shape=pairs(10, 2), fulfilled=0.02)}
CHOSEN = ("SYMBOLS", "VEHICLES", "BOX", "fabret", "boolean")


@dataclass(slots=True)
class _Contender:
    name: str
    engine: Engine
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @contextmanager
    def switched(self) -> Iterator[None]:
        with ExitStack() as off:
            for each in ARRANGEMENTS[self.name]():
                off.enter_context(each)
            yield

    def measure(self, name: str, action: Callable[[], object]) -> None:
        with self.switched():
            start = process_time()
            action()
            self.seconds.setdefault(name, []).append(process_time() - start)


@dataclass(frozen=True, slots=True)
class Plan:
    """Measure what each arrangement of the cluster engine brings: without it, as a ratio to the engine.

    Speeds are ratios of processor time: 0.50 is half as fast without. The ratio of bytes is of memory.

    Example: python -m benchmarks arrangements --workload BOX --subscriptions 100000
    """

    workload: Annotated[tuple[str, ...], Words("Workloads", KNOWN)] = CHOSEN
    subscriptions: Annotated[tuple[int, ...], Counts("Numbers of subscriptions")] = (10_000, 100_000)
    only: Annotated[tuple[str, ...], Words("Arrangements to switch off", SWITCHED, {"all": SWITCHED})] = (
        SWITCHED
    )
    rounds: Annotated[int, typer.Option(min=1, help="Measurements by turns; the median counts.")] = 5
    events: Annotated[int, typer.Option(min=1, help="Events per measurement.")] = 4_000
    seed: Seed = 0


def measure(plan: Plan, progress: Progress = silent) -> list[dict[str, Any]]:
    cases = list(product(plan.workload, plan.subscriptions))
    results = []
    for part, (name, size) in parts(progress, cases):
        part(f"{name}, {size:,}", 0.0)
        ratios = _ratios(plan, KNOWN[name], size)
        results.append({"workload": name, "subscriptions": size, "without": ratios})
    return results


def _ratios(plan: Plan, workload: Workload, subscriptions: int) -> dict[str, dict[str, float]]:
    """By arrangement, the ratio of each of MEASURES without it."""
    seed = plan.seed
    groups = workload.subscriptions(subscriptions, seed=seed)
    every = Subscriptions.of(groups)
    batch = workload.events(plan.events, seed=seed)
    moves = workload.moves(groups[0], seed=seed)
    contenders = []
    for name in (NOTHING, NOTHING, *plan.only):  # the first of a round finds cold caches, and is left out
        contender = _Contender(name, _engine(name, workload))
        with contender.switched():
            contender.engine = _engine(name, workload)
        contender.measure("load", lambda it=contender.engine: _load(it, every, batch))  # type: ignore[misc]
        contenders.append(contender)
    gc.collect()
    for _ in range(plan.rounds):
        for contender in contenders:
            engine = contender.engine
            contender.measure("ids", lambda it=engine: _match(it, batch, lambda m: m.ids()))  # type: ignore[misc]
            contender.measure("counts", lambda it=engine: _match(it, batch, lambda m: m.counts))  # type: ignore[misc]
            contender.measure(
                "interfaces",
                lambda it=engine: _match(it, batch, lambda m: m.interfaces()),  # type: ignore[misc]
            )
            contender.measure("one event", lambda it=engine: _one_by_one(it, batch))  # type: ignore[misc]
            if moves:
                ids = groups[0].ids[:_UPDATES]
                values = {variable: column[:_UPDATES] for variable, column in moves.items()}
                contender.measure(
                    "updates",
                    lambda it=engine, i=ids, v=values: (it.update_many(i, v), it.match(batch.slice(0, 1))),  # type: ignore[misc]
                )
    result = {}
    first = contenders[1]
    for contender in contenders[1:]:
        result[contender.name] = {
            name: median(first.seconds[name]) / median(contender.seconds[name]) for name in first.seconds
        } | {"bytes": _bytes(contender.engine) / _bytes(first.engine)}
    return result


def _engine(name: str, workload: Workload) -> Engine:
    forms = "normal" if name == "the model of forms" else "model"
    return create_engine("cluster", workload.event_type, forms=forms)


def _load(engine: Engine, every: Subscriptions, batch: EventBatch) -> None:
    engine.add_all(
        every.ids, every.filters, every.values, numbers=every.numbers, interface=every.ids % _INTERFACES
    )
    for start in range(0, len(batch), _BATCH):  # what is due is done
        engine.match(batch.slice(start, _BATCH)).counts  # noqa: B018


def _match(engine: Engine, batch: EventBatch, product: Callable[[Any], object]) -> None:
    for start in range(0, len(batch), _BATCH):
        product(engine.match(batch.slice(start, _BATCH)))


def _one_by_one(engine: Engine, batch: EventBatch) -> None:
    for at in range(min(500, len(batch))):
        engine.event_ids(batch.slice(at, 1))


def _bytes(engine: Engine) -> int:
    return sum(engine.memory_bytes().values())


def show(plan: Plan, results: list[dict[str, Any]]) -> None:
    for each in results:
        rows = [
            (name, *(f"{line[m]:.2f}" if m in line else None for m in MEASURES))
            for name, line in each["without"].items()
        ]
        title = f"{each['workload']}, {each['subscriptions']:,} subscriptions"
        print_table(title, ("without", *MEASURES), rows)


arrangements = command(Plan, measure, show, prepare=load_kernels)
