"""The broker process: configuration in, a serving broker, an orderly end.

SIGTERM and SIGINT drain it: it refuses new connections, sends accepted events to the next hop (for at most
`DRAIN_S` seconds), says goodbye to its peers, and exits with 0. SIGHUP has it read the overlay file again
(`reload.py`). A mistake in the configuration is one line
and exit status 2; an address that cannot be bound is one line and exit status 1. An exception that nobody
expected stops it (fail-stop): it takes and acknowledges nothing more, so that its peers send again what it
has not handled, sends what is queued for at most `FAILED_DRAIN_S` seconds, and exits with 3.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from covey.overlay.node.config import ConfigError, import_operators, load_overlay, select_broker
from covey.overlay.node.log_limit import LogLimit
from covey.overlay.node.overlay import BrokerAddress, Overlay
from covey.overlay.node.overlay_file import LOG_LEVELS
from covey.overlay.transport.event_loop import run

if TYPE_CHECKING:
    from covey.overlay.node.node import Node

log = logging.getLogger("covey.broker")

DRAIN_S = 5.0
FAILED_DRAIN_S = 1.0
_PARENT_POLL_S = 1.0


def run_broker(config: str | Path | None, name: str | None, parent: int | None = None) -> int:
    """Run one broker until a signal stops it, or until the process `parent` has ended that started it;
    returns the exit status of the process.

    COVEY_CONFIG and COVEY_BROKER stand in for arguments that are None.
    """
    if hasattr(signal, "SIGHUP"):
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until there is something to reload
    try:
        level = os.environ.get("COVEY_LOG", "").upper()
        if level and level not in LOG_LEVELS:
            raise ConfigError(f"COVEY_LOG is {level!r}: expected one of {', '.join(LOG_LEVELS)}")
        path = config or os.environ.get("COVEY_CONFIG")
        if not path:
            raise ConfigError("no overlay file: give --config, or COVEY_CONFIG in the environment")
        chosen = name or os.environ.get("COVEY_BROKER")
        if not chosen:
            raise ConfigError("no broker name: give --name, or COVEY_BROKER in the environment")
        overlay = load_overlay(path)
        broker = select_broker(overlay, chosen)
        import_operators(overlay)
    except ConfigError as error:
        print(f"covey: {error}", file=sys.stderr)
        return 2
    logging.basicConfig(
        level=level or overlay.log_level,
        format=f"%(asctime)s {broker.name} %(levelname)s %(message)s",
        stream=sys.stderr,
    )
    log.addFilter(LogLimit(log))
    return run(_serve(Path(path), overlay, broker, parent))


def _set_level(level: str) -> None:
    """The level of the overlay file; COVEY_LOG overrides it."""
    logging.getLogger().setLevel(os.environ.get("COVEY_LOG", "").upper() or level)


async def _serve(file: Path, overlay: Overlay, broker: BrokerAddress, parent: int | None) -> int:
    from covey.overlay.node.dialer import Dialers
    from covey.overlay.node.node import Node
    from covey.overlay.node.reload import Reloader
    from covey.overlay.node.server import AddressError, Server

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    node = Node(overlay, broker.name, on_failure=lambda _: stop.set())
    loop.set_exception_handler(_fail_on_error(node))
    server = Server(node, broker)
    try:
        await server.start()
    except AddressError as error:
        print(f"covey: {error}", file=sys.stderr)
        return 1
    log.info("serving at %s, overlay %s, %s routing", broker.listen, overlay.name, overlay.routing)
    # What is there now stays, and so does most of what comes: interests, and frames until they are
    # acknowledged. At its usual rates the garbage collector would look at all of it again and again, between
    # two events.
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    dialers = Dialers(node, node.fail)
    dialers.update()
    reloader = Reloader(file, node, server, dialers, set_level=_set_level)
    reloads = asyncio.create_task(reloader.run())
    reloads.add_done_callback(_fail_on_end(node))
    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, reloader.requested.set)
    orphaned = asyncio.create_task(_stop_with_parent(parent, stop))
    await stop.wait()
    orphaned.cancel()
    reloads.cancel()
    log.info("stopping")
    await server.stop(FAILED_DRAIN_S if node.failed else DRAIN_S, dialers.tasks)
    log.info("stopped")
    return 3 if node.failed else 0


async def _stop_with_parent(parent: int | None, stop: asyncio.Event) -> None:
    """A process that was killed cannot stop its brokers, which would keep their addresses."""
    if parent is None or os.name != "posix":
        return
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_POLL_S)
    log.warning("the process that started this broker is gone")
    stop.set()


def _fail_on_end(node: Node) -> Callable[[asyncio.Task[None]], None]:
    """A task that ends by a defect stops the broker."""

    def done(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            node.fail(error)

    return done


def _fail_on_error(node: Node) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """An exception in a callback stops the broker. One in a connection's protocol ends that connection."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and "handle" in context:
            node.fail(error)
        else:
            loop.default_exception_handler(context)

    return handle
