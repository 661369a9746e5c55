"""The map's overlay: six broker processes over the city, real publishers and boxes, and the oracle, with a
page or without.

The vehicles in a broker's part of the city report their places through a publisher there, by turns. Some
vehicles have a box around them, which moves with them. The city is that of the highway traffic management
(HTM) of Jayaram et al., section 5.4: 1000 x 1000, with highways from west to east and from south to north. A
vehicle's place is one number, the way along all highways laid end to end, so all vehicles move by a few array
operations.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from covey.matcher.errors import InputError
from covey.overlay import Client
from covey.sim.experiments.demo.run import END_S, Clients
from covey.sim.experiments.local_overlay import LocalOverlay
from covey.sim.experiments.pages.live_oracle import LiveOracle, Recipient, Rectangle
from covey.sim.experiments.pages.moving_boxes import VEHICLE, BoxClient, Change, Statistics, mark_of
from covey.sim.experiments.pages.site import OverlayCounters
from covey.sim.experiments.processes import every

if TYPE_CHECKING:
    from covey.testing import LocalBrokers

EXTENT = 1000.0

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_WEST_EAST = (150.0, 390.0, 640.0, 870.0)
_SOUTH_NORTH = (120.0, 340.0, 590.0, 850.0)
_BEND = 42.0
_STEP = 4.0
_GAP = 1_000.0
"""Between two highways laid end to end, so that nothing is interpolated across."""
_LANE = 2.5
_TURNS = 0.35


class RoadNetwork:
    """Highways as curves through their crossings, the same in every run."""

    def __init__(self) -> None:
        draw = np.random.default_rng(7)
        crossings = np.empty((len(_WEST_EAST), len(_SOUTH_NORTH), 2))
        for row, y in enumerate(_WEST_EAST):
            for column, x in enumerate(_SOUTH_NORTH):
                crossings[row, column] = np.array((x, y)) + draw.uniform(-_BEND, _BEND, 2)
        self.highways: list[Floats] = []
        """By highway, its points (n, 2)."""
        knots: list[tuple[Floats, Ints]] = []
        for row in range(len(_WEST_EAST)):
            ends = ((0.0, crossings[row, 0, 1]), (EXTENT, crossings[row, -1, 1]))
            knots.append(self._add(crossings[row], ends))
        for column in range(len(_SOUTH_NORTH)):
            ends = ((crossings[0, column, 0], 0.0), (crossings[-1, column, 0], EXTENT))
            knots.append(self._add(crossings[:, column], ends))
        self._lay(knots)

    def _add(self, through: Floats, ends: tuple[tuple[float, float], ...]) -> tuple[Floats, Ints]:
        """A highway through these points: the arc lengths of its points, and the crossings' indices."""
        given = np.vstack((ends[0], through, ends[1]))
        points, indices = [given[0]], []
        for piece in range(len(given) - 1):
            before, after = given[max(piece - 1, 0)], given[min(piece + 2, len(given) - 1)]
            a, b = given[piece], given[piece + 1]
            count = max(2, int(np.hypot(*(b - a)) / _STEP))
            t = np.linspace(0.0, 1.0, count + 1)[1:, None]
            points.extend(
                0.5 * (2 * a + (b - before) * t + (2 * before - 5 * a + 4 * b - after) * t**2
                       + (3 * a - before - 3 * b + after) * t**3)
            )  # fmt: skip
            indices.append(len(points) - 1)
        highway = np.array(points).clip(0.0, EXTENT)
        self.highways.append(highway)
        lengths = np.concatenate(([0.0], np.hypot(*np.diff(highway, axis=0).T).cumsum()))
        return lengths, np.array(indices[:-1])

    def _lay(self, knots: list[tuple[Floats, Ints]]) -> None:
        offset, arcs, starts, ends, at = 0.0, [], [], [], []
        for lengths, indices in knots:
            arcs.append(offset + lengths)
            starts.append(offset)
            ends.append(offset + lengths[-1])
            at.append(offset + lengths[indices])
            offset += lengths[-1] + _GAP
        self._arcs = np.concatenate(arcs)
        points = np.vstack(self.highways)
        tangents = np.vstack([np.gradient(highway, axis=0) for highway in self.highways])
        tangents /= np.hypot(*tangents.T)[:, None]
        self._points, self._normals = points, np.column_stack((-tangents[:, 1], tangents[:, 0]))
        self._starts, self._ends = np.array(starts), np.array(ends)
        across = np.array(at[: len(_WEST_EAST)])  # [row, column]
        along = np.array(at[len(_WEST_EAST) :]).T
        crossings = np.concatenate((across.ravel(), along.ravel()))
        partners = np.concatenate((along.ravel(), across.ravel()))
        order = np.argsort(crossings)
        self._crossings, self._partners = crossings[order], partners[order]

    def random_places(self, count: int, draw: np.random.Generator) -> Floats:
        """Ways along the highways, evenly spread."""
        lengths = self._ends - self._starts
        highway = draw.choice(len(lengths), size=count, p=lengths / lengths.sum())
        return np.asarray(self._starts[highway] + draw.random(count) * lengths[highway])

    def positions(self, ways: Floats, directions: Floats) -> tuple[Floats, Floats]:
        """x and y, on the lane of the direction."""
        lane = _LANE * directions
        x, y = (
            np.interp(ways, self._arcs, self._points[:, i])
            + lane * np.interp(ways, self._arcs, self._normals[:, i])
            for i in (0, 1)
        )
        return x.clip(0.0, EXTENT), y.clip(0.0, EXTENT)

    def drive(
        self, ways: Floats, directions: Floats, steps: Floats, draw: np.random.Generator
    ) -> tuple[Floats, Floats]:
        """The ways and directions after `steps`, which are shorter than the distance of two crossings."""
        after = ways + directions * steps
        highway = np.searchsorted(self._starts, ways, "right") - 1
        starts, ends = self._starts[highway], self._ends[highway]
        directions = np.where((after < starts) | (after > ends), -directions, directions)
        after = after.clip(starts, ends)
        low, high = (np.searchsorted(self._crossings, each) for each in (ways, after))
        turning = np.flatnonzero((low != high) & (draw.random(len(ways)) < _TURNS))
        after[turning] = self._partners[np.minimum(low, high)[turning]]
        directions[turning] = draw.choice((-1.0, 1.0), size=len(turning))
        return after, directions


class Fleet:
    """Vehicles: `x` and `y` now, `speeds` in units per second."""

    def __init__(self, roads: RoadNetwork, count: int, seed: int = 0) -> None:
        self._roads = roads
        self._draw = np.random.default_rng(seed)
        self._ways = roads.random_places(count, self._draw)
        self._directions = self._draw.choice((-1.0, 1.0), size=count)
        self.speeds = self._draw.uniform(14.0, 34.0, count)
        self.x, self.y = roads.positions(self._ways, self._directions)

    def __len__(self) -> int:
        return len(self.x)

    def drive(self, seconds: float, factor: float) -> None:
        """Drive for `seconds` at their speeds times `factor`."""
        steps = np.minimum(self.speeds * seconds * factor, 60.0)
        self._ways, self._directions = self._roads.drive(self._ways, self._directions, steps, self._draw)
        self.x, self.y = self._roads.positions(self._ways, self._directions)


PLACES = {
    "b1": (190.0, 270.0),
    "b2": (500.0, 230.0),
    "b3": (810.0, 270.0),
    "b4": (190.0, 730.0),
    "b5": (500.0, 770.0),
    "b6": (810.0, 730.0),
}
LINKS = (("b2", "b1"), ("b2", "b3"), ("b2", "b5"), ("b5", "b4"), ("b5", "b6"))

MOST_VEHICLES, MOST_BOXES = 20_000, 1_000
MOST_SPEED = 4.0
_TICKS = 10
"""Moves of the vehicles per second; at each a share of them reports."""
_MARK_S = 0.25
_JUDGE_S = 0.25
_MEASURED = 12
_READ_S = 0.5
_SWITCH_S = 5.0
LIT_PERIODS = 2.5
"""A light goes out after this many report periods without a report of its vehicle."""


@dataclass(slots=True)
class Settings:
    """The values of the page's sliders; `rate` is in reports per second of each vehicle, `changes` in changes
    per second of each box."""

    vehicles: int = 400
    boxes: int = 24
    side: float = 120.0
    rate: float = 5.0
    changes: float = 10.0
    speed: float = 1.0
    how: Change = Change.UPDATE

    def __post_init__(self) -> None:
        for name, value, low, high in (
            ("vehicles", self.vehicles, 1, MOST_VEHICLES),
            ("boxes", self.boxes, 0, min(MOST_BOXES, self.vehicles)),
            ("side", self.side, 1.0, EXTENT),
            ("rate", self.rate, 0.1, float(_TICKS)),
            ("changes", self.changes, 0.1, 100.0),
            ("speed", self.speed, 0.0, MOST_SPEED),
        ):
            if not isinstance(value, int | float) or not low <= value <= high:
                raise InputError(f"{name} is {value}: expected {low:g} to {high:g}")


class City:
    """Runs within the block of `running`, by default over broker processes. `resize` and `switch` follow
    changes of `settings`."""

    def __init__(self, settings: Settings, overlay: LocalBrokers | None = None) -> None:
        self.settings = settings
        self.overlay = overlay or LocalOverlay(LINKS, compiled=False, drain_s=END_S)
        self.roads = RoadNetwork()
        self.fleet = Fleet(self.roads, settings.vehicles)
        self.statistics = Statistics()
        self.oracle = LiveOracle(len(PLACES), perf_counter, settings.how)
        self.reports = 0
        self.reports_per_s = 0.0
        """Averaged over the last seconds."""
        self.heard = np.full(settings.vehicles, -np.inf)
        """By vehicle, when it was last delivered to a box."""
        self.control_per_change = 0.0
        """Control messages over links per change, since the last switch."""
        self.error: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._opened = Clients()
        self._publishers: list[Client] = []
        self._boxes: list[BoxClient] = []
        self._movers: dict[int, asyncio.Task[None]] = {}
        self._order = np.random.default_rng(1).permutation(settings.vehicles)
        self._turn = 0.0
        self._measured: deque[tuple[float, int]] = deque(maxlen=_MEASURED)
        self._failed = asyncio.Event()
        self._switching = asyncio.Lock()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[City]:
        async with self.overlay, self._opened:
            self.counters = OverlayCounters(self.overlay.addresses, LINKS)
            try:
                await self._connect()
                yield self
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connect(self) -> None:
        for broker, address in self.overlay.addresses.items():
            publisher = await self._opened.open(Client(address, name=f"vehicles-{broker}"))
            self._publishers.append(publisher)
            await publisher.advertise(VEHICLE)
        for broker, address in self.overlay.addresses.items():
            client = await self._opened.open(Client(address, name=f"boxes-{broker}"))
            boxes = BoxClient(client, self.oracle.recipient(), self.statistics, self._hear)
            await boxes.open()
            self._boxes.append(boxes)
            self._start(boxes.read())
        await self.resize()
        self._start(every(lambda: 1 / _TICKS, self._tick))
        self._start(every(lambda: _JUDGE_S, self.oracle.judge))
        self._start(every(lambda: _JUDGE_S, self._measure))
        await self.counters.read()
        self._switched = (self.counters.control_messages, 0)
        self._start(every(lambda: _READ_S, self._read))
        for number in range(len(self._publishers)):
            self._start(every(lambda: _MARK_S, partial(self._mark, number)))

    def _start(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and self.error is None:
            self.error = error
            self._failed.set()

    async def until_failure(self) -> None:
        """Raises the error that has ended a part of it."""
        await self._failed.wait()
        assert self.error is not None
        raise self.error

    # --- vehicles -----------------------------------------------------------------------------------

    def _measure(self) -> None:
        now = (perf_counter(), self.reports)
        self._measured.append(now)
        seconds, reports = (a - b for a, b in zip(now, self._measured[0], strict=True))
        self.reports_per_s = reports / seconds if seconds else 0.0

    async def _tick(self) -> None:
        settings, fleet = self.settings, self.fleet
        fleet.drive(1 / _TICKS, settings.speed)
        count = len(fleet)
        before, self._turn = self._turn, self._turn + count * settings.rate / _TICKS
        turns = np.arange(int(before), int(self._turn)) % count
        if self._turn >= count:
            self._turn -= count * int(self._turn // count)
        ids = np.sort(self._order[turns])
        x, y = fleet.x[ids].round(2), fleet.y[ids].round(2)
        nearest = nearest_broker(x, y)
        await asyncio.gather(
            *(
                self._publish(publisher, ids[mine], x[mine], y[mine])
                for publisher in range(len(self._publishers))
                if (mine := nearest == publisher).any()
            )
        )

    async def _publish(self, publisher: int, ids: Any, x: Any, y: Any) -> None:
        numbers = self.oracle.publish(publisher, x, y)
        self.reports += len(ids)
        records = _records(ids, x, y, numbers)
        await self._publishers[publisher].publish_batch(VEHICLE.name, records)

    async def _mark(self, publisher: int) -> None:
        mark = self.oracle.close_chunk(publisher)
        if mark is not None:
            await self._publish_mark(publisher, mark)

    async def _publish_mark(self, publisher: int, mark: int) -> None:
        await self._publishers[publisher].publish(VEHICLE.name, mark_of(publisher, mark))

    # --- boxes --------------------------------------------------------------------------------------

    async def resize(self) -> None:
        """Add or remove boxes, up to the number in `settings`."""
        wanted = self.settings.boxes
        for box in range(len(self._movers), wanted):
            client = self._boxes[self._home(box)]
            await client.add(box, self.rectangle(box))
            self._movers[box] = self._start(self._move(box, client))
        for box in range(wanted, len(self._movers)):
            mover = self._movers.pop(box)
            mover.cancel()
            await asyncio.gather(mover, return_exceptions=True)
            await self._boxes[self._home(box)].remove(box)

    @property
    def boxes(self) -> int:
        return len(self._movers)

    def _home(self, box: int) -> int:
        return box % len(self._boxes)

    def rectangle(self, box: int) -> Rectangle:
        x, y, half = float(self.fleet.x[box]), float(self.fleet.y[box]), self.settings.side / 2
        return x - half, x + half, y - half, y + half

    async def _move(self, box: int, client: BoxClient) -> None:
        await asyncio.sleep(box % 97 / 97 / self.settings.changes)  # not all at once
        await every(
            lambda: 1 / self.settings.changes,
            lambda: client.move(box, self.rectangle(box), self.settings.how),
        )

    def _hear(self, ids: npt.NDArray[np.int64]) -> None:
        self.heard[ids] = perf_counter()

    def lit(self) -> npt.NDArray[np.bool_]:
        return np.asarray(perf_counter() - self.heard < self.keep_s)

    async def switch(self, how: Change) -> None:
        """Change boxes in another way from now on. Events that may have met both ways count for the one that
        is not update, so that the counts of update are its own."""
        async with self._switching:
            if how is self.settings.how:
                return
            self.settings.how = Change.UPDATE
            while self.statistics.under_way:
                await asyncio.sleep(0.01)
            marks = [(p, mark) for p in range(len(PLACES)) if (mark := self.oracle.close_chunk(p))]
            self.oracle.era = how
            await asyncio.gather(*(self._publish_mark(*each) for each in marks))
            until = perf_counter() + _SWITCH_S
            while not all(self.oracle.arrived(*each) for each in marks) and perf_counter() < until:
                await asyncio.sleep(0.01)
            await self.counters.read()
            self.statistics.delays_ms.clear()
            self._switched = (self.counters.control_messages, self.statistics.changes)
            self.settings.how = how

    async def _read(self) -> None:
        await self.counters.read()
        control, changes = (
            float(now - then)
            for now, then in zip(
                (self.counters.control_messages, self.statistics.changes), self._switched, strict=True
            )
        )
        self.control_per_change = control / changes if changes else 0.0

    @property
    def keep_s(self) -> float:
        """How long a vehicle stays lit without a report, at the current rate of reports."""
        per_vehicle = min(self.settings.rate, self.reports_per_s / len(self.fleet)) or self.settings.rate
        return LIT_PERIODS / per_vehicle

    # --- the page's box -----------------------------------------------------------------------------

    def recipient(self) -> Recipient:
        """For a page, which reports its changes and deliveries."""
        return self.oracle.recipient()

    def leave(self, recipient: Recipient) -> None:
        self.oracle.leave(recipient)

    def inside(self, rectangle: Rectangle) -> int:
        x0, x1, y0, y1 = rectangle
        x, y = self.fleet.x.round(2), self.fleet.y.round(2)
        return int(((x >= x0) & (x <= x1) & (y >= y0) & (y <= y1)).sum())


def nearest_broker(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    places = np.array([*PLACES.values()])
    distances = (x[:, None] - places[:, 0]) ** 2 + (y[:, None] - places[:, 1]) ** 2
    return np.asarray(distances.argmin(axis=1))


def _records(ids: Any, x: Any, y: Any, numbers: Any) -> Any:
    columns = [pa.array(column) for column in (ids.astype(np.int64), x, y, numbers)]
    return pa.RecordBatch.from_arrays(columns, schema=VEHICLE.arrow_schema)
