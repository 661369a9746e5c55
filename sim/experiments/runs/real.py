"""Runs a scenario over real brokers and clients, with the schedule, judge and trace of the simulator. Brokers
are processes on this machine, with the scenario's delays on their links (`local_overlay.py`). All clients run
in this process, so that their histories have one order and one clock; the measurement therefore covers the
overlay and this process together. Sessions call the observers as simulated clients do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from covey.matcher.errors import CoveyError
from covey.overlay.client import Client, ClosedError, Subscription
from covey.overlay.core.client.actions import ClientAction, DeliverTo, Settled
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import Refuse
from covey.sim.experiments.local_overlay import DelayedOverlay
from covey.sim.experiments.processes import BackgroundTasks, cpu_ns
from covey.sim.experiments.runs.run import Run, RunSummary, busiest_share
from covey.sim.progress import Progress, silent
from covey.sim.scenario.loads import SubscriberState
from covey.sim.scenario.scenario import Scenario, ScenarioError, beyond_real
from covey.sim.scenario.schedule import PublishStep, UpdateStep, draw_schedule
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S
from covey.sim.topology import Topology
from covey.sim.trace.manifest import Choices

if TYPE_CHECKING:
    from covey.matcher import EventBatch, EventType, Filter
    from covey.overlay.core.messages import Deliver, Message, Publish
    from covey.sim.simulator.observer import Observer


class ObservedSession(ClientSession):
    """An `ObservedClient`. A client that moves goes on with it at another broker."""

    def __init__(self, name: str, broker: str, routing: str, resubscribe: str, observers: Observer) -> None:
        super().__init__(name.removeprefix("client/"), routing=routing, resubscribe=resubscribe)
        self.name = name
        self.broker = broker
        self.present = True
        self.durable = False
        self._observers = observers
        observers.joined(self)

    @property
    def session(self) -> ClientSession:
        return self

    def move(self, broker: str) -> None:
        self.broker = broker
        self._observers.moved(self, broker)

    def leave(self) -> None:
        self.present = False
        self._observers.left(self, False)

    # --- calls of the user ----------------------------------------------------------------------------------

    def advertise(
        self, event_type: EventType, filter: Filter | None = None, *, report_listeners: bool = False
    ) -> list[Message]:
        messages = super().advertise(event_type, filter, report_listeners=report_listeners)
        if messages:
            self._observers.advertised(self, event_type)
        return messages

    def subscribe(
        self, filter: Filter, values: Mapping[str, object] | None = None, **times_ns: int
    ) -> tuple[int, list[Message]]:
        subscription_id, messages = super().subscribe(filter, values, **times_ns)
        self._observers.subscribed(self, subscription_id)
        return subscription_id, messages

    def update(
        self, subscription_id: int, values: Mapping[str, object], *, traceparent: str = "", **times_ns: int
    ) -> list[Message]:
        old = self.values(subscription_id)
        messages = super().update(subscription_id, values, traceparent=traceparent, **times_ns)
        if messages:
            self._observers.updated(self, subscription_id, old)
        return messages

    def publish(self, batch: EventBatch) -> Publish:
        message = super().publish(batch)
        self._observers.published(self, message.batch)
        return message

    # --- messages of the broker -----------------------------------------------------------------------------

    def shares(self, message: Deliver) -> list[DeliverTo]:
        self._notify_received(message)
        shares = super().shares(message)
        for share in shares if self.present else ():
            self._observers.delivered(self, share)
        return shares

    def _notify_received(self, message: Message) -> None:
        if self.present:
            self._observers.received(self.broker, self.name, message)

    def receive(self, message: Message) -> list[ClientAction]:
        self._notify_received(message)
        actions = super().receive(message)
        for action in actions if self.present else ():
            if isinstance(action, Settled):
                self._observers.settled(self, action.epoch)
            elif isinstance(action, Refuse):
                self._observers.refused(self, action)
        return actions


class RealSubscriber:
    """`open_client(name, broker, session)` opens a client, which goes on with the session if one is given;
    `on_events` is called at every batch of delivered events."""

    def __init__(
        self,
        name: str,
        state: SubscriberState,
        open_client: Callable[..., Awaitable[Client]],
        on_events: Callable[[], None],
    ) -> None:
        self.state = state
        self._values = dict(state.values)
        self._open_client = open_client
        self._on_events = on_events
        self._name = name
        self._broker = state.broker
        self._moving = asyncio.Lock()
        self._reader: asyncio.Task[None] | None = None

    @property
    def settled(self) -> bool:
        return not self._moving.locked() and self._session.settled == self._session.epoch

    async def join(self) -> None:
        self._client = await self._open_client(self._name, self._broker)
        session = self._client.session
        assert isinstance(session, ObservedSession)
        self._session = session
        self._read(
            await self._client.subscribe(self.state.filter.event_type, self.state.filter, values=self._values)
        )

    def _read(self, subscription: Subscription) -> None:
        self._subscription = subscription
        self._reader = asyncio.create_task(self._read_batches(subscription))

    async def _read_batches(self, subscription: Subscription) -> None:
        async for _ in subscription.batches():
            self._on_events()

    async def update(self, step: UpdateStep) -> None:
        """Update at once; during a move to another broker only collect the values."""
        self._values |= step.values
        if self._moving.locked():
            return
        if step.broker == self._broker:
            client = self._client
            try:
                await self._subscription.update(values=step.values)
            except ClosedError:
                if client is self._client and not self._moving.locked():
                    raise  # else a later step moves it meanwhile, with these values
            return
        async with self._moving:
            self._subscription.update_nowait(values=step.values)
            await self._close()
            self._broker = step.broker
            self._session.move(f"broker/{step.broker}")
            self._client = await self._open_client(self._name, step.broker, self._session)
            self._read(self._client.subscription(self._subscription.id))
            if self._values != self._subscription.values:
                self._subscription.update_nowait(values=self._values)

    async def leave(self) -> None:
        self._session.leave()
        await self._close()

    async def _close(self) -> None:
        await self._client.close()
        if self._reader is not None:
            await self._reader


T = TypeVar("T")

_CONCURRENT = 50
"""The most clients that connect, or steps of the schedule that are pending, at once."""
_SETTLE_S = 30.0
_QUIET_S = 1.0
_NOTHING: Mapping[str, Any] = {"received": {}, "events_received": 0}


class RealRun(Run):
    """A run over gRPC. Raises `ScenarioError` for a field that only the simulator supports."""

    real = True

    def __init__(self, scenario: Scenario, *, topology: Topology | None = None) -> None:
        beyond = beyond_real(scenario)
        if beyond:
            raise ScenarioError(f"{beyond} over real brokers")
        origin_ns = time.monotonic_ns()
        super().__init__(scenario, topology, lambda: time.monotonic_ns() - origin_ns)
        if len(self.topology.brokers) < 2:
            raise ScenarioError(
                f"brokers is {len(self.topology.brokers)}: expected at least 2 over real brokers"
            )
        self._counters: dict[str, Any] = {}
        self._arrived_ns = 0
        self._pending = asyncio.Semaphore(_CONCURRENT)

    def run(
        self, trace: str | Path | None = None, progress: Progress = silent, *, choices: Choices | None = None
    ) -> RunSummary:
        with self._traced(trace, choices):
            asyncio.run(self._run(progress))
            self._end_trace()
        return self.summary

    async def _run(self, progress: Progress) -> None:
        scenario, links = self.scenario, self.topology.links
        progress("starting brokers", 0.0)
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
            self._overlay, self._stack = overlay, stack
            started = time.perf_counter()
            self._start_phase("advertising")
            publishers = await _in_portions([self._publisher(n) for n in range(scenario.publishers)])
            progress("subscribing", 0.0)
            self._start_phase("subscribing")
            subscribers = [
                RealSubscriber(f"s{n}", self.load.subscriber(n), self._open, self._on_events)
                for n in range(scenario.subscribers)
            ]
            await _in_portions([subscriber.join() for subscriber in subscribers])
            self._counters = await overlay.inspect()
            self._start_phase("running")
            running_ns, busy_ns = self._now(), self._busy_ns()
            await self._run_schedule(publishers, subscribers, progress)
            await self._count_messages()
            self._start_phase("resting")
            self.summary.virtual_s = round((self._now() - running_ns) / NS_PER_S, 3)
            self.summary.busiest_share = busiest_share(busy_ns, self._busy_ns(), self._now() - running_ns)
            progress("coming to rest", 0.0)
            await self._rest(subscribers)
            await self._count_messages()
            self._start_phase("quiet")
            self.judge.quiet()
            self.summary.real_s = round(time.perf_counter() - started, 3)
            await asyncio.gather(*(subscriber.leave() for subscriber in subscribers))
        self.summary.add_verdict(self.judge, self.findings)

    def _start_phase(self, phase: str) -> None:
        if self._trace is not None:
            self._trace.phase(phase, self._busy_ns())

    async def _open(self, name: str, broker: str, session: ObservedSession | None = None) -> Client:
        """Connect a new client, or one that goes on with `session`."""
        scenario = self.scenario
        if session is None:
            session = ObservedSession(
                f"client/{name}", f"broker/{broker}", scenario.routing, scenario.resubscribe, self._observers
            )
        client = Client(self._overlay.client_addresses[broker], name, session=session, connect_timeout=30.0)
        return await self._stack.enter_async_context(client)

    async def _publisher(self, number: int) -> Client:
        broker, types = self.load.publisher(number)
        client = await self._open(f"p{number}", broker)
        await asyncio.gather(*(client.advertise(event_type) for event_type in types))
        return client

    # --- the schedule ---------------------------------------------------------------------------------------

    async def _run_schedule(
        self, publishers: list[Client], subscribers: list[RealSubscriber], progress: Progress
    ) -> None:
        orderly = self.scenario.pace == "orderly"
        start_ns, tasks = self._now(), BackgroundTasks()
        end_ns = start_ns + round(self.scenario.duration_s * NS_PER_S)
        for step in draw_schedule(self.scenario, self.load, [each.state for each in subscribers]):
            if not orderly:
                ahead_ns = start_ns + step.after_ns - self._now()
                if ahead_ns > NS_PER_MS:
                    progress("running", step.after_ns / max(end_ns - start_ns, 1))
                    await asyncio.sleep(ahead_ns / NS_PER_S)
                elif self._now() > end_ns:
                    break  # slower than real time: the rest of the schedule is skipped
            if orderly:
                await self._do(step, publishers, subscribers)
                await self._rest(subscribers, 0.0)
            else:
                await self._pending.acquire()
                task = tasks.start(self._do(step, publishers, subscribers))
                task.add_done_callback(lambda _: self._pending.release())
        ahead_s = (end_ns - self._now()) / NS_PER_S
        if ahead_s > 0 and not orderly:
            await asyncio.sleep(ahead_s)
        await tasks.join()

    async def _do(
        self, step: PublishStep | UpdateStep, publishers: list[Client], subscribers: list[RealSubscriber]
    ) -> None:
        if isinstance(step, PublishStep):
            self.summary.published += len(step.batch)
            await publishers[step.publisher].publish_batch(
                step.batch.event_type.name, step.batch, confirm=True
            )
        else:
            self.summary.updates += 1
            await subscribers[step.subscriber].update(step)

    async def _rest(self, subscribers: list[RealSubscriber], quiet_s: float = _QUIET_S) -> None:
        """Wait until all has settled and every expected event has arrived, or none has for `quiet_s`."""
        deadline = self._now() + _SETTLE_S * NS_PER_S
        while self._now() < deadline:
            if all(subscriber.settled for subscriber in subscribers):
                if not self.judge.expecting:
                    break
                if quiet_s and self._now() - self._arrived_ns > quiet_s * NS_PER_S:
                    break
            await asyncio.sleep(0.005)
        await asyncio.sleep(0)

    def _on_events(self) -> None:
        self._arrived_ns = self._now()

    # --- brokers' counters ----------------------------------------------------------------------------------

    def _busy_ns(self) -> dict[str, int]:
        """Processor time of each broker's process, where /proc has it."""
        busy_ns = {}
        for broker, process in self._overlay.process_ids().items():
            with suppress(CoveyError, OSError):
                busy_ns[f"broker/{broker}"] = cpu_ns(process)
        return busy_ns

    async def _count_messages(self) -> None:
        """Trace the messages that reached the brokers since the last call, and add up crossings."""
        before, self._counters = self._counters, await self._overlay.inspect()
        for broker, state in self._counters.items():
            for interface, counters in state["interfaces"].items():
                received, events = received_since(counters, before[broker]["interfaces"].get(interface))
                if interface.startswith("broker/"):
                    self.summary.crossings += events
                    control = self.summary.control
                    for kind, count in received.items():
                        if kind != "Publish" and count:
                            control[kind] = control.get(kind, 0) + count
                if self._trace is not None:
                    self._trace.counted(interface, f"broker/{broker}", received, events)


def received_since(counters: Mapping[str, Any], old: Mapping[str, Any] | None) -> tuple[dict[str, int], int]:
    """Messages by kind, and events, that a broker received over an interface since its counters were `old`;
    all of them if counters went down, since the interface then has a new session."""
    received: dict[str, int] = counters["received"]
    if old is None or any(received.get(kind, 0) < count for kind, count in old["received"].items()):
        old = _NOTHING
    since = {kind: n - old["received"].get(kind, 0) for kind, n in received.items()}
    return since, counters["events_received"] - old["events_received"]


async def _in_portions(work: list[Coroutine[Any, Any, T]]) -> list[T]:
    results: list[T] = []
    for first in range(0, len(work), _CONCURRENT):
        results += await asyncio.gather(*work[first : first + _CONCURRENT])
    return results
