"""`python -m benchmarks drift` on a small scale."""

from __future__ import annotations

import pytest

from covey.sim.experiments.bench.drift import DRIFTS, DriftPlan, measure_drift


@pytest.mark.parametrize("drift", DRIFTS)
def test_every_configuration_is_measured_at_every_step(drift: str) -> None:
    shares: list[float] = []
    plan = DriftPlan(drift, subscriptions=2_000, steps=2, events=3_000, repetitions=1)
    result = measure_drift(plan, lambda step, share: shares.append(share))
    assert {name: len(rates) for name, rates in result.rates.items()} == {"dynamic": 4, "no change": 3}
    assert shares == sorted(shares)
    document = result.as_json()
    assert document["dynamic_of_optimum"] == round(result.rates["dynamic"][-1] / result.optimum, 3)
