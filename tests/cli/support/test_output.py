"""Tables on narrow terminals: parts below each other, with whole names."""

from pathlib import Path

import pytest
from commands import run
from rich.console import Console
from run_summaries import summary
from written_traces import write

from covey.cli.support import output
from covey.sim.scenario.scenario import Scenario

SYSTEMS = ("siena-subscribe-first", "siena-parametric", "rete-subscribe-first", "rete-parametric")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "console", lambda: Console(width=80))


@pytest.mark.usefixtures("narrow")
def test_a_wide_table_is_printed_in_parts_with_whole_names(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [[rate, *(rate * n for n in range(4))] for rate in (10.0, 100.0)]
    output.print_table("Title", ["updates/s per edge broker", *SYSTEMS], rows)
    printed = capsys.readouterr().out
    assert all(printed.count(system) == 1 for system in SYSTEMS)
    assert printed.count("updates/s per edge broker") == 2
    assert printed.count("Title") == 1
    assert "…" not in printed
    assert all(len(line) <= 80 for line in printed.splitlines())


@pytest.mark.usefixtures("narrow")
def test_every_part_begins_with_the_columns_that_name_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["system", "rate", *(f"a metric number {n}" for n in range(6))]
    output.print_table("", columns, [["rete-parametric", 10, *range(6)]], names=2)
    printed = capsys.readouterr().out
    assert printed.count("rete-parametric") == printed.count("rate") == 3


@pytest.mark.usefixtures("narrow")
def test_a_name_that_is_too_long_is_folded(capsys: pytest.CaptureFixture[str]) -> None:
    name = " ".join(["word"] * 30)
    output.print_table("", ["run", "events/s"], [[name, 1.0]])
    assert capsys.readouterr().out.count("word") == 30


def test_a_few_rows_that_begin_with_numbers_are_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = ((1.0, 20.0), (1.0, 20.0), (1.0, 20.0), (0.5, 30.0), (0.5, 30.0))
    runs = [
        summary(f"run{number}", Scenario(update_rate=update_rate, seed=number), rate)
        for number, (update_rate, rate) in enumerate(settings)
    ]
    monkeypatch.setattr("covey.sim.metrics.summarise", lambda *_, **__: runs)
    assert run("metrics", write(tmp_path / "run", [])) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    for expected in (["update_rate", "1", "0.5"], ["runs", "3", "2"], ["events/s", "20", "30"]):
        assert expected in lines
