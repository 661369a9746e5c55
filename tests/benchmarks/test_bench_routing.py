"""`python -m benchmarks routing`: figures match the broker's work, and all posets send the same."""

from __future__ import annotations

import json

import pytest
from commands import measure

from benchmarks.routing import RoutingPlan, measure_routing


@pytest.mark.parametrize("name", ["SYMBOLS", "VEHICLES"])
def test_posets_send_the_same_and_large_scans_are_skipped(name: str) -> None:
    posets = ("forest", "naive", "diagram")
    plan = RoutingPlan((name,), (60, 120), posets, updates=200, cancels=40, scan_limit=60)
    results = {(result.poset, result.filters): result for result in measure_routing(plan)}
    assert len(results) == 6
    forest = results["forest", 60]
    assert 0 < (forest.slots or 0) <= 60
    assert min(forest.sub_us or 0, forest.upd_us or 0, forest.usub_us or 0) > 0
    for poset in ("naive", "diagram"):
        assert results[poset, 60].slots == forest.slots
        assert results[poset, 120].upd_us is None
    assert (results["forest", 120].slots or 0) >= (forest.slots or 0)
    assert all(result.excess in (0.0, None) for result in results.values())


def test_merging_uses_fewer_slots_with_some_excess() -> None:
    mergings = ("off", "perfect", "budget")
    plan = RoutingPlan(("SYMBOLS",), (200,), ("forest",), 100, 2_000, mergings, 4, cancels=20, events=2_000)
    off, perfect, budget = measure_routing(plan)
    assert (off.slots or 0) >= (perfect.slots or 0) > (budget.slots or 0)
    assert (off.excess, perfect.excess) == (0.0, 0.0)
    assert (budget.slots or 0) <= 4
    assert 0 < (budget.excess or 0) < 1


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--workload", "VEHICLES", "--filters", "50, 100", "--posets", "forest, naive", "--updates", "60"]
    assert measure("routing", *words, "--json") == 0
    cases = json.loads(capsys.readouterr().out)
    assert [case["filters"] for case in cases] == [50, 50, 100, 100]
