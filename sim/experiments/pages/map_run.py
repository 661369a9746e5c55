"""`covey demo map`: the city with its page, without one, or for a picture of the page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from starlette.websockets import WebSocket

from covey.sim.experiments.pages.city import City, Settings
from covey.sim.experiments.pages.live_oracle import Counts
from covey.sim.experiments.pages.map_page import GATEWAY_BROKER, MapPage
from covey.sim.experiments.pages.moving_boxes import Change
from covey.sim.experiments.pages.site import Site, picture

SIZE = (1240, 900)
"""Of the picture of the page, in pixels."""
_SHOWN_S = 4.0
"""For the picture: how long boxes change in each way."""
_SETTLE_S = 2.0
"""Before a measurement, and behind it until everything is judged."""


@dataclass(frozen=True, slots=True)
class MapOutcome:
    """What a run without a page measured; delays are those of the last 4,000 changes."""

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
        """Whether an event was missed, repeated, or delivered to a box in which it never was."""
        return self.counts.faults > 0


async def serve_map(
    settings: Settings, listen: str, announce: Callable[[str], None], screenshot: Path | None = None
) -> Counts:
    """Serve the page until SIGINT or SIGTERM, or until a screenshot of it is made; `announce` gets its
    address. The counts of events while boxes changed by update."""
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
    """The page of a city that runs."""

    async def live(websocket: WebSocket) -> None:
        await MapPage(city, websocket).run()

    return Site("map.html", city.overlay.addresses[GATEWAY_BROKER], live, listen=listen)


async def measure(settings: Settings, seconds: float) -> MapOutcome:
    """Run without a page for a time, and judge everything."""
    city = City(settings)
    async with city.running():
        failing = asyncio.create_task(city.until_failure())
        try:
            await _unless(failing, asyncio.sleep(_SETTLE_S))
            start, before = perf_counter(), await _totals(city)
            await _unless(failing, asyncio.sleep(seconds))
            after, elapsed = await _totals(city), perf_counter() - start
            await _unless(failing, asyncio.sleep(_SETTLE_S))
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


async def _unless(failing: asyncio.Task[None], work: Awaitable[Any]) -> None:
    """Await work, or raise what has ended a part of the city."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task, failing}, return_when=asyncio.FIRST_COMPLETED)
    task.cancel()
    if failing.done():
        failing.result()


def _share(outcome: MapOutcome, reached: float, count: str, rate: str) -> str:
    return f"{reached:,.0f} of {outcome.settings[count] * outcome.settings[rate]:,.0f}"


def faults_line(counts: Counts) -> str:
    """What makes a run fail, in words."""
    shares = f"{counts.missed:,} missed, {counts.duplicate:,} duplicate, {counts.late:,} late"
    return f"{shares}, {counts.stray:,} in no possible box"


def summary(outcome: MapOutcome) -> Any:
    """A table for the terminal."""
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
