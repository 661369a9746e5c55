"""Costs as functions of the number of filters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.scenario.scenario import Scenario
from covey.sim.scenario.systems import find_system
from covey.sim.simulator.costs import CalibrationError, Sample
from covey.sim.simulator.filter_costs import FilterCosts, document_of, system_of

CURVES = {"publish": [[100, 1000], [10_000, 100_000]], "acknowledge": [[1, 10]]}


def sample(kind: str, filters: int, events: int = 0) -> Sample:
    return Sample(kind, events, 0, filters, 0)


def test_costs_are_linear_in_logarithms_and_constant_beyond() -> None:
    costs = FilterCosts(CURVES, scale=2.0)
    assert costs.charge(sample("Publish", 1_000, events=1)) == 20_000
    assert costs.charge(sample("Publish", 1_000, events=3)) == 60_000, "each event costs"
    assert costs.charge(sample("Publish", 10, events=1)) == 2_000
    assert costs.charge(sample("Publish", 10**6, events=1)) == 200_000
    assert costs.charge(sample("Connect", 5)) == costs.charge(sample("Acknowledge", 5)) == 20
    with pytest.raises(CalibrationError, match="no cost of update"):
        costs.charge(sample("Update", 5))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        (("poset", "diagram", "static"), "siena-static"),
        (("poset", "diagram-local", "parametric"), "siena-parametric-local"),
        (("rete", "diagram-local", "static"), "rete-static"),
        (("cluster", "forest", "parametric"), "covey-parametric"),
    ],
)
def test_a_system_is_named_after_its_options(options: tuple[str, str, str], name: str) -> None:
    assert system_of(*options) == name


@pytest.mark.parametrize(
    ("costs", "sentence"),
    [
        ({}, "costs.covey-parametric is missing"),
        ({"covey-parametric": {}}, "costs.covey-parametric.types is missing"),
        ({"covey-parametric": {"types": {"update": [[1]]}}}, "expected pairs of filters and nanoseconds"),
        ({"covey-parametric": {"types": {"update": []}}}, "expected pairs of filters and nanoseconds"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, costs: Any, sentence: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(json.dumps({"format": "covey-costs-1", "costs": costs}))
    with pytest.raises(CalibrationError, match=sentence):
        FilterCosts.read(path, document_of(path), "covey-parametric", "types", 1.0)


def test_a_run_takes_the_costs_of_its_system_and_load(tmp_path: Path) -> None:
    path = tmp_path / "costs.json"
    operations = ("subscribe", "unsubscribe", "update", "publish", "acknowledge")
    curves = {operation: [[1, 1_000_000]] for operation in operations}
    path.write_text(
        json.dumps({"format": "covey-costs-1", "costs": {"rete-parametric-local": {"types": curves}}})
    )
    scenario = find_system("rete-parametric").applied_to(
        Scenario(brokers=6, publishers=2, subscribers=6, types=4, duration_s=0.5, cpu=str(path))
    )
    summary = SimulatedRun(scenario.having(poset="diagram-local")).run()
    assert not summary.counts
    assert summary.busiest_share > 0
    with pytest.raises(CalibrationError, match=r"costs\.rete-static is missing"):
        SimulatedRun(scenario.having(routing="static"))
