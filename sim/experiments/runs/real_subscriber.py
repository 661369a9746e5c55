"""A subscriber over a real connection, with one subscription; it moves by leaving and joining again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from covey.overlay.client import Client, ClosedError
from covey.sim.experiments.runs.observed_session import ObservedSession
from covey.sim.scenario.load import SubscriberState
from covey.sim.scenario.schedule import UpdateStep

Open = Callable[[str, str], Awaitable[Client]]
"""Opens a client of this name at a broker."""


class RealSubscriber:
    """`on_events` is called with every batch of delivered events."""

    def __init__(
        self, name: str, state: SubscriberState, open_client: Open, on_events: Callable[[], None]
    ) -> None:
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
        self._subscription = await self._client.subscribe(
            self.state.filter.event_type, self.state.filter, values=self._values
        )
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for _ in self._subscription.batches():
            self._on_events()

    async def update(self, step: UpdateStep) -> None:
        """Update at once; during a move to another broker only collect the values."""
        self._values |= step.values
        if self._moving.locked():
            return
        if step.broker == self._broker:
            session = self._session
            try:
                await self._subscription.update(values=step.values)
            except ClosedError:
                if session.present:
                    raise  # else a later step moves it meanwhile, with these values
            return
        async with self._moving:
            self._subscription.update_nowait(values=step.values)
            await self.leave()
            self._broker = step.broker
            await self.join()
            newer = {n: v for n, v in self._values.items() if self._subscription.values[n] != v}
            if newer:
                self._subscription.update_nowait(values=newer)

    async def leave(self) -> None:
        self._session.leave()
        await self._client.close()
        if self._reader is not None:
            await self._reader
