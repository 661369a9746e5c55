"""The application served by uvicorn, with the gateway's own protocols and TLS."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import signal
import socket
import ssl
import stat
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import uvicorn
from starlette.applications import Starlette

from covey.gateway.limits import Addresses, Limits, networks
from covey.gateway.protocols import HttpProtocol, PeersMistakes, TlsListener, WebSocketProtocol
from covey.gateway.sessions import Sessions
from covey.matcher.errors import CoveyError, InputError
from covey.overlay.transport.address import UnixAddress, is_local, parse_address

_PING_S = 20.0
_GRACE_S = 2


class BindError(CoveyError):
    """An address cannot be bound."""


def bind(address: str, *, tls: bool, insecure: bool) -> socket.socket:
    """A listening socket. `InputError` for a malformed address, and for one beyond this machine without TLS;
    `BindError`."""
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
            _remove_stale(parsed.path)
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(parsed.path)
        else:
            family = socket.AF_INET6 if ":" in parsed.host else socket.AF_INET
            listener = socket.create_server((parsed.host, parsed.port), family=family, backlog=2_048)
    except OSError as error:
        raise BindError(f"{address}: cannot listen: {error.strerror or error}") from None
    return listener


def _remove_stale(path: str) -> None:
    """Remove a socket file without a listener. `OSError` if it has one, or is another kind of file."""
    if not os.path.lexists(path):
        return
    with socket.socket(socket.AF_UNIX) as probe:
        if stat.S_ISSOCK(os.stat(path).st_mode) and probe.connect_ex(path) == errno.ECONNREFUSED:
            os.unlink(path)
            return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


class GatewayServer(uvicorn.Server):
    """SIGINT and SIGTERM stop it, after `on_stop`, and its caller goes on."""

    def __init__(
        self,
        config: uvicorn.Config,
        tls: ssl.SSLContext | None,
        on_stop: Callable[[], Awaitable[None]] | None,
    ) -> None:
        super().__init__(config)
        self._on_stop = on_stop
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._tls is None or not sockets:
            await super().startup(sockets)
            return
        await super().startup([])
        if self.started:
            self.servers += [TlsListener(each, self._tls, self._new) for each in sockets]  # type: ignore[misc]

    def _new(self) -> HttpProtocol:
        config, state = self.config, self.server_state
        protocol = config.http_protocol_class(  # type: ignore[call-arg]
            config=config, server_state=state, app_state=self.lifespan.state
        )
        assert isinstance(protocol, HttpProtocol)
        return protocol

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for each in self.servers:
            each.close()
        if self._on_stop is not None:
            await self._on_stop()
        await super().shutdown(sockets)

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
    """A server of a gateway; `proxies` are addresses, networks, or "unix", whose `X-Forwarded-For` names the
    browser. `InputError` for others, and for an unusable certificate or key."""
    # Behind a proxy all connections have one address; those of browsers are counted by the application.
    door = Addresses(limits, exempt=networks(proxies))
    config = uvicorn.Config(
        app,
        http=type("GatewayHttp", (HttpProtocol,), {"door": door, "waiting_refused": set()}),
        ws=type("GatewayWebSocket", (WebSocketProtocol,), {
            "door": door, "frames_per_s": limits.max_messages_per_s,
        }),
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
        timeout_graceful_shutdown=_GRACE_S,
    )  # fmt: skip
    logger = logging.getLogger("uvicorn.error")
    if not any(isinstance(each, PeersMistakes) for each in logger.filters):
        logger.addFilter(PeersMistakes())
    sessions: Sessions | None = getattr(app.state, "sessions", None)  # an outer application may have none
    if sessions is not None:
        sessions.door = door
    on_stop = None if sessions is None else sessions.close
    return GatewayServer(config, _tls(certificate, key), on_stop)


def _tls(certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
    """Loaded here, since uvicorn neither counts nor bounds its handshakes."""
    if certificate is None or key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.set_alpn_protocols(["http/1.1"])
    try:
        for path in (certificate, key):
            path.read_bytes()
        context.load_cert_chain(certificate, key)
    except ssl.SSLError as error:
        reason = f"not a certificate and its key in PEM: {error.reason or error}"
        raise InputError(f"{certificate} and {key}: {reason}") from None
    except OSError as error:
        raise InputError(f"{error.filename}: cannot be read: {error.strerror}") from None
    return context
