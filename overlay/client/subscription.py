"""A user's handle of a subscription: a stream of events that can be moved.

Invariant (STRICTNESS, Jayaram et al., Fig. 5): events handed out match the newest values, even if they were
waiting when these changed. Waiting events count against the broker's credit, so a slow user blocks the broker
instead of filling memory. With a maximal rate, one event per key waits without credit, up to `_MOST_BYTES`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from covey.matcher import EventBatch, EventType, Filter
from covey.matcher.errors import CoveyError
from covey.matcher.expressions.expression import Scalar
from covey.overlay.client.event import Claim, Event, Part, events_of
from covey.overlay.client.followed_fields import FollowedFields
from covey.overlay.client.inbox import Inbox, Reading, Waiters
from covey.overlay.client.reports import ClientTracing
from covey.overlay.core.client.rate_gate import RateGate
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.link.event_queue import key_codes, last_of_each
from covey.overlay.core.messages import MAX_VALIDITY_NS, Gap, Message, Notice

_MOST_BYTES = 1 << 20
"""Of events that wait without credit."""
_FREE = Claim(0, 0, lambda: None)
Table: TypeAlias = Any
"""A `pyarrow.Table`; pyarrow is untyped."""
_NOTICES = 20
_UNTRACED = nullcontext("")


class Pacer:
    """`on_lost` gets superseded events."""

    def __init__(self, rate: float, key: str, inbox: Inbox[Part], on_lost: Callable[[Gap], None]) -> None:
        self._gate: RateGate[Part] = RateGate(rate, lambda parts: _conflated(parts, key), _size)
        self._key = key
        self._inbox = inbox
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    def arrived(self, part: Part) -> None:
        """Replayed events pass at once, since they supersede nothing."""
        if part.replayed or self._key not in part.batch.event_type.attributes:
            self._inbox.put(part)
            return
        if self._gate.pending_bytes <= _MOST_BYTES:
            part.claim.done()
            part.claim = _FREE
        self._gate.put(part)
        self.let_go()

    def let_go(self) -> None:
        """Release due events, if the reader has taken the earlier ones."""
        if self._inbox.items:
            return
        if self._gate.pending_bytes > _MOST_BYTES:
            self._depart(self._gate.flush())
            return
        self._depart(self._gate.take(self._loop.time()))
        due_s = self._gate.due_s()
        if due_s is not None and self._timer is None:
            self._timer = self._loop.call_at(due_s, self._due)

    def _due(self) -> None:
        self._timer = None
        self.let_go()

    def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._depart(self._gate.flush())

    def discard(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for part in self._gate.flush():
            part.claim.done()
        self._gate.lost = []

    def _depart(self, parts: list[Part]) -> None:
        lost, self._gate.lost = self._gate.lost, []
        for part, count in lost:
            at_ns = part.batch.ingress_ns
            self._on_lost(Gap(part.batch.event_type.name, at_ns, at_ns, count, conflated=True))
        for part in parts:
            self._inbox.put(part)


def _conflated(parts: Sequence[Part], key: str) -> tuple[list[Part], list[tuple[Part, int]]]:
    """The parts without superseded events, and how many each part lost."""
    codes = key_codes([part.batch for part in parts], key)
    count = len(codes)
    stays = last_of_each(codes, np.zeros(count, np.int64), np.arange(count), count) | (codes < 0)
    kept, lost = [], []
    ends = np.cumsum([len(part.batch) for part in parts])[:-1]
    for part, mask in zip(parts, np.split(stays, ends), strict=True):
        rows = np.flatnonzero(mask)
        if len(rows) < len(mask):
            lost.append((part, len(mask) - len(rows)))
        if len(rows) == len(mask):
            kept.append(part)
        elif len(rows):
            kept.append(Part(replace(part.share, batch=part.batch.take(rows)), part.epoch, part.claim))
        else:
            part.claim.done()
    return kept, lost


def _size(part: Part) -> int:
    return part.batch.nbytes


class Owner(Protocol):
    core: ClientSession
    tracing: ClientTracing | None
    assigned: set[FollowedFields]

    def check_open(self) -> None: ...

    def transmit(self, messages: Iterable[Message]) -> None: ...

    def unsubscribe(self, subscription: Subscription) -> None: ...

    def report_conflated(self, gap: Gap) -> None: ...

    async def settle(self, timeout: float | None, what: str) -> None: ...

    async def settled(self, waiters: Waiters, epoch: int, timeout: float | None, what: str) -> None: ...


class Subscription:
    """An async iterator of events, returned by `Client.subscribe`. `batches()` iterates over batches, `read`
    returns a table.

    `delivered` counts events handed out, `spurious` events that did not match the newest values, `conflated`
    superseded ones (`max_rate`). `notices` are the last 20 of named operators that did not answer. `expired`:
    the validity period has ended, and iteration ends after the arrived events.
    """

    def __init__(self, owner: Owner, subscription_id: int, filter: Filter) -> None:
        self.id = subscription_id
        self.filter = filter
        self.delivered = 0
        self.spurious = 0
        self.conflated = 0
        self.notices: deque[Notice] = deque(maxlen=_NOTICES)
        self.expired = False
        self._owner = owner
        self._strict_rows = owner.core.strict_reader(subscription_id)
        self._changed = 0
        self._values: Mapping[str, Scalar] = owner.core.values(subscription_id)
        self._inbox: Inbox[Part] = Inbox()
        self._pacer: Pacer | None = None
        self._fields: FollowedFields | None = None
        self._cancelled = False

    @property
    def event_type(self) -> EventType:
        return self.filter.event_type

    @property
    def values(self) -> dict[str, Scalar]:
        """The newest values of the variables."""
        self._announce_fields()
        return dict(self._values)

    # --- moving it --------------------------------------------------------------------------------

    async def update(
        self,
        /,
        *,
        values: Mapping[str, object] | None = None,
        gapless: bool = False,
        timeout: float | None = None,
        **variables: object,
    ) -> None:
        """Set variables, all at once; returns when every broker on the way has applied them.

        A `Motion(value, rate)` changes by itself every second, by the time of the events' entry into the
        overlay. `values` is for variables whose names clash with a parameter or are no Python names.
        `gapless` also delivers events published since the call that only the new values match, out of order,
        as far back as brokers keep events (`replay_events`) and clocks agree. A variable that follows a field
        (`Client.subscribe`) cannot be set; without values, waits for those of the fields.

        `VariableError` at once for values that do not fit, `SubscriptionError` after `unsubscribe`,
        `NotSettledError` after `timeout` seconds: the new values stand and take effect later.
        """
        given = self._given({**(values or {}), **variables})
        with self._span() as traceparent:
            self._move(given, gapless, traceparent)
            await self._owner.settle(timeout, f"the update of subscription {self.id}")

    def update_nowait(
        self, /, *, values: Mapping[str, object] | None = None, gapless: bool = False, **variables: object
    ) -> None:
        """As `update`, without waiting. The new values apply here at once."""
        given = self._given({**(values or {}), **variables})
        with self._span() as traceparent:
            self._move(given, gapless, traceparent)

    def _span(self) -> AbstractContextManager[str]:
        tracing = self._owner.tracing
        return _UNTRACED if tracing is None else tracing.updating(self.event_type.name, self.id)

    def _move(self, values: Mapping[str, object], gapless: bool, traceparent: str) -> None:
        """Sends nothing if no value differs."""
        owner, core = self._owner, self._owner.core
        owner.check_open()
        now_ns = time.time_ns()
        messages = core.update(
            self.id,
            values,
            since_ns=now_ns if gapless else 0,
            now_ns=now_ns,
            traceparent=traceparent,
            clock_ns=time.monotonic_ns(),
        )
        owner.transmit(messages)
        self._values = core.values(self.id)
        self._changed = core.epoch

    def _follow(self, fields: FollowedFields) -> None:
        def announce(values: Mapping[str, object]) -> None:
            with self._span() as traceparent:
                self._move(values, False, traceparent)

        self._fields = fields
        fields.start(announce, self._owner.assigned)

    def _given(self, values: Mapping[str, object]) -> Mapping[str, object]:
        """Announces followed fields first. `VariableError` for a variable that follows one."""
        if self._fields is not None:
            self._fields.check_others(values)
        self._announce_fields()
        return values

    def _announce_fields(self) -> None:
        if self._fields is not None:
            self._fields.flush()

    async def renew(self, valid_for: float, *, timeout: float | None = None) -> None:
        """End the subscription `valid_for` seconds after arrival at the broker; returns when that has applied
        or, if durable, stored it. `ValueError` outside of 0.001 s to ten years, `SubscriptionError` after its
        end, `RefusedError` (NOT_FOUND) if it ends meanwhile, `NotSettledError` after `timeout` seconds."""
        valid_for_ns = validity_ns(valid_for)
        self._owner.check_open()
        self._owner.transmit(self._owner.core.renew(self.id, valid_for_ns, time.monotonic_ns()))
        await self._owner.settle(timeout, f"the renewal of subscription {self.id}")

    async def unsubscribe(self, *, timeout: float | None = None) -> None:
        """Cancel the subscription: nothing more is handed out, iteration ends. Repeatable.
        `SubscriptionError` if it has ended by itself."""
        if self._cancelled:
            return
        self._owner.unsubscribe(self)
        self._cancelled = True
        self._end(None)
        await self._owner.settle(timeout, f"the end of subscription {self.id}")

    # --- reading it -------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        items = self._inbox.items
        while True:
            if self._pacer is not None:
                self._pacer.let_go()
            if self._fields is not None:
                self._fields.flush()
            if not items:
                await self._inbox.changed()
                continue
            part = items[0]
            event, passed_over = part.next_event(self._strict_rows, self._changed)
            self.spurious += passed_over
            if part.start >= part.batch.count:
                items.popleft()
                part.claim.done()
            if event is not None:
                self.delivered += 1
                return event

    def batches(self) -> AsyncIterator[EventBatch]:
        """Batches as they arrived, without spurious events."""
        return Reading(self._next_whole_batch)

    async def read(
        self, *, until: float | Callable[[Event], bool] | None = None, limit: int | None = None
    ) -> Table:
        """The next events as an Arrow table in the columns of the event type.

        Returns after `until` seconds (0: what has arrived), or behind the first event for which `until` is
        true; after `limit` events; and at the end. Later events stay for the next reader. `ValueError` with
        neither argument, for negative or infinite seconds, and for a limit below 1. An interrupt or error
        loses what the call has read.
        """
        seconds, condition = _check_reading(until, limit)
        batches: list[EventBatch] = []
        left = limit
        met = False

        def take(batch: EventBatch) -> int:
            nonlocal met
            count = len(batch) if left is None else min(len(batch), left)
            if condition is not None:
                for number, event in enumerate(events_of(batch.slice(0, count)), start=1):
                    if condition(event):
                        met = True
                        return number
            return count

        with suppress(TimeoutError, StopAsyncIteration):
            async with asyncio.timeout(seconds):
                while not met and left != 0:
                    batch = await self._next_batch(take)
                    batches.append(batch)
                    left = None if left is None else left - len(batch)
        event_type = batches[-1].event_type if batches else self.event_type
        records = [batch.with_schema(event_type).record_batch for batch in batches]
        return pa.Table.from_batches(records, schema=event_type.arrow_schema)

    async def _next_whole_batch(self) -> EventBatch:
        while not len(batch := await self._next_batch(len)):
            pass
        return batch

    async def _next_batch(self, take: Callable[[EventBatch], int]) -> EventBatch:
        """The first `take(batch)` matching events of the oldest part; the others stay."""
        items = self._inbox.items
        while True:
            if self._pacer is not None:
                self._pacer.let_go()
            if items:
                break
            await self._inbox.changed()
        part = items[0]
        self._announce_fields()
        rest = part.rest()
        rows = self._strict_rows(rest, part.epoch)
        batch = rest if rows is None else rest.take(rows)
        count = take(batch)
        if count < len(batch):
            passed = count if rows is None else int(rows[count - 1]) + 1
            part.skip(passed)
        else:
            passed = len(rest)
            items.popleft()
            part.claim.done()
        self.spurious += passed - count
        self.delivered += count
        return batch if count == len(batch) else batch.slice(0, count)

    def _set_max_rate(self, rate: float | None) -> None:
        """Events per second and key; None: unbounded."""
        if self._pacer is not None:
            self._pacer.end()
        key = self.event_type.key
        assert key is not None or rate is None
        self._pacer = None if rate is None or key is None else Pacer(rate, key, self._inbox, self._lose)

    @property
    def is_paced(self) -> bool:
        """Whether it has a maximal rate."""
        return self._pacer is not None

    def _lose(self, gap: Gap) -> None:
        self.conflated += gap.count
        self._owner.report_conflated(gap)

    # --- what the client does with it -------------------------------------------------------------

    def _put(self, part: Part) -> None:
        if self._inbox.ended:
            part.claim.done()
        elif self._pacer is not None:
            self._pacer.arrived(part)
        else:
            self._inbox.put(part)

    def _discard(self) -> None:
        self._follow_nothing()
        if self._pacer is not None:
            self._pacer.discard()
        for part in self._inbox.drain():
            part.claim.done()

    def _end(self, error: BaseException | None) -> None:
        """Waiting events are still handed out, unless the subscription was cancelled."""
        self._follow_nothing()
        if self._pacer is not None and not self._inbox.ended:
            self._pacer.end()
        self._inbox.end(error)

    def _end_following(self) -> None:
        with suppress(CoveyError):
            self._announce_fields()
        self._follow_nothing()

    def _follow_nothing(self) -> None:
        if self._fields is not None:
            self._fields.stop()

    def _expire(self) -> None:
        self.expired = True
        self._end(None)

    def __repr__(self) -> str:
        values: dict[str, Any] = dict(self._values)
        return f"Subscription({self.id}, {str(self.filter)!r}, {values})"


def validity_ns(valid_for: float) -> int:
    """Nanoseconds. `ValueError` unless 0.001 s to ten years."""
    number = isinstance(valid_for, int | float) and not isinstance(valid_for, bool)
    longest_s = MAX_VALIDITY_NS // 1_000_000_000
    if not number or not 0.001 <= valid_for <= longest_s:
        expected = f"seconds from 0.001 to {longest_s} (ten years)"
        raise ValueError(f"valid_for is {valid_for!r}: expected {expected}")
    return round(valid_for * 1e9)


def _check_reading(
    until: float | Callable[[Event], bool] | None, limit: int | None
) -> tuple[float | None, Callable[[Event], bool] | None]:
    """`ValueError` as of `Subscription.read`."""
    if limit is not None and (type(limit) is not int or limit < 1):
        raise ValueError(f"limit is {limit!r}: expected a number of events, from 1 on")
    if until is None:
        if limit is None:
            raise ValueError("read() without until and limit: expected one of them")
        return None, None
    if callable(until):
        return None, until
    if isinstance(until, bool) or not isinstance(until, int | float) or not 0 <= until < math.inf:
        raise ValueError(f"until is {until!r}: expected seconds from 0 on, or a function of an event")
    return until, None


def check_max_rate(rate: object, event_type: EventType) -> None:
    """`ValueError` unless a rate, for an event type with a key."""
    number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not number or not 0.001 <= rate <= 1_000_000:  # type: ignore[operator]
        raise ValueError(f"max_rate is {rate!r}: expected events per second and key, from 0.001 to 1000000")
    if event_type.key is None:
        name = event_type.name
        raise ValueError(f"max_rate is {rate!r}: expected an event type with a key, {name} has none")
