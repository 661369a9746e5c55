"""`covey inspect`: what a broker knows."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from covey.cli.options import Json


def inspect(
    broker: Annotated[str, typer.Option(help="Address of the broker, HOST:PORT.")] = "localhost:7001",
    json_output: Json = False,
) -> None:
    """Show a broker's routing state: who publishes, who wants what, what was asked of whom, and its counters.

    Example: covey inspect --broker localhost:7001 --json
    """
    from covey.overlay.client import inspect_broker

    text, state = asyncio.run(inspect_broker(broker))
    typer.echo(json.dumps(state, indent=2) if json_output else text.rstrip())
