"""`python -m benchmarks lone`: one short round of Covey, and the trace of its ways."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.lone import LonePlan, measure_lone, trace_ways


@pytest.mark.thorough
def test_a_round_has_user_time_latency_and_rates() -> None:
    plan = LonePlan(("covey",), rounds=1, rates=(100,), seconds=0.5, loop=200, readers=(1,))
    (result,) = asyncio.run(measure_lone(plan))
    assert result.label == "Covey"
    assert all(result.figures[name] > 0 for name in ("publisher us, 100/s", "subscriber us, 100/s"))
    assert 0 < result.figures["p50 ms, 100/s"] <= result.figures["p99 ms, 100/s"]
    assert result.figures["delivered/s, 1"] > 0


def test_a_trace_has_the_rooms_that_an_event_passes() -> None:
    traces = asyncio.run(trace_ways(1))
    assert traces["publish"].folders["overlay/core/routing"] > 0
    assert traces["update"].folders["overlay/core/covering"] > 0
