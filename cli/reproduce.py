"""`covey reproduce`: a paper's figures, measured on this machine, beside its claims."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from covey.cli.support.options import Json, Seed, writing
from covey.cli.support.output import print_json, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from covey.sim.experiments.papers import PaperReport


_COLOURS = {"HOLDS": "green", "SMALLER": "yellow", "NOT_HERE": "red", "OPPOSITE": "red"}


def reproduce(
    paper: Annotated[str, typer.Argument(help="aguilera, bittner, fabret, jayaram, liu, or all of them.")],
    quick: Annotated[
        bool,
        typer.Option("--quick", help="A smaller size: a few minutes of two cores for each paper."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report (HTML, JSON) and its plots (PNG).")
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Write the results into docs/ of the checkout in this folder.")
    ] = False,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Measure what a paper's figures show, and print each with the paper's claim and a verdict.

    Rates depend on the machine and its other load: compare only engines of the same run. For jayaram, whose
    costs are calibrated, --out keeps traces and results as well, and an interrupted run resumes there. Of
    all papers, each has a folder in --out.

    Example: covey reproduce bittner --quick --out bittner/
    """
    from rich.console import Console

    from covey.cli.support.output import compile_once, progress
    from covey.sim.experiments.papers import PAPERS, PaperPlan
    from covey.sim.experiments.papers import reproduce as run
    from covey.sim.experiments.papers.documents import (
        check_documents,
        other_verdicts,
        read_results,
        write_results,
    )
    from covey.sim.experiments.papers.provenance import ROOT
    from covey.sim.extras import need
    from covey.sim.progress import labelled

    docs = Path("docs")
    if out is not None or write:
        need("a report", "bokeh", "matplotlib")
    if write:
        check_documents(docs)
    papers = list(PAPERS) if paper == "all" else [paper]
    if "jayaram" in papers:
        need("covey reproduce", "networkx", "pyspark")
    folders = {each: out / each if out is not None and paper == "all" else out for each in papers}
    for folder in folders.values():
        if folder is not None:
            with writing(f"--out {folder}"):
                folder.mkdir(parents=True, exist_ok=True)
    if {*papers} & {*PAPERS}:
        compile_once()
    reports = []
    for each, folder in folders.items():
        with progress() as on_progress:
            plan = PaperPlan("quick" if quick else "full", seed, str(folder or ""))
            report = run(each, plan, labelled(on_progress, each) if len(papers) > 1 else on_progress)
        others = other_verdicts(report, read_results(ROOT / "docs"))
        shown = replace(report, notes=[*report.notes, others]) if others else report
        reports.append(shown.as_json())
        if not json_output:
            print_report(shown, Console())
        if folder is not None:
            write_files(shown, folder)
        if write:
            write_results(report, docs)
    if json_output:
        print_json(reports if paper == "all" else reports[0])


def print_report(report: PaperReport, console: Console) -> None:
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


def write_files(report: PaperReport, folder: Path) -> None:
    """Write `report.html`, `report.json` and a PNG per plot, named after paper and figure, into a folder.
    `CoveyError` if that fails."""
    from covey.sim.experiments.papers.documents import picture_name
    from covey.sim.experiments.papers.report import page
    from covey.sim.reports import png, write_report

    with writing(f"--out {folder}"):
        (folder / "report.json").write_text(json.dumps(report.as_json(), indent=2) + "\n")
        write_report(folder / "report.html", page(report))
        for finding in report.findings:
            if finding.plot is not None and not finding.plot.empty:
                name = picture_name(report.paper, finding.figure)
                (folder / name).write_bytes(png(finding.plot))
