"""A thousand random histories under static routing, judged by the checkers (`covey sim fuzz`)."""

from __future__ import annotations

import pytest
from histories import play_all

from covey.sim.experiments.fuzz import Options

OPTIONS = Options(routing="static")


@pytest.mark.parametrize("hundred", range(10))
def test_a_hundred_histories(hundred: int) -> None:
    owed = play_all(range(100 * hundred, 100 * hundred + 100), OPTIONS)
    assert owed > 200
