"""The exchange publishes a day's quotes when the overlay has accepted the previous day's (or at a rate),
while each trader awaits its own updates: quotes flow while changes propagate, and the oracle judges that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby
from time import perf_counter
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from covey.matcher import EventType
from covey.matcher.errors import CoveyError
from covey.overlay import Client, Subscription
from covey.sim.checkers.oracle import SubscriberHistory, Verdict
from covey.sim.experiments.local_overlay import THREE_LEVELS, LocalOverlay
from covey.sim.experiments.processes import unless_ended
from covey.sim.scenario.recorded import QUOTE

END_S = 2.0
"""For pending publishes at the end, and then for the brokers."""
_LOG = logging.getLogger("covey.client")


class Clients:
    def __init__(self) -> None:
        self._opened: list[Client] = []

    async def open(self, client: Client) -> Client:
        """`ConnectError` as `Client.open`."""
        await client.open()
        self._opened.append(client)
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        level = _LOG.level
        _LOG.setLevel(logging.ERROR)  # nobody misses what was published as the demonstration was ended
        try:
            await asyncio.gather(*(client.close(grace=END_S) for client in self._opened))
        finally:
            _LOG.setLevel(level)


Quote = Mapping[str, Any]
Values = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Strategy:
    """A subscriber at one broker. `matches(quote, values)` is the filter in Python; `move(quote, values)`
    returns the values after a matching quote, unchanged if the subscription remains the same."""

    name: str
    broker: str
    filter: str
    start: Values
    matches: Callable[[Quote, Values], bool]
    move: Callable[[Quote, Values], Values]


BUY_LOWER = Strategy(
    name="buy lower",
    broker="b4",
    filter='firm == "IBM" and price < $limit',
    start={"limit": 1000.0},
    matches=lambda quote, values: quote["firm"] == "IBM" and quote["price"] < values["limit"],
    move=lambda quote, values: {"limit": quote["price"]},
)
"""The paper's example (Jayaram et al., 3.2): buy below the lowest price paid so far; a purchase lowers it."""

MOVING_BAND = Strategy(
    name="moving band",
    broker="b2",
    filter='firm == "AAPL" and (price < $low or price > $high)',
    start={"low": 0.0, "high": 0.0},
    matches=lambda quote, values: (
        quote["firm"] == "AAPL" and (quote["price"] < values["low"] or quote["price"] > values["high"])
    ),
    move=lambda quote, values: {"low": 0.96 * quote["price"], "high": 1.04 * quote["price"]},
)
"""Quotes that differ by 4 % from the last one delivered; one update moves both bounds of the band."""


def _usual_volume(quote: Quote, values: Values) -> Values:
    """Moves the usual volume up above twice its value, down below 80 %."""
    volume, usual = quote["volume"], values["usual"]
    if volume > 2.0 * usual:
        return {"usual": 1.3 * usual}
    if volume < 0.8 * usual:
        return {"usual": 0.9 * usual}
    return values


BUSY_DAYS = Strategy(
    name="busy days",
    broker="b1",
    filter='firm == "MSFT" and volume > 0.7 * $usual',
    start={"usual": 1_000_000.0},
    matches=lambda quote, values: quote["firm"] == "MSFT" and quote["volume"] > 0.7 * values["usual"],
    move=_usual_volume,
)
"""Days with more than 70 % of the usual volume: most quotes match, and few of them move the threshold."""

STRATEGIES = (BUY_LOWER, MOVING_BAND, BUSY_DAYS)


EXCHANGE = "b5"

BELL = EventType("Bell", {"quotes": "int64"})
"""Published last: a client that receives it has received all quotes before it."""


@dataclass(slots=True)
class Trader:
    strategy: Strategy
    history: SubscriberHistory[Quote, Values]
    subscription: Subscription
    bell: Subscription
    idle: bool = False
    """Whether it has processed all delivered quotes."""
    delays_ms: list[float] = field(default_factory=list)
    """Per change, from the call of `update` until all affected brokers have applied it."""


@dataclass(slots=True)
class Replay:
    routing: str
    total: int
    published: int = 0
    start: float = field(default_factory=perf_counter)
    end: float | None = None
    traders: list[Trader] = field(default_factory=list)
    brokers: dict[str, dict[str, Any]] = field(default_factory=dict)
    recovery: Recovery | None = None

    @property
    def seconds(self) -> float:
        return (perf_counter() if self.end is None else self.end) - self.start


@dataclass(slots=True)
class Recovery:
    """The recovery of a broker that was killed on purpose. Times are in s since the kill; `recovered_s` is
    when the routing state of all brokers was as before."""

    broker: str
    serving_s: float | None = None
    recovered_s: float | None = None


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    routing: str
    seconds: float
    published: int
    verdicts: dict[str, Verdict]
    delays_ms: list[float]
    control_messages: dict[str, int]
    recovery: Recovery | None


class Demonstration:
    """One run; `replay` is its state while `run` executes.

    `resubscribe` ("unsubscribe-first" as in Jayaram et al., Fig. 2, or "subscribe-first") is how clients
    change subscriptions under static routing. `rate` is in quotes per second; None is as fast as the overlay
    accepts them. `restart` names a broker to kill and start again half-way. `on_ready` is awaited with the
    overlay when the traders have subscribed, before the first quote.
    """

    def __init__(
        self,
        quotes: pa.RecordBatch,
        *,
        routing: str,
        resubscribe: str = "unsubscribe-first",
        rate: float | None = None,
        restart: str | None = None,
        on_ready: Callable[[LocalOverlay], Awaitable[None]] | None = None,
    ) -> None:
        self._days = _days(quotes)
        self.quotes: list[Quote] = quotes.to_pylist()
        self.positions: dict[tuple[str, datetime], int] = {
            (quote["firm"], quote["date"]): position for position, quote in enumerate(self.quotes)
        }
        self._resubscribe = resubscribe
        self._rate = rate
        self._restart = restart
        self._on_ready = on_ready
        self.replay = Replay(routing, len(self.quotes))

    async def run(self) -> DemoOutcome:
        """Raises `CoveyError` if the run did not finish."""
        replay = self.replay
        overlay = LocalOverlay(THREE_LEVELS, routing=replay.routing, compiled=False, drain_s=END_S)
        async with overlay, Clients() as clients:
            exchange = Client(overlay.addresses[EXCHANGE], name="exchange")
            await clients.open(exchange)
            await exchange.advertise(QUOTE)
            await exchange.advertise(BELL)
            for strategy in STRATEGIES:
                client = Client(
                    overlay.addresses[strategy.broker],
                    name=strategy.name.replace(" ", "-"),
                    routing=replay.routing,
                    resubscribe=self._resubscribe,
                )
                await clients.open(client)
                replay.traders.append(await self._trader(strategy, client))

            if self._on_ready is not None:
                await self._on_ready(overlay)
            replay.start = perf_counter()
            tasks = [asyncio.create_task(self._trade(trader)) for trader in replay.traders]
            tasks.append(asyncio.create_task(self._poll(overlay)))
            try:
                await unless_ended(self._publish(exchange, overlay), tasks)
                await unless_ended(self._until_idle(), tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
            replay.end = perf_counter()
            replay.brokers = await overlay.inspect()
        return DemoOutcome(
            routing=replay.routing,
            seconds=replay.seconds,
            published=replay.published,
            verdicts={trader.strategy.name: self._judge(trader) for trader in replay.traders},
            delays_ms=[delay for trader in replay.traders for delay in trader.delays_ms],
            control_messages={
                name: state["totals"]["control_received"] for name, state in replay.brokers.items()
            },
            recovery=replay.recovery,
        )

    def _judge(self, trader: Trader) -> Verdict:
        trader.history.spurious = trader.subscription.spurious
        return trader.history.judge(self.quotes)

    async def _trader(self, strategy: Strategy, client: Client) -> Trader:
        bell = await client.subscribe(BELL, "")
        subscription = await client.subscribe(QUOTE, strategy.filter, values=strategy.start)
        return Trader(strategy, SubscriberHistory(strategy.matches, strategy.start), subscription, bell)

    async def _trade(self, trader: Trader) -> None:
        strategy, history, replay = trader.strategy, trader.history, self.replay
        trader.idle = True
        async for quote in trader.subscription:
            trader.idle = False
            history.arrive(self.positions[quote["firm"], quote["date"]])
            values = history.values
            if strategy.matches(quote, values):
                values = strategy.move(quote, values)
            if values != history.values:
                change = history.issue(values)
                start = perf_counter()
                await trader.subscription.update(values=values)
                change.settled = replay.published
                trader.delays_ms.append((perf_counter() - start) * 1e3)
            trader.idle = True

    async def _publish(self, exchange: Client, overlay: LocalOverlay) -> None:
        replay = self.replay
        restarting: asyncio.Task[None] | None = None
        start = perf_counter()
        for day in self._days:
            if self._rate is not None:
                await asyncio.sleep(max(0.0, start + replay.published / self._rate - perf_counter()))
            replay.published += day.num_rows
            await exchange.publish_batch("Quote", day)
            if self._restart is not None and restarting is None and replay.published >= replay.total / 2:
                restarting = asyncio.create_task(self._restart_broker(overlay, self._restart))
        if restarting is not None:
            await restarting
        await exchange.flush()  # else the bell, of another type, might pass quotes
        await exchange.publish("Bell", quotes=replay.published)

    async def _restart_broker(self, overlay: LocalOverlay, broker: str) -> None:
        """Kill a broker, restart it, and wait until the routing state of all brokers is as before.

        Events published meanwhile or in flight at the kill may be lost, since nothing is stored on disk, and
        are excused; events before a trader's latest delivery are not.
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
                raise CoveyError(f"30 s after {broker} was killed the routing state is not as before")
            await asyncio.sleep(0.02)
        recovery.recovered_s = perf_counter() - killed
        for trader, low in zip(replay.traders, lows, strict=True):
            trader.history.excused.append((low, replay.published))

    async def _until_idle(self, timeout_s: float = 60.0) -> None:
        """Wait until every trader has received the bell and has processed all quotes before it."""

        async def bell_received(trader: Trader) -> None:
            async for _ in trader.bell:
                return

        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.gather(*(bell_received(trader) for trader in self.replay.traders))
                idle_checks = 0
                while idle_checks < 5:
                    await asyncio.sleep(0.02)
                    idle_checks = idle_checks + 1 if all(trader.idle for trader in self.replay.traders) else 0
        except TimeoutError:
            raise CoveyError(
                f"the traders did not receive all quotes within {timeout_s:g} s of the last quote"
            ) from None

    async def _poll(self, overlay: LocalOverlay) -> None:
        while True:
            with suppress(CoveyError):  # a killed broker does not respond
                self.replay.brokers |= await overlay.inspect()
            await asyncio.sleep(1.0)


def _days(quotes: pa.RecordBatch) -> list[pa.RecordBatch]:
    days, start = [], 0
    for _, group in groupby(quotes.column("date").to_pylist()):
        length = sum(1 for _ in group)
        days.append(quotes.slice(start, length))
        start += length
    return days


def _routes(brokers: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Per broker and type, the publishers, and the numbers of filters and slots per interface."""
    return {
        broker: {
            name: (
                sorted(state["publishers"]),
                {interface: len(filters) for interface, filters in sorted(state["interest"].items())},
                {neighbour: len(slots) for neighbour, slots in sorted(state["slots"].items())},
            )
            for name, state in core["types"].items()
        }
        for broker, core in brokers.items()
    }
