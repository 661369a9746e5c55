"""One replay of the quotes through a live overlay: five broker processes, one exchange, three traders.

Nothing waits for anything it would not wait for in earnest: the exchange publishes a day's quotes as soon as
the overlay has taken the day before's (or at a given rate), while each trader awaits its own updates. So
quotes flow while changes travel, and that is what the oracle judges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from time import perf_counter
from typing import Any

import pyarrow as pa

from covey.matcher import EventType
from covey.matcher.errors import CoveyError
from covey.overlay import Client, Subscription
from covey.overlay.local_overlay import THREE_LEVELS, LocalOverlay
from covey.sim.experiments.demo.oracle import History, Verdict
from covey.sim.experiments.demo.strategies import STRATEGIES, Quote, Strategy
from covey.sim.scenario.quotes import QUOTE

EXCHANGE = "b5"
"""The broker at which the quotes enter the overlay."""

BELL = EventType("Bell", {"quotes": "int64"})
"""Rung by the exchange when all is published: whoever hears it has been sent everything before it."""


@dataclass(slots=True)
class Trader:
    """A subscriber of the demonstration: its strategy, and its history for the oracle."""

    strategy: Strategy
    history: History
    subscription: Subscription
    bell: Subscription
    waits: bool = False
    """Whether it has worked off all that it was given."""
    delays_ms: list[float] = field(default_factory=list)
    """Of each change: from asking for it until every broker that had to know had applied it."""


@dataclass(slots=True)
class Replay:
    """The state of a run, for those who watch it."""

    routing: str
    total: int
    published: int = 0
    """The position of the exchange: quotes that it has begun to publish."""
    began: float = field(default_factory=perf_counter)
    ended: float | None = None
    traders: list[Trader] = field(default_factory=list)
    brokers: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What each broker last said of itself."""
    recovery: Recovery | None = None

    @property
    def seconds(self) -> float:
        return (perf_counter() if self.ended is None else self.ended) - self.began


@dataclass(slots=True)
class Recovery:
    """What became of a broker that was killed on purpose; times in seconds since it was killed."""

    broker: str
    serving_s: float | None = None
    recovered_s: float | None = None
    """When the routing state of all brokers was again what it had been."""


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """What one run showed."""

    routing: str
    seconds: float
    published: int
    verdicts: dict[str, Verdict]
    delays_ms: list[float]
    control_messages: dict[str, int]
    recovery: Recovery | None


class Demonstration:
    """A run that can be watched through `replay` while `run` is under way.

    `resubscribe` ("unsubscribe-first" as in Jayaram et al., Fig. 2, or "subscribe-first") is the order in
    which clients change a subscription under static routing. `rate` is in quotes per second; None is as
    fast as the overlay takes them. `restart` names a broker to kill and start again half-way.
    """

    def __init__(
        self,
        quotes: pa.RecordBatch,
        *,
        routing: str,
        resubscribe: str = "unsubscribe-first",
        rate: float | None = None,
        restart: str | None = None,
    ) -> None:
        self._days = _days(quotes)
        self._quotes: list[Quote] = quotes.to_pylist()
        self._positions: dict[tuple[str, datetime], int] = {
            (quote["firm"], quote["date"]): position for position, quote in enumerate(self._quotes)
        }
        self._resubscribe = resubscribe
        self._rate = rate
        self._restart = restart
        self.replay = Replay(routing, len(self._quotes))

    async def run(self) -> DemoOutcome:
        """Starts the overlay, replays the quotes, judges, and stops everything.

        Raises `CoveyError` where the run did not come to its end.
        """
        replay = self.replay
        async with AsyncExitStack() as stack:
            overlay = await stack.enter_async_context(LocalOverlay(THREE_LEVELS, routing=replay.routing))
            exchange = await stack.enter_async_context(Client(overlay.addresses[EXCHANGE], name="exchange"))
            await exchange.advertise(QUOTE)
            await exchange.advertise(BELL)
            for strategy in STRATEGIES:
                client = Client(
                    overlay.addresses[strategy.broker],
                    name=strategy.name.replace(" ", "-"),
                    routing=replay.routing,
                    resubscribe=self._resubscribe,
                )
                replay.traders.append(await self._trader(strategy, await stack.enter_async_context(client)))

            replay.began = perf_counter()
            tasks = [asyncio.create_task(self._trade(trader)) for trader in replay.traders]
            tasks.append(asyncio.create_task(self._watch(overlay)))
            try:
                await self._unless_one_fails(self._publish(exchange, overlay), tasks)
                await self._unless_one_fails(self._until_worked_off(), tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            replay.ended = perf_counter()
            replay.brokers = await overlay.inspect()
        return DemoOutcome(
            routing=replay.routing,
            seconds=replay.seconds,
            published=replay.published,
            verdicts={trader.strategy.name: self._judge(trader) for trader in replay.traders},
            delays_ms=[delay for trader in replay.traders for delay in trader.delays_ms],
            control_messages={
                name: said["totals"]["control_received"] for name, said in replay.brokers.items()
            },
            recovery=replay.recovery,
        )

    def _judge(self, trader: Trader) -> Verdict:
        trader.history.spurious = trader.subscription.spurious
        return trader.history.judge(self._quotes)

    async def _trader(self, strategy: Strategy, client: Client) -> Trader:
        bell = await client.subscribe(BELL, "")
        subscription = await client.subscribe(QUOTE, strategy.filter, values=strategy.start)
        return Trader(strategy, History(strategy), subscription, bell)

    async def _trade(self, trader: Trader) -> None:
        """The whole of a trader: takes what comes, and moves its subscription."""
        strategy, history, replay = trader.strategy, trader.history, self.replay
        trader.waits = True
        async for quote in trader.subscription:
            trader.waits = False
            history.arrive(self._positions[quote["firm"], quote["date"]])
            values = history.values
            if strategy.wants(quote, values):
                values = strategy.move(quote, values)
            if values != history.values:
                change = history.issue(values)
                asked = perf_counter()
                await trader.subscription.update(values=values)
                change.settled = replay.published
                trader.delays_ms.append((perf_counter() - asked) * 1e3)
            trader.waits = True

    async def _publish(self, exchange: Client, overlay: LocalOverlay) -> None:
        """Publishes day by day, kills and restarts a broker half-way if asked to, and rings the bell."""
        replay = self.replay
        restarting: asyncio.Task[None] | None = None
        began = perf_counter()
        for day in self._days:
            if self._rate is not None:
                await asyncio.sleep(max(0.0, began + replay.published / self._rate - perf_counter()))
            replay.published += day.num_rows
            await exchange.publish_batch("Quote", day)
            if self._restart is not None and restarting is None and replay.published >= replay.total / 2:
                restarting = asyncio.create_task(self._restart_broker(overlay, self._restart))
        if restarting is not None:
            await restarting
        await exchange.publish("Bell", quotes=replay.published)

    async def _restart_broker(self, overlay: LocalOverlay, broker: str) -> None:
        """Kills a broker, starts it again, and waits until all brokers route as before.

        What was published meanwhile, or was on its way when the broker died, may be lost with it: nothing is
        kept on disk. What lies before an event that a trader had been given by then is not excused.
        """
        replay = self.replay
        before = _routes(await overlay.inspect())
        lows = [trader.history.last_arrival + 1 for trader in replay.traders]
        await overlay.kill(broker)
        recovery = replay.recovery = Recovery(broker)
        killed = perf_counter()
        await overlay.start(broker)
        recovery.serving_s = perf_counter() - killed
        while _routes(await overlay.inspect()) != before:
            if perf_counter() - killed > 30.0:
                raise CoveyError(f"30 s after {broker} was killed the overlay does not route as before")
            await asyncio.sleep(0.02)
        recovery.recovered_s = perf_counter() - killed
        for trader, low in zip(replay.traders, lows, strict=True):
            trader.history.excused.append((low, replay.published))

    async def _until_worked_off(self, patience_s: float = 60.0) -> None:
        """Returns when every trader has heard the bell and has worked off all that came before it."""

        async def heard(trader: Trader) -> None:
            async for _ in trader.bell:
                return

        try:
            async with asyncio.timeout(patience_s):
                await asyncio.gather(*(heard(trader) for trader in self.replay.traders))
                calm = 0
                while calm < 5:
                    await asyncio.sleep(0.02)
                    calm = calm + 1 if all(trader.waits for trader in self.replay.traders) else 0
        except TimeoutError:
            raise CoveyError(
                f"the traders did not get all within {patience_s:g} s of the last quote"
            ) from None

    async def _watch(self, overlay: LocalOverlay) -> None:
        """Asks the brokers for their counters, once a second."""
        while True:
            with suppress(CoveyError):  # a broker that was killed cannot answer
                self.replay.brokers |= await overlay.inspect()
            await asyncio.sleep(1.0)

    @staticmethod
    async def _unless_one_fails(work: Any, others: Sequence[asyncio.Task[None]]) -> None:
        """Awaits `work`; raises as soon as one of the other tasks ends, which none does but by failing."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait([task, *others], return_when=asyncio.FIRST_COMPLETED)
            for other in others:
                if other.done():
                    other.result()
                    raise CoveyError("a trader's subscription ended before its time")
            await task
        finally:
            task.cancel()


def _days(quotes: pa.RecordBatch) -> list[pa.RecordBatch]:
    """The quotes of each day, without copying."""
    days, start = [], 0
    for _, group in groupby(quotes.column("date").to_pylist()):
        length = sum(1 for _ in group)
        days.append(quotes.slice(start, length))
        start += length
    return days


def _routes(brokers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What says where events go: publishers, and how much interest each interface has."""
    return {
        broker: {
            name: (
                sorted(state["publishers"]),
                {interface: len(held) for interface, held in sorted(state["interest"].items())},
                {neighbour: len(slots) for neighbour, slots in sorted(state["slots"].items())},
            )
            for name, state in said["types"].items()
        }
        for broker, said in brokers.items()
    }
