"""The result of reproducing a paper: findings, one per figure or claim, as plain data.

All rows of a finding have the same keys; values are numbers, text, or None if not measured.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeVar

from covey.sim.reports import Plot

Cell = float | int | str | None
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PaperPlan:
    """The size of a reproduction: `tiny` (seconds, for tests), `quick` (a few minutes) or `full`; runs that
    take long keep their results in `folder`, unless it is ""."""

    size: Literal["tiny", "quick", "full"] = "full"
    seed: int = 0
    folder: str = ""

    def pick(self, tiny: T, quick: T, full: T) -> T:
        """The value for this size."""
        return {"tiny": tiny, "quick": quick, "full": full}[self.size]


class Verdict(StrEnum):
    """A claim beside its measurement."""

    REACHED = "reached"
    SMALLER = "same direction, smaller"
    DIFFERS = "differs"
    UNDECIDED = "undecided"

    @classmethod
    def of(cls, reached: bool, direction: bool = False) -> Verdict:
        """REACHED, else SMALLER where at least the direction of the claim was measured, else DIFFERS."""
        return cls.REACHED if reached else cls.SMALLER if direction else cls.DIFFERS

    @classmethod
    def of_factor(
        cls, here: float | None, paper: float, low: float | None = None, high: float | None = None
    ) -> Verdict:
        """A factor measured `here` against the paper's, above 1: reached from 90 % of it on. `low` and `high`
        are its interval. UNDECIDED where that leaves both open, no factor at all and the paper's.
        """
        if here is None:
            return cls.UNDECIDED
        told = (here if low is None else low) > _EQUAL
        possible = (here if high is None else high) >= _REACHED * paper
        return cls.UNDECIDED if possible and not told else cls.of(here >= _REACHED * paper, told)


_EQUAL = 1.05
"""Up to so many times is none."""
_REACHED = 0.9
"""The share of a paper's factor that counts as reached."""


@dataclass(frozen=True, slots=True)
class PaperFinding:
    """One figure or claim of a paper, and its measurement."""

    figure: str
    """Figure or section of the paper."""
    title: str
    claim: str
    """The paper's claim, paraphrased."""
    conclusion: str
    """The conclusion from the rows, with figures of this run."""
    verdict: Verdict = Verdict.UNDECIDED
    rows: list[dict[str, Cell]] = field(default_factory=list)
    plot: Plot | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "figure": self.figure,
            "title": self.title,
            "claim": self.claim,
            "conclusion": self.conclusion,
            "verdict": self.verdict.value,
            "rows": self.rows,
            "plot": self.plot and self.plot.as_json(),
        }


@dataclass(frozen=True, slots=True)
class PaperReport:
    """All findings of one paper."""

    paper: str
    citation: str
    size: str
    findings: list[PaperFinding]
    notes: list[str] = field(default_factory=list)
    """Remarks on the measurement."""
    seeds: tuple[int, ...] = ()
    summary: list[str] = field(default_factory=list)
    """What follows from all findings together, in a few sentences; empty where the first finding says it."""
    terms: list[tuple[str, str]] = field(default_factory=list)
    """Words of the findings, and what they mean."""

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "findings": [finding.as_json() for finding in self.findings],
            "seeds": list(self.seeds),
            "terms": [list(term) for term in self.terms],
        }
