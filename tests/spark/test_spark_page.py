"""The examples of docs/how-to-spark.md and docs/spark.md, in order, and the benchmark of Spark on a
few rows."""

import re
from pathlib import Path
from typing import Any

import pytest
from live_brokers import LiveBrokers
from running import eventually

from benchmarks.spark import SparkPlan, measure_spark
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.metrics import spark_session
from covey.sim.scenario.scenario import Scenario
from covey.spark.options import HistoryOptions, SinkOptions, StreamOptions

pytestmark = [pytest.mark.xdist_group("spark"), pytest.mark.usefixtures("spark")]

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "how-to-spark.md").read_text() + (DOCS / "spark.md").read_text()


def test_the_examples_of_the_page_run(
    live: LiveBrokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    SimulatedRun(Scenario(brokers=4, publishers=1, subscribers=2, types=1, duration_s=0.5)).run(
        tmp_path / "run"
    )
    session = spark_session()
    names: dict[str, Any] = {"spark": session}
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert len(blocks) == 5
    stream, update, sink, history, match = (
        block.replace("127.0.0.1:7001", live.far).replace('load("run/")', f'load("{tmp_path / "run"}")')
        for block in blocks
    )
    exec(stream, names)
    query = names["query"]
    eventually(lambda: query.lastProgress is not None, "the first micro-batch, which is empty")
    exec(update, names)
    live.publish(("IBM", 30.0, 1))  # over the new limit
    exec(sink, names)
    eventually(lambda: session.table("cheap").count() > 0, "the event of the sink", 120)
    query.stop()
    assert [tuple(row) for row in session.table("cheap").collect()] == [("IBM", 9.5, 100)]
    exec(history, names)
    assert "ingress_ns" in names["events"].columns
    exec(match, names)
    assert [row.filters for row in names["tried"].collect()] == [[1], [2]]
    assert [tuple(row) for row in names["counts"].collect()] == [(7, 1)]


def test_the_page_has_every_option() -> None:
    named = set(re.findall(r"`(\w+)`", PAGE))
    for options in (StreamOptions, SinkOptions, HistoryOptions):
        assert options.model_fields.keys() - named <= {"path", "table"}
    for name, field in StreamOptions.model_fields.items():
        if isinstance(field.default, str | int | float) and not isinstance(field.default, bool):
            (row,) = re.findall(rf"\| `{name}` \| (.*?) \|", PAGE)
            shown = f"{field.default:g}" if isinstance(field.default, float) else str(field.default)
            assert row.strip("`") in (shown, "every event")


@pytest.mark.thorough
def test_match_and_joins_find_the_same_pairs() -> None:
    results = measure_spark(SparkPlan(filters=(20,), events=500, join_filters=20))
    assert [(result.form, result.system) for result in results] == [
        ("ranges", "match"),
        ("ranges", "cross join"),
        ("firm and ranges", "match"),
        ("firm and ranges", "hash join"),
    ]
    assert results[0].pairs >= results[2].pairs > 0
