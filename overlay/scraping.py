"""Serves metrics to Prometheus, and other pages, from threads; the event loop only reads values, one reading
at a time. At most `_CONNECTIONS` threads serve peers, each for at most `_REQUEST_WITHIN_S`."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import socketserver
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client import Metric as Family
from prometheus_client.exposition import MetricsHandler
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from covey.matcher.errors import CoveyError
from covey.overlay.core.endpoint.observing import Histogram

ANSWER_WITHIN_S = 5.0
_REQUEST_WITHIN_S = 10.0
_CONNECTIONS = 8
"""Concurrent requests. A further connection is closed after `_FREE_WITHIN_S`."""
_FREE_WITHIN_S = 1.0

log = logging.getLogger("covey.broker")


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()


Value = float | Histogram
Samples = dict[str, dict[tuple[str, ...], Value]]
"""By metric name, by label values."""
Pages = Mapping[str, tuple[str, Callable[[], bytes]]]
"""By path: content type, and a reader, which may raise `CoveyError` or `UnreadableError`."""


class UnreadableError(Exception):
    """The values could not be read."""


class SnapshotCollector(Collector):
    """Runs `read` on the event loop on which it was created; `collect` may be called in any thread."""

    def __init__(self, metrics: Sequence[Metric], read: Callable[[], Coroutine[Any, Any, Samples]]) -> None:
        self._metrics = metrics
        self._read = read
        self._loop = asyncio.get_running_loop()
        self._reading = threading.Lock()

    def describe(self) -> list[Family]:
        return list(_families(self._metrics, {metric.name: {} for metric in self._metrics}))

    def collect(self) -> Iterator[Family]:
        if not self._reading.acquire(timeout=ANSWER_WITHIN_S):
            raise UnreadableError
        try:
            reading = asyncio.run_coroutine_threadsafe(self._read(), self._loop)
            try:
                values = reading.result(ANSWER_WITHIN_S)
            except (TimeoutError, CancelledError) as error:
                reading.cancel()
                raise UnreadableError from error
        finally:
            self._reading.release()
        return _families(self._metrics, values)


_FAMILIES: dict[str, type[Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def _families(metrics: Sequence[Metric], values: Samples) -> Iterator[Family]:
    for metric in metrics:
        family = _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)
        for labels, value in values[metric.name].items():
            if isinstance(value, Histogram):
                family.add_metric(labels, _buckets(value), value.total)
            else:
                family.add_metric(labels, float(value))
        yield family


def _buckets(histogram: Histogram) -> list[tuple[str, float]]:
    buckets, below = [], 0
    for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
        below += count
        buckets.append((str(bound), float(below)))
    return buckets


class _Handler(MetricsHandler):
    timeout = _REQUEST_WITHIN_S

    def handle(self) -> None:
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
        path, pages = self.path.partition("?")[0], self.server.pages
        if path in pages:
            kind, read = pages[path]
            try:
                self._answer(kind, read())
            except (CoveyError, UnreadableError) as error:
                self.send_error(503, str(error) or "the overlay is being read")
            return
        if path != "/metrics":
            self.send_error(404, f"expected {' or '.join(('/metrics', *pages))}")
            return
        try:
            super().do_GET()
        except UnreadableError:
            self.send_error(503, "too busy to read the metrics")
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


class ScrapeServer(socketserver.ThreadingTCPServer):
    """Answers in threads from construction on. `OSError` if the address cannot be bound."""

    allow_reuse_address = True
    daemon_threads = True
    block_on_close = False

    def __init__(self, host: str, port: int, values: Collector, pages: Pages | None = None) -> None:
        self.pages = pages or {}
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._free = threading.Semaphore(_CONNECTIONS)
        registry = CollectorRegistry()
        registry.register(values)
        ProcessCollector(registry=registry)
        super().__init__((host, port), _Handler.factory(registry))
        threading.Thread(target=self.serve_forever, name="covey-metrics", daemon=True).start()

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
        """A peer that disconnects is no error."""
