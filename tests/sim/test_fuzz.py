"""The fuzzer: its checkers see seeded defects, one seed gives one history, a failure says how to replay."""

from __future__ import annotations

import json

import pytest

from covey.cli.main import main
from covey.sim.fuzz import FuzzError, Options, play
from covey.sim.simulator.defects import DEFECTS

SEEN = {
    "drop-update": ({"routing", "coverage"}, Options(steps=120, defect="drop-update"), range(15)),
    "keep-slot": ({"routing"}, Options(steps=120, defect="keep-slot"), range(15)),
    "swap-order": (
        {"coverage"},
        Options(steps=300, routing="static", crashes=False, defect="swap-order"),
        (2, 23, 36, 65),
    ),
    "echo-event": ({"echo"}, Options(steps=120, defect="echo-event"), range(15)),
}
"""For each defect: what it is found as, and histories in which it is."""


@pytest.mark.parametrize("defect", DEFECTS)
def test_every_seeded_defect_is_seen(defect: str) -> None:
    properties, options, seeds = SEEN[defect]
    outcomes = [play(seed, options) for seed in seeds]
    assert any(outcome.fired for outcome in outcomes)
    assert not [outcome.error for outcome in outcomes if outcome.error]
    assert {outcome.findings[0].what for outcome in outcomes if outcome.failed} == properties
    assert all(outcome.fired for outcome in outcomes if outcome.failed)


@pytest.mark.parametrize("seed", SEEN["swap-order"][2])
def test_where_break_before_make_loses_events_make_before_break_does_not(seed: int) -> None:
    assert not play(seed, Options(steps=300, routing="static", crashes=False)).failed


@pytest.mark.parametrize(
    "options",
    [
        Options(operators=True),
        Options(engine="cluster"),
        Options(routing="static", resubscribe="old_first"),
        Options(routing="static", operators=True),
        Options(steps=250),
    ],
    ids=["operators", "cluster", "old-first", "static-operators", "long"],
)
def test_other_histories(options: Options) -> None:
    for seed in range(60 if options.steps == 60 else 15):
        outcome = play(seed, options)
        assert not outcome.failed, f"{options.command(seed)}: {[*outcome.findings, outcome.error]}"


def test_one_seed_gives_one_history() -> None:
    assert [play(seed, Options(steps=150)) for seed in range(5)] == [
        play(seed, Options(steps=150)) for seed in range(5)
    ]


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(FuzzError, match="defect is 'gremlin': expected one of drop-update"):
        Options(defect="gremlin")
    with pytest.raises(FuzzError, match="routing is 'guess'"):
        Options(routing="guess")


def run(*arguments: object) -> int | str | None:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return ended.value.code


def test_the_command_prints_how_to_replay_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("sim", "fuzz", "--seeds", 4, "--jobs", 2) == 0
    assert "4 histories" in capsys.readouterr().out
    assert (
        run("sim", "fuzz", "--seeds", 3, "--jobs", 1, "--defect", "echo-event", "--steps", 120, "--json") == 1
    )
    result = json.loads(capsys.readouterr().out)
    assert result["defects"] > 0
    replay = result["failed"][0]["replay"].split()
    assert replay[0] == "covey"
    assert run(*replay[1:]) == 1
    assert result["failed"][0]["findings"][0] in capsys.readouterr().out
