"""What a reproduction hands back: findings, one per figure or claim of a paper.

Plain data, so that tables, JSON, pages and plots (`page.py`) are made of one thing. Rows of a finding all
have the same keys; values are numbers, words, or None for what could not be measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

Cell = float | int | str | None
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PaperPlan:
    """How large a reproduction is: `tiny` (seconds, for tests), `quick` (a few minutes) or `full`."""

    size: Literal["tiny", "quick", "full"] = "full"
    seed: int = 0

    def pick(self, tiny: T, quick: T, full: T) -> T:
        """The one of three that is for this size."""
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
    """One figure or claim of a paper, and what was measured beside it.

    `holds` says whether the claim holds here: None where it could not be measured.
    """

    figure: str
    """Which: figure or section of the paper."""
    title: str
    claim: str
    """What the paper says, in our words."""
    verdict: str
    """What follows from the rows, in a sentence that names figures of this run."""
    holds: bool | None = None
    rows: list[dict[str, Cell]] = field(default_factory=list)
    plot: Curves | None = None

    def as_json(self) -> dict[str, Any]:
        """For programs; the plot is its points."""
        plot = (
            None
            if self.plot is None
            else {name: [list(point) for point in points] for name, points in self.plot.series.items()}
        )
        return {
            "figure": self.figure,
            "title": self.title,
            "claim": self.claim,
            "verdict": self.verdict,
            "holds": self.holds,
            "rows": self.rows,
            "plot": plot,
        }


@dataclass(frozen=True, slots=True)
class PaperReport:
    """All findings of one paper."""

    paper: str
    citation: str
    size: str
    findings: list[PaperFinding]
    notes: list[str] = field(default_factory=list)
    """What a reader must know of how this was measured."""

    def as_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "paper": self.paper,
            "citation": self.citation,
            "size": self.size,
            "notes": self.notes,
            "findings": [finding.as_json() for finding in self.findings],
        }
