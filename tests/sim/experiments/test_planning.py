"""`covey plan`: figures by broker from the simulator with a calibration, and from real brokers."""

from __future__ import annotations

import json
from pathlib import Path

import commands
import pytest
from running import free_ports

from covey.matcher.errors import InputError
from covey.overlay.node.config import load_overlay
from covey.sim.experiments import planning
from covey.sim.experiments.planning import (
    Calibration,
    calibrate,
    load_plan,
    measure,
    not_predicted,
    overridden,
    predict,
    share_played,
)
from covey.sim.scenario.scenario import Scenario, ScenarioError
from covey.sim.simulator.costs import Free
from covey.sim.topology import Topology, TreeLink

CHAIN = Topology("chain", ("b1", "b2", "b3"), (TreeLink("b1", "b2"), TreeLink("b2", "b3")))
SMALL = Scenario(
    brokers=3,
    publishers=2,
    subscribers=12,
    types=4,
    event_rate=50.0,
    update_rate=5.0,
    delay_ms=1.0,
    duration_s=1.0,
    engine="cluster",
)
CALIBRATION = Calibration(message_ns=200_000, idle_bytes=100 << 20)


def overlay_file(folder: Path, more: str = "") -> Path:
    file = folder / "overlay.yaml"
    brokers = "".join(
        f'  b{at}: {{address: "127.0.0.1:{port}"}}\n' for at, port in enumerate(free_ports(2), 1)
    )
    file.write_text(f"overlay: plan\nbrokers:\n{brokers}links: [[b1, b2]]\n{more}")
    return file


def scenario_file(folder: Path, text: str = "") -> Path:
    file = folder / "mine.yaml"
    file.write_text(text or "publishers: 2\nsubscribers: 6\ntypes: 3\nevent_rate: 20\nduration_s: 1\n")
    return file


def test_every_broker_has_rates_delays_memory_and_cores() -> None:
    figures = predict(SMALL, CHAIN, CALIBRATION)
    assert [each.broker for each in figures] == ["b1", "b2", "b3"]
    published = SMALL.publishers * SMALL.event_rate
    assert sum(each.events_in for each in figures) >= 0.8 * published
    assert sum(each.updates for each in figures) >= 0.5 * SMALL.subscribers * SMALL.update_rate
    delays = [each.delay_p50_ms for each in figures if each.delay_p50_ms is not None]
    assert delays
    assert min(delays) >= 1.0
    assert all(each.memory_bytes >= CALIBRATION.idle_bytes for each in figures)
    for each in figures:  # whatever its core takes, each message that it receives has its cost
        assert each.cores >= 0.95 * (each.events_in + each.updates) * CALIBRATION.message_ns / 1e9


def test_a_calibration_finds_the_cost_of_a_message_and_the_memory_of_a_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def real(scenario: Scenario, topology: Topology) -> planning._SimulatedPlan:
        return planning._SimulatedPlan(scenario, topology, CALIBRATION)

    monkeypatch.setattr(planning, "_RealPlan", real)
    monkeypatch.setattr(planning, "Measured", Free)
    found = calibrate()
    assert found.message_ns == pytest.approx(CALIBRATION.message_ns, rel=0.02)
    assert found.idle_bytes == CALIBRATION.idle_bytes


def test_a_calibration_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "machine.json"
    CALIBRATION.write(path)
    assert Calibration.read(path) == CALIBRATION
    path.write_text('{"message_ns": -1, "idle_bytes": 0}')
    with pytest.raises(InputError, match=r"machine\.json: message_ns is -1: expected a number greater"):
        Calibration.read(path)
    path.write_text('{"message": 1, "idle_bytes": 0}')
    with pytest.raises(InputError, match="message is unknown"):
        Calibration.read(path)
    with pytest.raises(InputError, match="cannot be written"):
        CALIBRATION.write(tmp_path / "nowhere" / "machine.json")


def test_the_overlay_and_the_machine_determine_all_but_the_load(tmp_path: Path) -> None:
    overlay = load_overlay(overlay_file(tmp_path, "damping: 2\n"), {})
    text = "subscribers: 6\ncpu: measured\nbrokers: 7\ntopology: line\nengine: naive\n"
    file = scenario_file(tmp_path, text)
    scenario = load_plan(file, overlay)
    assert (scenario.subscribers, scenario.cpu, scenario.brokers, scenario.topology) == (6, "free", 2, "")
    assert scenario.engine == overlay.engine
    assert not_predicted(overlay) == ["damping"]
    assert overridden(file, overlay) == [
        "brokers: 7 is not used: the overlay has 2",
        "topology: line is not used: the links are those of the overlay",
        f"engine: naive is not used: the overlay has {overlay.engine}",
        "cpu: measured is not used: costs are those of the calibration",
    ]
    assert overridden(scenario_file(tmp_path, "subscribers: 6\nbrokers: 2\n"), overlay) == []
    with pytest.raises(ScenarioError, match=r"mine\.yaml: subscriber is unknown"):
        load_plan(scenario_file(tmp_path, "subscriber: 7\n"), overlay)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calibration = tmp_path / "machine.json"
    CALIBRATION.write(calibration)
    words = ["plan", overlay_file(tmp_path), scenario_file(tmp_path), "--calibration", calibration]
    assert commands.run(*words) in (0, None)
    printed = capsys.readouterr().out
    assert [line.split()[:2] for line in printed.splitlines() if "predicted" in line] == [
        ["b1", "predicted"],
        ["b2", "predicted"],
    ]
    assert "together" in printed
    assert commands.run(*words, "--json") in (0, None)
    printed_json = json.loads(capsys.readouterr().out)
    assert len(printed_json["predicted"]) == 2
    assert "share_played" not in printed_json
    calibration.write_text("message_ns: x")
    assert commands.run(*words) == 2
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.thorough  # processes of brokers
def test_real_brokers_have_the_same_rates() -> None:
    predicted, measured = predict(SMALL, CHAIN, CALIBRATION), measure(SMALL, CHAIN)
    played = share_played(predicted, measured)
    assert 0.1 < played < 1.2  # a busy machine skips the rest of the schedule
    for expected, real in zip(predicted, measured, strict=True):
        assert real.events_in == pytest.approx(played * expected.events_in, rel=0.3, abs=5)
        assert real.events_out == pytest.approx(played * expected.events_out, rel=0.3, abs=5)
        assert real.cores > 0
        assert real.memory_bytes > 50 << 20
