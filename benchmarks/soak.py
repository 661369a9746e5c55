"""`soak`: three brokers under load for a long time, while clients come, stall, go and are killed.

    publisher -> b1 -> b2 -> b3        a subscriber of all events at b1 and one at b3
                  \\     |     /
                   visitors             processes with several clients each

The publisher numbers its events and publishes at a steady rate, by default half of what the overlay
sustained in the first seconds. A process of visitors lives for some seconds; then its clients say
goodbye, or it is killed (SIGKILL), sometimes stopped before (SIGSTOP), for less or more than brokers wait
for a silent peer. It reports the sessions it opened, and events delivered to them repeatedly or out of
order. All is drawn from a seed.

The two subscribers of all events are judged: a publisher's order is kept, so a number that is left out
was missed, and one not above all before was repeated. Memory is judged by the line through the samples,
without the first fifth of the time, nor its first 150 s, or half of it, in which bounded caches fill. In
an hour or more it is *flat* if that rises by less than 1 % an hour; in less time, where such a slope is
within its uncertainty, if it rises by less than 5 % in all. The slope has a 95 % interval, by the
averages of twenty spans, since successive samples are much alike. After the leases of killed clients,
descriptors, sessions and tasks must be as many as before.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import typer

from benchmarks.harness import command
from covey.cli.support.options import Seed
from covey.cli.support.output import print_table
from covey.matcher import EventBatch, EventType
from covey.matcher.errors import CoveyError
from covey.overlay import Client, Subscription
from covey.overlay.client import inspect_broker
from covey.overlay.core.endpoint.limits import SlowConsumer
from covey.overlay.transport.event_loop import run
from covey.sim.experiments.local_overlay import LocalOverlay, chain
from covey.sim.experiments.processes import BackgroundTasks, Worker, descriptors, resident_bytes, serve
from covey.sim.progress import Progress, silent

STEADY = EventType("Steady", {"number": "int64", "share": "float64"})
"""One publisher numbers its events; `share` is uniform in 0 to 1."""
VISIT = EventType("Visit", {"visitor": "string", "number": "int64"})
_GOING_S = 40.0
_POLICIES = tuple(policy.value for policy in SlowConsumer if policy is not SlowConsumer.CONFLATE)
"""The event types have no key."""


class Visitors:
    """Several clients, one after the other at each place; a role of a `Worker`."""

    def __init__(self, addresses: list[str], clients: int, seed: int) -> None:
        self._addresses = addresses
        self._places = clients
        self._random = random.Random(seed)
        self._going = asyncio.Event()
        self._sessions = 0
        self._repeated = 0

    async def start(self) -> None:
        self._tasks = [asyncio.create_task(self._place()) for _ in range(self._places)]

    async def close(self) -> dict[str, Any]:
        self._going.set()
        _, stuck = await asyncio.wait(self._tasks, timeout=_GOING_S)
        for place in stuck:
            place.print_stack(file=sys.stderr)
        if stuck:
            raise CoveyError(f"{len(stuck)} visitors: expected them to go within {_GOING_S:g} s")
        await asyncio.gather(*self._tasks)
        return {"sessions": self._sessions, "repeated": self._repeated}

    async def stop(self) -> None:
        """Nothing: what has not closed ends with the process."""

    async def _place(self) -> None:
        while not self._going.is_set():
            roles = (self._move, self._stall, self._publish)
            with suppress(CoveyError):  # A broker may end the session, by the client's own policy.
                policy = self._random.choice(_POLICIES)
                async with Client(self._random.choice(self._addresses), slow_consumer=policy) as client:
                    self._sessions += 1
                    await self._random.choice(roles)(client, policy)
            await self._pause(self._random.uniform(0.0, 0.5))

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._going.wait(), seconds)

    def _range(self, width: float) -> dict[str, float]:
        low = self._random.uniform(0.0, 1.0 - width)
        return {"low": low, "high": low + width}

    async def _move(self, client: Client, policy: str) -> None:
        moving = await client.subscribe(STEADY, "share between $low and $high", values=self._range(0.01))
        reading = asyncio.create_task(self._read(moving.batches()))
        for _ in range(self._random.randrange(1, 40)):
            await self._pause(self._random.uniform(0.0, 0.1))
            if self._going.is_set():
                break
            await moving.update(values=self._range(0.01), timeout=60.0)
        reading.cancel()

    async def _read(self, batches: AsyncIterator[EventBatch], *, judged: bool = True) -> None:
        newest = -1
        async for batch in batches:
            for number in batch.record_batch.column("number").to_pylist() if judged else ():
                self._repeated += number <= newest
                newest = max(newest, number)

    async def _stall(self, client: Client, policy: str) -> None:
        """Subscribe to many events, and read none of them for some seconds. Under "block" they are fewer than
        the broker queues, or it would block the publisher."""
        width = 0.01 if policy == SlowConsumer.BLOCK.value else 0.1
        await client.subscribe(STEADY, "share between $low and $high", values=self._range(width))
        await self._pause(self._random.uniform(0.5, 4.0))

    async def _publish(self, client: Client, policy: str) -> None:
        """Publish events of another type, and read what all visitors publish of it."""
        await client.advertise(VISIT)
        visits = await client.subscribe(VISIT)
        reading = asyncio.create_task(self._read(visits.batches(), judged=False))
        for number in range(self._random.randrange(200)):
            await client.publish("Visit", visitor=client.name, number=number)
            await self._pause(0.005)
            if self._going.is_set():
                break
        reading.cancel()


if __name__ == "__main__":
    serve({"visitors": Visitors}, run)


_TURN_S = 0.005
_BATCH = 1024
_PATIENCE_S = 60.0
_RISE = 0.05
_RISE_PER_HOUR = 0.01
_HOUR_S = 3_600.0
_FILLING_S = 150.0
_SPANS = 20
_STUDENT = 2.1
"""The 97.5 % quantile of Student's distribution with about 18 degrees of freedom."""


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """Keep three brokers under load while clients come, stall, go, are stopped and are killed.

    Prints what two subscribers missed or got repeatedly, the memory of the brokers, whether it is flat, and
    whether descriptors, sessions or tasks are left behind. Exits with 1 if the run does not pass.

    In an hour or more memory is flat if it rises by less than 1 % an hour, in less time if it rises by less
    than 5 %; the slope is printed with the interval in which it is with 95 %.

    Example: python -m benchmarks soak --seconds 3600
    """

    seconds: Annotated[float, typer.Option(min=1.0, help="Duration.")] = 600.0
    rate: Annotated[
        int, typer.Option(min=0, help="Events per second; 0: half of what the overlay sustains.")
    ] = 0
    visitors: Annotated[int, typer.Option(min=0, help="Processes of visitors at a time.")] = 3
    seed: Seed = 0
    measuring_s: float = 5.0
    clients: int = 8
    visit_s: tuple[float, float] = (8.0, 25.0)
    sample_s: float = 5.0
    lease_s: int = 5
    """How long brokers keep the session of a killed client."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One broker, `seconds` after the first visitor came."""

    broker: str
    seconds: float
    memory_mb: float
    descriptors: int
    sessions: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Slope:
    """Of a broker's memory, in per cent of its start per hour; `low` to `high` is the 95 % interval."""

    percent_per_hour: float
    low: float
    high: float
    flat: bool


def judged_from(seconds: float) -> float:
    """When the judged part of a run begins: bounded memory has filled by then."""
    return max(seconds / 5, min(seconds / 2, _FILLING_S))


def slope_of(seconds: npt.NDArray[np.float64], memory: npt.NDArray[np.float64], duration_s: float) -> Slope:
    """Of at least three samples of a run of `duration_s`."""
    spans = min(_SPANS, len(seconds))
    times = np.array([part.mean() for part in np.array_split(seconds - seconds[0], spans)])
    sizes = np.array([part.mean() for part in np.array_split(memory, spans)])
    slope, start = np.polyfit(times, sizes, 1)
    residual = sizes - (slope * times + start)
    spread = np.sqrt((residual**2).sum() / (spans - 2) / ((times - times.mean()) ** 2).sum())
    each = 100.0 * _HOUR_S / start
    if duration_s >= _HOUR_S:
        flat = slope * _HOUR_S < _RISE_PER_HOUR * start
    else:
        flat = slope * (seconds[-1] - seconds[0]) < _RISE * start
    half = _STUDENT * spread
    low, high = (slope - half) * each, (slope + half) * each
    return Slope(round(float(slope * each), 3), round(float(low), 3), round(float(high), 3), bool(flat))


@dataclass(slots=True)
class Arrivals:
    """The events of one subscriber to all. `expected` is the number of the next."""

    expected: int = 0
    delivered: int = 0
    missed: int = 0
    repeated: int = 0

    def add(self, numbers: npt.NDArray[np.int64]) -> None:
        self.delivered += len(numbers)
        if numbers[0] == self.expected and (np.diff(numbers) == 1).all():
            self.expected += len(numbers)
            return
        for number in numbers.tolist():
            if number < self.expected:
                self.repeated += 1
            else:
                self.missed += number - self.expected
                self.expected = number + 1


@dataclass(slots=True)
class SoakResult:
    """`left` names what a broker has more of than before the first visitor."""

    rate: int
    seconds: float = 0.0
    published: int = 0
    delivered: int = 0
    missed: int = 0
    repeated: int = 0
    processes: int = 0
    killed: int = 0
    stopped: int = 0
    sessions: int = 0
    """In the processes that were not killed."""
    samples: list[Sample] = field(default_factory=list)
    memory: dict[str, Slope] = field(default_factory=dict)
    flat: bool = True
    left: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return self.flat and not (self.left or self.missed or self.repeated)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"passed": self.passed}


async def measure_soak(plan: SoakPlan, progress: Progress = silent) -> SoakResult:
    async with AsyncExitStack() as stack:
        progress("starting brokers", 0.0)
        overlay = await stack.enter_async_context(
            LocalOverlay(chain(3), limits={"session_lease_s": plan.lease_s})
        )
        publisher = await stack.enter_async_context(Client(overlay.addresses["b1"]))
        near = await stack.enter_async_context(Client(overlay.addresses["b1"]))
        far = await stack.enter_async_context(Client(overlay.addresses["b3"]))
        soak = _Soak(plan, overlay, publisher, progress)
        await publisher.advertise(STEADY)
        await publisher.advertise(VISIT)  # else what brokers keep of it goes with the last visitor
        for client in (near, far):
            soak.read(await client.subscribe(STEADY))
        return await soak.run()


class _Soak:
    def __init__(self, plan: SoakPlan, overlay: LocalOverlay, publisher: Client, progress: Progress) -> None:
        self._plan = plan
        self._overlay = overlay
        self._publisher = publisher
        self._progress = progress
        self._random = random.Random(plan.seed)
        self._shares = np.random.default_rng(plan.seed)
        self._tasks = BackgroundTasks()
        self._arrivals: list[Arrivals] = []
        self._published = 0
        self._visiting = True
        self._result = SoakResult(0)

    def read(self, subscription: Subscription) -> None:
        arrivals = Arrivals()
        self._arrivals.append(arrivals)

        async def arrive() -> None:
            async for batch in subscription.batches():
                arrivals.add(batch.record_batch.column("number").to_numpy())

        self._tasks.start(arrive())

    async def run(self) -> SoakResult:
        plan, result = self._plan, self._result
        self._progress("measuring what the overlay sustains", 0.0)
        sustained = await self._full_speed(plan.measuring_s)
        result.rate = plan.rate or int(sustained / 2)
        await asyncio.sleep(1.0)
        before = await self._sample(0.0)
        start = time.monotonic()
        visiting = [asyncio.create_task(self._visit()) for _ in range(plan.visitors)]
        sampling = asyncio.create_task(self._keep_sampling(start))
        first = self._published
        await self._at_rate(result.rate, plan.seconds)
        result.seconds = time.monotonic() - start
        result.published = self._published - first
        self._visiting = False
        await asyncio.gather(*visiting)
        sampling.cancel()
        await self._arrived()
        self._judge_memory()
        await self._judge_rest(before)
        for arrivals in self._arrivals:
            result.delivered += arrivals.delivered
            result.missed += arrivals.missed + self._published - arrivals.expected
            result.repeated += arrivals.repeated
        return result

    # --- the load -------------------------------------------------------------------------------------------

    async def _publish(self, events: int) -> None:
        numbers = np.arange(self._published, self._published + events)
        self._published += events
        columns = [pa.array(numbers), pa.array(self._shares.random(events))]
        await self._publisher.publish_batch("Steady", pa.record_batch(columns, schema=STEADY.arrow_schema))

    async def _full_speed(self, seconds: float) -> float:
        """Events per second from the first publish to the last arrival."""
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            await self._publish(_BATCH)
        await self._arrived()
        return self._published / (time.monotonic() - start)

    async def _at_rate(self, rate: int, seconds: float) -> None:
        start = time.monotonic()
        sent, most = 0, max(4 * _BATCH, rate // 20)
        while (elapsed := time.monotonic() - start) < seconds:
            visits = self._result.processes
            self._progress(f"{rate:,} events/s, {visits} processes of visitors", elapsed / seconds)
            due = min(int(elapsed * rate) - sent, most)
            for first in range(0, due, _BATCH):
                await self._publish(min(due - first, _BATCH))
            sent += due
            await asyncio.sleep(_TURN_S)

    async def _arrived(self) -> None:
        """Wait until all subscribers have the newest event. `CoveyError` after a minute without an
        arrival."""
        newest, since = -1, time.monotonic()
        while (least := min(arrivals.expected for arrivals in self._arrivals)) < self._published:
            if least != newest:
                newest, since = least, time.monotonic()
            elif time.monotonic() - since > _PATIENCE_S:
                raise CoveyError(
                    f"event {newest}: expected it to arrive within {_PATIENCE_S:g} s; "
                    f"{self._published} were published"
                )
            await asyncio.sleep(0.002)

    # --- visitors -------------------------------------------------------------------------------------------

    async def _visit(self) -> None:
        while self._visiting:
            settings = {
                "addresses": list(self._overlay.addresses.values()),
                "clients": self._plan.clients,
                "seed": self._random.randrange(1 << 30),
            }
            visitors = Worker("benchmarks.soak", "visitors", patience_s=_PATIENCE_S, **settings)
            async with visitors as process:
                self._result.processes += 1
                await self._stay(self._random.uniform(*self._plan.visit_s))
                if self._random.random() < 0.25:
                    self._result.stopped += 1
                    os.kill(process.process_id, signal.SIGSTOP)
                    await self._stay(self._random.uniform(1.0, 8.0))
                    os.kill(process.process_id, signal.SIGCONT)
                if self._random.random() < 0.5 and self._visiting:
                    self._result.killed += 1
                    process.kill()
                    continue
                counted = await process.request("close")
            self._result.sessions += counted["sessions"]
            self._result.repeated += counted["repeated"]

    async def _stay(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._visiting and time.monotonic() < until:
            await asyncio.sleep(0.1)

    # --- what brokers use -----------------------------------------------------------------------------------

    async def _keep_sampling(self, start: float) -> None:
        while True:
            self._result.samples += await self._sample(time.monotonic() - start)
            await asyncio.sleep(self._plan.sample_s)

    async def _sample(self, seconds: float) -> list[Sample]:
        samples = []
        for broker, process in self._overlay.process_ids().items():
            _, state = await inspect_broker(self._overlay.addresses[broker], listed=0)
            listed = sum(interface.startswith("client/") for interface in state["interfaces"])
            samples.append(
                Sample(
                    broker,
                    round(seconds, 1),
                    round(resident_bytes(process) / 1e6, 1),
                    descriptors(process),
                    listed + state["not_listed"].get("interfaces", 0),
                    state["tasks"],
                )
            )
        return samples

    def _judge_memory(self) -> None:
        result = self._result
        for broker in self._overlay.brokers:
            samples = [
                (sample.seconds, sample.memory_mb)
                for sample in result.samples
                if sample.broker == broker and sample.seconds >= judged_from(result.seconds)
            ]
            if len(samples) < 3:
                continue
            seconds, memory = np.array(samples).T
            slope = result.memory[broker] = slope_of(seconds, memory, result.seconds)
            result.flat &= slope.flat

    async def _judge_rest(self, before: list[Sample]) -> None:
        """Compare with the state before the first visitor, once leases have expired."""
        self._progress("waiting until leases have expired", 1.0)
        until = time.monotonic() + self._plan.lease_s + _PATIENCE_S
        while True:
            self._result.left = [
                f"{broker.broker}: {getattr(broker, name)} {name}, {getattr(earlier, name)} before"
                for broker, earlier in zip(await self._sample(self._result.seconds), before, strict=True)
                for name in ("descriptors", "sessions", "tasks")
                if getattr(broker, name) > getattr(earlier, name)
            ]
            if not self._result.left or time.monotonic() > until:
                return
            await asyncio.sleep(0.5)


def show(plan: SoakPlan, result: SoakResult) -> None:
    rows = [
        [each.broker, each.seconds, each.memory_mb, each.descriptors, each.sessions, each.tasks]
        for each in result.samples
    ]
    columns = ["broker", "seconds", "memory MB", "descriptors", "sessions", "tasks"]
    print_table("Brokers under load", columns, rows)
    print(
        f"{result.published:,} events in {result.seconds:,.0f} s, "
        f"{result.published / max(result.seconds, 1.0):,.0f}/s where {result.rate:,}/s were due; "
        f"of two subscribers {result.missed:,} missed, {result.repeated:,} repeated"
    )
    print(
        f"{result.processes} processes of visitors, {result.killed} killed, {result.stopped} stopped for "
        f"a while; {result.sessions:,} sessions of those that were not killed"
    )
    slopes = ", ".join(
        f"{broker} {slope.percent_per_hour:+.2f} ({slope.low:+.2f} to {slope.high:+.2f})"
        for broker, slope in result.memory.items()
    )
    if slopes:
        print(f"memory, % per hour: {slopes}: {'flat' if result.flat else 'not flat'}")
    else:
        print("memory: too few samples to say whether it is flat")
    print("left behind: " + ("; ".join(result.left) or "nothing"))


soak = command(SoakPlan, measure_soak, show, passed=lambda result: result.passed)
