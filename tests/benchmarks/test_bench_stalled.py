"""`python -m benchmarks stalled`: a short run over two brokers."""

from __future__ import annotations

import json

import pytest
from commands import measure


@pytest.mark.thorough
def test_others_get_all_events_and_the_one_that_stalls_loses_some(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("--policies", "drop_newest", "--rate", "50", "--seconds", "1", "--rounds", "1", "--json")
    assert measure("stalled", *arguments) == 0
    (result,) = json.loads(capsys.readouterr().out)
    assert result["policy"] == "drop_newest"
    assert 0 < result["p50_stalled"] <= result["p99_stalled"]
    assert 0 < result["dropped"] < result["published"]
