"""The client library: publish events, subscribe to what matters, and move subscriptions while events flow.

The protocol is the sans-IO `ClientSession`'s; this module lends it a connection and a clock. All calls
belong on one event loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import grpc.aio
import pyarrow as pa

from covey.matcher import EventBatch, EventType, Filter, filter_of, parse
from covey.matcher.errors import FilterError
from covey.overlay.client.deliveries import Deliveries
from covey.overlay.client.errors import ClosedError, ConnectError, NotSettledError, RefusedError
from covey.overlay.client.listeners import Listeners
from covey.overlay.client.outbox import Outbox
from covey.overlay.client.session import Session
from covey.overlay.client.subscription import Claim, Subscription
from covey.overlay.client.waiters import Waiters
from covey.overlay.core.client.session import (
    ClientSession,
    DeliverTo,
    Listening,
    Matches,
    Refused,
    Settled,
    Transmit,
)
from covey.overlay.core.link.link import Frame
from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import Deliver, Message
from covey.overlay.transport.calls import decode_inspection, encode_describe, encode_inspect
from covey.overlay.transport.channel import DESCRIBE, INSPECT, open_channel, reason_of
from covey.overlay.transport.codec import (
    Greeting,
    MessageError,
    WireMessage,
    decode_event_type,
    decode_message,
    event_bytes,
)
from covey.overlay.transport.limits import SlowConsumer

log = logging.getLogger("covey.client")

_WINDOW_BYTES = 1 << 20
_DESCRIBE_S = 5.0
_GOODBYE_S = 3.0


class Client:
    """A client of the broker at `address` ("host:port"), to be used as an async context manager.

    `name` is the client's in the overlay, unique among those connected (one is made up if it is None). When
    it falls behind, its broker does as `slow_consumer` says: "block" (publishers wait), "drop_oldest",
    "drop_newest" or "disconnect". `window_bytes` bounds the events that wait in this process. `routing`
    "static" makes updates travel as re-subscriptions, in the order of `resubscribe` ("subscribe-first" or
    "unsubscribe-first"), as in the paper's baseline. `connect_timeout` bounds the wait for the first
    connection, in seconds; a lost one is opened again without a bound, and `on_state(connected, reason)`
    hears of both. `session` is a state machine of the protocol to use, in place of one of its own.

    Entering the context raises `ConnectError` if no broker answers or the broker will not have this client.
    """

    def __init__(
        self,
        address: str,
        name: str | None = None,
        *,
        slow_consumer: str = "block",
        window_bytes: int = _WINDOW_BYTES,
        routing: str = "parametric",
        resubscribe: str = "subscribe-first",
        connect_timeout: float = 10.0,
        on_state: Callable[[bool, str], None] | None = None,
        session: ClientSession | None = None,
    ) -> None:
        policies = [policy.value for policy in SlowConsumer]
        if slow_consumer not in policies:
            raise ValueError(f"slow_consumer is {slow_consumer!r}: expected one of {', '.join(policies)}")
        if window_bytes < 1:
            raise ValueError(f"window_bytes is {window_bytes!r}: expected at least 1")
        self.address = address
        self.name = name if name is not None else f"client-{secrets.token_hex(6)}"
        self._slow_consumer = SlowConsumer(slow_consumer)
        self._window_bytes = window_bytes
        self._connect_timeout = connect_timeout
        self._on_state = on_state
        publisher = f"{self.name}/{secrets.token_hex(6)}"
        self._core = session or ClientSession(publisher, routing=routing, resubscribe=resubscribe)
        self._outbox = Outbox(self._core.publish)
        self._listeners: dict[str, Listeners] = {}
        self._subscriptions: dict[int, Subscription] = {}
        self._deliveries: Deliveries | None = None
        self._messages = 0
        self._waiters = Waiters()
        self._ready = asyncio.Event()
        self._error: Exception | None = None
        self._session: Session | None = None
        self._task: asyncio.Task[None] | None = None

    # --- opening and closing ----------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect. Raises `ConnectError` as the class says."""
        if self._task is not None or self._error is not None:
            raise ClosedError(f"client {self.name} was opened before: make a new one")
        self._session = Session(
            self.address, self.name, self._slow_consumer, self._window_bytes, _Handlers(self)
        )
        self._task = asyncio.create_task(self._session.run(), name=f"covey client {self.name}")
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._ready.wait()
        except TimeoutError:
            error = ConnectError(self._session.why or f"no broker answers at {self.address}")
            await self.close()
            raise error from None
        except BaseException:
            await self.close()
            raise
        if self._error is not None:
            error_met = self._error
            await self.close()
            raise error_met

    async def close(self, *, grace: float = 5.0) -> None:
        """Leave: what was published has arrived, or `grace` seconds have passed; iteration over events
        ends."""
        task, self._task = self._task, None
        session = self._session
        if task is None or session is None:
            return
        deadline = asyncio.get_running_loop().time() + grace
        while session.connected and not self._outbox.idle and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.005)
        await session.close(max(0.0, deadline - asyncio.get_running_loop().time()))
        _, late = await asyncio.wait({task}, timeout=_GOODBYE_S)
        if late:
            task.cancel()
            await asyncio.wait(late)
        self._end(ClosedError(f"client {self.name} is closed"), None)

    @property
    def session(self) -> ClientSession:
        """The state machine of the protocol."""
        return self._core

    @property
    def connected(self) -> bool:
        return self._session is not None and self._session.connected

    @property
    def publisher(self) -> str:
        """What this client's events are known by, with their sequence numbers; new for each `Client`."""
        return self._core.publisher

    @property
    def dropped(self) -> int:
        """Events for this client that its broker gave up, as `slow_consumer` has it or while it was away."""
        return self._session.link.missed if self._session is not None else 0

    @property
    def broker(self) -> str:
        """The name of the broker that this client is connected to, or was last."""
        return self._session.broker if self._session is not None else ""

    # --- publishing -------------------------------------------------------------------------------

    async def advertise(
        self, event_type: EventType, filter: str | Filter | object = "", /, *, timeout: float | None = None
    ) -> None:
        """Announce that events of this type will come; returns when the overlay knows.

        With a filter (without variables) only events that it accepts: others are refused, and only what
        subscribers want of them comes here. Said again with another filter, that takes its place. Raises
        `RefusedError` (ALREADY_EXISTS) if the overlay knows the name with other attributes.
        """
        self._check_open()
        everything = isinstance(filter, str) and not filter
        content = None if everything else _filter(filter, event_type)
        messages = self._core.advertise(event_type, content, watch=event_type.name in self._listeners)
        self._transmit(messages)
        await self._settled(timeout, f"the advertisement of {event_type.name}")

    async def listeners(self, type_name: str, *, timeout: float | None = None) -> Listeners:
        """Whether anyone wants anything of what this client advertises of a type, kept up to date.

        `RefusedError` (FAILED_PRECONDITION) if it does not advertise the type.
        """
        event_type = self._publishable(type_name)
        found = self._listeners.get(type_name)
        if found is None:
            found = self._listeners[type_name] = Listeners(type_name)
            content = self._core.advertised[type_name].filter
            self._transmit(self._core.advertise(event_type, content, watch=True))
        await self._settled(timeout, f"the question who listens to {type_name}")
        return found

    async def unadvertise(self, type_name: str, *, timeout: float | None = None) -> None:
        """Take an advertisement back, after what was published before. `EventTypeError` if there is none."""
        self._check_open()
        assert self._session is not None
        self._outbox.drain(self._session.link)
        messages = self._core.unadvertise(type_name)
        self._end_listeners(type_name, None)
        self._transmit(messages)
        await self._settled(timeout, f"the end of the advertisement of {type_name}")

    def _end_listeners(self, type_name: str, error: RefusedError | None) -> None:
        listeners = self._listeners.pop(type_name, None)
        if listeners is not None:
            listeners._end(error)

    async def publish(self, type_name: str, /, **attributes: object) -> None:
        """Publish one event; returns when the broker has taken it.

        Calls made side by side (`asyncio.gather`) travel as one batch; one that is cancelled before its event
        has left publishes nothing. Raises `EventError` naming the attribute and the value that do not fit,
        `RefusedError` for an event above the broker's size limit.
        """
        accepted = self._outbox.put_row(self._publishable(type_name), attributes)
        self._wake()
        await accepted

    async def publish_batch(
        self, type_name: str, events: pa.RecordBatch | pa.Table | EventBatch | list[Mapping[str, object]], /
    ) -> None:
        """Publish many events: an Arrow record batch or table, an `EventBatch`, or a list of mappings.

        Returns when the broker has taken them. Raises as `publish`; no event is sent if any does not fit its
        type, and an event above the size limit takes no other with it.
        """
        event_type = self._publishable(type_name)
        if isinstance(events, pa.RecordBatch | pa.Table):
            batch = EventBatch.from_arrow(event_type, events)
        elif isinstance(events, EventBatch):
            batch = EventBatch.from_arrow(event_type, events.record_batch)
        else:
            batch = EventBatch.from_pylist(event_type, events)
        accepted = self._outbox.put_batch(batch)
        self._wake()
        await accepted

    def _publishable(self, type_name: str) -> EventType:
        self._check_open()
        advertised = self._core.advertised
        if type_name not in advertised:
            known = ", ".join(advertised) or "nothing yet"
            raise RefusedError(
                "FAILED_PRECONDITION",
                f"event type {type_name!r} is not advertised by this client: it advertises {known}",
            )
        return advertised[type_name].event_type

    # --- subscribing ------------------------------------------------------------------------------

    async def subscribe(
        self,
        event_type: str | EventType,
        filter: str | Filter | object = "",
        /,
        *,
        values: Mapping[str, object] | None = None,
        timeout: float | None = None,
        **variables: object,
    ) -> Subscription:
        """Subscribe to the events of a type that a filter accepts; returns when the overlay has taken it up.

        `filter` is text, a `Filter`, or what the builder makes; the keyword arguments give its variables. A
        type name is looked up at the broker, unless this client subscribes to the type or advertises it:
        `RefusedError` (NOT_FOUND) if nobody has advertised it. An `EventType` needs no one. Raises
        `FilterSyntaxError`, `FilterError` or `VariableError` before anything is sent, and `NotSettledError`
        after `timeout` seconds: then the subscription is taken back.
        """
        self._check_open()
        if isinstance(event_type, str):
            event_type = self._core.event_type(event_type) or await self.event_type(event_type)
        compiled = _filter(filter, event_type)
        given = {**(values or {}), **variables}
        subscription_id, messages = self._core.subscribe(compiled, given, now_ns=time.time_ns())
        subscription = Subscription(self, subscription_id, compiled)
        subscription._values = self._core.values(subscription_id)
        self._subscriptions[subscription_id] = subscription
        self._transmit(messages)
        try:
            await self._settled(timeout, f"the subscription {str(compiled)!r}")
        except BaseException:
            if subscription_id in self._subscriptions:
                self._forget(subscription)
            raise
        return subscription

    def deliveries(self) -> Deliveries:
        """All that waits and that comes in one stream, in place of the subscriptions' own iterators.

        For clients with many subscriptions: its cost does not grow with them. Each item has the attributes
        `batch`, `rows` and `ids`: the event `batch[rows[i]]` is for the subscription whose `id` is `ids[i]`.
        """
        self._check_open()
        if self._deliveries is None:
            self._deliveries = Deliveries()
            waiting = [
                (part, subscription)
                for subscription in self._subscriptions.values()
                for part in subscription._hand_over()
            ]
            for part, subscription in sorted(waiting, key=lambda each: each[0].claim.number):
                self._deliveries._put(partial(subscription._matches, part), part.claim.done)
        return self._deliveries

    def _evaluate(self, message: Deliver) -> Matches | None:
        matches = self._core.matches(message)
        if matches is not None:
            for subscription_id, count in matches.spurious.items():
                self._subscriptions[subscription_id].spurious += count
        return matches

    async def event_type(self, name: str) -> EventType:
        """The event type of this name, as the broker knows it. `RefusedError` (NOT_FOUND) if it does not."""
        self._check_open()
        return decode_event_type(await call_broker(self.address, DESCRIBE, encode_describe(name)))

    async def inspect(self) -> tuple[str, dict[str, Any]]:
        """The broker's state: as text for people, and as plain values."""
        self._check_open()
        return await inspect_broker(self.address)

    def _update(self, subscription: Subscription, values: Mapping[str, object], gapless: bool) -> None:
        self._check_open()
        since_ns = time.time_ns() if gapless else 0
        messages = self._core.update(subscription.id, values, since_ns=since_ns, now_ns=time.time_ns())
        if messages:
            subscription._moved(self._core.values(subscription.id))
            self._transmit(messages)

    def _forget(self, subscription: Subscription) -> None:
        self._check_open()
        messages = self._core.unsubscribe(subscription.id)
        del self._subscriptions[subscription.id]
        subscription._discard()
        self._transmit(messages)

    # --- waiting ----------------------------------------------------------------------------------

    async def settled(self, *, timeout: float | None = None) -> None:
        """Wait until everything that this client has said so far has taken effect.

        Raises `NotSettledError` after `timeout` seconds: then it still stands, and takes effect later.
        """
        self._check_open()
        await self._settled(timeout, f"what client {self.name} has said")

    async def _settled(self, timeout: float | None, what: str) -> None:
        """Until everything said so far has taken effect."""
        epoch = self._core.epoch
        future = self._waiters.wait(epoch)
        try:
            async with asyncio.timeout(timeout):
                try:
                    await future
                finally:
                    self._waiters.leave(epoch, future)
        except TimeoutError:
            missing = await self._missing()
            raise NotSettledError(
                f"{what} has not taken effect everywhere within {timeout:g} s: {missing}"
            ) from None

    async def _missing(self) -> str:
        """Who has not answered, as far as that can be found out."""
        session = self._session
        if session is None or not session.connected:
            why = f" ({session.why})" if session is not None and session.why else ""
            return f"broker {self.broker or self.address} is out of reach{why}"
        try:
            async with asyncio.timeout(1.0):
                _, state = await inspect_broker(self.address, listed=0)
        except (TimeoutError, RefusedError, ConnectError):
            return f"broker {self.broker} has not answered"
        away = [
            name.removeprefix("broker/")
            for name, interface in state["interfaces"].items()
            if name.startswith("broker/") and not interface["connected"]
        ]
        if away:
            return f"broker {', '.join(away)}, next to {self.broker}, is out of reach"
        return f"a broker beyond {self.broker} has not answered"

    def _check_open(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None)  # or it would grow with each call
        if self._task is None:
            raise ClosedError(f"client {self.name} is not open: use it within `async with`")

    # --- to and from the broker -------------------------------------------------------------------

    def _transmit(self, messages: list[Message]) -> None:
        assert self._session is not None
        for message in messages:
            self._session.link.send(message)
        self._wake()

    def _wake(self) -> None:
        if self._session is not None:
            self._session.wake()

    def _take(self, wire: WireMessage) -> None:
        assert self._session is not None
        try:
            message = decode_message(wire, self._core.event_type)
        except MessageError as error:
            if error.refuse.status != "NOT_FOUND":  # Events may come for what was cancelled meanwhile.
                log.warning("client %s cannot read a message of its broker: %s", self.name, error)
            self._session.link.consume(event_bytes(wire))
            return
        if isinstance(message, Deliver):
            self._deliver(message)
            return
        for action in self._core.receive(message):
            if isinstance(action, Settled):
                self._waiters.settle(action.epoch)
            elif isinstance(action, Refused):
                self._refused(action)
            elif isinstance(action, Listening):
                found = self._listeners.get(action.type_name)
                if found is not None:
                    found._tell(action.listening)
            elif isinstance(action, Transmit):
                self._transmit([action.message])

    def _deliver(self, message: Deliver) -> None:
        assert self._session is not None
        release = self._session.claim(size_of(message))
        if self._deliveries is not None:
            self._deliveries._put(partial(self._evaluate, message), release)
            return
        shares = [action for action in self._core.receive(message) if isinstance(action, DeliverTo)]
        for share in shares:
            self._subscriptions[share.subscription_id].spurious += share.spurious
        parts = [share for share in shares if len(share.batch)]
        if not parts:
            release()
            return
        self._messages += 1
        claim = Claim(self._messages, len(parts), release)
        for share in parts:
            self._subscriptions[share.subscription_id]._put(share, claim)

    def _refused(self, refused: Refused) -> None:
        error = RefusedError(refused.status, refused.reason)
        if refused.count:
            self._outbox.refused(refused)
            return
        self._waiters.fail(refused.epoch, error)
        if refused.type_name not in self._core.advertised:
            self._end_listeners(refused.type_name, error)
        subscription = self._subscriptions.get(refused.subscription_id)
        if subscription is not None and not self._holds(refused.subscription_id):
            del self._subscriptions[refused.subscription_id]
            subscription._discard()
            subscription._end(error)
        log.info("client %s was refused: %s", self.name, refused.reason)

    def _holds(self, subscription_id: int) -> bool:
        try:
            self._core.values(subscription_id)
        except KeyError:
            return False
        return True

    def _opened(self, greeting: Greeting, resumed: bool) -> None:
        assert self._session is not None
        self._outbox.limits = greeting.limits
        if resumed:
            # The greeting acknowledges frames, too.
            self._outbox.acknowledged(self._session.link.acknowledged)
        else:
            self._outbox.restart()
            for message in self._core.sync():
                self._session.link.send(message)
        self._ready.set()
        if self._on_state is not None:
            self._on_state(True, "resumed" if resumed else "afresh")

    def _lost(self, why: str) -> None:
        if self._on_state is not None and self._task is not None:
            self._on_state(False, why)

    def _end(self, error: Exception, shown: Exception | None) -> None:
        """Nothing more will happen: whoever waits hears of `error`, whoever iterates of `shown`, or just of
        the end."""
        self._error = error
        self._waiters.fail_all(error)
        self._outbox.fail(error)
        for subscription in self._subscriptions.values():
            subscription._end(shown)
        if self._deliveries is not None:
            self._deliveries._end(shown)
        for listeners in self._listeners.values():
            listeners._end(shown)
        self._ready.set()


class _Handlers:
    """Joins a session to its client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def take(self, messages: tuple[WireMessage, ...]) -> None:
        for message in messages:
            self._client._take(message)

    def prepare(self) -> None:
        client = self._client
        assert client._session is not None
        client._outbox.flush(client._session.link)

    def sent(self, frame: Frame[Message]) -> None:
        self._client._outbox.framed(frame)

    def heard(self) -> None:
        client = self._client
        assert client._session is not None
        client._outbox.acknowledged(client._session.link.acknowledged)

    def opened(self, greeting: Greeting, resumed: bool) -> None:
        self._client._opened(greeting, resumed)

    def lost(self, why: str) -> None:
        self._client._lost(why)

    def failed(self, error: ConnectError) -> None:
        self._client._end(error, error)


def _filter(filter: object, event_type: EventType) -> Filter:
    if isinstance(filter, str):
        return parse(filter, event_type)
    if isinstance(filter, Filter):
        if filter.event_type != event_type:
            raise FilterError(f"a filter of {filter.event_type!r}: expected one of {event_type!r}")
        return filter
    return filter_of(event_type, filter)  # type: ignore[arg-type]


async def inspect_broker(address: str, *, listed: int | None = None) -> tuple[str, dict[str, Any]]:
    """The state of the broker at an address: as text for people, and as plain values.

    Of the subscriptions and slots of each event type `listed` are there, all if it is None: where there are a
    hundred thousand that takes the broker seconds. `ConnectError` if none answers there.
    """
    text, as_json = decode_inspection(await call_broker(address, INSPECT, encode_inspect(listed)))
    return text, json.loads(as_json)


async def call_broker(address: str, method: str, request: bytes) -> bytes:
    async with open_channel(address) as channel:
        try:
            reply: bytes = await channel.unary_unary(method)(request, timeout=_DESCRIBE_S)
        except grpc.aio.AioRpcError as error:
            reason = reason_of(error, address)
            if error.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise ConnectError(reason) from None
            raise RefusedError(error.code().name, reason) from None
    return reply
