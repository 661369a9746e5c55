"""`covey demo traders`: the replay of `covey demo` as a page, with a threshold to drag. The page gets the
quotes, changes and deliveries as they happen; its own threshold is a subscription through the gateway, with a
history for the same oracle."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from starlette.websockets import WebSocket

from covey.matcher.errors import InputError
from covey.sim.checkers.oracle import SubscriberHistory, ValueChange, Verdict
from covey.sim.experiments.demo.run import Demonstration, Quote, Trader, Values
from covey.sim.experiments.local_overlay import THREE_LEVELS, LocalOverlay
from covey.sim.experiments.pages.site import OverlayCounters, Site, converse, picture
from covey.sim.experiments.processes import every
from covey.sim.scenario.recorded import FIRMS

SIZE = (1240, 860)
_BROKERS = {"b1": (0.5, 0.0), "b2": (0.2, 0.5), "b3": (0.8, 0.5), "b4": (0.2, 1.0), "b5": (0.8, 1.0)}
_GATEWAY_BROKER = "b4"
_SEND_S = 0.1
_STATS_S = 0.5
_MOST_AT_ONCE = 500
_OWN_FIRM = "IBM"
"""Quoted in all years, so that the chart has data from the beginning."""
_OWN_FILTER = 'firm == "IBM" and price < $limit'
_OWN_START = 100.0


def _own_matches(quote: Quote, values: Values) -> bool:
    return bool(quote["firm"] == _OWN_FIRM and quote["price"] < values["limit"])


class Floor:
    def __init__(self, quotes: Any, rate: float, listen: str = "") -> None:
        self._listen = listen
        self.demonstration = Demonstration(quotes, routing="parametric", rate=rate, on_ready=self._ready)
        self.counters: OverlayCounters | None = None
        self.ended = False
        self.verdicts: dict[str, Verdict] = {}
        self._site: Site | None = None
        self._overlay_is_up = asyncio.Event()
        self._page_is_up = asyncio.Event()

    async def serve(
        self, announce: Callable[[str], None], screenshot: Path | None = None
    ) -> dict[str, Verdict]:
        """As `serve_map`; returns the verdicts on the traders, none if the replay was interrupted."""
        running = asyncio.create_task(self._run())
        judging = asyncio.create_task(every(lambda: 2.0, self._judge))
        up = asyncio.create_task(self._overlay_is_up.wait())
        try:
            await asyncio.wait({running, up}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            site = self._site
            assert site is not None

            async def show() -> None:
                while self.demonstration.replay.published < self.demonstration.replay.total * 0.6:
                    await asyncio.sleep(0.1)

            async def until() -> None:
                self._page_is_up.set()
                if screenshot is not None:
                    await picture(site, screenshot, SIZE, show)
                else:
                    await running  # its error; else the page stays until it is ended
                    await asyncio.Event().wait()

            await site.serve(announce, until)
            return self.verdicts if self.ended or screenshot is not None else {}
        finally:
            for task in (running, judging, up):
                task.cancel()
            await asyncio.gather(running, judging, up, return_exceptions=True)

    def summary(self) -> str:
        replay, verdicts = self.demonstration.replay, self.verdicts.values()
        missed, duplicate, stale = (
            sum(getattr(each, name) for each in verdicts) for name in ("missed", "duplicate", "stray")
        )
        faults = f"{missed:,} missed, {duplicate:,} duplicate, {stale:,} stale"
        return f"{replay.published:,} of {replay.total:,} quotes published, {faults}"

    async def _run(self) -> None:
        outcome = await self.demonstration.run()
        self.ended = True
        self.verdicts = outcome.verdicts

    async def _ready(self, overlay: LocalOverlay) -> None:
        self.counters = OverlayCounters(overlay.addresses, THREE_LEVELS)
        self._site = Site("traders.html", overlay.addresses[_GATEWAY_BROKER], self._live, listen=self._listen)
        self._overlay_is_up.set()
        await self._page_is_up.wait()

    def _judge(self) -> None:
        """Judge the quotes before the newest that a trader has got; only these are decided."""
        if not self.ended:
            for trader in self.demonstration.replay.traders:
                name, history = trader.strategy.name, trader.history
                self.verdicts[name] = history.judge(self.demonstration.quotes[: history.last_arrival + 1])

    async def _live(self, websocket: WebSocket) -> None:
        await FloorPage(self, websocket).run()


class FloorPage:
    """One connection. Quotes, changes and deliveries are sent from the first on."""

    def __init__(self, floor: Floor, websocket: WebSocket) -> None:
        self._floor = floor
        self._websocket = websocket
        self._quotes = 0
        self._sent: dict[str, tuple[int, int]] = {}
        self._own = SubscriberHistory[Quote, Values](_own_matches, {"limit": _OWN_START})
        self._own.changes.clear()
        self._own_sent = 0
        self._changes: dict[int, ValueChange[Values]] = {}

    async def run(self) -> None:
        parts = {self._send_news: lambda: _SEND_S, self._send_stats: lambda: _STATS_S}
        await converse(self._websocket, self._start(), parts, self._handle)

    def _start(self) -> dict[str, Any]:
        demonstration = self._floor.demonstration
        quotes = demonstration.quotes
        return {
            "kind": "start",
            "brokers": _BROKERS,
            "links": THREE_LEVELS,
            "firms": FIRMS,
            "total": len(quotes),
            "years": _years(quotes),
            "traders": [
                {
                    "name": trader.strategy.name,
                    "broker": trader.strategy.broker,
                    "filter": trader.strategy.filter,
                    "values": dict(trader.strategy.start),
                }
                for trader in demonstration.replay.traders
            ],
            "own": {"firm": _OWN_FIRM, "filter": _OWN_FILTER, "limit": _OWN_START},
        }

    async def _send_news(self) -> None:
        demonstration = self._floor.demonstration
        replay, quotes = demonstration.replay, demonstration.quotes
        until = min(replay.published, self._quotes + _MOST_AT_ONCE)
        news = quotes[self._quotes : until]
        traders = {trader.strategy.name: self._news_of(trader) for trader in replay.traders}
        arrivals = self._own.arrivals
        traders["yours"] = ([position for position, _ in arrivals[self._own_sent :]], [])
        self._own_sent = len(arrivals)
        first, self._quotes = self._quotes, until
        if news or any(any(each) for each in traders.values()):
            await self._websocket.send_json(
                {
                    "kind": "news",
                    "first": first,
                    "quotes": [[FIRMS.index(q["firm"]), q["price"], q["volume"]] for q in news],
                    "traders": traders,
                }
            )

    def _news_of(self, trader: Trader) -> tuple[list[int], list[list[Any]]]:
        """The positions of delivered quotes, and (position, values) of the changes made after them."""
        arrivals, changes = self._sent.get(trader.strategy.name, (0, 1))
        history = trader.history
        got = history.arrivals[arrivals : arrivals + _MOST_AT_ONCE]
        made = []
        for position, newest in got:
            if newest + 1 >= changes and newest + 1 < len(history.changes):
                changes = newest + 1
                made.append([position, dict(history.changes[changes].values)])
        self._sent[trader.strategy.name] = (arrivals + len(got), changes)
        return [position for position, _ in got], made

    async def _send_stats(self) -> None:
        floor = self._floor
        replay = floor.demonstration.replay
        if floor.counters is not None and not floor.ended:
            await floor.counters.read()
        delays = sorted(delay for trader in replay.traders for delay in trader.delays_ms[-500:])
        await self._websocket.send_json(
            {
                "kind": "stats",
                "published": replay.published,
                "quotes_per_s": replay.published / replay.seconds if replay.seconds else 0.0,
                "ended": floor.ended,
                "delay_ms": [delays[len(delays) // 2], delays[len(delays) * 99 // 100]] if delays else [0, 0],
                "changes": sum(len(trader.delays_ms) for trader in replay.traders),
                "verdicts": {name: _shown(verdict) for name, verdict in floor.verdicts.items()},
                "own": self._own_verdict(),
                **(floor.counters.rates() if floor.counters is not None else {}),
            }
        )

    def _own_verdict(self) -> dict[str, int]:
        own = self._own
        if not own.excused:
            return {"delivered": 0, "missed": 0, "duplicate": 0, "stale": 0}
        return _shown(own.judge(self._floor.demonstration.quotes[: own.last_arrival + 1]))

    async def _handle(self, message: dict[str, Any]) -> None:
        demonstration = self._floor.demonstration
        match message:
            case {"kind": "issue", "change": int(number), "limit": int() | float() as limit}:
                self._changes[number] = self._own.issue({"limit": float(limit)})
                await self._websocket.send_json({"kind": "issued", "change": number})
            case {"kind": "settled", "change": int(number)}:
                published = self._changes.pop(number).settled = demonstration.replay.published
                if not self._own.excused:
                    self._own.excused.append((0, published))  # it has subscribed while quotes flow
            case {"kind": "got", "items": list() as batches}:
                for firm, date in (item for batch in batches for item in batch):
                    self._own.arrive(demonstration.positions[firm, datetime.fromisoformat(date)])
            case _:
                raise InputError(f"a message is {str(message)[:100]}: expected one that pages send")


def _shown(verdict: Verdict) -> dict[str, int]:
    counts = {name: getattr(verdict, name) for name in ("delivered", "missed", "duplicate")}
    return counts | {"stale": verdict.stray}


def _years(quotes: list[Quote]) -> list[list[int]]:
    years: dict[int, int] = {}
    for position, quote in enumerate(quotes):
        years.setdefault(quote["date"].year, position)
    return [[position, year] for year, position in years.items()]


def failed(verdicts: dict[str, Verdict]) -> bool:
    """Whether a trader missed a quote, or got one twice or one that never matched."""
    return any(each.missed or each.duplicate or each.stray for each in verdicts.values())
