"""The server of a demonstration's page: its files, the gateway to the overlay, a socket, a picture.

Everything the page subscribes to comes through the gateway; the socket `/live` has drawing data, counters and
sliders, and the page's reports to the oracle. Chromium takes a picture when the page has loaded; a page
opened with `?hold` has loaded when the server has answered `hold` (drawing.js).

A machine that is too slow makes fewer events and queues none, so only the comparison with the demand shows
it. Invariant: both are of the same seconds, so a moving slider makes no shortfall.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import tempfile
import webbrowser
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from covey.gateway import Limits, application
from covey.gateway.server import bind, server
from covey.matcher.errors import CoveyError, InputError
from covey.overlay.client import inspect_broker
from covey.overlay.transport.address import is_local, parse_address
from covey.sim.experiments.local_overlay import free_addresses
from covey.sim.experiments.processes import every

_FILES = Path(__file__).parent
_FILE = re.compile(r"[a-z_]+\.(js|css)")
_MEDIA = {"js": "text/javascript", "css": "text/css"}
Live = Callable[[WebSocket], Awaitable[None]]


class Site:
    """`page` is an HTML file of this folder; `live` serves one connection of `/live`."""

    def __init__(self, page: str, broker: str, live: Live, *, listen: str = "") -> None:
        self.address = listen or free_addresses(1)[0]
        self._page = page
        self._live = live
        self._limits = Limits()
        self._gateway = application(broker, limits=self._limits)
        self.opened = asyncio.Event()
        self._released = asyncio.Event()

    @property
    def url(self) -> str:
        return f"http://{self.address}/"

    async def serve(self, ready: Callable[[str], None], until: Callable[[], Awaitable[None]]) -> None:
        """Serve until SIGINT, SIGTERM, or the end of `until()`; `ready` gets the address."""
        routes = [
            Route("/", self._index),
            Route("/favicon.ico", _nothing),
            Route("/hold", self._hold),
            WebSocketRoute("/live", self._socket),
            Mount("/covey", self._gateway),
            Route("/{file}", self._file),
        ]
        app = Starlette(routes=routes, lifespan=self._gateway.router.lifespan_context)
        serving = server(app, self._limits)
        listener = bind(self.address, tls=False, insecure=False)
        served = asyncio.create_task(serving.serve(sockets=[listener]))
        ending = asyncio.ensure_future(until())
        try:
            while not serving.started and not served.done():
                await asyncio.sleep(0.01)
            ready(self.url)
            await asyncio.wait({served, ending}, return_when=asyncio.FIRST_COMPLETED)
            if ending.done():
                ending.result()
        finally:
            ending.cancel()
            serving.should_exit = True
            await asyncio.gather(served, ending, return_exceptions=True)

    def release(self) -> None:
        """Let a page that was opened with `?hold` finish loading."""
        self._released.set()

    async def _hold(self, request: Request) -> Response:
        await self._released.wait()
        return Response(status_code=204)

    async def _index(self, request: Request) -> Response:
        return FileResponse(_FILES / self._page)

    async def _file(self, request: Request) -> Response:
        name = request.path_params["file"]
        if _FILE.fullmatch(name) is None or not (_FILES / name).is_file():
            return PlainTextResponse(f"no file {name!r}\n", 404)
        return FileResponse(_FILES / name, media_type=_MEDIA[name.rpartition(".")[2]])

    async def _socket(self, websocket: WebSocket) -> None:
        await websocket.accept()
        self.opened.set()
        with suppress(WebSocketDisconnect):
            await self._live(websocket)


async def _nothing(request: Request) -> Response:
    return Response(status_code=204)


async def each_message(websocket: WebSocket, handle: Callable[[dict[str, Any]], Awaitable[None]]) -> None:
    """Handle the page's JSON messages until it disconnects; it gets one sentence for an invalid message."""
    while True:
        try:
            text = await websocket.receive_text()
        except (WebSocketDisconnect, KeyError):
            return
        try:
            message = json.loads(text)
            if not isinstance(message, dict):
                raise InputError(f"a message is {text[:50]}: expected an object")
            await handle(message)
        except (CoveyError, ValueError, KeyError, TypeError) as error:
            await websocket.send_json({"kind": "error", "message": f"{type(error).__name__}: {error}"[:300]})


async def converse(
    websocket: WebSocket,
    start: dict[str, Any],
    parts: dict[Callable[[], Coroutine[Any, Any, None]], Callable[[], float]],
    handle: Callable[[dict[str, Any]], Awaitable[None]],
) -> None:
    """Send `start`, then call each of `parts` in its period; handle messages until the page disconnects."""
    tasks = []
    try:
        await websocket.send_json(start)
        tasks += [asyncio.create_task(every(period_s, work)) for work, period_s in parts.items()]
        await each_message(websocket, handle)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def check_address(listen: str) -> None:
    """`InputError` or `BindError` if a page cannot be served there. Call before anything is started."""
    try:
        local = is_local(parse_address(listen))
    except ValueError:
        local = True  # no address: `bind` says why
    if not local:
        raise InputError(
            f"--listen {listen!r}: expected an address of this machine, such as 127.0.0.1:8080: a "
            "demonstration has neither TLS nor rights"
        )
    bind(listen, tls=False, insecure=False).close()


def open_page(url: str) -> None:
    """In the browser of this desktop, if there is one."""
    with suppress(webbrowser.Error):
        webbrowser.open(url)


_NAMES = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE_S = 120.0


def check_screenshot(path: Path) -> None:
    """`InputError` if no picture can be made there."""
    find_chromium()
    if path.is_dir() or not os.access(path.resolve().parent, os.W_OK):
        raise InputError(f"--screenshot {path}: expected a file in a folder that can be written to")


def find_chromium() -> str:
    """The path. `InputError` if there is none."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        raise InputError("--screenshot needs Chromium: install chromium or google-chrome (Debian: chromium)")
    return path


async def picture(site: Site, path: Path, size: tuple[int, int], show: Callable[[], Awaitable[None]]) -> None:
    """Open the page of a site that is served, await `show`, and write a PNG of the page."""
    width, height = size
    path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="covey-", ignore_cleanup_errors=True) as profile:
        options = [
            "--headless",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
            f"--screenshot={path.resolve()}",
            *(["--no-sandbox"] if os.geteuid() == 0 else []),
            f"{site.url}?hold",
        ]
        process = await asyncio.create_subprocess_exec(
            find_chromium(), *options, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await site.opened.wait()
                await show()
                site.release()
                await process.wait()
        except TimeoutError:
            raise CoveyError(f"--screenshot: Chromium did not answer within {_PATIENCE_S:g} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    if not path.exists():
        raise CoveyError(f"--screenshot {path}: Chromium wrote no picture")


_EVENTS = ("Publish", "Deliver")


@dataclass(frozen=True, slots=True)
class Traffic:
    """Counters since the broker's start, of a link in one direction, or of a broker with its clients."""

    events: int = 0
    control: int = 0
    updates: int = 0


class OverlayCounters:
    """The counters of the brokers, now and before; `links` are drawn from the first broker to the second."""

    def __init__(self, addresses: Mapping[str, str], links: Sequence[tuple[str, str]]) -> None:
        self._addresses = addresses
        self._links = tuple(links)
        self._now: dict[tuple[str, str], Traffic] = {}
        self._before: dict[tuple[str, str], Traffic] = {}
        self._at = self._at_before = perf_counter()

    async def read(self) -> None:
        """Inspect all brokers; one that does not answer keeps its counters."""
        states: dict[str, dict[str, Any]] = {}

        async def ask(broker: str, address: str) -> None:
            with suppress(CoveyError):
                _, states[broker] = await inspect_broker(address, listed=0)

        await asyncio.gather(*(ask(*each) for each in self._addresses.items()))
        self._before, self._at_before = self._now, self._at
        self._at = perf_counter()
        self._now = dict(self._now)
        for broker, state in states.items():
            core = state["core"]
            for name, counters in core["interfaces"].items():
                kind, _, neighbour = name.partition("/")
                if kind == "broker":
                    self._now[broker, neighbour] = _traffic(counters["sent"], counters["events_sent"])
            totals = core["totals"]
            self._now[broker, ""] = _traffic(totals["received"], totals["events_received"])

    @property
    def control_messages(self) -> int:
        return sum(traffic.control for (_, to), traffic in self._now.items() if to)

    def rates(self) -> dict[str, list[dict[str, Any]]]:
        """Per second between the last two readings."""
        links = []
        for a, b in self._links:
            (there, back) = self._rate(a, b), self._rate(b, a)
            links.append({"a": a, "b": b, "there": there, "back": back})
        brokers = [{"name": name, **self._rate(name, "")} for name in self._addresses]
        return {"links": links, "brokers": brokers}

    def _rate(self, broker: str, to: str) -> dict[str, float]:
        now, before = (each.get((broker, to), Traffic()) for each in (self._now, self._before))
        seconds = max(self._at - self._at_before, 1e-3)
        if not self._before:
            now = before
        return {
            "events": round((now.events - before.events) / seconds, 1),
            "control": round((now.control - before.control) / seconds, 1),
            "updates": round((now.updates - before.updates) / seconds, 1),
        }


def _traffic(messages: Mapping[str, int], events: int) -> Traffic:
    control = sum(count for kind, count in messages.items() if kind not in _EVENTS)
    return Traffic(events, control, messages.get("Update", 0))


_BEHIND, _KEEPS_UP = 0.85, 0.95
"""Shares of the demand below which a machine is behind, and above which it is not any more."""


class Demand:
    """Rates over the last `spans` calls of `count`; `behind` is true while one is far below its demand."""

    def __init__(self, spans: int) -> None:
        self.reached_per_s: dict[str, float] = {}
        self.demanded_per_s: dict[str, float] = {}
        self.behind = False
        self._history: deque[tuple[float, dict[str, float], dict[str, float]]] = deque(maxlen=spans + 1)

    def count(self, now_s: float, totals: Mapping[str, float], demanded_per_s: Mapping[str, float]) -> None:
        """`totals` are since the beginning; `demanded_per_s` holds since the last call."""
        demanded = dict.fromkeys(demanded_per_s, 0.0)
        if self._history:
            then_s, _, before = self._history[-1]
            demanded = {
                name: before.get(name, 0.0) + rate * (now_s - then_s) for name, rate in demanded_per_s.items()
            }
        self._history.append((now_s, dict(totals), demanded))
        first_s, first_totals, first_demanded = self._history[0]
        span_s = now_s - first_s
        if span_s <= 0:
            return
        self.reached_per_s = {name: (totals[name] - first_totals[name]) / span_s for name in totals}
        self.demanded_per_s = {name: (demanded[name] - first_demanded[name]) / span_s for name in demanded}
        if len(self._history) == self._history.maxlen:
            share = min((self._share(name) for name in demanded), default=1.0)
            self.behind = share < (_KEEPS_UP if self.behind else _BEHIND)

    def _share(self, name: str) -> float:
        demanded = self.demanded_per_s[name]
        return self.reached_per_s[name] / demanded if demanded else 1.0
