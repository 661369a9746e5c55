"""Connects one client to its broker: runs its `ClientEndpoint`, feeds readers, wakes waiting calls.

Invariant: on one event loop, every message reaches the session in order, and the end of the client reaches
every reader, publisher and waiter. A permanent status ends the client; after others it reconnects.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from covey.matcher import Filter
from covey.matcher.errors import SubscriptionError
from covey.overlay.client.errors import ClosedError, ConnectError, NotSettledError
from covey.overlay.client.event import Claim, Part
from covey.overlay.client.followed_fields import FollowedFields
from covey.overlay.client.inbox import Deliveries, Listeners, Release, Waiters
from covey.overlay.client.publishing import Publishing
from covey.overlay.client.reports import ClientTracing, Reports
from covey.overlay.client.subscription import Subscription
from covey.overlay.client.unary import inspect_as
from covey.overlay.client.view import ViewSubscription
from covey.overlay.core.client.actions import Matches, Settled
from covey.overlay.core.endpoint.client_endpoint import ClientEndpoint
from covey.overlay.core.endpoint.limits import RefusedError, SlowConsumer
from covey.overlay.core.link.link import Frame, LinkError
from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import (
    Acknowledge,
    Answered,
    Deliver,
    Expired,
    Gap,
    ListenersReport,
    Message,
    Notice,
    Refuse,
)
from covey.overlay.transport.address import CallError
from covey.overlay.transport.calls import RpcCall
from covey.overlay.transport.channel import Channel, error_of
from covey.overlay.transport.codec import WireMessage, decode_message, event_bytes
from covey.overlay.transport.credentials import Credentials
from covey.overlay.transport.event_loop import Backoff, LoopTimer
from covey.overlay.transport.packets import CONNECT, Greeting, LinkEnd, Role, decode_packet, encode_greeting
from covey.overlay.transport.wire_values import MalformedPacketError, MessageError

log = logging.getLogger("covey.client")

_ANSWER_WITHIN_S = 10.0
_GOODBYE_S = 3.0
_CLOSED = "closed by the client"
_SILENT_S = 3.0
"""A call that waits so long logs what it waits for."""
_REFUSED_TOKENS = 3
"""After so many refusals in a row a client that was connected ends, since new tokens do not help."""
_PASSING = {"OK", "UNAVAILABLE", "CANCELLED", "INTERNAL", "UNKNOWN", "DEADLINE_EXCEEDED"}
"""Statuses after which the client retries; others end it."""
_UNSETTLED = "has not taken effect everywhere"


def _nothing() -> None:
    """`wake` without a connection."""


class SessionDriver:
    def __init__(
        self,
        address: str,
        name: str,
        endpoint: ClientEndpoint,
        slow_consumer: SlowConsumer,
        reports: Reports,
        credentials: Credentials,
        *,
        durable: bool = False,
    ) -> None:
        self.address = address
        self.credentials = credentials
        self.name = name
        self.endpoint = endpoint
        self.core = endpoint.session
        self.reports = reports
        self.broker = ""
        """The current or last one."""
        self.why = ""
        """Why the last connection ended or failed."""
        self.wake: Callable[[], None] = _nothing
        """Requests the next frame."""
        self.publishing = Publishing(name, endpoint, self.wake)
        self.waiters = Waiters()
        self.subscriptions = {
            subscription_id: Subscription(self, subscription_id, filter)
            for subscription_id, filter in self.core.subscriptions.items()
        }
        self.views: dict[int, ViewSubscription] = {}
        self.assigned: set[FollowedFields] = set()
        self.unclaimed: dict[int, Subscription] = {}
        """Subscriptions of an earlier process that this one has not claimed."""
        self.listeners: dict[str, Listeners] = {}
        self.opened = asyncio.Event()
        """Set once the client is connected or has failed."""
        self.error: Exception | None = None
        self.tracing: ClientTracing | None = None
        self._slow_consumer = slow_consumer
        self._durable = durable
        self._deliveries: Deliveries | None = None
        self._delivered = 0
        self._call: RpcCall | None = None
        self._timer = LoopTimer()
        self._closing = asyncio.Event()
        self._refused_tokens = _REFUSED_TOKENS
        self._task: asyncio.Task[None] | None = None
        self._calls: dict[Awaitable[object], str] = {}
        """What calls wait for, oldest first, and the beginning of the sentence about it."""
        self._patience: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # --- opening and closing ----------------------------------------------------------------------

    def rename(self, name: str) -> None:
        self.name = self.reports.name = self.publishing.name = name

    def set_tracing(self, tracing: ClientTracing | None) -> None:
        """Before `start`."""
        self.tracing = self.publishing.tracing = tracing
        self.endpoint.outbox.begin_trace = None if tracing is None else tracing.begin_trace

    def start(self) -> None:
        if self._task is not None or self.error is not None:
            raise ClosedError(f"client {self.name} was opened before: create a new one")
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._run(), name=f"covey client {self.name}")
        self._task.add_done_callback(self._cancelled)

    def _cancelled(self, task: asyncio.Task[None]) -> None:
        """If all tasks of the loop were cancelled, waiting calls must end too."""
        if task.cancelled() and self._task is not None:
            error = ClosedError(f"client {self.name}: the task of its connection was cancelled")
            self._end(error, error)

    async def close(self, grace_s: float) -> None:
        if self._task is not None:
            for subscription in self.subscriptions.values():
                subscription._end_following()
        task, self._task = self._task, None
        if task is None:
            return
        try:
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(grace_s):
                        await self.publishing.drained()
                        await self._drained()
            finally:  # also where this is cancelled: nobody else could end the task
                self._say_goodbye(task)
            await asyncio.wait({task})
        finally:
            self._end(ClosedError(f"client {self.name} is closed"), None)

    def _say_goodbye(self, task: asyncio.Task[None]) -> None:
        """Ends the session; cancels the connection's task after `_GOODBYE_S`."""
        self._closing.set()
        if self._call is not None:
            self._call.close("OK", _CLOSED)
        late = asyncio.get_running_loop().call_later(_GOODBYE_S, task.cancel)
        task.add_done_callback(lambda _: late.cancel())

    async def _drained(self) -> None:
        """Until the broker has all frames and our acknowledgement, or the connection breaks."""
        while self.connected and not self.endpoint.link.idle:
            self.endpoint.link.ask()
            self.wake()
            await asyncio.sleep(0.005)
        if self.connected:
            self.endpoint.link.acknowledge()
            self.wake()
            await asyncio.sleep(0)

    def check_open(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)  # or it would grow with each call
        if self._task is None:
            unopened = "not open: use it within `async with`, or `with` where it is synchronous"
            state = unopened if self._loop is None else "closing"
            raise ClosedError(f"client {self.name} is {state}")
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return
        if loop is not self._loop:
            raise ClosedError(
                f"client {self.name} was called on another event loop: expected the one that it was opened on"
            )

    # --- its connection ---------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        return self._call is not None

    async def _run(self) -> None:
        backoff = Backoff()
        try:
            while not self._closing.is_set():
                error = await self._attempt(backoff)
                if self._closing.is_set():
                    return
                if error is not None:
                    self._end(error, error)
                    return
                try:
                    await asyncio.wait_for(self._closing.wait(), backoff.pause_s())
                except TimeoutError:
                    continue
        except Exception as error:
            failed = ConnectError(f"the client's connection failed: {error!r}", "INTERNAL")
            self._end(failed, failed)
            raise

    async def _attempt(self, backoff: Backoff) -> ConnectError | None:
        """Returns the error if a retry cannot help."""
        opened = False
        error = None
        try:
            async with Channel(self.address, credentials=self.credentials) as channel:
                call = channel.call(CONNECT)
                greeting = await self._greet(call)
                opened = True
                self._refused_tokens = 0
                backoff.connected()
                await self._exchange(call, greeting)
        except CallError as failure:
            self.why = str(failure)
            if failure.status not in _PASSING and not self._renews(failure.status):
                error = ConnectError(self.why, failure.status)
        except (LinkError, MalformedPacketError) as failure:
            self.why = str(failure)
        except TimeoutError:
            self.why = f"no answer from {self.address} within {_ANSWER_WITHIN_S:g} s"
        finally:
            self._call = None
            self.wake = self.publishing.wake = _nothing
            self.endpoint.lost()
        if opened and self._task is not None:
            self.reports.state(False, self.why)
        return error

    def _renews(self, status: str) -> bool:
        """Whether the token has expired and may be replaced."""
        self._refused_tokens += 1
        renewable = status == "UNAUTHENTICATED" and self.credentials.renews
        return renewable and self._refused_tokens <= _REFUSED_TOKENS

    async def _greet(self, call: RpcCall) -> Greeting:
        hello = Greeting(
            Role.CLIENT,
            self.name,
            self.endpoint.hello(),
            slow_consumer=self._slow_consumer,
            durable=self._durable,
        )
        call.send(encode_greeting(hello))
        data = await asyncio.wait_for(call.read(), _ANSWER_WITHIN_S)
        if data is None:
            raise error_of(call, self.address)
        greeting = decode_packet(data)
        if not isinstance(greeting, Greeting) or greeting.role is not Role.BROKER:
            raise MalformedPacketError(f"{self.address} did not answer as a broker")
        return greeting

    async def _exchange(self, call: RpcCall, greeting: Greeting) -> None:
        self.broker = greeting.id
        resumed = self.endpoint.open(greeting.hello, greeting.limits, time.monotonic_ns())
        self._call = call
        self.wake = self.publishing.wake = call.wake
        self._expire_missed()
        if not resumed:
            for view in self.views.values():
                view.begun_anew()
        self.publishing.advance()
        if not self.endpoint.adopting:
            self.opened.set()
        self.reports.state(True, "resumed" if resumed else "afresh")
        if self._closing.is_set():  # by who gave up while the broker answered: its session ends now
            call.close("OK", _CLOSED)
        await call.exchange(LinkEnd(self.receive, self.next_frame, schemas=True), await_end=True)
        raise error_of(call, self.address)

    # --- what the call calls ----------------------------------------------------------------------

    def receive(self, frames: list[Frame[WireMessage]], now_ns: int) -> int:
        endpoint = self.endpoint
        for frame in frames:
            for wire in endpoint.receive(frame, now_ns):
                if isinstance(wire, Acknowledge):
                    self._handle(wire)
                    continue
                try:
                    message = decode_message(wire, self.core.event_type)
                except MessageError as error:
                    # Events may come for what was cancelled meanwhile.
                    if error.refuse.status != "NOT_FOUND":
                        log.warning("client %s cannot read a message of its broker: %s", self.name, error)
                    endpoint.link.consume(event_bytes(wire))
                    continue
                if isinstance(message, Deliver):
                    self._deliver(message)
                else:
                    self._handle(message)
        endpoint.received()
        self.publishing.advance()
        due_ns = endpoint.next_timer()
        if due_ns is not None and due_ns < self._timer.due_ns:
            self._timer.arm(due_ns, self._on_timer)
        if endpoint.ready:
            self.wake()
        return len(frames)

    def next_frame(self) -> Frame[Message] | None:
        now_ns = time.monotonic_ns()
        frame = self.endpoint.next_frame(now_ns)
        if self.endpoint.outbox.finished:
            self.publishing.advance()
        due_ns = self.endpoint.next_timer()
        if due_ns is not None and due_ns < self._timer.due_ns:
            self._timer.arm(due_ns, self._on_timer)
        if self.endpoint.more:
            self.wake()
        return frame

    def _on_timer(self, now_ns: int) -> None:
        self.endpoint.handle_timer(now_ns)
        self._timer.arm(self.endpoint.next_timer(), self._on_timer)
        if self.endpoint.ready:
            self.wake()

    # --- to the broker ----------------------------------------------------------------------------

    def transmit(self, messages: Iterable[Message]) -> None:
        self.endpoint.transmit(messages)
        self.wake()

    def unadvertise(self, type_name: str) -> None:
        self.endpoint.unadvertise(type_name)
        self.end_listeners(type_name, None)
        self.wake()

    def unsubscribe(self, subscription: Subscription) -> None:
        self.check_open()
        messages = self.core.unsubscribe(subscription.id)
        self._forget(subscription.id)
        subscription._discard()
        self.transmit(messages)

    def _forget(self, subscription_id: int) -> Subscription | None:
        """None if it has ended before."""
        self.views.pop(subscription_id, None)
        self.unclaimed.pop(subscription_id, None)
        return self.subscriptions.pop(subscription_id, None)

    def give_up(self, subscription: Subscription) -> None:
        """Cancel a subscription whose call has failed, unless it or the client has ended."""
        if subscription.id in self.subscriptions and self.error is None and self._task is not None:
            self.unsubscribe(subscription)

    def end_listeners(self, type_name: str, error: RefusedError | None) -> None:
        listeners = self.listeners.pop(type_name, None)
        if listeners is not None:
            listeners._end(error)

    # --- waiting ----------------------------------------------------------------------------------

    def settle(self, timeout: float | None, what: str) -> Coroutine[Any, Any, None]:
        """Wait until everything sent so far has taken effect. `NotSettledError` after `timeout` seconds."""
        return self.settled(self.waiters, self.core.epoch, timeout, f"{what} {_UNSETTLED}")

    async def settled(self, waiters: Waiters, epoch: int, timeout: float | None, what: str) -> None:
        """As `settle`, for one epoch; `what` begins the error's sentence."""
        future = waiters.wait(epoch)
        try:
            await self._within(timeout, what, future)
        except BaseException:
            waiters.leave(epoch, future)
            raise

    async def settle_each(
        self, epochs: Mapping[int, int], timeout: float | None, what: str
    ) -> dict[int, Exception]:
        """Wait for epochs by subscription; returns the errors of refused ones. `NotSettledError` after
        `timeout` seconds."""
        futures = {number: self.waiters.wait(epoch) for number, epoch in epochs.items()}
        try:
            if futures:
                await self._within(timeout, f"{what} {_UNSETTLED}", asyncio.wait(futures.values()))
        finally:
            errors = {number: future.exception() for number, future in futures.items() if future.done()}
            for number, future in futures.items():
                self.waiters.leave(epochs[number], future)
        if self.error is not None:
            raise self.error.with_traceback(None)
        return {number: error for number, error in errors.items() if isinstance(error, Exception)}

    async def _within(self, timeout: float | None, what: str, waiting: Awaitable[object]) -> None:
        self._calls[waiting] = what
        if self._patience is None:
            self._be_patient()
        try:
            if timeout is None:
                await waiting
            else:
                async with asyncio.timeout(timeout):
                    await waiting
        except TimeoutError:
            raise NotSettledError(f"{what} within {timeout:g} s: {await self._missing()}") from None
        finally:
            del self._calls[waiting]

    def _be_patient(self) -> None:
        loop, first = asyncio.get_running_loop(), next(iter(self._calls))
        self._patience = loop.call_later(_SILENT_S, self._late, first)

    def _late(self, first: Awaitable[object]) -> None:
        """Log what a call still waits for, at a bounded rate."""
        self._patience = None
        if first in self._calls and self.reports.is_due("what calls wait for"):
            asking = self._log_missing(self._calls[first])
            self._asking = asyncio.get_running_loop().create_task(asking)
        if self._calls:
            self._be_patient()

    async def _log_missing(self, what: str) -> None:
        missing = await self._missing()
        log.warning("client %s: %s within %g s: %s; still waiting", self.name, what, _SILENT_S, missing)

    async def _missing(self) -> str:
        broker = self.broker
        if not self.connected:
            why = f" ({self.why})" if self.why else ""
            return f"broker {broker or self.address} is out of reach{why}"
        try:
            async with asyncio.timeout(1.0):
                _, state = await inspect_as(self.address, self.credentials, 0)
        except (TimeoutError, RefusedError, ConnectError):
            return f"broker {broker} has not answered"
        away = [
            name.removeprefix("broker/")
            for name, interface in state["interfaces"].items()
            if name.startswith("broker/") and not interface["connected"]
        ]
        if away:
            return f"broker {', '.join(away)}, next to {broker}, is out of reach"
        return f"a broker upstream of {broker} has not answered"

    # --- to the readers ---------------------------------------------------------------------------

    @property
    def reads_deliveries(self) -> bool:
        return self._deliveries is not None

    def report_conflated(self, gap: Gap) -> None:
        self.endpoint.gaps.append(gap)
        if self.reports.on_gap is not None:
            self.reports.gap(gap)

    def deliveries(self) -> Deliveries:
        """Moves events that wait in subscriptions to the common stream."""
        if any(each.is_paced for each in self.subscriptions.values()):
            raise SubscriptionError(f"deliveries() of client {self.name} with max_rate: expected it without")
        if self.views:
            raise SubscriptionError(f"deliveries() of client {self.name} with views: expected it without")
        if self._deliveries is None:
            self._deliveries = Deliveries(self._hand_out, self.core.forget_expired)
            waiting = [(part, s.id) for s in self.subscriptions.values() for part in s._inbox.drain()]
            for part, subscription_id in sorted(waiting, key=lambda each: each[0].claim.number):
                self._deliveries.inbox.put((part.matches(subscription_id), part.claim.done))
        return self._deliveries

    def _hand_out(self, matches: Matches) -> Matches:
        for fields in [*self.assigned]:
            fields.flush()
        strict = self.core.strict(matches)
        self._count_spurious(strict)
        if self.core.has_notices:
            self._report_own_notices()
        return strict

    def _count_spurious(self, matches: Matches) -> None:
        for subscription_id, count in matches.spurious.items():
            if subscription_id in self.subscriptions:
                self.subscriptions[subscription_id].spurious += count

    def _deliver(self, message: Deliver) -> None:
        release: Release = partial(self._release, size_of(message), self.endpoint.resets)
        if self.tracing is not None and message.batch.contexts:
            batch, release = self.tracing.received(message.batch, release)
            message = replace(message, batch=batch)
        if self._deliveries is not None:
            matches = self.core.matches(message)
            if matches is not None and len(matches.rows):
                self._deliveries.inbox.put((matches, release))
            else:
                if matches is not None:
                    self._count_spurious(matches)
                release()
        else:
            shares = self.core.shares(message)
            self._delivered += 1
            claim = Claim(self._delivered, len(shares), release)
            for share in shares:
                subscription = self.subscriptions.get(share.subscription_id)
                if subscription is not None:
                    subscription.spurious += share.spurious
                if subscription is not None and share.batch.count:
                    subscription._put(Part(share, self.core.epoch, claim))
                else:
                    claim.done()
        if self.core.has_notices:
            self._report_own_notices()

    def _release(self, size: int, resets: int) -> None:
        """Return credit, unless the link was reset since: then the broker has a whole new window."""
        if resets == self.endpoint.resets:
            self.endpoint.link.consume(size)
            if self.endpoint.link.ready:
                self.wake()

    def _refuse(self, refused: Refuse) -> None:
        if refused.count:
            return  # events: the endpoint has seen to them
        error = RefusedError(refused.status, refused.reason)
        self.waiters.fail(refused.epoch, error)
        view = self.views.get(refused.subscription_id)
        if view is not None:
            # The refused message may stand for earlier and later updates, and the others lack its values.
            view.waiters.fail_all(error)
        if refused.type_name not in self.core.advertised:
            self.end_listeners(refused.type_name, error)
        if not self.core.has_subscription(refused.subscription_id):
            subscription = self._forget(refused.subscription_id)
            if subscription is not None:
                subscription._discard()
                subscription._end(error)
        log.info("client %s was refused: %s", self.name, refused.reason)

    def _end(self, error: Exception, shown: Exception | None) -> None:
        """Waiters get `error`; iterators raise `shown`, or end if None."""
        self.error = error
        for each in (self._patience, self._asking):
            if each is not None:
                each.cancel()
        self.waiters.fail_all(error)
        self.publishing.fail(error)
        for subscription in self.subscriptions.values():
            subscription._end(shown)
        if self._deliveries is not None:
            self._deliveries.inbox.end(shown)
        for listeners in self.listeners.values():
            listeners._end(shown)
        self.opened.set()

    # --- from the broker --------------------------------------------------------------------------

    def _handle(self, message: Message) -> None:
        adopting = self.endpoint.adopting
        actions = self.endpoint.handle(message, time.monotonic_ns())
        if adopting and not self.endpoint.adopting:
            self._adopted()
            self._expire_missed()
        for action in actions:
            if isinstance(action, Settled):
                self.waiters.settle(action.epoch)
            elif isinstance(action, Answered):
                for view in list(self.views.values()):
                    if view.event_type.name == action.type_name:
                        view.answered(action.epoch)
            elif isinstance(action, Refuse):
                self._refuse(action)
            elif isinstance(action, ListenersReport):
                if action.type_name in self.listeners:
                    self.listeners[action.type_name]._set(action.present)
            elif isinstance(action, Gap):
                self.reports.gap(action)
            elif isinstance(action, Notice):
                self._report_notice(action)
            elif isinstance(action, Expired):
                self._expire(action.subscription_id)

    def _expire(self, subscription_id: int) -> None:
        subscription = self._forget(subscription_id)
        if subscription is not None:
            subscription._expire()
            if self._deliveries is not None:
                self._deliveries._expire(subscription_id, subscription.event_type)
            else:
                self.core.forget_expired(subscription_id)
            log.info("client %s: subscription %d has ended with its period", self.name, subscription_id)

    def _expire_missed(self) -> None:
        """Expire subscriptions that ended while the client was disconnected."""
        expired, self.endpoint.expired = self.endpoint.expired, []
        for subscription_id in expired:
            self._expire(subscription_id)

    def _adopted(self) -> None:
        """The broker has sent the durable session's subscriptions."""
        for subscription_id, filter in self.core.subscriptions.items():
            subscription = Subscription(self, subscription_id, filter)
            self.subscriptions[subscription_id] = self.unclaimed[subscription_id] = subscription
        self.wake()
        self.opened.set()

    def claim(self, filter: Filter) -> Subscription | None:
        """Take the unclaimed subscription with this filter, if any."""
        for subscription_id, subscription in self.unclaimed.items():
            known = subscription.filter
            if known.event_type.name == filter.event_type.name and str(known) == str(filter):
                del self.unclaimed[subscription_id]
                return subscription
        return None

    def leave_unclaimed(self, subscription: Subscription) -> None:
        """Let a claimed subscription be claimed again, since its values could not be set."""
        if subscription.id in self.subscriptions:
            self.unclaimed[subscription.id] = subscription

    def _report_own_notices(self) -> None:
        """Report operators of this process that do not answer, at a bounded rate."""
        if self.reports.is_due("notices"):
            for notice in self.core.take_notices():
                self._report_notice(notice)

    def _report_notice(self, notice: Notice) -> None:
        for subscription_id in notice.subscription_ids:
            if subscription_id in self.subscriptions:
                self.subscriptions[subscription_id].notices.append(notice)
        self.reports.notice(notice)
