"""The broker process, from configuration to an orderly end.

SIGTERM and SIGINT drain: refuse connections and events, send accepted events to the next hop for at most
`DRAIN_S`, say goodbye, exit with 0; so does leaving the overlay, but with 3 if neighbours lack stored
records. SIGHUP reloads the overlay file (`reload.py`). A mistake in the configuration exits with 2, an
unusable address or directory with 1.

An unexpected exception stops the broker (fail-stop) with 3: it acknowledges nothing more, so peers send again
what was not handled; queued frames are sent for at most `FAILED_DRAIN_S`.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pyarrow as pa

from covey.overlay.documents import ConfigError
from covey.overlay.node.config import (
    check_certificate,
    check_storage,
    check_tickets,
    check_tokens,
    check_tracing,
    import_operators,
    load_overlay,
    select_broker,
    tracing_installed,
)
from covey.overlay.node.logs import FORMATS, LogLimit, configure_log
from covey.overlay.node.overlay import BrokerAddress, Overlay
from covey.overlay.node.overlay_file import LOG_LEVELS
from covey.overlay.storage.files import StorageError
from covey.overlay.transport.event_loop import run

if TYPE_CHECKING:
    from covey.overlay.node.metrics_server import MetricsServer, NewOverview
    from covey.overlay.node.node import Node
    from covey.overlay.node.node_tracing import NodeTracing

log = logging.getLogger("covey.broker")

DRAIN_S = 5.0
LEAVE_S = 600.0
"""How long a leaving broker drains to other brokers."""
FAILED_DRAIN_S = 1.0
EXPORT_S = 2.0
"""How long a stopping broker exports spans."""
_PARENT_POLL_S = 1.0


def run_broker(
    config: str | Path | None,
    name: str | None,
    parent: int | None = None,
    overview: NewOverview | None = None,
) -> int:
    """Run a broker until a signal, or the end of the process `parent`; returns the exit status. With a
    parent, Ctrl-C in a terminal reaches only that. COVEY_CONFIG and COVEY_BROKER replace arguments that are
    None. `overview` reads all brokers for the page at the metrics address."""
    if parent is not None and os.name == "posix" and os.getsid(0) != os.getpid():
        os.setpgid(0, 0)
    changed: list[int] = []
    if hasattr(signal, "SIGHUP"):  # before the file is read: what changes behind that is read once it serves
        signal.signal(signal.SIGHUP, lambda number, _: changed.append(number))
    try:
        level = os.environ.get("COVEY_LOG", "").upper()
        if level and level not in LOG_LEVELS:
            raise ConfigError(f"COVEY_LOG is {level!r}: expected one of {', '.join(LOG_LEVELS)}")
        format = os.environ.get("COVEY_LOG_FORMAT", "") or "plain"
        if format not in FORMATS:
            raise ConfigError(f"COVEY_LOG_FORMAT is {format!r}: expected one of {', '.join(FORMATS)}")
        path = config or os.environ.get("COVEY_CONFIG")
        if not path:
            raise ConfigError("no overlay file: give --config, or COVEY_CONFIG in the environment")
        chosen = name or os.environ.get("COVEY_BROKER")
        if not chosen:
            raise ConfigError("no broker name: give --name, or COVEY_BROKER in the environment")
        overlay = load_overlay(path)
        broker = select_broker(overlay, chosen)
        check_certificate(overlay, chosen)
        check_tokens(overlay)
        check_tickets(overlay)
        check_storage(overlay)
        import_operators(overlay)
        check_tracing(overlay)
    except ConfigError as error:
        print(f"covey: {error}", file=sys.stderr)
        return 2
    configure_log(broker.name, level or overlay.log_level, format)
    limit = LogLimit(log)
    log.addFilter(limit)
    _leave_out_pandas()
    if overlay.tls is None and overlay.insecure:
        log.warning("insecure: connections are neither encrypted nor authenticated")
    return run(_serve(Path(path), overlay, broker, parent, limit.suppressed, changed, overview))


class _NoPandas(MetaPathFinder):
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def _leave_out_pandas() -> None:
    """Convert a list while pandas cannot be imported: pyarrow would import it at its first conversion, which
    takes 50 MB. Operators can still import it later."""
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)


def _set_level(level: str) -> None:
    """COVEY_LOG overrides `level`."""
    logging.getLogger().setLevel(os.environ.get("COVEY_LOG", "").upper() or level)


async def _serve(
    file: Path,
    overlay: Overlay,
    broker: BrokerAddress,
    parent: int | None,
    suppressed: Mapping[str, int],
    changed: Sequence[int],
    overview: NewOverview | None,
) -> int:
    from covey.overlay.node.dialer import Dialers
    from covey.overlay.node.node import Node
    from covey.overlay.node.reload import Reloader
    from covey.overlay.node.server import AddressError, Server

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    tracing = _tracing(overlay, broker.name)
    try:
        node = Node(overlay, broker.name, on_failure=lambda _: stop.set(), tracing=tracing)
    except StorageError as error:
        print(f"covey: broker {broker.name} cannot use its storage: {error}", file=sys.stderr)
        return 1
    loop.set_exception_handler(_fail_on_error(node))
    server = Server(node, broker)
    try:
        await server.start()
    except AddressError as error:
        print(f"covey: {error}", file=sys.stderr)
        node.close()
        return 1
    metrics = _serve_metrics(node, suppressed, overview)
    if metrics is None and broker.name in overlay.metrics:
        await server.stop(0.0)
        return 1
    log.info("serving at %s, overlay %s, %s routing", broker.listen, overlay.name, overlay.routing)
    # Most objects live long: interests, and frames until they are acknowledged. At its usual rates the
    # garbage collector would scan all of them again and again, between two events.
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 5, 1_000_000)  # a full collection is for cycles, and nothing makes any
    dialers = Dialers(node, node.fail)
    dialers.update()
    reloader = Reloader(file, node, server, dialers, set_level=_set_level, leave=stop.set)
    reloads = asyncio.create_task(reloader.run())
    reloads.add_done_callback(_fail_on_end(node))
    if hasattr(signal, "SIGHUP"):
        loop.add_signal_handler(signal.SIGHUP, reloader.requested.set)
    if changed:
        reloader.requested.set()
    orphaned = asyncio.create_task(_stop_with_parent(parent, stop))
    await stop.wait()
    orphaned.cancel()
    reloads.cancel()
    log.info("stopping")
    links_s = LEAVE_S if reloader.left and not node.failed else 0.0
    await server.stop(FAILED_DRAIN_S if node.failed else DRAIN_S, dialers.tasks, links_s)
    if metrics is not None:
        await metrics.stop()
    if tracing is not None:
        await asyncio.to_thread(tracing.shut_down, EXPORT_S)
    log.info("stopped")
    return 3 if node.failed or (reloader.left and node.not_sent_on) else 0


def _tracing(overlay: Overlay, broker: str) -> NodeTracing | None:
    """None without a collector in the overlay file or the environment."""
    of_environment = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or os.environ.get(
        "OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    disabled = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if disabled or not (of_environment or overlay.tracing):
        return None
    if not tracing_installed():
        log.warning("no spans: OpenTelemetry is not installed; pip install 'covey[otel]'")
        return None
    from covey.overlay.node.node_tracing import NodeTracing, otlp_processor

    log.info("spans to %s", urlsplit(of_environment or overlay.tracing).netloc.rpartition("@")[2])
    return NodeTracing(broker, overlay.name, otlp_processor("" if of_environment else overlay.tracing))


def _serve_metrics(
    node: Node, suppressed: Mapping[str, int], overview: NewOverview | None
) -> MetricsServer | None:
    """None if the overlay file has no address for it, or binding fails."""
    address = node.overlay.metrics.get(node.name)
    if address is None:
        return None
    from covey.overlay.node.metrics_server import MetricsServer

    server = MetricsServer(node, address, suppressed, overview)
    try:
        server.start()
    except OSError as error:
        why = error.strerror or str(error)
        print(f"covey: broker {node.name} cannot serve metrics at {address}: {why}", file=sys.stderr)
        return None
    log.info("metrics at %s", address)
    return server


async def _stop_with_parent(parent: int | None, stop: asyncio.Event) -> None:
    """A killed process cannot stop its brokers, which would keep their addresses."""
    if parent is None or os.name != "posix":
        return
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_POLL_S)
    log.warning("the process that started this broker is gone")
    stop.set()


def _fail_on_end(node: Node) -> Callable[[asyncio.Task[None]], None]:
    """A defect in a task stops the broker."""

    def done(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            node.fail(error)

    return done


def _fail_on_error(node: Node) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], None]:
    """An exception in a callback stops the broker; one in a connection's protocol ends that connection."""

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if error is not None and "handle" in context:
            node.fail(error)
        else:
            loop.default_exception_handler(context)

    return handle
