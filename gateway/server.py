"""`covey gateway`: the application served by uvicorn, with bounds on what its connections cost.

uvicorn bounds neither the connections of an address, nor the time until a request comes, nor that until a
peer has read the end of a connection; the protocols of this module do. Invariant: a connection is counted
from its beginning to its end, whatever it speaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from covey.gateway.limits import Addresses, Limits
from covey.matcher.errors import CoveyError, InputError
from covey.overlay.transport.address import UnixAddress, is_local, parse_address

log = logging.getLogger("covey.gateway")

_REQUEST_WITHIN_S = 10.0
_REFUSED_WITHIN_S = 1.0
_READ_WITHIN_S = 5.0
_PING_S = 20.0
_GRACE_S = 2


class BindError(CoveyError):
    """An address cannot be listened at."""


def bind(address: str, *, tls: bool, insecure: bool) -> socket.socket:
    """A listening socket. `InputError` for no address, or one beyond this machine without TLS."""
    try:
        parsed = parse_address(address)
    except ValueError as error:
        raise InputError(f"--listen {address!r}: {error}") from None
    if not (tls or insecure or is_local(parsed)):
        raise InputError(
            f"--listen {address!r}: tokens and events would cross the network in the clear: expected "
            "--serve-certificate and --serve-key, or --insecure behind a proxy with TLS"
        )
    try:
        if isinstance(parsed, UnixAddress):
            Path(parsed.path).unlink(missing_ok=True)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(parsed.path)
        else:
            family = socket.AF_INET6 if ":" in parsed.host else socket.AF_INET
            listener = socket.create_server((parsed.host, parsed.port), family=family, backlog=2_048)
    except OSError as error:
        raise BindError(f"{address}: cannot listen: {error.strerror or error}") from None
    return listener


class GatewayServer(uvicorn.Server):
    """Stops by SIGINT and SIGTERM, and lets its caller go on."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stop)
        yield

    def _stop(self) -> None:
        self.should_exit = True


def server(
    app: Starlette,
    limits: Limits,
    *,
    certificate: Path | None = None,
    key: Path | None = None,
    proxies: tuple[str, ...] = (),
) -> GatewayServer:
    """A server of a gateway; `proxies` are addresses whose `X-Forwarded-For` names the browser."""
    # Behind a proxy all connections have one address; those of browsers are counted by the application.
    most = limits.max_connections
    door = Addresses(replace(limits, max_connections_per_address=most) if proxies else limits)
    http = type("HttpProtocol", (_HttpProtocol,), {"door": door})
    ws = type("WebSocketProtocol", (_WebSocketProtocol,), {"door": door})
    config = uvicorn.Config(
        app,
        http=http,
        ws=ws,
        ws_max_size=limits.max_message_bytes,
        ws_ping_interval=_PING_S,
        ws_ping_timeout=_PING_S,
        ws_per_message_deflate=False,  # it would compress each frame once per browser
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=bool(proxies),
        forwarded_allow_ips=[*proxies],
        ssl_certfile=certificate,
        ssl_keyfile=key,
        timeout_graceful_shutdown=_GRACE_S,
    )
    return GatewayServer(config)


class _HttpProtocol(H11Protocol):
    door: Addresses
    _address: str | None = None
    _refusal: str | None = None
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        address = self.client[0] if self.client else "unix"
        self._refusal = self.door.enter(address)
        if self._refusal is None:
            self._address = address
        within_s = _REQUEST_WITHIN_S if self._refusal is None else _REFUSED_WITHIN_S
        self._timer = self.loop.call_later(within_s, self._on_silence)

    def data_received(self, data: bytes) -> None:
        if self._refusal is None:
            super().data_received(data)
        elif not self.transport.is_closing():  # an answer before the request could be lost with it
            body = f"{self._refusal}\n".encode()
            head = b"HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\ncontent-type: text/plain\r\n"
            self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
            self.transport.close()

    def _on_silence(self) -> None:
        if self.cycle is None:
            self.transport.abort()

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._address = None  # the other protocol leaves
        self._cancel()
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        if self._address is not None:
            self.door.leave(self._address)
            self._address = None
        super().connection_lost(exc)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class _WebSocketProtocol(WebSocketsSansIOProtocol):
    door: Addresses
    _end: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        self.door.leave(self.client[0] if self.client else "unix")
        super().connection_lost(exc)

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """The application is done with it: a peer that reads no more is not waited for."""
        super().on_task_complete(task)
        if self in self.connections:
            self._end = self.loop.call_later(_READ_WITHIN_S, self.transport.abort)
