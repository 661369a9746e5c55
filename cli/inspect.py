"""`covey inspect`: the state of a broker."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from covey.cli.support.options import Json

_MAX_LISTED = (1 << 32) - 1
"""The largest number in an InspectRequest."""


def inspect(
    broker: Annotated[
        str, typer.Option(help="Address of the broker, HOST:PORT or unix:PATH.")
    ] = "localhost:7001",
    limit: Annotated[
        int,
        typer.Option(
            min=0, max=_MAX_LISTED, help="Subscriptions and slots to list, per event type and interface."
        ),
    ] = 100,
    everything: Annotated[bool, typer.Option("--all", help="List all of them.")] = False,
    json_output: Json = False,
) -> None:
    """Show a broker's routing state: publishers, subscriptions, slots at neighbours, and its counters.

    Listing blocks the broker: about half a second for ten thousand subscriptions.

    Example: covey inspect --broker localhost:7001 --json
    """
    from covey.overlay.client import inspect_broker

    text, state = asyncio.run(inspect_broker(broker, listed=None if everything else limit))
    typer.echo(json.dumps(state, indent=2) if json_output else text.rstrip())
