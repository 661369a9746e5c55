"""`covey broker`: one broker of an overlay, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def broker(
    config: Annotated[
        Path | None, typer.Option(help="The overlay file; default COVEY_CONFIG.", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the broker; default COVEY_BROKER.", show_default=False)
    ] = None,
    parent: Annotated[int | None, typer.Option(hidden=True, help="Stop when this parent is gone.")] = None,
) -> None:
    """Run one broker of an overlay until SIGTERM or Ctrl-C, which drain it. SIGHUP reloads the overlay file.

    Environment variables: COVEY_LISTEN (addresses to listen at), COVEY_ROUTING (parametric or static) and
    COVEY_LOG (DEBUG, INFO, WARNING or ERROR; overrides log_level of the file). Exits with 2 if the
    configuration is wrong, and with 1 if an address cannot be bound.

    Example: covey broker --config examples/five.yaml --name b1
    """
    from covey.overlay.node.main import run_broker

    raise typer.Exit(run_broker(config, name, parent))
