"""The gateway as an ASGI application, and its descriptions, OpenAPI for HTTP and AsyncAPI for the WebSocket,
which are made of the tables that it serves by. Everything opens with the first browser, so an application
that mounts this one starts nothing; its `lifespan` may close it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic.json_schema import models_json_schema
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from covey.gateway.event_stream import ChangesQuery, EventsQuery, Query, open_stream
from covey.gateway.limits import Limits
from covey.gateway.messages import REPLIES, REQUESTS, Error, Message, cut
from covey.gateway.sessions import Sessions
from covey.gateway.upstream import Access, Token
from covey.gateway.websocket import WebSocketConnection, deny
from covey.matcher.errors import InputError
from covey.overlay import Tls, __version__
from covey.overlay.transport.address import UnixAddress, is_local, parse_address

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def hosts_of(listen: str, named: tuple[str, ...]) -> tuple[str, ...]:
    """The host names of a gateway that listens at `listen`: `named`, and at a loopback address its names too.
    Empty, so any host, for another address without `named`."""
    address = parse_address(listen)
    if isinstance(address, UnixAddress) or not is_local(address):
        return named
    return (*_LOOPBACK, address.host, *named)


def check_origin(text: str) -> None:
    """`InputError` for anything but `*` or a page's origin, as browsers write it."""
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises for what is no port
        fits = bool(parts.scheme and parts.hostname) and text == f"{parts.scheme}://{parts.netloc}".lower()
    except ValueError:
        fits = False
    if text not in ("*", "null") and (not fits or "@" in text):
        raise InputError(f"origin is {text!r}: expected SCHEME://HOST[:PORT] in lower case, or *")


class HostCheck:
    """Refuses requests for other hosts, before anything else, against DNS rebinding: to a browser, a page
    whose name resolves to 127.0.0.1 has the origin of a gateway there. `hosts` are in lower case."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get("host", "")
        if _name(given) in self._hosts:
            await self._app(scope, receive, send)
            return
        reason = cut(f"host is {given!r}: expected one of {', '.join(sorted(self._hosts))} (--host)")
        if scope["type"] == "websocket":
            await deny(WebSocket(scope, receive, send), 403, reason)
        else:
            await PlainTextResponse(f"{reason}\n", 403)(scope, receive, send)


def _name(host: str) -> str:
    """The host without its port, in lower case; "" for a malformed one."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


PATHS = {
    "/events/{type}": "Events of a type that match a filter, as server-sent events: the data of each is a "
    "message to the browser, as in /asyncapi.json. Last-Event-ID goes on behind that event.",
    "/views/{type}": "A view as server-sent events: changes, which first have an enter for each key inside, "
    "an answer behind these, then what enters, changes and leaves. Last-Event-ID goes on behind that event; "
    "where it cannot, the welcome has resumed false, and what is inside comes again.",
    "/health": "The numbers of sessions and connections, and of what was dropped and refused.",
    "/openapi.json": "This document.",
    "/asyncapi.json": "The messages of the WebSocket at /socket, as AsyncAPI.",
    "/covey.js": "The client for browsers and Node: a module without dependencies.",
    "/covey.d.ts": "Its types.",
}
_QUERIES: dict[str, type[Query]] = {"/events/{type}": EventsQuery, "/views/{type}": ChangesQuery}
_ERRORS = {
    "400": "A parameter is wrong.",
    "401": "The token is not accepted.",
    "403": "The token does not permit this.",
    "404": "No such event type.",
    "429": "A bound of the gateway or its broker is reached.",
    "503": "The broker is out of reach. Who accepts text/event-stream gets this error as a stream that ends.",
    "504": "The broker has not answered in time. As for 503.",
}


@cache
def openapi() -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {"title": "Covey gateway", "version": __version__},
        "paths": {path: {"get": _operation(path, text)} for path, text in PATHS.items()},
        "components": {
            "schemas": {"Error": _with_kind(Error, Error.model_json_schema())},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(path: str, text: str) -> dict[str, Any]:
    streamed = _QUERIES.get(path)
    media = {"/covey.js": "text/javascript", "/covey.d.ts": "text/plain"}.get(path, "application/json")
    content: dict[str, Any] = {("text/event-stream" if streamed else media): {}}
    operation: dict[str, Any] = {
        "summary": text,
        "responses": {"200": {"description": "OK", "content": content}},
    }
    if streamed is not None:
        described = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
        errors = {status: {"description": why, "content": described} for status, why in _ERRORS.items()}
        operation["responses"] |= errors
        operation["security"] = [{}, {"token": []}]
        query = streamed.model_json_schema()["properties"]
        text_of = {"schema": {"type": "string"}}
        operation["parameters"] = [
            {"name": "type", "in": "path", "required": True, **text_of},
            *({"name": name, "in": "query", "schema": schema} for name, schema in query.items()),
            {"name": "Last-Event-ID", "in": "header", **text_of},
        ]
    return operation


def _with_kind(model: type[Message], schema: dict[str, Any]) -> dict[str, Any]:
    return schema | {
        "properties": {"kind": {"const": model.kind}, **schema.get("properties", {})},
        "required": ["kind", *schema.get("required", [])],
    }


@cache
def asyncapi() -> dict[str, Any]:
    tables: tuple[dict[str, type[Message]], ...] = (REQUESTS, REPLIES)
    models = [model for table in tables for model in table.values()]
    _, schemas = models_json_schema(
        [(model, "validation") for model in models], ref_template="#/components/schemas/{model}"
    )
    definitions = schemas["$defs"]
    for model in models:
        definitions[model.__name__] = _with_kind(model, definitions[model.__name__])
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "Covey gateway", "version": __version__},
        "defaultContentType": "application/json",
        "channels": {
            "socket": {
                "address": "/socket",
                "messages": {m.kind: {"$ref": f"#/components/messages/{m.kind}"} for m in models},
            }
        },
        "operations": {
            action: {
                "action": action,
                "channel": {"$ref": "#/channels/socket"},
                "messages": [{"$ref": f"#/channels/socket/messages/{kind}"} for kind in table],
            }
            for action, table in (("receive", REQUESTS), ("send", REPLIES))
        },
        "components": {
            "messages": {
                m.kind: {
                    "name": m.kind,
                    "summary": " ".join((m.__doc__ or "").split()),
                    "payload": {"$ref": f"#/components/schemas/{m.__name__}"},
                }
                for m in models
            },
            "schemas": definitions,
        },
    }


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

    `tls` and `token` are those of `Client`; a browser without a token has the gateway's rights. `publish`:
    globs of the event types that browsers may publish, none by default. `origins`: foreign origins whose
    pages may connect ("*" for all); pages of the gateway's own host always may. `hosts`: the host names of
    the gateway, none for any: without them a page can get past the check of origins by DNS rebinding. Without
    `allow_block` a browser needs a token to block publishers.

    A mounted gateway ends with the process; `Starlette(lifespan=mounted.router.lifespan_context)` closes its
    sessions in order. `InputError` for a malformed origin.
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

    def answering(response: Callable[[], Response]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(_: Request) -> Response:
            return response()

        return answer

    handlers: tuple[Callable[[Request], Awaitable[Response]], ...] = (
        partial(open_stream, sessions=sessions, query=EventsQuery),
        partial(open_stream, sessions=sessions, query=ChangesQuery),
        answering(lambda: JSONResponse(sessions.counts())),
        answering(lambda: JSONResponse(openapi())),
        answering(lambda: JSONResponse(asyncapi())),
        answering(lambda: FileResponse(_BROWSER / "covey.js", media_type="text/javascript")),
        answering(lambda: FileResponse(_BROWSER / "covey.d.ts", media_type="text/plain")),
    )
    routes = [Route(path, handler, methods=["GET"]) for path, handler in zip(PATHS, handlers, strict=True)]
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
    """Only browsers send an origin, and they always do."""
    if origin is None or "*" in origins or origin in origins:
        return True
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False
