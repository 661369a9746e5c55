"""`covey bench`: how fast Covey is on this machine. What else is measured is in `benchmarks/`."""

from __future__ import annotations

import typer

from covey.cli.bench.chain import chain
from covey.cli.bench.match import match

bench = typer.Typer(no_args_is_help=True, help="Measure how fast Covey is on this machine.")


@bench.callback()
def group() -> None:
    """Measure how fast Covey is on this machine."""


bench.command("chain")(chain)
bench.command("match")(match)
