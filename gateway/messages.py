"""The messages between a browser and the gateway. Parser, AsyncAPI document and sender are made of these
classes. A message is a JSON object whose `kind` names its class. Invariant: an error in a message is one
sentence, with the field, the value and what was expected."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, TypeVar

import orjson
from pydantic import ConfigDict, Field

from covey.gateway.limits import Overflow
from covey.matcher.errors import CapacityError, CoveyError, VariableError, closest_of
from covey.overlay import ConnectError, Motion, NotSettledError, RefusedError
from covey.overlay.core.client.view_reader import KINDS
from covey.overlay.core.messages import MAX_VALIDITY_NS
from covey.overlay.documents import Section, one_of, validated

_MOST_CHARACTERS = 500
"""Of a sentence about a message of any length."""

Number = Annotated[int, Field(ge=0, lt=1 << 53)]
Values = dict[str, Any]
Rate = Annotated[float, Field(ge=0.01, le=1_000)]
Validity = Annotated[float, Field(ge=0.001, le=MAX_VALIDITY_NS / 1e9)]
Policy = Annotated[str, one_of(*Overflow), Field(json_schema_extra={"enum": [*Overflow]})]
Format = Annotated[str, one_of("json", "arrow"), Field(json_schema_extra={"enum": ["json", "arrow"]})]


class MessageError(CoveyError, ValueError):
    """A message of a browser is wrong."""


class Message(Section):
    """A message; its name is `kind` in JSON."""

    model_config = ConfigDict(json_schema_extra={"additionalProperties": False})

    kind: ClassVar[str]


# --- from the browser ---------------------------------------------------------------------------------------


class Hello(Message):
    """The first message of a connection. With `session` it goes on with that session, of which the browser
    has received so many messages; `overflow` and `format` count for a new session."""

    kind = "hello"
    token: str | None = Field(None, description="A bearer token for the broker.", repr=False)
    session: str | None = Field(None, description="The session of the last welcome.")
    received: Number = Field(0, description="Messages behind the first welcome of the session.")
    overflow: Policy = Field("drop_oldest", description="What a full queue of this browser does.")
    format: Format = Field("json", description="Of events: JSON text, or binary Arrow IPC streams.")


class Subscribe(Message):
    """Subscribe under a number that the browser chooses; answered when the overlay has applied it."""

    kind = "subscribe"
    request: Number
    subscription: Number
    type: str = Field(description="The event type.")
    filter: str = Field("", description="Of the filter language; empty for all events.")
    values: Values = Field({}, description="Of the filter's variables; {value, rate} is a motion.")
    max_rate: Rate | None = Field(None, description="Events per second and key, at most; the newest comes.")
    valid_for: Validity | None = Field(None, description="Seconds until it ends, unless it is renewed.")


class View(Message):
    """Ask for a view under a number that the browser chooses, which is none of a subscription; answered when
    the overlay has applied it, behind an enter for each key that is inside."""

    kind = "view"
    request: Number
    subscription: Number
    type: str = Field(description="The event type, which needs a key.")
    filter: str = Field("", description="Of the filter language; empty for all events.")
    leave: str | None = Field(
        None, description="A wider filter, with all variables of the other: keys leave by it, and enter not."
    )
    values: Values = Field({}, description="Of the variables of the filter, and of leave.")


class Update(Message):
    """Give variables new values, all at once; answered when every broker that it concerns has applied it, and
    of a view behind what enters and leaves by it."""

    kind = "update"
    request: Number
    subscription: Number
    values: Values
    gapless: bool = Field(
        False, description="Also replay events published since the request; not of a view, which is."
    )


class Renew(Message):
    """Have a subscription end in so many seconds, counted anew; answered when the broker has applied it."""

    kind = "renew"
    request: Number
    subscription: Number
    valid_for: Validity = Field(description="Seconds, from the arrival at the broker.")


class Unsubscribe(Message):
    """Cancel a subscription or a view. Behind the answer no event of it comes."""

    kind = "unsubscribe"
    request: Number
    subscription: Number


class Publish(Message):
    """Publish events of one type, in order; answered when the broker has accepted them all."""

    kind = "publish"
    request: Number
    type: str
    events: list[Values] = Field(description="Objects of attributes; timestamps in ISO 8601.")


class Acknowledge(Message):
    """So many messages behind the first welcome of the session have been received. The gateway sends no more
    than `window_bytes` without one."""

    kind = "acknowledge"
    received: Number


class Authenticate(Message):
    """Another token for a session that has one, before that expires."""

    kind = "authenticate"
    request: Number
    token: str = Field(repr=False)


# --- to the browser -----------------------------------------------------------------------------------------


class Welcome(Message):
    """The answer to hello; the only message that is not counted. `resumed` is false for a new session, which
    has no subscriptions; else requests up to `request` have come before, and all others are to be sent again.
    """

    kind = "welcome"
    session: str
    resumed: bool
    request: Number = Field(0, description="The highest number of a request of this session.")
    max_message_bytes: Number
    window_bytes: Number
    lease_s: Number


class Answer(Message):
    """A request has taken effect. To subscribe and view it has the attributes of the event type and their
    kinds, to view the key."""

    kind = "answer"
    request: Number
    attributes: dict[str, str] | None = None
    key: str | None = None


class Error(Message):
    """A request failed and changed nothing; with `subscription` a view has ended; with neither a message
    could not be read, or the session ends. `status` is the name of a gRPC status."""

    kind = "error"
    request: Number | None = None
    subscription: Number | None = None
    status: str
    message: str


class Events(Message):
    """A batch of events for one subscription, from one publisher. In Arrow it is a binary message: the length
    of a head as uint32 (little-endian), the head, which is JSON with all fields but `events`, and an Arrow
    IPC stream of one batch."""

    kind = "events"
    subscription: Number
    type: str
    publisher: str = Field(description="With a sequence number, what identifies an event.")
    ingress_ms: float = Field(description="When they entered the overlay, in ms since 1970.")
    replayed: bool = Field(False, description="They are out of their publisher's order (gapless).")
    sequences: list[Number]
    events: list[Values] = Field(description="NaN and infinities are null in JSON.")


class Changes(Message):
    """How what is inside of a view changes: `changes` has enter, change or leave for each event, in order. In
    Arrow it is binary as `events`, whose `changes` are in the head."""

    kind = "changes"
    subscription: Number
    type: str
    key: str = Field(description="The attribute that is the key.")
    changes: list[Annotated[str, one_of(*KINDS), Field(json_schema_extra={"enum": [*KINDS]})]]
    events: list[Values] = Field(
        description="The newest of each key; of one that leaves as the bounds move, the last inside."
    )


class Ended(Message):
    """A subscription has ended by itself: its validity period is over. It is behind its last event, and its
    number is free again."""

    kind = "ended"
    subscription: Number
    reason: str


class GapNotice(Message):
    """Events that this browser does not get: its queue was full (`overflow`), the broker has dropped them
    before the gateway (`broker`), or they were sent on a connection that broke (`resume`); or they are in no
    need to come, since later events of their keys do (`conflated`, also of views)."""

    kind = "gap"
    cause: Annotated[str, one_of("overflow", "broker", "resume", "conflated")]
    type: str
    count: Number
    first_ms: float = Field(description="Ingress of the first batch that lost events.")
    last_ms: float = Field(description="Ingress of the last one.")


class OverflowNotice(Message):
    """The queue of this browser is full, and its policy is in force until it is half empty."""

    kind = "overflow"
    policy: Policy
    pending_bytes: Number


class Expiry(Message):
    """The session's token ends soon: authenticate with another one, or the session ends with it."""

    kind = "expiry"
    expires_in_s: float


class Connection(Message):
    """The gateway has lost its broker, or has it again; nothing is lost within the lease of the broker."""

    kind = "connection"
    connected: bool
    message: str


class OperatorNotice(Message):
    """A named operator of the filter did not answer at some broker."""

    kind = "notice"
    subscription: Number
    message: str


REQUESTS: dict[str, type[Message]] = {
    each.kind: each
    for each in (Hello, Subscribe, View, Update, Renew, Unsubscribe, Publish, Acknowledge, Authenticate)
}
"""What a browser may send, by `kind`; a new one needs a class here, and a case in `Session.handle`."""
REPLIES: dict[str, type[Message]] = {
    each.kind: each
    for each in (
        Welcome, Answer, Error, Events, Changes, Ended, GapNotice, OverflowNotice, Expiry, Connection,
        OperatorNotice,
    )
}  # fmt: skip

M = TypeVar("M", bound=Message)


def parse_message(text: str) -> tuple[Message, int | None]:
    """Parse a browser's message, and the number of its request; `MessageError` for any other text."""
    try:
        return _parse(text)
    except RecursionError:
        raise MessageError("the message is nested too deeply") from None


def _parse(text: str) -> tuple[Message, int | None]:
    message = read_object(text)
    kind = message.pop("kind", None)
    known = REQUESTS.get(kind) if isinstance(kind, str) else None
    if known is None:
        if kind is None:
            raise MessageError(f"the message has no kind: expected one of {', '.join(REQUESTS)}")
        raise MessageError(cut(f"kind is {kind!r}{closest_of(str(kind), REQUESTS)}"))
    parsed = check(known, message, known.kind)
    return parsed, getattr(parsed, "request", None)


def read_object(text: str) -> dict[str, Any]:
    """`MessageError` for text that is no JSON object."""
    try:
        message = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise MessageError(cut(f"the message is no JSON: {error}")) from None
    if not isinstance(message, dict):
        raise MessageError(f"the message is a JSON {_NAMES[type(message)]}: expected an object")
    return message


_NAMES = {list: "array", str: "text", int: "number", float: "number", bool: "bool", type(None): "null"}


def request_of(text: str) -> int | None:
    """The request number of a message that is invalid elsewhere; None without one."""
    try:
        number = read_object(text).get("request")
    except MessageError:
        return None
    return number if type(number) is int and 0 <= number < 1 << 53 else None


def check(model: type[M], fields: object, name: str) -> M:
    """Validate fields. `MessageError`, with the name of the message, for the first invalid one."""
    try:
        return validated(model, fields, name, MessageError)
    except MessageError as error:
        raise MessageError(cut(str(error))) from None


def cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + " ..."


def encode(message: Message) -> str:
    fields = {"kind": message.kind, **message.model_dump(exclude_none=True)}
    return orjson.dumps(fields).decode()


def values_of(values: Values) -> Values:
    """Values for the client: an object {value, rate} becomes a `Motion`; `VariableError` for another
    object."""
    return {
        name: _motion(name, value) if isinstance(value, dict) else value for name, value in values.items()
    }


def _motion(name: str, value: Values) -> Motion:
    if value.keys() != {"value", "rate"} or not all(type(each) in (int, float) for each in value.values()):
        raise VariableError(cut(f"${name} is {value!r}: expected a value, or {{value, rate}} with numbers"))
    return Motion(float(value["value"]), float(value["rate"]))


def error_of(error: Exception, request: int | None = None) -> Error:
    return Error(request=request, status=status_of(error), message=cut(str(error)))


def status_of(error: Exception) -> str:
    if isinstance(error, RefusedError | ConnectError):
        return error.status
    if isinstance(error, CapacityError):
        return "RESOURCE_EXHAUSTED"
    if isinstance(error, NotSettledError | TimeoutError):
        return "DEADLINE_EXCEEDED"
    return "INVALID_ARGUMENT" if isinstance(error, ValueError) else "FAILED_PRECONDITION"
