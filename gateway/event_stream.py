"""One subscription or view as server-sent events, for browsers without Covey's script. An event's id is its
session and its number, so a request with `Last-Event-ID` continues behind it: within the lease each event
comes once, and a gap has the events that are no longer retained. After the lease, in another gateway, or
where changes of a view are lost, a new session begins, whose welcome has `resumed` false."""

from __future__ import annotations

import asyncio
from typing import Annotated

import orjson
from pydantic import BeforeValidator, Field
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from covey.gateway.messages import (
    Hello,
    Message,
    MessageError,
    Policy,
    Rate,
    Subscribe,
    View,
    check,
    cut,
    encode,
    error_of,
    status_of,
)
from covey.gateway.session import Session
from covey.gateway.sessions import Holder, Sessions
from covey.matcher.errors import CoveyError
from covey.overlay import RefusedError

SUBSCRIPTION = 1
"""The numbers of a stream's only subscription or view, and of its only request."""
REQUEST = 0
_KEEPALIVE_S = 15.0
_RETRY_MS = 1_000
_RETRY_LATER_MS = 5_000
_PASSING = ("UNAVAILABLE", "DEADLINE_EXCEEDED")
"""Statuses of a broker that may come back."""
_HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "UNAUTHENTICATED": 401,
    "FAILED_PRECONDITION": 400,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "RESOURCE_EXHAUSTED": 429,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


def _number(text: object) -> object:
    try:
        return float(str(text))
    except ValueError:
        raise ValueError("expected a number") from None


class Query(Message):
    """The parameters of a stream."""

    filter: str = Field("", description="Of the filter language; empty for all events.")
    values: str = Field("{}", description='Of the filter\'s variables, as a JSON object: {"limit": 100}.')


class EventsQuery(Query):
    """The parameters of a stream of events."""

    kind = "events"
    overflow: Policy = Field("drop_oldest", description="What a full queue of this browser does.")
    max_rate: Annotated[Rate | None, BeforeValidator(_number)] = Field(
        None, description="Events per second and key, at most; the newest comes."
    )


class ChangesQuery(Query):
    """The parameters of a stream of the changes of a view."""

    kind = "view"
    leave: str | None = Field(None, description="A wider filter: keys leave by it, and do not enter by it.")


async def open_stream(request: Request, sessions: Sessions, query: type[Query]) -> Response:
    """The response to a request for events or changes: a stream, or an error as JSON."""
    if request.method == "HEAD":  # which has no end to wait for
        return Response(media_type=EventStream.media_type, headers={"cache-control": "no-store"})
    address = request.client.host if request.client is not None else "unix"
    refusal = sessions.addresses.enter(address)
    if refusal is not None:
        return error_response(RefusedError("RESOURCE_EXHAUSTED", refusal))
    stream = EventStream(sessions, address)
    try:
        await stream.open(request, query)
    except (CoveyError, TimeoutError) as error:
        stream.close()
        asks = "text/event-stream" in request.headers.get("accept", "")
        return error_event(error) if asks and status_of(error) in _PASSING else error_response(error)
    except BaseException:
        stream.close()
        raise
    return stream


def error_response(error: Exception) -> Response:
    told = error_of(error)
    return Response(encode(told), _HTTP_STATUS.get(told.status, 500), media_type="application/json")


def error_event(error: Exception) -> Response:
    """A stream of this error alone: an `EventSource` reconnects after a stream ends, and never after an HTTP
    error."""
    text = f"retry: {_RETRY_LATER_MS}\ndata: {encode(error_of(error))}\n\n"
    return Response(text, media_type=EventStream.media_type, headers={"cache-control": "no-store"})


class EventStream(Response, Holder):
    media_type = "text/event-stream"

    def __init__(self, sessions: Sessions, address: str) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._sessions = sessions
        self._address = address
        self._session: Session | None = None
        self._resumed = False

    async def open(self, request: Request, model: type[Query]) -> None:
        query = check(model, _single(model, request.query_params), model.kind)
        type_name = request.path_params["type"]
        message = _message(query, type_name)
        last, _, number = request.headers.get("last-event-id", "").rpartition(":")
        hello = Hello(
            token=_bearer(request.headers.get("authorization")),
            session=last or None,
            received=int(number) if number.isascii() and number.isdigit() and len(number) < 16 else 0,
            overflow=query.overflow if isinstance(query, EventsQuery) else "drop_oldest",
            format="json",
        )
        purpose = f"{query.kind} {type_name} {query.model_dump_json(exclude={'overflow'})}"
        session, self._resumed = await self._sessions.open(
            hello, self, self._address, acknowledges=False, purpose=purpose
        )
        self._session = session
        if self._resumed:
            return
        try:
            await session.stream(message)
        except RecursionError:  # values may have any depth
            raise MessageError(f"{query.kind}: values is nested too deeply") from None

    def close(self) -> None:
        """Leave the session, and end it if it has not begun to stream."""
        self._sessions.addresses.leave(self._address)
        if self._session is not None:
            self._sessions.leave(self._session, self, end=not self.tasks)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            if self.error is None:  # the session may have ended meanwhile
                await self.until_first(self._until_disconnected(receive), self._write(send))
            if self.error is not None:
                await _send(send, f"data: {encode(error_of(self.error))}\n\n")
                await send({"type": "http.response.body", "body": b""})
        except OSError:  # the browser has gone
            pass
        finally:
            self.close()

    async def _until_disconnected(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    async def _write(self, send: Send) -> None:
        session = self._session
        assert session is not None
        welcome = self._sessions.welcome(session, self._resumed)
        await _send(send, f"retry: {_RETRY_MS}\ndata: {encode(welcome)}\n\n")
        while True:
            try:
                async with asyncio.timeout(_KEEPALIVE_S):
                    number, frame = await session.queue.next()
            except TimeoutError:
                await _send(send, ":\n\n")
            else:
                await _send(send, f"id: {session.id}:{number}\ndata: {frame.data!s}\n\n")


async def _send(send: Send, text: str) -> None:
    await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


def _message(query: Query, type_name: str) -> Subscribe | View:
    model: type[Subscribe] | type[View] = Subscribe if isinstance(query, EventsQuery) else View
    fields = query.model_dump(exclude={"overflow"}, exclude_none=True)
    fields |= {"type": type_name, "values": _values(query)}
    return check(model, {"request": REQUEST, "subscription": SUBSCRIPTION, **fields}, query.kind)


def _single(model: type[Query], parameters: QueryParams) -> dict[str, str]:
    """The parameters that are not empty; `MessageError` for a repeated one."""
    found: dict[str, str] = {}
    for name, value in parameters.multi_items():
        if name in found:
            raise MessageError(cut(f"{model.kind}: {name} is there twice: expected it once"))
        if value or name not in model.model_fields:
            found[name] = value
    return found


def _values(query: Query) -> object:
    text = query.values
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        expected = f"expected a JSON object: {error}"
        raise MessageError(f"{query.kind}: values is {cut(text)!r}: {expected}") from None


def _bearer(header: str | None) -> str | None:
    if header is None:
        return None
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise RefusedError("UNAUTHENTICATED", "authorization: expected Bearer and a token")
    return token.strip()
