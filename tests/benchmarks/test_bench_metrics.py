"""`python -m benchmarks metrics`: counts of metrics grow with a multiplied run."""

from pathlib import Path

import pytest

from benchmarks import metrics as spark_metrics
from benchmarks.metrics import MetricsPlan, measure_metrics, multiplied
from covey.matcher.errors import CoveyError
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.metrics import summarise
from covey.sim.scenario.scenario import Scenario
from covey.sim.trace.finding import Traces, find_traces
from covey.sim.trace.tables import TABLES

COUNTS = ("published", "delivered", "changes", "subscribers", "expected", "spurious", "duplicate", "missed")


@pytest.mark.thorough
@pytest.mark.usefixtures("spark")
def test_a_multiplied_run_has_so_many_times_the_counts_and_the_same_percentiles(tmp_path: Path) -> None:
    small = Scenario(brokers=4, publishers=2, subscribers=20, types=2, duration_s=1.0, event_rate=40)
    SimulatedRun(small).run(tmp_path / "base")
    base = find_traces([tmp_path / "base"])
    size = sum(base.bytes(table) for table in TABLES)
    multiplied(base, tmp_path / "large", 3 * size)
    large = find_traces([tmp_path / "large"])
    copies = large.rows("events") // base.rows("events")
    assert copies >= 3
    assert large.rows("history") == base.rows("history")
    one, many = summarise([tmp_path / "base", tmp_path / "large"], exact=True)
    assert (many["run"], many["complete"]) == ("large", True)
    assert {name: many[name] for name in COUNTS} == {name: copies * one[name] for name in COUNTS}
    assert many["latency_ms"] == one["latency_ms"] | {"count": copies * one["latency_ms"]["count"]}
    assert one["delay_ms"]["count"] > 0
    assert many["delay_ms"] == one["delay_ms"] | {"count": copies * one["delay_ms"]["count"]}
    with pytest.raises(CoveyError, match="0 runs: expected one"):
        multiplied(Traces(), tmp_path / "none", 1)


def test_a_trace_that_was_not_completed_is_written_again_into_a_folder_that_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(what: str, share: float) -> None:
        if "copies" in what:
            raise KeyboardInterrupt

    small = Scenario(brokers=4, publishers=2, subscribers=20, types=2, duration_s=0.5)
    plan = MetricsPlan(1e-6, (), tmp_path / "new")
    monkeypatch.setattr(spark_metrics, "_BASE", small)
    with pytest.raises(KeyboardInterrupt):
        measure_metrics(plan, interrupted)
    measure_metrics(plan)
    place = tmp_path / "new" / "run-1e-06-gib"
    assert find_traces([place]).runs[place.name].complete
    assert len([*place.glob("attempt-*")]) == 1
