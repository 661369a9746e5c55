"""The reproduction of Jayaram et al.: costs, prediction, the plan of its runs, and one evaluation at the
smallest size, where factors mean nothing and are not tested."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from math import inf
from multiprocessing import get_context
from pathlib import Path

import pytest

from covey.sim.experiments.papers import PaperPlan, jayaram_runs
from covey.sim.experiments.papers.documents import fill
from covey.sim.experiments.papers.estimates import Estimate
from covey.sim.experiments.papers.jayaram import checkers_note, expected, findings, run
from covey.sim.experiments.papers.jayaram_calibrations import Calibrations, checked_in, most_filters
from covey.sim.experiments.papers.jayaram_cases import (
    BASE,
    KNEE,
    Assumption,
    Case,
    Grid,
    Pilot,
    Point,
    grid,
    pilot_scenario,
    pilots_of,
    point_scenario,
    rate_for_one,
)
from covey.sim.experiments.papers.jayaram_costs import SHAPES, SYSTEMS, CostPlan, measure_costs
from covey.sim.experiments.papers.jayaram_findings import base_factor, claimed, prediction, summary, table_1
from covey.sim.experiments.papers.jayaram_prediction import (
    at,
    change_costs,
    closed_loop,
    settling_s,
    utilisation_for,
)
from covey.sim.experiments.papers.jayaram_runs import Measured, Results, Stored, run_grid
from covey.sim.experiments.papers.provenance import ROOT, digest, provenance
from covey.sim.experiments.papers.verdicts import Verdict, ahead
from covey.sim.experiments.runs.run_all import PlannedRun, RunOutcome, run_one
from covey.sim.simulator.costs import Calibrated, Sample


def test_costs_are_measured_for_every_system_shape_and_operation() -> None:
    table = measure_costs(CostPlan(filters=(10, 20), rounds=1, passes=2))
    assert table.keys() == checked_in().keys() == SYSTEMS.keys()
    for system, shapes in table.items():
        assert shapes.keys() == checked_in()[system].keys() == SHAPES.keys()
        for shape, operations in shapes.items():
            kinds = {"subscribe", "unsubscribe", "publish", "acknowledge"}
            assert operations.keys() == kinds | (set() if "static" in system else {"update"})
            assert operations.keys() == checked_in()[system][shape].keys()
            for points in operations.values():
                assert [count for count, _ in points] == [10, 20]
                assert all(ns > 0 for _, ns in points)


def test_the_closed_form() -> None:
    """With s = 3.8 ms and u = 1.5 ms, eight times at 92 % control load."""
    ratio = 1.5 / 3.8
    assert utilisation_for(8.0, ratio) == pytest.approx(0.92, abs=0.001)
    assert closed_loop(utilisation_for(8.0, ratio), ratio) == pytest.approx(8.0)


def test_costs_between_measured_numbers_agree_with_those_of_the_simulator() -> None:
    curves = checked_in()["siena-static"]["boxes"]
    charged = Calibrated(curves).charge(Sample("broker/b1", "Subscribe", 0, 150))
    assert charged == pytest.approx(at(curves["subscribe"], 150), abs=1)
    costs = change_costs(checked_in(), "siena-static", "siena-parametric-local", "boxes", 1_000)
    assert costs.ratio < 0.5


def test_every_figure_of_the_paper_is_planned() -> None:
    for size in ("quick", "full"):
        planned = grid(PaperPlan(size))
        names = [name for case in planned.cases for name in case.figures]
        assert sorted(names) == sorted(["9", *(f"8{letter}" for letter in "abcdefghijkl")])
        points = list(planned.points())
        assert len({point.name for point in points}) == len(points)
        assert "runs, about" in expected(planned, size)
        assert planned.seeds == 5, "fewer have no interval"
        for case in planned.cases:
            rates = {round(case.rate(rho)) for rho in case.drawn}
            highest = 100 if 0.95 * case.full_rate >= 100 else 50
            assert case.key == "fig9" or max(rates) == highest, "the paper's axis"
    assert len(list(grid(PaperPlan("full"), 1_000).points())) < len(points)


def test_a_point_makes_the_busiest_broker_as_busy_as_it_says(tmp_path: Path) -> None:
    planned = grid(PaperPlan("full"))
    calibrations = Calibrations.write(tmp_path, checked_in())
    case = planned.cases[0]
    (pilot,) = pilots_of([Point(case, BASE, case.static, KNEE, 1)])
    assert pilot == Pilot(case, 1)
    scenario = pilot_scenario(pilot, calibrations.files, 1e6)
    assert (scenario.event_rate, scenario.window) == (0.0, 0)
    busy = {
        "scenario": {"duration_s": 100.0, "subscribers": case.scenario.subscribers},
        "updates": 240,
        "busiest_share": 0.2,
    }
    rate = rate_for_one(busy)
    assert rate * case.scenario.subscribers == pytest.approx(12.0), "240 changes take 20 s"
    faster = next(a for a in planned.assumptions if a.key == "slowed-10")
    for assumption, factor in ((BASE, 1.0), (faster, 10.0)):
        point = Point(case, assumption, case.parametric, KNEE, 1)
        played = point_scenario(point, calibrations.files, rate, 0.0)
        assert played.update_rate == pytest.approx(KNEE * rate * factor, abs=1e-5)
        assert played.cpu_scale * played.update_rate == pytest.approx(KNEE * rate * case.scenario.cpu_scale)
        assert played.poset == "diagram-local"


def test_a_warm_up_is_as_long_as_the_order_of_messages_needs(tmp_path: Path) -> None:
    """Where changes wait behind events, windows drain later than where changes have their own lane."""
    planned = grid(PaperPlan("full"))
    calibrations = Calibrations.write(tmp_path, checked_in())
    case = planned.cases[0]
    services = {each.key: each for each in planned.assumptions if "service" in each.fields}
    warm_ups = [
        point_scenario(Point(case, assumption, case.static, KNEE, 1), calibrations.files, 1.0, 0.0).warm_up_s
        for assumption in (services["two-lanes"], services["control-first"], BASE, services["broker"])
    ]
    assert warm_ups == [6.25, 25.0, 75.0, 75.0]


def test_the_rates_of_full_utilisation_are_those_of_pilots(tmp_path: Path) -> None:
    """Updates per second and edge broker at which the busiest broker has no time left, at full speed."""
    case = grid(PaperPlan("full")).cases[2]
    calibrations = Calibrations.write(tmp_path, checked_in())
    pilot = Pilot(case, 2010)
    scenario = pilot_scenario(pilot, calibrations.files, calibrations.message_ns(pilot))
    outcome = run_one(PlannedRun(pilot.name, scenario), str(tmp_path))
    assert outcome.summary is not None
    per_broker = rate_for_one(outcome.summary) * scenario.subscribers / scenario.brokers
    assert per_broker * scenario.cpu_scale == pytest.approx(case.full_rate, rel=0.01)


def test_other_costs_are_other_scenarios(tmp_path: Path) -> None:
    table = checked_in()
    first = Calibrations.write(tmp_path, table)
    assert first == Calibrations.write(tmp_path, table)
    table["siena-static"]["boxes"]["publish"][0][1] += 1
    assert first.files["measured"] != Calibrations.write(tmp_path, table).files["measured"]
    assert most_filters(table) >= 1_000


def measured(throughput: float, delay_ms: float | None = 50.0, spurious: float = 1.0) -> Measured:
    return Measured(throughput, delay_ms, spurious, 100.0, 5, 10, 1.0, 10.0, 0)


def played(
    planned: Grid,
    case: Case,
    of: Callable[[int], tuple[Measured, Measured]],
    *,
    assumption: Assumption = BASE,
    rho: float = KNEE,
    seeds: int | None = None,
) -> dict[str, Measured]:
    """By run, each seed's result, numbered from 0: under re-subscription, and parametric."""
    return {
        Point(case, assumption, system, rho, planned.first_seed + seed).name: values
        for seed in range(planned.seeds if seeds is None else seeds)
        for system, values in zip((case.static, case.parametric), of(seed), strict=True)
    }


def test_none_under_resubscription_counts() -> None:
    planned = replace(grid(PaperPlan("quick")), seeds=2)
    case = planned.cases[0]
    runs = played(planned, case, lambda _: (measured(0.0, None, 4.0), measured(9.0, 50.0, 0.0)))
    results, metrics = Results(planned, runs), ("throughput", "delay", "spurious")
    factors = [str(results.factor(case, BASE, KNEE, metric)) for metric in metrics]
    assert factors == ["> 59.6", "> 100", "> 26.2"]


@pytest.mark.parametrize(("scale", "decided"), [(0.1, False), (10.0, True)])
def test_few_spurious_events_decide_nothing(scale: float, decided: bool) -> None:
    planned = grid(PaperPlan("quick"))
    case = planned.cases[0]

    def of(seed: int) -> tuple[Measured, Measured]:
        return measured(9.0, 50.0, scale * (1.0 + seed / 100)), measured(9.0, 50.0, scale * 0.5)

    factor = Results(planned, played(planned, case, of)).factor(case, BASE, KNEE, "spurious")
    assert factor is not None
    assert factor.value == pytest.approx(2.04, abs=0.01)
    assert ahead(factor) is decided


def test_a_delay_without_answers_under_resubscription_is_bounded_by_the_end_of_its_interval() -> None:
    planned = grid(PaperPlan("quick"))
    case = planned.cases[0]
    runs = played(planned, case, lambda seed: (measured(9.0, None if seed else 60.0), measured(9.0)))
    factor = Results(planned, runs).factor(case, BASE, KNEE, "delay")
    assert factor is not None
    assert (str(factor), factor.low, factor.high) == ("> 3.54", factor.value, inf)


def test_assumptions_are_compared_over_the_seeds_that_all_have() -> None:
    """Runs that an assumption does not change have the base's factor, though the base has further seeds."""
    planned = replace(grid(PaperPlan("full")), seeds=3, assumption_seeds=2)
    case = planned.cases[0]
    unmerged = next(each for each in planned.assumptions if each.key == "unmerged")

    def of(seed: int) -> tuple[Measured, Measured]:
        events = (40.0, 44.0, 10.0)[seed]
        return measured(4.0, 50.0, 0.0), measured(events, 50.0, 0.0)

    runs = played(planned, case, of) | played(planned, case, of, assumption=unmerged, seeds=2)
    results = Results(planned, runs)
    base, changed = (results.at_the_knee(case, each, "throughput") for each in (BASE, unmerged))
    assert base == changed
    assert base.runs == 2
    whole = results.factor(case, BASE, KNEE, "throughput")
    assert whole.runs == 3
    table = next(each for each in findings(results) if each.figure == "D, assumptions")
    conclusion = "Parametric subscriptions are ahead in 0 of 4 comparisons, behind in 0, "
    equal = "equal within 1.05 times in 0, open in 4."
    assert table.conclusion == conclusion + equal, "two seeds decide nothing"


@pytest.mark.parametrize(
    ("gains", "verdict"),
    [
        ((8.0, 8.1, 8.0), Verdict.HOLDS),
        ((1.2, 1.5, 1.8), Verdict.SMALLER),
        ((1.0, 1.0, 1.01), Verdict.NOT_HERE),
        ((8.0, 8.0, 0.5), Verdict.OPPOSITE),
    ],
)
def test_table_1_judges_the_paper_s_rates_and_shows_the_worst_beside_the_best(gains, verdict) -> None:
    """Planted gains at 10, 50 and 100 updates/s and edge broker; those beyond do not count."""
    (case, *_) = grid(PaperPlan("full")).cases

    def factor(case: Case, rho: float, metric: str) -> Estimate:
        value = gains[case.drawn.index(rho)] if rho in case.drawn else 30.0
        return Estimate(value, 0.99 * value, 1.01 * value, 5)

    row, *_ = table_1([case], factor).rows
    assert row["verdict"] is verdict
    assert all(f"{value:.2f} (" in str(row["at the paper's rates"]) for value in (min(gains), max(gains)))
    assert f"30 (29.7 to 30.3) ({case.rate(0.9):.0f}/s, rho 0.9)" in str(row["up to rho 0.95"])
    first = summary([case], factor)[0]
    seen = f"{gains[-1]:.2f} ({0.99 * gains[-1]:.2f} to {1.01 * gains[-1]:.2f}), {verdict}"
    assert first.startswith(f"HTM, the poset matches, 100/s, rho 0.772: throughput {seen}")


def test_gains_before_a_lane_is_steady_are_lower_bounds() -> None:
    """Where a bound below the claim leaves it undecided, the same measurement elsewhere decides."""
    planned, verdicts = grid(PaperPlan("quick")), {}
    for case in (planned.cases[0], planned.cases[2]):
        rho = case.drawn[0]
        runs = played(planned, case, lambda seed: (measured(10.0), measured(15.0 + seed / 100)), rho=rho)
        (throughput, *_) = claimed([case], base_factor(Results(planned, runs)))
        verdicts[case.key] = throughput.verdict([rho]), str(throughput.effects[rho])
    assert verdicts["htm-siena"] == (Verdict.UNDECIDED, "> 1.50")
    assert verdicts["at-siena"] == (Verdict.SMALLER, "1.50 (1.50 to 1.50)")


def test_a_loop_of_one_event_without_changes_is_steady_at_once() -> None:
    loops = ((1, 1e-9), (1, 0.5), (10, 0.5), (10, 0.9))
    times = [settling_s(events, 1.0, rho) for events, rho in loops]
    assert times == sorted(times)
    assert times[0] < 1.0


def test_the_prediction_s_verdict_follows_from_the_costs() -> None:
    """A nearly free update reaches the prediction's factors, one as expensive as a re-subscription none."""
    cases, table = grid(PaperPlan("full")).cases[:1], checked_in()
    assert prediction(cases, table).verdict is Verdict.SMALLER
    claimed_less = (replace(cases[0], claims=(1.5, 6.0, 6.0)),)
    assert prediction(claimed_less, table).verdict is Verdict.HOLDS
    static, parametric = (table[f"siena-{kind}"]["boxes"] for kind in ("static", "parametric-local"))
    parametric["update"] = [
        [n, a + b] for (n, a), (_, b) in zip(static["subscribe"], static["unsubscribe"], strict=True)
    ]
    assert prediction(cases, table).verdict is Verdict.NOT_HERE


def test_metrics_of_a_run_that_was_repeated_are_computed_again(tmp_path: Path) -> None:
    """A run is repeated under the same scenario where its trace is gone."""
    summary = {"scenario": {"seed": 1}, "delivered": 7, "real_s": 1.5}
    first = RunOutcome("a", "runs/a", summary)
    repeated = replace(first, summary={**summary, "delivered": 9})
    measured = Measured(1.0, None, 0.0, 0.5, 0, 3, 0.9, 20.0, 0)
    stored = Stored(tmp_path / "results.json")
    stored.put(first, measured)
    stored.save()
    stored = Stored(tmp_path / "results.json")
    assert stored.has(first)
    assert stored.get("a") == measured
    assert not stored.has(repeated)
    assert stored.has(replace(first, summary={**summary, "real_s": 2.5})), "the same but for its time"
    half = (tmp_path / "results.json").read_bytes()[:100]
    (tmp_path / "results.json").write_bytes(half)
    assert not Stored(tmp_path / "results.json").has(first), "half a file has no results"


def test_the_note_counts_violations() -> None:
    assert checkers_note([0, 0]) == "The checkers judged 2 runs and found no violation."
    assert checkers_note([0, 1203]) == "The checkers judged 2 runs and found 1,203 violations."


@pytest.mark.thorough
@pytest.mark.usefixtures("spark")
def test_an_evaluation_resumes(tmp_path: Path) -> None:
    shares: list[float] = []
    plan = PaperPlan("tiny", folder=str(tmp_path))
    report = run(plan, lambda step, share: shares.append(share))
    assert shares == sorted(shares)
    assert "no violation" in report.notes[-1]
    figures = ["Table 1", "Throughput", "Delay", "Spurious events", "Covey", "A, costs", "B, prediction"]
    assert [finding.figure for finding in report.findings[:7]] == figures
    kept = {"jayaram": {"provenance": provenance("jayaram", "tiny", (0,)), "report": report.as_json()}}
    assert "](jayaram-delay.png)" in fill((ROOT / "docs/evaluation.md").read_text(), kept, digest)
    for finding in report.findings:
        assert finding.rows
        assert finding.verdict in Verdict
        assert len({tuple(row) for row in finding.rows}) == 1
    again = run(plan, lambda step, share: None)
    assert again.as_json() == report.as_json()
    assert findings(Results(grid(plan), {}))[0].verdict is Verdict.UNDECIDED


def run_until(folder: Path, share: float, signal_number: int) -> Results:
    """Run two seeds of three runs, after a pilot each; at a share of the progress, send this process a
    signal."""
    tiny = grid(PaperPlan("tiny"))
    case = replace(tiny.cases[0], rhos=(KNEE,))
    small = replace(tiny, cases=(case,), assumptions=(), assumption_seeds=0)

    def progress(step: str, at: float) -> None:
        if at >= share:
            os.kill(os.getpid(), signal_number)

    calibrations = Calibrations.write(folder.parent / "calibrations", checked_in())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jayaram_runs, "_ROUND", 3)
        return run_grid(small, calibrations, folder, progress, jobs=1)


@pytest.mark.thorough
@pytest.mark.usefixtures("spark")
def test_an_evaluation_that_was_killed_has_the_results_of_one_that_was_not(tmp_path: Path) -> None:
    """Killed in the runs of the first seed, then interrupted in those of the second."""
    killed, never, whole = tmp_path / "killed", 2.0, tmp_path / "whole"
    process = get_context("spawn").Process(target=run_until, args=(killed, 0.15, signal.SIGKILL))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert 0 < len(list(killed.glob("*/runs/*/manifest.json"))) < 8
    with pytest.raises(KeyboardInterrupt):
        run_until(killed, 0.65, signal.SIGINT)
    resumed = run_until(killed, never, signal.SIGINT)
    assert len(resumed.measured) == 6
    assert resumed == run_until(whole, never, signal.SIGINT)
    code = digest("jayaram")
    assert (killed / code / "results.json").read_bytes() == (whole / code / "results.json").read_bytes()


def test_systems_of_one_matcher_have_one_cost_of_an_event() -> None:
    for systems in (("siena-static", "siena-parametric-local"), ("rete-static", "rete-parametric")):
        first, second = (checked_in()[system] for system in systems)
        for shape in SHAPES:
            assert first[shape]["publish"] == second[shape]["publish"]
