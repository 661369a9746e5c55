"""Random histories of durable types over disks with faults: nothing is lost, repeated, or stored twice."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from draws import some_seeds
from histories import play_all

from covey.overlay.core.endpoint.durability import CatchingUp
from covey.overlay.core.routing.tables import DurableType
from covey.sim.experiments.fuzz import FuzzOptions, play_history

OPTIONS = FuzzOptions(durable=True)
MOVING = FuzzOptions(durable=True, moves=True)


@some_seeds("fuzzer, durable", parts=8)
def test_histories(seeds: range) -> None:
    expected = play_all(seeds, OPTIONS)
    assert expected > len(seeds)


@pytest.mark.parametrize("seed", [403009, 529397, 600130])
def test_neighbours_restart_and_a_publisher_leaves_while_a_broker_is_down(seed: int) -> None:
    play_all([seed], OPTIONS)


@pytest.mark.parametrize("seed", [4, 11])
def test_a_long_history(seed: int) -> None:
    outcome = play_history(seed, FuzzOptions(durable=True, steps=250))
    assert not outcome.failed, (outcome.error, outcome.findings)
    assert outcome.expected > 50


@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(40, 200), marks=pytest.mark.thorough)], ids=str
)
def test_sessions_that_move(seeds: range) -> None:
    """Of stated seeds: what docs/durability.md does not promise is not excused by the judge."""
    expected = play_all(seeds, MOVING)
    assert expected > len(seeds)


def test_a_session_moves_after_an_update_and_a_crash() -> None:
    play_all([116], replace(MOVING, validity=True))


@pytest.mark.parametrize("seed", [920289, 930691, 970591])
def test_sessions_that_move_after_crashes(seed: int) -> None:
    play_all([seed], replace(MOVING, steps=100))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("owner", "method", "mutant"),
    [(CatchingUp, "has_all", lambda *_: True), (CatchingUp, "begin_behind", lambda *_: None)],
    ids=["the flush overtakes events", "own events before copies"],
)
def test_a_defect_of_moving_sessions_is_found(
    owner: type, method: str, mutant: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, method, mutant)
    options = replace(MOVING, steps=120)
    assert any(play_history(seed, options).failed for seed in range(200))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("owner", "method", "mutant", "found"),
    [
        (CatchingUp, "hold", lambda *_: None, "coverage"),
        (CatchingUp, "_cursor", lambda self, _, name: self._storage.end(name), "coverage"),
        (DurableType, "fresh", lambda *_: None, "repetition"),
    ],
    ids=["acknowledged before the sync", "cursors ahead of acknowledgements", "without watermarks"],
)
def test_a_defect_is_found(
    owner: type, method: str, mutant: Callable[..., Any], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, method, mutant)
    options = FuzzOptions(durable=True, steps=120)
    outcomes = (play_history(seed, options) for seed in range(200))
    assert next(outcome.findings[0].what for outcome in outcomes if outcome.failed) == found
