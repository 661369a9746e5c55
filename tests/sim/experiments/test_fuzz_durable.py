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


@pytest.mark.parametrize(
    ("options", "seeds"),
    [
        # neighbours restart, and a publisher leaves while a broker is down
        (OPTIONS, (403009, 529397, 600130)),
        # a session moves after an update and a crash
        (replace(MOVING, validity=True), (116,)),
        (replace(MOVING, steps=100), (920289, 930691, 970591)),
    ],
    ids=["restarts", "validity", "crashes"],
)
def test_histories_that_have_failed(options: FuzzOptions, seeds: tuple[int, ...]) -> None:
    play_all(seeds, options)


def test_long_histories() -> None:
    assert play_all((4, 11), replace(OPTIONS, steps=250)) > 100


@pytest.mark.parametrize(
    "seeds", [range(40), pytest.param(range(40, 200), marks=pytest.mark.thorough)], ids=str
)
def test_sessions_that_move(seeds: range) -> None:
    """Of stated seeds: what docs/durability.md does not promise is not excused by the judge."""
    expected = play_all(seeds, MOVING)
    assert expected > len(seeds)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("options", "owner", "method", "mutant", "found"),
    [
        (MOVING, CatchingUp, "has_all", lambda *_: True, None),
        (MOVING, CatchingUp, "begin_behind", lambda *_: None, None),
        (OPTIONS, CatchingUp, "hold", lambda *_: None, "coverage"),
        (OPTIONS, CatchingUp, "_cursor", lambda self, _, name: self._storage.end(name), "coverage"),
        (OPTIONS, DurableType, "fresh", lambda *_: None, "repetition"),
    ],
    ids=[
        "the flush overtakes events",
        "own events before copies",
        "acknowledged before the sync",
        "cursors ahead of acknowledgements",
        "without watermarks",
    ],
)
def test_a_defect_is_found(
    options: FuzzOptions,
    owner: type,
    method: str,
    mutant: Callable[..., Any],
    found: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, method, mutant)
    outcomes = (play_history(seed, replace(options, steps=120)) for seed in range(200))
    failed = next(outcome for outcome in outcomes if outcome.failed)
    assert found is None or failed.findings[0].what == found
