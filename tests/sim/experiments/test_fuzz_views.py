"""Random histories with views, of stated seeds, judged by the checkers (`covey sim fuzz --views`)."""

from __future__ import annotations

import pytest
from commands import run
from draws import ALL
from histories import play_all

from covey.sim.experiments.fuzz import FuzzError, FuzzOptions

SEEDS = 1_000 if ALL else 100


def test_histories() -> None:
    play_all(range(SEEDS), FuzzOptions(views=True))


@pytest.mark.parametrize(
    "options",
    [
        FuzzOptions(views=True, merging="perfect", operators=True),
        FuzzOptions(views=True, merging="budget", content=True),
        FuzzOptions(views=True, damping=2.0, gapless=True),
        FuzzOptions(views=True, dense=True),
        FuzzOptions(views=True, faults="all"),
    ],
    ids=["perfect", "budget", "damping", "dense", "faults"],
)
def test_histories_of_other_kinds(options: FuzzOptions) -> None:
    play_all(range(SEEDS, SEEDS + SEEDS // 6), options)


def test_views_are_refused_with_what_has_none() -> None:
    with pytest.raises(FuzzError, match="views is on with durable: expected it off"):
        FuzzOptions(views=True, durable=True)
    with pytest.raises(FuzzError, match="views is on with routing static"):
        FuzzOptions(views=True, routing="static")


def test_the_command_replays_a_history() -> None:
    assert run(*FuzzOptions(views=True, steps=30).command(3).split()[1:]) == 0
