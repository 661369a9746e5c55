"""Single fields of a scenario: unused, impossible over real brokers, and paths."""

from pathlib import Path
from typing import Any

import pytest
from commands import run

from covey.sim.experiments.runs.real import RealRun
from covey.sim.scenario.scenario import (
    _RULES,
    Scenario,
    ScenarioError,
    beyond_real,
    effective,
    load_scenario,
    with_paths,
)


def test_every_row_is_that_of_a_field() -> None:
    assert set(_RULES) <= set(Scenario.__dataclass_fields__)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("jitter_ms", 1.0),
        ("loss", 0.1),
        ("crashes", 1),
        ("partitions", 2),
        ("engine", "poset"),
        ("poset", "naive"),
        ("poset", "diagram"),
        ("cpu", "measured"),
        ("cpu", "costs.json"),
        ("cpu_scale", 2.0),
        ("window", 3),
        ("warm_up_s", 1.0),
        ("service", "fifo"),
        ("merge", False),
    ],
)
def test_a_field_that_real_brokers_cannot_have_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ScenarioError) as raised:
        RealRun(Scenario(**{field: value}))
    assert str(raised.value).startswith(f"{field} is {value!r}: expected ")
    assert str(raised.value).endswith(" over real brokers")


def test_a_field_without_a_row_has_its_default_over_real_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(_RULES, "batch")
    assert beyond_real(Scenario(batch=4)) == "batch is 4: expected 1"
    assert not beyond_real(Scenario())


def test_scenarios_that_differ_without_effect_are_effectively_equal() -> None:
    assert effective(Scenario(load="highway", types=3)) == effective(Scenario(load="highway"))
    assert effective(Scenario(types=3)) != effective(Scenario())
    assert effective(Scenario(resubscribe="unsubscribe-first", name="mine")) == effective(Scenario())
    static = Scenario(routing="static")
    assert effective(static.having(resubscribe="unsubscribe-first")) != effective(static)
    assert effective(Scenario(cpu_scale=3.0)) == effective(Scenario())


def test_paths_are_relative_to_the_file_that_states_them(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(
        "load: detectors\nspeeds: data/speeds.csv\nsensors: /else/sensors.csv\ncpu: costs.json\n"
    )
    scenario = load_scenario(tmp_path / "mine.yaml")
    assert scenario.speeds == str(tmp_path / "data" / "speeds.csv")
    assert scenario.sensors == "/else/sensors.csv"
    assert scenario.cpu == str(tmp_path / "costs.json")
    for word in ("free", "measured"):
        assert with_paths({"cpu": word, "speeds": "", "brokers": 3}, tmp_path) == {
            "cpu": word,
            "speeds": "",
            "brokers": 3,
        }


def test_paths_on_the_command_line_are_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (tmp_path / "mine.yaml").write_text("cpu: in-the-file.json\n")
    assert run("sim", "../mine.yaml") == 2
    assert f"{tmp_path / 'in-the-file.json'}: cannot be read" in capsys.readouterr().err
    assert run("sim", "../mine.yaml", "--cpu", "here.json") == 2
    assert f"{folder / 'here.json'}: cannot be read" in capsys.readouterr().err
