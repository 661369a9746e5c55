"""One browser at the gateway: its subscriptions and its queue, over any number of connections. Requests take
effect in the order of arrival; several may be unanswered. Invariant: behind the answer to an update no event
comes that the newest values do not match, for answers and events share one queue."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import time
from base64 import urlsafe_b64decode
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from fnmatch import fnmatchcase
from functools import partial
from typing import Any, TypeVar

from covey.gateway.browser_queue import BrowserQueue, rate_gate
from covey.gateway.encoding import EncodedBatch, Frame, Rows
from covey.gateway.limits import Limits, Overflow
from covey.gateway.messages import (
    Acknowledge,
    Answer,
    Authenticate,
    Connection,
    Ended,
    Error,
    Expiry,
    Message,
    MessageError,
    OperatorNotice,
    Publish,
    Renew,
    Subscribe,
    Unsubscribe,
    Update,
    View,
    cut,
    error_of,
    values_of,
)
from covey.gateway.upstream import Upstream
from covey.gateway.view_feed import ViewFeed
from covey.matcher import EventType
from covey.matcher.errors import CapacityError, CoveyError
from covey.overlay import Gap, Notice, RefusedError, Subscription
from covey.overlay.core.client.rate_gate import RateGate

log = logging.getLogger("covey.gateway")

T = TypeVar("T")

_TOLD_BEFORE_S = 30.0
"""From the notice to a browser to the end of its token."""


class BearerToken:
    """The newest token of one browser; a callable, which its client session calls before each connection."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self) -> str:
        return self._token

    def renew(self, token: str) -> None:
        self._token = token

    def expires_in_s(self) -> float | None:
        """Seconds until the token expires, None if unreadable; only the broker verifies it."""
        try:
            claims = self._token.split(".")[1]
            end = json.loads(urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["exp"]
            return float(end) - time.time()
        except (ValueError, IndexError, KeyError, TypeError, RecursionError, OverflowError):
            return None

    def __repr__(self) -> str:
        return "BearerToken()"


class Session:
    """`publishable` are globs of event types. `error` is why the session ended, and `newest_request` the
    highest request number whose answer the queue has or will have."""

    def __init__(
        self,
        upstream: Upstream,
        queue: BrowserQueue,
        form: str,
        limits: Limits,
        publishable: tuple[str, ...],
        token: BearerToken | None,
        on_end: Callable[[Session], None],
    ) -> None:
        self.id = secrets.token_urlsafe(18)
        self.queue = queue
        self.token = token
        self.error: Exception | None = None
        self.newest_request = 0
        self.upstream = upstream
        self._form = form
        self._limits = limits
        self._publishable = publishable
        self._on_end = on_end
        self._subscriptions: dict[int, asyncio.Future[Subscription | ViewFeed]] = {}
        self._leaving: set[Subscription | ViewFeed] = set()
        """Not yet cancelled; their numbers are free again."""
        self._requests: set[asyncio.Task[None]] = set()
        self._room = asyncio.Semaphore(limits.max_requests)
        self._expiry: asyncio.TimerHandle | None = None
        self._authenticating = asyncio.Lock()
        self._keys: dict[int, str] = {}
        """The key by subscription, where events may supersede each other."""
        self._views: set[int] = set()
        self._streams = False
        self._gates: dict[int, RateGate[Frame]] = {}
        self._gated_bytes = 0
        self._departures: dict[int, asyncio.TimerHandle] = {}
        """The next departure from a subscription's gate."""
        upstream.join(self)
        self._watch_token()

    # --- requests -----------------------------------------------------------------------------------

    async def handle(self, message: Message) -> None:
        """Begin a request; waits while too many are in progress."""
        self.queue.totals.received_messages += 1
        match message:
            case Acknowledge():
                if not self.queue.acknowledge(message.received):
                    self.refuse(None, MessageError(
                        f"acknowledge: received is {message.received}: expected the number of a message that "
                        "was sent"
                    ))  # fmt: skip
            case Authenticate():
                await self._begin(message.request, lambda: self._authenticate(message))
            case Subscribe():
                await self._begin(message.request, lambda: self._subscribe(message, self._claim(message)))
            case View():
                await self._begin(message.request, lambda: self._view(message, self._claim(message)))
            case Update() | Renew() | Unsubscribe():
                await self._change(message)
            case Publish():
                await self._begin(message.request, lambda: self._publish(message))
            case _:
                self.refuse(None, MessageError(f"{message.kind}: expected as the first message alone"))
        await self.queue.calm()

    async def stream(self, message: Subscribe | View) -> None:
        """The only subscription or view of a session that ends with it; returns when it is in effect, and
        raises what the client raises. A view's answer is behind its content."""
        self._streams = True
        refusal = self._claim(message)
        if isinstance(message, Subscribe):
            await self._subscribe(message, refusal)
        else:
            feed = await self._open_view(message, refusal)
            await self._begin(message.request, lambda: self._passed_on(message, feed))

    async def _change(self, message: Update | Renew | Unsubscribe) -> None:
        """Waits for a subscription that is not yet applied, so that its changes keep their order."""
        number = message.subscription
        future = self._subscriptions.get(number)
        if future is not None and not future.done():
            await asyncio.wait({future})
        if future is None or future.cancelled() or future.exception() is not None:
            reason = f"{message.kind}: subscription is {number}: expected one of this session"
            self.refuse(message.request, MessageError(reason))
            return
        held = future.result()
        if isinstance(message, Unsubscribe):
            await self._begin(message.request, lambda: self._unsubscribe(message, held))
        elif isinstance(message, Renew):
            await self._begin(message.request, lambda: self._renew(message, held))
        elif isinstance(held, ViewFeed):
            await self._begin(message.request, lambda: self._update_view(message, held))
        else:
            await self._begin(message.request, lambda: self._update(message, held))

    async def _begin(self, request: int, begin: Callable[[], Coroutine[Any, Any, Answer]]) -> None:
        """A request has no effect before there is room: a browser whose connection breaks meanwhile sends it
        again."""
        await self._room.acquire()
        self.newest_request = max(self.newest_request, request)
        work = begin()
        task = asyncio.create_task(self._run(request, work))
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        task.add_done_callback(lambda _: work.close())  # where it was cancelled before its first step

    async def _run(self, request: int, work: Awaitable[Answer]) -> None:
        try:
            self.queue.tell(await work)
        except (CoveyError, TimeoutError) as error:
            self.refuse(request, error)
        except RecursionError:  # values may have any depth
            self.refuse(request, MessageError("the message is nested too deeply"))
        except Exception as error:
            log.exception("a request failed")
            self.refuse(request, RefusedError("INTERNAL", f"the request failed: {type(error).__name__}"))
        finally:
            self._room.release()

    def refuse(self, request: int | None, error: Exception) -> None:
        self.newest_request = max(self.newest_request, request or 0)
        told = error_of(error, request)
        self.queue.totals.refused[told.status] += 1
        self.queue.tell(told)

    @property
    def subscription_count(self) -> int:
        return len(self._subscriptions)

    def _claim(self, message: Subscribe | View) -> Exception | None:
        """Take the number at once, so that later requests find it."""
        number, bound, kind = message.subscription, self._limits.max_filter_bytes, message.kind
        for field in ("filter", "leave"):
            if len((getattr(message, field, None) or "").encode()) > bound:
                return RefusedError("RESOURCE_EXHAUSTED", f"{kind}: {field}: max_filter_bytes is {bound}")
        if number in self._subscriptions:
            return MessageError(f"{kind}: subscription is {number}: expected one that is not in use")
        if len(self._subscriptions) >= self._limits.max_subscriptions:
            bound = self._limits.max_subscriptions
            return RefusedError("RESOURCE_EXHAUSTED", f"subscription {number}: max_subscriptions is {bound}")
        if isinstance(message, View):
            if len(self._views) >= self._limits.max_views:
                bound = self._limits.max_views
                return RefusedError("RESOURCE_EXHAUSTED", f"view {number}: max_views is {bound}")
            self._views.add(number)
        future = self._subscriptions[number] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())  # it may have no reader
        return None

    async def _subscribe(self, message: Subscribe, refusal: Exception | None) -> Answer:
        if refusal is not None:
            raise refusal
        with self._settling(message.subscription) as future:
            await self._prepare(message)
            subscription = await self.upstream.subscribe(self, message)
            future.set_result(subscription)
        return Answer(request=message.request, attributes=_attributes(subscription.event_type))

    async def _view(self, message: View, refusal: Exception | None) -> Answer:
        return await self._passed_on(message, await self._open_view(message, refusal))

    async def _open_view(self, message: View, refusal: Exception | None) -> ViewFeed:
        if refusal is not None:
            raise refusal
        number, upstream = message.subscription, self.upstream
        with self._settling(number) as future:
            view = await upstream.view(message, self._limits.max_view_keys)
            on_end = partial(self._view_ended, future)
            feed = ViewFeed(view, number, self._form, self.queue, on_end, blocks=upstream.blocks)
            future.set_result(feed)
        return feed

    async def _passed_on(self, message: View, feed: ViewFeed) -> Answer:
        await feed.passed_on()
        event_type = feed.view.event_type
        return Answer(request=message.request, attributes=_attributes(event_type), key=event_type.key)

    @contextlib.contextmanager
    def _settling(self, number: int) -> Iterator[asyncio.Future[Subscription | ViewFeed]]:
        """If the block fails, free the number and fail the requests that wait for it."""
        future = self._subscriptions[number]
        try:
            yield future
        except BaseException as error:
            self._subscriptions.pop(number, None)
            self._forget(number)
            if isinstance(error, Exception):
                future.set_exception(error)
            else:
                future.cancel()
            raise

    async def _prepare(self, message: Subscribe) -> None:
        """Learn the key before the first event; refuse a subscription that needs a key and has none."""
        conflates = self.queue.overflow is Overflow.CONFLATE
        if not conflates and message.max_rate is None:
            return
        key = await self.upstream.key_of(message.type)
        if key is None:
            what = "overflow is 'conflate'" if conflates else f"max_rate is {message.max_rate}"
            reason = f"subscribe: {what}, and {message.type} has no key: expected an event type with one"
            raise RefusedError("FAILED_PRECONDITION", reason)
        self._keys[message.subscription] = key
        if message.max_rate is not None:
            self._gates[message.subscription] = rate_gate(message.max_rate)

    def _forget(self, number: int) -> None:
        self._views.discard(number)
        self._keys.pop(number, None)
        gate = self._gates.pop(number, None)
        if gate is not None:
            self._gated(gate, gate.flush)
        timer = self._departures.pop(number, None)
        if timer is not None:
            timer.cancel()

    async def _update(self, message: Update, subscription: Subscription) -> Answer:
        await subscription.update(
            values=values_of(message.values), gapless=message.gapless, timeout=self._limits.timeout_s
        )
        # What waits matched older values, and must not come behind the answer.
        self._let_all_go(message.subscription)
        return Answer(request=message.request)

    async def _update_view(self, message: Update, feed: ViewFeed) -> Answer:
        if message.gapless:
            number = message.subscription
            raise MessageError(f"update: gapless is true, and {number} is a view: expected false")
        await feed.view.update(values=values_of(message.values), timeout=self._limits.timeout_s)
        await feed.passed_on()
        return Answer(request=message.request)

    async def _renew(self, message: Renew, held: Subscription | ViewFeed) -> Answer:
        if isinstance(held, ViewFeed):
            raise MessageError(f"renew: subscription is {message.subscription}, a view: expected none")
        await held.renew(message.valid_for, timeout=self._limits.timeout_s)
        return Answer(request=message.request)

    def _unsubscribe(
        self, message: Unsubscribe, held: Subscription | ViewFeed
    ) -> Coroutine[Any, Any, Answer]:
        if self._subscriptions.pop(message.subscription, None) is not None:
            self._forget(message.subscription)
        if isinstance(held, Subscription):
            self.upstream.drop(held)
        self._leaving.add(held)
        return self._cancelled(message, held)

    async def _cancelled(self, message: Unsubscribe, held: Subscription | ViewFeed) -> Answer:
        try:
            await self._cancel(held)
        except Exception:
            self._leaving.discard(held)
            raise
        self._leaving.discard(held)
        return Answer(request=message.request)

    async def _cancel(self, held: Subscription | ViewFeed) -> None:
        if isinstance(held, ViewFeed):
            await held.close()
            await held.view.close(timeout=self._limits.timeout_s)
        else:
            await self.upstream.unsubscribe(held)

    async def _publish(self, message: Publish) -> Answer:
        if not any(fnmatchcase(message.type, glob) for glob in self._publishable):
            allowed = ", ".join(self._publishable) or "none"
            reason = f"publish: type is {message.type!r}: expected one that browsers may publish ({allowed})"
            raise RefusedError("PERMISSION_DENIED", reason)
        try:
            async with asyncio.timeout(self._limits.timeout_s):
                await self.upstream.publish(message.type, message.events)
        except TimeoutError:
            within_s = self._limits.timeout_s
            reason = f"publish: the events are not accepted within {within_s} s: they may be later"
            raise TimeoutError(reason) from None
        return Answer(request=message.request)

    # --- the token ----------------------------------------------------------------------------------

    async def _authenticate(self, message: Authenticate) -> Answer:
        """The session keeps its token unless the broker accepts the new one."""
        if self.token is None:
            reason = "authenticate: the session has no token: expected one in hello"
            raise RefusedError("FAILED_PRECONDITION", reason)
        async with self._authenticating:  # the newest token is the last
            await self.upstream.verify(message.token)
            self.token.renew(message.token)
            self._watch_token()
        return Answer(request=message.request)

    def fits(self, token: str | None) -> bool:
        """Whether a hello with this token, or without one, may continue this session."""
        return (token is None) is (self.token is None)

    def renew(self, token: str | None) -> None:
        if self.token is not None and token is not None:
            self.token.renew(token)
            self._watch_token()

    def _watch_token(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        left_s = None if self.token is None else self.token.expires_in_s()
        if left_s is not None and 0 <= left_s < 1e9:
            told_before_s = min(_TOLD_BEFORE_S, left_s / 2)  # so that short ones are not told for ever
            loop = asyncio.get_running_loop()
            self._expiry = loop.call_later(left_s - told_before_s, self._tell_expiry)

    def _tell_expiry(self) -> None:
        left_s = None if self.token is None else self.token.expires_in_s()
        self.queue.notice(Expiry(expires_in_s=round(max(0.0, left_s or 0.0), 1)))

    # --- what the upstream calls --------------------------------------------------------------------

    def deliver(self, subscription: int, batch: EncodedBatch, rows: Rows) -> None:
        frame = batch.frame(rows, subscription, self._form, self._keys.get(subscription))
        gate = self._gates.get(subscription)
        if gate is None:
            self._put(frame)
            return
        self._gated(gate, lambda: gate.put(frame))
        if self._gated_bytes > self._limits.queue_bytes:
            self._let_all_go(subscription)  # the policy of the queue decides
        else:
            self._let_go(subscription)

    def _gated(self, gate: RateGate[Frame], change: Callable[[], T]) -> T:
        """Change what waits in a gate; all gates of a session share the bytes of one queue."""
        before = gate.pending_bytes
        result = change()
        more = gate.pending_bytes - before
        self._gated_bytes += more
        self.queue.hold(more)
        return result

    def _let_all_go(self, subscription: int) -> None:
        gate = self._gates.get(subscription)
        if gate is not None:
            self._depart(subscription, self._gated(gate, gate.flush))

    def _let_go(self, subscription: int) -> None:
        """Send what its rate permits, and schedule the rest."""
        if subscription in self._departures:
            return
        gate, loop = self._gates[subscription], asyncio.get_running_loop()
        self._depart(subscription, self._gated(gate, lambda: gate.take(loop.time())))
        due_s = gate.due_s()
        if due_s is not None:
            self._departures[subscription] = loop.call_at(due_s, self._due, subscription)

    def _due(self, subscription: int) -> None:
        del self._departures[subscription]
        self._let_go(subscription)  # which looks again where the timer was early

    def _depart(self, subscription: int, frames: list[Frame]) -> None:
        gate = self._gates[subscription]
        lost, gate.lost = gate.lost, []
        self.queue.supersede(lost)
        for frame in frames:
            self._put(frame)

    def _put(self, frame: Frame) -> None:
        self.queue.put(frame)
        if self.queue.overflowed:
            reason = f"the browser does not keep up: queue_bytes is {self._limits.queue_bytes}"
            self.fail(RefusedError("RESOURCE_EXHAUSTED", reason))

    async def room(self) -> None:
        await self.queue.room()

    def _view_ended(self, future: asyncio.Future[Any], number: int, error: Exception) -> None:
        """End a view with too many keys; any other error is its client's, and ends the session."""
        if not isinstance(error, CapacityError):
            self.fail(error)
            return
        reason = f"the view has ended, max_view_keys is {self._limits.max_view_keys}: {error}"
        if self._streams:
            self.fail(RefusedError("RESOURCE_EXHAUSTED", reason))
            return
        if self._subscriptions.get(number) is not future:  # it has been cancelled
            return
        del self._subscriptions[number]
        self._forget(number)
        self.queue.notice(Error(subscription=number, status="RESOURCE_EXHAUSTED", message=cut(reason)))

    def lose(self, gap: Gap, *, of_views: bool = False) -> None:
        ours = (each.result() for each in self._subscriptions.values() if _is_applied(each))
        names = {_event_type(each).name for each in ours if isinstance(each, ViewFeed) is of_views}
        if gap.type_name in names:
            self.queue.lose("broker", gap)

    def expire(self, subscription: int) -> None:
        self._let_all_go(subscription)
        self._subscriptions.pop(subscription, None)
        self._forget(subscription)
        self.queue.tell(Ended(subscription=subscription, reason="its validity period is over"))

    def notice(self, subscription: int, notice: Notice) -> None:
        self.queue.notice(OperatorNotice(subscription=subscription, message=cut(str(notice))))

    def connection(self, connected: bool, reason: str) -> None:
        self.queue.notice(Connection(connected=connected, message=cut(reason)))

    def fail(self, error: Exception) -> None:
        """End the session with this error. The browser gets only the class name of an error that is not
        Covey's."""
        if self.error is None:
            if not isinstance(error, CoveyError):
                error = RefusedError("INTERNAL", f"the session failed: {type(error).__name__}")
            self.error = error
            self._on_end(self)

    # --- the end ------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Cancel all subscriptions; drops what is pending."""
        if self._expiry is not None:
            self._expiry.cancel()
        for task in self._requests:
            task.cancel()
        if self._requests:
            await asyncio.wait(self._requests)
        self.upstream.leave(self)
        for number in [*self._keys]:
            self._forget(number)
        applied = [future.result() for future in self._subscriptions.values() if _is_applied(future)]
        # The requests that would have cancelled these have ended. All at once: each waits for a request's
        # time where the broker is away.
        leaving = dict.fromkeys((*applied, *self._leaving))
        for error in await asyncio.gather(*map(self._cancel, leaving), return_exceptions=True):
            if isinstance(error, Exception) and not isinstance(error, CoveyError):
                log.error("a subscription was not cancelled", exc_info=error)
        self._subscriptions.clear()
        self._leaving.clear()
        self.queue.close()


def _is_applied(future: asyncio.Future[Subscription | ViewFeed]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


def _event_type(held: Subscription | ViewFeed) -> EventType:
    return held.view.event_type if isinstance(held, ViewFeed) else held.event_type


def _attributes(event_type: EventType) -> dict[str, str]:
    return {name: str(kind) for name, kind in event_type.attributes.items()}
