"""A subscription as its user holds it: a stream of events that can be moved.

Invariant (STRICTNESS, Jayaram et al., Fig. 5): what is handed out matches the filter under the newest values,
also where it was waiting here when they changed. What waits here counts against the credit that the client
has granted its broker: a user who does not read blocks the broker and does not fill this process's memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from covey.matcher import EventBatch, EventType, Filter
from covey.matcher.expressions.expression import Scalar
from covey.overlay.client.event import Event
from covey.overlay.client.inbox import Inbox
from covey.overlay.client.pacing import Pacer
from covey.overlay.client.part import Part
from covey.overlay.client.tracing import ClientTracing
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import MAX_VALIDITY_NS, Gap, Notice

_NOTICES = 20


class Owner(Protocol):
    """What a subscription uses of its client."""

    @property
    def core(self) -> ClientSession: ...

    @property
    def tracing(self) -> ClientTracing | None: ...

    def update(
        self, subscription_id: int, values: Mapping[str, object], gapless: bool, traceparent: str
    ) -> None: ...

    def renew(self, subscription_id: int, valid_for_ns: int) -> None: ...

    def unsubscribe(self, subscription: Subscription) -> None: ...

    def report_conflated(self, gap: Gap) -> None: ...

    async def settle(self, timeout: float | None, what: str) -> None: ...


class Subscription:
    """An async iterator of events; `batches()` iterates over whole batches instead. Returned by
    `Client.subscribe`.

    `delivered` counts events handed out, `spurious` those that arrived and did not match the newest values,
    `conflated` those that later ones of their keys have superseded here (`max_rate`).
    `notices` has the last notices of named operators of its filter that did not answer, at most 20. `expired`
    says whether its validity period has ended: then iteration ends once what had arrived was handed out.
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
        """The epoch of the last change."""
        self._values: Mapping[str, Scalar] = owner.core.values(subscription_id)
        self._inbox: Inbox[Part] = Inbox()
        self._pacer: Pacer | None = None

    @property
    def event_type(self) -> EventType:
        return self.filter.event_type

    @property
    def values(self) -> dict[str, Scalar]:
        """The newest values of the variables."""
        return dict(self._values)

    # --- moving it --------------------------------------------------------------------------------

    async def update(
        self,
        *,
        values: Mapping[str, object] | None = None,
        gapless: bool = False,
        timeout: float | None = None,
        **variables: object,
    ) -> None:
        """Give variables new values, all at once; returns when every broker on the way has applied them.

        A value may be a `Motion(value, rate)`, which changes by itself every second, without any message,
        until it is given another value; time is that of the events' entry into the overlay. `values` is for
        variables whose names are no Python names or clash with a parameter. `gapless` also delivers what was
        published since the call and only the new values match, out of order, as far back as brokers keep
        events (`replay_events` of the overlay) and clocks agree. Raises `VariableError` at once for values
        that do not fit, `SubscriptionError` after `unsubscribe`, and `NotSettledError` after `timeout`
        seconds: then the new values stand and take effect when the missing broker answers.
        """
        with self._span() as traceparent:
            self._move({**(values or {}), **variables}, gapless, traceparent)
            await self._owner.settle(timeout, f"the update of subscription {self.id}")

    def update_nowait(
        self, *, values: Mapping[str, object] | None = None, gapless: bool = False, **variables: object
    ) -> None:
        """As `update`, without waiting: the new values are in force in this client, and on their way."""
        with self._span() as traceparent:
            self._move({**(values or {}), **variables}, gapless, traceparent)

    def _span(self) -> AbstractContextManager[str]:
        tracing = self._owner.tracing
        return nullcontext("") if tracing is None else tracing.updating(self.event_type.name, self.id)

    def _move(self, values: Mapping[str, object], gapless: bool, traceparent: str) -> None:
        self._owner.update(self.id, values, gapless, traceparent)
        self._values = self._owner.core.values(self.id)
        self._changed = self._owner.core.epoch

    async def renew(self, valid_for: float, *, timeout: float | None = None) -> None:
        """Have the subscription end in so many seconds, counted anew from the arrival at the broker; returns
        when the broker has applied it, of a durable session stored. `ValueError` for less than 0.001 s and
        more than ten years, `SubscriptionError` after its end, `RefusedError` (NOT_FOUND) if it ends
        meanwhile, `NotSettledError` after `timeout` seconds.
        """
        self._owner.renew(self.id, validity_ns(valid_for))
        await self._owner.settle(timeout, f"the renewal of subscription {self.id}")

    async def unsubscribe(self, *, timeout: float | None = None) -> None:
        """Cancel the subscription: nothing more is handed out, iteration ends."""
        self._owner.unsubscribe(self)
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
            if not items:
                await self._inbox.changed()
                continue
            part = items[0]
            event, passed_over = part.next_event(self._strict_rows, self._changed)
            self.spurious += passed_over
            if part.exhausted:
                items.popleft()
                part.claim.done()
            if event is not None:
                self.delivered += 1
                return event

    async def batches(self) -> AsyncIterator[EventBatch]:
        """The events batch by batch, as they arrived."""
        while True:
            if self._pacer is not None:
                self._pacer.let_go()
            try:
                part = await self._inbox.head()
            except StopAsyncIteration:
                return
            self._inbox.items.popleft()
            part.claim.done()
            batch = part.rest()
            rows = self._strict_rows(batch, part.epoch)
            if rows is not None:
                self.spurious += len(batch) - len(rows)
                batch = batch.take(rows)
            if len(batch):
                self.delivered += len(batch)
                yield batch

    def _set_max_rate(self, rate: float | None) -> None:
        """Of each key from now on; None for any."""
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

    def _drain(self) -> list[Part]:
        """Remove what waits, for another reader."""
        return self._inbox.drain()

    def _discard(self) -> None:
        """Drop what waits."""
        if self._pacer is not None:
            self._pacer.discard()
        for part in self._drain():
            part.claim.done()

    def _end(self, error: BaseException | None) -> None:
        """Nothing more will come. What waits is still handed out, unless the subscription was cancelled."""
        if self._pacer is not None and not self._inbox.ended:
            self._pacer.end()
        self._inbox.end(error)

    def _expire(self) -> None:
        self.expired = True
        self._end(None)

    def __repr__(self) -> str:
        values: dict[str, Any] = dict(self._values)
        return f"Subscription({self.id}, {str(self.filter)!r}, {values})"


def validity_ns(valid_for: float) -> int:
    """A validity period in nanoseconds. `ValueError` unless it is seconds from 0.001 to ten years."""
    number = isinstance(valid_for, int | float) and not isinstance(valid_for, bool)
    if not number or not math.isfinite(valid_for) or not 1_000_000 <= valid_for * 1e9 <= MAX_VALIDITY_NS:
        longest_s = MAX_VALIDITY_NS // 1_000_000_000
        expected = f"seconds from 0.001 to {longest_s} (ten years)"
        raise ValueError(f"valid_for is {valid_for!r}: expected {expected}")
    return round(valid_for * 1e9)


def check_max_rate(rate: object, event_type: EventType) -> None:
    """`ValueError` for no rate, or one of an event type without a key."""
    number = isinstance(rate, int | float) and not isinstance(rate, bool)
    if not number or not 0.001 <= rate <= 1_000_000:  # type: ignore[operator]
        raise ValueError(f"max_rate is {rate!r}: expected events per second and key, from 0.001 to 1000000")
    if event_type.key is None:
        name = event_type.name
        raise ValueError(f"max_rate is {rate!r}: expected an event type with a key, {name} has none")
