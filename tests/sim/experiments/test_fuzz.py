"""The fuzzer: its checkers see seeded defects, one seed gives one history, a failure says how to replay."""

import json

import pytest
from commands import run
from draws import seeds, some_seeds
from histories import kind, play_all

from covey.matcher import EventBatch, EventType, parse
from covey.matcher.errors import InputError
from covey.sim.checkers import Findings, Judge
from covey.sim.experiments.fuzz import FuzzOptions, play_history
from covey.sim.simulator import Simulation, WireOptions
from covey.sim.simulator.clock import NS_PER_MS
from covey.sim.simulator.defects import SwapOrder
from covey.sim.topology import make_topology

SEEN = {
    "drop-update": {"routing", "coverage"},
    "keep-slot": {"routing"},
    "echo-event": {"echo"},
    "early-acknowledge": {"coverage"},
    "claim-newest": {"strictness"},
    "no-replay": {"coverage"},
    "repeat-event": {"repetition", "duplicate"},
    "wrong-results": {"coverage", "strictness"},
    "no-last-events": {"view answer", "view state"},
    "no-departures": {"view answer", "view state"},
    "early-answer": {"view answer"},
    "no-restored-keys": {"view answer", "view state"},
}
"""What random histories find each defect as; `swap-order`, which few of them hit, has one of its own."""

OF_VIEWS = ("no-last-events", "no-departures", "early-answer", "no-restored-keys")

SEEDS = {"no-replay": 45, "no-restored-keys": 30}
"""How many histories it takes, where 15 are too few."""


@pytest.mark.thorough
@pytest.mark.parametrize(("defect", "operators"), [*((name, False) for name in SEEN), ("keep-slot", True)])
def test_every_seeded_defect_is_seen(defect: str, operators: bool) -> None:
    options = FuzzOptions(
        steps=120,
        defect=defect,
        gapless=defect == "no-replay",
        operators=operators,
        calls=defect == "wrong-results",
        views=defect in OF_VIEWS,
        durable=defect == "no-restored-keys",
    )
    outcomes = [play_history(seed, options) for seed in range(SEEDS.get(defect, 15))]
    assert not [outcome.error for outcome in outcomes if outcome.error]
    found = {outcome.findings[0].what for outcome in outcomes if outcome.failed}
    assert found
    assert found <= SEEN[defect]
    assert all(outcome.fired for outcome in outcomes if outcome.failed)


@pytest.mark.parametrize("defect", [None, SwapOrder()], ids=["make-before-break", "break-before-make"])
def test_break_before_make_is_seen_to_lose_events_and_make_before_break_does_not(
    defect: SwapOrder | None,
) -> None:
    """An event every millisecond, while each message travels alone and SUB and USUB arrive at times apart."""
    findings = Findings()
    simulation = Simulation(
        1,
        routing="static",
        engine="naive",
        defect=defect,
        link={"max_frame_bytes": 1, "frames_in_flight": 1000},
        wire=WireOptions(jitter_ns=30 * NS_PER_MS),
    )
    judge = Judge(findings, lambda: simulation.clock.now_ns)
    simulation.observers.append(judge)
    simulation.build(make_topology("line", 3))
    tick = EventType("Tick", {"x": "int64"})
    publisher = simulation.join("client/p", "broker/b1")
    subscriber = simulation.join("client/s", "broker/b3")
    publisher.advertise(tick)
    subscription = subscriber.subscribe(parse("x < $limit", tick), {"limit": 5})
    simulation.run()
    for moment in range(400):
        if moment % 50 == 0:
            subscriber.update(subscription, {"limit": 6 + moment // 50})
        publisher.publish(EventBatch.from_pylist(tick, [{"x": 1}]))
        simulation.run(simulation.clock.now_ns + NS_PER_MS)
    simulation.run()
    judge.quiet()
    assert judge.expected_events == 400
    if defect is None:
        assert not findings
    else:
        assert defect.fired
        assert set(findings.counts) == {"coverage"}


@some_seeds("fuzzer, parametric", parts=8)
def test_histories_of_parametric_routing(seeds: range) -> None:
    assert play_all(seeds, FuzzOptions(routing="parametric")) > len(seeds)


@some_seeds("fuzzer, static", parts=8)
def test_histories_of_static_routing(seeds: range) -> None:
    assert play_all(seeds, FuzzOptions(routing="static")) > len(seeds)


@pytest.mark.random
@pytest.mark.parametrize(
    "options",
    [
        FuzzOptions(operators=True),
        FuzzOptions(calls=True),
        FuzzOptions(calls=True, engine="cluster", gapless=True, widen=True, operators=True, steps=250),
        FuzzOptions(calls=True, routing="static"),
        FuzzOptions(calls=True, merging="budget", damping=2.0, content=True, poset="diagram"),
        FuzzOptions(calls=True, motion=True, gapless=True, damping=1.5),
        FuzzOptions(service="fifo", gapless=True),
        FuzzOptions(service="control-first", routing="static", content=True),
        FuzzOptions(service="two-lanes", gapless=True, content=True),
        FuzzOptions(service="two-lanes", engine="poset", routing="static", steps=250),
        FuzzOptions(widen=True),
        FuzzOptions(widen=True, gapless=True, content=True, merging="budget"),
        FuzzOptions(widen=True, engine="cluster", merging="perfect", operators=True, steps=250),
        FuzzOptions(engine="cluster"),
        FuzzOptions(gapless=True, crashes=False),
        FuzzOptions(damping=2.0),
        FuzzOptions(motion=True),
        FuzzOptions(motion=True, engine="cluster", steps=250),
        FuzzOptions(motion=True, gapless=True, damping=2.0, operators=True),
        FuzzOptions(content=True),
        FuzzOptions(content=True, gapless=True, engine="cluster", steps=250),
        FuzzOptions(damping=1.0, gapless=True, engine="cluster", steps=250),
        FuzzOptions(gapless=True, engine="cluster", steps=250),
        FuzzOptions(gapless=True, routing="static"),
        FuzzOptions(routing="static", resubscribe="unsubscribe-first"),
        FuzzOptions(routing="static", operators=True),
        FuzzOptions(steps=250),
        FuzzOptions(dense=True),
        FuzzOptions(dense=True, crashes=False),
        FuzzOptions(dense=True, routing="static"),
        FuzzOptions(dense=True, routing="static", resubscribe="unsubscribe-first"),
        FuzzOptions(engine="poset", operators=True),
        FuzzOptions(engine="poset", operators=True, routing="static"),
        FuzzOptions(poset="naive"),
        FuzzOptions(poset="naive", routing="static"),
        FuzzOptions(poset="diagram"),
        FuzzOptions(poset="diagram-local", dense=True),
        FuzzOptions(poset="diagram-local", engine="poset", steps=250),
        FuzzOptions(merging="perfect"),
        FuzzOptions(merging="perfect", operators=True),
        FuzzOptions(merging="budget"),
        FuzzOptions(merging="budget", merging_budget=1, steps=250),
    ],
    ids=kind,
)
def test_other_histories(options: FuzzOptions) -> None:
    drawn = seeds("fuzzer, other options")
    play_all(drawn if options.steps == 60 else drawn[: len(drawn) // 4], options)


def test_a_client_that_advertises_again_keeps_its_content_filter() -> None:
    """In these histories events that waited on the link met another filter, and were refused."""
    play_all((9052, 9094), FuzzOptions(content=True))


def test_a_refusal_that_comes_when_its_client_leaves_is_no_failure() -> None:
    """Of a change that came after the period of its subscription was over."""
    options = FuzzOptions(gapless=True, validity=True, moves=True)
    assert not play_history(310_157, options).failed


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(InputError, match="defect is 'gremlin': expected one of drop-update"):
        FuzzOptions(defect="gremlin")
    with pytest.raises(InputError, match="routing is 'guess'"):
        FuzzOptions(routing="guess")
    with pytest.raises(InputError, match="engine is 'foo': expected one of"):
        FuzzOptions(engine="foo")
    with pytest.raises(InputError, match="motion is on: expected routing parametric"):
        FuzzOptions(routing="static", motion=True)


def test_the_command_that_replays_a_history_is_understood(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (
        FuzzOptions(engine="search_tree", steps=2),
        FuzzOptions(routing="static", resubscribe="unsubscribe-first", steps=2, crashes=False),
        FuzzOptions(merging="budget", merging_budget=2, steps=2, damping=1.5, defect="drop-update"),
    ):
        words = options.command(3).split()
        assert run(*words[1:], "--json") in (0, 1), words
        assert json.loads(capsys.readouterr().out)["histories"] == 1


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
