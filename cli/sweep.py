"""`covey sweep`: a grid of scenarios, and the metrics of all runs."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from covey.cli.support.options import Json, Master


def sweep(
    file: Annotated[Path, typer.Argument(metavar="SWEEP", help="A sweep file (YAML).")],
    out: Annotated[str, typer.Option(metavar="FOLDER", help="Folder or URI for the traces and the report.")],
    master: Master = None,
    json_output: Json = False,
) -> None:
    """Run a grid of scenarios, and compute the metrics of all.

    A sweep file defines a scenario, the fields that vary, and the number of seeds. Runs are processes of this
    machine or, with --master, tasks of a Spark cluster. Runs already in the folder are not repeated, so an
    interrupted sweep resumes. The folder receives a trace per run, runs.csv and report.html; on a cluster,
    all machines must share it. Exits with 1 if a run failed, its trace cannot be read, or a checker reports a
    violation.

    Example: covey sweep examples/sweep.yaml --out sweep/
    """
    from pyarrow import ArrowException

    from covey.cli.metrics import print_metrics
    from covey.cli.support.output import progress
    from covey.sim.experiments.runs.run_all import executor_at, run_all
    from covey.sim.experiments.sweep import load_sweep
    from covey.sim.extras import need
    from covey.sim.metrics.session import check_spark
    from covey.sim.trace.storage import Folder, StorageError, reason_of

    need("a sweep", "bokeh", "pyspark")
    planned = load_sweep(file)
    check_spark(master)
    with progress() as on_progress:
        outcomes = run_all(planned, out, executor_at(master), on_progress)
    failed: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.error:
            failed.setdefault(outcome.error, []).append(outcome.run)
        elif outcome.counts:
            violations = ", ".join(f"{count} of {kind}" for kind, count in outcome.counts.items())
            print(f"covey: run {outcome.run}: the checkers report {violations}", file=sys.stderr)
    for reason, (first, *others) in failed.items():
        more = f" and {len(others)} more" if others else ""
        print(f"covey: run {first}{more} failed: {reason}", file=sys.stderr)
    reused = sum(outcome.reused for outcome in outcomes)
    if reused and not json_output:
        print(f"{reused} of {len(outcomes)} runs were in the folder already")
    traces = [outcome.trace for outcome in outcomes if not outcome.error]
    broken = False
    if traces:
        with TemporaryDirectory(prefix="covey-sweep-") as local:
            csv, html = Path(local, "runs.csv"), Path(local, "report.html")
            broken = print_metrics(traces, master, csv=csv, html=html, json_output=json_output)
            for file in sorted(Path(local).iterdir()):
                place = Folder.at(out) / file.name
                try:
                    place.write_text(file.read_text(encoding="utf-8"))
                except (OSError, ArrowException) as error:
                    raise StorageError(f"{place}: cannot be written: {reason_of(error)}") from None
        if not json_output:
            print(f"report: {Folder.at(out) / html.name}")
    elif json_output:
        print("[]")
    raise typer.Exit(1 if broken or any(outcome.failed for outcome in outcomes) else 0)
