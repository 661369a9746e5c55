"""`gateway`: what browsers that never read cost the others.

    publisher -> broker -> gateway 0 -> browsers, all of which read
                        -> gateway 1 -> browsers, some of which never read

Broker, gateways and browsers (`gateway_browsers.py`) are processes. Both gateways have all their browsers
from the beginning; in each round first one and then the other has events, so both have the same noise. Before
the first round more is published to the browsers that never read than a gateway keeps for one, so it drops or
conflates for them with each batch. Latency is that from publishing to the browser's socket.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle, islice
from statistics import median
from typing import Annotated, Any

import typer

from benchmarks.gateway_browsers import box_of
from benchmarks.harness import Words, command, steady
from covey.cli.support.output import print_table
from covey.gateway import Limits
from covey.matcher import EventType
from covey.matcher.errors import CoveyError, InputError
from covey.overlay import Client
from covey.sim.experiments.bench.usage import cpu_ns, peak_resident_bytes
from covey.sim.experiments.local_overlay import LocalOverlay, free_addresses
from covey.sim.experiments.processes import Worker
from covey.sim.progress import Progress, silent

POSITION = EventType(
    "Position",
    {"id": "int64", "run": "int64", "number": "int64", "sent_ns": "int64", "x": "float64", "y": "float64"},
    key="id",
)
POLICIES = ("drop_oldest", "drop_newest", "conflate", "disconnect")
RUNS = ("all read", "some never read")
_START_S = 300.0
_FILLING = 100
"""Events of a batch before the first round."""
_EVENT_BYTES = 80
"""At least, as JSON."""


@dataclass(frozen=True, slots=True)
class GatewayPlan:
    """Measure browsers on one gateway, with and without some that never read.

    One broker, two gateways and a process with all browsers. At the first gateway all browsers read; at the
    second some never do, and their queues are full before the first round. The figures are medians over the
    rounds, of the browsers that read. In the end the others read, too, and the second table says what they
    got and were told.

    Example: python -m benchmarks gateway --share 0.3 --batch 100
    """

    browsers: Annotated[int, typer.Option(min=2, help="WebSockets of each gateway.")] = 1_000
    silent: Annotated[int, typer.Option(min=1, help="Of those of the second one, never read.")] = 100
    overflow: Annotated[tuple[str, ...], Words("What these ask for, in turn", POLICIES)] = POLICIES[:3]
    rate: Annotated[int, typer.Option(min=1, help="Batches per second.")] = 10
    batch: Annotated[int, typer.Option(min=1, help="Events of a batch.")] = 10
    share: Annotated[
        float, typer.Option(help="Of each batch in the bounds of a browser, which are its own below 1.")
    ] = 1.0
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each round, for each gateway.")] = 8.0
    rounds: Annotated[int, typer.Option(min=1, help="Of the first and then the second gateway.")] = 3

    def __post_init__(self) -> None:
        if not 0 < self.silent < self.browsers:
            raise InputError(f"silent is {self.silent}: expected from 1 to {self.browsers - 1}, one reads")
        if not 0.0 < self.share <= 1.0:
            raise InputError(f"share is {self.share}: expected more than 0, at most 1")


@dataclass(slots=True)
class RunResult:
    """The browsers of one gateway that read: by round, frames per second, p50, p99 and maximum in ms, and the
    share of a core that the gateway had. `missing` events of all rounds have not come within a minute."""

    name: str
    frames_per_s: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    max_ms: list[float] = field(default_factory=list)
    cores: list[float] = field(default_factory=list)
    missing: int = 0
    peak_mb: float = 0.0


@dataclass(slots=True)
class Told:
    """What those with one policy that never read got and were told, once they did: events got, events in gaps
    by cause, notices and ends of connections; and events that they neither got nor were told of."""

    policy: str
    browsers: int = 0
    got: int = 0
    gaps: dict[str, int] = field(default_factory=dict)
    notices: dict[str, int] = field(default_factory=dict)
    untold: int = 0


@dataclass(frozen=True, slots=True)
class GatewayResults:
    """Of one execution."""

    runs: list[RunResult]
    told: list[Told]


async def measure_gateway(plan: GatewayPlan, progress: Progress = silent) -> GatewayResults:
    """Both arrangements, in rounds."""
    progress("starting a broker and two gateways", 0.0)
    async with AsyncExitStack() as stack:
        overlay = await stack.enter_async_context(LocalOverlay((), event_types=[POSITION]))
        publisher = await stack.enter_async_context(Client(overlay.addresses["b1"], "publisher"))
        await publisher.advertise(POSITION)
        gateways = [
            await stack.enter_async_context(_gateway(overlay.addresses["b1"], plan.browsers)) for _ in RUNS
        ]
        policies = [*islice(cycle(plan.overflow), plan.silent)]
        progress(f"connecting {2 * plan.browsers:,} browsers", 0.05)
        runs = [[gateways[0][0], []], [gateways[1][0], policies]]
        settings = {"browsers": plan.browsers, "share": plan.share, "runs": runs}
        browsers = await stack.enter_async_context(
            Worker("benchmarks.gateway_browsers", "browsers", patience_s=_START_S, **settings)
        )
        return await _Rounds(plan, publisher, [pid for _, pid in gateways], browsers).all(progress)


class _Rounds:
    """Publishes, and asks the browsers what they got."""

    def __init__(
        self, plan: GatewayPlan, publisher: Client, process_ids: list[int], browsers: Worker
    ) -> None:
        self._plan = plan
        self._publisher = publisher
        self._process_ids = process_ids
        self._browsers = browsers
        self._numbers = [0, 0]
        self._x = [(each + 0.5) / plan.batch for each in range(plan.batch)]
        self._per_batch = [_matching(plan, self._x, run * plan.silent) for run in (0, 1)]
        """Events of a batch that all browsers that read get together."""

    async def all(self, progress: Progress) -> GatewayResults:
        plan = self._plan
        progress("filling the queues of those that never read", 0.2)
        filled = await self._fill()
        results = [*map(RunResult, RUNS)]
        for run in (0, 1):  # once without a measurement
            await self._round(run, RunResult(""), 1.0)
        for number in range(plan.rounds):
            for run, result in enumerate(results):
                done = (number + run / 2) / plan.rounds
                progress(f"round {number + 1} of {plan.rounds}: {result.name}", 0.3 + 0.6 * done)
                await self._round(run, result, plan.seconds)
        for process_id, result in zip(self._process_ids, results, strict=True):
            result.peak_mb = peak_resident_bytes(process_id) / 1e6
        progress("reading what the others are told", 0.95)
        published = filled + self._numbers[1] * plan.batch
        listened = await self._browsers.request("listen", run=1)
        return GatewayResults(results, _told(listened["told"], published))

    async def _fill(self) -> int:
        """More events than a gateway keeps for a browser, to those that do not read; how many."""
        limits = Limits()
        batches = int(1.1 * (limits.queue_bytes + limits.window_bytes) / (_FILLING * _EVENT_BYTES)) + 1
        for _ in range(batches):
            await self._publish(1, -1, [0.5] * _FILLING)
        return batches * _FILLING

    async def _publish(self, run: int, number: int, x: list[float]) -> None:
        fields = {"run": run, "number": number, "sent_ns": time.perf_counter_ns(), "y": 0.123456}
        events = [{"id": each, "x": at, **fields} for each, at in enumerate(x)]
        await self._publisher.publish_batch(POSITION.name, events, confirm=True)

    async def _round(self, run: int, result: RunResult, seconds: float) -> None:
        """Batches at the rate, for some seconds, to the browsers of one gateway."""
        plan, first = self._plan, self._numbers[run]
        count = max(1, round(plan.rate * seconds))
        began, used_ns = time.perf_counter(), cpu_ns(self._process_ids[run])
        async for number in steady(plan.rate, count):
            await self._publish(run, first + number, self._x)
        self._numbers[run] += count
        events = count * self._per_batch[run]
        got = await self._browsers.request("until", run=run, first=first, last=first + count, events=events)
        took_s = time.perf_counter() - began
        result.frames_per_s.append(got["frames"] / took_s)
        for times, of in (
            (result.p50_ms, "p50_ns"),
            (result.p99_ms, "p99_ns"),
            (result.max_ms, "max_ns"),
        ):
            times.append(got[of] / 1e6)
        result.cores.append((cpu_ns(self._process_ids[run]) - used_ns) / 1e9 / took_s)
        result.missing += events - got["events"]


def _matching(plan: GatewayPlan, x: list[float], silent: int) -> int:
    boxes = (box_of(each, plan.browsers, plan.share) for each in range(silent, plan.browsers))
    return sum(x0 <= each <= x1 for x0, x1 in boxes for each in x)


def _told(browsers: list[dict[str, Any]], published: int) -> list[Told]:
    by_policy: dict[str, Told] = {}
    for each in browsers:
        told = by_policy.setdefault(each["policy"], Told(each["policy"]))
        told.browsers += 1
        told.got += each["got"]
        for counts, more in ((told.gaps, each["gaps"]), (told.notices, each["notices"])):
            for name, count in more.items():
                counts[name] = counts.get(name, 0) + count
        told.untold += published - each["got"] - sum(each["gaps"].values())
    return [*by_policy.values()]


@asynccontextmanager
async def _gateway(broker: str, browsers: int) -> AsyncIterator[tuple[str, int]]:
    """The address and the process of a gateway."""
    (address,) = free_addresses(1)
    bounds = ("--max-connections-per-address", str(browsers + 10))
    words = ("gateway", "--broker", broker, "--listen", address, *bounds)
    started = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "covey.cli.main", *words), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert started.stdout is not None
        if not await asyncio.wait_for(started.stdout.readline(), _START_S):
            raise CoveyError("a gateway does not serve")
        yield address, started.pid
    finally:
        if started.returncode is None:
            started.kill()
            await started.wait()


def show(plan: GatewayPlan, results: GatewayResults) -> None:
    print_table(
        f"{plan.browsers:,} browsers, of which {plan.silent:,} never read at the second gateway; {plan.rate} "
        f"batches of {plan.batch} events per second: ms from publishing to the socket",
        ["gateway", "frames/s", "p50", "p99", "worst p99", "max", "missing", "cores", "peak MB"],
        [
            [
                each.name,
                *(round(median(values), 1) for values in (each.frames_per_s, each.p50_ms, each.p99_ms)),
                *(round(max(values), 1) for values in (each.p99_ms, each.max_ms)),
                each.missing,
                round(median(each.cores), 2),
                round(each.peak_mb, 1),
            ]
            for each in results.runs
        ],
    )
    print_table(
        "what those that never read got and were told, once they did",
        ["overflow", "browsers", "events", "in gaps", "notices and ends", "neither"],
        [
            [each.policy, each.browsers, each.got, _words(each.gaps), _words(each.notices), each.untold]
            for each in results.told
        ],
    )


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "-"


gateway = command(GatewayPlan, measure_gateway, show)
