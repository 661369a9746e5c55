"""The reproduction of Jayaram et al. at the smallest size: rows of figures, and factors.

Whether a factor is reached is not tested: it would mean nothing at this size.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from covey.sim.experiments.papers import PaperPlan
from covey.sim.experiments.papers.jayaram import checkers_note
from covey.sim.experiments.papers.jayaram_findings import best, costs, figures, table_1
from covey.sim.experiments.papers.jayaram_runs import compare, experiments, run_experiments
from covey.sim.experiments.runs.planned import RunOutcome
from covey.sim.scenario.systems import SYSTEMS


@pytest.mark.thorough
@pytest.mark.usefixtures("spark")
def test_one_experiment_has_runs_metrics_and_findings(tmp_path: Path) -> None:
    (planned,) = experiments(PaperPlan("tiny"))[3:]
    shares: list[float] = []
    (result,) = run_experiments([planned], tmp_path, lambda step, share: shares.append(share))
    assert shares == sorted(shares)
    assert not any(each.failed for each in result.finished.values())
    assert all(summary["complete"] for summary in result.summaries.values())
    for (system, _), summary in result.summaries.items():
        assert summary["scenario"]["engine"] == SYSTEMS[system].engine
        assert summary["delivered"] > 0
    static, moving = (result.work(f"rete-{how}", 20.0) for how in ("subscribe-first", "parametric"))
    assert "Update" not in static
    assert "Unsubscribe" in static
    assert "Update" in moving
    findings = [table_1([result]), *figures(result), costs(result), best([result])]
    assert [finding.figure for finding in findings] == ["Table 1", "Fig. 9", "FIG9, costs", "Covey"]
    for finding in findings:
        assert finding.rows
        assert len({tuple(row) for row in finding.rows}) == 1
        assert finding.conclusion.endswith(".")


def test_the_note_counts_violations() -> None:
    good, bad = (
        RunOutcome("a", "", {"counts": {}, "findings": []}),
        RunOutcome(
            "b", "", {"counts": {"drop": 1203}, "findings": ["drop at 1.0 s: b1 dropped 2 events"]}
        ),
    )
    assert checkers_note([good, good]) == "The checkers judged 2 runs and found no violation."
    assert checkers_note([good, bad]) == (
        "The checkers judged 2 runs and found violations, 1,203 in all, such as: "
        "drop at 1.0 s: b1 dropped 2 events."
    )


def test_every_figure_of_the_paper_is_planned_at_every_size() -> None:
    for size in ("tiny", "quick", "full"):
        planned = experiments(PaperPlan(size))
        names = [name for e in planned for names in e.figures.values() for name in names]
        assert sorted(names) == sorted(["9", *(f"8{letter}" for letter in "abcdefghijkl")])
        assert all(set(e.systems) <= set(SYSTEMS) for e in planned)
        assert all(f"{s}-{how}" in e.systems for e in planned for s in e.claims for how in ("parametric",))


def test_a_factor_is_the_largest_over_the_rates_with_enough_events() -> None:
    (planned,) = experiments(PaperPlan("tiny"))[:1]
    slow, fast = planned.rates

    def summary(rate: float, delay: float, answered: int, spurious: int) -> dict[str, Any]:
        return {
            "throughput_events_per_s": rate,
            "delivered": 100,
            "delay_ms": {"mean": delay, "count": answered},
            "spurious_per_s": float(spurious),
            "spurious": spurious,
        }

    summaries = {
        (f"{system}-{how}", rate): summary(*numbers)
        for system in ("siena", "rete")
        for how, rate, numbers in (
            ("subscribe-first", slow, (100.0, 50.0, 9, 9)),
            ("parametric", slow, (110.0, 25.0, 9, 3)),
            ("subscribe-first", fast, (40.0, 900.0, 2, 40)),
            ("parametric", fast, (120.0, 30.0, 9, 10)),
        )
    }
    factors = {(r.system, r.metric): (r.factor, r.rate) for r in compare(planned, summaries)}
    assert factors["siena", "throughput"] == (3.0, planned.per * fast)
    assert factors["siena", "delay"] == (2.0, planned.per * slow), "two answers are too few"
    assert factors["rete", "spurious"] == (4.0, planned.per * fast), "three spurious events are too few"
