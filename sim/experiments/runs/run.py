"""What a simulated and a real run of a scenario have in common: a load, a judge, a trace and a summary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from covey.sim.checkers import Findings, Judge
from covey.sim.experiments.runs.summary import RunSummary
from covey.sim.progress import Progress, silent
from covey.sim.scenario.fields import inputs_of
from covey.sim.scenario.inputs import create_load, create_topology
from covey.sim.scenario.scenario import Scenario
from covey.sim.topology import Topology
from covey.sim.trace.manifest import Choices
from covey.sim.trace.trace import Trace


class Run(ABC):
    """One run of a scenario, on its own topology unless one is given; `now` has its time in nanoseconds."""

    real: ClassVar[bool]

    def __init__(self, scenario: Scenario, topology: Topology | None, now: Callable[[], int]) -> None:
        self.scenario = scenario
        self.topology = topology or create_topology(scenario)
        self.load = create_load(scenario, self.topology)
        self.findings = Findings()
        self.judge = Judge(self.findings, now, lossy=scenario.lossy)
        self.summary = RunSummary(scenario, len(self.topology.brokers))
        self._now = now
        self._observers: list[Any] = [self.judge]
        self._trace: Trace | None = None

    @abstractmethod
    def run(
        self, trace: str | Path | None = None, progress: Progress = silent, *, choices: Choices | None = None
    ) -> RunSummary:
        """Run it; `trace` is a folder for the trace, a path or a URI, which has the `choices` of a sweep."""

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
