"""`covey bench soak`: a short run over broker processes, and its judgement."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from commands import run

from covey.sim.experiments.bench import soak
from covey.sim.experiments.bench.soak import Arrivals, SoakPlan, SoakResult, measure_soak, slope_of


@pytest.mark.parametrize(
    ("batches", "counts"),
    [
        ([[0, 1, 2], [3, 4]], (5, 0, 0)),
        ([[0, 1], [4, 5]], (4, 2, 0)),
        ([[0, 1, 1], [2]], (4, 0, 1)),
        ([[0, 2, 1, 3]], (4, 1, 1)),
        ([[1], [2]], (2, 1, 0)),
    ],
)
def test_missed_and_repeated_events_are_counted(
    batches: list[list[int]], counts: tuple[int, int, int]
) -> None:
    arrivals = Arrivals()
    for batch in batches:
        arrivals.add(np.array(batch))
    assert (arrivals.delivered, arrivals.missed, arrivals.repeated) == counts


@pytest.mark.parametrize(
    ("percent_per_hour", "hours", "flat"),
    [(0.0, 1.0, True), (0.8, 1.0, True), (1.3, 1.0, False), (1.3, 0.1, True), (90.0, 0.1, False)],
)
def test_memory_is_flat_by_its_slope(percent_per_hour: float, hours: float, flat: bool) -> None:
    rng = np.random.default_rng(5)
    seconds = np.arange(0.0, 3600.0 * hours, 5.0)
    memory = 200.0 * (1 + percent_per_hour / 100 * seconds / 3600) + rng.normal(0, 0.02, len(seconds))
    slope = slope_of(seconds + 700.0, memory, 3600.0 * hours)
    assert slope.low < percent_per_hour < slope.high
    assert slope.low < slope.percent_per_hour < slope.high
    assert slope.flat is flat


@pytest.mark.parametrize(
    ("result", "status"), [(SoakResult(1), 0), (SoakResult(1, missed=1), 1), (SoakResult(1, flat=False), 1)]
)
def test_the_command_says_whether_the_run_passed(
    result: SoakResult, status: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measured(*_: object) -> SoakResult:
        return result

    monkeypatch.setattr(soak, "measure_soak", measured)
    assert run("bench", "soak", "--seconds", 1) == status
    assert "left behind: nothing" in capsys.readouterr().out


@pytest.mark.thorough
def test_a_short_run_leaves_nothing_behind() -> None:
    plan = SoakPlan(
        seconds=8.0,
        rate=1000,
        measuring_s=0.5,
        visitors=2,
        clients=3,
        visit_s=(2.0, 3.0),
        sample_s=0.5,
        lease_s=1,
    )
    result = asyncio.run(measure_soak(plan))
    assert result.published == pytest.approx(8000, rel=0.2)
    assert (result.missed, result.repeated, result.left) == (0, 0, [])
    assert result.delivered >= 2 * result.published
    assert result.processes >= 4
    assert {sample.broker for sample in result.samples} == {"b1", "b2", "b3"}
    assert set(result.memory) == {"b1", "b2", "b3"}
