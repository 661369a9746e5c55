"""Boxes that move: subscriptions of real clients, changed by update or by subscribing again. One client per
broker has the broker's boxes and reads them as one stream, for the oracle."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from time import perf_counter

import numpy as np
import numpy.typing as npt

from covey.matcher import EventType
from covey.overlay import Client, Subscription
from covey.sim.experiments.pages.live_oracle import Recipient, Rectangle

VEHICLE = EventType("Vehicle", {"id": "int64", "x": "float64", "y": "float64", "number": "int64"})
"""The place of a vehicle; `number` identifies the event for the oracle. A negative id is a mark."""
MARK = "id < 0"
"""A mark arrives behind its publisher's earlier events. It has their type, since brokers with a backlog may
hold one type and pass another."""
BOX = "x between $x0 and $x1 and y between $y0 and $y1"

_DELAYS = 4_000
_MOST_EARLY = 1_000

Ints = npt.NDArray[np.int64]


def mark_of(publisher: int, mark: int) -> dict[str, float]:
    """The event of a mark; no box is at its place."""
    return {"id": -1 - publisher, "x": -1e6, "y": -1e6, "number": mark}


def publisher_of(vehicle: int) -> int:
    return -1 - vehicle


class Change(StrEnum):
    UPDATE = "update"
    UNSUBSCRIBE_FIRST = "unsubscribe-first"
    SUBSCRIBE_FIRST = "subscribe-first"


def values_of(rectangle: Rectangle) -> dict[str, float]:
    return dict(zip(("x0", "x1", "y0", "y1"), rectangle, strict=True))


class Statistics:
    """Of all boxes. `under_way` are pending changes by other ways than an update."""

    def __init__(self) -> None:
        self.changes = 0
        self.under_way = 0
        self.delays_ms: deque[float] = deque(maxlen=_DELAYS)

    def changed(self, delay_s: float) -> None:
        self.changes += 1
        self.delays_ms.append(delay_s * 1e3)

    def percentiles_ms(self) -> tuple[float, float]:
        """p50 and p99 of the last changes, 0 before the first."""
        if not self.delays_ms:
            return 0.0, 0.0
        p50, p99 = np.percentile(np.array(self.delays_ms), (50, 99))
        return float(p50), float(p99)


class BoxClient:
    """The boxes of one broker, by their numbers. `on_delivery` gets the ids of vehicles."""

    def __init__(
        self,
        client: Client,
        recipient: Recipient,
        statistics: Statistics,
        on_delivery: Callable[[Ints], None],
    ) -> None:
        self._client = client
        self._recipient = recipient
        self._statistics = statistics
        self._on_delivery = on_delivery
        self._subscriptions: dict[int, Subscription] = {}
        self._box_of: dict[int, int] = {}
        """By current and earlier subscription ids."""
        self._early: deque[tuple[int, Ints]] = deque(maxlen=_MOST_EARLY)
        """Events of subscriptions that have not returned yet."""

    async def open(self) -> None:
        await self._client.subscribe(VEHICLE, MARK)

    async def read(self) -> None:
        async for matches in self._client.deliveries():
            records = matches.batch.record_batch
            numbers = records.column("number").to_numpy(zero_copy_only=False)[matches.rows]
            vehicles = records.column("id").to_numpy(zero_copy_only=False)[matches.rows]
            marked = vehicles < 0
            self._take(matches.ids[~marked], vehicles[~marked], numbers[~marked])
            for vehicle, mark in zip(vehicles[marked].tolist(), numbers[marked].tolist(), strict=True):
                self._recipient.mark(publisher_of(vehicle), mark)

    def _take(self, subscriptions: Ints, vehicles: Ints, numbers: Ints) -> None:
        if not len(numbers):
            return
        self._on_delivery(vehicles)
        ids, positions = np.unique(subscriptions, return_inverse=True)
        boxes = np.array([self._box_of.get(each, -1) for each in ids.tolist()])
        for position in np.flatnonzero(boxes < 0).tolist():
            self._early.append((int(ids[position]), numbers[positions == position]))
        box_of_row = boxes[positions]
        known = box_of_row >= 0
        self._recipient.deliver(box_of_row[known], numbers[known])

    async def add(self, box: int, rectangle: Rectangle) -> None:
        change = self._recipient.issue(box, rectangle)
        await self._subscribe(box, rectangle)
        self._recipient.settle(change)

    async def remove(self, box: int) -> None:
        self._recipient.remove(box)
        subscription = self._subscriptions.pop(box, None)
        if subscription is not None:
            self._box_of[subscription.id] = box
            await subscription.unsubscribe()

    async def move(self, box: int, rectangle: Rectangle, how: Change) -> None:
        """Returns when the new rectangle is in force everywhere."""
        start = perf_counter()
        old = self._subscriptions[box]
        change = self._recipient.issue(box, rectangle, gapless=how is Change.UPDATE)
        if how is Change.UPDATE:
            await old.update(values=values_of(rectangle), gapless=True)
        else:
            self._statistics.under_way += 1
            try:
                await self._subscribe_again(box, old, rectangle, how)
            finally:
                self._statistics.under_way -= 1
        self._recipient.settle(change)
        self._statistics.changed(perf_counter() - start)

    async def _subscribe_again(self, box: int, old: Subscription, rectangle: Rectangle, how: Change) -> None:
        if how is Change.UNSUBSCRIBE_FIRST:
            await old.unsubscribe()
        await self._subscribe(box, rectangle)
        if how is Change.SUBSCRIBE_FIRST:
            await old.unsubscribe()

    async def _subscribe(self, box: int, rectangle: Rectangle) -> None:
        subscription = await self._client.subscribe(VEHICLE, BOX, values=values_of(rectangle))
        self._subscriptions[box] = subscription
        self._box_of[subscription.id] = box
        for _ in range(len(self._early)):
            subscription_id, numbers = self._early.popleft()
            if subscription_id == subscription.id:
                self._recipient.deliver(np.full(len(numbers), box), numbers)
            else:
                self._early.append((subscription_id, numbers))
