"""A client's gRPC connection to a broker: direct, never through a proxy of the environment, never shared. A
dead peer is detected within five seconds."""

from __future__ import annotations

import asyncio
import socket
import time
from types import TracebackType
from typing import Self

from covey.overlay.http2.rpc import RpcConnection
from covey.overlay.transport.address import CallError, UnixAddress, parse_address
from covey.overlay.transport.calls import RpcCall, RpcProtocol
from covey.overlay.transport.credentials import PLAIN, Credentials
from covey.overlay.transport.tls import TlsError

_CONNECT_WITHIN_S = 5.0
_CLOSE_WITHIN_S = 1.0
_SMALLEST_MESSAGE = 4 << 20


def max_message_bytes(max_frame_bytes: int) -> int:
    # A frame holds one message at least, whatever its size; the slack leaves room for such a one.
    return max(_SMALLEST_MESSAGE, 2 * max_frame_bytes)


class Channel:
    """Entering the `async with` block raises `CallError` if nobody answers. Without `max_frame_bytes`
    messages are unbounded: a client learns the bound from the broker's hello."""

    def __init__(
        self, address: str, max_frame_bytes: int | None = None, *, credentials: Credentials = PLAIN
    ) -> None:
        self._address = address
        self._max_message_bytes = None if max_frame_bytes is None else max_message_bytes(max_frame_bytes)
        self._credentials = credentials
        self._authorization = b""
        self._protocol: RpcProtocol | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        unreached = f"no broker answers at {self._address}"
        try:
            where = parse_address(self._address)
        except ValueError as error:
            raise CallError("INVALID_ARGUMENT", f"address {self._address!r}: {error}") from None
        try:
            layer = self._credentials.layer(where)
        except TlsError as error:
            raise CallError("FAILED_PRECONDITION", str(error)) from None
        self._authorization = await self._credentials.authorization(where)

        made: list[RpcProtocol] = []
        failure: str | None = None

        def protocol() -> RpcProtocol:
            rpc = RpcConnection(
                now_ns=time.monotonic_ns(),
                max_message_bytes=self._max_message_bytes,
                authority="localhost" if isinstance(where, UnixAddress) else self._address,
                scheme="http" if layer is None else "https",
            )
            made.append(RpcProtocol(rpc, unreached=unreached, tls=layer))
            return made[-1]

        try:
            async with asyncio.timeout(_CONNECT_WITHIN_S):
                if isinstance(where, UnixAddress):
                    _, self._protocol = await loop.create_unix_connection(protocol, where.path)
                else:
                    _, self._protocol = await loop.create_connection(protocol, where.host, where.port)
                failure = await asyncio.shield(self._protocol.established)
        except (PermissionError, socket.gaierror) as error:
            raise CallError("UNAVAILABLE", f"{unreached}: {error.strerror}") from None
        except (OSError, UnicodeError):  # TimeoutError is an OSError, a name that is no name a UnicodeError
            raise CallError("UNAVAILABLE", unreached) from None
        finally:
            for each in made:
                if failure is None and each is self._protocol:
                    each.abort()  # in the middle of a handshake
                if failure is None or each is not self._protocol:
                    each.forget_transport()
        if failure:
            self._protocol.abort()
            raise CallError("UNAVAILABLE", failure)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._protocol is not None:
            self._protocol.close()
            await asyncio.wait({self._protocol.lost}, timeout=_CLOSE_WITHIN_S)

    def call(self, path: str, timeout_s: float | None = None) -> RpcCall:
        """`CallError` if the connection has ended."""
        assert self._protocol is not None
        call = self._protocol.start(path, timeout_s, self._authorization)
        if call is None:
            closed = self._protocol.rpc.http2.closed
            raise CallError("UNAVAILABLE", closed.reason if closed else "the broker takes no more calls")
        return call

    async def unary(self, path: str, request: bytes, timeout_s: float | None = None) -> bytes:
        """The reply to one request. `CallError` if there is none within `timeout_s`."""
        call = self.call(path, timeout_s)
        call.send(request)
        call.end_request()
        try:
            reply = await call.read()
            await call.drain()
        finally:
            call.cancel()
        if call.status != "OK" or reply is None:
            raise error_of(call, self._address)
        return reply


def error_of(call: RpcCall, address: str) -> CallError:
    status = call.status or "UNKNOWN"
    if status == "UNIMPLEMENTED":
        return CallError(status, f"the server at {address} is not a Covey broker")
    if call.unbegun:
        return CallError(status, f"no broker answers at {address}: {call.details}")
    return CallError(status, call.details or status)
