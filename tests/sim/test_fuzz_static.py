"""A thousand random histories under static routing, judged by the checkers (`covey sim fuzz`)."""

from __future__ import annotations

import pytest

from covey.sim.fuzz import Options, play

OPTIONS = Options(routing="static")


@pytest.mark.parametrize("hundred", range(10))
def test_a_hundred_histories(hundred: int) -> None:
    owed = 0
    for seed in range(100 * hundred, 100 * hundred + 100):
        outcome = play(seed, OPTIONS)
        assert not outcome.failed, f"{OPTIONS.command(seed)}: {[*outcome.findings, outcome.error]}"
        owed += outcome.owed
    assert owed > 200
