"""Jayaram, Jayalath and Eugster 2010: parametric subscriptions against re-subscription.

Table 1 and Figs. 8 a-l and 9: throughput, delay of a change and spurious events under rising rates of
updates, with the poset and with an engine as matcher, and `covey-parametric` beside them. Runs are
simulated (`jayaram_runs.py`), their metrics computed by Spark from their traces.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from covey.sim.experiments.papers.jayaram_findings import best, costs, figures, table_1
from covey.sim.experiments.papers.jayaram_runs import experiments, run_experiments
from covey.sim.experiments.papers.report import PaperPlan, PaperReport
from covey.sim.experiments.runs.planned import RunOutcome
from covey.sim.progress import Progress

CITATION = (
    "Jayaram, Jayalath, Eugster: Parametric Subscriptions for Content-Based Publish/Subscribe Networks (2010)"
)


def checkers_note(finished: Sequence[RunOutcome]) -> str:
    """A sentence on the violations in all runs."""
    violations = sum(sum(each.counts.values()) for each in finished)
    verdict = "no violation"
    if violations:
        first = next(finding for each in finished for finding in each.findings)
        verdict = f"violations, {violations:,} in all, such as: {first}"
    return f"The checkers judged {len(finished)} runs and found {verdict}."


def run(plan: PaperPlan, progress: Progress) -> PaperReport:
    """All figures. Cost: `quick` is 64 runs, five to ten minutes of processor time."""
    with tempfile.TemporaryDirectory(prefix="covey-jayaram-") as folder:
        results = run_experiments(experiments(plan), Path(folder), progress)
    findings = [table_1(results)]
    for result in results:
        findings += [*figures(result), costs(result)]
    findings.append(best(results))
    finished = [each for result in results for each in result.finished.values()]
    notes = [
        "All systems share links, sessions and processes; they differ in the matcher, the poset and the "
        "way a subscription changes. Re-subscription is subscribe first, then unsubscribe; the "
        "full size plays the other order as well.",
        "Time is virtual. A broker is charged the processor time of the real routing core, times a factor "
        "that replaces rates too high to simulate: slowed k times at rate f it is as busy as one at full "
        "speed at rate k f. Links add 10 ms, as in the paper.",
        checkers_note(finished),
    ]
    return PaperReport("jayaram", CITATION, plan.size, findings, notes, (2010 + plan.seed,))
