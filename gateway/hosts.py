"""The names that a gateway has, against DNS rebinding: a page of attacker.example whose name resolves to
127.0.0.1 is of the same origin as a gateway there, for the browser and for who compares Origin with Host.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from covey.gateway.messages import cut
from covey.gateway.websocket import deny
from covey.matcher.errors import InputError
from covey.overlay.transport.address import UnixAddress, is_local, parse_address

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


def hosts_of(listen: str, named: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a gateway that listens at an address: those of loopback there, and `named` ones; none, so
    any, where it listens elsewhere and none is named."""
    address = parse_address(listen)
    if isinstance(address, UnixAddress) or not is_local(address):
        return named
    return (*_LOOPBACK, address.host, *named)


def check_origin(text: str) -> None:
    """`InputError` for what is neither `*` nor an origin of pages, as browsers write it."""
    try:
        parts = urlsplit(text)
        parts.port  # noqa: B018 - raises for what is no port
        fits = bool(parts.scheme and parts.hostname) and text == f"{parts.scheme}://{parts.netloc}".lower()
    except ValueError:
        fits = False
    if text not in ("*", "null") and (not fits or "@" in text):
        raise InputError(f"origin is {text!r}: expected SCHEME://HOST[:PORT] in lower case, or *")


class HostCheck:
    """Refuses what is for another host, before anything else is done; `hosts` are in lower case."""

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
    """Without its port, in lower case; empty for what is no host."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
