"""The common part of simulated and real runs of a scenario: load, judge, trace and summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from covey.overlay.core.messages import Message, Publish
from covey.sim.checkers import Findings, Judge
from covey.sim.progress import Progress, silent
from covey.sim.scenario.scenario import Scenario, inputs_of
from covey.sim.scenario.schedule import create_load, create_topology
from covey.sim.simulator.costs import Costs, Sample
from covey.sim.simulator.observer import Observer, Observers
from covey.sim.topology import Topology
from covey.sim.trace.manifest import Choices
from covey.sim.trace.trace import Trace


@dataclass(slots=True)
class RunSummary:
    """The counts and findings of one run. Deliveries: expected = fulfilled + excused + missed, and fulfilled
    + additional = delivered. Excused ones were no longer expected after a change, a departure or a crash;
    `spurious` events reached a client and were discarded by its own evaluation."""

    scenario: Scenario
    brokers: int = 0
    virtual_s: float = 0.0
    real_s: float = 0.0
    cpu_s: float = 0.0
    """Processor time of this process; 0 for real brokers."""
    steps: int = 0
    """Simulated actions: arrivals of packets, timers, calls of users."""
    memory_bytes: int = 0
    published: int = 0
    delivered: int = 0
    expected: int = 0
    """Deliveries that COVERAGE requires when the event is published."""
    fulfilled: int = 0
    additional: int = 0
    """Deliveries that were not expected, such as before a change had settled."""
    excused: int = 0
    missed: int = 0
    lost: int = 0
    """Missed ones that crossed a change, where a change may lose events; the others violate COVERAGE."""
    unjudged: int = 0
    """Events published while nothing was expected: before an advertisement took effect, or after a crash."""
    spurious: int = 0
    updates: int = 0
    control: dict[str, int] = field(default_factory=dict)
    """By kind, messages without events that crossed a link between brokers after the set-up."""
    crossings: int = 0
    """Events times links between brokers crossed."""
    busiest_share: float = 0.0
    """The share of the phase `running` in which the busiest broker worked."""
    work: dict[str, dict[str, int]] = field(default_factory=dict)
    """By kind of message, for messages whose service began in the phase `running`."""
    work_of_brokers: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    """The same by broker and kind of message."""
    links_checked: int = 0
    trace_rows: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)

    def add_verdict(self, judge: Judge, findings: Findings) -> None:
        self.delivered, self.expected = judge.delivered_events, judge.expected_events
        self.fulfilled, self.excused = judge.fulfilled_events, judge.excused_events
        self.lost, self.missed = judge.lost_events, judge.missed_events
        self.additional = self.delivered - self.fulfilled
        self.unjudged, self.spurious = judge.unjudged_events, judge.spurious_events
        self.counts = dict(findings.counts)
        self.findings = [str(finding) for finding in findings.first]

    @property
    def verdict(self) -> str:
        """One sentence: the violations, and how much the checkers judged."""
        violations = ", ".join(f"{count} of {what}" for what, count in self.counts.items()) or "no violation"
        kinds = {
            "delivered": self.fulfilled,
            "excused": self.excused,
            "lost to changes": self.lost,
            "missed": self.missed - self.lost,
        }
        sums = [f"{count:,} {kind}" for kind, count in kinds.items() if count]
        parts = [f"{self.expected:,} deliveries expected" + (f": {', '.join(sums)}" if sums else "")]
        if self.additional:
            parts.append(f"{self.additional:,} more delivered")
        if self.unjudged:
            parts.append(f"{self.unjudged:,} events published while none was expected")
        if self.links_checked:
            parts.append(f"{self.links_checked} of {self.brokers - 1:,} links compared")
        return f"{violations} ({'; '.join(parts)})"

    @property
    def control_per_update(self) -> float | None:
        return sum(self.control.values()) / self.updates if self.updates else None

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"steps_per_real_s": round(self.steps / self.real_s, 1) if self.real_s else 0.0}


def busiest_share(before_ns: Mapping[str, int], after_ns: Mapping[str, int], duration_ns: int) -> float:
    """The share of a duration in which the busiest broker worked, from working times before and after it."""
    longest_ns = max((after_ns[b] - before_ns.get(b, 0) for b in after_ns), default=0)
    return round(longest_ns / max(duration_ns, 1), 4)


Work = dict[str, int]


class WorkByKind:
    """Costs that count messages, since the last `clear`."""

    def __init__(self, costs: Costs) -> None:
        self.by_broker: dict[str, dict[str, Work]] = {}
        self._costs = costs

    @property
    def measures(self) -> bool:
        return self._costs.measures

    def clear(self) -> None:
        self.by_broker = {}

    @property
    def by_kind(self) -> dict[str, Work]:
        total: dict[str, Work] = {}
        for kinds in self.by_broker.values():
            for kind, work in kinds.items():
                sums = total.setdefault(kind, dict.fromkeys(work, 0))
                for name, value in work.items():
                    sums[name] += value
        return dict(sorted(total.items()))

    def charge(self, sample: Sample) -> int:
        cost_ns = self._costs.charge(sample)
        kinds = self.by_broker.setdefault(sample.broker, {})
        work = kinds.get(sample.kind)
        if work is None:
            work = kinds[sample.kind] = {"messages": 0, "events": 0, "busy_ns": 0}
        work["messages"] += 1
        work["events"] += sample.events
        work["busy_ns"] += cost_ns
        return cost_ns


class LinkControl(Observer):
    def __init__(self) -> None:
        self.by_kind: Counter[str] = Counter()

    def received(self, source: str, target: str, message: Message) -> None:
        if source.startswith("broker/") and target.startswith("broker/") and type(message) is not Publish:
            self.by_kind[type(message).__name__] += 1


class Run(ABC):
    """One run of a scenario, on its own topology unless one is given; `now` returns its time in ns."""

    real: ClassVar[bool]

    def __init__(self, scenario: Scenario, topology: Topology | None, now: Callable[[], int]) -> None:
        self.scenario = scenario
        self.topology = topology or create_topology(scenario)
        self.load = create_load(scenario, self.topology)
        self.findings = Findings()
        self.judge = Judge(self.findings, now, lossy=scenario.lossy)
        self.summary = RunSummary(scenario, len(self.topology.brokers))
        self._now = now
        self._observers = Observers([self.judge])
        self._trace: Trace | None = None

    @abstractmethod
    def run(
        self, trace: str | Path | None = None, progress: Progress = silent, *, choices: Choices | None = None
    ) -> RunSummary:
        """Run it; `trace` is a folder for the trace, a path or a URI; `choices` are those of a sweep."""

    @contextmanager
    def _traced(self, folder: str | Path | None, choices: Choices | None) -> Iterator[None]:
        """With a folder, the block is traced; it has to call `_end_trace`."""
        if folder is None:
            yield
            return
        plain, inputs = asdict(self.scenario), inputs_of(self.scenario)
        with Trace(folder, self._now, plain, real=self.real, inputs=inputs, choices=choices) as self._trace:
            self._observers.insert(0, self._trace)
            self.judge.observers.append(self._trace)
            yield
            self._trace.summary = self.summary.as_json()

    def _end_trace(self) -> None:
        if self._trace is not None:
            self._trace.end()
            self.summary.trace_rows = self._trace.rows
