"""`covey broker`: one broker of an overlay, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def broker(
    config: Annotated[
        Path | None, typer.Option(help="The overlay file; COVEY_CONFIG if not given.", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Which of its brokers; COVEY_BROKER if not given.", show_default=False)
    ] = None,
) -> None:
    """Run one broker of an overlay until SIGTERM or Ctrl-C, which drain it.

    The environment also has COVEY_LISTEN (host:port to listen at), COVEY_ROUTING (parametric or static) and
    COVEY_LOG (DEBUG, INFO, WARNING or ERROR). Ends with 2 if the configuration is wrong, and with 1 if the
    address cannot be had.

    Example: covey broker --config examples/five.yaml --name b1
    """
    from covey.overlay.node.main import run_broker

    raise typer.Exit(run_broker(config, name))
