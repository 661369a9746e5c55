"""`covey bridge`: between an overlay and brokers of other systems."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from covey.cli.support.options import BROKER, NO_ACCESS, Access, Broker, with_access

bridge = typer.Typer(help="Bridge an overlay and other brokers: MQTT.", no_args_is_help=True)


@bridge.callback()
def about() -> None:
    """Bridge an overlay and other brokers: MQTT."""


@bridge.command("mqtt")
@with_access
def mqtt(
    mapping: Annotated[Path, typer.Argument(help="The mapping file.", show_default=False)],
    broker: Broker = BROKER,
    clean: Annotated[
        bool,
        typer.Option(
            "--clean", help="Begin a new session at the MQTT broker, which drops what waits for the old one."
        ),
    ] = False,
    access: Access = NO_ACCESS,
) -> None:
    """Bridge an MQTT broker until SIGTERM or Ctrl-C: topics to event types, subscriptions to topics.

    The mapping file says what goes where (docs/how-to-mqtt.md). It is read at the start: to change it,
    restart the bridge; the MQTT broker keeps messages of QoS 1 meanwhile. The options for TLS and tokens are
    those of the bridge as a client of the overlay.

    Needs Covey's extra mqtt, and an MQTT broker of version 5 of the protocol.

    Example: covey bridge mqtt mapping.yaml --broker localhost:7001
    """
    import asyncio
    import logging
    from contextlib import suppress

    from covey.bridge.mqtt import run_mqtt_bridge
    from covey.cli.support.waiting import run_until_signal
    from covey.overlay.node.logs import LogLimit, configure_log

    def ready() -> None:
        print(f"bridge between MQTT and {broker}", flush=True)

    async def run() -> None:
        with suppress(asyncio.CancelledError):  # by a signal
            await run_mqtt_bridge(
                mapping, broker, tls=access.tls, token=access.token, clean=clean, ready=ready
            )

    configure_log("bridge", "INFO", "plain")
    log = logging.getLogger("covey.bridge")
    log.addFilter(LogLimit(log))
    run_until_signal(run())
