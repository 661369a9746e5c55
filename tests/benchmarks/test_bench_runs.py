"""`python -m benchmarks`: a short run of each, whose figures add up, and one line per mistake."""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from commands import measure
from running import on_a_loop

from benchmarks import peers, systems
from benchmarks.change import ChangePlan, measure_changes
from benchmarks.durable import DurablePlan, measure_durable
from benchmarks.faults import FaultPlan, FaultyLink, measure_faults
from benchmarks.gateway import RUNS, GatewayPlan, measure_gateway
from benchmarks.hostile import ATTACKS, HostilePlan, measure_hostile
from benchmarks.lone import LonePlan, measure_lone, trace_ways
from benchmarks.operators import ALONE, GATED, NAME, OperatorsPlan, measure_operators, measure_placements
from benchmarks.peers import PeerPlan, found, measure_peers
from benchmarks.routing import RoutingPlan, measure_routing
from benchmarks.systems import DURABLE, Covey, body, read_body
from benchmarks.view import ViewPlan, measure_view
from covey.matcher.errors import CoveyError, InputError
from covey.matcher.operators.table import find
from covey.sim.experiments.bench import drift as drift_bench
from covey.sim.experiments.bench.drift import DRIFTS, DriftPlan, measure_drift
from covey.sim.progress import silent


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("bounds --of patience", "patience"),
        ("change --modes paramtric", "modes 'paramtric': expected some of parametric, subscribe-first"),
        ("drift --drifts skew,continental", "drifts 'continental': expected some of attributes, skew"),
        ("gateway --overflow block", "overflow"),
        ("gateway --silent 1000", "silent"),
        ("gateway --share 0", "share"),
        ("hostile --attacks earthquake", "earthquake"),
        ("operators --calls 3", "calls"),
        ("peers --systems kafka", "systems 'kafka': expected some of nats-server, "),
        ("routing --filters many", "filters 'many': expected positive integers"),
        ("routing --posets foo", "posets 'foo': expected some of forest, naive, diagram"),
        ("routing --merging off,foo", "merging 'foo': expected some of off, perfect, budget"),
    ],
)
def test_a_mistake_is_one_line(words: str, complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert measure(*words.split()) != 0
    error = capsys.readouterr().err
    assert error.startswith("covey: ")
    assert complaint in error
    assert error.count("\n") == 1


def test_plans_that_cannot_be_are_refused() -> None:
    with pytest.raises(CoveyError, match="silent is 2: expected from 1 to 1"):
        GatewayPlan(browsers=2, silent=2)
    with pytest.raises(InputError, match="deltas: 300, expected at most half of the 400 keys inside"):
        ViewPlan(2_000, 400, (20, 300))
    with pytest.raises(InputError, match="inside: 1500, expected at most half of the 2000 keys"):
        ViewPlan(2_000, 1_500)


def printed(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert measure(*words, "--json") == 0
    return json.loads(capsys.readouterr().out)


# --- in this process ----------------------------------------------------------------------------------------


FIRST, *OTHERS = DRIFTS


@pytest.mark.parametrize(
    "drift", [FIRST, *(pytest.param(each, marks=pytest.mark.thorough) for each in OTHERS)]
)
def test_every_configuration_is_measured_at_every_step_of_a_drift(drift: str) -> None:
    shares: list[float] = []
    plan = DriftPlan(drift, subscriptions=1_000, steps=2, events=1_000, repetitions=1)
    result = measure_drift(plan, lambda step, share: shares.append(share))
    assert {name: len(rates) for name, rates in result.rates.items()} == {"dynamic": 4, "no change": 4}
    assert shares == sorted(shares)
    assert result.as_json()["dynamic_of_optimum"] == round(result.rates["dynamic"][-1] / result.optimum, 3)


def test_no_engine_moves_rows_while_its_stable_states_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    engines, make, first = list[Any](), drift_bench.create_engine, list[int]()
    placed: list[list[tuple[bool, int]]] = []

    def made(*arguments: Any, **named: Any) -> Any:
        engines.append(make(*arguments, **named))
        return engines[-1]

    def clock() -> float:
        placements = [engine.store.placement for engine in engines]
        placed.append([(each.former is not None, each.work) for each in placements])
        return time.perf_counter()

    monkeypatch.setattr(drift_bench, "create_engine", made)
    plan = DriftPlan("attributes", subscriptions=20_000, steps=1, events=2_000, repetitions=1, clock=clock)
    measure_drift(plan, lambda *_: first.append(len(placed)))
    for stable in (placed[: first[0]], [each for each in placed if len(each) == 3]):
        assert not any(moving for moving, _ in stable[0])
        for work in list(zip(*stable, strict=True))[1:]:  # all but the dynamic one
            assert len({done for _, done in work}) == 1


def test_strategies_agree_and_greedy_and_gates_save_evaluations() -> None:
    plan = OperatorsPlan(subscriptions=150, calls=40, events=8, rounds=2, cost_us=1.0, matching=0.02)
    results = {(r.filters, r.strategy): r for r in measure_operators(plan, silent)}
    strategies = ["naive", "sequential", "sub_order", "greedy"]
    assert list(results) == [(filters, name) for filters in (ALONE, GATED) for name in strategies]
    for filters in (ALONE, GATED):
        assert len({results[filters, name].matches for name in strategies}) == 1
    assert results[ALONE, "naive"].matches > 0
    assert find(NAME) is None
    for name in strategies:
        assert results[GATED, name].evaluations < results[ALONE, name].evaluations
        assert results[ALONE, name].evaluations >= results[ALONE, "greedy"].evaluations
        assert results[ALONE, name].calls <= results[ALONE, name].evaluations


def test_results_that_travel_save_evaluations_in_a_chain() -> None:
    plan = OperatorsPlan(subscriptions=60, calls=12, events=8, rounds=2, cost_us=0, matching=0.05)
    results = {result.placement: result for result in measure_placements(plan, silent)}
    shared, alone = results["results travel"], results["each broker by itself"]
    assert shared.evaluations < alone.evaluations < results["each subscription by itself"].evaluations
    assert shared.messages < results["at the subscribers' brokers alone"].messages
    assert len({result.deliveries for result in results.values()}) == 1


@pytest.mark.parametrize("name", ["SYMBOLS", "VEHICLES"])
def test_posets_send_the_same_and_large_scans_are_skipped(name: str) -> None:
    posets = ("forest", "naive", "diagram")
    plan = RoutingPlan((name,), (60, 120), posets, updates=200, cancels=40, scan_limit=60)
    results = {(result.poset, result.filters): result for result in measure_routing(plan)}
    assert len(results) == 6
    forest = results["forest", 60]
    assert 0 < (forest.slots or 0) <= 60
    assert min(forest.sub_us or 0, forest.upd_us or 0, forest.usub_us or 0) > 0
    for poset in ("naive", "diagram"):
        assert results[poset, 60].slots == forest.slots
        assert results[poset, 120].upd_us is None
    assert (results["forest", 120].slots or 0) >= (forest.slots or 0)
    assert all(result.excess in (0.0, None) for result in results.values())


def test_merging_uses_fewer_slots_with_some_excess() -> None:
    mergings = ("off", "perfect", "budget")
    plan = RoutingPlan(("SYMBOLS",), (200,), ("forest",), 100, 2_000, mergings, 4, cancels=20, events=2_000)
    off, perfect, budget = measure_routing(plan)
    assert (off.slots or 0) >= (perfect.slots or 0) > (budget.slots or 0)
    assert (off.excess, perfect.excess) == (0.0, 0.0)
    assert (budget.slots or 0) <= 4
    assert 0 < (budget.excess or 0) < 1


def test_the_command_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--workload", "VEHICLES", "--filters", "50, 100", "--posets", "forest, naive", "--updates", "60"]
    assert [case["filters"] for case in printed(capsys, "routing", *words)] == [50, 50, 100, 100]


def test_a_trace_has_the_rooms_that_an_event_passes() -> None:
    traces = asyncio.run(trace_ways(1))
    assert traces["publish"].folders["overlay/core/routing"] > 0
    assert traces["update"].folders["overlay/core/covering"] > 0


def test_systems_that_are_not_there_are_left_out_and_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    assert [peer.program for peer in found()] == ["covey", "covey"]
    with pytest.raises(InputError, match="mosquitto is not on the PATH: expected an installed server"):
        found(["mosquitto"])
    server = tmp_path / "nats-server"
    server.write_text("#!/bin/sh\necho 'unknown field \"sync_interval\"' >&2; exit 1\n")
    server.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(systems, "find_spec", lambda package: package)
    assert [peer.program for peer in found()] == ["covey", "covey"]
    with pytest.raises(InputError, match="nats-server does not take its configuration: expected a newer one"):
        found(["nats-server"])
    assert len({peer.label for peer in DURABLE}) == len(DURABLE)
    assert (len(body(1, 2)), read_body(body(7, -3))) == (128, (7, -3))


# --- over brokers -------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("local_brokers")
def test_parametric_updates_miss_repeat_and_hand_out_nothing_stale() -> None:
    # Events are expected while no change is in progress, so changes are far apart even on a loaded machine.
    plan = ChangePlan(("parametric",), ("both", "disjoint"), (300,), (10,), 1.0)
    both, disjoint = results = asyncio.run(measure_changes(plan))
    assert [(r.missed, r.duplicate, r.stale) for r in results] == [(0, 0, 0)] * 2
    assert both.expected == both.delivered == both.published == 300
    assert disjoint.delivered > 0
    assert disjoint.first_new_p50_ms is not None


@pytest.mark.usefixtures("local_brokers")
def test_the_delta_of_each_move_of_a_view_is_that_of_a_scan() -> None:
    results = asyncio.run(measure_view(ViewPlan(2_000, 400, (20, 100), moves=4, redis=False)))
    systems = ["view", "scan in this process"] * 2
    assert [(each.system, each.moves, each.wrong) for each in results] == [(each, 4, 0) for each in systems]
    assert all(0 < each.p50_ms <= each.p99_ms for each in results)


@pytest.mark.thorough
def test_what_is_counted_against_a_bound_is_what_is_held(capsys: pytest.CaptureFixture[str]) -> None:
    fixed_bytes = 10 << 20  # what a process needs at first: threads, buffers of connections, fragments
    results = printed(capsys, "bounds", "--mib", "16")
    assert len(results) == 13
    for result in results:
        if "sessions" in result["filled_by"]:
            continue  # most of it are the connections of these
        assert result["configured"] // 2 < result["counted"] < result["configured"] * 1.1, result
        # A table of keys joins its batches and has them twice for a moment: it counts three quarters then.
        often = 3 if result["bound"] == "max_key_bytes" else 1.3
        assert result["held"] < often * result["configured"] + fixed_bytes, result
        assert result["held"] > result["counted"] // 2, result


@pytest.mark.thorough
def test_both_kinds_of_types_are_measured() -> None:
    results = asyncio.run(measure_durable(DurablePlan(seconds=0.5, rates=(100,))))
    assert [each.kind for each in results.types] == ["in memory", "durable"]
    assert all(each.events_per_s > 0 and each.latency_ms.keys() == {100} for each in results.types)


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def opened(link: FaultyLink) -> Streams:
    host, _, port = link.address.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def ended(reader: asyncio.StreamReader) -> bool:
    try:
        return not await reader.read(10)
    except ConnectionError:
        return True


@on_a_loop
async def test_a_silent_link_loses_bytes_and_ends_and_is_whole_for_others() -> None:
    accepted: asyncio.Queue[Streams] = asyncio.Queue()
    server = await asyncio.start_server(lambda *streams: accepted.put_nowait(streams), "127.0.0.1", 0)
    link = await FaultyLink(f"127.0.0.1:{server.sockets[0].getsockname()[1]}").start()

    async def ends() -> tuple[Streams, Streams]:
        """Both ends of a connection over the link."""
        return await opened(link), await accepted.get()

    (reader, writer), (far_reader, _) = await ends()
    writer.write(b"a")
    assert await far_reader.read(10) == b"a"
    link.silence()
    writer.write(b"b")
    writer.close()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(far_reader.read(10), 0.1)  # neither the byte nor the end
    waiting = asyncio.create_task(ends())
    await link.heal()
    (reader, writer), (far_reader, far_writer) = await waiting
    far_writer.write(b"c")
    assert await reader.read(10) == b"c"
    await link.cut()
    for each in (reader, far_reader, (await opened(link))[0]):
        assert await ended(each)
    await link.heal()
    await ends()
    await link.stop()
    server.close()


@pytest.mark.thorough
def test_faults_lose_repeat_and_reorder_no_durable_event() -> None:
    results = asyncio.run(measure_faults(FaultPlan(rate=1_000, seconds=0.5, faults=("pause", "full"))))
    assert [each.place for each in results] == ["b1", "b2", "b3"] * 2
    for each in results:
        assert (each.lost, each.repeated, each.reordered) == (0, 0, 0), each
        assert each.published
        assert each.fault == "pause" or each.noticed_s is not None, each


@pytest.mark.thorough  # five processes
def test_all_that_browsers_miss_is_told() -> None:
    policies = ("drop_oldest", "conflate", "disconnect")
    plan = GatewayPlan(browsers=8, silent=3, overflow=policies, share=0.5, seconds=0.3, rounds=1)
    results = asyncio.run(measure_gateway(plan))
    assert [each.name for each in results.runs] == [*RUNS]
    for each in results.runs:
        assert each.missing == 0
        assert each.max_ms[0] >= each.p99_ms[0] >= each.p50_ms[0] > 0.0
        assert each.frames_per_s[0] > 0.0
        assert each.peak_mb > 10.0
    oldest, conflated, disconnected = results.told
    assert oldest.notices["overflow"] == 1
    assert oldest.gaps["overflow"] > 0
    assert conflated.gaps["conflated"] > conflated.got > 0
    assert oldest.untold == conflated.untold == 0
    assert disconnected.notices["session ended"] == 1
    assert disconnected.untold > 0


@pytest.mark.thorough
def test_attacks_do_something_and_end() -> None:
    closed_soon = ("window_update", "priority", "unknown", "ping", "data_0", "messages_0")
    attacks = ("subscriptions", "end", "connections", "packets", *closed_soon, "values")
    assert set(attacks) < set(ATTACKS)
    plan = HostilePlan(attacks=attacks, rate=100, seconds=1.0, subscriptions=1_000, connections=(3,))
    results = asyncio.run(measure_hostile(plan))
    assert [each.attack for each in results] == list(attacks)
    for each in results:
        assert each.done, each
        if each.attack in closed_soon:
            assert "ENHANCE_YOUR_CALM" in each.closed, each
        assert each.attacked.max >= each.attacked.p99 >= each.attacked.p50 > 0.0, each


@pytest.mark.thorough
def test_a_lone_event_has_user_time_latency_and_rates() -> None:
    plan = LonePlan(("covey", "sockets"), rounds=1, rates=(100,), seconds=0.5, loop=200, readers=(1,))
    result, relay = asyncio.run(measure_lone(plan))["systems"]
    assert result.label == "Covey"
    assert all(result.figures[name] > 0 for name in ("publisher us, 100/s", "subscriber us, 100/s"))
    assert 0 < result.figures["p50 ms, 100/s"] <= result.figures["p99 ms, 100/s"]
    assert min(each.figures["delivered/s, 1"] for each in (result, relay)) > 0


@pytest.mark.thorough
def test_covey_loses_and_repeats_nothing_when_it_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "found", lambda programs: [Covey])
    plan = PeerPlan(rounds=1, events=200, seconds=0.2, away=200)
    (result,) = asyncio.run(measure_peers(plan))
    assert result.events_per_s > 0
    assert (result.lost, result.repeated) == (0, 0)
