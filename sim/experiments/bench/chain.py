"""`covey bench chain`: publisher, three brokers in a row and subscriber, each a process, beside bare relays.

The subscriber's filter matches every event. One more process, the crowd, has 1,000 subscriptions at each
broker, `symbol == $symbol and price < $limit`, of which about 1 % match an event. The baselines are chains of
relays that parse, filter and forward each message (`relays.py`). All chains are measured in turns, in short
rounds after a warm-up, so that a slow phase of the machine affects all; a figure is the median of the rounds.

- *Batches*: as fast as the chain accepts them; events divided by the time from first publish to last arrival.
- *Sequence*: the same with single events, a loop of `await client.publish(...)`.
- *One by one*: a client waits for the arrival of each event at the far end before the next.
- *Rates*: single events at a steady rate; one-way latency from just before `publish` to the delivery, the
  rate of arrival, and per event the CPU time (user and system) and sent messages of a broker.
- *Updates*: of the subscriber, one awaited at a time and 512 at a time; each crosses all brokers and back.
- *Idle*: CPU and memory of a broker while nothing is published, and the memory per connected client.
"""

from __future__ import annotations

import asyncio
import statistics
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from covey.overlay.client import inspect_broker
from covey.sim.experiments.bench.chain_clients import SUBSCRIPTIONS
from covey.sim.experiments.local_overlay import LocalOverlay, chain
from covey.sim.experiments.processes import Worker, cpu_ns, resident_bytes, total_cpu_ns
from covey.sim.progress import Progress, silent

COVEY = "covey"
LENGTH = 3
CARRIERS = ("grpc", "tcp")
_CLIENTS, _RELAYS = "covey.sim.experiments.bench.chain_clients", "covey.sim.experiments.bench.relays"
_LISTED = 10
"""More than a broker of the chain has clients."""
_SETTLING_S = 0.3
_WARM_UP = 0.2
"""The size of the first round, as a share of the others."""


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """Sizes of a round, and how many rounds there are. Each rate (events per second) takes `seconds`.

    The sequence has `sequence` events in the first round, and as many as take `sequence_s` in the others.
    """

    rounds: int = 5
    events: int = 500_000
    batch: int = 1024
    subscriptions: int = 1000
    rates: tuple[int, ...] = (100, 1000, 8000)
    seconds: float = 1.5
    sequence: int = 1000
    sequence_s: float = 0.5
    one_by_one: int = 300
    updates: int = 20 * SUBSCRIPTIONS
    idle_s: float = 3.0
    idle_clients: int = 200
    bare: bool = True


@dataclass(frozen=True, slots=True)
class Spread:
    rounds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    def as_json(self) -> dict[str, Any]:
        return {"median": _rounded(self.median), "rounds": [_rounded(value) for value in self.rounds]}


Figures = dict[str, Spread]
"""The figures of one chain by name, with units and rates in the name: `p50_ms_at_100`."""


@dataclass(frozen=True, slots=True)
class ChainResult:
    """`figures` are by `covey` and, if measured, `grpc` and `tcp`; `matches_per_event` is the number of the
    crowd's subscriptions at each broker that match an event."""

    figures: dict[str, Figures]
    matches_per_event: float

    def as_json(self) -> dict[str, Any]:
        return {
            **{
                measured: {name: spread.as_json() for name, spread in figures.items()}
                for measured, figures in self.figures.items()
            },
            "crowd_matches_per_event": _rounded(self.matches_per_event),
        }


def _rounded(value: float) -> float:
    """To four significant digits, or to integers from 1000 on."""
    return round(value) if abs(value) >= 1000 else float(f"{value:.4g}")


@dataclass(frozen=True, slots=True)
class Chain:
    publisher: Worker
    subscriber: Worker
    first_address: str
    process_ids: tuple[int, ...]

    async def messages(self) -> int | None:
        """The messages that all brokers have sent so far; None for relays, which send one per message."""
        return None


@dataclass(frozen=True, slots=True)
class BrokerChain(Chain):
    crowd: Worker
    addresses: tuple[str, ...]

    async def messages(self) -> int | None:
        states = [await inspect_broker(address, listed=_LISTED) for address in self.addresses]
        interfaces = [interface for _, state in states for interface in state["interfaces"].values()]
        return sum(int(interface["frames_written"]) for interface in interfaces)


@asynccontextmanager
async def brokers(subscriptions: int) -> AsyncIterator[BrokerChain]:
    async with AsyncExitStack() as stack:
        overlay = await stack.enter_async_context(LocalOverlay(chain(LENGTH)))
        addresses = tuple(overlay.addresses[broker] for broker in overlay.brokers)
        publisher = await stack.enter_async_context(Worker(_CLIENTS, "publisher", address=addresses[0]))
        subscriber = await stack.enter_async_context(Worker(_CLIENTS, "subscriber", address=addresses[-1]))
        crowd = await stack.enter_async_context(
            Worker(_CLIENTS, "crowd", addresses=addresses, subscriptions=subscriptions)
        )
        processes = tuple(overlay.process_ids().values())
        yield BrokerChain(publisher, subscriber, addresses[0], processes, crowd, addresses)


@asynccontextmanager
async def relays(carrier: str) -> AsyncIterator[Chain]:
    async with AsyncExitStack() as stack:
        subscriber = await stack.enter_async_context(Worker(_RELAYS, f"{carrier} sink"))
        address = subscriber.ready["address"]
        processes = []
        for _ in range(LENGTH):
            relay = await stack.enter_async_context(Worker(_RELAYS, f"{carrier} relay", next_address=address))
            address = relay.ready["address"]
            processes.append(relay.process_id)
        publisher = await stack.enter_async_context(Worker(_RELAYS, f"{carrier} source", address=address))
        yield Chain(publisher, subscriber, address, tuple(processes))


async def measure_chain(plan: ChainPlan, progress: Progress = silent) -> ChainResult:
    async with AsyncExitStack() as stack:
        progress("starting brokers", 0.0)
        covey = await stack.enter_async_context(brokers(plan.subscriptions))
        chains: dict[str, Chain] = {COVEY: covey}
        for carrier in CARRIERS if plan.bare else ():
            progress(f"starting relays by {carrier}", 0.0)
            chains[carrier] = await stack.enter_async_context(relays(carrier))
        measurement = _Measurement(plan, chains, progress)
        await measurement.run()
        await measurement.idle()
        counts = await covey.crowd.request("count")
    published = measurement.published[COVEY]
    figures = {
        measured: {name: Spread(tuple(values)) for name, values in by_name.items()}
        for measured, by_name in measurement.values.items()
    }
    return ChainResult(figures, counts["matches"] / (published * LENGTH))


class _Measurement:
    """The values of every figure by chain; each round adds one."""

    def __init__(self, plan: ChainPlan, chains: dict[str, Chain], progress: Progress) -> None:
        self.values: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in chains}
        self.published: dict[str, int] = dict.fromkeys(chains, 0)
        self._plan = plan
        self._chains = chains
        self._progress = progress
        self._sequence_rates: dict[str, float] = {}

    async def run(self) -> None:
        plan = self._plan
        steps = [self._batches, self._sequence, self._one_by_one, self._updates]
        for round_number in range(plan.rounds + 1):
            share = 1.0 if round_number else _WARM_UP
            if round_number == 1:
                for values in self.values.values():
                    values.clear()
            done = 0.05 + 0.85 * round_number / (plan.rounds + 1)
            self._progress(f"round {round_number} of {plan.rounds}", done)
            for step in steps:
                for name in self._chains:
                    await step(name, share)
            for rate in plan.rates:
                for name in self._chains:
                    await self._rate(name, rate, share)

    async def _throughput(self, name: str, command: str, events: int, **arguments: int) -> float:
        running = self._chains[name]
        self.published[name] += events
        await running.subscriber.send("receive", events=events)
        sent = await running.publisher.request(command, events=events, **arguments)
        received = await running.subscriber.response()
        await asyncio.sleep(_SETTLING_S)
        took_ns: int = received["last_ns"] - sent["first_ns"]
        return events / took_ns * 1e9

    async def _batches(self, name: str, share: float) -> None:
        events = max(1, int(self._plan.events * share))
        rate = await self._throughput(name, "batches", events, batch=self._plan.batch)
        self.values[name]["events_per_s"].append(rate)

    async def _sequence(self, name: str, share: float) -> None:
        events = int(self._sequence_rates.get(name, 0.0) * self._plan.sequence_s) or self._plan.sequence
        rate = await self._throughput(name, "sequence", events)
        self._sequence_rates.setdefault(name, rate)
        self.values[name]["sequence_per_s"].append(rate)

    async def _one_by_one(self, name: str, share: float) -> None:
        running = self._chains[name]
        events = max(1, int(self._plan.one_by_one * share))
        self.published[name] += events
        result = await running.subscriber.request("one_by_one", events=events, address=running.first_address)
        self.values[name]["one_by_one_ms"].append(result["p50_ms"])

    async def _updates(self, name: str, share: float) -> None:
        if name != COVEY:
            return
        subscriber = self._chains[name].subscriber
        updates = max(1, int(self._plan.updates * share))
        many = await subscriber.request("updates", updates=updates, concurrent=SUBSCRIPTIONS)
        one = await subscriber.request("updates", updates=max(1, updates // 50), concurrent=1)
        self.values[name]["updates_per_s"].append(many["per_s"])
        self.values[name]["update_ms"].append(one["p50_ms"])

    async def _rate(self, name: str, rate: int, share: float) -> None:
        running, values = self._chains[name], self.values[name]
        events = max(1, int(rate * self._plan.seconds * share))
        self.published[name] += events
        messages = await running.messages()
        await asyncio.sleep(_SETTLING_S)
        used_ns = total_cpu_ns(running.process_ids)
        await running.subscriber.send("receive", events=events)
        sent = await running.publisher.request("trickle", events=events, rate=rate)
        received = await running.subscriber.response()
        used_ns = total_cpu_ns(running.process_ids) - used_ns
        values[f"p50_ms_at_{rate}"].append(received["p50_ms"])
        values[f"p99_ms_at_{rate}"].append(received["p99_ms"])
        values[f"arrived_per_s_at_{rate}"].append(events / (received["last_ns"] - sent["first_ns"]) * 1e9)
        values[f"cpu_ms_per_event_at_{rate}"].append(used_ns / 1e6 / events / LENGTH)
        if messages is None:
            values[f"messages_per_event_at_{rate}"].append(1.0)
            return
        await asyncio.sleep(_SETTLING_S)
        later = await running.messages()
        assert later is not None
        values[f"messages_per_event_at_{rate}"].append((later - messages) / events / LENGTH)

    async def idle(self) -> None:
        """Measure a broker that has done nothing, alone and with idle clients."""
        plan, values = self._plan, self.values[COVEY]
        self._progress("idle brokers", 0.9)
        async with LocalOverlay(chain(2)) as overlay:
            process = overlay.process_ids()["b1"]
            values["idle_cpu_percent"].append(await self._cpu_percent(process))
            values["idle_broker_mb"].append(resident_bytes(process) / 1e6)
            address = overlay.addresses["b1"]
            async with Worker(_CLIENTS, "idle", address=address, clients=10):
                before = resident_bytes(process)
                self._progress(f"{plan.idle_clients} idle clients", 0.95)
                async with Worker(_CLIENTS, "idle", address=address, clients=plan.idle_clients):
                    await asyncio.sleep(_SETTLING_S)
                    memory = resident_bytes(process) - before
                    values["idle_client_kb"].append(memory / 1000 / plan.idle_clients)
                    values["idle_cpu_percent_with_clients"].append(await self._cpu_percent(process))

    async def _cpu_percent(self, process_id: int) -> float:
        await asyncio.sleep(1.0)
        used_ns = cpu_ns(process_id)
        await asyncio.sleep(self._plan.idle_s)
        return (cpu_ns(process_id) - used_ns) / 1e9 / self._plan.idle_s * 100


def labels(plan: ChainPlan) -> dict[str, str]:
    return {
        "events_per_s": f"events/s, batches of {plan.batch:,}",
        "sequence_per_s": "events/s, a loop of `await publish`",
        "one_by_one_ms": "ms, one event at a time, p50",
        **{
            f"{name}_at_{rate}": f"{label} at {rate:,}/s"
            for rate in plan.rates
            for name, label in (
                ("p50_ms", "ms, p50"),
                ("p99_ms", "ms, p99"),
                ("arrived_per_s", "events/s that arrive"),
                ("cpu_ms_per_event", "CPU ms per event and broker"),
                ("messages_per_event", "messages per event and broker"),
            )
        },
        "update_ms": "ms, one awaited update at a time, p50",
        "updates_per_s": f"awaited updates/s, {SUBSCRIPTIONS} at a time",
        "idle_cpu_percent": "% of a core, idle broker",
        "idle_broker_mb": "MB of memory, idle broker",
        "idle_cpu_percent_with_clients": f"% of a core, idle broker, {plan.idle_clients} more clients there",
        "idle_client_kb": "kB of a broker's memory per idle client",
    }
