"""`covey inspect`: the state of a broker."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated

import typer

from covey.cli.support.access import NO_ACCESS, Access, with_access
from covey.cli.support.options import Json

_MAX_LISTED = 1_000
"""As many items of a list as a broker shows (`MAX_LISTED`; its module takes a second to import)."""


@with_access
def inspect(
    broker: Annotated[
        str, typer.Option(help="Address of the broker, HOST:PORT or unix:PATH.")
    ] = "localhost:7001",
    limit: Annotated[
        int,
        typer.Option(
            min=0,
            max=_MAX_LISTED,
            help="Items of each list: clients, types, subscriptions and slots.",
        ),
    ] = 100,
    json_output: Json = False,
    access: Access = NO_ACCESS,
) -> None:
    """Show a broker's routing state: publishers, subscriptions, slots at neighbours, and its counters.

    It says how many items of a list it leaves off, and delays no event.

    Example: covey inspect --broker localhost:7001 --json
    """
    from covey.overlay.client import inspect_broker

    text, state = asyncio.run(inspect_broker(broker, listed=limit, tls=access.tls, token=access.token))
    typer.echo(json.dumps(state, indent=2) if json_output else text.rstrip())
