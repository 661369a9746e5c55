"""Costs of messages: curves, measured totals, and the file of a calibration."""

import json
from pathlib import Path
from typing import Any

import pytest

from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.scenario.scenario import SYSTEMS, Scenario, cost_key
from covey.sim.simulator.costs import (
    Calibrated,
    CalibrationError,
    Free,
    Measured,
    Sample,
    constant,
    load_costs,
    save_costs,
)


def charge(costs: Calibrated, kind: str, filters: int = 1, events: int = 0) -> int:
    return costs.charge(Sample("broker/b", kind, events, filters))


def test_logarithms_are_interpolated_and_constant_beyond_the_points() -> None:
    costs = Calibrated({"publish": [(10, 1000), (1000, 100_000), (10_000, 200_000)]})
    assert [charge(costs, "Publish", filters, 1) for filters in (0, 1, 10, 100, 1000, 10_000)] == [
        1000,
        1000,
        1000,
        10_000,
        100_000,
        200_000,
    ]
    assert charge(costs, "Publish", 100_000, 1) == 200_000
    assert charge(costs, "Publish", 100, 7) == 70_000, "a cost of each event"


def test_scale_multiplies_calibrated_costs() -> None:
    costs = Calibrated({"publish": [(1, 100), (100, 10_000)]}, scale=3.0)
    assert [charge(costs, "Publish", n, 1) for n in (1, 10, 100)] == [300, 3000, 30_000]
    assert Free().charge(Sample("broker/b", "Publish", 1, 1)) == 0


def test_what_has_no_curve_costs_as_what_is_like_it() -> None:
    costs = Calibrated({"publish": constant(9), "subscribe": constant(5), "acknowledge": constant(1)})
    kinds = ("Update", "Unsubscribe", "Disconnect", "Advertise", "Tick", "Subscribe")
    assert [charge(costs, kind) for kind in kinds] == [5, 5, 5, 1, 1, 5]
    assert charge(Calibrated({"publish": constant(9), "subscribe": constant(5)}), "Advertise") == 0


def test_measured_costs_are_totals_however_many_there_are() -> None:
    costs = Measured(scale=2.0)
    for _ in range(30_000):
        assert costs.charge(Sample("broker/b", "Publish", 2, 100, 50)) == 100
    costs.charge(Sample("broker/b", "Subscribe", 0, 100, 70))
    costs.charge(Sample("broker/b", "Subscribe", 0, 1000, 700))
    costs.charge(Sample("broker/b", "Connect", 0, 0, 7))
    assert costs.took_ns == {"publish": 1_500_000, "subscribe": 770, "connect": 7}
    assert costs.curves() == {"publish": [(100.0, 25.0)], "subscribe": [(100.0, 70.0), (1000.0, 700.0)]}


def test_a_file_has_costs_by_system_and_shape(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    table = {"siena-static": {"boxes": {"publish": [(10.0, 5.0), (20.0, 9.0)], "subscribe": [(10.0, 3.0)]}}}
    save_costs(file, table, "a test")
    assert load_costs(file, "siena-static", "boxes") == table["siena-static"]["boxes"]
    with pytest.raises(CalibrationError, match="costs has no system 'rete-static'; it has siena-static"):
        load_costs(file, "rete-static", "boxes")
    with pytest.raises(CalibrationError, match="no shape of a load 'types'; it has boxes"):
        load_costs(file, "siena-static", "types")
    with pytest.raises(CalibrationError, match="expected at least publish and subscribe"):
        save_costs(file, {"siena-static": {"boxes": {"publish": constant(1)}}}, "")


def test_a_scenario_finds_its_costs() -> None:
    keys = {name: cost_key(system.applied_to(Scenario(load="highway"))) for name, system in SYSTEMS.items()}
    assert keys["siena-parametric"] == ("siena-parametric", "boxes")
    assert keys["rete-unsubscribe-first"] == keys["rete-subscribe-first"] == ("rete-static", "boxes")
    assert keys["covey-parametric"] == ("covey-parametric", "boxes")
    local = SYSTEMS["siena-parametric"].applied_to(Scenario(load="market")).having(poset="diagram-local")
    assert cost_key(local) == ("siena-parametric-local", "thresholds")
    assert cost_key(Scenario()) == ("naive-forest-parametric", "types")
    assert cost_key(Scenario(engine="poset", load="quotes")) == ("siena-parametric", "types")


def test_work_is_added_up_by_broker_and_kind_in_the_measured_phase(tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    curves = {"publish": constant(2e6), "subscribe": constant(1e6), "update": constant(5e5)}
    save_costs(file, {"naive-forest-parametric": {"types": curves}}, "")
    scenario = Scenario(
        brokers=6, publishers=2, subscribers=20, types=4, duration_s=2.0, cpu=str(file), cpu_scale=2.0
    )
    summary = SimulatedRun(scenario).run()
    work = summary.work
    assert not {"Advertise", "SyncBegin"} & set(work), "set-up is not measured"
    assert work["Update"]["busy_ns"] == work["Update"]["messages"] * 1e6 > 0
    assert work["Publish"]["events"] >= summary.published > 0
    assert work["Publish"]["busy_ns"] == work["Publish"]["events"] * 4e6
    by_broker = summary.work_of_brokers
    assert set(by_broker) <= {f"broker/{name}" for name in SimulatedRun(scenario).topology.brokers}
    for kind, total in work.items():
        for name, value in total.items():
            assert value == sum(kinds[kind][name] for kinds in by_broker.values() if kind in kinds)
    busiest_ns = max(sum(each["busy_ns"] for each in kinds.values()) for kinds in by_broker.values())
    assert summary.busiest_share == pytest.approx(busiest_ns / 2e9, abs=0.003)


def costs_of(curves: Any) -> str:
    return json.dumps({"format": "covey-costs-1", "costs": {"s": {"boxes": curves}}})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "not a calibration file; expected one of format covey-costs-1"),
        (json.dumps({"format": "covey-costs-1"}), "costs is None; expected an object with a system"),
        (costs_of({"publish": [[1, 2]]}), "costs.s.boxes: expected curves of at least publish and subscribe"),
        (costs_of({"publish": [], "subscribe": [[1, 2]]}), r"costs.s.boxes.publish is \[\]; expected pairs"),
        (costs_of({"publish": [[1]], "subscribe": []}), r"publish has \[1\]; expected \[filters, nano"),
        (costs_of({"publish": [[1, -2]], "subscribe": []}), r"publish has \[1, -2\]; expected"),
        (costs_of({"publish": [[2, 1], [2, 1]], "subscribe": []}), "has 2 filters; expected rising numbers"),
        (costs_of({"publish": [[1, 2]], "subscribe": [[1, 2]], "walk": []}), "walk is unknown; expected one"),
    ],
)
def test_an_invalid_calibration_file_is_rejected_by_name(text: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "costs.json"
    file.write_text(text)
    with pytest.raises(CalibrationError, match=complaint):
        load_costs(file, "s", "boxes")
    with pytest.raises(CalibrationError, match="cannot be read"):
        load_costs(tmp_path / "absent.json", "s", "boxes")


def test_progress_of_a_run_never_goes_back() -> None:
    shares: list[float] = []
    scenario = Scenario(brokers=4, publishers=2, subscribers=200, types=4, duration_s=0.2, warm_up_s=0.1)
    SimulatedRun(scenario.having(cpu="measured")).run(progress=lambda step, share: shares.append(share))
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] <= 1
