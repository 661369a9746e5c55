"""A connection by WebSocket: the browser's messages in, frames of its session's queue out."""

from __future__ import annotations

import asyncio

from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from covey.gateway.browser_queue import UnacknowledgedError
from covey.gateway.encoding import Frame
from covey.gateway.limits import Limits, Pace
from covey.gateway.messages import Hello, MessageError, encode, error_of, parse_message, request_of
from covey.gateway.session import Session
from covey.gateway.sessions import Holder, Sessions
from covey.matcher.errors import CoveyError
from covey.overlay import RefusedError

NORMAL, TOO_BIG, POLICY, TRY_LATER = 1000, 1009, 1008, 1013
"""Codes of RFC 6455: a browser ends its session with 1000; after 1008 another attempt is useless."""
_FINAL = {"UNAUTHENTICATED", "PERMISSION_DENIED", "INVALID_ARGUMENT", "FAILED_PRECONDITION"}
_REASON_BYTES = 123
_COUNTED_BYTES = 1_024


async def deny(websocket: WebSocket, status: int, reason: str) -> None:
    response = PlainTextResponse(f"{reason}\n", status)
    del response.headers["content-length"]  # older versions of uvicorn add it once more
    await websocket.send_denial_response(response)


class WebSocketConnection(Holder):
    """One connection; `run` returns when it has ended."""

    def __init__(self, websocket: WebSocket, sessions: Sessions) -> None:
        self._websocket = websocket
        self._sessions = sessions
        self._limits: Limits = sessions.limits

    async def run(self) -> None:
        client = self._websocket.client
        address = client.host if client is not None else "unix"
        refusal = self._sessions.addresses.enter(address)
        if refusal is not None:
            await deny(self._websocket, 429, refusal)
            return
        try:
            await self._websocket.accept()
            await self._serve(address)
        except WebSocketDisconnect:
            pass
        except (CoveyError, TimeoutError) as error:
            await self._close(error)
        finally:
            self._sessions.addresses.leave(address)

    async def _serve(self, address: str) -> None:
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                hello, _ = parse_message(await self._receive())
        except TimeoutError:
            raise TimeoutError(f"no hello came within {self._limits.timeout_s} s") from None
        if not isinstance(hello, Hello):
            raise MessageError(f"the first message is {hello.kind}: expected hello")
        session, resumed = await self._sessions.open(hello, self, address)
        ended = False
        try:
            welcome = self._sessions.welcome(session, resumed, session.newest_request)
            await self._websocket.send_text(encode(welcome))
            ended = await self._exchange(session)
        finally:
            self._sessions.leave(session, self, end=ended)

    async def _exchange(self, session: Session) -> bool:
        """Run until one side ends; returns whether the browser has ended its session."""
        if self.error is None:
            await self.until_first(self._read(session), self._write(session))
        if self.error is not None:
            raise self.error
        failures = [task.exception() for task in self.tasks if not task.cancelled()]
        for failure in failures:
            if isinstance(failure, WebSocketDisconnect):
                return failure.code == NORMAL
        for failure in failures:
            if failure is not None:
                raise failure
        return False

    async def _read(self, session: Session) -> None:
        clock = asyncio.get_running_loop().time
        pace = Pace(self._limits.max_messages_per_s, clock())
        while True:
            text = ""
            try:
                text = await self._receive()
                message, _ = parse_message(text)
            except MessageError as error:
                session.refuse(request_of(text), error)
            else:
                await session.handle(message)
            await session.queue.calm()
            pause_s = pace.pause_s(clock(), 1 + len(text) // _COUNTED_BYTES)
            if pause_s:
                await asyncio.sleep(pause_s)

    async def _receive(self) -> str:
        """A text message; `MessageError` for a binary one, `TooLargeError` for one over the bound."""
        received = await self._websocket.receive()
        if received["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(received.get("code", 1005), received.get("reason"))
        text = received.get("text")
        size = len(text.encode()) if text is not None else len(received["bytes"])
        if size > self._limits.max_message_bytes:
            bound = self._limits.max_message_bytes
            raise TooLargeError(f"a message of {size} bytes: max_message_bytes is {bound}")
        if text is None:
            raise MessageError(f"a binary message of {size} bytes: expected text, which is JSON")
        return str(text)

    async def _write(self, session: Session) -> None:
        while True:
            _, frame = await session.queue.next()
            await self._send(frame)

    async def _send(self, frame: Frame) -> None:
        if isinstance(frame.data, str):
            await self._websocket.send_text(frame.data)
        else:
            await self._websocket.send_bytes(frame.data)

    async def _close(self, error: Exception) -> None:
        """Send the reason, and close. Where the session goes on, only the close frame has the reason: a
        message would take a number that the next connection gives to another."""
        goes_on = isinstance(error, TooLargeError | UnacknowledgedError)
        told = error_of(error)
        code = TOO_BIG if isinstance(error, TooLargeError) else POLICY if told.status in _FINAL else TRY_LATER
        if self._websocket.application_state is not WebSocketState.CONNECTED:
            return
        try:
            async with asyncio.timeout(1.0):  # it may not read
                if not goes_on:
                    await self._websocket.send_text(encode(told))
                await self._websocket.close(
                    code, told.message.encode()[:_REASON_BYTES].decode(errors="ignore")
                )
        except (TimeoutError, WebSocketDisconnect, RuntimeError):
            pass


class TooLargeError(RefusedError):
    def __init__(self, reason: str) -> None:
        super().__init__("RESOURCE_EXHAUSTED", reason)
