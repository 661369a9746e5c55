"""`covey demo map`: the city with its page, without one, or for a picture of the page. A frame to the page is
binary, little-endian: the numbers of vehicles and of boxes as uint32; x of all vehicles, y of all, and x0,
x1, y0, y1 of each box as uint16 in 1/64; a byte per vehicle that is 1 where a box has it. Everything else is
JSON."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from starlette.websockets import WebSocket

from covey.matcher.errors import InputError
from covey.sim.experiments.pages.city import EXTENT, LINKS, PLACES, City, Settings
from covey.sim.experiments.pages.live_oracle import Change as OracleChange
from covey.sim.experiments.pages.live_oracle import Counts, Rectangle
from covey.sim.experiments.pages.moving_boxes import BOX, Change, publisher_of
from covey.sim.experiments.pages.site import Demand, Site, converse, picture
from covey.sim.experiments.processes import unless_ended

_FRAMES = 10
_STATS_S = 0.25
_SCALE = 64
_OWN_BOX = 0
_RATES_OVER = 8


class MapPage:
    def __init__(self, city: City, websocket: WebSocket) -> None:
        self._city = city
        self._websocket = websocket
        self._recipient = city.recipient()
        self._changes: dict[int, OracleChange] = {}
        self._rectangle: Rectangle | None = None
        self._demand = Demand(_RATES_OVER)

    async def run(self) -> None:
        parts = {self._send_frame: lambda: 1 / _FRAMES, self._send_stats: lambda: _STATS_S}
        try:
            await converse(self._websocket, self._start(), parts, self._handle)
        finally:
            self._city.leave(self._recipient)

    # --- to the page --------------------------------------------------------------------------------

    def _start(self) -> dict[str, Any]:
        city = self._city
        return {
            "kind": "start",
            "extent": EXTENT,
            "roads": [road[::3].round(1).tolist() for road in city.roads.highways],
            "brokers": {name: list(place) for name, place in PLACES.items()},
            "links": LINKS,
            "filter": BOX,
            "settings": asdict(city.settings),
        }

    async def _send_frame(self) -> None:
        city = self._city
        side = city.settings.side / 2
        x, y, boxes = city.fleet.x, city.fleet.y, city.boxes
        corners = np.column_stack(
            (x[:boxes] - side, x[:boxes] + side, y[:boxes] - side, y[:boxes] + side)
        ).clip(0.0, EXTENT)
        numbers = [(each * _SCALE).astype("<u2").tobytes() for each in (x, y, corners)]
        head = struct.pack("<II", len(x), boxes)
        await self._websocket.send_bytes(head + b"".join(numbers) + city.lit().astype(np.uint8).tobytes())

    async def _send_stats(self) -> None:
        city, counts = self._city, self._city.oracle.total()
        settings, demand = city.settings, self._demand
        demand.count(
            perf_counter(),
            {"reports": city.reports, "delivered": counts.delivered, "changes": city.statistics.changes},
            {"reports": len(city.fleet) * settings.rate, "changes": city.boxes * settings.changes},
        )
        p50, p99 = city.statistics.percentiles_ms()
        faults, city_faults = [], city.oracle.faults
        while city_faults:
            faults.append(city_faults.popleft())
        await self._websocket.send_json(
            {
                "kind": "stats",
                "vehicles": len(city.fleet),
                "boxes": city.boxes,
                "per_s": demand.reached_per_s,
                "demanded_per_s": demand.demanded_per_s,
                "behind": demand.behind,
                "control_per_change": city.control_per_change,
                "delay_ms": [p50, p99],
                "lit": int(city.lit().sum()),
                "inside": None if self._rectangle is None else city.inside(self._rectangle),
                "eras": {era: asdict(each) for era, each in city.oracle.counts.items()},
                "how": city.settings.how,
                "keep_s": city.keep_s,
                "faults": faults,
                **city.counters.rates(),
            }
        )

    # --- from the page ------------------------------------------------------------------------------

    async def _handle(self, message: dict[str, Any]) -> None:
        match message:
            case {"kind": "set", "name": "boxes" | "rate" | "speed" | "changes" as name, "value": value}:
                self._set(name, value)
                await self._city.resize()
            case {"kind": "switch", "how": how}:
                await self._city.switch(_how(how))
                await self._websocket.send_json({"kind": "switched", "how": self._city.settings.how})
            case {"kind": "issue", "change": int(number), "rectangle": rectangle}:
                self._rectangle = _rectangle(rectangle)
                self._changes[number] = self._recipient.issue(_OWN_BOX, self._rectangle)
                await self._websocket.send_json({"kind": "issued", "change": number})
            case {"kind": "settled", "change": int(number)}:
                self._recipient.settle(self._changes.pop(number))
            case {"kind": "got", "items": items}:
                self._got(items)
            case {"kind": "lost"}:
                self._recipient.forgive()
            case _:
                raise InputError(f"a message is {str(message)[:100]}: expected one that pages send")

    def _set(self, name: str, value: Any) -> None:
        if name == "boxes":
            value = int(value)
        changed = Settings(**(asdict(self._city.settings) | {name: value}))
        setattr(self._city.settings, name, getattr(changed, name))

    def _got(self, items: list[Any]) -> None:
        """Items are in the order of arrival: numbers of events, or the event of a mark."""
        for item in items:
            if isinstance(item, dict):
                self._recipient.mark(publisher_of(int(item["id"])), int(item["number"]))
            else:
                numbers = np.array(item, np.int64)
                self._recipient.deliver(np.full(len(numbers), _OWN_BOX), numbers)


GATEWAY_BROKER = "b4"


def _how(text: object) -> Change:
    try:
        return Change(str(text))
    except ValueError:
        raise InputError(f"how is {text!r}: expected one of {', '.join(Change)}") from None


def _rectangle(given: object) -> Rectangle:
    if not isinstance(given, list) or len(given) != 4:
        raise InputError(f"rectangle is {given!r}: expected four numbers")
    x0, x1, y0, y1 = (float(each) for each in given)
    return x0, x1, y0, y1


SIZE = (1240, 900)
"""Of the picture of the page, in pixels."""
_SHOWN_S = 4.0
"""For the picture, the time for each way of changing boxes."""
_SETTLE_S = 2.0
"""Before a measurement, and after it until everything is judged."""


@dataclass(frozen=True, slots=True)
class MapOutcome:
    """The measurements of a run without a page; delays are those of the last 4,000 changes."""

    settings: dict[str, Any]
    seconds: float
    reports_per_s: float
    delivered_per_s: float
    changes_per_s: float
    delay_p50_ms: float
    delay_p99_ms: float
    control_per_change: float
    counts: Counts

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def failed(self) -> bool:
        """Whether an event was missed, repeated, late, or delivered to a box in which it never was."""
        return self.counts.faults > 0


async def serve_map(
    settings: Settings, listen: str, announce: Callable[[str], None], screenshot: Path | None = None
) -> Counts:
    """Serve the page until SIGINT or SIGTERM, or until its screenshot is made; `announce` gets its address.
    Returns the counts of events while boxes changed by update."""
    city = City(settings)
    async with city.running():
        site = site_of(city, listen)

        async def show() -> None:
            for how in (*Change, Change.UPDATE):
                await city.switch(how)
                await asyncio.sleep(_SHOWN_S)

        until = city.until_failure if screenshot is None else partial(picture, site, screenshot, SIZE, show)
        await site.serve(announce, until)
    return city.oracle.counts.get(Change.UPDATE, Counts())


def site_of(city: City, listen: str = "") -> Site:
    async def live(websocket: WebSocket) -> None:
        await MapPage(city, websocket).run()

    return Site("map.html", city.overlay.addresses[GATEWAY_BROKER], live, listen=listen)


async def measure(settings: Settings, seconds: float) -> MapOutcome:
    city = City(settings)
    async with city.running():
        failing = asyncio.create_task(city.until_failure())
        try:
            await unless_ended(asyncio.sleep(_SETTLE_S), [failing])
            start, before = perf_counter(), await _totals(city)
            await unless_ended(asyncio.sleep(seconds), [failing])
            after, elapsed = await _totals(city), perf_counter() - start
            await unless_ended(asyncio.sleep(_SETTLE_S), [failing])
        finally:
            failing.cancel()
        reports, changes, control = (a - b for a, b in zip(after, before, strict=True))
        p50, p99 = city.statistics.percentiles_ms()
        counts = city.oracle.total()
    return MapOutcome(
        settings=asdict(settings),
        seconds=round(elapsed, 2),
        reports_per_s=round(reports / elapsed, 1),
        delivered_per_s=round(counts.delivered / (elapsed + 2 * _SETTLE_S), 1),
        changes_per_s=round(changes / elapsed, 1),
        delay_p50_ms=round(p50, 2),
        delay_p99_ms=round(p99, 2),
        control_per_change=round(control / changes, 2) if changes else 0.0,
        counts=counts,
    )


async def _totals(city: City) -> tuple[int, int, int]:
    await city.counters.read()
    return city.reports, city.statistics.changes, city.counters.control_messages


def _share(outcome: MapOutcome, reached: float, count: str, rate: str) -> str:
    return f"{reached:,.0f} of {outcome.settings[count] * outcome.settings[rate]:,.0f}"


def faults_line(counts: Counts) -> str:
    shares = f"{counts.missed:,} missed, {counts.duplicate:,} duplicate, {counts.late:,} late"
    return f"{shares}, {counts.stray:,} in no possible box"


def summary(outcome: MapOutcome) -> Any:
    from rich.table import Table

    title = f"{outcome.seconds:g} s, boxes change by {outcome.settings['how']}"
    table = Table("what", "measured", title=title)
    table.columns[1].justify = "right"
    counts = outcome.counts
    for what, value in (
        ("vehicles, boxes", f"{outcome.settings['vehicles']:,}, {outcome.settings['boxes']:,}"),
        ("reports/s, of asked", _share(outcome, outcome.reports_per_s, "vehicles", "rate")),
        ("delivered/s", f"{outcome.delivered_per_s:,.0f}"),
        ("changes/s, of asked", _share(outcome, outcome.changes_per_s, "boxes", "changes")),
        ("delay of a change, p50 / p99", f"{outcome.delay_p50_ms:.1f} / {outcome.delay_p99_ms:.1f} ms"),
        ("control messages per change", f"{outcome.control_per_change:.1f}"),
        ("expected events", f"{counts.expected:,}"),
        ("missed", f"{counts.missed:,}"),
        ("duplicate", f"{counts.duplicate:,}"),
        ("late, once judged", f"{counts.late:,}"),
        ("in no possible box", f"{counts.stray:,}"),
        ("undecided", f"{counts.undecided:,}"),
        ("not judged", f"{counts.unjudged:,}"),
    ):
        table.add_row(what, value)
    return table
