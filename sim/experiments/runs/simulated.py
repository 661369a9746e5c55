"""Runs a scenario in virtual time, has the checkers judge it, and summarises it.

A publisher with a window draws an exponential pause with the mean of `event_rate`, waits until it has passed
and the window has room for a batch, publishes, and draws the next pause: this is the highest rate, since
waiting is not made up for. Each publisher has a generator for pauses and events, so its n-th event and all
updates are the same in every compared system.

An event is in the window while a copy of it is: one from its publisher to a broker, and one for each
interface to which a broker sends it. A copy ends when a broker's time for it has passed, when a client gets
it, or with the client's session. Crashes lose copies unseen, so runs with crashes have no window.
"""

from __future__ import annotations

import gc
import random
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from covey.matcher import EventBatch, compile_kernels
from covey.overlay.core.messages import Action, Deliver, Disconnect, Interface, Message, Publish, Send
from covey.sim.checkers import Traffic, check_quiet, check_routes
from covey.sim.experiments.runs.run import LinkControl, Run, RunSummary, WorkByKind, busiest_share
from covey.sim.progress import Progress, part, silent
from covey.sim.scenario.loads import SubscriberState
from covey.sim.scenario.scenario import Scenario, cost_key
from covey.sim.scenario.schedule import PublishStep, UpdateStep, draw_schedule
from covey.sim.simulator import Calibrated, Costs, Free, Measured, Simulation, WireOptions
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S, Clock
from covey.sim.simulator.costs import load_costs
from covey.sim.simulator.observer import ObservedClient, Observer
from covey.sim.topology import Topology
from covey.sim.trace.manifest import Choices

if TYPE_CHECKING:
    from covey.sim.scenario.loads import Load

_Event = tuple[str, int]


class UnderWay(Observer):
    """Counts the events under way of each publisher; calls `ended` with the publisher of each that ends."""

    def __init__(self, ended: Callable[[str], None] = lambda publisher: None) -> None:
        self.by_publisher: dict[str, int] = {}
        self._ended = ended
        self._copies: dict[_Event, int] = {}
        self._delivering: dict[tuple[Interface, Interface], set[_Event]] = {}

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        for event in _events(batch):
            self._copies[event] = 1
        self.by_publisher[batch.publisher] = self.by_publisher.get(batch.publisher, 0) + len(batch)

    def handled(
        self, broker: str, source: str, messages: Sequence[Message], actions: Sequence[Action]
    ) -> None:
        for action in actions:
            if not isinstance(action, Send) or not isinstance(action.message, Publish | Deliver):
                continue
            events = _events(action.message.batch)
            for event in events:
                self._copies[event] = self._copies.get(event, 0) + 1
            if isinstance(action.message, Deliver):
                self._delivering.setdefault((broker, action.interface), set()).update(events)
        for message in messages:
            if isinstance(message, Publish):
                self._end(_events(message.batch))
            elif isinstance(message, Disconnect):
                self._end(sorted(self._delivering.pop((broker, source), ())))

    def received(self, source: str, target: str, message: Message) -> None:
        if isinstance(message, Deliver):
            delivering = self._delivering.get((source, target), set())
            arrived = [event for event in _events(message.batch) if event in delivering]
            delivering.difference_update(arrived)
            self._end(arrived)

    def _end(self, events: Iterable[_Event]) -> None:
        for event in events:
            self._copies[event] -= 1
            if not self._copies[event]:
                del self._copies[event]
                self.by_publisher[event[0]] -= 1
                self._ended(event[0])


def _events(batch: EventBatch) -> list[_Event]:
    publisher = batch.publisher
    return [(publisher, sequence) for sequence in batch.sequences().tolist()]


class ClosedLoop:
    """The publishers of a scenario, from `start` on; calls `publish` with a publisher's number and a batch.
    `under_way` has to observe the simulation."""

    def __init__(
        self, scenario: Scenario, load: Load, clock: Clock, publish: Callable[[int, EventBatch], None]
    ) -> None:
        self.under_way = UnderWay(self._on_end)
        self._scenario = scenario
        self._load = load
        self._clock = clock
        self._publish = publish
        self._draws = [random.Random(f"publisher {n} {scenario.seed}") for n in range(scenario.publishers)]
        self._numbers: dict[str, int] = {}
        self._waiting: set[int] = set()
        self._end_ns = 0

    def start(self, publishers: list[str], end_ns: int) -> None:
        """Publish until `end_ns`. `publishers` are the identities of all publishers, by number."""
        self._end_ns = end_ns
        self._numbers = {name: number for number, name in enumerate(publishers)}
        self._names = publishers
        if self._scenario.event_rate:
            for number in range(len(publishers)):
                self._pause(number)

    def _pause(self, number: int) -> None:
        rate = self._scenario.event_rate / self._scenario.batch
        self._clock.after(round(self._draws[number].expovariate(rate) * NS_PER_S), self._on_pause, number)

    def _on_pause(self, number: int) -> None:
        if self._has_room(number):
            self._publish_next(number)
        else:
            self._waiting.add(number)

    def _on_end(self, publisher: str) -> None:
        number = self._numbers.get(publisher)
        if number in self._waiting and self._has_room(number):
            self._waiting.discard(number)
            self._clock.after(0, self._publish_next, number)

    def _has_room(self, number: int) -> bool:
        under_way = self.under_way.by_publisher.get(self._names[number], 0)
        return under_way + self._scenario.batch <= self._scenario.window

    def _publish_next(self, number: int) -> None:
        if self._clock.now_ns < self._end_ns:
            self._publish(number, self._load.events(number, self._scenario.batch, self._draws[number]))
            self._pause(number)


_LINKS_COMPARED = 20
_PROGRESS_STEPS = 50
_SUBSCRIBED, _RUN = 0.1, 0.95
"""The shares of progress at which all have subscribed, and at which the schedule has ended."""
_CRASH_NS = 200 * NS_PER_MS
_PARTITION_NS = 500 * NS_PER_MS


class SimulatedRun(Run):
    real = False

    def __init__(
        self, scenario: Scenario, *, topology: Topology | None = None, costs: Costs | None = None
    ) -> None:
        self.costs = costs or _costs(scenario)
        self._work = WorkByKind(self.costs)
        self._control = LinkControl()
        wire = WireOptions(
            round(scenario.delay_ms * NS_PER_MS), round(scenario.jitter_ms * NS_PER_MS), scenario.loss
        )
        self.simulation = Simulation(
            scenario.seed,
            routing=scenario.routing,
            resubscribe=scenario.resubscribe,
            engine=scenario.engine,
            poset=scenario.poset,
            costs=self._work,
            service=scenario.service,
            link={} if scenario.merge else {"merge_updates": False},
            wire=wire,
        )
        self._random = random.Random(f"scenario {scenario.seed}")
        clock = self.simulation.clock
        super().__init__(scenario, topology, lambda: clock.now_ns)
        self.traffic = Traffic(self.findings, self._now)
        self._publishers: list[SimulatedClient] = []
        self._subscribers: list[tuple[SimulatedClient, int, SubscriberState]] = []
        self._closed_loop: ClosedLoop | None = None
        if scenario.window:
            self._closed_loop = ClosedLoop(scenario, self.load, clock, self._publish)

    def run(
        self, trace: str | Path | None = None, progress: Progress = silent, *, choices: Choices | None = None
    ) -> RunSummary:
        """As `Run.run`.

        Kernels are loaded first, since a background thread would load them at a time that is not
        reproducible. With measured costs a small run precedes, whose time is not charged.
        """
        compile_kernels()
        if self.costs.measures:
            progress("warming up", 0.0)
            small = self.scenario.having(subscribers=10, duration_s=0.1, update_rate=20.0)
            SimulatedRun(small, topology=self.topology, costs=Free()).run()
        gc.disable()  # there is hardly any cyclic garbage, and looking for it takes half of the time
        try:
            return self._run(trace, progress, choices)
        finally:
            gc.enable()

    def _run(self, trace: str | Path | None, progress: Progress, choices: Choices | None) -> RunSummary:
        started, worked = time.perf_counter(), time.process_time()
        simulation = self.simulation
        with self._traced(trace, choices):
            simulation.observers += [*self._observers, self.traffic, self._control]
            if self._closed_loop is not None:
                simulation.observers.append(self._closed_loop.under_way)
            simulation.build(self.topology)
            progress("advertising", 0.0)
            self._advertise()
            self._subscribe(part(progress, 0.0, _SUBSCRIBED))
            self._run_schedule(part(progress, _SUBSCRIBED, _RUN))
            self._start_phase("resting")
            progress("coming to rest", _RUN)
            simulation.run()
            self._start_phase("quiet")
            progress("checking", _RUN)
            self.judge.quiet()
            self.traffic.quiet()
            self._check_window()
            check_quiet(simulation, self.findings)
            self.summary.links_checked = check_routes(
                simulation, self.findings, sample=_LINKS_COMPARED, seed=self.scenario.seed
            )
            self._end_trace()
            self.summary.cpu_s = round(time.process_time() - worked, 3)
            self._summarise(time.perf_counter() - started)
        return self.summary

    def _start_phase(self, phase: str) -> None:
        if phase == "running":
            self._work.clear()
            self._control.by_kind.clear()
        elif phase == "resting":
            self.summary.work, self.summary.work_of_brokers = self._work.by_kind, self._work.by_broker
            self._work.clear()
        if self._trace is not None:
            self._trace.phase(phase, self.simulation.busy_ns)

    def _advertise(self) -> None:
        self._start_phase("advertising")
        for number in range(self.scenario.publishers):
            broker, types = self.load.publisher(number)
            client = self.simulation.join(f"client/p{number}", f"broker/{broker}")
            for event_type in types:
                client.advertise(event_type)
            self._publishers.append(client)
        self.simulation.run()

    def _subscribe(self, progress: Progress) -> None:
        self._start_phase("subscribing")
        count = self.scenario.subscribers
        for number in range(count):
            state = self.load.subscriber(number)
            client = self.simulation.join(f"client/s{number}", f"broker/{state.broker}")
            subscription_id = client.subscribe(state.filter, state.values)
            self._subscribers.append((client, subscription_id, state))
            if number % 500 == 499:  # in portions, so that the queues stay short
                progress("subscribing", number / count)
                self.simulation.run(self.simulation.clock.now_ns + NS_PER_MS)
        self.simulation.run()

    # --- the schedule ---------------------------------------------------------------------------------------

    def _run_schedule(self, progress: Progress) -> None:
        """The phases "warming up", if there is one, and "running"."""
        clock, scenario, simulation = self.simulation.clock, self.scenario, self.simulation
        start_ns = clock.now_ns
        warm_ns, duration_ns = round(scenario.warm_up_s * NS_PER_S), round(scenario.duration_s * NS_PER_S)
        running_ns, end_ns = start_ns + warm_ns, start_ns + warm_ns + duration_ns
        steps = draw_schedule(scenario, self.load, [state for _, _, state in self._subscribers])
        if warm_ns:
            self._start_phase("warming up")
        if scenario.pace == "orderly":
            self._run_orderly(steps, warm_ns)
            return
        self._schedule_next(steps, start_ns)
        if self._closed_loop is not None:
            self._closed_loop.start([client.session.publisher for client in self._publishers], end_ns)
        for _ in range(scenario.crashes):
            clock.at(running_ns + self._random.randrange(duration_ns or 1), self._crash)
        for _ in range(scenario.partitions):
            clock.at(running_ns + self._random.randrange(duration_ns or 1), self._partition)
        warm = warm_ns / max(warm_ns + duration_ns, 1)
        if warm_ns:
            self._run_until(running_ns, "warming up", part(progress, 0.0, warm))
        self._start_phase("running")
        busy_ns = simulation.busy_ns
        self._run_until(end_ns, "running", part(progress, warm, 1.0))
        self.summary.busiest_share = busiest_share(busy_ns, simulation.busy_ns, duration_ns)

    def _run_until(self, end_ns: int, phase: str, progress: Progress) -> None:
        start_ns = self.simulation.clock.now_ns
        for done in range(_PROGRESS_STEPS):
            progress(phase, done / _PROGRESS_STEPS)
            self.simulation.run(start_ns + (end_ns - start_ns) * (done + 1) // _PROGRESS_STEPS)

    def _run_orderly(self, steps: Iterator[PublishStep | UpdateStep], warm_ns: int) -> None:
        """Each step takes effect before the next; the steps of the warm-up are those due in it."""
        clock = self.simulation.clock
        running_ns, busy_ns = -1, dict[str, int]()
        for step in chain(steps, [None]):
            if running_ns < 0 and (step is None or step.after_ns >= warm_ns):
                self._start_phase("running")
                running_ns, busy_ns = clock.now_ns, self.simulation.busy_ns
            if step is not None:
                self._do(step)
                self.simulation.run()
        elapsed_ns = clock.now_ns - running_ns
        self.summary.busiest_share = busiest_share(busy_ns, self.simulation.busy_ns, elapsed_ns)

    def _schedule_next(self, steps: Iterator[PublishStep | UpdateStep], start_ns: int) -> None:
        step = next(steps, None)
        if step is not None:
            self.simulation.clock.at(start_ns + step.after_ns, self._do_and_schedule, step, steps, start_ns)

    def _do_and_schedule(
        self, step: PublishStep | UpdateStep, steps: Iterator[PublishStep | UpdateStep], start_ns: int
    ) -> None:
        self._do(step)
        self._schedule_next(steps, start_ns)

    def _do(self, step: PublishStep | UpdateStep) -> None:
        if isinstance(step, PublishStep):
            self._publish(step.publisher, step.batch)
            return
        client, subscription_id, state = self._subscribers[step.subscriber]
        client.update(subscription_id, step.values)
        self.summary.updates += 1
        if step.broker != state.broker and not client.moving:
            state.broker = step.broker
            self.simulation.move(client.name, f"broker/{step.broker}")

    def _publish(self, publisher: int, batch: EventBatch) -> None:
        self._publishers[publisher].publish(batch)
        self.summary.published += len(batch)

    def _check_window(self) -> None:
        if self._closed_loop is not None:
            for publisher, events in self._closed_loop.under_way.by_publisher.items():
                if events:
                    sentence = f"{events} events of {publisher} are under way though all is at rest"
                    self.findings.add("window", self.simulation.clock.now_ns, sentence)

    def _crash(self) -> None:
        self.simulation.crash(f"broker/{self._random.choice(self.topology.brokers)}", _CRASH_NS)

    def _partition(self) -> None:
        if self.simulation.links:
            self.simulation.partition(*self._random.choice(self.simulation.links), _PARTITION_NS)

    # --- the summary ----------------------------------------------------------------------------------------

    def _summarise(self, real_s: float) -> None:
        summary, clock = self.summary, self.simulation.clock
        summary.virtual_s = clock.now_ns / NS_PER_S
        summary.real_s = round(real_s, 3)
        summary.steps = clock.steps
        summary.memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )
        summary.crossings = self.traffic.events
        summary.control = dict(sorted(self._control.by_kind.items()))
        summary.add_verdict(self.judge, self.findings)


def _costs(scenario: Scenario) -> Costs:
    if scenario.cpu == "free":
        return Free()
    if scenario.cpu == "measured":
        return Measured(scenario.cpu_scale)
    return Calibrated(load_costs(scenario.cpu, *cost_key(scenario)), scenario.cpu_scale)
