"""The gateway as an ASGI application: by itself, or mounted in another one.

Everything is opened when the first browser needs it, so an application that mounts this one has nothing to
start; `lifespan` of the outer application may close it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from covey.gateway.descriptions import PATHS, asyncapi, openapi
from covey.gateway.event_stream import ChangesQuery, EventsQuery, open_stream
from covey.gateway.hosts import HostCheck, check_origin
from covey.gateway.limits import Limits
from covey.gateway.sessions import Sessions
from covey.gateway.upstream import Access, Token
from covey.gateway.websocket import WebSocketConnection, deny
from covey.overlay import Tls

_BROWSER = Path(__file__).parent / "browser"


def application(
    broker: str,
    *,
    tls: Tls | str | Path | None = None,
    token: Token | None = None,
    publish: Iterable[str] = (),
    origins: Iterable[str] = (),
    hosts: Iterable[str] = (),
    allow_block: bool = False,
    limits: Limits | None = None,
) -> Starlette:
    """A gateway to the broker at an address, to be served or mounted (`app.mount("/covey", ...)`).

    `tls` and `token` are those of `Client`, for browsers that bring no token: what they may do is what the
    gateway may. `publish` are globs of the event types that browsers may publish, none by default. `origins`
    are those of pages from elsewhere that may connect ("*" for all); pages of the gateway's own host may
    always. `hosts` are the names that this host has, any if there are none: a page whose name an attacker
    makes that of this machine (DNS rebinding) would be one of its own. Without `allow_block` a browser needs
    a token for the policy to block publishers.

    Mounted, it ends with the process; `Starlette(lifespan=mounted.router.lifespan_context)` closes its
    sessions in order. `InputError` for an origin that is none.
    """
    listed = tuple(origins)
    for origin in listed:
        check_origin(origin)
    limits = limits or Limits()
    access = Access(broker, tls, token, limits.timeout_s)
    sessions = Sessions(access, limits, tuple(publish), allow_block=allow_block)

    async def socket(websocket: WebSocket) -> None:
        origin = websocket.headers.get("origin")
        if not _is_allowed(origin, websocket.headers.get("host"), listed):
            reason = f"origin is {origin!r}: expected the gateway's own, or one of {list(listed)}"
            await deny(websocket, 403, reason)
            return
        await WebSocketConnection(websocket, sessions).run()

    async def events(request: Request) -> Response:
        return await open_stream(request, sessions, EventsQuery)

    async def views(request: Request) -> Response:
        return await open_stream(request, sessions, ChangesQuery)

    async def health(request: Request) -> Response:
        return JSONResponse(sessions.counts())

    async def describe_http(request: Request) -> Response:
        return JSONResponse(openapi())

    async def describe_socket(request: Request) -> Response:
        return JSONResponse(asyncapi())

    async def script(request: Request) -> Response:
        return FileResponse(_BROWSER / "covey.js", media_type="text/javascript")

    async def script_types(request: Request) -> Response:
        return FileResponse(_BROWSER / "covey.d.ts", media_type="text/plain")

    handlers = (events, views, health, describe_http, describe_socket, script, script_types)
    routes = [
        Route(path, handler, methods=["GET"]) for path, handler in zip(PATHS, handlers, strict=True)
    ]
    middleware = []
    if known := frozenset(map(str.lower, hosts)):
        middleware.append(Middleware(HostCheck, hosts=known))
    if listed:
        headers = ["Authorization", "Last-Event-ID"]
        middleware.append(Middleware(CORSMiddleware, allow_origins=listed, allow_headers=headers))

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await sessions.close()

    app = Starlette(
        routes=[*routes, WebSocketRoute("/socket", socket)], middleware=middleware, lifespan=lifespan
    )
    app.state.sessions = sessions
    return app


def _is_allowed(origin: str | None, host: str | None, origins: tuple[str, ...]) -> bool:
    """Only browsers send an origin, and they send it always."""
    if origin is None or "*" in origins or origin in origins:
        return True
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False
