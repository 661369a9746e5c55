"""`python -m benchmarks hostile`: some attacks for a moment, against broker processes."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.hostile import ATTACKS, HostilePlan, HostileResult, Latency, measure_hostile, show


def test_each_attack_has_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    near = Latency(0.5, 1.5, 3.0), Latency(1.0, 2.0, 3.0), Latency(2.0, 5.0, 9.0)
    far = Latency(0.5, 1.0, 3.0), Latency(1.0, 4.0, 5.0), Latency(2.0, 6.0, 7.0)
    closed = {"ENHANCE_YOUR_CALM": 3}
    attacks = ("end", "churn")
    results = [HostileResult(each, 1, 7, closed, *near, *far, 99.5, 0.1) for each in attacks]
    show(HostilePlan(), results)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    numbers = ["1.5", "2", "5", "2.5", "2", "9", "1", "4", "6", "99.5", "0.1"]
    for name in attacks:
        (row,) = (row for row in rows if row[:1] == [name])
        assert row[1:4] == ["7", "3", "ENHANCE_YOUR_CALM"]
        assert list(map(float, row[4:])) == list(map(float, numbers))


@pytest.mark.thorough
def test_attacks_do_something_and_end() -> None:
    closed_soon = ("window_update", "priority", "unknown", "ping", "data_0", "messages_0")
    attacks = ("subscriptions", "end", "connections", "packets", *closed_soon, "values")
    assert set(attacks) < set(ATTACKS)
    plan = HostilePlan(attacks=attacks, rate=100, seconds=1.0, subscriptions=1_000, connections=(3,))
    results = asyncio.run(measure_hostile(plan))
    assert [each.attack for each in results] == list(attacks)
    for each in results:
        assert each.done, each
        if each.attack in closed_soon:
            assert "ENHANCE_YOUR_CALM" in each.closed, each
        assert each.attacked.max >= each.attacked.p99 >= each.attacked.p50 > 0.0, each
