"""Planned runs in one folder: names and resuming."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from covey.matcher.errors import CoveyError, InputError
from covey.sim.experiments.runs.run_all import (
    PlannedRun,
    Processes,
    RunOutcome,
    SparkTasks,
    executor_at,
    expected_work,
    run_all,
    run_one,
)
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.scenario.scenario import Scenario, cost_key
from covey.sim.simulator.costs import OPERATIONS, save_costs
from covey.sim.trace.finding import find_traces

SMALL = Scenario(brokers=4, publishers=1, subscribers=3, types=2, duration_s=0.5, update_rate=9.0)


class Here:
    """Runs in this process, recorded."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def run(
        self, planned: Sequence[PlannedRun], folder: str, ended: Callable[[int], None]
    ) -> list[RunOutcome]:
        self.names += [run.name for run in planned]
        return [run_one(run, folder) for run in planned]


def names_of(planned: Sequence[PlannedRun], folder: Path) -> list[str]:
    """The names of the repeated runs."""
    executor = Here()
    run_all(planned, folder, executor)
    return executor.names


def test_a_run_is_repeated_that_was_real_and_with_changed_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = tmp_path / "costs.json"
    system, shape = cost_key(SMALL)
    table = {system: {shape: {kind: [[1, 1000]] for kind in OPERATIONS}}}
    save_costs(costs, table, "here")
    planned = [PlannedRun("a", SMALL.having(cpu=str(costs)))]
    assert [names_of(planned, tmp_path / "runs") for _ in range(2)] == [["a"], []]
    save_costs(costs, table, "there")
    assert names_of(planned, tmp_path / "runs") == ["a"]
    plain = PlannedRun("b", SMALL)
    with monkeypatch.context() as over_processes:
        over_processes.setattr(SimulatedRun, "real", True)
        assert names_of([plain], tmp_path / "runs") == ["b"]
    assert [names_of([plain], tmp_path / "runs") for _ in range(2)] == [["b"], []]


def test_what_is_complete_is_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = [PlannedRun("a", SMALL), PlannedRun("b", SMALL.having(seed=1))]
    assert names_of(planned, tmp_path) == ["a", "b"]
    assert names_of(planned, tmp_path) == []
    assert names_of([*planned, PlannedRun("c", SMALL)], tmp_path) == ["c"]
    assert names_of([PlannedRun("a", SMALL.having(seed=2)), planned[1]], tmp_path) == ["a"]
    monkeypatch.setattr("covey.sim.experiments.runs.run_all.version", lambda package: "0.0.1")
    assert names_of(planned, tmp_path) == ["a", "b"], "another version of Covey"


def test_a_trace_has_the_choices_of_its_sweep(tmp_path: Path) -> None:
    choices = {"system": {"name": "größer", "fields": {"brokers": 4}}}
    planned = [PlannedRun("a", SMALL, choices=choices)]
    assert [names_of(planned, tmp_path) for _ in range(2)] == [["a"], []]
    (manifest,) = find_traces([tmp_path / "a"]).runs.values()
    assert manifest.choices == choices
    assert names_of([PlannedRun("a", SMALL)], tmp_path) == ["a"]


def test_outcomes_have_the_order_of_the_plan_and_the_summary_of_the_run(tmp_path: Path) -> None:
    planned = [PlannedRun("b", SMALL), PlannedRun("a", SMALL.having(load="highway", topology="line"))]
    for reused in (False, True):
        good, failed = run_all(planned, tmp_path, Here())
        assert good.summary is not None
        assert (good.run, good.failed, good.reused, good.findings) == ("b", False, reused, [])
        assert good.summary["work"]["Update"]["messages"] > 0
        assert failed.failed
        assert not failed.reused
        assert "has no positions and roads" in failed.error


@pytest.mark.parametrize(
    ("names", "complaint"),
    [
        (["a", "b", "a"], "run a is planned 2 times: expected a name of its own for each run"),
        (["a/b"], "run 'a/b': expected a name of letters, digits and"),
        (["_a"], "run '_a': expected"),
        ([".."], "run '..': expected"),
    ],
)
def test_names_are_those_of_folders_and_unique(names: list[str], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(CoveyError) as raised:
        run_all([PlannedRun(name, SMALL) for name in names], tmp_path, Here())
    assert complaint in str(raised.value)


def test_processes_give_what_this_process_gives(tmp_path: Path) -> None:
    planned = [PlannedRun("a", SMALL), PlannedRun("b", SMALL.having(seed=1))]
    steps: list[tuple[str, float]] = []
    there = run_all(planned, tmp_path / "there", Processes(1), lambda *step: steps.append(step))
    assert steps == [("0 of 2 runs", 0.0), ("1 of 2 runs", 0.5), ("2 of 2 runs", 1.0)]
    here = run_all(planned, tmp_path / "here", Here())
    for one, other in zip(here, there, strict=True):
        assert one.summary is not None
        assert one.summary["delivered"] == other.summary["delivered"]


def test_longer_runs_come_first() -> None:
    long = SMALL.having(duration_s=9.0)
    assert sorted([SMALL, long], key=expected_work) == [SMALL, long]
    assert expected_work(SMALL) < expected_work(SMALL.having(brokers=30))


def test_an_attempt_that_was_broken_off_does_not_count(tmp_path: Path) -> None:
    planned = [PlannedRun("a", SMALL)]
    run_all(planned, tmp_path, Here())
    (tmp_path / "a" / "manifest.json").unlink()
    (attempt,) = (tmp_path / "a").iterdir()
    manifest = attempt / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"complete"', '"running"'))
    assert names_of(planned, tmp_path) == ["a"]
    assert names_of(planned, tmp_path) == []


def test_a_task_that_is_run_twice_has_one_result(tmp_path: Path) -> None:
    planned = PlannedRun("a", SMALL)
    first, second = (run_one(planned, str(tmp_path)) for _ in range(2))
    assert first.summary is not None
    assert second == replace(first, summary=json.loads(json.dumps(first.summary)))
    assert len([each for each in (tmp_path / "a").iterdir() if each.is_dir()]) == 1


def test_tables_of_all_runs_are_read_at_once(tmp_path: Path) -> None:
    planned = [PlannedRun("a", SMALL), PlannedRun("b", SMALL.having(seed=1))]
    outcomes = run_all(planned, tmp_path, Here())
    (tmp_path / "report.html").write_text("<html>")
    files = sorted(tmp_path.glob("*/*/versions/*.parquet"))
    table = pd.concat([pd.read_parquet(folder) for folder in {file.parent for file in files}])
    updates = table[table["version"] > 0].groupby("run", observed=True).size().to_dict()
    assert updates == {outcome.run: (outcome.summary or {})["updates"] for outcome in outcomes}


def test_the_folder_may_be_a_uri(tmp_path: Path) -> None:
    (outcome,) = run_all([PlannedRun("a", SMALL)], f"file://{tmp_path}/there", Here())
    assert (tmp_path / "there" / "a" / "manifest.json").exists()
    assert not outcome.failed


@pytest.mark.parametrize(
    ("master", "executor"),
    [
        (None, Processes(0)),
        ("local", Processes(1)),
        ("local[*]", Processes(0)),
        ("local[3]", Processes(3)),
        ("local[3,2]", Processes(3)),
        ("local-cluster[2,1,1024]", SparkTasks("local-cluster[2,1,1024]")),
        ("spark://head:7077", SparkTasks("spark://head:7077")),
    ],
)
def test_runs_on_this_machine_need_no_spark(master: str | None, executor: object) -> None:
    assert executor_at(master) == executor


def test_spark_connect_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Spark Connect runs queries alone"):
        run_all([PlannedRun("a", SMALL)], tmp_path, executor_at("sc://head:15002"))
