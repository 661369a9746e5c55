"""Fabret et al. 2001, sections 2.4 and 6.2: the two phases of matching, and single changes.

Phase one finds the predicates that an event satisfies, phase two the subscriptions. The reference engine
`propagation` has both, so that the first can be run alone. `dynamic` tests predicates in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise, product
from statistics import median
from time import process_time
from typing import cast

from covey.matcher import Engine, EventBatch, Filter
from covey.matcher.engines.reference.propagation import PropagationEngine
from covey.sim.experiments.bench.match import make_engine
from covey.sim.experiments.papers.estimates import Estimate, gain
from covey.sim.experiments.papers.measuring import settling
from covey.sim.experiments.papers.report import Cell, PaperFinding, PaperPlan
from covey.sim.experiments.papers.verdicts import Claim, claimed, decide, extremes, together
from covey.sim.progress import Progress, parts
from covey.sim.reports import Bars, Curves
from covey.sim.workload import Subscriptions, Workload


def phases(
    workload: Workload, sizes: Sequence[int], engines: Mapping[str, str], plan: PaperPlan, progress: Progress
) -> PaperFinding:
    """The phases of the first engine, propagation, beside the whole of the second, over sizes."""
    propagation, dynamic = engines
    count = plan.pick(100, 2_000, 10_000)
    first: dict[int, list[float]] = {size: [] for size in sizes}
    second: dict[int, list[float]] = {size: [] for size in sizes}
    others: dict[int, list[float]] = {size: [] for size in sizes}
    for inner, (size, seed) in parts(progress, [*product(sizes, plan.seeds)]):
        inner("phases", 0.0)
        events = workload.events(count, seed=seed)
        loaded = {name: _loaded(engine, workload, size, plan, seed) for name, engine in engines.items()}
        two_phases, one_phase = cast(PropagationEngine, loaded[propagation]), loaded[dynamic]
        one, both, other = _times(
            plan,
            partial(two_phases.satisfied_predicates, events),
            partial(_match, two_phases, events),
            partial(_match, one_phase, events),
        )
        first[size].append(one)
        second[size].append(max(0.0, both - one))
        others[size].append(other)
    effects = {
        f"{x:,} to {y:,}": _grown(second[x], second[y], first[x], first[y]) for x, y in pairwise(sizes)
    }
    shown = {"phase one": first, "phase two": second, f"{dynamic}, whole": others}
    series = {
        name: [(float(size), 1e6 * median(of[size]) / count) for size in sizes] for name, of in shown.items()
    }
    rows: list[dict[str, Cell]] = [
        {"subscriptions": size} | {f"{name} us": round(points[at][1], 3) for name, points in series.items()}
        for at, size in enumerate(sizes)
    ]
    return PaperFinding(
        "Sect. 6.2, phases",
        "time per event in the two phases of propagation with prefetching (W0)",
        "Satisfied predicates take all algorithms the same, whatever the subscriptions; the second phase of "
        "propagation grows with them.",
        f"By how much more the second phase grows, which alone is judged. {claimed(effects)} Attributes are "
        "encoded in the first.",
        decide(Claim(), [*effects.values()]),
        rows,
        Curves("subscriptions", "us per event", series, log_x=True, log_y=True),
    )


def _grown(
    second_before: list[float], second_after: list[float], first_before: list[float], first_after: list[float]
) -> Estimate | None:
    if not all(second_before):
        return None
    second = [after / before for before, after in zip(second_before, second_after, strict=True)]
    first = [after / before for before, after in zip(first_before, first_after, strict=True)]
    return gain(second, first)


def _times(plan: PaperPlan, *actions: Callable[[], object]) -> list[float]:
    times = []
    for action in actions:
        action()
        calls = max(1, int(plan.pick(0.0, 0.1, 0.3) / max(_seconds(action, 1), 1e-6)))
        times.append(_seconds(action, calls) / calls)
    return times


def _seconds(action: Callable[[], object], times: int) -> float:
    start = process_time()
    for _ in range(times):
        action()
    return process_time() - start


def _loaded(name: str, workload: Workload, count: int, plan: PaperPlan, seed: int) -> Engine:
    engine = make_engine(name, workload, 1)
    some = Subscriptions.of(workload.subscriptions(count, seed=seed))
    engine.add_all(some.ids, some.filters, some.values, numbers=some.numbers)
    event = workload.events(plan.pick(100, 2_000, 10_000), seed=seed)
    for _ in range(settling(count, len(event)) if name.startswith("cluster") else 1):
        engine.match(event).ids()
    return engine


_ALIKE = 1.5
"""Times that are within so many times each other are about equal."""


def changes(
    workload: Workload, engines: Mapping[str, str], plan: PaperPlan, progress: Progress
) -> PaperFinding:
    """Single insertions and deletions, with what each leaves to the next match: a match follows every one,
    whose usual time is subtracted."""
    count, few = plan.pick(200, 50_000, 300_000), plan.pick(10, 300, 1_000)
    inserting: dict[str, list[float]] = {name: [] for name in engines}
    deleting: dict[str, list[float]] = {name: [] for name in engines}
    matching: dict[str, list[float]] = {name: [] for name in engines}
    for inner, seed in parts(progress, plan.seeds):
        more = Subscriptions.of(workload.subscriptions(count + few, seed=seed)).slice(count, count + few)
        single = [_single(more, at) for at in range(few)]
        event = workload.events(1, seed=seed)
        for name, text in engines.items():
            inner(f"changing {name}", 0.0)
            engine = _loaded(text, workload, count, plan, seed)
            inserted = _seconds(partial(_insert, engine, single, event), 1)
            deleted = _seconds(partial(_delete, engine, more.ids.tolist(), event), 1)
            matched = _seconds(partial(_match, engine, event), few)
            inserting[name].append(max(0.0, inserted - matched))
            deleting[name].append(max(0.0, deleted - matched))
            matching[name].append(matched)
    effects = {name: gain(inserting[name], deleting[name]) for name in engines}
    dearer = {name: gain(inserting[name], matching[name]) for name in engines}
    alike = [None if each is None else each.under(_ALIKE) for each in dearer.values()]
    shown = {"insertion": inserting, "deletion": deleting, "match of an event": matching}
    rows: list[dict[str, Cell]] = [
        {"algorithm": name}
        | {f"{what} us": round(1e6 * median(of[name]) / few, 1) for what, of in shown.items()}
        for name in engines
    ]
    return PaperFinding(
        "Sect. 2.4",
        f"single insertions and deletions ({count:,} subscriptions, W0)",
        "An insertion costs about as much as matching an event; deletions are fast, since it is kept in "
        "which cluster a subscription is.",
        f"An insertion takes so many times as long as the match of an event, where {_ALIKE:g} would be "
        f"alike: {extremes(dearer)}; and as a deletion: {extremes(effects)}. A match is a call with one "
        "event, most of whose time is that of the call. A change has what it leaves to the next match: the "
        "reference engines compare changed rows by themselves and are built anew once one row in 32 has "
        "changed.",
        together([decide(Claim(), alike), decide(Claim(), [*effects.values()])]),
        rows,
        Bars(
            "us",
            [*engines],
            {what: [1e6 * median(of[name]) / few for name in engines] for what, of in shown.items()},
            dots=True,
            log=True,
        ),
    )


def _single(of: Subscriptions, at: int) -> tuple[int, Filter, dict[str, int]]:
    filter = of.filters[int(of.numbers[at])]
    return int(of.ids[at]), filter, {name: of.values[name][at].item() for name in filter.variables}


def _match(engine: Engine, events: EventBatch) -> None:
    engine.match(events).ids()


def _insert(engine: Engine, single: Sequence[tuple[int, Filter, dict[str, int]]], event: EventBatch) -> None:
    for each in single:
        engine.add(*each)
        _match(engine, event)


def _delete(engine: Engine, ids: Sequence[int], event: EventBatch) -> None:
    for each in ids:
        engine.remove(each)
        _match(engine, event)
