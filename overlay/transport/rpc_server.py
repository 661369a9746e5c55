"""A gRPC server on the event loop."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import stat
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from ssl import SSLContext

from covey.overlay.http2.frames import ErrorCode
from covey.overlay.http2.rpc import RpcConnection
from covey.overlay.transport.address import CallError, UnixAddress, parse_address
from covey.overlay.transport.calls import RpcCall, RpcProtocol
from covey.overlay.transport.event_loop import WaitingLine
from covey.overlay.transport.tls import TlsLayer

_REQUEST_WITHIN_S = 10.0
_BACKLOG = 1_024
_REFUSALS = 64
"""Excess connections that wait for their refusal; further ones are closed without."""
_REFUSED_S = 1.0
_OTHER_DESCRIPTORS = 100
"""Descriptors for everything but accepted connections: listeners, dialled links, files, refusals."""

log = logging.getLogger("covey.broker")

Handler = Callable[[RpcCall], Awaitable[None]]
"""Answers one call, which ends when it returns or with the status of the `CallError` that it raises."""


def answer_with(answer: Callable[[bytes], bytes | Awaitable[bytes]]) -> Handler:
    async def handle(call: RpcCall) -> None:
        try:
            async with asyncio.timeout(_REQUEST_WITHIN_S):
                request = await call.read()
        except TimeoutError:
            raise CallError("DEADLINE_EXCEEDED", f"no request within {_REQUEST_WITHIN_S:g} s") from None
        if request is None:
            raise CallError("INTERNAL", "the call has no request")
        reply = await call.answer(partial(answer, request))
        call.send(reply if isinstance(reply, bytes) else await reply)

    return handle


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """In total, and per address: a host or socket file."""

    total: int = 10_000
    per_address: int = 5_000

    def within(self, descriptors: int) -> ConnectionLimits:
        """Leave some of a process's `descriptors` for everything else."""
        return replace(self, total=max(1, min(self.total, descriptors - _OTHER_DESCRIPTORS)))


class RpcServer:
    """`faults` counts HTTP/2 rules that peers broke. `refused` is called per connection over a limit, whose
    calls end with RESOURCE_EXHAUSTED; `denied` per failed TLS handshake."""

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        *,
        max_message_bytes: int,
        faults: Counter[ErrorCode],
        limits: ConnectionLimits | None = None,
        refused: Callable[[], None] | None = None,
        denied: Callable[[], None] | None = None,
    ) -> None:
        self.faults = faults
        self._refused = refused
        self._denied = denied
        self.limits = limits or ConnectionLimits()
        self._per_address: Counter[str] = Counter()
        self._refusals: dict[RpcProtocol, str] = {}
        self._handlers = handlers
        self._max_message_bytes = max_message_bytes
        self._servers: list[asyncio.Server] = []
        self._socket_files: list[str] = []
        self._connections: set[RpcProtocol] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._line = WaitingLine()

    async def listen(self, address: str, *, tls: Callable[[], SSLContext] | None = None) -> None:
        """One more address. `OSError` if it cannot be bound. `tls` returns a new connection's context, with
        ALPN h2."""
        protocol = partial(self._protocol, tls)
        loop = asyncio.get_running_loop()
        where = parse_address(address)
        if isinstance(where, UnixAddress):
            await _remove_stale(where.path)
            server = await loop.create_unix_server(protocol, where.path, backlog=_BACKLOG)
            self._socket_files.append(where.path)
        elif where.host == "::":
            bound = socket.create_server(where, family=socket.AF_INET6, dualstack_ipv6=True, backlog=_BACKLOG)
            server = await loop.create_server(protocol, sock=bound)
        else:
            server = await loop.create_server(protocol, where.host, where.port, backlog=_BACKLOG)
        self._servers.append(server)

    def _protocol(self, tls: Callable[[], SSLContext] | None) -> RpcProtocol:
        rpc = RpcConnection(
            self._handlers,
            now_ns=time.monotonic_ns(),
            max_message_bytes=self._max_message_bytes,
            faults=self.faults,
        )
        return RpcProtocol(
            rpc,
            started=self._start,
            opened=self._opened,
            closed=self._closed,
            tls=None if tls is None else TlsLayer(tls(), server=True),
            line=self._line,
        )

    def _opened(self, protocol: RpcProtocol) -> None:
        limits, host = self.limits, protocol.host
        of_host = self._per_address[host]
        refusal = None
        if len(self._connections) >= limits.total:
            refusal = f"the broker has {len(self._connections)} connections: expected at most {limits.total}"
        elif of_host >= limits.per_address:
            refusal = (
                f"the broker has {of_host} connections of {host}: expected at most {limits.per_address} "
                "of one address"
            )
        if refusal is None:
            self._connections.add(protocol)
            self._per_address[host] += 1
            return
        log.warning("refused a connection of %s: %s", host, refusal)
        if self._refused is not None:
            self._refused()
        if len(self._refusals) >= _REFUSALS:
            protocol.abort()
            return
        self._refusals[protocol] = refusal
        asyncio.get_running_loop().call_later(_REFUSED_S, protocol.abort)

    def _closed(self, protocol: RpcProtocol) -> None:
        self._refusals.pop(protocol, None)
        if protocol in self._connections:
            self._connections.discard(protocol)
            self._per_address[protocol.host] -= 1
            if not self._per_address[protocol.host]:
                del self._per_address[protocol.host]
        if protocol.tls is not None and protocol.tls.failure:
            log.info("refused a connection from %s: %s", protocol.peer, protocol.tls.failure)
            if self._denied is not None:
                self._denied()
            return
        closed = protocol.rpc.http2.closed
        if closed is not None and closed.ours:
            log.info("closed the connection of %s: %s", protocol.peer, closed.reason)

    def _start(self, call: RpcCall, protocol: RpcProtocol) -> None:
        refusal = self._refusals.get(protocol)
        if refusal is not None:
            call.finish("RESOURCE_EXHAUSTED", refusal)
            protocol.shut_down()
            return
        task = asyncio.get_running_loop().create_task(self._serve(call), name=f"call of {call.path}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, call: RpcCall) -> None:
        try:
            await self._handlers[call.path](call)
            call.finish("OK")
        except CallError as error:
            call.finish(error.status, str(error))
        except Exception:
            log.exception("the handler of %s failed", call.path)
            call.finish("INTERNAL", "the handler failed")

    async def stop(self, grace_s: float) -> None:
        """Accept no more calls; end those still open after `grace_s` seconds."""
        for server in self._servers:
            server.close()
        for path in self._socket_files:
            with suppress(OSError):
                os.unlink(path)
        for connection in self._connections:
            connection.shut_down()
        lost = [connection.lost for connection in self._connections]
        if lost:
            await asyncio.wait(lost, timeout=grace_s)
        for connection in list(self._connections):
            connection.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _remove_stale(path: str) -> None:
    """Remove a socket file without a listener. `OSError` if it has one, or is another file."""
    if not os.path.lexists(path):
        return
    if stat.S_ISSOCK(os.stat(path).st_mode):
        try:
            _, writer = await asyncio.open_unix_connection(path)
        except ConnectionRefusedError:
            os.unlink(path)
            return
        writer.close()
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
