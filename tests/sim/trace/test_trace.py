"""The trace of a run: rows, parts, versions, times."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow.parquet as pq
import pytest

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.moving.motion import Motion
from covey.sim.experiments.runs.run import RunSummary
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.scenario.scenario import Scenario
from covey.sim.simulator.observer import ObservedClient
from covey.sim.trace.finding import Traces, find_traces
from covey.sim.trace.tables import TABLES, event_texts, lifted_values, values_text
from covey.sim.trace.trace import Trace

SMALL = Scenario(brokers=12, publishers=3, subscribers=60, types=6, duration_s=2.0, event_rate=40.0)
TYPE = EventType("Quote", {"price": "float64", "symbol": "string", "at": "timestamp"})


def rows(traces: Traces, table: str) -> list[dict[str, Any]]:
    """The rows of a table, in the order of its parts."""
    return [row for file in traces.files(table) for row in pq.read_table(file).to_pylist()]


def client(name: str = "client/s", text: str = "price < $limit", **values: Any) -> ObservedClient:
    session = SimpleNamespace(values=lambda subscription_id: values)
    return cast(
        "ObservedClient",
        SimpleNamespace(
            name=name, broker="broker/b", session=session, subscriptions={1: parse(text, TYPE)}, present=True
        ),
    )


def prices(*numbers: float, first: int = 1) -> EventBatch:
    return EventBatch.from_pylist(
        TYPE, [{"price": price} for price in numbers], publisher="p", first_sequence=first
    )


def test_a_seed_determines_the_parts_byte_for_byte(tmp_path: Path) -> None:
    scenario = SMALL.having(loss=0.05, jitter_ms=3.0, crashes=1, partitions=1, duration_s=1.0)
    for name, chosen in (("a", scenario), ("b", scenario), ("c", scenario.having(seed=1))):
        (tmp_path / name).mkdir()
        SimulatedRun(chosen).run(tmp_path / name / "run")
    a, b, c = (
        {
            (path.parent.name, path.name): path.read_bytes()
            for path in (tmp_path / name).glob("run/*/*/*.parquet")
        }
        for name in "abc"
    )
    assert {table for table, _ in a} == set(TABLES)
    assert a == b != c


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunSummary, Traces]:
    folder = tmp_path_factory.mktemp("traces") / "one"
    return SimulatedRun(SMALL.having(update_rate=8.0)).run(folder), find_traces([folder])


def test_a_trace_agrees_with_the_summary(one: tuple[RunSummary, Traces]) -> None:
    report, traces = one
    manifest = traces.runs["one"]
    assert (manifest.state, manifest.clock_steps) == ("complete", 0)
    assert manifest.summary == json.loads(json.dumps(report.as_json()))
    assert manifest.scenario == report.as_json()["scenario"]
    assert [*manifest.phases] == ["advertising", "subscribing", "running", "resting", "quiet"]
    assert manifest.event_types["Trade000"] == {"price": "int64", "volume": "int64"}
    assert sum(traces.rows(table) for table in TABLES) == report.trace_rows
    for table, schema in TABLES.items():
        assert all(pq.read_schema(file).equals(schema) for file in traces.files(table)), table
        times = [row["time_ns"] for row in rows(traces, table)]
        assert times == sorted(times)
        assert len(times) == traces.rows(table)
        assert sum(Path(file).stat().st_size for file in traces.files(table)) == traces.bytes(table)
    assert {(row["run"]) for row in rows(traces, "messages")} == {"one"}
    for row in rows(traces, "history"):
        assert row["time_ns"] >= manifest.phases.get(row["phase"], 0)
    assert (traces.rows("events"), traces.rows("deliveries")) == (report.published, report.delivered)
    assert sum(row["events"] for row in rows(traces, "spurious")) > 0
    versions = rows(traces, "versions")
    assert sum(row["version"] == 0 for row in versions) == 60
    assert 0 < sum(row["version"] > 0 for row in versions) <= report.updates
    expected = [row for row in rows(traces, "obligations") if not row["excused"]]
    assert len(expected) == report.expected
    published = {(row["publisher"], row["sequence"]) for row in rows(traces, "events")}
    assert {(row["publisher"], row["sequence"]) for row in rows(traces, "deliveries")} <= published
    messages = rows(traces, "messages")
    assert {row["kind"] for row in messages} >= {"Advertise", "Subscribe", "Update", "Publish", "Deliver"}
    for row in messages:
        assert (row["events"] > 0) == (row["kind"] in ("Publish", "Deliver"))
    crossings = [row for row in messages if row["source"][:2] == row["target"][:2] == "br"]
    assert sum(row["events"] for row in crossings) == report.crossings


def test_a_delivery_has_the_newest_version_of_its_subscription(one: tuple[RunSummary, Traces]) -> None:
    _, traces = one
    changes = [(row["time_ns"], 0, row) for row in rows(traces, "versions")]
    deliveries = [(row["time_ns"], 1, row) for row in rows(traces, "deliveries")]
    newest: dict[str, int] = {}
    checked = 0
    for _, is_delivery, row in sorted(changes + deliveries, key=lambda each: each[:2]):
        if is_delivery:
            checked += row["version"] == newest[row["client"]]
        else:
            assert row["version"] == newest.get(row["client"], -1) + 1
            newest[row["client"]] = row["version"]
    assert checked >= 0.99 * len(deliveries) > 50  # a few changes lie at the very time of a delivery


def test_parts_appear_during_the_run_and_pending_rows_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.sim.trace.trace.PENDING_ROWS", 500)
    monkeypatch.setattr("covey.sim.trace.trace._CHECKED_EVERY", 1)
    seen: list[int] = []

    def look(phase: str, share: float) -> None:
        traces = find_traces([tmp_path / "run"])
        assert traces.runs["run"].state == "running"
        seen.append(sum(traces.rows(table) for table in TABLES))

    report = SimulatedRun(SMALL.having(duration_s=1.0)).run(tmp_path / "run", look)
    assert seen == sorted(seen)
    assert 0 < seen[0] < seen[len(seen) // 2] < report.trace_rows
    tables = find_traces([tmp_path / "run"]).runs["run"].tables
    rows_of_parts = [part.rows for parts in tables.values() for part in parts]
    assert max(rows_of_parts) <= 600, "a batch may exceed the bound"
    assert not list(tmp_path.rglob(".*"))


def test_subscriptions_that_differ_in_constants_share_their_filter(tmp_path: Path) -> None:
    with Trace(tmp_path / "run", lambda: 0) as trace:
        trace.subscribed(client("client/a", "price < 3 and symbol == 'IBM'"), 1)
        trace.subscribed(client("client/b", "price < $x - 2 and symbol == $y", x=7, y="A"), 1)
        trace.subscribed(client("client/c", "price < 3"), 1)
    a, b, c = rows(find_traces([tmp_path / "run"]), "versions")
    assert a["filter"] == b["filter"] == "price < $1 and symbol == $2"
    assert c["filter"] == "price < $1"
    assert [json.loads(row["values"]) for row in (a, b)] == [{"1": 3, "2": "IBM"}, {"1": 5, "2": "A"}]


def test_versions_are_numbered_per_subscription_and_forgotten_with_it(tmp_path: Path) -> None:
    one = client(limit=3.0)
    batch = prices(1.0, 2.0)
    with Trace(tmp_path / "run", lambda: 0) as trace:
        trace.subscribed(one, 1)
        trace.updated(one, 1, {})
        trace.delivered(one, DeliverTo(1, batch, 3))
        trace.unsubscribed(one, 1)
        trace.delivered(one, DeliverTo(1, batch.slice(1, 1), 0))
        trace.left(one, vanished=True)
    traces = find_traces([tmp_path / "run"])
    assert [(row["sequence"], row["version"]) for row in rows(traces, "deliveries")] == [
        (1, 1),
        (2, 1),
        (2, None),
    ]
    assert [row["events"] for row in rows(traces, "spurious")] == [3]
    assert [(row["what"], row["name"], row["number"]) for row in rows(traces, "history")] == [
        ("begun", None, None),
        ("unsubscribed", "Quote", 1),
        ("left", "vanished", None),
        ("ended", None, None),
    ]


def test_time_stands_still_after_the_clock_was_set_back(tmp_path: Path) -> None:
    clock = iter([100, 200, 300, 250, 250, 260, 270, 400, 390, 390, 500])
    with Trace(tmp_path / "run", lambda: next(clock)) as trace:
        for name in "abcdefg":
            trace.crashed(name)
    traces = find_traces([tmp_path / "run"])
    assert traces.runs["run"].clock_steps == 2
    assert [(row["time_ns"], row["node"] or row["what"]) for row in rows(traces, "history")] == [
        (100, "begun"),
        (200, "a"),
        (300, "b"),
        (300, "clock"),
        (300, "c"),
        (300, "d"),
        (300, "e"),
        (400, "f"),
        (400, "clock"),
        (400, "g"),
        (500, "ended"),
    ]
    steps = [row["number"] for row in rows(traces, "history") if row["what"] == "clock"]
    assert steps == [50, 10]


def test_counters_of_real_brokers_are_rows_with_counts(tmp_path: Path) -> None:
    with Trace(tmp_path / "run", lambda: 0) as trace:
        trace.counted("client/p", "broker/b", {"Publish": 3, "Update": 2, "Subscribe": 0}, 7)
    messages = rows(find_traces([tmp_path / "run"]), "messages")
    assert [(row["kind"], row["messages"], row["events"]) for row in messages] == [
        ("Publish", 3, 7),
        ("Update", 2, 0),
    ]


def test_values_are_valid_json_with_motions_times_and_infinities() -> None:
    def strict(text: str) -> Any:
        def refuse(word: str) -> None:
            raise AssertionError(f"{word} is no JSON")

        return json.loads(text, parse_constant=refuse)

    at = datetime(2026, 1, 2, tzinfo=UTC)
    filter = parse("price < $limit and at >= $since", TYPE)
    assert strict(values_text(filter, {"limit": math.inf, "since": at})) == {
        "1": "Infinity",
        "2": "2026-01-02T00:00:00+00:00",
    }
    moving = parse("price < 2 * $limit + 1 and symbol == 'A'", TYPE)
    assert lifted_values(moving, {"limit": Motion(5.0, -2.0, 9)}) == {"1": Motion(11.0, -4.0, 9), "2": "A"}
    assert strict(values_text(moving, {"limit": Motion(5.0, -2.0, 9)})) == {
        "1": {"value": 11.0, "rate": -4.0, "since_ns": 9},
        "2": "A",
    }
    events = EventBatch.from_pylist(TYPE, [{"price": -math.inf, "at": at}, {"symbol": 'say "é"'}])
    assert [strict(text) for text in event_texts(events)] == [
        {"price": "-Infinity", "symbol": None, "at": "2026-01-02T00:00:00+00:00"},
        {"price": None, "symbol": 'say "é"', "at": None},
    ]


def test_a_table_without_rows_has_a_part(tmp_path: Path) -> None:
    with Trace(tmp_path / "run", lambda: 0):
        pass
    traces = find_traces([tmp_path / "run"])
    for table, schema in TABLES.items():
        assert all(pq.read_schema(file).equals(schema) for file in traces.files(table))
        assert (len(traces.files(table)), traces.rows(table)) == ((2, 2) if table == "history" else (1, 0))
