"""Sweep files: grids and mistakes. `test_metrics.py` runs a sweep, in its Spark session."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from commands import run

from covey.matcher.errors import CoveyError
from covey.sim.experiments.runs.run_all import RunOutcome, _check_names
from covey.sim.experiments.sweep import load_sweep
from covey.sim.progress import Progress
from covey.sim.scenario.scenario import Scenario

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "sweep.yaml"


def sweep_of(folder: Path, text: str) -> dict[str, Scenario]:
    file = folder / "sweep.yaml"
    file.write_text(text)
    return {run.name: run.scenario for run in load_sweep(file)}


def test_the_grid_has_every_combination_in_order(tmp_path: Path) -> None:
    runs = sweep_of(
        tmp_path,
        "scenario: {brokers: 3, seed: 5}\n"
        "vary:\n"
        "  update_rate: [1, 2.5]\n"
        "  routing: [static, parametric]\n"
        "seeds: 2\n",
    )
    assert list(runs)[:3] == [
        "update-rate-1_static_seed-5",
        "update-rate-1_static_seed-6",
        "update-rate-1_parametric_seed-5",
    ]
    assert len(runs) == 8
    assert runs["update-rate-2.5_parametric_seed-6"] == Scenario(
        brokers=3, seed=6, update_rate=2.5, routing="parametric"
    )


def test_fields_may_vary_together_under_a_name(tmp_path: Path) -> None:
    runs = sweep_of(
        tmp_path,
        "vary:\n  system:\n"
        "    old: {routing: static, resubscribe: unsubscribe-first}\n    new: {routing: parametric}\n",
    )
    assert runs == {
        "old_seed-0": Scenario(routing="static", resubscribe="unsubscribe-first"),
        "new_seed-0": Scenario(),
    }


def test_names_that_differ_in_what_a_folder_cannot_have_are_those_of_different_runs(tmp_path: Path) -> None:
    choices = ["größer", "grüßer", "grösser", "a b", "a-b", "A b", "plain"]
    text = "vary:\n  size:\n" + "".join(f"    {c}: {{brokers: {n + 2}}}\n" for n, c in enumerate(choices))
    runs = sweep_of(tmp_path, text)
    assert [scenario.brokers for scenario in runs.values()] == [n + 2 for n in range(len(choices))]
    assert len({name.lower() for name in runs}) == len(choices)
    assert "plain_seed-0" in runs
    assert list(sweep_of(tmp_path, text)) == list(runs)
    assert [run.choices["size"]["name"] for run in load_sweep(tmp_path / "sweep.yaml")] == choices
    _check_names(load_sweep(tmp_path / "sweep.yaml"))


def test_a_scenario_file_is_relative_to_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("brokers: 7\n")
    assert sweep_of(tmp_path, "scenario: mine.yaml\nvary: {seed: [3, 4]}\n") == {
        "seed-3": Scenario(brokers=7, seed=3),
        "seed-4": Scenario(brokers=7, seed=4),
    }


def test_paths_are_relative_to_the_sweep_or_to_the_scenario_file_that_it_names(tmp_path: Path) -> None:
    (tmp_path / "scenarios").mkdir()
    (tmp_path / "scenarios" / "mine.yaml").write_text("load: detectors\nspeeds: s.csv\nsensors: s.csv\n")
    runs = sweep_of(
        tmp_path,
        "scenario: scenarios/mine.yaml\n"
        "vary:\n  cpu: [free, costs.json]\n  data: {a: {speeds: a.csv}, b: {speeds: b.csv}}",
    )
    assert {(Path(s.speeds), Path(s.sensors), s.cpu) for s in runs.values()} == {
        (tmp_path / speeds, tmp_path / "scenarios" / "s.csv", cpu)
        for speeds in ("a.csv", "b.csv")
        for cpu in ("free", str(tmp_path / "costs.json"))
    }
    (in_the_sweep,) = sweep_of(tmp_path, "scenario: {cpu: costs.json}").values()
    assert in_the_sweep.cpu == str(tmp_path / "costs.json")


def test_the_documented_sweep_is_valid(tmp_path: Path) -> None:
    page = (EXAMPLE.parent.parent / "docs" / "metrics.md").read_text()
    (shown,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    assert len(sweep_of(tmp_path, shown)) == 18


def test_the_example_is_a_valid_sweep() -> None:
    runs = load_sweep(EXAMPLE)
    assert len(runs) == 18
    assert {run.scenario.routing for run in runs} == {"static", "parametric"}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("vary: {speed: [1]}", "vary: speed is unknown: did you mean speeds"),
        ("vary: {brokers: [0]}", "brokers is 0: expected at least 1"),
        ("vary: {brokers: []}", r"vary.brokers is \[\]: expected a list of values"),
        ("vary: {brokers: [2, 2]}", "expected each value once"),
        ("vary: {system: {a: 3}}", "vary.system.a is 3: expected a mapping"),
        ("vary: {system: {a: {speed: 3}}}", "vary.system.a: speed is unknown"),
        (
            "scenario: {load: highway}\nvary: {types: [3, 4]}",
            "the runs types-3_seed-0 and types-4_seed-0 are the same: types has no effect: load is highway: "
            "expected load trading or market",
        ),
        (
            "vary: {routing: [static, parametric], resubscribe: [subscribe-first, unsubscribe-first]}",
            "resubscribe has no effect: routing is parametric: expected routing static",
        ),
        ("vary: {system: {a: {brokers: 3}, b: {brokers: 3}}}", "runs a_seed-0 and b_seed-0 are the same$"),
        ("vary: {kind: {a: {seed: 3}}}", "vary.kind.a has a seed: expected it in seeds, or"),
        ("vary: {name: [a, b]}", "name has no effect: a name changes nothing"),
        ("vary: {seed: [1]}\nseeds: 2", "seeds is 2, and seed varies"),
        ("vary: [1]", r"vary is \[1\]: expected a valid dictionary"),
        ("seeds: 0", "seeds is 0: expected a number greater than or equal to 1"),
        ("seeds: 200000", "vary makes 200,000 runs: expected at most 100,000"),
        ("scenario: absent.yaml", "absent.yaml: cannot be read"),
        ("scenario: {speed: 1}", "scenario: speed is unknown"),
        ("scenario: 3", "scenario is 3: expected a mapping"),
        ("runs: 3", "runs is unknown: expected one of scenario, vary, seeds"),
        ("- 1", r"the document is \[1\]: expected a mapping"),
        ("a: [", "no YAML"),
        ("vary:\n  loss: [0]\n  loss: [0.1]", "no YAML at line 3, column 3: loss is there twice"),
    ],
)
def test_an_invalid_sweep_file_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(CoveyError, match=complaint):
        sweep_of(tmp_path, text)
    with pytest.raises(CoveyError, match="cannot be read"):
        load_sweep(tmp_path / "absent" / "sweep.yaml")


@pytest.mark.parametrize(
    ("errors", "words", "out", "err"),
    [
        (["has no places"], ["--json"], "[]\n", "run seed-0 failed: has no places\n"),
        (
            ["3 brokers", "a process died", "3 brokers", "3 brokers"],
            [],
            "",
            "run seed-0 and 2 more failed: 3 brokers\ncovey: run seed-1 failed: a process died\n",
        ),
        ([""], [], "", None),  # its trace cannot be read
    ],
)
def test_a_sweep_fails_with_a_sentence_for_each_reason(
    errors: list[str],
    words: list[str],
    out: str,
    err: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcomes = [RunOutcome(f"seed-{n}", str(tmp_path), error=error) for n, error in enumerate(errors)]
    monkeypatch.setattr("covey.sim.experiments.runs.run_all.run_all", lambda *arguments: outcomes)
    monkeypatch.setattr("covey.cli.metrics.print_metrics", lambda *arguments, **options: True)
    assert run("sweep", str(EXAMPLE), "--out", str(tmp_path), *words) == 1
    printed = capsys.readouterr()
    assert err is None or (printed.out, printed.err) == (out, f"covey: {err}")


@pytest.mark.thorough
@pytest.mark.usefixtures("spark")
def test_one_command_goes_from_a_scenario_to_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    (tmp_path / "mine.yaml").write_text("brokers: 4\ntypes: 5\nsubscribers: 9\nduration_s: 1\n")
    page = tmp_path / "run.html"
    steps: list[str] = []

    @contextmanager
    def recorded() -> Iterator[Progress]:
        yield lambda step, share: steps.append(step)

    monkeypatch.setattr("covey.cli.support.output.progress", recorded)
    assert run("sim", tmp_path / "mine.yaml", "--seed", 3, "--report", page) == 0
    assert steps.index("checking") < steps.index("starting Spark") < steps.index("page")
    assert capsys.readouterr().out.endswith(f"  report: {page}\n")
    assert "Run mine" in page.read_text()
    assert not list(folder.glob("covey-sim-*")), "the trace is temporary"


def test_a_page_that_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("sim", "--report", tmp_path / "no" / "run.html") == 2
    assert capsys.readouterr().err.count("\n") == 1
