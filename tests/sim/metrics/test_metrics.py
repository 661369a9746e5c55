"""Metrics: exact agreement with an independent computation; empty and incomplete traces; clock steps; the
command."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import cross_check
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run

from covey.matcher import EventType
from covey.sim.experiments.runs.executors import SparkTasks
from covey.sim.experiments.runs.run_all import run_all
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.experiments.sweep import load_sweep
from covey.sim.metrics import RunsError, compare, find_runs, summarise
from covey.sim.scenario.highway import HighwayLoad
from covey.sim.scenario.scenario import Scenario
from covey.sim.trace.first_parts import SCHEMA, parts_of

SMALL = Scenario(brokers=8, publishers=2, subscribers=30, types=4, duration_s=1.5, event_rate=40.0)
SCENARIOS = {
    "at": SMALL.having(update_rate=4.0, batch=2),
    "static": SMALL.having(
        update_rate=20.0, routing="static", resubscribe="unsubscribe-first", event_rate=80.0
    ),
    "faults": SMALL.having(crashes=1, partitions=2, loss=0.02, jitter_ms=5.0, seed=3),
    "htm": SMALL.having(load="highway", publishers=16, update_rate=6.0),
    "nobody": SMALL.having(subscribers=0, update_rate=0.0),
}
TYPES = {f"Trade{i:03d}": EventType(f"Trade{i:03d}", {"price": "int64", "volume": "int64"}) for i in range(4)}
TYPES["Traffic"] = HighwayLoad.TRAFFIC
MS = 1_000_000


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """A handwritten trace."""
    full = [dict.fromkeys(SCHEMA.names) | {"row": number} | row for number, row in enumerate(rows)]
    columns = {name: [row[name] for row in full] for name in SCHEMA.names}
    arrays = [
        pa.array(columns[field.name], pa.string()).dictionary_encode()
        if pa.types.is_dictionary(field.type)
        else pa.array(columns[field.name], field.type)
        for field in SCHEMA
    ]
    pq.write_table(pa.Table.from_arrays(arrays, schema=SCHEMA), path)


def row(kind: str, ms: int, **others: Any) -> dict[str, Any]:
    return {"kind": kind, "time_ns": ms * MS, **others}


EVENT = {"publisher": "p", "sequence": 1}
MINE = {"node": "client/s", "subscription": 1}
BROKEN_OFF = [
    row("begun", 0, text="{}"),
    row("phase", 0, name="running"),
    row("worked", 0, node="broker/b", count=5),
    row("published", 100, node="client/p", **EVENT),
    row("expected", 100, **MINE, **EVENT),
    row("carried", 400, node="broker/b", peer="client/p", count=1),
]
CLOCK_STEPS = [
    row("begun", 0, text="{}"),
    row("phase", 1_000, name="running"),
    row("updated", 1_100, **MINE, count=1),
    row("published", 1_200, node="client/p", **EVENT),
    row("delivered", 300, **MINE, **EVENT),
    row("answered", 400, **MINE, **EVENT, count=1),
    row("updated", 1_500, **MINE, count=2),
    row("published", 1_600, node="client/p", publisher="p", sequence=2),
    row("delivered", 1_450, **MINE, publisher="p", sequence=2),
    row("delivered", 1_640, **MINE, publisher="p", sequence=2),
    row("answered", 1_640, **MINE, count=2),
    row("phase", 2_000, name="resting"),
    row("ended", 2_000),
]
MISSED = [
    row("begun", 0, text="{}"),
    row("phase", 0, name="running"),
    *(row("expected", 1, **MINE, publisher="p", sequence=sequence) for sequence in range(5)),
    *(row("excused", 2, **MINE, publisher="p", sequence=sequence) for sequence in (0, 1)),
    row("published", 2, node="client/p", publisher="p", sequence=2),
    row("delivered", 3, **MINE, publisher="p", sequence=2),
    row("delivered", 3, node="client/s", subscription=2, publisher="p", sequence=3),
    row("phase", 10, name="resting"),
    row("ended", 10),
]

LATE = [
    row("begun", 0, text="{}"),
    row("phase", 0, name="running"),
    row("spurious", 500, **MINE, count=3),
    row("phase", 2_000, name="resting"),
    row("spurious", 2_100, **MINE, count=5),
    row("ended", 2_200),
]
CONTROL = [
    row("begun", 0, text="{}"),
    row("phase", 0, name="running"),
    *(row("control", 1, node="broker/b", peer="broker/a", name="Update") for _ in range(2)),
    row("control", 2, node="broker/a", peer="broker/b", name="Acknowledge"),
    *(row("control", 3, node="client/s", peer="broker/a", name="Acknowledge") for _ in range(7)),
    row("ended", 10),
]
BY_HAND = {
    "broken off": BROKEN_OFF,
    "steps": CLOCK_STEPS,
    "missed": MISSED,
    "late": LATE,
    "control": CONTROL,
    "empty": [],
}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs of a + b")
    for name, scenario in SCENARIOS.items():
        SimulatedRun(scenario).run(folder / f"{name}.parquet")
    for name, rows in BY_HAND.items():
        write(folder / f"{name}.parquet", rows)
    return folder


@pytest.fixture(scope="module")
def summaries(traces: Path, spark: None) -> dict[str, dict[str, Any]]:
    return {each["run"]: each for each in summarise([traces])}


@pytest.mark.parametrize("name", SCENARIOS)
def test_spark_and_pandas_agree_exactly(name: str, summaries: dict[str, Any], traces: Path) -> None:
    assert summaries[name] == {"run": name} | cross_check.metrics_of(traces / f"{name}.parquet", TYPES)
    if name != "nobody":
        assert summaries[name]["delay_ms"]["count"] > 2
        assert summaries[name]["expected"] > 20
        assert summaries[name]["changes"] > 20
    assert summaries[name]["latency_ms"]["count"] == summaries[name]["delivered"]


def test_a_change_under_the_static_baseline_costs_more_messages(summaries: dict[str, Any]) -> None:
    assert summaries["static"]["control_per_change"] > summaries["at"]["control_per_change"] > 0
    assert set(summaries["static"]["control_by_kind"]) == {"Acknowledge", "Subscribe", "Unsubscribe"}
    assert "Update" in summaries["at"]["control_by_kind"]


def test_expected_deliveries_that_did_not_happen_and_were_not_excused_are_missed(
    summaries: dict[str, Any],
) -> None:
    run = summaries["missed"]
    assert (run["expected"], run["missed"], run["delivered"], run["duplicate"]) == (3, 2, 2, 0)


def test_rates_exclude_events_after_the_measured_phase(summaries: dict[str, Any]) -> None:
    run = summaries["late"]
    assert (run["duration_s"], run["spurious"], run["spurious_per_s"]) == (2.0, 8, 1.5)


def test_the_busiest_link_is_one_between_brokers(summaries: dict[str, Any]) -> None:
    run = summaries["control"]
    assert (run["control_messages"], run["control_between_brokers"]) == (10, 3)
    assert run["control_busiest_link"] == 2
    assert summaries["late"]["control_busiest_link"] == 0


def test_an_incomplete_run_is_marked_and_has_unknown_missed(summaries: dict[str, Any]) -> None:
    run = summaries["broken off"]
    assert (run["complete"], run["missed"], run["expected"]) == (False, None, 1)
    assert run["duration_s"] == 0.4
    assert run["brokers"] == {"b": {"events": 1, "control_messages": 0, "busy_share": None}}


def test_an_empty_trace_has_zero_counts_and_no_rates(summaries: dict[str, Any]) -> None:
    run = summaries["empty"]
    assert (run["complete"], run["delivered"], run["duration_s"]) == (False, 0, None)
    assert run["throughput_events_per_s"] is None
    assert run["delay_ms"] == {"count": 0, "mean": None, "p50": None, "p99": None, "max": None}


def test_time_stands_still_after_the_clock_was_set_back(summaries: dict[str, Any]) -> None:
    run = summaries["steps"]
    assert run["clock_steps"] == 2
    assert run["duration_s"] == 1.0
    assert (run["delay_ms"]["p50"], run["delay_ms"]["max"]) == (100.0, 140.0)
    assert (run["latency_ms"]["p50"], run["latency_ms"]["max"]) == (0.0, 0.0)
    assert run["duplicate"] == 1


def test_invalid_traces_are_named_and_the_others_are_read(tmp_path: Path) -> None:
    write(tmp_path / "good.parquet", MISSED)
    whole = (tmp_path / "good.parquet").read_bytes()
    (tmp_path / "killed.parquet").write_bytes(whole[: len(whole) // 2])
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    runs = find_runs([tmp_path])
    assert list(runs.files) == ["good"]
    assert "killed.parquet: not a complete Parquet file" in runs.broken["killed"]
    assert "other.parquet: not a trace of this version: no column row" in runs.broken["other"]


def test_runs_are_named_by_their_folders_and_equal_names_get_a_suffix(tmp_path: Path) -> None:
    for folder in ("sweep/run=7", "sweep/run=8", "other/run=7"):
        (tmp_path / folder).mkdir(parents=True)
        write(tmp_path / folder / "trace.parquet", MISSED)
    assert list(find_runs([tmp_path / "sweep"]).files) == ["7", "8"]
    assert list(find_runs([tmp_path / "sweep", tmp_path / "other"]).files) == ["7", "8", "7~2"]
    assert list(find_runs([tmp_path / "other" / "run=7" / "trace.parquet"]).files) == ["7"]


def test_a_trace_with_a_missing_part_is_named(tmp_path: Path) -> None:
    SimulatedRun(SMALL.having(duration_s=0.2)).run(tmp_path / "run.parquet")
    parts = parts_of(tmp_path / "run.parquet")
    assert [Path(file).name for file in find_runs([tmp_path]).files["run"]] == [part.name for part in parts]
    (tmp_path / "none.parquet").mkdir()
    parts[2].unlink()
    write(tmp_path / "good.parquet", MISSED)
    runs = find_runs([tmp_path])
    assert list(runs.files) == ["good"]
    assert runs.broken["none"].endswith("none.parquet: part-00000.parquet is missing")
    assert runs.broken["run"].endswith("run.parquet: part-00002.parquet is missing")


KILLED = """
from covey.cli.main import main
from covey.sim.trace import first_parts as parts
parts.PART_ROWS = 3000
main("sim --brokers 4 --publishers 1 --subscribers 10 --types 2 --duration 1e6 --trace run.parquet".split())
"""


def test_a_run_that_is_killed_is_measured_up_to_its_last_part(
    tmp_path: Path, summaries: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "run.parquet"
    process = subprocess.Popen([sys.executable, "-c", KILLED], cwd=tmp_path)
    try:
        deadline = time.monotonic() + 120
        while len(parts_of(trace)) < 6 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        process.kill()
        process.wait()
    assert run("metrics", str(trace), "--json") == 0
    (summary,) = json.loads(capsys.readouterr().out)
    rows = pq.read_table(trace).to_pylist()
    assert [row["row"] for row in rows] == list(range(len(rows)))
    kinds = [row["kind"] for row in rows]
    assert (summary["complete"], summary["missed"], summary["scenario"]["brokers"]) == (False, None, 4)
    assert (summary["delivered"], summary["changes"]) == (kinds.count("delivered"), kinds.count("updated"))
    assert summary["delivered"] > 10
    assert summary["duration_s"] > 1


def test_a_path_without_traces_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunsError, match="no such file or folder: expected a trace"):
        find_runs([tmp_path / "absent"])
    with pytest.raises(RunsError, match="no traces: expected"):
        find_runs([tmp_path])
    (tmp_path / "half.parquet").write_bytes(b"PAR1")
    with pytest.raises(RunsError, match="not a complete Parquet file"):
        find_runs([tmp_path])


def test_runs_that_differ_only_in_their_seed_form_one_group(summaries: dict[str, Any]) -> None:
    runs = []
    for seed, routing, missed in ((1, "static", 3), (2, "static", 5), (1, "parametric", 0)):
        scenario = summaries["at"]["scenario"] | {"seed": seed, "routing": routing}
        runs.append(summaries["at"] | {"run": f"{routing}{seed}", "scenario": scenario, "missed": missed})
    static, parametric = compare(runs)
    assert (static.parameters, static.runs) == ({"routing": "static"}, 2)
    assert (static.metrics["missed"], static.intervals["missed"]) == (4.0, pytest.approx((-8.706, 16.706)))
    assert (parametric.parameters, parametric.metrics["missed"]) == ({"routing": "parametric"}, 0.0)
    assert parametric.metrics["delay_ms_p50"] == summaries["at"]["delay_ms"]["p50"]


def test_every_metric_is_documented(summaries: dict[str, Any]) -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "metrics.md").read_text()
    assert [name for name in summaries["at"] if f"`{name}`" not in page] == []


def test_the_command_prints_tables_and_writes_reports(
    traces: Path, summaries: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    html, table, plots = tmp_path / "r.html", tmp_path / "r.csv", tmp_path / "plots"
    killed = tmp_path / "killed.parquet"
    killed.write_bytes(b"PAR1")
    paths = [str(traces / f"{name}.parquet") for name in ("at", "static", "broken off")]
    outputs = ["--html", str(html), "--csv", str(table), "--plots", str(plots)]
    assert run("metrics", *paths, str(killed), *outputs) == 1
    printed = capsys.readouterr()
    assert "skipped" in printed.err
    assert printed.err.count("\n") == 1
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
    assert run("metrics", paths[0], "--json") == 0
    assert json.loads(capsys.readouterr().out) == [summaries["at"]]


def test_mistakes_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("metrics", str(tmp_path / "absent")) == 1
    assert capsys.readouterr().err.startswith(f"covey: {tmp_path}/absent: no such file or folder")


SWEEP = """
scenario: {brokers: 4, publishers: 1, subscribers: 10, types: 2, duration_s: 0.5, event_rate: 40}
vary:
  kind: {good: {seed: 3}, impossible: {load: highway, topology: line}}
"""


def test_a_sweep_runs_as_spark_tasks_and_resumes(
    summaries: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = tmp_path / "sweep.yaml", tmp_path / "out"
    file.write_text(SWEEP)
    steps: list[str] = []
    sweep = load_sweep(file)
    good, impossible = run_all(
        sweep.planned, out, SparkTasks(), lambda step, _: steps.append(step)
    )
    assert (good.failed, good.reused, good.counts) == (False, False, {})
    assert "has no positions and roads" in impossible.error
    assert (steps[0], steps[-1]) == ("0 of 2 runs", "2 of 2 runs")
    SimulatedRun(sweep.runs["good_seed-0"]).run(tmp_path / "here.parquet")
    here, there = parts_of(tmp_path / "here.parquet"), parts_of(Path(good.trace))
    assert [part.read_bytes() for part in here] == [part.read_bytes() for part in there]
    file.write_text(SWEEP.replace("impossible: {load: highway, topology: line}", "more: {seed: 4}"))
    assert run("sweep", str(file), "--out", str(out)) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "1 of 2 runs were in the folder already" in printed.out
    assert {row["run"] for row in csv.DictReader((out / "runs.csv").open())} == set(load_sweep(file).runs)
    assert "data:image/png" in (out / "report.html").read_text()
    file.write_text(SWEEP.replace("0.5", "0.6"))
    again = run_all(load_sweep(file).planned, out, SparkTasks())
    assert [outcome.reused for outcome in again] == [False, False]
