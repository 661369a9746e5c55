"""`covey bench`: how fast Covey is on this machine. One module per benchmark."""

from __future__ import annotations

import typer

from covey.cli.bench.bounds import bounds
from covey.cli.bench.chain import chain
from covey.cli.bench.change import change
from covey.cli.bench.control import control
from covey.cli.bench.drift import drift
from covey.cli.bench.durable import durable
from covey.cli.bench.faults import faults
from covey.cli.bench.gateway import gateway
from covey.cli.bench.hostile import hostile
from covey.cli.bench.match import match
from covey.cli.bench.metrics import metrics
from covey.cli.bench.operators import operators
from covey.cli.bench.pauses import pauses
from covey.cli.bench.peers import peers
from covey.cli.bench.routing import routing
from covey.cli.bench.soak import soak
from covey.cli.bench.spark import spark
from covey.cli.bench.stalled import stalled
from covey.cli.bench.view import view

bench = typer.Typer(no_args_is_help=True, help="Measure how fast Covey is on this machine.")


@bench.callback()
def group() -> None:
    """Measure how fast Covey is on this machine."""


for command in (
    bounds,
    chain,
    match,
    pauses,
    drift,
    change,
    durable,
    faults,
    gateway,
    hostile,
    peers,
    routing,
    control,
    operators,
    metrics,
    soak,
    spark,
    stalled,
    view,
):
    bench.command(command.__name__)(command)
