"""`python -m benchmarks gateway`: one short run over a broker, two gateways and their browsers."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.gateway import (
    RUNS,
    GatewayPlan,
    GatewayResults,
    RunResult,
    Told,
    measure_gateway,
    show,
)
from covey.matcher.errors import CoveyError


@pytest.mark.thorough  # five processes
def test_all_is_got_or_told() -> None:
    policies = ("drop_oldest", "conflate", "disconnect")
    plan = GatewayPlan(browsers=8, silent=3, overflow=policies, share=0.5, seconds=0.3, rounds=1)
    results = asyncio.run(measure_gateway(plan))
    for each in results.runs:
        assert each.missing == 0
        assert each.max_ms[0] >= each.p99_ms[0] >= each.p50_ms[0] > 0.0
        assert each.frames_per_s[0] > 0.0
        assert each.peak_mb > 10.0
    assert [each.name for each in results.runs] == [*RUNS]
    oldest, conflated, disconnected = results.told
    assert oldest.notices["overflow"] == 1
    assert oldest.gaps["overflow"] > 0
    assert conflated.gaps["conflated"] > conflated.got > 0
    assert oldest.untold == conflated.untold == 0
    assert disconnected.notices["session ended"] == 1
    assert disconnected.untold > 0


def test_both_tables_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    result = RunResult("all read", [10.0, 12.0], [1.0, 2.0], [3.0, 9.0], [4.0, 9.5], [0.5, 0.7], 0, 99.04)
    told = Told("conflate", 2, 7, untold=0)
    told.gaps["conflated"] = 4000
    show(GatewayPlan(), GatewayResults([result], [told]))
    lines = capsys.readouterr().out.splitlines()
    (row,) = [line.split() for line in lines if "all read" in line]
    assert [*map(float, row[2:])] == [11.0, 1.5, 6.0, 9.0, 9.5, 0.0, 0.6, 99.0]
    (row,) = [line.split() for line in lines if "conflate" in line and "4,000" in line]
    assert row == ["conflate", "2", "7", "conflated", "4,000", "-", "0"]


def test_a_plan_needs_one_that_reads() -> None:
    with pytest.raises(CoveyError, match="silent is 2: expected from 1 to 1"):
        GatewayPlan(browsers=2, silent=2)
