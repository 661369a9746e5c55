"""Random histories under parametric routing, judged by the checkers (`covey sim fuzz`)."""

from __future__ import annotations

from draws import some_seeds
from histories import play_all

from covey.sim.experiments.fuzz import FuzzOptions

OPTIONS = FuzzOptions(routing="parametric")


@some_seeds("fuzzer, parametric", parts=20)
def test_histories(seeds: range) -> None:
    expected = play_all(seeds, OPTIONS)
    assert expected > len(seeds)
