"""Plays a scenario over real brokers and clients: the history, the judge and the trace are the simulator's.

Brokers are processes on this machine, with the scenario's delays on their links (`delays.py`); all clients
live in this process, so that what they do and see has one order and one clock. What is measured is
therefore the overlay and this process together, on as many cores as there are.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from covey.matcher import EventBatch, EventType
from covey.overlay.client import Client
from covey.overlay.core.baselines.options import POSET_ENGINE
from covey.sim.checkers import Findings, Judge
from covey.sim.experiments.bench.delays import DelayedOverlay
from covey.sim.experiments.bench.under_way import UnderWay
from covey.sim.experiments.bench.watched import WatchedSession
from covey.sim.experiments.driver import Report, Say, busiest_share, load_of, topology_of
from covey.sim.scenario.history import Changed, Published, history
from covey.sim.scenario.load import Wish
from covey.sim.scenario.scenario import Scenario, ScenarioError
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S
from covey.sim.topology import Topology
from covey.sim.trace.trace import Trace

_AT_ONCE = 50
"""Clients that connect, and publications that wait to be taken, side by side."""
_SETTLE_S = 30.0
_QUIET_S = 1.0
_NOTHING: Mapping[str, Any] = {"received": {}, "events_received": 0}
_SIMULATED_ONLY = ("jitter_ms", "loss", "crashes", "parts")


class RealRun:
    """One run of a scenario over gRPC; `play` does it all.

    `ScenarioError` for what can only be simulated: jitter, loss, crashes, parted links and baselines.
    """

    def __init__(self, scenario: Scenario, *, topology: Topology | None = None) -> None:
        for name in _SIMULATED_ONLY:
            if getattr(scenario, name):
                raise ScenarioError(f"{name} is {getattr(scenario, name)!r}: expected 0 over real brokers")
        if scenario.brokers < 2:
            raise ScenarioError(f"brokers is {scenario.brokers}: expected at least 2 over real brokers")
        for name, value, baselines in (
            ("engine", scenario.engine, (POSET_ENGINE,)),
            ("poset", scenario.poset, ("naive", "diagram")),
        ):
            if value in baselines:
                raise ScenarioError(f"{name} is {value!r}: a baseline that can only be simulated")
        self.scenario = scenario
        self.topology = topology or topology_of(scenario)
        self.load = load_of(scenario, self.topology, random.Random(f"load {scenario.seed}"))
        self.findings = Findings()
        self._origin_ns = time.monotonic_ns()
        lossy = scenario.routing == "static" and scenario.resubscribe == "unsubscribe-first"
        self.judge = Judge(self.findings, self._now, lossy=lossy)
        self.report = Report(scenario, len(self.topology.brokers))
        self._watchers: list[Any] = [self.judge]
        self._trace: Trace | None = None
        self._counters: dict[str, Any] = {}
        """What brokers had counted when they were last asked."""
        self._arrived_ns = 0
        self._taken = asyncio.Semaphore(_AT_ONCE)

    def _now(self) -> int:
        """Nanoseconds since the run began."""
        return time.monotonic_ns() - self._origin_ns

    def play(self, trace: str | Path | None = None, say: Say = lambda phase, share: None) -> Report:
        """Play it in real time; `trace` is a folder for the trace."""
        if trace is None:
            return asyncio.run(self._play(say))
        with Trace(trace, self._now, asdict(self.scenario)) as self._trace:
            self._watchers.insert(0, self._trace)
            self.judge.watchers.append(self._trace)
            report = asyncio.run(self._play(say))
        report.trace_rows = self._trace.rows
        return report

    async def _play(self, say: Say) -> Report:
        scenario, links = self.scenario, self.topology.links
        say("starting brokers", 0.0)
        async with (
            DelayedOverlay(
                [(link.a, link.b) for link in links],
                routing=scenario.routing,
                engine=scenario.engine,
                delays_ms={(link.a, link.b): link.delay_ms for link in links},
                client_delay_ms=scenario.delay_ms,
            ) as overlay,
            AsyncExitStack() as stack,
        ):
            self._overlay = overlay
            started = time.perf_counter()
            self._begins("advertising")
            publishers = await self._publishers(stack)
            say("subscribing", 0.0)
            self._begins("subscribing")
            subscribers = await self._subscribers(stack)
            self._counters = await overlay.inspect()
            self._begins("running")
            running_ns, busy = self._now(), self._busy_ns()
            await self._happen(publishers, subscribers, say)
            await self._count()
            self._begins("resting")
            self.report.virtual_s = round((self._now() - running_ns) / NS_PER_S, 3)
            self.report.busiest_share = busiest_share(busy, self._busy_ns(), self._now() - running_ns)
            say("coming to rest", 0.0)
            await self._rest(subscribers)
            await self._count()
            self._begins("quiet")
            self.judge.quiet()
            self.report.real_s = round(time.perf_counter() - started, 3)
            await asyncio.gather(*(subscriber.end() for subscriber in subscribers))
        self.report.judged(self.judge, self.findings)
        return self.report

    def _begins(self, phase: str) -> None:
        if self._trace is not None:
            self._trace.phase(phase, self._busy_ns())

    # --- setting it up --------------------------------------------------------------------------------------

    async def _open(self, stack: AsyncExitStack, name: str, broker: str) -> Client:
        scenario = self.scenario
        session = WatchedSession(
            f"client/{name}", f"broker/{broker}", scenario.routing, scenario.resubscribe, self._watchers
        )
        address = self._overlay.client_addresses[broker]
        return await stack.enter_async_context(Client(address, name, session=session, connect_timeout=30.0))

    async def _publishers(self, stack: AsyncExitStack) -> list[tuple[Client, dict[str, EventType]]]:
        async def publisher(number: int) -> tuple[Client, dict[str, EventType]]:
            broker, types = self.load.publisher(number)
            client = await self._open(stack, f"p{number}", broker)
            await asyncio.gather(*(client.advertise(event_type) for event_type in types))
            return client, {event_type.name: event_type for event_type in types}

        made: list[tuple[Client, dict[str, EventType]]] = []
        numbers = range(self.scenario.publishers)
        for first in range(0, len(numbers), _AT_ONCE):
            made += await asyncio.gather(*(publisher(number) for number in numbers[first : first + _AT_ONCE]))
        return made

    async def _subscribers(self, stack: AsyncExitStack) -> list[_Subscriber]:
        wishes = [self.load.wish(number) for number in range(self.scenario.subscribers)]
        made = [_Subscriber(self, stack, f"s{number}", wish) for number, wish in enumerate(wishes)]
        for first in range(0, len(made), _AT_ONCE):
            await asyncio.gather(*(each.come() for each in made[first : first + _AT_ONCE]))
        return made

    # --- what happens ---------------------------------------------------------------------------------------

    async def _happen(
        self,
        publishers: list[tuple[Client, dict[str, EventType]]],
        subscribers: list[_Subscriber],
        say: Say,
    ) -> None:
        orderly = self.scenario.pace == "orderly"
        begin_ns, under_way = self._now(), UnderWay()
        end_ns = begin_ns + round(self.scenario.duration_s * NS_PER_S)
        for step in history(self.scenario, self.load, [each.wish for each in subscribers]):
            if not orderly:
                ahead_ns = begin_ns + step.after_ns - self._now()
                if ahead_ns > NS_PER_MS:
                    say("running", step.after_ns / max(end_ns - begin_ns, 1))
                    await asyncio.sleep(ahead_ns / NS_PER_S)
                elif self._now() > end_ns:
                    break  # slower than real time: what is left undone is not published
            doing = self._do(step, publishers, subscribers)
            if orderly:
                await doing
                await self._rest(subscribers, 0.0)
            else:
                await self._taken.acquire()
                under_way.begin(doing).add_done_callback(lambda _: self._taken.release())
        left_s = (end_ns - self._now()) / NS_PER_S
        if left_s > 0 and not orderly:
            await asyncio.sleep(left_s)
        await under_way.end()

    async def _do(
        self,
        step: Published | Changed,
        publishers: list[tuple[Client, dict[str, EventType]]],
        subscribers: list[_Subscriber],
    ) -> None:
        if isinstance(step, Published):
            self.report.published += len(step.batch)
            client, _ = publishers[step.publisher]
            await client.publish_batch(step.batch.event_type.name, step.batch)
            return
        self.report.updates += 1
        await subscribers[step.subscriber].change(step)

    async def _rest(self, subscribers: list[_Subscriber], quiet_s: float = _QUIET_S) -> None:
        """Until everything has settled, and all that is owed has come or nothing has come for a while."""
        deadline = self._now() + _SETTLE_S * NS_PER_S
        while self._now() < deadline:
            if all(each.settled for each in subscribers):
                if not self.judge.owing:
                    break
                if quiet_s and self._now() - self._arrived_ns > quiet_s * NS_PER_S:
                    break
            await asyncio.sleep(0.005)
        await asyncio.sleep(0)

    def arrived(self, batch: EventBatch) -> None:
        """Events have reached a user."""
        self._arrived_ns = self._now()

    # --- how it went ----------------------------------------------------------------------------------------

    def _busy_ns(self) -> dict[str, int]:
        """The processor time of each broker's process, where the system tells it."""
        found = {}
        for broker, process in self._overlay.process_ids().items():
            try:
                fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks = int(fields[11]) + int(fields[12])
            found[f"broker/{broker}"] = ticks * NS_PER_S // os.sysconf("SC_CLK_TCK")
        return found

    async def _count(self) -> None:
        """Tell the trace what has reached the brokers since they were last asked, and add up crossings."""
        before, self._counters = self._counters, await self._overlay.inspect()
        for broker, state in self._counters.items():
            for interface, counters in state["interfaces"].items():
                received, events = new_of(counters, before[broker]["interfaces"].get(interface))
                if interface.startswith("broker/"):
                    self.report.crossings += events
                if self._trace is not None:
                    self._trace.counted(interface, f"broker/{broker}", received, events)


def new_of(counters: Mapping[str, Any], old: Mapping[str, Any] | None) -> tuple[dict[str, int], int]:
    """Control messages by sort, and events, that a broker has received over an interface since its counters
    were `old`; all of them if it is another session by now, as of a client that went and came back."""
    received: dict[str, int] = counters["received"]
    if old is None or any(received.get(sort, 0) < count for sort, count in old["received"].items()):
        old = _NOTHING
    control = {sort: n - old["received"].get(sort, 0) for sort, n in received.items() if sort != "Publish"}
    return control, counters["events_received"] - old["events_received"]


class _Subscriber:
    """A subscriber and its one subscription; where it drives to another broker, it leaves and comes again."""

    def __init__(self, run: RealRun, stack: AsyncExitStack, name: str, wish: Wish) -> None:
        self.wish = wish
        self._values = dict(wish.values)
        self._run = run
        self._stack = stack
        self._name = name
        self._broker = wish.broker
        self._moving = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None

    @property
    def settled(self) -> bool:
        return not self._moving.locked() and self._session.settled == self._session.epoch

    async def come(self) -> None:
        self._client = await self._run._open(self._stack, self._name, self._broker)
        session = self._client.session
        assert isinstance(session, WatchedSession)
        self._session = session
        self._subscription = await self._client.subscribe(
            self.wish.filter.event_type, self.wish.filter, values=self._values
        )
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for batch in self._subscription.batches():
            self._run.arrived(batch)

    async def change(self, step: Changed) -> None:
        """New values at once; a move to another broker takes its time, and meanwhile values only add up."""
        self._values |= step.values
        if self._moving.locked():
            return
        if step.broker == self._broker:
            await self._subscription.update(values=step.values)
            return
        async with self._moving:
            self._subscription.update_nowait(values=step.values)
            await self.end()
            self._broker = step.broker
            await self.come()
            given = {n: v for n, v in self._values.items() if self._subscription.values[n] != v}
            if given:
                self._subscription.update_nowait(values=given)

    async def end(self) -> None:
        self._session.leave()
        await self._client.close()
        if self._reader is not None:
            await self._reader
