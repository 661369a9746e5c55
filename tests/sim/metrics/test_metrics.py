"""Metrics: exact agreement with an independent computation; empty and incomplete traces; clock steps; the
command."""

import csv
import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import cross_check
import pyarrow.parquet as pq
import pytest
from commands import run
from read_traces import rows
from written_traces import ATTEMPT, Row, write, write_and_kill

from covey.matcher import EventType
from covey.sim.experiments.runs.run_all import SparkTasks, run_all
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.experiments.sweep import load_sweep
from covey.sim.metrics import SparkError, compare, spark_session, summarise
from covey.sim.metrics.spark_jobs import watched
from covey.sim.scenario.loads import HighwayLoad
from covey.sim.scenario.scenario import Scenario
from covey.sim.trace.finding import Traces, find_traces

SMALL = Scenario(brokers=8, publishers=2, subscribers=30, types=4, duration_s=1.5, event_rate=40.0)
SCENARIOS = {
    "at": SMALL.having(update_rate=4.0, batch=2),
    "static": SMALL.having(
        update_rate=20.0, routing="static", resubscribe="unsubscribe-first", event_rate=80.0
    ),
    "faults": SMALL.having(crashes=1, partitions=2, loss=0.02, jitter_ms=5.0, seed=3),
    "htm": SMALL.having(load="highway", publishers=16, update_rate=6.0, crashes=1),
    "nobody": SMALL.having(subscribers=0, update_rate=0.0),
}
TYPES = {f"Trade{i:03d}": EventType(f"Trade{i:03d}", {"price": "int64", "volume": "int64"}) for i in range(4)}
TYPES["Traffic"] = HighwayLoad.TRAFFIC
MINE = {"client": "client/s", "subscription": 1}
INT = {"event_type": "T", "filter": "x < $1"}
UNKNOWN = {"filter": "no_such_operator(x)", "version": 1, "values": "{}"}
KINDS = {"event_types": {"T": {"x": "int64"}}}
RUNNING = {"phases": {"running": 0, "resting": 10_000_000}}


def row(table: str, ms: int, phase: str = "running", **columns: Any) -> Row:
    return table, phase, ms, columns


def change(version: int, ms: int, below: int, **others: Any) -> Row:
    return row("versions", ms, **MINE, **INT, version=version, values=json.dumps({"1": below}), **others)


def published(sequence: int, ms: int, x: int = 0, **others: Any) -> Row:
    return row("events", ms, publisher="p", sequence=sequence, values=json.dumps({"x": x}), **others)


def delivered(sequence: int, ms: int, version: int = 0, subscription: int = 1) -> Row:
    mine = MINE | {"subscription": subscription}
    return row("deliveries", ms, **mine, publisher="p", sequence=sequence, version=version, ingress_ns=0)


def owed(sequence: int, ms: int, excused: bool = False) -> Row:
    return row("obligations", ms, **MINE, publisher="p", sequence=sequence, excused=excused)


def arrived(source: str, target: str, kind: str, messages: int, events: int = 0, **others: Any) -> Row:
    columns = {"source": source, "target": target, "kind": kind, "messages": messages, "events": events}
    return row("messages", 1, **columns, **others)


NOBODY = {"count": 0, "mean": None, "p50": None, "p99": None, "max": None}
BY_HAND: dict[str, tuple[list[Row], dict[str, Any], dict[str, Any]]] = {
    # rows, fields of the manifest, and the resulting metrics
    "broken off": (
        [
            row("work", 0, broker="broker/b", busy_ns=5),
            published(1, 100),
            owed(1, 100),
            arrived("client/p", "broker/b", "Publish", 1, 1),
            row("history", 400, what="settled"),
        ],
        {"state": "running", "phases": {"running": 0}},
        {"complete": False, "missed": None, "expected": 1, "duration_s": 0.4}
        | {"brokers": {"b": {"events": 1, "control_messages": 0, "busy_share": None}}},
    ),
    "missed": (
        [
            *(owed(sequence, 1) for sequence in range(5)),
            *(owed(sequence, 2, excused=True) for sequence in (0, 1)),
            published(2, 2),
            delivered(2, 3),
            delivered(2, 4),
            delivered(3, 3, subscription=2),
        ],
        RUNNING,
        {"expected": 5, "excused": 2, "missed": 2, "delivered": 3, "duplicate": 1, "clock_steps": 0},
    ),
    # Rates exclude events after the measured phase.
    "late": (
        [row("spurious", 500, **MINE, events=3), row("spurious", 2_100, phase="resting", **MINE, events=5)],
        {"phases": {"running": 0, "resting": 2_000_000_000}, "clock_steps": 2},
        {"duration_s": 2.0, "spurious": 8, "spurious_per_s": 1.5, "clock_steps": 2}
        | {"control_busiest_link": 0},
    ),
    # The busiest link is one between brokers.
    "control": (
        [
            arrived("broker/a", "broker/b", "Update", 2),
            arrived("broker/b", "broker/a", "Acknowledge", 1),
            arrived("broker/a", "client/s", "Acknowledge", 7),
            arrived("broker/a", "broker/b", "Publish", 3, 9),
            arrived("broker/a", "broker/b", "Subscribe", 4, phase="subscribing"),
        ],
        RUNNING,
        {"control_messages": 10, "control_between_brokers": 3, "control_busiest_link": 2},
    ),
    # The warm-up is cut from delay, latency and control messages.
    "warmed": (
        [
            published(0, 1, phase="warming up"),
            delivered(0, 1),
            change(0, 0, 0, phase="subscribing"),
            change(1, 1, 5, phase="warming up"),
            change(2, 2, 9),
            published(1, 3, 7),
            published(2, 4, 3),
            delivered(1, 5, version=2),
            delivered(2, 6, version=2),
            arrived("broker/a", "broker/b", "Update", 1, phase="warming up"),
            arrived("broker/a", "broker/b", "Update", 3),
        ],
        RUNNING | KINDS,
        {"delivered": 3, "changes": 2, "control_messages": 3, "control_per_change": 3.0}
        | {"latency_ms": {"count": 2, "mean": 2.0}, "delay_ms": {"count": 1, "max": 3.0}},
    ),
    "unknown": (
        [change(0, 0, 0), row("versions", 1, **(MINE | INT | UNKNOWN))],
        RUNNING | KINDS,
        {"unmeasured": 1},
    ),
    # Event n answers change n + 1, and only the 256 newest changes are answered.
    "many": (
        [
            *(change(version, version, version) for version in range(600)),
            *(published(number, 600, number) for number in range(600)),
            *(delivered(number, 700 + number, version=599) for number in range(599)),
        ],
        RUNNING | KINDS,
        {"unmeasured": 0, "delay_ms": {"count": 256, "max": 699.0}},
    ),
    "empty": (
        [],
        {},
        {"complete": True, "delivered": 0, "duration_s": None, "throughput_events_per_s": None}
        | {"delay_ms": NOBODY},
    ),
}


OUT = {
    "latencies": ["run", "publisher", "sequence", "client", "subscription", "published_ns", "latency_ns"],
    "delays": ["run", "client", "subscription", "version", "changed_ns", "delay_ns", "publisher", "sequence"],
    "missed": ["run", "publisher", "sequence", "client", "subscription"],
    "runs": ["run", "delivered", "delay_ms_p50"],
    "brokers": ["run", "broker", "events", "control_messages", "busy_share"],
    "control": ["run", "kind", "messages"],
}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs [a] + {b}, 100%20 ü")
    for name, scenario in SCENARIOS.items():
        SimulatedRun(scenario).run(folder / name)
    for name, (written, manifest, _) in BY_HAND.items():
        write(folder / name, written, parts=2, **manifest)
    (folder / "missed" / ATTEMPT / "obligations" / "part-00009.parquet").write_bytes(b"not in the manifest")
    return folder


@pytest.fixture(scope="module")
def summaries(traces: Path, spark: None) -> dict[str, dict[str, Any]]:
    tracker = spark_session().sparkContext.statusTracker()
    steps: list[str] = []
    with watched(spark_session(), lambda tasks: None):
        before = set(tracker.getJobIdsForGroup(None))
    found = summarise([traces], exact=True, progress=lambda step, share: steps.append(step))
    assert len(set(tracker.getJobIdsForGroup(None)) - before) <= 2
    assert steps[0] == "starting Spark"
    assert any("tasks" in step for step in steps)
    return {each["run"]: each for each in found}


@pytest.mark.parametrize("name", SCENARIOS)
def test_spark_and_pandas_agree_exactly_and_with_the_run_itself(
    name: str, summaries: dict[str, Any], traces: Path
) -> None:
    run = summaries[name]
    assert run == {"run": name} | cross_check.metrics_of(traces / name, TYPES)
    if name != "nobody":
        assert run["delay_ms"]["count"] > 2
        assert run["expected"] > 20
        assert run["changes"] > 20
    assert run["latency_ms"]["count"] == run["delivered"]
    (manifest,) = find_traces([traces / name]).runs.values()
    own = manifest.summary or {}
    for count in ("published", "delivered", "spurious", "expected", "excused", "missed", "lost"):
        assert (count, run[count]) == (count, own[count])
    assert run["expected"] == own["fulfilled"] + run["excused"] + run["missed"]
    if name == "htm":
        happened = {row["what"] for row in rows(traces / name, "history")}
        assert {"crashed", "moved"} <= happened
        assert min(own["updates"], own["excused"], own["fulfilled"]) > 0


def test_a_change_under_the_static_baseline_costs_more_messages(summaries: dict[str, Any]) -> None:
    assert summaries["static"]["control_per_change"] > summaries["at"]["control_per_change"] > 0
    assert set(summaries["static"]["control_by_kind"]) == {"Acknowledge", "Subscribe", "Unsubscribe"}
    assert "Update" in summaries["at"]["control_by_kind"]


@pytest.mark.parametrize("name", BY_HAND)
def test_metrics_of_traces_written_by_hand(name: str, summaries: dict[str, Any]) -> None:
    run, expected = summaries[name], BY_HAND[name][2]
    for metric, value in expected.items():
        if metric in ("delay_ms", "latency_ms"):
            assert run[metric] | value == run[metric], metric
        else:
            assert run[metric] == value, metric


def test_results_are_written_as_tables_by_a_session_of_the_user_that_stays_as_it_is(
    traces: Path, summaries: dict[str, Any], tmp_path: Path
) -> None:
    """Only percentiles differ: they are of close ranks unless exact."""
    session = spark_session().newSession()
    own = {"spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "Asia/Tokyo"}
    own |= {"spark.sql.adaptive.enabled": "true", "spark.sql.shuffle.partitions": "7"}
    for name, value in own.items():
        session.conf.set(name, value)
    out = tmp_path / "tables [1] of {a}"
    names = ("static", "missed", "broken off", "at", "many")
    written = summarise([traces / name for name in names], spark=session, out=out)
    assert {name: session.conf.get(name) for name in own} == own
    for each in written:
        exact = summaries[each["run"]]
        for times in ("delay_ms", "latency_ms"):
            if each["run"] in ("at", "many"):
                assert each[times]["p50"] == pytest.approx(exact[times]["p50"], rel=0.02)
            each[times] |= {rank: exact[times][rank] for rank in ("p50", "p99")}
    assert written == [summaries[name] for name in names]
    tables = {name: pq.read_table(out / name).to_pandas() for name in OUT}
    for name, columns in OUT.items():
        assert set(columns) <= set(tables[name].columns)
    run = summaries["static"]
    mine = {name: table[table["run"] == "static"] for name, table in tables.items()}
    assert mine["delays"]["delay_ns"].mean() / 1e6 == pytest.approx(run["delay_ms"]["mean"])
    assert len(mine["latencies"]) == run["latency_ms"]["count"]
    assert len(tables["missed"]) == run["missed"] + 3
    assert int(mine["runs"]["delivered"].iloc[0]) == run["delivered"]
    assert int(mine["brokers"]["events"].sum()) == sum(each["events"] for each in run["brokers"].values())
    assert int(mine["control"]["messages"].sum()) == run["control_messages"]


def test_a_part_that_is_damaged_inside_is_named(tmp_path: Path, spark: None) -> None:
    write(tmp_path / "run", BY_HAND["unknown"][0], **RUNNING)
    part = tmp_path / "run" / ATTEMPT / "versions" / "part-00000.parquet"
    part.write_bytes(bytes(part.stat().st_size))
    with pytest.raises(SparkError, match=r"versions/part-00000\.parquet"):
        summarise([tmp_path / "run"])


@pytest.mark.thorough
def test_a_run_that_is_killed_is_measured_up_to_its_last_part(
    tmp_path: Path, summaries: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    write_and_kill(tmp_path)
    assert run("metrics", str(tmp_path / "run"), "--json") == 0
    (summary,) = json.loads(capsys.readouterr().out)
    (manifest,) = find_traces([tmp_path / "run"]).runs.values()
    assert (summary["complete"], summary["missed"], summary["scenario"]["brokers"]) == (False, None, 4)
    assert summary["delivered"] == manifest.rows("deliveries") > 10
    assert summary["published"] == manifest.rows("events")
    assert summary["duration_s"] > 1


def test_runs_that_differ_only_in_their_seed_form_one_group(summaries: dict[str, Any]) -> None:
    runs = []
    for seed, routing, missed in ((1, "static", 3), (2, "static", 5), (1, "parametric", 0)):
        scenario = summaries["at"]["scenario"] | {"seed": seed, "routing": routing}
        runs.append(summaries["at"] | {"run": f"{routing}{seed}", "scenario": scenario, "missed": missed})
    static, parametric = compare(runs)
    assert (static.parameters, static.runs) == ({"routing": "static"}, 2)
    assert (static.metrics["missed"], static.intervals["missed"]) == (4.0, (3.0, 5.0))
    assert (parametric.parameters, parametric.metrics["missed"]) == ({"routing": "parametric"}, 0.0)
    assert parametric.metrics["delay_ms_p50"] == summaries["at"]["delay_ms"]["p50"]


def test_every_metric_is_documented(summaries: dict[str, Any]) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text()
    assert [name for name in summaries["at"] if f"`{name}`" not in page] == []


def test_the_command_prints_tables_and_writes_reports(
    traces: Path,
    summaries: dict[str, Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From computed metrics; a guide of docs/ has a command compute them."""

    def computed(traces: Traces, *given: object, **options: object) -> list[dict[str, Any]]:
        return [summaries[name] for name in traces.runs]

    monkeypatch.setattr("covey.sim.metrics.summarise", create_autospec(summarise, side_effect=computed))
    html, table, plots = tmp_path / "r.html", tmp_path / "r.csv", tmp_path / "plots"
    killed = write(tmp_path / "killed", BY_HAND["missed"][0], **RUNNING)
    (killed / "manifest.json").write_text("{")
    paths = [str(traces / name) for name in ("at", "static", "broken off")]
    outputs = ["--html", str(html), "--csv", str(table), "--plots", str(plots)]
    assert run("metrics", *paths, str(killed), *outputs) == 1
    printed = capsys.readouterr()
    said = [line for line in printed.err.splitlines() if not re.match(r" *\d+ ?%  ", line)]
    assert len(said) == 1
    assert "skipped" in said[0]
    assert "broken off (incomplete)" in printed.out
    assert "control per change" in printed.out
    rows = {row["run"]: row for row in csv.DictReader(table.open())}
    assert rows["at"]["scenario.routing"] == "parametric"
    assert float(rows["static"]["delay_ms_p50"]) == summaries["static"]["delay_ms"]["p50"]
    assert rows["broken off"]["missed"] == ""
    assert {path.name for path in plots.iterdir()} >= {"throughput_events_per_s.png", "delay_ms_p50.png"}
    text = html.read_text()
    for word in ("Metrics", "Incomplete: broken off", "Skipped: ", "data:text/csv"):
        assert word in text


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("metrics", str(tmp_path / "absent")) == 2
    assert capsys.readouterr().err.startswith(f"covey: {tmp_path}/absent: no such folder")


SWEEP = """
scenario: {brokers: 4, publishers: 1, subscribers: 10, types: 2, duration_s: 0.5, event_rate: 40}
vary:
  kind: {good: {update_rate: 3}, impossible: {load: highway, topology: line}}
"""


@pytest.mark.thorough
def test_a_sweep_runs_as_spark_tasks_and_resumes(
    spark: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "sweep.yaml", tmp_path / "out"
    file.write_text(SWEEP)
    steps: list[str] = []
    good, impossible = run_all(load_sweep(file), out, SparkTasks(), lambda step, _: steps.append(step))
    assert (good.failed, good.reused, good.counts) == (False, False, {})
    assert "has no positions and roads" in impossible.error
    assert (steps[0], steps[-1]) == ("0 of 2 runs", "2 of 2 runs")
    (manifest,) = find_traces([good.trace]).runs.values()
    assert manifest.rows("deliveries") == summarise([good.trace])[0]["delivered"] > 0
    file.write_text(SWEEP.replace("impossible: {load: highway, topology: line}", "more: {update_rate: 4}"))
    assert run("sweep", str(file), "--out", str(out)) == 0
    printed = capsys.readouterr()
    assert re.fullmatch(r"( *\d+ ?%  .*\n)*", printed.err), "nothing but progress"
    assert "1 of 2 runs were in the folder already" in printed.out
    assert {row["run"] for row in csv.DictReader((out / "runs.csv").open())} == {
        run.name for run in load_sweep(file)
    }
    assert "bokeh" in (out / "report.html").read_text()
    file.write_text(SWEEP.replace("0.5", "0.6"))
    again = run_all(load_sweep(file), out, SparkTasks())
    assert [outcome.reused for outcome in again] == [False, False]
