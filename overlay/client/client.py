"""The client: publish events, subscribe by content, and move subscriptions while events flow.

`Client` must be used on one event loop; `SyncClient` needs none.
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
"""For `SyncClient.close`: how long calls of other threads may still take."""
_SILENT_S = 1.0
"""A client that has waited so long for its first connection logs why."""
Columns: TypeAlias = Any
"""Has `__arrow_c_stream__` or `__arrow_c_array__`, or is a DataFrame, which lacks both before pandas 2.2."""
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

    `name` is unique among connected clients (None: random, after the owner in the token or certificate).
    `slow_consumer` is the broker's policy for this client's full queue: "block" (publishers), "drop_oldest",
    "drop_newest" or "disconnect". `on_gap(gap)` is called for dropped events, `on_notice(notice)` for a named
    operator that does not answer, `on_state(connected, reason)` when the connection opens or breaks.
    `window_bytes` bounds events that wait for readers in this process; `outbox_events` and `outbox_bytes`
    bound published events not yet accepted, separately for each type that the broker holds. `routing`
    "static" sends updates as re-subscriptions in the order `resubscribe` ("subscribe-first",
    "unsubscribe-first"), the paper's baseline. `connect_timeout` (s) bounds the wait for the first
    connection; a lost one is reopened without a bound. A call that waits 3 s for other brokers logs which
    (`covey.client`). `session` is a protocol state machine to use: with that of a closed client, this one has
    its subscriptions (`subscription`), even at another broker.

    `tls` is the path of the authority's certificates, or a `Tls` with this client's certificate and key too;
    changed files are read again. `token` is a bearer token or a function, maybe asynchronous, that returns
    one before each connection, so a session outlives its token; if it raises, the client retries. No `repr`
    shows either.

    With `durable` the broker keeps the subscriptions under this name while the client is away, across its own
    restarts, and stores events of durable types for it (docs/durability.md). In a new process `subscribe`
    with the same filter returns the earlier subscription with its waiting events. `close(end=True)` ends the
    session, `close()` keeps it. The `ticket` of the earlier process moves the session to this broker first
    (docs/moving.md); where the overlay has keys for tickets, resuming requires it.

    Publishing, deliveries and updates have spans if the application has set OpenTelemetry's tracer provider
    before `open`, or passes `tracer_provider` (docs/operations.md).

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
        """`ConnectError` as for the class."""
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
        """Until connected or failed; logs a slow connection."""
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
        """Disconnect once published events are accepted or `grace` seconds have passed; iterators end. Other
        events are lost, counted in `pending` and logged. A durable session stays unless `end` is set."""
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
        """The durable session's, once connected; changes when that moves. Its holder may take it over."""
        return self._endpoint.ticket

    @property
    def connected(self) -> bool:
        return self._driver.connected

    @property
    def error(self) -> Exception | None:
        """What ended this client; None while it is open, connected or not."""
        return self._driver.error

    @property
    def publisher(self) -> str:
        """Identifies this client's events together with their sequence numbers; new for each `Client`."""
        return self._core.publisher

    @property
    def dropped(self) -> int:
        """Events that the broker dropped by `slow_consumer` or while the client was disconnected."""
        return self._endpoint.link.missed

    @property
    def gaps(self) -> list[Gap]:
        """The last gaps, at most 100. Their times are of entry into the overlay, in ns since the epoch."""
        return [*self._endpoint.gaps]

    @property
    def broker(self) -> str:
        """The name of the current broker, or of the last one."""
        return self._driver.broker

    # --- publishing -------------------------------------------------------------------------------

    async def advertise(
        self, event_type: EventType, filter: str | Filter | object = "", /, *, timeout: float | None = None
    ) -> None:
        """Announce events of this type; returns when the overlay has applied it.

        Events outside `filter`, which has no variables, are refused, and only interest in matching events
        reaches this client's broker. Another filter replaces the first, more attributes widen the type
        (`widen`). `RefusedError` (ALREADY_EXISTS) if the overlay has an attribute with another kind,
        `EventTypeError` if this client has; the earlier advertisement then stands.
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
        """Whether any subscription matches this client's advertisement of a type, kept up to date.
        `RefusedError` (FAILED_PRECONDITION) if it does not advertise the type."""
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
        """Add attributes to a type that this client uses, while events flow; returns when the overlay has
        applied it.

        Declared attributes stay, identified by name. Others need no change: clients get the attributes that
        they declared, and missing ones are None. `RefusedError`: ALREADY_EXISTS if the overlay has an
        attribute with another kind, FAILED_PRECONDITION if this client neither publishes nor subscribes to
        the type. `EventTypeError` if this client has declared an attribute with another kind.
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
        """Withdraw an advertisement behind earlier events. `EventTypeError` if there is none."""
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
        """Publish one event; returns when it is in the outbox, waiting while that is full.

        Of an `EventType` only the name counts. With `confirm`, returns when the broker has accepted the
        event. `values` is for attributes whose names clash with a parameter. Events in the outbox travel as
        one batch; events of one type keep their order.

        `EventError` names the attribute and value that do not fit; `RefusedError` for an event above the
        broker's size limit or of a type not advertised. A later refusal raises `RefusedError` here with
        `confirm`, else in the next `flush`, and is counted (`refused`) and logged.

        A lost connection or a restart of the broker delays events, and neither loses nor repeats any. The end
        of the client raises its error in waiting calls. A call cancelled while it waits for room publishes
        nothing; cancelled while it waits for the broker, it has published.
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
        """As `publish` without `confirm`, but `OutboxFullError` instead of waiting. Events leave in the
        loop's next turn."""
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
        """Publish many events: an `EventBatch`, a pandas DataFrame, mappings, or any object with
        `__arrow_c_stream__` or `__arrow_c_array__` and a column per attribute (pyarrow, Polars, DuckDB).

        Returns and raises as `publish`. If any event does not fit its type, none is sent; an event above the
        size limit is refused alone. An outbox that is not full takes any batch.
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
        """Wait until the broker has accepted all events so far. Raises the first refusal since the last flush
        of events without `confirm`, with the number of refusals."""
        self._driver.check_open()
        await self._driver.publishing.flush()

    @property
    def pending(self) -> int:
        """Published events that the broker has not accepted; lost once the client has ended."""
        return self._endpoint.outbox.pending

    @property
    def refused(self) -> int:
        """Refused events that were published without `confirm`."""
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

        `filter` is text, a `Filter` or an expression of `F`; keyword arguments set its variables. The broker
        resolves a type name that this client does not use yet: `RefusedError` (NOT_FOUND) if nobody has
        advertised it. An `EventType` needs no advertisement. `FilterSyntaxError`, `FilterError` and
        `VariableError` come before anything is sent. `NotSettledError` after `timeout` seconds: a new
        subscription is withdrawn, one of an earlier process can be claimed again.

        `valid_for` is seconds until the broker ends the subscription, even without this client, unless
        renewed (`Subscription.renew`). `ValueError` outside of 0.001 s to ten years.

        `max_rate` bounds the events per second of each key: the newest are delivered, superseded ones counted
        (`Subscription.conflated`) and reported (`on_gap`, `gaps`). `ValueError` for a type without a key,
        `SubscriptionError` with `deliveries()`.

        `language` is that of a text: "covey", "sql" or "eventbridge" (docs/dialects.md).

        With `follow`, variables without a value take that of the object's field of the same name and follow
        its assignments: `follow=self`. Assignments in one turn of the event loop are one update
        (docs/moving.md). `VariableError` if a field is missing, and when a field is assigned a value that
        does not fit.
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
        """Send a new subscription; withdraw it if the wait fails."""
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
        applied it and its content has arrived. `leave` is a wider filter with all variables of `filter`: keys
        leave once they no longer match it.

        Arguments and errors as of `subscribe`. `FilterError` if `leave` does not cover `filter`, for a type
        without a key, for named operators and under static routing. Reading raises `CapacityError` beyond
        `max_keys`, which is at least 1 (`ValueError`). A client has either views or `deliveries()`; a durable
        client has no views.
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
        """`Subscription.update` for many; returns when all have taken effect. They leave together, in one
        frame per 12 KiB of control, some hundred updates.

        Each succeeds or fails alone: `UpdateError` at the end has the errors by subscription id. `ValueError`
        before anything is sent for a foreign subscription or values that are no mapping; `NotSettledError`
        after `timeout` seconds.
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
        """`SubscriptionError` if this client has none of this id."""
        subscription = self._driver.subscriptions.get(subscription_id)
        if subscription is None:
            raise SubscriptionError(f"subscription {subscription_id}: expected the id of one of {self.name}")
        return subscription

    async def _compiled(
        self, event_type: str | EventType, filter: str | Filter | object, language: str
    ) -> Filter:
        """A type name resolves to this client's type, or to its broker's if that lacks an attribute."""
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
        """Counts by named operator in this process: calls, events asked about and true among them, answers
        reused (also of brokers), undecided events that were dropped, failures, and time in ns."""
        return {name: asdict(account) for name, account in self._core.evaluator.accounts.items()}

    def deliveries(self) -> Deliveries:
        """All subscriptions' queued and future events in one stream, which replaces their iterators. Its cost
        does not grow with their number.

        An item has `batch`, `rows` and `ids`: row `rows[i]` of `batch` is for the subscription with `id`
        `ids[i]`.
        """
        self._driver.check_open()
        return self._driver.deliveries()

    async def event_type(self, name: str) -> EventType:
        """The broker's event type of this name. `RefusedError` (NOT_FOUND) if it has none."""
        self._driver.check_open()
        return await event_type_at(self.address, name, self._credentials)

    async def inspect(self, *, listed: int | None = None) -> tuple[str, dict[str, Any]]:
        """The broker's state as text and as plain values. `listed` as for `inspect_broker`."""
        self._driver.check_open()
        return await inspect_as(self.address, self._credentials, listed)

    async def settled(self, *, timeout: float | None = None) -> None:
        """Wait until everything sent so far has taken effect, or `NotSettledError` after `timeout`
        seconds."""
        self._driver.check_open()
        await self._driver.settle(timeout, f"what client {self.name} has sent")


class SyncClient(Blocking[Client]):
    """A `Client` for scripts, notebooks and threads: the same names, arguments and errors, without `await`.
    Returned by `Client.sync`, a context manager.

    Callbacks such as `on_gap` run on its own thread and must not call it; any other thread may. Calls within
    a running event loop raise `RuntimeError`, except in a notebook. When a thread closes it, iterators of
    others end, and other calls raise `ClosedError`. Ctrl-C leaves it open.
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
        """`ConnectError` as for `Client`."""
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
    """Call a named operator at once, without limits, and time it."""
    start_ns = time.perf_counter_ns()
    outcome = run_at_once(operator, key, events, compute)
    return replace(outcome, took_ns=time.perf_counter_ns() - start_ns)
