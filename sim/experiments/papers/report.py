"""The result of reproducing a paper: findings, one per figure or claim, as plain data.

All rows of a finding have the same keys; values are numbers, text, or None if not measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

Cell = float | int | str | None
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PaperPlan:
    """The size of a reproduction: `tiny` (seconds, for tests), `quick` (a few minutes) or `full`."""

    size: Literal["tiny", "quick", "full"] = "full"
    seed: int = 0

    def pick(self, tiny: T, quick: T, full: T) -> T:
        """The value for this size."""
        return {"tiny": tiny, "quick": quick, "full": full}[self.size]


@dataclass(frozen=True, slots=True)
class Curves:
    """A plot: points (x, y) per series, joined by lines, on linear or logarithmic axes."""

    x_label: str
    y_label: str
    series: Mapping[str, list[tuple[float, float]]]
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class PaperFinding:
    """One figure or claim of a paper, and its measurement. `holds` is None if the claim was not measured."""

    figure: str
    """Figure or section of the paper."""
    title: str
    claim: str
    """The paper's claim, paraphrased."""
    verdict: str
    """The conclusion from the rows, with figures of this run."""
    holds: bool | None = None
    rows: list[dict[str, Cell]] = field(default_factory=list)
    plot: Curves | None = None

    def as_json(self) -> dict[str, Any]:
        series = self.plot and {name: [*map(list, points)] for name, points in self.plot.series.items()}
        return asdict(self) | {"plot": series}


@dataclass(frozen=True, slots=True)
class PaperReport:
    """All findings of one paper."""

    paper: str
    citation: str
    size: str
    findings: list[PaperFinding]
    notes: list[str] = field(default_factory=list)
    """Remarks on the measurement."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"findings": [finding.as_json() for finding in self.findings]}
