"""docs/traces.md: its tables are the code's, and its queries agree in Spark, DuckDB, Polars and pandas, on a
trace with misses."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from changed_runs import SMALL_FRAMES, changed_run

from covey.sim.metrics import spark_session
from covey.sim.scenario.scenario import Scenario
from covey.sim.trace.manifest import Manifest
from covey.sim.trace.tables import PHASES, TABLES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "traces.md").read_text()
LOSSY = Scenario(
    brokers=12,
    publishers=3,
    subscribers=60,
    types=6,
    duration_s=2.0,
    event_rate=80.0,
    jitter_ms=30.0,
    routing="static",
    resubscribe="unsubscribe-first",
)
QUESTIONS = ("Throughput", "Latency", "Missed", "Deliveries by version")


def blocks(text: str) -> dict[str, str]:
    """The code of a section, by the tool in its first line; "sql" for SQL."""
    found = {}
    for language, code in re.findall(r"^```(\w+)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        tool = "sql" if language == "sql" else code.partition("\n")[0].removeprefix("# ")
        assert tool not in found
        found[tool] = code
    return found


def section(title: str) -> str:
    (text,) = re.findall(rf"^### {title}:.*?\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """The folder of a run, and its summary."""
    folder = tmp_path_factory.mktemp("traces") / "run"
    run = changed_run(LOSSY, link=SMALL_FRAMES)
    return folder, run.run(folder).as_json()


@pytest.fixture(scope="module")
def tools(runs: tuple[Path, dict[str, Any]], spark: None) -> dict[str, dict[str, Any]]:
    """The names that the page's set-up defines, by tool."""
    setup = blocks(PAGE[PAGE.index("## Queries") : PAGE.index("### Throughput")])
    spaces: dict[str, dict[str, Any]] = {tool: {"spark": spark_session()} for tool in setup}
    for tool, code in setup.items():
        exec(code.replace("run/*", f"{runs[0]}/*"), spaces[tool])
    return spaces


def records(result: Any) -> list[dict[str, Any]]:
    """The rows of a result of any of the tools."""
    if hasattr(result, "collect"):  # Spark
        return [row.asDict() for row in result.collect()]
    if hasattr(result, "fetchall"):  # DuckDB
        return [dict(zip(result.columns, row, strict=True)) for row in result.fetchall()]
    if hasattr(result, "to_dicts"):  # Polars
        return list(result.to_dicts())
    return list(result.to_dict("records"))


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_query_gives_equal_results_in_all_tools(
    question: str, tools: dict[str, dict[str, Any]], runs: tuple[Path, dict[str, Any]]
) -> None:
    code = blocks(section(question))
    results = {
        "spark": records(tools["spark"]["spark"].sql(code["sql"])),
        "duckdb": records(tools["duckdb"]["duckdb"].sql(code["sql"])),
    }
    for tool in ("polars", "pandas"):
        exec(code[tool], tools[tool])
        results[tool] = records(tools[tool]["result"])
    (expected,) = results["pandas"]
    assert len(expected) > 1
    for tool, rows in results.items():
        assert rows == [pytest.approx(expected)], tool
        assert [*rows[0]] == [*expected], tool
    summary = runs[1]
    if question == "Throughput":
        assert 0 < expected["deliveries"] <= summary["delivered"]
        assert expected["per_second"] == pytest.approx(expected["deliveries"] / LOSSY.duration_s)
    elif question == "Latency":
        assert expected["deliveries"] == summary["delivered"]
        assert 20 < expected["p50_ms"] < expected["p99_ms"]
    elif question == "Missed":
        assert expected["missed"] == summary["lost"] > 0
    else:
        assert expected["versions"] > LOSSY.subscribers
        assert 0 < expected["without_delivery"] < expected["versions"]


def test_the_page_has_every_table_column_phase_and_field_of_the_manifest() -> None:
    tables = PAGE[PAGE.index("## Tables") : PAGE.index("## The manifest")]
    parts = re.split(r"^### ", tables, flags=re.MULTILINE)
    every, described = parts[0], {part.partition("`")[2].partition("`")[0]: part for part in parts[1:]}
    assert [*described] == [*TABLES]
    for table, schema in TABLES.items():
        for name in schema.names:
            assert f"`{name}`" in described[table] + every, f"{table}.{name}"
    assert all(f"`{phase}`" in every for phase in PHASES)
    manifest = PAGE[PAGE.index("## The manifest") :]
    assert all(f"`{field.name}`" in manifest for field in fields(Manifest))
