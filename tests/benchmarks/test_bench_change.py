"""`python -m benchmarks change`: one short run over real brokers."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.change import ChangePlan, measure_changes


@pytest.mark.usefixtures("local_brokers")
def test_parametric_updates_over_real_brokers_miss_repeat_and_hand_out_nothing_stale() -> None:
    # Events are expected while no change is under way, so changes are far apart even for a loaded machine.
    plan = ChangePlan(("parametric",), ("both", "disjoint"), (300,), (10,), 1.0)
    results = asyncio.run(measure_changes(plan))
    assert [(r.missed, r.duplicate, r.stale) for r in results] == [(0, 0, 0)] * 2
    both, disjoint = results
    assert both.expected == both.delivered == both.published == 300
    assert disjoint.expected > 0
    assert disjoint.first_new_p50_ms is not None
