"""Serves a broker's metrics to Prometheus, and a page of all brokers."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from covey.overlay.core.endpoint.observing import Histogram
from covey.overlay.node.metrics import METRICS, snapshot
from covey.overlay.node.node import Node
from covey.overlay.scraping import ANSWER_WITHIN_S, Pages, ScrapeServer, SnapshotCollector, UnreadableError
from covey.overlay.transport.address import TcpAddress, parse_address
from covey.overlay.transport.credentials import Credentials

_LAG_EVERY_S = 0.5
_LAG_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_OVERVIEW_EVERY_S = 1.0
_PAGE = Path(__file__).with_name("overview.html")


class OverviewReader(Protocol):
    async def read_json(self) -> str:
        """`CoveyError` if no broker answers."""
        ...


NewOverview = Callable[[str, Credentials], OverviewReader]
"""From a broker's address."""


class OverviewOfAll:
    """The first request reads; others get the same for a second."""

    def __init__(self, reader: OverviewReader) -> None:
        self._reader = reader
        self._reading = threading.Lock()
        self._read_at = -_OVERVIEW_EVERY_S
        self._json = b""

    def read(self) -> bytes:
        """JSON. `UnreadableError` if another request reads for too long."""
        if not self._reading.acquire(timeout=ANSWER_WITHIN_S):
            raise UnreadableError
        try:
            if time.monotonic() - self._read_at >= _OVERVIEW_EVERY_S:
                self._json = asyncio.run(self._reader.read_json()).encode()
                self._read_at = time.monotonic()
            return self._json
        finally:
            self._reading.release()


class MetricsServer:
    """At `address`, HOST:PORT. `overview` is for the page of all brokers; `suppressed` counts log lines by
    level."""

    def __init__(
        self,
        node: Node,
        address: str,
        suppressed: Mapping[str, int] | None = None,
        overview: NewOverview | None = None,
    ) -> None:
        self._pages: Pages = {}
        if overview is not None:
            of_all = OverviewOfAll(overview(node.overlay.brokers[node.name].address, node.credentials))
            self._pages = {
                "/": ("text/html; charset=utf-8", _PAGE.read_bytes),
                "/overview.json": ("application/json", of_all.read),
            }
        self._node = node
        self._address = address
        self._suppressed = {} if suppressed is None else suppressed
        self._lag = Histogram(_LAG_BOUNDS_S)
        self._server: ScrapeServer | None = None
        self._measuring: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Also measures the running loop's lag. `OSError` if the address cannot be bound."""
        where = parse_address(self._address)
        assert isinstance(where, TcpAddress)
        values = SnapshotCollector(METRICS, lambda: snapshot(self._node, self._lag, self._suppressed))
        self._server = ScrapeServer(where.host, where.port, values, self._pages)
        self._measuring = asyncio.create_task(self._measure())

    async def _measure(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + _LAG_EVERY_S
            await asyncio.sleep(_LAG_EVERY_S)
            self._lag.observe(max(0.0, clock() - due))

    async def stop(self) -> None:
        if self._measuring is not None:
            self._measuring.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._measuring
        if self._server is not None:
            await asyncio.to_thread(self._server.shutdown)
            self._server.server_close()
