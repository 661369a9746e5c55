"""`covey bench scenario`: a scenario over real brokers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli.support.options import Json


def scenario(
    file: Annotated[Path, typer.Argument(help="A scenario file (YAML), as `covey sim --scenario` takes.")],
    system: Annotated[
        str | None, typer.Option(help="A system to compare, such as covey-parametric or siena-parametric.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Trace to write: a folder of Parquet files.")] = None,
    json_output: Json = False,
) -> None:
    """Play a scenario over real brokers and clients on this machine, link delays included.

    History, checkers and trace are those of `covey sim`, so that simulated and real runs can be compared.
    Exits with 1 if a checker reports a violation.

    Example: covey bench scenario mine.yaml --system covey-parametric --trace real.parquet
    """
    from covey.cli.support.output import print_json
    from covey.cli.support.progress import progress
    from covey.sim.experiments.bench.scenario import RealRun
    from covey.sim.scenario.scenario import load_scenario
    from covey.sim.scenario.systems import find_system

    chosen = load_scenario(file)
    if system is not None:
        chosen = find_system(system).applied_to(chosen)
    with progress() as on_progress:
        report = RealRun(chosen).play(trace, on_progress)
    if json_output:
        print_json(report.as_json())
    else:
        print(f"{chosen.load} over {report.brokers} broker processes, {report.virtual_s:.1f} s")
        print(
            f"  {report.published:,} published, {report.delivered:,} delivered, "
            f"{report.crossings:,} crossings of links, {report.updates:,} updates"
        )
        print(f"  the busiest broker worked {report.busiest_share:.1%} of the time")
        print(f"  checkers: {report.verdict}")
        for finding in report.findings[:5]:
            print(f"    {finding}")
    raise typer.Exit(1 if report.counts else 0)
