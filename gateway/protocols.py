"""uvicorn's protocols, with bounds on what a connection costs before, between and behind its messages.

uvicorn bounds neither the connections of an address, nor the time until a request is complete or a peer has
read a connection's end, nor frames without messages. Invariants: a connection is counted from its beginning,
which is before the handshake of TLS, to its end; a peer that neither sends nor reads for longer than the
bounds below is aborted; the gateway parses at most a second's worth of frames ahead of the application.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from covey.gateway.limits import Addresses, Pace

log = logging.getLogger("covey.gateway")

_REQUEST_WITHIN_S = 10.0
_REFUSED_WITHIN_S = 1.0
_READ_WITHIN_S = 5.0
_STALL_S = 40.0
"""Of a response that is not read at all; WebSockets have pings for it."""
_LOOK_S = 2.5
_MOST_REFUSED = 100
"""Refused connections that wait for their request, to be answered; further ones are aborted."""
_SLICE_BYTES = 4_096
_MOST_AT_ONCE = 100
_PAUSE_S = 1.0
_PEERS_MISTAKES = frozenset(
    {
        "Invalid HTTP request received.",
        "Unsupported upgrade request.",
        "Invalid UTF-8 sequence received from client.",
        "ASGI callable returned without completing handshake.",
    }
)


class PeersMistakes(logging.Filter):
    """Keeps errors that peers cause at will out of the log; the peer gets them."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.msg not in _PEERS_MISTAKES


def address_of(transport: asyncio.BaseTransport) -> str:
    """The peer's address, "unix" for a socket of this machine or a peer that has gone."""
    peer = transport.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else "unix"


class HttpProtocol(H11Protocol):
    """HTTP, and the upgrade to a WebSocket. `door` counts connections; all connections of a server share
    `waiting_refused`."""

    door: Addresses
    waiting_refused: set[HttpProtocol]

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._address: str | None = None
        self._refusal: str | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_dropped = False
        self._waits_since = 0.0
        self._closing_since: float | None = None
        self._unread = 0
        self._unread_since = 0.0

    def admit(self, address: str) -> bool:
        """Count the connection; False for one that is refused without an answer."""
        self._refusal = self.door.enter(address)
        if self._refusal is None:
            self._address = address
        elif len(self.waiting_refused) < _MOST_REFUSED:
            self.waiting_refused.add(self)
        else:
            return False
        return True

    def leave(self) -> None:
        """Stop counting the connection."""
        self.waiting_refused.discard(self)
        if self._address is not None:
            self.door.leave(self._address)
            self._address = None

    def connection_made(self, transport: Any) -> None:
        address = address_of(transport)
        if self._address is None and self._refusal is None and not self.admit(address):
            self._is_dropped = True
            transport.abort()
            return
        super().connection_made(transport)
        self.client = self.client or (address, 0)
        within_s = _LOOK_S if self._refusal is None else _REFUSED_WITHIN_S
        self._waits_since = self.loop.time()
        self._timer = self.loop.call_later(within_s, self._look)

    def data_received(self, data: bytes) -> None:
        if self._is_dropped:
            return
        if self._refusal is None:
            super().data_received(data)
        elif not self.transport.is_closing():  # an answer before the request could be lost with it
            body = f"{self._refusal}\n".encode()
            head = b"HTTP/1.1 429 Too Many Requests\r\nconnection: close\r\ncontent-type: text/plain\r\n"
            self.transport.write(head + b"content-length: %d\r\n\r\n" % len(body) + body)
            self.transport.close()

    def on_response_complete(self) -> None:
        self._waits_since = self.loop.time()
        super().on_response_complete()

    def _look(self) -> None:
        if self._is_overdue(self.loop.time()):
            self.transport.abort()
        else:
            self._timer = self.loop.call_later(_LOOK_S, self._look)

    def _is_overdue(self, now: float) -> bool:
        if self._refusal is not None:
            return True
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            return now - self._closing_since >= _READ_WITHIN_S
        if self.cycle is None or self.cycle.response_complete:
            return now - self._waits_since >= _REQUEST_WITHIN_S
        unread = self.transport.get_write_buffer_size()
        if not unread or unread != self._unread:
            self._unread, self._unread_since = unread, now
        return now - self._unread_since >= _STALL_S

    def handle_websocket_upgrade(self, event: Any) -> None:
        self._cancel()
        address, self._address = self._address, None
        super().handle_websocket_upgrade(event)
        protocol = self.transport.get_protocol()
        assert isinstance(protocol, WebSocketProtocol)
        protocol.address = address  # and leaves

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel()
        self.leave()
        if not self._is_dropped:
            super().connection_lost(exc)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """A WebSocket that is fed in slices: at most one slice's messages ever wait."""

    door: Addresses
    frames_per_s: int

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.address: str | None = None
        self._rest = bytearray()
        self._end: asyncio.TimerHandle | None = None
        self._pace = Pace(self.frames_per_s, self.loop.time())

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self.client = self.client or (address_of(transport), 0)
        self._end = self.loop.call_later(_REQUEST_WITHIN_S, self._on_silence)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._end is not None:
            self._end.cancel()
        if self.address is not None:
            self.door.leave(self.address)
            self.address = None
        super().connection_lost(exc)

    def _on_silence(self) -> None:
        """Abort where no handshake has come."""
        if not self.handshake_initiated:
            self.transport.abort()

    # --- what comes ---------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        self._rest += data
        self._feed()

    def _feed(self) -> None:
        while self._rest and not self.read_paused and not self.transport.is_closing():
            piece = bytes(self._rest[:_SLICE_BYTES])
            del self._rest[:_SLICE_BYTES]
            super().data_received(piece)

    async def receive(self) -> Any:
        message = await super().receive()
        self._feed()
        return message

    def handle_ping(self) -> None:
        if self._is_paced() and self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # who does not read gets no pong

    def handle_pong(self, event: Any) -> None:
        if self._is_paced():
            super().handle_pong(event)

    def handle_cont(self, event: Any) -> None:
        if self._is_paced():
            super().handle_cont(event)

    def _is_paced(self) -> bool:
        """Count a frame that ends no message; too many end the connection."""
        if not self._pace.pause_s(self.loop.time()):
            return True
        if not self.transport.is_closing():
            self.conn.fail(1008, f"pings and fragments: expected at most {self.frames_per_s} a second")
            if self.conn.close_sent is None:  # it is not even accepted
                self.transport.abort()
            else:
                self.handle_parser_exception()
        return False

    # --- the end ------------------------------------------------------------------------------------

    def keepalive_timeout(self) -> None:
        super().keepalive_timeout()
        self.transport.abort()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """Bound the time that the peer has to read the end."""
        super().on_task_complete(task)
        self._feed()  # which may have the end of the closing handshake
        if self in self.connections:
            if self._end is not None:
                self._end.cancel()
            self._end = self.loop.call_later(_READ_WITHIN_S, self.transport.abort)


class TlsListener:
    """Accepts connections with TLS, and counts them before the handshake; uvicorn takes it for a server."""

    def __init__(
        self, listener: socket.socket, tls: ssl.SSLContext, make: Callable[[], HttpProtocol]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._tls = tls
        self._make = make
        self._handshakes: set[asyncio.Task[None]] = set()
        listener.setblocking(False)
        self._resume()

    def _resume(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(_MOST_AT_ONCE):
            try:
                peer, address = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # too many descriptors
                log.warning("cannot accept a connection: %s", error.strerror)
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(_PAUSE_S, self._resume)
                return
            protocol = self._make()
            if protocol.admit(str(address[0]) if isinstance(address, tuple) else "unix"):
                task = self._loop.create_task(self._begin(peer, protocol))
                self._handshakes.add(task)
                task.add_done_callback(self._handshakes.discard)
            else:
                peer.close()

    async def _begin(self, peer: socket.socket, protocol: HttpProtocol) -> None:
        peer.setblocking(False)
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol, peer, ssl=self._tls, ssl_handshake_timeout=_REQUEST_WITHIN_S
            )
        except (OSError, TimeoutError):  # no TLS, or too slow
            protocol.leave()
            peer.close()
        except asyncio.CancelledError:
            protocol.leave()
            raise

    def close(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
        for task in self._handshakes:
            task.cancel()

    async def wait_closed(self) -> None:
        if self._handshakes:
            await asyncio.wait(self._handshakes)
