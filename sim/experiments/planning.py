"""The cost of a load for each broker of an overlay: predicted by the simulator, or measured at processes. A
broker's processor time is the measured time of its core and a constant for each message that it receives or
sends (sockets, HTTP/2, codec). The constant is calibrated: broker processes play a small load, and the time
that their cores do not explain is divided by the messages at brokers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from covey.matcher import EventBatch
from covey.matcher.errors import InputError
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.messages import Message, Update
from covey.overlay.documents import Section, read_document, validated
from covey.overlay.node.overlay import Overlay
from covey.sim.experiments.processes import cpu_ns, resident_bytes
from covey.sim.experiments.runs.real import RealRun
from covey.sim.experiments.runs.simulated import SimulatedRun
from covey.sim.progress import Progress, part, silent
from covey.sim.scenario.scenario import Scenario, load_scenario
from covey.sim.simulator import Measured
from covey.sim.simulator.costs import Sample
from covey.sim.simulator.observer import ObservedClient, Observer
from covey.sim.topology import Topology, TreeLink

SESSION_BYTES, FILTER_BYTES = 20_000, 2_400
"""The memory of an idle client, and of a filter with its structure (docs/how-to-size.md)."""
_CALIBRATED = Scenario(
    name="calibration",
    brokers=3,
    publishers=2,
    subscribers=30,
    types=10,
    event_rate=100.0,
    update_rate=5.0,
    delay_ms=0.0,
    duration_s=4.0,
    engine="cluster",
)
_CHAIN = Topology("calibration", ("b1", "b2", "b3"), (TreeLink("b1", "b2"), TreeLink("b2", "b3")))


class Calibration(Section):
    """Of a machine: the cost of a message outside the core, and the memory of a broker without clients."""

    message_ns: Annotated[int, Field(ge=0)]
    idle_bytes: Annotated[int, Field(ge=0)]

    @classmethod
    def read(cls, path: Path) -> Calibration:
        """Raises `InputError` for an invalid file."""
        return validated(cls, read_document(path, InputError), path, InputError)

    def write(self, path: Path) -> None:
        try:
            path.write_text(self.model_dump_json(indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class BrokerFigures:
    """One broker under a load. Rates are per second; delays are from `publish` to the clients of this broker,
    None without deliveries; `cores` is processor time divided by time."""

    broker: str
    events_in: float
    events_out: float
    updates: float
    delay_p50_ms: float | None
    delay_p99_ms: float | None
    memory_bytes: int
    cores: float


def load_plan(file: Path, overlay: Overlay) -> Scenario:
    """The scenario of a file with the brokers, links, engine and routing of the overlay, and the costs of
    this machine. `ScenarioError` for an invalid file."""
    scenario = load_scenario(file, Scenario(delay_ms=overlay.client_delay_ms))
    return scenario.having(**_determined(overlay))


def overridden(file: Path, overlay: Overlay) -> list[str]:
    """A sentence for each field of the file that a plan replaces. `ScenarioError` for an invalid file."""
    scenario = load_scenario(file, Scenario(**_determined(overlay)))
    return [
        f"{name}: {getattr(scenario, name)} is not used: {_instead(name, value)}"
        for name, value in _determined(overlay).items()
        if getattr(scenario, name) != value
    ]


def _instead(name: str, value: object) -> str:
    if name in ("cpu", "cpu_scale"):
        return "costs are those of the calibration"
    if name == "topology":
        return "the links are those of the overlay"
    return f"a plan has {value}" if name == "service" else f"the overlay has {value}"


def _determined(overlay: Overlay) -> dict[str, Any]:
    return {
        "brokers": len(overlay.brokers),
        "topology": "",
        "engine": overlay.engine,
        "routing": overlay.routing,
        "cpu": "free",
        "cpu_scale": 1.0,
        "service": "broker",
    }


def not_predicted(overlay: Overlay) -> list[str]:
    """The sections of an overlay file whose costs no plan includes."""
    sections = {
        "tls": overlay.tls,
        "durable": overlay.durable,
        "damping": overlay.damping,
        "merging": overlay.merging != "off",
    }
    return [name for name, present in sections.items() if present]


def predict(
    scenario: Scenario, topology: Topology, calibration: Calibration, progress: Progress = silent
) -> list[BrokerFigures]:
    """By the simulator, with the costs of this machine."""
    run = _SimulatedPlan(scenario, topology, calibration)
    run.run(progress=progress)
    return run.figures()


def measure(scenario: Scenario, topology: Topology, progress: Progress = silent) -> list[BrokerFigures]:
    """At broker processes on this machine, which share it with the clients. `ScenarioError` for fields that
    only the simulator supports."""
    run = _RealPlan(scenario, topology)
    run.run(progress=progress)
    return run.figures()


def calibrate(progress: Progress = silent) -> Calibration:
    """Measure this machine, for about ten seconds."""
    real = _RealPlan(_CALIBRATED, _CHAIN)
    real.run(progress=part(progress, 0.0, 0.7))
    simulated = _SimulatedPlan(_CALIBRATED, _CHAIN, Calibration(message_ns=0, idle_bytes=0))
    simulated.run(progress=part(progress, 0.7, 1.0))
    pairs = list(zip(real.figures(), simulated.figures(), strict=True))
    played = share_played([core for _, core in pairs], [each for each, _ in pairs])
    beside_ns = sum(each.cores - played * core.cores for each, core in pairs) * real.tally.elapsed_ns
    counts = [simulated.tally.counts[f"broker/{name}"] for name in _CHAIN.brokers]
    messages = played * sum(each["messages"] for each in counts)
    return Calibration(
        message_ns=max(0, round(beside_ns / max(messages, 1.0))),
        idle_bytes=max(0, round(fmean(each.memory_bytes - core.memory_bytes for each, core in pairs))),
    )


def share_played(predicted: Sequence[BrokerFigures], measured: Sequence[BrokerFigures]) -> float:
    """The share of the load that real brokers and clients have played: a slow or busy machine skips the rest
    of the schedule."""
    due = sum(each.events_in + each.updates for each in predicted)
    return sum(each.events_in + each.updates for each in measured) / max(due, 1e-9)


class _Tally(Observer):
    """Counts by broker in the phase `running`, and delays of the events published in it."""

    def __init__(self, now: Callable[[], int]) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self.sessions: Counter[str] = Counter()
        self.elapsed_ns = 1
        self._delays_ns: defaultdict[str, list[int]] = defaultdict(list)
        self._published_ns: dict[tuple[str, int], int] = {}
        self._now = now
        self._running = False

    def phase(self, phase: str) -> None:
        if phase == "running":
            self._running, self._since_ns = True, self._now()
        elif self._running:
            self._running, self.elapsed_ns = False, max(1, self._now() - self._since_ns)

    def delay_ms(self, broker: str, quantile: float) -> float | None:
        delays = self._delays_ns.get(broker)
        return round(float(np.quantile(delays, quantile)) / 1e6, 3) if delays else None

    def joined(self, client: ObservedClient) -> None:
        self.sessions[client.broker] += 1

    def published(self, client: ObservedClient, batch: EventBatch) -> None:
        if self._running:
            now_ns = self._now()
            for sequence in batch.sequences().tolist():
                self._published_ns[batch.publisher, sequence] = now_ns

    def delivered(self, client: ObservedClient, action: DeliverTo) -> None:
        now_ns, publisher = self._now(), action.batch.publisher
        for sequence in action.batch.sequences().tolist():
            since_ns = self._published_ns.get((publisher, sequence))
            if since_ns is not None:
                self._delays_ns[client.broker].append(now_ns - since_ns)

    def received(self, source: str, target: str, message: Message) -> None:
        if not self._running:
            return
        events = len(getattr(message, "batch", ()))
        self.counts[source].update(messages=1, events_out=events)
        self.counts[target].update(messages=1, events_in=events, updates=type(message) is Update)


class _MachineCosts(Observer):
    measures = True

    def __init__(self, message_ns: int) -> None:
        self.filters: dict[str, int] = {}
        self._core = Measured()
        self._message_ns = message_ns
        self._sent: Counter[str] = Counter()

    def received(self, source: str, target: str, message: Message) -> None:
        self._sent[source] += 1

    def charge(self, sample: Sample) -> int:
        self.filters[sample.broker] = sample.filters
        messages = 1 + self._sent.pop(sample.broker, 0)
        return self._core.charge(sample) + messages * self._message_ns


class _SimulatedPlan(SimulatedRun):
    def __init__(self, scenario: Scenario, topology: Topology, calibration: Calibration) -> None:
        self._machine = _MachineCosts(calibration.message_ns)
        super().__init__(scenario, topology=topology, costs=self._machine)
        self._idle_bytes = calibration.idle_bytes
        self.tally = _Tally(self._now)
        self._observers += [self._machine, self.tally]

    def _start_phase(self, phase: str) -> None:
        super()._start_phase(phase)
        self.tally.phase(phase)

    def figures(self) -> list[BrokerFigures]:
        figures = []
        for broker in (f"broker/{name}" for name in self.topology.brokers):
            work = self.summary.work_of_brokers.get(broker, {}).values()
            memory_bytes = (
                self._idle_bytes
                + self.tally.sessions[broker] * SESSION_BYTES
                + self._machine.filters.get(broker, 0) * FILTER_BYTES
            )
            busy_ns = sum(each["busy_ns"] for each in work)
            figures.append(_figures(self.tally, broker, self.tally.counts[broker], memory_bytes, busy_ns))
        return figures


class _RealPlan(RealRun):
    def __init__(self, scenario: Scenario, topology: Topology) -> None:
        super().__init__(scenario, topology=topology)
        self.tally = _Tally(self._now)
        self._observers.append(self.tally)
        self._readings: dict[str, dict[str, dict[str, int]]] = {}

    def _start_phase(self, phase: str) -> None:
        super()._start_phase(phase)
        self.tally.phase(phase)
        if phase in ("running", "resting"):
            processes = self._overlay.process_ids()
            self._readings[phase] = {
                broker: _reading(state["totals"], processes[broker])
                for broker, state in self._counters.items()
            }

    def figures(self) -> list[BrokerFigures]:
        figures = []
        for broker in self.topology.brokers:
            before, after = (self._readings[phase][broker] for phase in ("running", "resting"))
            since = Counter(after)
            since.subtract(before)
            figures.append(
                _figures(self.tally, f"broker/{broker}", since, after["memory_bytes"], since["cpu_ns"])
            )
        return figures


def _reading(totals: dict[str, Any], process_id: int) -> dict[str, int]:
    return {
        "events_in": totals["events_received"],
        "events_out": totals["events_sent"],
        "updates": totals["received"].get("Update", 0),
        "cpu_ns": cpu_ns(process_id),
        "memory_bytes": resident_bytes(process_id),
    }


def _figures(
    tally: _Tally, broker: str, counts: Counter[str], memory_bytes: int, busy_ns: int
) -> BrokerFigures:
    seconds = tally.elapsed_ns / 1e9
    return BrokerFigures(
        broker.removeprefix("broker/"),
        round(counts["events_in"] / seconds, 1),
        round(counts["events_out"] / seconds, 1),
        round(counts["updates"] / seconds, 1),
        tally.delay_ms(broker, 0.5),
        tally.delay_ms(broker, 0.99),
        memory_bytes,
        round(busy_ns / tally.elapsed_ns, 4),
    )
