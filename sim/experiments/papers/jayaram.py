"""Jayaram, Jayalath and Eugster 2010: parametric subscriptions against re-subscription.

Table 1 and Figs. 8 a-l and 9: throughput, delay of a change and spurious events under rising rates of
updates, where the poset itself matches and where an engine beside it does; and Covey's best configuration
beside them. Runs are simulated (`jayaram_runs.py`), their metrics computed by Spark from their traces.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from covey.sim.experiments.papers.jayaram_findings import best, figures, table_1, work
from covey.sim.experiments.papers.jayaram_runs import experiments, play_experiments
from covey.sim.experiments.papers.points import PlayedPoint
from covey.sim.experiments.papers.report import PaperPlan, PaperReport
from covey.sim.experiments.progress import Progress

CITATION = (
    "Jayaram, Jayalath, Eugster: Parametric Subscriptions for Content-Based Publish/Subscribe Networks (2010)"
)


def judged(played: Sequence[PlayedPoint]) -> str:
    """A sentence on what the checkers found in all runs."""
    violations = sum(each.violations for each in played)
    found = "no violation"
    if violations:
        first = next(finding for each in played for finding in each.findings)
        found = f"violations, {violations:,} in all, such as: {first}"
    return f"The checkers judged {len(played)} runs and found {found}."


def run(plan: PaperPlan, progress: Progress) -> PaperReport:
    """All figures. Cost: `quick` is 76 runs, five to ten minutes of processor time."""
    with tempfile.TemporaryDirectory(prefix="covey-jayaram-") as folder:
        results = play_experiments(experiments(plan), Path(folder), progress)
    findings = [table_1(results)]
    for result in results:
        findings += [*figures(result), work(result)]
    findings.append(best(results))
    played = [each for result in results for each in result.played.values()]
    notes = [
        "All systems share links, sessions and process and differ in what matches, in how the poset is "
        "kept and in how a subscription changes. Re-subscription is subscribe first, then unsubscribe; the "
        "full size plays the other order as well.",
        "Time is virtual. A broker is charged the processor time that the real routing core took, times a "
        "factor that stands for rates too high to simulate: slowed k times at a rate f it is as busy as "
        "one at full speed at k times f. Links add 10 ms, as in the paper.",
        judged(played),
    ]
    return PaperReport("jayaram", CITATION, plan.size, findings, notes)
