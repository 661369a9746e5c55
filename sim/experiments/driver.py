"""Runs a scenario in virtual time: sets it up, lets it happen, has it judged, and says how it went."""

from __future__ import annotations

import gc
import random
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from covey.matcher import compile_kernels
from covey.sim.checkers import Findings, Judge, Traffic, check_quiet, check_routes
from covey.sim.scenario.history import Changed, Published, history
from covey.sim.scenario.load import HighwayLoad, Load, MarketLoad, TradingLoad, Wish
from covey.sim.scenario.real_loads import DetectorLoad, QuotesLoad, detector_topology
from covey.sim.scenario.scenario import Scenario
from covey.sim.simulator import Calibrated, Costs, Free, Measured, Simulation, WireOptions
from covey.sim.simulator.client import ClientProcess
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S
from covey.sim.topology import Topology, make_topology
from covey.sim.trace.trace import Trace

_ROUTES_CHECKED = 20
_SLICES = 50

Say = Callable[[str, float], None]


@dataclass(slots=True)
class Report:
    """What a run did, how long it took in real time, and what the checkers found."""

    scenario: Scenario
    brokers: int = 0
    virtual_s: float = 0.0
    real_s: float = 0.0
    cpu_s: float = 0.0
    """Processor time of the process; less than `real_s` where others use the machine as well. Not
    known (0) where brokers are processes of their own."""
    steps: int = 0
    """Things that happened in virtual time: packets that arrived, timers, what users did."""
    memory_bytes: int = 0
    """The most that the process ever had."""
    published: int = 0
    delivered: int = 0
    owed: int = 0
    """Deliveries that were owed, whether they came or not."""
    lost: int = 0
    """Those of them that met a change and did not come, where a change may lose them."""
    excused: int = 0
    """Events published while nothing was owed: before an advertisement had taken effect, or after a crash."""
    updates: int = 0
    crossings: int = 0
    """Events that crossed a link between brokers, once for each link."""
    busiest_share: float = 0.0
    """How much of the phase `running` the broker worked that worked most of it."""
    links_checked: int = 0
    trace_rows: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    """How often each property was found not to hold."""
    findings: list[str] = field(default_factory=list)

    def judged(self, judge: Judge, findings: Findings) -> None:
        """Take over what the judge has counted, and what all checkers have found."""
        self.delivered, self.owed = judge.delivered_events, judge.owed_events
        self.lost, self.excused = judge.lost_events, judge.excused_events
        self.counts = dict(findings.counts)
        self.findings = [str(finding) for finding in findings.first]

    @property
    def verdict(self) -> str:
        """In words, what the checkers found and how much they judged."""
        found = ", ".join(f"{count} of {what}" for what, count in self.counts.items()) or "no violation"
        parts = [f"{self.owed:,} deliveries were owed"]
        if self.lost:
            parts.append(f"{self.lost:,} of them were lost to changes")
        if self.excused:
            parts.append(f"{self.excused:,} events were published while nothing was owed")
        if self.links_checked:
            parts.append(f"{self.links_checked} of {self.brokers - 1:,} links compared")
        return f"{found} ({'; '.join(parts)})"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"steps_per_real_s": round(self.steps / self.real_s, 1) if self.real_s else 0.0}


class Run:
    """One run of a scenario; `play` does it all."""

    def __init__(
        self, scenario: Scenario, *, topology: Topology | None = None, costs: Costs | None = None
    ) -> None:
        self.scenario = scenario
        self.findings = Findings()
        self.topology = topology or topology_of(scenario)
        self.costs = costs or costs_of(scenario.cpu, scenario.cpu_scale)
        wire = WireOptions(
            round(scenario.delay_ms * NS_PER_MS), round(scenario.jitter_ms * NS_PER_MS), scenario.loss
        )
        self.simulation = Simulation(
            scenario.seed,
            routing=scenario.routing,
            resubscribe=scenario.resubscribe,
            engine=scenario.engine,
            poset=scenario.poset,
            costs=self.costs,
            wire=wire,
        )
        self._random = random.Random(f"scenario {scenario.seed}")
        drawn = random.Random(f"load {scenario.seed}")
        self.load = load_of(scenario, self.topology, drawn)
        clock = self.simulation.clock
        lossy = scenario.routing == "static" and scenario.resubscribe == "unsubscribe-first"
        self.judge = Judge(self.findings, lambda: clock.now_ns, lossy=lossy)
        self.traffic = Traffic(self.findings, lambda: clock.now_ns)
        self.report = Report(scenario, len(self.topology.brokers))
        self._publishers: list[ClientProcess] = []
        self._subscribers: list[tuple[ClientProcess, int, Wish]] = []
        self._trace: Trace | None = None

    def play(self, trace: str | Path | None = None, say: Say = lambda phase, share: None) -> Report:
        """Play it; `say` is told the phase and how much of it is done. `trace` is a folder for the trace.

        Where real time is charged, a small run goes before, whose time is not counted.
        """
        if self.costs.measures:
            say("warming up", 0.0)
            self._warm_up()
        gc.disable()  # hardly anything here is garbage in circles, and looking for it takes half of the time
        try:
            return self._play(trace, say)
        finally:
            gc.enable()

    def _warm_up(self) -> None:
        """Have happen what Python and numba do once in a process, so that no message is charged for it."""
        compile_kernels()
        small = self.scenario.having(subscribers=10, duration_s=0.1, update_rate=20.0)
        Run(small, topology=self.topology, costs=Free()).play()

    def _play(self, trace: str | Path | None, say: Say) -> Report:
        started, worked = time.perf_counter(), time.process_time()
        simulation, clock = self.simulation, self.simulation.clock
        with ExitStack() as stack:
            simulation.watchers += [self.judge, self.traffic]
            if trace is not None:
                self._trace = Trace(trace, lambda: clock.now_ns, asdict(self.scenario))
                stack.enter_context(self._trace)
                simulation.watchers.insert(0, self._trace)
                self.judge.watchers.append(self._trace)
            simulation.build(self.topology)
            self._advertise(say)
            self._subscribe(say)
            self._begins("running")
            running_ns, busy = clock.now_ns, simulation.busy_ns
            self._happen(say)
            self._begins("resting")
            self.report.busiest_share = busiest_share(busy, simulation.busy_ns, clock.now_ns - running_ns)
            say("coming to rest", 0.0)
            simulation.run()
            self._begins("quiet")
            say("checking", 0.0)
            self.judge.quiet()
            self.traffic.quiet()
            check_quiet(simulation, self.findings)
            checked = check_routes(simulation, self.findings, sample=_ROUTES_CHECKED, seed=self.scenario.seed)
        if self._trace is not None:
            self.report.trace_rows = self._trace.rows
        self.report.cpu_s = round(time.process_time() - worked, 3)
        self._sum_up(time.perf_counter() - started, checked)
        return self.report

    def _begins(self, phase: str) -> None:
        if self._trace is not None:
            self._trace.phase(phase, self.simulation.busy_ns)

    def _advertise(self, say: Say) -> None:
        self._begins("advertising")
        say("advertising", 0.0)
        for number in range(self.scenario.publishers):
            broker, types = self.load.publisher(number)
            client = self.simulation.come(f"client/p{number}", f"broker/{broker}")
            for event_type in types:
                client.advertise(event_type)
            self._publishers.append(client)
        self.simulation.run()

    def _subscribe(self, say: Say) -> None:
        self._begins("subscribing")
        count = self.scenario.subscribers
        for number in range(count):
            wish = self.load.wish(number)
            client = self.simulation.come(f"client/s{number}", f"broker/{wish.broker}")
            subscription_id = client.subscribe(wish.filter, wish.values)
            self._subscribers.append((client, subscription_id, wish))
            if number % 500 == 499:  # they come one after another, as people do
                say("subscribing", number / count)
                self.simulation.run(self.simulation.clock.now_ns + NS_PER_MS)
        self.simulation.run()

    def _happen(self, say: Say) -> None:
        clock, scenario = self.simulation.clock, self.scenario
        begin_ns = clock.now_ns
        duration_ns = round(scenario.duration_s * NS_PER_S)
        steps = history(scenario, self.load, [wish for _, _, wish in self._subscribers])
        if scenario.pace == "orderly":
            for step in steps:
                self._do(step)
                self.simulation.run()
            return
        self._next(steps, begin_ns)
        for _ in range(scenario.crashes):
            clock.after(self._random.randrange(duration_ns or 1), self._crash)
        for _ in range(scenario.parts):
            clock.after(self._random.randrange(duration_ns or 1), self._part)
        for part in range(_SLICES):
            say("running", part / _SLICES)
            self.simulation.run(begin_ns + duration_ns * (part + 1) // _SLICES)

    # --- what happens ---------------------------------------------------------------------------------------

    def _next(self, steps: Iterator[Published | Changed], begin_ns: int) -> None:
        """Have the next step of the history happen when it is due, and the one after it afterwards."""
        step = next(steps, None)
        if step is not None:
            self.simulation.clock.at(begin_ns + step.after_ns, self._do_and_go_on, step, steps, begin_ns)

    def _do_and_go_on(
        self, step: Published | Changed, steps: Iterator[Published | Changed], begin_ns: int
    ) -> None:
        self._do(step)
        self._next(steps, begin_ns)

    def _do(self, step: Published | Changed) -> None:
        if isinstance(step, Published):
            self._publishers[step.publisher].publish(step.batch)
            self.report.published += len(step.batch)
            return
        client, subscription_id, wish = self._subscribers[step.subscriber]
        client.update(subscription_id, step.values)
        self.report.updates += 1
        if step.broker != wish.broker and not client.moving:
            wish.broker = step.broker
            self.simulation.move(client.name, f"broker/{step.broker}")

    def _crash(self) -> None:
        self.simulation.crash(f"broker/{self._random.choice(self.topology.brokers)}", 200 * NS_PER_MS)

    def _part(self) -> None:
        if self.simulation.links:
            a, b = self._random.choice(self.simulation.links)
            self.simulation.part(a, b, 500 * NS_PER_MS)

    # --- how it went ----------------------------------------------------------------------------------------

    def _sum_up(self, real_s: float, checked: int) -> None:
        report, clock = self.report, self.simulation.clock
        report.virtual_s = clock.now_ns / NS_PER_S
        report.real_s = round(real_s, 3)
        report.steps = clock.steps
        report.memory_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
            1 if sys.platform == "darwin" else 1024
        )
        report.crossings = self.traffic.events
        report.links_checked = checked
        report.judged(self.judge, self.findings)


def busiest_share(before: Mapping[str, int], after: Mapping[str, int], took_ns: int) -> float:
    """The share of a time that the broker worked which worked most of it, by how long each had worked before
    and afterwards."""
    return round(max((after[b] - before.get(b, 0) for b in after), default=0) / max(took_ns, 1), 4)


def topology_of(scenario: Scenario) -> Topology:
    """The overlay of a scenario: of the kind that it names, or that which goes with its load."""
    if scenario.load == "detectors" and not scenario.topology:
        return detector_topology(scenario.sensors, delay_ms=scenario.delay_ms)
    kind = scenario.topology or {"highway": "highway"}.get(scenario.load, "trading")
    return make_topology(kind, scenario.brokers, seed=scenario.seed, delay_ms=scenario.delay_ms)


def load_of(scenario: Scenario, topology: Topology, rng: random.Random) -> Load:
    """The load of a scenario on an overlay."""
    publishers = scenario.publishers
    if scenario.load == "detectors":
        return DetectorLoad(topology, publishers, rng, scenario.speeds)
    if scenario.load == "quotes":
        return QuotesLoad(topology, publishers, rng)
    if scenario.load == "highway":
        return HighwayLoad(topology, publishers, rng)
    made = MarketLoad if scenario.load == "market" else TradingLoad
    return made(topology, publishers, rng, scenario.types)


def costs_of(cpu: str, scale: float = 1.0) -> Costs:
    """What messages cost: "free", "measured" (times `scale`), or what a calibration file says."""
    if cpu == "free":
        return Free()
    return Measured(scale) if cpu == "measured" else Calibrated.load(cpu)
