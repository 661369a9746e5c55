"""`hostile`: what hostile clients cost the others.

    publisher -> b2 - b1        a subscriber at b1 and one at b2
                      |
                   hostile      a process (`hostile_client.py`)

The publisher publishes single events at a steady rate. Before each attack the latency of the subscribers is
measured without it, since other processes of the machine come and go: while the hostile process is silent,
and while it only computes, since on one machine it takes as much of the processors from brokers as it uses.
An event counts for the time in which it was published, however late it arrives. Before the next attack the
hostile client's sessions have ended.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import asdict, astuple, dataclass, replace
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.floods import FLOODS
from benchmarks.harness import Arrivals, Counts, Words, arrivals, command, steady
from benchmarks.hostile_client import TRADE
from covey.cli.support.output import print_table
from covey.matcher.errors import CoveyError
from covey.overlay import Client
from covey.overlay.client import inspect_broker
from covey.overlay.core.endpoint.quotas import Bounds
from covey.sim.experiments.bench.usage import resident_bytes
from covey.sim.experiments.local_overlay import LocalOverlay, chain
from covey.sim.experiments.processes import Worker
from covey.sim.progress import Progress, silent

ATTACKS = {
    "subscriptions": "subscribes, up to a number",
    "churn": "subscribes and unsubscribes",
    "end": "leaves, having so many subscriptions",
    "updates": "updates 1,000 subscriptions",
    "filters": "subscribes the longest filters",
    "batches": "publishes batches of 4,096 events",
    "connections": "connects and goes",
    "malformed": "sends messages that are refused",
    "packets": "connects and sends random bytes",
    **FLOODS,
}
_LEASE_S = 2
_PREPARING_S = 900.0
_PAUSE_S = 0.5
_LEAVING_S = 300.0


@dataclass(frozen=True, slots=True)
class HostilePlan:
    """Measure the latency of clients while another one is hostile to their broker.

    Single events pass from b2 to subscribers at b1 and b2; the hostile client is a process that attacks b1.
    Before each attack its process is silent, and then computes: what any process costs on the same
    processors. Floods are frames that bring nothing: window_update, priority, unknown and others.

    Example: python -m benchmarks hostile --attacks floods --seconds 5

    Example: python -m benchmarks hostile --attacks subscriptions,end --subscriptions 1000000 --seconds 60
    """

    rate: Annotated[int, typer.Option(min=1, help="Events per second of the others.")] = 200
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Of each of the three measurements of an attack.")
    ] = 10.0
    subscriptions: Annotated[
        int, typer.Option(min=1, help="Of the attacks subscriptions and end.")
    ] = 100_000
    attacks: Annotated[
        tuple[str, ...], Words("Which", ATTACKS, {"all": tuple(ATTACKS), "floods": tuple(FLOODS)})
    ] = tuple(ATTACKS)
    connections: Annotated[tuple[int, ...], Counts("Of a flood at once: numbers, each tried")] = (3, 100)
    rounds: Annotated[
        int, typer.Option(min=1, help="Rounds through all attacks; medians are shown, and the most memory.")
    ] = 1


@dataclass(frozen=True, slots=True)
class Latency:
    """Of the events that were published in some time, in milliseconds."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class HostileResult:
    """One attack on b1: how many messages, connections, frames or events it sent, over how many connections
    at once and how these ended, where it is a flood, the latency of the others at b1 and
    at b2 while the hostile process is silent, computes and attacks, the memory of b1 with it, and how long
    after it its sessions had ended.
    """

    attack: str
    connections: int
    done: int
    closed: dict[str, int]
    silent: Latency
    computing: Latency
    attacked: Latency
    neighbour_silent: Latency
    neighbour_computing: Latency
    neighbour: Latency
    memory_mb: float
    ended_s: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio}

    @property
    def ratio(self) -> float:
        """Of the p99 at b1 with the attack to that beside a process that computes."""
        return self.attacked.p99 / self.computing.p99


async def measure_hostile(plan: HostilePlan, progress: Progress = silent) -> list[HostileResult]:
    """Every attack, one after the other."""
    progress("starting two brokers", 0.0)
    async with AsyncExitStack() as stack:
        overlay = LocalOverlay(chain(2), event_types=[TRADE], limits={"session_lease_s": _LEASE_S})
        await stack.enter_async_context(overlay)
        publisher = await stack.enter_async_context(Client(overlay.addresses["b2"], "publisher"))
        await publisher.advertise(TRADE)
        readers = []
        for broker in ("b1", "b2"):
            client = await stack.enter_async_context(Client(overlay.addresses[broker], f"reader-{broker}"))
            wanted = await client.subscribe(TRADE, "number >= 0")
            readers.append(await stack.enter_async_context(arrivals(wanted)))
        return await _Run(plan, overlay, publisher, readers).all(progress)


class _Run:
    """The attacks of a run."""

    def __init__(
        self, plan: HostilePlan, overlay: LocalOverlay, publisher: Client, readers: list[Arrivals]
    ) -> None:
        self._plan = plan
        self._overlay = overlay
        self._publisher = publisher
        self._readers = readers
        self._published = 0

    async def all(self, progress: Progress) -> list[HostileResult]:
        publishing = asyncio.create_task(self._publish())
        try:
            await self._latency(1.0)
            sessions = await self._sessions()
            results = []
            runs = [
                (attack, connections)
                for attack in self._plan.attacks
                for connections in (self._plan.connections if attack in FLOODS else (1,))
            ]
            for at, (attack, connections) in enumerate(runs * self._plan.rounds):
                progress(f"{attack}: it {ATTACKS[attack]}", at / (len(runs) * self._plan.rounds))
                results.append(await self._result(attack, connections, sessions))
            return [_median(results[at :: len(runs)]) for at in range(len(runs))]
        finally:
            publishing.cancel()
            with suppress(asyncio.CancelledError):
                await publishing

    async def _publish(self) -> None:
        async for number in steady(self._plan.rate):
            values = {"number": number, "sent_ns": time.perf_counter_ns(), "share": 0.5}
            await self._publisher.publish(TRADE.name, values)
            self._published += 1

    async def _result(self, attack: str, connections: int, sessions: int) -> HostileResult:
        settings = {
            "address": self._overlay.addresses["b1"],
            "attack": attack,
            "subscriptions": self._plan.subscriptions,
            "filter_bytes": Bounds().filter_bytes,
            "connections": connections,
        }
        worker = Worker("benchmarks.hostile_client", "hostile", patience_s=_PREPARING_S, **settings)
        async with worker as hostile:
            await asyncio.sleep(_PAUSE_S)
            silent = await self._latency(self._plan.seconds)
            await hostile.request("compute")
            computing = await self._latency(self._plan.seconds)
            await hostile.request("attack")
            attacked = await self._latency(self._plan.seconds)
            memory = resident_bytes(self._overlay.process_ids()["b1"])
            said = await hostile.request("end")
            began = time.perf_counter()
        await self._until_gone(sessions)
        ended_s = time.perf_counter() - began
        mb = round(memory / 1e6, 1)
        near, far = zip(silent, computing, attacked, strict=True)
        return HostileResult(
            attack, connections, said["done"], said["closed"], *near, *far, mb, ended_s
        )

    async def _latency(self, seconds: float) -> list[Latency]:
        """The latency of what is published within some seconds, at each reader."""
        first = self._published
        await asyncio.sleep(seconds)
        last = self._published
        for reader in self._readers:
            await reader.until_newest(last - 1, "events under an attack", _LEAVING_S)
        latencies = []
        for reader in self._readers:
            numbers, times = np.concatenate(reader.numbers), np.concatenate(reader.latencies)
            times = times[(numbers >= first) & (numbers < last)] / 1e6
            p50, p99 = np.percentile(times, (50, 99))
            latencies.append(Latency(float(p50), float(p99), float(times.max())))
        return latencies

    async def _sessions(self) -> int:
        _, state = await inspect_broker(self._overlay.addresses["b1"], listed=0)
        return int(state["sessions"])

    async def _until_gone(self, sessions: int) -> None:
        """Until b1 has as many sessions as before. `CoveyError` after five minutes."""
        deadline = time.perf_counter() + _LEAVING_S
        while await self._sessions() > sessions:
            if time.perf_counter() > deadline:
                raise CoveyError(f"sessions of a hostile client: expected to end within {_LEAVING_S:g} s")
            await asyncio.sleep(0.1)


def _median(rounds: list[HostileResult]) -> HostileResult:
    """Of the rounds of one attack: medians, sums of what was done and closed, and the most memory."""

    names = ("silent", "computing", "attacked", "neighbour_silent", "neighbour_computing", "neighbour")
    latencies: dict[str, Any] = {}
    for name in names:
        each = [astuple(getattr(result, name)) for result in rounds]
        latencies[name] = Latency(*np.median(each, axis=0).tolist())
    return replace(
        rounds[0],
        done=sum(result.done for result in rounds),
        closed=dict(sum((Counter(result.closed) for result in rounds), Counter[str]())),
        memory_mb=max(result.memory_mb for result in rounds),
        ended_s=float(np.median([result.ended_s for result in rounds])),
        **latencies,
    )


def show(plan: HostilePlan, results: list[HostileResult]) -> None:
    rows = []
    for each in results:
        p99 = [each.silent.p99, each.computing.p99, each.attacked.p99]
        at_b2 = [each.neighbour_silent.p99, each.neighbour_computing.p99, each.neighbour.p99]
        most = [each.attacked.p50, each.attacked.max]
        attack = f"{each.attack} x{each.connections}" if each.attack in FLOODS else each.attack
        closed = ", ".join(f"{count:,} {name}" for name, count in each.closed.items())
        ends = [each.memory_mb, each.ended_s]
        rows.append([attack, each.done, closed, *p99, each.ratio, *most, *at_b2, *ends])
    near = ["connections ended", "p99", "p99 computing", "p99 attacked"]
    near += ["ratio", "p50 attacked", "max attacked"]
    far = ["p99 at b2", "computing", "attacked"]
    print_table(
        f"{plan.rate:,} events per second of others, ms from publishing to arrival",
        ["attack", "done", *near, *far, "memory MB", "ended s"],
        rows,
    )


hostile = command(HostilePlan, measure_hostile, show)
