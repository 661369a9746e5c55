"""One scenario in virtual time and over real brokers: from one schedule, both deliver the same."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from commands import run

from covey.sim.experiments.runs.real import RealRun, received_since
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.scenario.scenario import Scenario, ScenarioError
from covey.sim.scenario.systems import find_system

TINY = Scenario(
    brokers=4,
    publishers=2,
    subscribers=10,
    types=3,
    duration_s=1.0,
    event_rate=25.0,
    update_rate=3.0,
    delay_ms=2.0,
    seed=11,
    pace="orderly",
)


def delivered(trace: Path) -> list[tuple[object, ...]]:
    """Which events reached which subscriptions."""
    rows = pq.read_table(trace).to_pylist()
    return sorted(
        (row["node"], row["subscription"], row["publisher"], row["sequence"])
        for row in rows
        if row["kind"] == "delivered"
    )


def arrived(trace: Path) -> Counter[tuple[str, ...]]:
    """Events, and control messages of each sort, that reached brokers and clients, from whom, in which phase.

    Without acknowledgements between brokers: one may stand for several, which is a matter of time.
    """
    found: Counter[tuple[str, ...]] = Counter()
    phase = ""
    for row in pq.read_table(trace).to_pylist():
        if row["kind"] == "phase":
            phase = row["name"]
        elif row["kind"] in ("control", "carried") and phase in ("running", "resting"):
            ends = [row[end].partition("/")[0] for end in ("peer", "node")]
            sort = "events" if row["kind"] == "carried" else row["name"]
            if sort != "Acknowledge" or "client" in ends:
                found[phase, *ends, sort] += row["count"] or 1
    return found


@pytest.mark.parametrize(
    ("load", "system"), [("highway", "covey-parametric"), ("trading", "covey-unsubscribe-first")]
)
@pytest.mark.usefixtures("local_brokers")
def test_simulated_and_real_runs_deliver_identical_sets(load: str, system: str, tmp_path: Path) -> None:
    scenario = find_system(system).applied_to(TINY.having(load=load))
    simulated = SimulatedRun(scenario).run(tmp_path / "simulated.parquet")
    real = RealRun(scenario).run(tmp_path / "real.parquet")
    assert not simulated.counts, simulated.findings
    assert not real.counts, real.findings
    assert (simulated.published, simulated.updates) == (real.published, real.updates)
    assert delivered(tmp_path / "simulated.parquet") == delivered(tmp_path / "real.parquet")
    assert simulated.delivered == real.delivered > 20
    assert simulated.crossings == real.crossings
    counts, real_counts = arrived(tmp_path / "simulated.parquet"), arrived(tmp_path / "real.parquet")
    answers = ("running", "broker", "client", "Acknowledge")
    assert min(counts.pop(answers), real_counts.pop(answers)) >= real.updates > 20
    assert counts == real_counts
    phases = [r["name"] for r in pq.read_table(tmp_path / "real.parquet").to_pylist() if r["kind"] == "phase"]
    assert phases == ["advertising", "subscribing", "running", "resting", "quiet"]


@pytest.mark.usefixtures("local_brokers")
def test_a_timed_real_run_delivers_all_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text("brokers: 4\npublishers: 1\nsubscribers: 6\ntypes: 2\nduration_s: 1\nupdate_rate: 2\n")
    assert run("sim", "--real", "--scenario", str(file), "--system", "covey-parametric", "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert report["counts"] == {}
    assert report["expected"] <= report["delivered"]
    assert report["scenario"]["engine"] == "cluster"


def test_counters_of_a_new_session_count_from_zero() -> None:
    was = {"received": {"Publish": 2, "Update": 3}, "events_received": 9}
    more = {"received": {"Publish": 4, "Update": 3, "Subscribe": 1}, "events_received": 15}
    fewer = {"received": {"Subscribe": 1, "Publish": 3}, "events_received": 11}
    assert received_since(more, was) == ({"Publish": 2, "Update": 0, "Subscribe": 1}, 6)
    assert received_since(fewer, was) == ({"Subscribe": 1, "Publish": 3}, 11)
    assert received_since(more, None) == ({"Publish": 4, "Update": 3, "Subscribe": 1}, 15)


def test_a_baseline_is_refused() -> None:
    with pytest.raises(ScenarioError, match=r"engine is .poset.: expected .cluster. or .* over real brokers"):
        RealRun(find_system("siena-parametric").applied_to(TINY))
