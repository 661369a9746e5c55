"""Subscriptions, views and listeners of a client that is not asynchronous (`Client.sync`)."""

from __future__ import annotations

from collections import deque

from covey.matcher import EventType, Filter
from covey.matcher.expressions.expression import Scalar
from covey.overlay.client.blocking import BlockingIterator, Plain, blocking, iterating, on_loop
from covey.overlay.client.event import Event
from covey.overlay.client.listeners import Listeners
from covey.overlay.client.subscription import Subscription
from covey.overlay.client.view import Change, View
from covey.overlay.core.messages import Notice


class SyncSubscription(BlockingIterator[Event]):
    """An iterator of events, with the names and errors of `Subscription`. Returned by
    `SyncClient.subscribe`.
    """

    _wrapped: Subscription

    id: Plain[int] = Plain()
    filter: Plain[Filter] = Plain()
    event_type: Plain[EventType] = Plain()
    values: Plain[dict[str, Scalar]] = Plain()
    delivered: Plain[int] = Plain()
    spurious: Plain[int] = Plain()
    conflated: Plain[int] = Plain()
    notices: Plain[deque[Notice]] = Plain()
    expired: Plain[bool] = Plain()
    is_paced: Plain[bool] = Plain()

    update = blocking(Subscription.update)
    update_nowait = blocking(on_loop(Subscription.update_nowait))
    renew = blocking(Subscription.renew)
    unsubscribe = blocking(Subscription.unsubscribe)
    batches = iterating(Subscription.batches)
    read = blocking(Subscription.read)


class SyncView(BlockingIterator[Change]):
    """An iterator of changes, with the names and errors of `View`. Returned by `SyncClient.view`."""

    _wrapped: View

    event_type: Plain[EventType] = Plain()
    filter: Plain[Filter] = Plain()
    values: Plain[dict[str, object]] = Plain()

    update = blocking(View.update)
    update_nowait = blocking(on_loop(View.update_nowait))
    close = blocking(View.close)
    snapshot = blocking(on_loop(View.snapshot))
    batches = iterating(View.batches)


class SyncListeners(BlockingIterator[bool]):
    """Truthy while there is a matching subscription; an iterator of changes. Returned by
    `SyncClient.listeners`.
    """

    _wrapped: Listeners

    type_name: Plain[str] = Plain()
    any: Plain[bool] = Plain()

    def __bool__(self) -> bool:
        return self.any
