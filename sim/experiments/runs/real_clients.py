"""Clients of a real run: their sessions call the observers as simulated clients do, so one judge and one
trace serve both. A subscriber moves as a simulated one: it leaves its broker once everything that it has
sent has arrived, and goes on with its session at the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from covey.overlay.client import Client, ClosedError, Subscription
from covey.overlay.core.client.actions import ClientAction, DeliverTo, Settled
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import Refuse
from covey.sim.scenario.load import SubscriberState
from covey.sim.scenario.schedule import UpdateStep

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType, Filter
    from covey.overlay.core.messages import Deliver, Message, Publish
    from covey.sim.simulator.observer import Observer

class ObservedSession(ClientSession):
    """An `ObservedClient`. A client that moves goes on with it at another broker."""

    def __init__(
        self,
        name: str,
        broker: str,
        routing: str,
        resubscribe: str,
        observers: Iterable[Observer],
    ) -> None:
        super().__init__(name.removeprefix("client/"), routing=routing, resubscribe=resubscribe)
        self.name = name
        self.broker = broker
        self.present = True
        self.durable = False
        self._observers = observers
        for observer in observers:
            observer.joined(self)

    @property
    def session(self) -> ClientSession:
        return self

    def move(self, broker: str) -> None:
        """The connection to the old broker is closed; the next one is to `broker`."""
        self.broker = broker
        for observer in self._observers:
            observer.moved(self, broker)

    def leave(self) -> None:
        """The user leaves."""
        self.present = False
        for observer in self._observers:
            observer.left(self, False)

    # --- calls of the user ----------------------------------------------------------------------------------

    def advertise(
        self, event_type: EventType, filter: Filter | None = None, *, report_listeners: bool = False
    ) -> list[Message]:
        messages = super().advertise(event_type, filter, report_listeners=report_listeners)
        if messages:
            for observer in self._observers:
                observer.advertised(self, event_type)
        return messages

    def subscribe(
        self, filter: Filter, values: Mapping[str, object] | None = None, **times_ns: int
    ) -> tuple[int, list[Message]]:
        subscription_id, messages = super().subscribe(filter, values, **times_ns)
        for observer in self._observers:
            observer.subscribed(self, subscription_id)
        return subscription_id, messages

    def update(
        self,
        subscription_id: int,
        values: Mapping[str, object],
        *,
        traceparent: str = "",
        **times_ns: int,
    ) -> list[Message]:
        old = self.values(subscription_id)
        messages = super().update(subscription_id, values, traceparent=traceparent, **times_ns)
        if messages:
            for observer in self._observers:
                observer.updated(self, subscription_id, old)
        return messages

    def publish(self, batch: EventBatch) -> Publish:
        message = super().publish(batch)
        for observer in self._observers:
            observer.published(self, message.batch)
        return message

    # --- messages of the broker -----------------------------------------------------------------------------

    def shares(self, message: Deliver) -> list[DeliverTo]:
        self._notify_received(message)
        shares = super().shares(message)
        for share in shares if self.present else ():
            for observer in self._observers:
                observer.delivered(self, share)
        return shares

    def _notify_received(self, message: Message) -> None:
        for observer in self._observers if self.present else ():
            observer.received(self.broker, self.name, message)

    def receive(self, message: Message) -> list[ClientAction]:
        self._notify_received(message)
        actions = super().receive(message)
        for action in actions if self.present else ():
            for observer in self._observers:
                if isinstance(action, Settled):
                    observer.settled(self, action.epoch)
                elif isinstance(action, Refuse):
                    observer.refused(self, action)
        return actions


class Open(Protocol):
    """Opens a client of this name at a broker, a new one or one that goes on with a session."""

    async def __call__(
        self, name: str, broker: str, session: ObservedSession | None = None, /
    ) -> Client: ...


class OnEvents(Protocol):
    """Called with every batch of delivered events."""

    def __call__(self) -> None: ...


class RealSubscriber:
    """One subscriber, which calls `on_events` with every batch of delivered events."""

    def __init__(self, name: str, state: SubscriberState, open_client: Open, on_events: OnEvents) -> None:
        self.state = state
        self._values = dict(state.values)
        self._open_client = open_client
        self._on_events = on_events
        self._name = name
        self._broker = state.broker
        self._moving = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None

    @property
    def settled(self) -> bool:
        """Whether all its control messages have taken effect."""
        return not self._moving.locked() and self._session.settled == self._session.epoch

    async def join(self) -> None:
        self._client = await self._open_client(self._name, self._broker)
        session = self._client.session
        assert isinstance(session, ObservedSession)
        self._session = session
        self._read(
            await self._client.subscribe(
                self.state.filter.event_type, self.state.filter, values=self._values
            )
        )

    def _read(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._reader = asyncio.create_task(self._read_batches(subscription))

    async def _read_batches(self, subscription: Subscription) -> None:
        async for _ in subscription.batches():
            self._on_events()

    async def update(self, step: UpdateStep) -> None:
        """Update at once; during a move to another broker only collect the values."""
        self._values |= step.values
        if self._moving.locked():
            return
        if step.broker == self._broker:
            client = self._client
            try:
                await self._subscription.update(values=step.values)
            except ClosedError:
                if client is self._client and not self._moving.locked():
                    raise  # else a later step moves it meanwhile, with these values
            return
        async with self._moving:
            self._subscription.update_nowait(values=step.values)
            await self._close()
            self._broker = step.broker
            self._session.move(f"broker/{step.broker}")
            self._client = await self._open_client(self._name, step.broker, self._session)
            self._read(self._client.subscription(self._subscription.id))
            if self._values != self._subscription.values:
                self._subscription.update_nowait(values=self._values)

    async def leave(self) -> None:
        self._session.leave()
        await self._close()

    async def _close(self) -> None:
        await self._client.close()
        if self._reader is not None:
            await self._reader
