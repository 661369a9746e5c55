"""`covey bench chain`: throughput and latency through three brokers in a row.

    publisher -> b1 -> b2 -> b3 -> subscriber        each a process of its own
                  \\     |     /
                    the crowd                        one more process, a client at each broker

Events are small (symbol, price, volume, time). The subscriber's filter matches every event. The crowd has
1,000 parametric subscriptions at each broker, `symbol == $symbol and price < $limit`, of which about 1 %
match an event: 100 symbols, and limits above most prices. Brokers deliver these matches to the crowd.

Throughput: the publisher publishes batches as fast as the overlay accepts them; the number of events divided
by the time from the first publish to the last arrival at the subscriber; the median of several runs after a
warm-up run. Latency: single events at a steady rate, from just before `publish` to the delivery to the
subscriber, by the machine's clock.

The baseline, measured in the same way in the same run, is a chain of three bare relays (`bare_worker.py`).
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from covey.matcher.errors import CoveyError
from covey.overlay.local_overlay import LocalOverlay, chain
from covey.sim.experiments.progress import Progress, part, silent


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """Sizes, counts and rates of the measurement; latency at `rate` and at `low_rate`, events per second."""

    runs: int = 5
    events: int = 1_000_000
    batch: int = 1024
    subscriptions: int = 1000
    rate: int = 1000
    low_rate: int = 100
    latency_s: float = 10.0
    bare: bool = True


@dataclass(frozen=True, slots=True)
class Latency:
    """One-way latency of single events, in milliseconds."""

    p50_ms: float
    p99_ms: float

    def as_json(self) -> dict[str, float]:
        return {"p50": round(self.p50_ms, 3), "p99": round(self.p99_ms, 3)}


@dataclass(frozen=True, slots=True)
class ChainFigures:
    """The results of one chain; `runs` are the events per second of each run, in order."""

    runs: tuple[float, ...]
    latency: Latency
    low_latency: Latency

    @property
    def events_per_s(self) -> float:
        return statistics.median(self.runs)

    def as_json(self) -> dict[str, Any]:
        return {
            "events_per_s": round(self.events_per_s),
            "latency_ms": self.latency.as_json(),
            "latency_at_low_rate_ms": self.low_latency.as_json(),
            "runs": [round(run) for run in self.runs],
        }


@dataclass(frozen=True, slots=True)
class ChainResult:
    """The results of Covey and, optionally, of bare relays; `matches_per_event` is the number of the crowd's
    subscriptions at each broker that match an event."""

    covey: ChainFigures
    bare: ChainFigures | None
    matches_per_event: float

    def as_json(self) -> dict[str, Any]:
        return {
            **self.covey.as_json(),
            "crowd_matches_per_event": round(self.matches_per_event, 2),
            "bare": None if self.bare is None else self.bare.as_json(),
        }


class Worker:
    """A process with a role of `module` that executes commands: one line of JSON each way.

    `ready` is its first line.
    """

    def __init__(self, role: str, *, module: str = "chain_worker", **settings: Any) -> None:
        self.ready: dict[str, Any] = {}
        self._role = role
        self._module = f"covey.sim.experiments.bench.{module}"
        self._settings = settings
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            self._module,
            self._role,
            json.dumps(self._settings),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        self.ready = await self.response()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), 10.0)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()

    async def send(self, command: str, **arguments: Any) -> None:
        """Send a command without waiting for its result."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"command": command, "arguments": arguments}).encode() + b"\n")
        await self._process.stdin.drain()

    async def response(self, timeout_s: float = 120.0) -> dict[str, Any]:
        """The result of a command. Raises `CoveyError` if the process has ended."""
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), timeout_s)
        except TimeoutError:
            raise CoveyError(f"the {self._role} did not respond within {timeout_s:g} s") from None
        if not line:
            raise CoveyError(f"the {self._role} exited early")
        result: dict[str, Any] = json.loads(line)
        return result

    async def request(self, command: str, **arguments: Any) -> dict[str, Any]:
        await self.send(command, **arguments)
        return await self.response()


async def measure_chain(plan: ChainPlan, progress: Progress = silent) -> ChainResult:
    """Start the processes, measure, and stop them."""
    covey, matches_per_event = await _covey(plan, part(progress, 0.0, 0.6 if plan.bare else 1.0))
    bare = await _bare(plan, part(progress, 0.6, 1.0)) if plan.bare else None
    return ChainResult(covey, bare, matches_per_event)


async def _covey(plan: ChainPlan, progress: Progress) -> tuple[ChainFigures, float]:
    async with AsyncExitStack() as stack:
        progress("starting three brokers", 0.0)
        overlay = await stack.enter_async_context(LocalOverlay(chain(3)))
        addresses = [overlay.addresses[broker] for broker in overlay.brokers]
        publisher = await stack.enter_async_context(Worker("publisher", address=addresses[0]))
        subscriber = await stack.enter_async_context(Worker("subscriber", address=addresses[-1]))
        progress(f"adding {plan.subscriptions:,} subscriptions at each broker", 0.05)
        crowd = await stack.enter_async_context(
            Worker("crowd", addresses=addresses, subscriptions=plan.subscriptions)
        )
        runs = await _throughput(plan, publisher, subscriber, progress)
        counts = await crowd.request("count")
        figures = ChainFigures(runs, *await _latencies(plan, publisher, subscriber, progress))
    return figures, counts["matches"] / (plan.events * (plan.runs + 1) * len(addresses))


async def _bare(plan: ChainPlan, progress: Progress) -> ChainFigures:
    async with AsyncExitStack() as stack:
        progress("starting three bare relays", 0.0)
        subscriber = await stack.enter_async_context(Worker("sink", module="bare_worker"))
        address = subscriber.ready["address"]
        for _ in range(3):
            relay = await stack.enter_async_context(
                Worker("relay", module="bare_worker", next_address=address)
            )
            address = relay.ready["address"]
        publisher = await stack.enter_async_context(Worker("source", module="bare_worker", address=address))
        runs = await _throughput(plan, publisher, subscriber, progress)
        return ChainFigures(runs, *await _latencies(plan, publisher, subscriber, progress))


async def _throughput(
    plan: ChainPlan, publisher: Worker, subscriber: Worker, progress: Progress
) -> tuple[float, ...]:
    runs = []
    for run in range(plan.runs + 1):
        await subscriber.send("receive", events=plan.events)
        sent = await publisher.request("publish", events=plan.events, batch=plan.batch)
        received = await subscriber.response()
        rate = plan.events / ((received["last_ns"] - sent["first_ns"]) / 1e9)
        progress(f"run {run} of {plan.runs}: {rate:,.0f} events/s", 0.1 + 0.5 * run / plan.runs)
        runs.append(rate)
        await asyncio.sleep(0.5)
    return tuple(runs[1:])


async def _latencies(
    plan: ChainPlan, publisher: Worker, subscriber: Worker, progress: Progress
) -> list[Latency]:
    latencies: list[Latency] = []
    for rate in (plan.rate, plan.low_rate):
        events = max(1, int(rate * plan.latency_s))
        progress(f"{rate:,} single events per second for {plan.latency_s:g} s", 0.6 + 0.2 * len(latencies))
        await subscriber.send("receive", events=events)
        await publisher.request("trickle", events=events, rate=rate)
        received = await subscriber.response()
        latencies.append(Latency(received["p50_ms"], received["p99_ms"]))
    return latencies
