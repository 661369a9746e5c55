"""Scenarios end to end: summary, trace, reproducibility, mistakes."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from changed_runs import SMALL_FRAMES, changed_run
from commands import run
from read_traces import rows

from covey.overlay.core.messages import Action, Message, Publish
from covey.overlay.core.routing.broker import Broker
from covey.sim.experiments.runs.run import RunSummary
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.scenario.loads import LoadError
from covey.sim.scenario.scenario import SYSTEMS, Scenario, ScenarioError, find_system, load_scenario
from covey.sim.simulator.costs import Calibrated, Measured, constant
from covey.sim.topology import make_topology
from covey.sim.trace.finding import find_traces

SMALL = Scenario(brokers=12, publishers=3, subscribers=60, types=6, duration_s=2.0, event_rate=40.0)


def add_up(report: RunSummary) -> None:
    assert report.expected == report.fulfilled + report.excused + report.missed
    assert report.delivered == report.fulfilled + report.additional
    assert report.missed == report.lost + report.counts.get("coverage", 0)


RARE = ("highway-siena", "highway-rete")
SHORT = SMALL.having(brokers=8, subscribers=30, types=10, duration_s=1.0, update_rate=3.0, seed=5)
SCENARIOS = {
    f"{load}-{name}": find_system(name).applied_to(SHORT.having(load=load))
    for load in ("trading", "highway")
    for name in SYSTEMS
} | {
    "cluster": SMALL.having(engine="cluster", batch=4),
    "faults": SMALL.having(crashes=2, partitions=2, loss=0.02, jitter_ms=5.0),
    "many-publishers": SHORT.having(load="highway", publishers=24, event_rate=10.0, update_rate=4.0),
    "market": SMALL.having(load="market", engine="poset", batch=2),
    "preferential": SMALL.having(topology="preferential", brokers=30, duration_s=1.0),
    "no-subscribers": SMALL.having(brokers=4, subscribers=0, update_rate=0.0),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.thorough] if name.startswith(RARE) else []) for name in SCENARIOS],
)
def test_a_run_is_judged_without_violations(name: str) -> None:
    scenario = SCENARIOS[name]
    report = SimulatedRun(scenario).run()
    assert report.findings == []
    assert report.published > 50
    assert report.links_checked >= (7 if scenario.brokers == 8 else 1)
    assert report.cpu_s > 0
    add_up(report)
    if scenario.subscribers:
        assert report.delivered > 10
        assert report.expected > 0 or scenario.crashes
        assert report.updates > 50


def _delivery(row: Mapping[str, object]) -> tuple[object, ...]:
    return row["client"], row["subscription"], row["publisher"], row["sequence"]


def test_events_lost_to_changes_and_excused_by_crashes_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = tmp_path / "trace"
    lossy = SMALL.having(routing="static", resubscribe="unsubscribe-first", event_rate=80.0, jitter_ms=30.0)
    lossy = lossy.having(brokers=6, subscribers=20)
    report = changed_run(lossy, link=SMALL_FRAMES).run(trace)
    owed: dict[bool, set[tuple[object, ...]]] = {False: set(), True: set()}
    for row in rows(trace, "obligations"):
        owed[row["excused"]].add(_delivery(row))
    delivered = {_delivery(row) for row in rows(trace, "deliveries")}
    assert report.lost == len(owed[False] - owed[True] - delivered) > 0
    assert report.excused == len(owed[True])
    add_up(report)
    assert f"{report.lost:,} lost to changes" in report.verdict
    with monkeypatch.context() as patch:
        patch.setattr(Scenario, "lossy", False)  # the same losses are violations
        missing = changed_run(lossy, link=SMALL_FRAMES).run()
    assert missing.missed > missing.lost == 0
    add_up(missing)
    crashed = SimulatedRun(SMALL.having(crashes=1)).run()
    assert (crashed.lost, crashed.published > crashed.unjudged > 0) == (0, True)
    assert f"{crashed.unjudged:,} events published while none was expected; 11 of 11" in crashed.verdict


def test_what_is_printed_adds_up_and_tells_routings_apart(capsys: pytest.CaptureFixture[str]) -> None:
    per_update = {}
    for routing in ("parametric", "static"):
        assert run("sim", "--routing", routing, "--brokers", 12, "--subscribers", 60, "--duration", 1) == 0
        text = capsys.readouterr().out
        found = re.search(r"\(([\d,]+) deliveries expected: ([\d,]+) delivered", text)
        assert found is not None
        assert "cpu: free" in text
        assert "--cpu measured" in text
        excused = re.search(r"([\d,]+) excused", text)
        assert int(found[1]) == int(found[2]) + (int(excused[1]) if excused else 0)
        per_update[routing] = float(re.findall(r"([\d.]+) per update", text)[0])
    assert per_update["static"] > 1.3 * per_update["parametric"]


def test_a_saturated_broker_is_busy_at_most_all_of_the_time(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    costs = Calibrated({"publish": constant(400e6), "subscribe": constant(0)})
    report = SimulatedRun(SMALL, costs=costs).run(trace)
    (manifest,) = find_traces([trace]).runs.values()
    duration_ns = manifest.phases["resting"] - manifest.phases["running"]
    busy_ns: dict[str, dict[str, int]] = {}
    for row in rows(trace, "work"):
        busy_ns.setdefault(row["broker"], {})[row["phase"]] = row["busy_ns"]
    busiest_ns = max(each["resting"] - each["running"] for each in busy_ns.values())
    assert report.busiest_share == round(busiest_ns / duration_ns, 4)
    assert 0.9 < report.busiest_share <= 1


def test_one_time_work_of_the_process_is_charged_to_no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    handle_all, slowed = Broker.handle_all, []

    def cold(
        broker: Broker, messages: Sequence[Message], source: str, now_ns: int, **options: bool
    ) -> list[Action]:
        if isinstance(messages[0], Publish) and not slowed:
            slowed.append(messages)
            until_s = time.thread_time() + 0.5
            while time.thread_time() < until_s:
                pass
        return handle_all(broker, messages, source, now_ns, **options)

    monkeypatch.setattr(Broker, "handle_all", cold)
    run = SimulatedRun(SMALL.having(duration_s=0.2, cpu="measured"))
    run.run()
    assert slowed
    assert isinstance(run.costs, Measured)
    assert 0 < run.costs.took_ns["publish"] < 0.45e9


def test_cpu_time_is_charged_and_calibrated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "costs.json"
    small = ("--brokers", 6, "--publishers", 2, "--subscribers", 20, "--types", 4, "--duration", 1)
    assert run("sim", *small, "--cpu", "measured", "--calibrate", file) == 0
    assert "the busiest broker worked" in capsys.readouterr().out
    summaries = []
    for _ in range(2):
        assert run("sim", *small, "--cpu", file, "--json") == 0
        summaries.append(json.loads(capsys.readouterr().out))
    assert summaries[0]["busiest_share"] == summaries[1]["busiest_share"] > 0
    assert summaries[0]["steps"] == summaries[1]["steps"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("brokers: many", "brokers is 'many': expected a whole number"),
        ("brokers: 0", "brokers is 0: expected at least 1"),
        ("duration_s: .inf", "duration_s is inf: expected a finite number"),
        ("loss: 1", "expected a probability below 1"),
        ("load: cats", "load is 'cats': expected one of trading, highway"),
        ("speed: 3", "scenario.yaml: speed is unknown: did you mean speeds?"),
        ("- 3", "expected a mapping"),
        ("a: [", "no YAML"),
        ("brokers: 3\nbrokers: 4", "no YAML at line 2, column 1: brokers is there twice"),
    ],
)
def test_an_invalid_scenario_file_is_rejected_by_name(text: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(text)
    with pytest.raises(ScenarioError, match=complaint):
        load_scenario(file)
    with pytest.raises(ScenarioError, match="cannot be read"):
        load_scenario(tmp_path / "absent.yaml")


def test_an_unknown_system_or_engine_is_named() -> None:
    with pytest.raises(ScenarioError, match="system is 'x': expected one of siena-subscribe-first, "):
        find_system("x")
    with pytest.raises(ScenarioError, match=r"engine is 'fast': expected one of cluster, .*, poset"):
        Scenario(engine="fast")


def test_loads_reject_unsuitable_topologies() -> None:
    with pytest.raises(LoadError, match="has no positions"):
        SimulatedRun(SMALL.having(load="highway", topology="line"))
    with pytest.raises(LoadError, match="expected at least one type per publisher"):
        SimulatedRun(SMALL.having(publishers=7))
    with pytest.raises(LoadError, match="has no positions"):
        SimulatedRun(SMALL.having(load="highway"), topology=make_topology("star", 3))


def test_the_command_runs_scenario_files_and_overlay_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, overlay, trace = tmp_path / "s.yaml", tmp_path / "o.yaml", tmp_path / "t"
    scenario.write_text("brokers: 9\npublishers: 2\nsubscribers: 30\ntypes: 4\nduration_s: 1\n")
    assert run("sim", scenario, "--subscribers", 10, "--trace", trace) == 0
    out = capsys.readouterr().out
    assert "trading on 9 brokers, 2 publishers, 10 subscribers" in out
    assert "no violation" in out
    assert rows(trace, "events")
    assert run("topology", "make", "star", "--brokers", 5, "-o", overlay) == 0
    capsys.readouterr()
    assert run("sim", scenario, "--overlay", overlay, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["brokers"] == 5
    assert {"fulfilled", "additional", "excused", "lost", "missed", "unjudged", "spurious"} <= set(summary)
    assert set(summary["control"]) >= {"Acknowledge", "Update"}


def test_clients_have_the_delay_of_the_overlay_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    overlay, scenario = tmp_path / "o.yaml", tmp_path / "s.yaml"
    text = 'overlay: one\nbrokers: {b1: {address: "127.0.0.1:1"}}\n'
    small = ("--publishers", 1, "--subscribers", 1, "--types", 1, "--update-rate", 0, "--duration", 0.1)

    def first_settled_ms(text: str, *words: object) -> float:
        overlay.write_text(text)
        trace = tmp_path / "trace"
        assert run("sim", "--overlay", overlay, *small, "--trace", trace, *words) == 0
        capsys.readouterr()
        history = rows(trace, "history")
        at = {row["what"]: row["time_ns"] for row in reversed(history) if row["node"] == "client/p0"}
        return float(at["settled"] - at["advertised"]) / 1e6

    assert first_settled_ms(text) == 0
    text += "client_delay_ms: 40\n"
    assert first_settled_ms(text) == 160  # two round trips: hello, advertisement
    scenario.write_text("delay_ms: 5\n")
    assert first_settled_ms(text, scenario) == 20
    assert first_settled_ms(text, scenario, "--delay-ms", 1) == 4


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--overlay", "five.yaml", "--brokers", 50), "--brokers: the overlay file has its own brokers"),
        (("--overlay", "five.yaml", "--topology", "star"), "--topology: the overlay file has its own links"),
        (
            ("--load", "detectors", "--speeds", "a.csv", "--sensors", "b.csv", "--brokers", 5),
            "--brokers: load detectors has the brokers of its sensors",
        ),
        (("--load", "highway", "--types", 3), "--types: load is highway: expected load trading or"),
        (("--speeds", "a.csv"), "--speeds: load is trading: expected load detectors"),
        (
            ("--resubscribe", "unsubscribe-first"),
            "--resubscribe: routing is parametric: expected routing static",
        ),
        (
            ("--seed", 9, "--brokers", 3, "fuzz"),
            "--brokers, --seed: expected after fuzz, which has its own options",
        ),
        (("--json", "fuzz"), "--json: expected after fuzz"),
        (("fuzz", "--routing", "static", "--damping", 4), "--damping: static routing has no damping"),
        (("fuzz", "--routing", "static", "--merging", "perfect"), "--merging: static routing has no merging"),
    ],
)
def test_an_option_without_effect_is_rejected(
    words: tuple[object, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("sim", *words) == 2
    err = capsys.readouterr().err
    assert complaint in err
    assert err.count("\n") == 1


def test_mistakes_are_reported_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ("--brokers", 0),
        ("--load", "cats"),
        (tmp_path / "absent.yaml",),
        ("--overlay", tmp_path / "absent.yaml"),
        ("--cpu", tmp_path / "absent.json"),
        ("--calibrate", tmp_path / "c.json"),
        ("--topology", "ring"),
        ("--brokers", 4, "--subscribers", 1, "--trace", tmp_path / "no" / "t"),
    ):
        assert run("sim", *arguments) != 0
        assert len(capsys.readouterr().err.strip().splitlines()) == 1, arguments
