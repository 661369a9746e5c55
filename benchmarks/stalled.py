"""`stalled`: what a subscriber that does not read costs the others.

Two brokers, each with ten subscribers of the same events. At one of them all read. At the other one does
not: before it is measured, more was published than the broker queues for it, and its stall limit has
passed. Rounds at the two brokers take turns, since other processes of the machine come and go; the
latencies of the nine others are compared, round by round.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import typer

from benchmarks.harness import Arrivals, Words, arrivals, command, show_fields, steady
from covey.matcher import EventBatch, EventType
from covey.overlay import Client
from covey.overlay.client import inspect_broker
from covey.sim.experiments.local_overlay import LocalOverlay
from covey.sim.progress import Progress, silent

TICK = EventType("Tick", {"number": "int64", "sent_ns": "int64"})
POLICIES = ("block", "drop_oldest", "drop_newest")
SUBSCRIBERS = 10
_FILLED = 1_000
"""Events of a batch that fills a queue."""
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class StalledPlan:
    """Measure the latency of nine subscribers while the tenth does not read.

    Beside it, in turns, the same at another broker where all ten read. The queue of the one that does not is
    full, and what it holds publishers for is over (with block 10 s).

    Example: python -m benchmarks stalled --policies block --rounds 11
    """

    rate: Annotated[int, typer.Option(min=1, help="Events per second.")] = 500
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each round, at each broker.")] = 5.0
    rounds: Annotated[int, typer.Option(min=1, help="At the first and then the second broker.")] = 5
    policies: Annotated[tuple[str, ...], Words("What a full queue does", POLICIES)] = POLICIES


@dataclass(frozen=True, slots=True)
class StalledResult:
    """Medians over the rounds of the p50 and p99 of nine subscribers, in ms, where the tenth reads and where
    it does not; the median of the ratios of the two p99; how many events were published and how many of them
    the broker has dropped for the tenth.
    """

    policy: Annotated[str, "slow_consumer"]
    p50: float
    p99: float
    p50_stalled: Annotated[float, "p50, one stalls"]
    p99_stalled: Annotated[float, "p99, one stalls"]
    ratio: Annotated[float, "ratio of p99"]
    published: int
    dropped: int


async def measure_stalled(plan: StalledPlan, progress: Progress = silent) -> list[StalledResult]:
    """A result per policy. `CoveyError` where events do not arrive."""
    results = []
    for at, policy in enumerate(plan.policies):
        progress(f"{policy}: filling the queue", at / len(plan.policies))
        async with AsyncExitStack() as stack:
            sides = [await _Side.of(stack, policy, stalled) for stalled in (False, True)]
            for side in sides:
                await side.warm_up()
            await sides[1].fill()
            rounds = []
            for number in range(plan.rounds):
                progress(f"{policy}: round {number + 1}", (at + number / plan.rounds) / len(plan.policies))
                rounds.append([await side.latencies(plan.rate, plan.seconds) for side in sides])
            p50, p99, p50_stalled, p99_stalled = map(float, np.median(rounds, axis=0).ravel())
            ratio = float(np.median([stalled[1] / reading[1] for reading, stalled in rounds]))
            dropped = await sides[1].dropped()
            times = (p50, p99, p50_stalled, p99_stalled)
            results.append(StalledResult(policy, *times, ratio, sides[1].published, dropped))
    return results


class _Side:
    """A broker, its publisher and its subscribers."""

    def __init__(self, overlay: LocalOverlay, publisher: Client) -> None:
        self._address = overlay.addresses["b1"]
        self._publisher = publisher
        self.readers: list[Arrivals] = []
        self.published = 0

    @classmethod
    async def of(cls, stack: AsyncExitStack, policy: str, stalled: bool) -> _Side:
        """One whose tenth subscriber does not read, if `stalled`."""
        overlay = await stack.enter_async_context(LocalOverlay((), event_types=[TICK]))
        address = overlay.addresses["b1"]
        publisher = await stack.enter_async_context(Client(address, "publisher"))
        await publisher.advertise(TICK)
        side = cls(overlay, publisher)
        for number in range(SUBSCRIBERS):
            tenth = number == SUBSCRIBERS - 1
            name, policy_here = f"subscriber-{number}", policy if tenth else "block"
            client = Client(address, name, slow_consumer=policy_here, on_gap=lambda _: None)
            await stack.enter_async_context(client)
            wanted = await client.subscribe(TICK, "number >= -1000000" if tenth else "number >= 0")
            if not (tenth and stalled):
                reader = await stack.enter_async_context(arrivals(wanted))
                if not tenth:
                    side.readers.append(reader)
        return side

    async def warm_up(self) -> None:
        await self.latencies(100, 1.0)

    async def fill(self) -> None:
        """Publish events that only the tenth wants, until the broker drops some."""
        numbers = np.arange(-_FILLED, 0)
        batch = EventBatch.from_pylist(TICK, [{"number": int(n), "sent_ns": 0} for n in numbers])
        deadline = time.perf_counter() + _PATIENCE_S
        while not await self.dropped() and time.perf_counter() < deadline:
            for _ in range(20):
                await self._publisher.publish_batch(TICK.name, batch)
                self.published += len(batch)

    async def latencies(self, rate: int, seconds: float) -> tuple[float, float]:
        """The p50 and the p99 at the readers, in ms, of single events at a steady rate."""
        for reader in self.readers:
            reader.clear()
        count = max(1, round(rate * seconds))
        async for number in steady(rate, count):
            await self._publisher.publish(TICK.name, {"number": number, "sent_ns": time.perf_counter_ns()})
        self.published += count
        for reader in self.readers:
            await reader.until_count(count, "events beside one that stalls")
        times = np.concatenate([each for reader in self.readers for each in reader.latencies]) / 1e6
        p50, p99 = np.percentile(times, (50, 99))
        return float(p50), float(p99)

    async def dropped(self) -> int:
        """Events that the broker has dropped for the tenth."""
        _, state = await inspect_broker(self._address)
        interface = state["interfaces"][f"client/subscriber-{SUBSCRIBERS - 1}"]
        return sum(interface["dropped"].values())


def show(plan: StalledPlan, results: list[StalledResult]) -> None:
    show_fields(f"{plan.rate:,} events per second to ten subscribers, ms", results)


stalled = command(StalledPlan, measure_stalled, show)
