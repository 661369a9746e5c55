"""The client library: publish events, subscribe by content, and move subscriptions while events flow.

`Client` is the public face of `driver.py`. All calls belong on one event loop. `SyncClient` has the same
names for code without one.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from functools import wraps
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeAlias

from covey.matcher import EventBatch, EventType, Filter, filter_of, parse
from covey.matcher.dialects import translate
from covey.matcher.errors import CoveyError, EventError, FilterError, SubscriptionError
from covey.matcher.evaluation.evaluator import Evaluator
from covey.matcher.evaluation.runner import Compute, Outcome, run_at_once
from covey.matcher.events.event_type import check_event_type
from covey.matcher.events.python_rows import is_data_frame
from covey.matcher.jit.compiling import load_in_background
from covey.matcher.jit.kernel_loader import loader
from covey.matcher.operators.named_operator import NamedOperator
from covey.overlay.client.blocking import (
    Blocking,
    LoopThread,
    Plain,
    SyncListeners,
    SyncSubscription,
    SyncView,
    blocking,
    blocking_as,
    check_may_block,
    iterating,
    on_loop,
)
from covey.overlay.client.driver import SessionDriver
from covey.overlay.client.errors import ConnectError, UpdateError
from covey.overlay.client.followed_fields import FollowedFields
from covey.overlay.client.inbox import Deliveries, Listeners
from covey.overlay.client.reports import Reports, client_tracing
from covey.overlay.client.subscription import Subscription, check_max_rate, validity_ns
from covey.overlay.client.unary import event_type_at, inspect_as
from covey.overlay.client.view import View, ViewSubscription, check_max_keys
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.client.view_reader import MAX_KEYS
from covey.overlay.core.endpoint.client_endpoint import MAX_CONTROL, ClientEndpoint
from covey.overlay.core.endpoint.limits import RefusedError, SlowConsumer
from covey.overlay.core.endpoint.outbox import OUTBOX_BYTES, OUTBOX_EVENTS
from covey.overlay.core.link.link import Link
from covey.overlay.core.messages import Gap, Message, Notice
from covey.overlay.transport.credentials import Token, credentials
from covey.overlay.transport.tls import Tls

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

log = logging.getLogger("covey.client")
_WINDOW_BYTES = 1 << 20
_READERS_END_S = 1.0
"""How long a client that is closed waits for calls of other threads to end."""
_SILENT_S = 1.0
"""Without a broker for so long, a client that connects logs what it waits for."""
Columns: TypeAlias = Any
"""What has `__arrow_c_stream__` or `__arrow_c_array__`, or a pandas DataFrame, which before pandas 2.2 has
neither: pyarrow has no types, and pandas is optional."""
P = ParamSpec("P")


def _sync(
    opened: Callable[Concatenate[Client, P], None],
) -> Callable[Concatenate[type[Client], P], SyncClient]:
    @wraps(opened, assigned=())
    def sync(kind: type[Client], /, *arguments: P.args, **options: P.kwargs) -> SyncClient:
        """A `SyncClient`, with the arguments of `Client`."""
        client = kind.__new__(kind)
        opened(client, *arguments, **options)
        return SyncClient(client)

    return sync


class Client:
    """A client of the broker at `address` ("host:port", "unix:path"), to be used as an async context manager.

    `name` identifies the client in the overlay, unique among those connected (random if None, with the owner
    that its token or certificate names). When it falls
    behind, its broker applies `slow_consumer`: "block" (publishers are blocked), "drop_oldest",
    "drop_newest" or "disconnect"; `on_gap(gap)` is called for what it drops (`gaps`), and `on_notice(notice)`
    where a named operator of a filter does not answer (`Subscription.notices`). `window_bytes` bounds
    the events that wait for readers in this process, `outbox_events` and `outbox_bytes` those that are
    published and not accepted; a type that the broker holds has as much for itself. `routing` "static" sends
    updates as re-subscriptions, in the order of `resubscribe` ("subscribe-first" or "unsubscribe-first"), as
    in the paper's baseline. `connect_timeout` bounds the wait for the first connection, in seconds; a lost
    one is re-established without a bound, and `on_state(connected, reason)` is called for both. A call that
    waits for other brokers for 3 s logs for which (`covey.client`). `session` is
    a state machine of the protocol to use, in place of one of its own; with that of a client that is closed
    this one has its subscriptions (`subscription`), such as at another broker.

    `tls` is the path of the authority's certificates that a broker with TLS is verified by, or a `Tls` with a
    certificate and key of this client as well; its files are read again when they change. `token` is a bearer
    token, or a function (maybe asynchronous) that returns one: it is called before each connection, so a
    client goes on with a new token when one has expired, and misses nothing within its lease; where it
    raises, the client tries again, as where no broker answers. Neither is in any `repr`.

    With `durable` the broker keeps the subscriptions under this client's name while it is away, also over its
    own restarts, and stores the events of durable types for it (docs/durability.md). After a restart
    `subscribe` with the same filter returns the subscription of the earlier process, with what has waited.
    `close` leaves the session where it has subscriptions, `close(end=True)` ends it. With the `ticket` of the
    earlier process, at whichever broker it was, the session is handed over to this broker first
    (docs/moving.md); where the overlay has keys for tickets, no session is resumed without.

    Where the application has set OpenTelemetry's tracer provider before the client opens, or passes one as
    `tracer_provider`, publishing, deliveries and updates have spans (docs/operations.md).

    Entering the context raises `ConnectError` if no broker answers or the broker refuses this client.
    """

    def __init__(
        self,
        address: str,
        name: str | None = None,
        *,
        slow_consumer: str = "block",
        window_bytes: int = _WINDOW_BYTES,
        outbox_events: int = OUTBOX_EVENTS,
        outbox_bytes: int = OUTBOX_BYTES,
        routing: str = "parametric",
        resubscribe: str = "subscribe-first",
        connect_timeout: float = 10.0,
        on_state: Callable[[bool, str], None] | None = None,
        on_gap: Callable[[Gap], None] | None = None,
        on_notice: Callable[[Notice], None] | None = None,
        session: ClientSession | None = None,
        tls: Tls | str | Path | None = None,
        token: Token | None = None,
        durable: bool = False,
        ticket: str = "",
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        policies = [policy.value for policy in SlowConsumer]
        if slow_consumer not in policies:
            raise ValueError(f"slow_consumer is {slow_consumer!r}: expected one of {', '.join(policies)}")
        bounds = {"window_bytes": window_bytes, "outbox_events": outbox_events, "outbox_bytes": outbox_bytes}
        for bound, value in bounds.items():
            if not isinstance(value, int) or not 1 <= value < 1 << 62:
                raise ValueError(f"{bound} is {value!r}: expected an integer from 1 to 2**62 - 1")
        for field, text in (("address", address), ("name", name)):
            if not isinstance(text, str) and not (field == "name" and text is None):
                raise ValueError(f"{field} is {text!r}: expected text")
        if durable and (name is None or routing != "parametric"):
            raise ValueError("durable is True: expected a name, and parametric routing")
        if ticket and not durable:
            raise ValueError("ticket is of a durable session: expected durable=True")
        self._credentials = credentials(tls, token)
        load_in_background(loader.load)
        self.address = address
        self.name = name if name is not None else f"client-{secrets.token_hex(6)}"
        self._named = name is not None
        self._own_session = session is None
        self._connect_timeout = connect_timeout
        publisher = f"{self.name}/{secrets.token_hex(6)}"
        self._core = session or ClientSession(
            publisher, routing=routing, resubscribe=resubscribe, evaluator=Evaluator(run=run_timed)
        )

        link = Link(secrets.randbits(63) | 1, window_bytes=window_bytes, max_control=MAX_CONTROL)
        self._endpoint = ClientEndpoint(
            self._core,
            link,
            outbox_events=outbox_events,
            outbox_bytes=outbox_bytes,
            durable=durable and session is None,
            ticket=ticket,
        )
        self._durable = durable
        self._tracer_provider = tracer_provider
        self._driver = SessionDriver(
            address,
            self.name,
            self._endpoint,
            SlowConsumer(slow_consumer),
            Reports(self.name, on_state, on_gap, on_notice),
            self._credentials,
            durable=durable,
        )

    sync = classmethod(_sync(__init__))

    # --- opening and closing ----------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Connect. Raises `ConnectError` as the class says."""
        if not self._named and (owner := await self._credentials.owner()):
            # A broker that knows who this is takes names of that owner alone.
            self.name = f"{owner}/{secrets.token_hex(6)}"
            self._driver.rename(self.name)
            if self._own_session:
                self._core.publisher = f"{self.name}/{secrets.token_hex(6)}"
        self._driver.set_tracing(client_tracing(self._tracer_provider, self.name, self.address))
        self._driver.start()
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._until_ready()
        except TimeoutError:
            error = ConnectError(self._driver.why or f"no broker answers at {self.address}")
            await self.close()
            raise error from None
        except BaseException:
            await self.close()
            raise
        if self._driver.error is not None:
            refusal = self._driver.error
            await self.close()
            raise refusal

    async def _until_ready(self) -> None:
        """Until the client is connected, or never will be. A line of the log says what it waits for."""
        start, ready = time.monotonic(), self._driver.opened
        with suppress(TimeoutError):
            async with asyncio.timeout(_SILENT_S):
                await ready.wait()
                return
        log.warning(
            "client %s waits for a broker at %s, for another %g s: %s",
            self.name,
            self.address,
            round(start + self._connect_timeout - time.monotonic(), 1),
            self._driver.why or "no answer",
        )
        await ready.wait()
        if self._driver.error is None:
            seconds = time.monotonic() - start
            log.warning("client %s is connected to %s, after %.1f s", self.name, self.address, seconds)

    async def close(self, *, grace: float = 5.0, end: bool = False) -> None:
        """Disconnect once published events are accepted, or `grace` seconds have passed; iteration over
        events ends. Events that were not accepted are lost: `pending` counts them, and a warning is logged.
        A durable session stays, with its subscriptions, unless this is its `end`.
        """
        if self._durable and self._driver.opened.is_set() and self._driver.error is None:
            for type_name in list(self._core.advertised):
                self._driver.unadvertise(type_name)
            for subscription in list(self._driver.subscriptions.values()) if end else ():
                self._driver.unsubscribe(subscription)
                subscription._end(None)
        await self._driver.close(grace)

    @property
    def session(self) -> ClientSession:
        """The state machine of the protocol."""
        return self._core

    @property
    def ticket(self) -> str:
        """The ticket of a durable session, once it is connected; it changes when the session moves. Who has
        it may take the session over, at any broker.
        """
        return self._endpoint.ticket

    @property
    def connected(self) -> bool:
        return self._driver.connected

    @property
    def error(self) -> Exception | None:
        """What has ended this client, None while it is open: a lost connection alone does not end it."""
        return self._driver.error

    @property
    def publisher(self) -> str:
        """The id that identifies this client's events, with their sequence numbers; new for each `Client`."""
        return self._core.publisher

    @property
    def dropped(self) -> int:
        """Events for this client that its broker dropped, by `slow_consumer` or while it was disconnected."""
        return self._endpoint.link.missed

    @property
    def gaps(self) -> list[Gap]:
        """The last gaps in the stream of events, at most a hundred: of which type, the times at which the
        first and the last dropped events entered the overlay (ns since the epoch), and how many there were.
        """
        return [*self._endpoint.gaps]

    @property
    def broker(self) -> str:
        """The name of the broker that this client is connected to, or was last."""
        return self._driver.broker

    # --- publishing -------------------------------------------------------------------------------

    async def advertise(
        self, event_type: EventType, filter: str | Filter | object = "", /, *, timeout: float | None = None
    ) -> None:
        """Announce events of this type; returns when the overlay has applied the advertisement.

        A filter (without variables) restricts them: other events are refused, and only interest in matching
        events reaches this client's broker. A second call with another filter replaces the first, one with
        more attributes widens the type (`widen`). Raises `RefusedError` (ALREADY_EXISTS) if the overlay has
        an attribute of this type with another kind, `EventTypeError` if this client has declared it so; an
        earlier advertisement then stands.
        """
        check_event_type(event_type)
        self._driver.check_open()
        everything = isinstance(filter, str) and not filter
        content = None if everything else _filter(filter, event_type)
        messages = self._core.advertise(
            event_type, content, report_listeners=event_type.name in self._driver.listeners
        )
        self._driver.transmit(messages)
        await self._driver.settle(timeout, f"the advertisement of {event_type.name}")

    async def listeners(self, type_name: str, *, timeout: float | None = None) -> Listeners:
        """Whether any subscription matches what this client advertises of a type, kept up to date.

        `RefusedError` (FAILED_PRECONDITION) if it does not advertise the type.
        """
        self._driver.check_open()
        event_type = self._endpoint.publishable(type_name)
        listeners = self._driver.listeners.get(type_name)
        if listeners is None:
            listeners = self._driver.listeners[type_name] = Listeners(type_name)
            content = self._core.advertised[type_name].filter
            self._driver.transmit(self._core.advertise(event_type, content, report_listeners=True))
        await self._driver.settle(timeout, f"the listeners of {type_name}")
        return listeners

    async def widen(self, event_type: EventType, /, *, timeout: float | None = None) -> None:
        """Add attributes to an event type that this client publishes or subscribes to, while events flow;
        returns when the overlay has applied it.

        Attributes are identified by name: those that the client has declared before stay. From then on its
        events may have the new ones, and events that it gets do. Other clients, brokers and filters need no
        change: events that lack an attribute do not have it, and a client gets those that it has declared.
        Raises `RefusedError`: ALREADY_EXISTS if the overlay has one of the attributes with another kind,
        FAILED_PRECONDITION if this client neither publishes nor subscribes to the type. Raises
        `EventTypeError` if this client has declared an attribute with another kind.
        """
        check_event_type(event_type)
        self._driver.check_open()
        name = event_type.name
        advertised = self._core.advertised.get(name)
        if advertised is not None:
            wider = advertised.event_type.union(event_type)
            await self.advertise(wider, advertised.filter or "", timeout=timeout)
        elif self._core.event_type(name) is None:
            reason = f"event type {name!r}: expected one that this client publishes or subscribes to"
            raise RefusedError("FAILED_PRECONDITION", reason)
        else:
            known = await self.event_type(name)
            if not known.agrees(event_type):
                raise RefusedError("ALREADY_EXISTS", f"{event_type!r}: expected attributes as in {known!r}")
        self._core.widen(event_type)

    async def unadvertise(self, type_name: str, *, timeout: float | None = None) -> None:
        """Withdraw an advertisement, after the events published before. `EventTypeError` if there is none."""
        self._driver.check_open()
        self._driver.unadvertise(type_name)
        await self._driver.settle(timeout, f"the end of the advertisement of {type_name}")

    async def publish(
        self,
        type_name: str | EventType,
        values: Mapping[str, object] | None = None,
        /,
        *,
        confirm: bool = False,
        **attributes: object,
    ) -> None:
        """Publish one event; returns when it is in the outbox, and waits while that is full.

        The type is given by its name, or as an `EventType`, of which the name alone counts. With `confirm`,
        returns when the broker has accepted the event. `values` is for attributes whose names clash with a
        parameter. Events that gather in the outbox travel as one batch; events of one type keep their order.

        Raises `EventError` naming the attribute and the value that do not fit, `RefusedError` for an event
        above the broker's size limit or of a type that is not advertised. What the broker refuses later
        raises `RefusedError` with `confirm`, else in the next `flush`; it is counted (`refused`) and logged.

        A lost connection delays events, and neither loses nor repeats any. So does the restart of the broker:
        events that it had not acknowledged are sent again. Without a connection the outbox fills, and then
        this call waits. The end of the client raises its error in calls that wait. A call that is cancelled
        while it waits for room publishes nothing; while it waits for the broker, the event is on its way.
        """
        if values:
            attributes = {**dict(values), **attributes}
        self._driver.check_open()
        if isinstance(type_name, EventType):
            type_name = type_name.name
        publishing = self._driver.publishing
        if confirm or not publishing.put(type_name, attributes):
            await publishing.publish(type_name, attributes, confirm)

    def publish_nowait(
        self, type_name: str | EventType, values: Mapping[str, object] | None = None, /, **attributes: object
    ) -> None:
        """Publish one event without waiting. Raises `OutboxFullError` while the outbox is full, else as
        `publish` without `confirm`. Events leave when the event loop has its turn.
        """
        self._driver.check_open()
        if isinstance(type_name, EventType):
            type_name = type_name.name
        self._driver.publishing.publish_nowait(type_name, {**(values or {}), **attributes})

    async def publish_batch(
        self,
        type_name: str | EventType,
        events: EventBatch | Columns | Sequence[Mapping[str, object]],
        /,
        *,
        confirm: bool = False,
    ) -> None:
        """Publish many events: an `EventBatch`, a pandas DataFrame, mappings, or whatever has
        `__arrow_c_stream__` or `__arrow_c_array__`, such as tables of pyarrow, DataFrames of Polars and
        relations of DuckDB, with a column per attribute.

        Returns and raises as `publish`, for all of them; no event is sent if any does not fit its type, and
        an event above the size limit is refused alone. The outbox takes any batch while it is not full.
        """
        self._driver.check_open()
        if isinstance(type_name, EventType):
            type_name = type_name.name
        event_type = self._endpoint.publishable(type_name)
        if isinstance(events, EventBatch) and events.event_type == event_type:
            batch = EventBatch(event_type, events.events)
        elif isinstance(events, EventBatch):
            batch = EventBatch.from_arrow(event_type, events.record_batch)
        elif is_data_frame(events):
            batch = EventBatch.from_pandas(event_type, events)
        elif hasattr(events, "__arrow_c_stream__") or hasattr(events, "__arrow_c_array__"):
            batch = EventBatch.from_arrow(event_type, events)
        elif isinstance(events, Mapping) or not hasattr(events, "__iter__"):
            what = f"events of {event_type.name}: got {type(events).__name__}"
            raise EventError(f"{what}; expected a table, a DataFrame or a list of mappings")
        else:
            batch = EventBatch.from_pylist(event_type, events)
        await self._driver.publishing.publish_batch(batch, confirm)

    async def flush(self) -> None:
        """Wait until the broker has accepted all events published so far.

        Raises the first refusal since the last flush of events published without `confirm`, and says how many
        events were refused.
        """
        self._driver.check_open()
        await self._driver.publishing.flush()

    @property
    def pending(self) -> int:
        """Published events that the broker has not accepted; after the end of the client, they are lost."""
        return self._endpoint.outbox.pending

    @property
    def refused(self) -> int:
        """Events published without `confirm` that were refused."""
        return self._endpoint.outbox.refused

    # --- subscribing ------------------------------------------------------------------------------

    async def subscribe(
        self,
        event_type: str | EventType,
        filter: str | Filter | object = "",
        /,
        *,
        values: Mapping[str, object] | None = None,
        valid_for: float | None = None,
        max_rate: float | None = None,
        timeout: float | None = None,
        language: str = "covey",
        follow: object = None,
        **variables: object,
    ) -> Subscription:
        """Subscribe to the events of a type that match a filter; returns when the overlay has applied it.

        `filter` is text, a `Filter`, or an expression of `F`; the keyword arguments set its variables. A
        type name is looked up at the broker, unless this client subscribes to the type or advertises it:
        `RefusedError` (NOT_FOUND) if no client has advertised it. An `EventType` works without. Raises
        `FilterSyntaxError`, `FilterError` or `VariableError` before anything is sent, and `NotSettledError`
        after `timeout` seconds: then the subscription is withdrawn, and one of an earlier process waits for
        the next call with its filter.

        With `valid_for` its broker ends it after so many seconds unless it is renewed (`Subscription.renew`),
        also where this client is gone. `ValueError` for less than 0.001 s and more than ten years.

        With `max_rate` each key has at most so many events per second, the newest; what later ones have
        superseded is counted (`Subscription.conflated`), and told to `on_gap` and in `gaps`. `ValueError`
        for a type without a key, `SubscriptionError` for a client with `deliveries()`.

        `language` is that of a text: "covey", "sql" or "eventbridge" (docs/dialects.md).

        With `follow`, an object, variables without a value have that of its field of the same name, and move
        when it is assigned: `follow=self`. Assignments of one turn of the event loop are one update
        (docs/moving.md). `VariableError` where a field is lacking, and from the assignment of a value that
        the variable cannot have.
        """
        valid_for_ns = 0 if valid_for is None else validity_ns(valid_for)
        compiled = await self._compiled(event_type, filter, language)
        if max_rate is not None:
            check_max_rate(max_rate, compiled.event_type)
            if self._driver.reads_deliveries:
                raise SubscriptionError(f"max_rate of client {self.name} with deliveries(): expected none")
        given = {**(values or {}), **variables}
        fields = None if follow is None else FollowedFields(follow, compiled, given)
        if fields is not None:
            given |= fields.values()
        claimed = self._driver.claim(compiled)
        if claimed is not None:
            claimed._set_max_rate(max_rate)
            try:
                if given:
                    await claimed.update(values=given, timeout=timeout)
                if valid_for is not None:
                    await claimed.renew(valid_for, timeout=timeout)
            except BaseException:
                self._driver.leave_unclaimed(claimed)
                raise
            if fields is not None:
                claimed._follow(fields)
            return claimed
        subscription_id, messages = self._core.subscribe(
            compiled,
            given,
            now_ns=time.time_ns(),
            valid_for_ns=valid_for_ns,
            clock_ns=time.monotonic_ns(),
        )
        subscription = Subscription(self._driver, subscription_id, compiled)
        subscription._set_max_rate(max_rate)
        if fields is not None:
            subscription._follow(fields)
        applied = self._driver.settle(timeout, f"the subscription {str(compiled)!r}")
        await self._begin(subscription, messages, applied)
        return subscription

    async def _begin(
        self, subscription: Subscription, messages: Sequence[Message], applied: Awaitable[None]
    ) -> None:
        """Send a new subscription, and withdraw it where the caller does not wait until it is applied."""
        self._driver.subscriptions[subscription.id] = subscription
        self._driver.transmit(messages)
        try:
            await applied
        except BaseException:
            self._driver.give_up(subscription)
            raise

    async def view(
        self,
        event_type: str | EventType,
        filter: str | Filter | object = "",
        /,
        *,
        leave: str | Filter | object | None = None,
        values: Mapping[str, object] | None = None,
        max_keys: int = MAX_KEYS,
        timeout: float | None = None,
        language: str = "covey",
        **variables: object,
    ) -> View:
        """A view of the keys whose last event matches a filter (docs/views.md); returns when the overlay has
        applied it, and what is inside has arrived. With `leave`, a wider filter with all variables of
        `filter`, keys leave once they do not match that any more.

        Arguments and errors are those of `subscribe`. `FilterError` for a `leave` that does not accept all
        that `filter` does, for a type without a key, for calls of
        named operators, and under routing static; reading raises `CapacityError` where more than `max_keys`
        keys are inside, which is 1 at least (`ValueError`). A client has either views or `deliveries()`, and
        a durable one has no views.
        """
        check_max_keys(max_keys)
        self._driver.check_open()
        if self._durable:
            raise SubscriptionError(f"a view of durable client {self.name}: expected one that is not durable")
        compiled = await self._compiled(event_type, filter, language)
        outer = None if leave is None else await self._compiled(event_type, leave, language)
        if self._driver.reads_deliveries:
            raise SubscriptionError(f"a view of client {self.name} with deliveries(): expected it without")
        every = {**(values or {}), **variables}
        enters = None if outer is None else compiled
        subscription_id, messages = self._core.view(outer or compiled, every, enters=enters)
        subscription = ViewSubscription(self._driver, subscription_id, compiled, max_keys)
        self._driver.views[subscription_id] = subscription
        complete = subscription.complete(timeout, f"the view {str(compiled)!r}")
        await self._begin(subscription, messages, complete)
        return View(subscription)

    async def update_many(
        self, updates: Mapping[Subscription, Mapping[str, object]], /, *, timeout: float | None = None
    ) -> None:
        """Give variables of many subscriptions new values, as `Subscription.update` for each; returns when
        all have taken effect. All leave together, in one frame, or in several where they are more than the
        12 KiB of control that a frame has, some hundred updates.

        Each stands by itself. Raises `UpdateError` at the end with the errors of those that have failed, by
        subscription id: values that do not fit, subscriptions that have ended, refusals. `ValueError` before
        anything is sent for what is no subscription of this client, or no mapping; `NotSettledError` after
        `timeout` seconds.
        """
        self._driver.check_open()
        for subscription, values in updates.items():
            if not isinstance(subscription, Subscription) or subscription._owner is not self._driver:
                raise ValueError(f"update of {subscription!r}: expected a subscription of client {self.name}")
            if not isinstance(values, Mapping):
                raise ValueError(f"update of {subscription!r} to {values!r}: expected values by variable")
        failed: dict[int, Exception] = {}
        epochs: dict[int, int] = {}
        for subscription, values in updates.items():
            try:
                subscription.update_nowait(values=values)
                epochs[subscription.id] = subscription._changed
            except CoveyError as error:
                failed[subscription.id] = error
        failed |= await self._driver.settle_each(epochs, timeout, f"one of {len(updates)} updates")
        if failed:
            raise UpdateError(failed, len(updates))

    def subscription(self, subscription_id: int) -> Subscription:
        """The subscription of this id. `SubscriptionError` if this client has none."""
        subscription = self._driver.subscriptions.get(subscription_id)
        if subscription is None:
            raise SubscriptionError(f"subscription {subscription_id}: expected the id of one of {self.name}")
        return subscription

    async def _compiled(
        self, event_type: str | EventType, filter: str | Filter | object, language: str
    ) -> Filter:
        """A filter of an event type: of a name, as this client has it or, where that lacks an attribute, as
        its broker has.
        """
        if isinstance(filter, str):
            filter = translate(filter, language)
        self._driver.check_open()
        if not isinstance(event_type, str):
            check_event_type(event_type)
            return _filter(filter, event_type)
        known = self._core.event_type(event_type)
        if known is not None:
            try:
                return _filter(filter, known)
            except FilterError:
                if known.includes(await self.event_type(event_type)):
                    raise
        known = await self.event_type(event_type)
        self._driver.check_open()
        return _filter(filter, known)

    def operator_accounts(self) -> dict[str, dict[str, int]]:
        """What named operators were asked in this process, by operator: calls of their functions, events
        asked about and those of them that were true, answers reused (of brokers, too), events that stayed
        undecided and were dropped, failures, and the time in nanoseconds.
        """
        return {name: asdict(account) for name, account in self._core.evaluator.accounts.items()}

    def deliveries(self) -> Deliveries:
        """Queued and future events of all subscriptions in one stream, which replaces their own iterators.

        For clients with many subscriptions: its cost does not grow with them. Each item has the attributes
        `batch`, `rows` and `ids`: the event in row `rows[i]` of `batch` is for the subscription whose `id` is
        `ids[i]`.
        """
        self._driver.check_open()
        return self._driver.deliveries()

    async def event_type(self, name: str) -> EventType:
        """The event type of this name at the broker. `RefusedError` (NOT_FOUND) if the broker has none."""
        self._driver.check_open()
        return await event_type_at(self.address, name, self._credentials)

    async def inspect(self, *, listed: int | None = None) -> tuple[str, dict[str, Any]]:
        """The broker's state: as text for people, and as plain values. `listed` as for `inspect_broker`."""
        self._driver.check_open()
        return await inspect_as(self.address, self._credentials, listed)

    async def settled(self, *, timeout: float | None = None) -> None:
        """Wait until everything that this client has sent so far has taken effect.

        Raises `NotSettledError` after `timeout` seconds: it still takes effect, later.
        """
        self._driver.check_open()
        await self._driver.settle(timeout, f"what client {self.name} has sent")


class SyncClient(Blocking[Client]):
    """A `Client` for scripts, notebooks and threads: the same names, arguments and errors, without `await`,
    and iterators in place of asynchronous ones. Returned by `Client.sync`, to be used as a context manager.

    It has one thread with an event loop, from `open` to `close`, on which callbacks such as `on_gap` run:
    these must not call it. Any other thread may. Calls within a running event loop, which they would block,
    raise `RuntimeError`, save in a notebook. When one thread closes it, iterators of others end, and their
    other calls raise `ClosedError`. Ctrl-C interrupts a call or an iteration, and leaves the client open.
    """

    def __init__(self, client: Client) -> None:
        super().__init__(client, LoopThread(f"client {client.name}"))
        self._closing = RLock()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Connect. Raises `ConnectError` as `Client` does."""
        check_may_block(self._thread)
        opened_before = self._thread.started
        if not opened_before:
            self._thread.start()
        try:
            self._run(self._wrapped.open())
        except BaseException:
            if not opened_before:
                self._thread.stop(_READERS_END_S)
            raise

    def close(self, *, grace: float = 5.0, end: bool = False) -> None:
        """As `Client.close`; returns when the thread has ended."""
        check_may_block(self._thread)
        with self._closing:
            try:
                self._run(self._wrapped.close(grace=grace, end=end))
            finally:
                self._thread.stop(_READERS_END_S)

    address: Plain[str] = Plain()
    name: Plain[str] = Plain()
    ticket: Plain[str] = Plain()
    connected: Plain[bool] = Plain()
    error: Plain[Exception | None] = Plain()
    publisher: Plain[str] = Plain()
    dropped: Plain[int] = Plain()
    gaps: Plain[list[Gap]] = Plain()
    broker: Plain[str] = Plain()
    pending: Plain[int] = Plain()
    refused: Plain[int] = Plain()

    advertise = blocking(Client.advertise)
    listeners = blocking_as(SyncListeners, Client.listeners)
    widen = blocking(Client.widen)
    unadvertise = blocking(Client.unadvertise)
    publish = blocking(Client.publish)
    publish_nowait = blocking(on_loop(Client.publish_nowait))
    publish_batch = blocking(Client.publish_batch)
    flush = blocking(Client.flush)
    subscribe = blocking_as(SyncSubscription, Client.subscribe)
    view = blocking_as(SyncView, Client.view)
    subscription = blocking_as(SyncSubscription, on_loop(Client.subscription))
    operator_accounts = blocking(on_loop(Client.operator_accounts))
    deliveries = iterating(Client.deliveries)
    event_type = blocking(Client.event_type)
    inspect = blocking(Client.inspect)
    settled = blocking(Client.settled)

    def update_many(
        self, updates: Mapping[SyncSubscription, Mapping[str, object]], /, *, timeout: float | None = None
    ) -> None:
        """As `Client.update_many`."""
        wrapped = {
            each._wrapped if isinstance(each, SyncSubscription) else each: values
            for each, values in updates.items()
        }
        self._run(self._wrapped.update_many(wrapped, timeout=timeout))


def _filter(filter: object, event_type: EventType) -> Filter:
    if isinstance(filter, str):
        return parse(filter, event_type)
    if isinstance(filter, Filter):
        return filter.over(event_type)
    return filter_of(event_type, filter)  # type: ignore[arg-type]


def run_timed(operator: NamedOperator, key: int, events: int, compute: Compute) -> Outcome:
    """Call a named operator of this client's own filters: at once, without limits, with a clock."""
    start_ns = time.perf_counter_ns()
    outcome = run_at_once(operator, key, events, compute)
    return replace(outcome, took_ns=time.perf_counter_ns() - start_ns)
