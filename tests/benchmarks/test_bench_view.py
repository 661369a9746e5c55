"""`python -m benchmarks view`: a few moves over real brokers, each judged by the scan."""

from __future__ import annotations

import asyncio

import pytest

from benchmarks.view import ViewPlan, measure_view
from covey.matcher.errors import InputError


@pytest.mark.usefixtures("local_brokers")
def test_the_delta_of_each_move_is_that_of_a_scan() -> None:
    results = asyncio.run(measure_view(ViewPlan(2_000, 400, (20, 100), moves=4, redis=False)))
    assert [(each.system, each.moves, each.wrong) for each in results] == [
        ("view", 4, 0),
        ("scan in this process", 4, 0),
        ("view", 4, 0),
        ("scan in this process", 4, 0),
    ]
    assert all(0 < each.p50_ms <= each.p99_ms for each in results)


def test_a_plan_that_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match="deltas: 300, expected at most half of the 400 keys inside"):
        ViewPlan(2_000, 400, (20, 300))
    with pytest.raises(InputError, match="inside: 1500, expected at most half of the 2000 keys"):
        ViewPlan(2_000, 1_500)
