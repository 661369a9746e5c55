"""`covey sweep`: many runs of a scenario, what varies between them, and what came out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from covey.cli.support.options import Json


def sweep(
    file: Annotated[Path, typer.Argument(metavar="SWEEP", help="A sweep file (YAML).")],
    out: Annotated[Path, typer.Option(help="Folder for the traces and the report.")],
    master: Annotated[str, typer.Option(help="Where Spark runs and computes.")] = "local[*]",
    json_output: Json = False,
) -> None:
    """Run a grid of scenarios as tasks of Spark, and compute the metrics of all.

    A sweep file has a scenario, what varies, and how many seeds. Runs that the folder has already are not run
    again, so an interrupted sweep goes on where it was. The folder gets a trace for each run, runs.csv, and
    report.html. On a cluster it has to be a folder that all machines share. Ends with 1 if a run failed, its
    trace cannot be read, or a checker found something wrong.

    Example: covey sweep examples/sweep.yaml --out sweep/
    """
    from covey.cli.metrics import print_metrics
    from covey.cli.support.progress import progress
    from covey.sim.experiments.sweep import load_sweep, run_sweep

    wanted = load_sweep(file)
    with progress() as on_progress:
        outcomes = run_sweep(wanted, out, master, on_progress)
    for outcome in outcomes:
        if outcome.error:
            print(f"covey: run {outcome.run} failed: {outcome.error}", file=sys.stderr)
        elif outcome.counts:
            found = ", ".join(f"{count} of {what}" for what, count in outcome.counts.items())
            print(f"covey: run {outcome.run}: the checkers found {found}", file=sys.stderr)
    kept = sum(outcome.kept for outcome in outcomes)
    if kept and not json_output:
        print(f"{kept} of {len(outcomes)} runs were there already")
    traces = [outcome.trace for outcome in outcomes if not outcome.error]
    broken = False
    if traces:
        broken = print_metrics(
            traces, master, csv=out / "runs.csv", html=out / "report.html", json_output=json_output
        )
        if not json_output:
            print(f"report: {out / 'report.html'}")
    elif json_output:
        print("[]")
    raise typer.Exit(1 if broken or any(outcome.failed for outcome in outcomes) else 0)
