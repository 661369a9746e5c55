"""Random histories with views, of stated seeds, judged by the checkers (`covey sim fuzz --views`)."""

import pytest
from commands import run
from draws import some_seeds
from histories import kind, play_all

from covey.matcher.errors import InputError
from covey.sim.experiments.fuzz import FuzzOptions


@some_seeds("fuzzer, views", parts=4, stated=True)
def test_histories(seeds: range) -> None:
    play_all(seeds, FuzzOptions(views=True))


@pytest.mark.parametrize(
    "options",
    [
        FuzzOptions(views=True, merging="perfect", operators=True),
        FuzzOptions(views=True, merging="budget", content=True),
        FuzzOptions(views=True, damping=2.0, gapless=True),
        FuzzOptions(views=True, dense=True),
        FuzzOptions(views=True, faults="all"),
        FuzzOptions(views=True, durable=True),
        FuzzOptions(views=True, durable=True, faults="all"),
    ],
    ids=kind,
)
def test_histories_of_other_kinds(options: FuzzOptions) -> None:
    play_all(range(60, 70), options)


@pytest.mark.parametrize(
    ("options", "seed"),
    [
        # a promise that grows: interest that a neighbour did not have before is asked for views
        (FuzzOptions(views=True, merging="budget", content=True), 6729),
        (FuzzOptions(views=True, faults="all"), 9245),
        # a client that moves to a broker that is behind, whose last event of a key is older than its leave
        (FuzzOptions(views=True), 2030),
        (FuzzOptions(views=True), 1224),
        (FuzzOptions(views=True, durable=True, faults="all"), 1096),  # a record was damaged
        # a publisher whose session has ended, and which sends again what was stored before
        (FuzzOptions(views=True, durable=True, moves=True, steps=120), 66),
        # a client that was told of a gap, in the last one before an update
        (FuzzOptions(views=True, faults="all"), 9628),
        (FuzzOptions(views=True, faults="all"), 9710),
        (FuzzOptions(views=True, faults="all"), 50634),
    ],
)
def test_histories_that_have_failed(options: FuzzOptions, seed: int) -> None:
    play_all([seed], options)


def test_views_are_refused_with_what_has_none() -> None:
    with pytest.raises(InputError, match="views is on with widen: expected it off"):
        FuzzOptions(views=True, widen=True)
    with pytest.raises(InputError, match="views is on with routing static"):
        FuzzOptions(views=True, routing="static")


def test_the_command_replays_a_history() -> None:
    assert run(*FuzzOptions(views=True, steps=30).command(3).split()[1:]) == 0
