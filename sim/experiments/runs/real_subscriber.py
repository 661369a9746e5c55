"""A subscriber over a real connection, with one subscription.

It moves as a simulated client does: it leaves its broker once everything that it has sent has arrived, and
goes on with its session at the next."""

from __future__ import annotations

import asyncio
from typing import Protocol

from covey.overlay.client import Client, ClosedError, Subscription
from covey.sim.experiments.runs.observed_session import ObservedSession
from covey.sim.scenario.load import SubscriberState
from covey.sim.scenario.schedule import UpdateStep


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
