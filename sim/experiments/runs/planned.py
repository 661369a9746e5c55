"""A run that is planned, and what became of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from covey.sim.scenario.scenario import Scenario
from covey.sim.trace.manifest import Choices


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A scenario under a name that is unique in its folder; `real` runs it over broker processes, and
    `choices` are those of its sweep."""

    name: str
    scenario: Scenario
    real: bool = False
    choices: Choices = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What became of a planned run: its trace, its summary (`RunSummary.as_json`) or else the error, and
    whether it was in the folder already."""

    run: str
    trace: str
    summary: Mapping[str, Any] | None = None
    error: str = ""
    reused: bool = False

    @property
    def counts(self) -> Mapping[str, int]:
        """Violations by property."""
        return {} if self.summary is None else self.summary["counts"]

    @property
    def findings(self) -> Sequence[str]:
        """The first violations."""
        return () if self.summary is None else self.summary["findings"]

    @property
    def failed(self) -> bool:
        """Whether it has no summary, or the checkers report a violation."""
        return bool(self.error or self.counts)
