"""Serves a broker's metrics to Prometheus, by HTTP at an address of their own, and a page of all brokers.

The event loop only reads the values (`metrics.py`); threads write the text.

Invariant: peers take at most `_CONNECTIONS` threads, each for at most `_REQUEST_WITHIN_S`, and the values are
read once at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import MetricsHandler
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from covey.matcher.errors import CoveyError
from covey.overlay.core.endpoint.observing import Histogram
from covey.overlay.node.metrics import METRICS, Samples, snapshot
from covey.overlay.node.node import Node
from covey.overlay.transport.address import TcpAddress, parse_address
from covey.overlay.transport.credentials import Credentials

_LAG_EVERY_S = 0.5
_LAG_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_ANSWER_WITHIN_S = 5.0
_REQUEST_WITHIN_S = 10.0
_CONNECTIONS = 8
"""Requests at once; a further connection waits for `_FREE_WITHIN_S`, and then is closed."""
_FREE_WITHIN_S = 1.0
_OVERVIEW_EVERY_S = 1.0
_PAGE = Path(__file__).with_name("overview.html")

log = logging.getLogger("covey.broker")


class UnreadableError(Exception):
    """The values could not be read."""


class BrokerCollector(Collector):
    """The metrics of one broker, read on its event loop when they are collected in another thread."""

    def __init__(
        self, node: Node, lag: Histogram, suppressed: Mapping[str, int], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._node = node
        self._lag = lag
        self._suppressed = suppressed
        self._loop = loop
        self._reading = threading.Lock()

    def describe(self) -> list[Metric]:
        return list(families({metric.name: {} for metric in METRICS}))

    def collect(self) -> Iterator[Metric]:
        """The values, with their names and labels. `UnreadableError` if the event loop does not give them."""
        if not self._reading.acquire(timeout=_ANSWER_WITHIN_S):
            raise UnreadableError
        try:
            reading = asyncio.run_coroutine_threadsafe(
                snapshot(self._node, self._lag, self._suppressed), self._loop
            )
            try:
                values = reading.result(_ANSWER_WITHIN_S)
            except (TimeoutError, CancelledError) as error:
                reading.cancel()
                raise UnreadableError from error
        finally:
            self._reading.release()
        return families(values)


_FAMILIES: dict[str, type[Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def families(values: Samples) -> Iterator[Metric]:
    """The metrics as prometheus-client writes them."""
    for metric in METRICS:
        family = _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)
        for labels, value in values[metric.name].items():
            if isinstance(value, Histogram):
                family.add_metric(labels, _buckets(value), value.total)
            else:
                family.add_metric(labels, float(value))
        yield family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative, as Prometheus counts."""
    buckets, below = [], 0
    for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        below += count
        buckets.append((str(bound), float(below)))
    return buckets


class _Handler(MetricsHandler):
    timeout = _REQUEST_WITHIN_S

    def handle(self) -> None:
        """Answer one request. `timeout` is that of one read; the whole has as long."""
        deadline = threading.Timer(_REQUEST_WITHIN_S, self._abort)
        deadline.daemon = True
        deadline.start()
        try:
            super().handle()
        finally:
            deadline.cancel()

    def _abort(self) -> None:
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def do_GET(self) -> None:  # noqa: N802
        assert isinstance(self.server, ScrapeServer)
        path, overview = self.path.partition("?")[0], self.server.overview
        if path == "/" and overview is not None:
            self._answer("text/html; charset=utf-8", _PAGE.read_bytes())
            return
        if path == "/overview.json" and overview is not None:
            try:
                self._answer("application/json", overview.read())
            except (CoveyError, UnreadableError) as error:
                self.send_error(503, str(error) or "the overlay is being read")
            return
        if path != "/metrics":
            self.send_error(404, f"expected /metrics{'' if overview is None else ', / or /overview.json'}")
            return
        try:
            super().do_GET()
        except UnreadableError:
            self.send_error(503, "the broker is too busy to read its metrics")
        except OSError:
            raise  # the peer went away
        except Exception as error:
            log.warning("the metrics were not read: %r", error)
            self.send_error(500, "the metrics could not be read")

    def _answer(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)


class OverviewReader(Protocol):
    async def read_json(self) -> str:
        """The brokers of the overlay and what is wrong with them. `CoveyError` if none answers."""
        ...


NewOverview = Callable[[str, Credentials], OverviewReader]
"""From the address of a broker on."""


class OverviewOfAll:
    """What the page shows, read from this broker on by who asks first; others get the same for a second."""

    def __init__(self, reader: OverviewReader) -> None:
        self._reader = reader
        self._reading = threading.Lock()
        self._read_at = -_OVERVIEW_EVERY_S
        self._json = b""

    def read(self) -> bytes:
        """JSON. `UnreadableError` if another request has read for too long."""
        if not self._reading.acquire(timeout=_ANSWER_WITHIN_S):
            raise UnreadableError
        try:
            if time.monotonic() - self._read_at >= _OVERVIEW_EVERY_S:
                self._json = asyncio.run(self._reader.read_json()).encode()
                self._read_at = time.monotonic()
            return self._json
        finally:
            self._reading.release()


class ScrapeServer(socketserver.ThreadingTCPServer):
    """Answers requests for the metrics of a registry, in threads."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(
        self, host: str, port: int, registry: CollectorRegistry, overview: OverviewOfAll | None = None
    ) -> None:
        self.overview = overview
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._free = threading.Semaphore(_CONNECTIONS)
        super().__init__((host, port), _Handler.factory(registry))

    def verify_request(self, request: Any, client_address: Any) -> bool:
        return self._free.acquire(timeout=_FREE_WITHIN_S)

    def process_request(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request(request, client_address)
        except BaseException as error:  # no thread has it, which would release
            self._free.release()
            log.warning("the metrics were not read: %r", error)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A peer that went away is none of the broker's business."""


class MetricsServer:
    """The metrics of one node at an address, HOST:PORT, and with `overview` the page of all brokers.
    `suppressed` counts lines of the log, by level.
    """

    def __init__(
        self,
        node: Node,
        address: str,
        suppressed: Mapping[str, int] | None = None,
        overview: NewOverview | None = None,
    ) -> None:
        own = node.overlay.brokers[node.name].address
        self._overview = None if overview is None else OverviewOfAll(overview(own, node.credentials))
        self._node = node
        self._address = address
        self._suppressed = {} if suppressed is None else suppressed
        self._lag = Histogram(_LAG_BOUNDS_S)
        self._server: ScrapeServer | None = None
        self._measuring: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Serve, and measure the event loop that runs. `OSError` if the address cannot be bound."""
        registry = CollectorRegistry()
        loop = asyncio.get_running_loop()
        registry.register(BrokerCollector(self._node, self._lag, self._suppressed, loop))
        ProcessCollector(registry=registry)
        where = parse_address(self._address)
        assert isinstance(where, TcpAddress)
        self._server = ScrapeServer(where.host, where.port, registry, self._overview)
        threading.Thread(target=self._server.serve_forever, name="covey-metrics", daemon=True).start()
        self._measuring = asyncio.create_task(self._measure())

    async def _measure(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + _LAG_EVERY_S
            await asyncio.sleep(_LAG_EVERY_S)
            self._lag.observe(max(0.0, clock() - due))

    async def stop(self) -> None:
        """Serve no more."""
        if self._measuring is not None:
            self._measuring.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._measuring
        if self._server is not None:
            await asyncio.to_thread(self._server.shutdown)
            self._server.server_close()
