"""`covey metrics`: the metrics of runs, from their traces."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli.support.options import Json, Master, check_output, writing
from covey.cli.support.output import print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from covey.sim.metrics import Group
    from covey.sim.progress import Progress

_SHOWN = 40
_TRANSPOSED = 4


def metrics(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUNS...", help="Traces, or folders of traces: paths, or URIs.")
    ],
    master: Master = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Exact percentiles instead of close ones; they need more memory.")
    ] = False,
    out: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Folder or URI for the results as Parquet tables.")
    ] = None,
    csv: Annotated[Path | None, typer.Option(help="CSV file to write, one line per run.")] = None,
    html: Annotated[Path | None, typer.Option(help="HTML report to write.")] = None,
    plots: Annotated[Path | None, typer.Option(help="Folder for the plots (PNG).")] = None,
    json_output: Json = False,
) -> None:
    """Compute delay, throughput, spurious, missed and duplicate events, control messages and broker load.

    Spark computes everything from traces, on this machine or on a cluster that can read them. Runs of a sweep
    are compared by the parameters in which they differ. A trace that cannot be read is named and skipped, and
    the command exits with 1. docs/metrics.md defines each metric.

    Example: covey metrics sweep/ --html report.html
    """
    broken = print_metrics(
        runs, master, exact=exact, out=out, csv=csv, html=html, plots=plots, json_output=json_output
    )
    raise typer.Exit(1 if broken else 0)


def print_metrics(
    paths: Sequence[str],
    master: str | None,
    *,
    exact: bool = False,
    out: str | None = None,
    csv: Path | None = None,
    html: Path | None = None,
    plots: Path | None = None,
    json_output: bool = False,
) -> bool:
    """Compute the metrics of runs, print them, and write the requested files; True if a trace was skipped."""
    from covey.cli.support.output import progress
    from covey.sim.extras import need
    from covey.sim.metrics import compare, summarise, write_csv
    from covey.sim.metrics.run_report import report_of
    from covey.sim.reports import write_report
    from covey.sim.trace.finding import find_traces

    for option, file in (("--csv", csv), ("--html", html)):
        if file is not None:
            check_output(option, file)
    for option, folder in (("--plots", plots), ("--out", out)):
        if folder is not None and Path(folder).is_file():
            raise typer.BadParameter(f"{folder} is a file, expected a folder", param_hint=option)
    if html is not None:
        need("a report", "bokeh")
    if plots is not None:
        need("a plot", "matplotlib")
    traces = find_traces(paths)
    for reason in traces.broken.values():
        print(f"covey: skipped: {reason}", file=sys.stderr)
    with progress() as on_progress:
        summaries = summarise(traces, master, exact=exact, out=out, progress=on_progress)
        groups = compare(summaries)
        if csv is not None:
            write_csv(csv, summaries)
        if html is not None:
            on_progress("page", 1.0)
            write_report(html, report_of(summaries, groups, traces.broken))
        if plots is not None:
            on_progress("plots", 1.0)
            _write_plots(plots, groups)
    if json_output:
        print_json(summaries)
    else:
        _print(summaries, groups)
    return bool(traces.broken)


def write_page(html: Path, traces: Sequence[str], master: str | None, on_progress: Progress) -> None:
    from covey.sim.metrics import compare, summarise
    from covey.sim.metrics.run_report import report_of
    from covey.sim.reports import write_report

    summaries = summarise(traces, master, progress=on_progress)
    on_progress("page", 1.0)
    write_report(html, report_of(summaries, compare(summaries)))


def _write_plots(folder: Path, groups: Sequence[Group]) -> None:
    from covey.sim.metrics.run_report import looks, plots
    from covey.sim.reports import png
    from covey.sim.reports.colours import styles

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for name, figure in plots(groups).items():
            style = styles(figure.plot.styled, looks(groups))
            (folder / f"{name}.png").write_bytes(png(figure.plot, style))


def _print(summaries: Sequence[dict[str, Any]], groups: Sequence[Group]) -> None:
    from covey.sim.metrics.run_report import group_rows, run_rows

    if 1 < len(groups) < len(summaries):
        _print_table("Settings: means over their runs", *group_rows(groups), len(groups[0].parameters))
    columns, rows = run_rows(summaries)
    _print_table("Runs", columns, rows[:_SHOWN])
    if len(rows) > _SHOWN:
        print(f"and {len(rows) - _SHOWN} more; --csv and --json have all of them")
    for summary in summaries:
        if summary["clock_steps"]:
            print(
                f"{summary['run']}: the clock was set back {summary['clock_steps']} times; "
                "durations across a step are too short"
            )


def _print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], names: int = 1) -> None:
    """Print a table. Few rows are transposed to columns; more lose the columns that are equal in all rows."""
    from covey.sim.reports import number
    from covey.sim.reports.content import compact

    if len(rows) <= _TRANSPOSED:
        first, *rows = zip(columns, *rows, strict=True)
        columns, names, same = [number(value) for value in first], 1, ""
    else:
        columns, rows, same = compact(columns, rows, names)
    print_table(title, columns, rows, names)
    if same:
        print(f"{same}\n")
