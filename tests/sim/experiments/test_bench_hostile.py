"""`covey bench hostile`: some attacks for a moment, against broker processes."""

from __future__ import annotations

import asyncio

import pytest
from commands import run

from covey.sim.experiments.bench import hostile
from covey.sim.experiments.bench.hostile import ATTACKS, HostilePlan, HostileResult, Latency, measure_hostile


def test_the_command_prints_a_row_per_attack(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measured(plan: HostilePlan, *_: object) -> list[HostileResult]:
        near = Latency(0.5, 1.5, 3.0), Latency(1.0, 2.0, 3.0), Latency(2.0, 5.0, 9.0)
        far = Latency(0.5, 1.0, 3.0), Latency(1.0, 4.0, 5.0), Latency(2.0, 6.0, 7.0)
        return [HostileResult(each, 7, *near, *far, 99.5, 0.1) for each in plan.attacks]

    monkeypatch.setattr(hostile, "measure_hostile", measured)
    assert run("bench", "hostile", "--attacks", "end,churn") == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    numbers = ["7", "1.5", "2", "5", "2.5", "2", "9", "1", "4", "6", "99.5", "0.1"]
    assert [[row[0], *map(str, map(float, row[1:]))] for row in rows if row[:1] in (["end"], ["churn"])] == [
        [name, *map(str, map(float, numbers))] for name in ("end", "churn")
    ]


def test_an_unknown_attack_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("bench", "hostile", "--attacks", "earthquake") != 0
    assert "earthquake" in capsys.readouterr().err


@pytest.mark.thorough
def test_attacks_do_something_and_end() -> None:
    attacks = ("subscriptions", "end", "connections", "packets")
    assert set(attacks) < set(ATTACKS)
    plan = HostilePlan(attacks=attacks, rate=100, seconds=1.0, subscriptions=1_000)
    results = asyncio.run(measure_hostile(plan))
    assert [each.attack for each in results] == list(attacks)
    for each in results:
        assert each.done, each
        assert each.attacked.max >= each.attacked.p99 >= each.attacked.p50 > 0.0, each
