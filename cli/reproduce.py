"""`covey reproduce`: a paper's figures, measured on this machine, beside its claims."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.cli.support.options import Json, Seed
from covey.cli.support.output import print_json, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from covey.sim.experiments.papers import PaperFinding, PaperReport


_COLOURS = {"REACHED": "green", "SMALLER": "yellow", "DIFFERS": "red"}
"""Of verdicts, by name."""


def reproduce(
    paper: Annotated[str, typer.Argument(help="aguilera, bittner, fabret, jayaram or liu.")],
    quick: Annotated[bool, typer.Option("--quick", help="A size that takes a few minutes.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report (HTML, JSON) and its plots (PNG).")
    ] = None,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Measure what a paper's figures show, and print each with the paper's claim and a verdict.

    Rates depend on the machine and its other load: compare only engines of the same run. For jayaram, whose
    costs are calibrated, --out keeps traces and results as well, and an interrupted run resumes there.

    Example: covey reproduce bittner --quick --out bittner/
    """
    from rich.console import Console

    from covey.cli.support.progress import compile_once, progress
    from covey.sim.experiments.papers import PAPERS, PaperPlan
    from covey.sim.experiments.papers import reproduce as run
    from covey.sim.extras import need

    if out is not None:
        need("a report", "bokeh", "matplotlib")
        make_folder(out)
    if paper in PAPERS:
        compile_once()
    with progress() as on_progress:
        report = run(paper, PaperPlan("quick" if quick else "full", seed, str(out or "")), on_progress)
    if json_output:
        print_json(report.as_json())
    else:
        print_report(report, Console())
    if out is not None:
        write_files(report, out)


def print_report(report: PaperReport, console: Console) -> None:
    """Print each finding: the claim, a table, and the verdict."""
    console.print(f"[bold]{report.citation}[/bold] ({report.size})", highlight=False)
    for finding in report.findings:
        console.print(f"\n[bold]{finding.figure}[/bold]  {finding.title}", highlight=False)
        console.print(f"paper: {finding.claim}", highlight=False)
        if finding.rows:
            columns = list(finding.rows[0])
            print_table("", columns, [list(row.values()) for row in finding.rows])
        colour = _COLOURS.get(finding.verdict.name, "default")
        verdict = f"[{colour}]{finding.verdict.value}[/{colour}]"
        console.print(f"here:  {verdict}: {finding.conclusion}", highlight=False)
    for note in report.notes:
        console.print(f"\nnote: {note}", highlight=False)


def make_folder(folder: Path) -> None:
    """Create the folder of a report. Raises `CoveyError` if that fails."""
    from covey.matcher import CoveyError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CoveyError(f"--out {folder}: {error.strerror or error}") from None


def write_files(report: PaperReport, folder: Path) -> None:
    """Write `report.html`, `report.json` and a PNG per plot, named after paper and figure, into a folder.

    Raises `CoveyError` if that fails.
    """
    from covey.matcher import CoveyError
    from covey.sim.experiments.papers.report import page
    from covey.sim.reports import png, write_report

    try:
        (folder / "report.json").write_text(json.dumps(report.as_json(), indent=2) + "\n")
        write_report(folder / "report.html", page(report))
        for finding in report.findings:
            if finding.plot is not None and not finding.plot.empty:
                (folder / plot_name(report, finding)).write_bytes(png(finding.plot))
    except OSError as error:
        raise CoveyError(f"--out {folder}: {error.strerror or error}") from None


def plot_name(report: PaperReport, finding: PaperFinding) -> str:
    """The file name of a finding's plot: `fabret-fig-3a.png`."""
    slug = re.sub(r"[^a-z0-9]+", "-", finding.figure.lower().replace("(", "")).strip("-")
    return f"{report.paper}-{slug}.png"
