"""Jayaram, Jayalath and Eugster 2010: parametric subscriptions against re-subscription (Table 1, Figs. 8 a-l
and 9). As an experiment with stated assumptions: A, the costs of changes and events at a broker
(`jayaram_costs.py`); B, the throughput that follows (`jayaram_prediction.py`); C, overlays in virtual time at
these costs, and D, the same with one assumption changed (`jayaram_cases.py`, `jayaram_runs.py`). Runs use the
checked-in costs, so they are reproducible; metrics come from traces."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from covey.sim.experiments.papers.jayaram_calibrations import (
    Calibrations,
    checked_in,
    costs_note,
    most_filters,
)
from covey.sim.experiments.papers.jayaram_cases import BEYOND, Case, Grid, grid, pilots_of, warm_up_s
from covey.sim.experiments.papers.jayaram_findings import (
    assumptions,
    base_factor,
    best,
    costs,
    figures,
    gains,
    prediction,
    summary,
    table_1,
)
from covey.sim.experiments.papers.jayaram_runs import Results, run_grid
from covey.sim.experiments.papers.report import PaperFinding, PaperPlan, PaperReport
from covey.sim.progress import Progress, labelled

CITATION = (
    "Jayaram, Jayalath, Eugster: Parametric Subscriptions for Content-Based Publish/Subscribe Networks (2010)"
)
_SECONDS_PER_RUN = {"tiny": 1.0, "quick": 5.0, "full": 14.0}
"""Processor time of a run, with its share of the metrics."""


def checkers_note(violations: Sequence[int]) -> str:
    verdict = f"{sum(violations):,} violations" if any(violations) else "no violation"
    return f"The checkers judged {len(violations)} runs and found {verdict}."


def expected(runs: Grid, size: str) -> str:
    points = list(runs.points())
    count = len(points) + len(pilots_of(points))
    cores = os.cpu_count() or 1
    minutes = count * _SECONDS_PER_RUN[size] / cores / 60
    return f"{count} runs, about {minutes:,.0f} minutes on {cores} idle cores"


def run(plan: PaperPlan, progress: Progress) -> PaperReport:
    """All findings. Traces and results stay in the plan's folder, where an interrupted run resumes."""
    table = checked_in()
    runs = grid(plan, most_filters(table))
    progress = labelled(progress, expected(runs, plan.size))
    with ExitStack() as stack:
        folder = plan.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="covey-jayaram-"))
        calibrations = Calibrations.write(Path(folder) / "calibrations", table)
        results = run_grid(runs, calibrations, Path(folder), progress)
    return PaperReport(
        "jayaram",
        CITATION,
        plan.size,
        findings(results),
        notes(results),
        tuple(range(runs.first_seed, runs.first_seed + runs.seeds)),
        [*summary(runs.cases, base_factor(results)), best(results).conclusion],
        list(_TERMS),
    )


_TERMS = (
    ("HTM", "Highway traffic management (section 5.4): subscriptions are boxes around vehicles that drive."),
    ("AT", "Algorithmic trading (section 5.5): subscriptions are thresholds of prices that change."),
    ("artificial load", "That of Fig. 9: AT with more publishers, on a random tree."),
    ("the poset matches", "The order of filters by covering also finds what an event matches, as in Siena."),
    ("Rete matches", "An engine of its own finds what an event matches, beside the poset, as in EventJava."),
    ("re-subscription", "A change as a new subscription, after which the old one is cancelled."),
    ("utilisation", "The share of the busiest broker that changes take under re-subscription."),
    ("rho", "The utilisation that is aimed at, by the rate of changes; under 'rho measured' what it was."),
    ("s, u", "What a re-subscription and an update cost a broker."),
    ("lane", "What a broker serves one by one; with two, events and changes do not wait for each other."),
    ("spurious event", "One that reached a client for values that it had already changed."),
)


def findings(results: Results) -> list[PaperFinding]:
    """Table 1 and the gains first, then A, B, C, D."""
    table, cases, factor = checked_in(), results.grid.cases, base_factor(results)
    changed = [assumptions(results)] if results.grid.assumptions else []
    return [
        table_1(cases, factor),
        *gains(cases, factor),
        best(results),
        costs(table),
        prediction(cases, table),
        *figures(results, table),
        *changed,
    ]


def _described(case: Case) -> str:
    of = case.scenario
    return (
        f"{case.title.partition(',')[0]}: {of.brokers} brokers, {of.publishers} publishers with windows of "
        f"{of.window}, {of.subscribers} subscribers"
    )


def notes(results: Results) -> list[str]:
    scenario = results.grid.cases[0].scenario
    scales = [case.scenario.cpu_scale for case in results.grid.cases]
    warm_ups = [warm_up_s(case, case.scenario, 0.0) for case in results.grid.cases]
    longer = [
        f" ({case.title} at {case.rate(case.paper_rho):.0f}/s for a tenth of {case.steady_s:g} s)"
        for case in results.grid.cases
        if case.steady_s
    ]
    less = ""
    if results.grid.assumptions:
        less = ", in D where brokers are slowed less a tenth or a hundredth as long"
    return [
        "Systems share links, sessions and processes; they differ in the matcher, the poset and the way a "
        "subscription changes. Re-subscription is subscribe first, then unsubscribe. Links add 10 ms.",
        "rho is the share of the busiest broker that re-subscription takes. The paper draws 10 to 100 "
        "updates per second (per edge broker, as it says of HTM): "
        + ", ".join(
            f"{case.title} {case.full_rate:g}/s is rho 1, 100/s rho {100 / case.full_rate:.2f}"
            for case in results.grid.cases
        )
        + f". Rates above rho {BEYOND[-1]:g} are not drawn: re-subscription does not keep up with them. "
        "Fig. 9 goes to 1,000 per second and subscriber, more than a broker with these costs can serve.",
        "Base: with the poset as matcher one lane, first come, first served, as primitives are atomic and in "
        "order of invocation (section 4.2); with Rete two lanes, since forwarding is independent of updates "
        "(section 5.6), so throughput gains exactly nothing there, by construction.",
        "; ".join(dict.fromkeys(map(_described, results.grid.cases))) + ".",
        f"Time is virtual. Brokers are charged calibrated costs, times {min(scales):g} to {max(scales):g}: "
        "slowed k times at rate f a broker is as busy as at full speed at rate k f. A run is measured for "
        f"{scenario.duration_s:g} s after {min(warm_ups):g} to {max(warm_ups):g} s of warm-up"
        f"{''.join(longer)}{less}; these "
        f"{scenario.duration_s:g} s are at full speed {1e3 * scenario.duration_s / max(scales):g} to "
        f"{1e3 * scenario.duration_s / min(scales):g} ms. "
        "Publishers have windows, so that they fill what changes leave. Changes come evenly. Links are not "
        "slowed, so processing takes that much longer beside them than at full speed.",
        f"Costs: {costs_note()}.",
        f"Intervals are of 95 %, over {results.grid.seeds} seeds in C and {results.grid.assumption_seeds} in "
        "D (Student's t; ratios by seed).",
        checkers_note([run.violations for run in results.measured.values()]),
    ]
