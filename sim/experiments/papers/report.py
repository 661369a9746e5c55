"""The result of reproducing a paper: findings, one per figure or claim, as plain data, and their page.

All rows of a finding have the same keys; values are numbers, text, or None if not measured.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeVar

from covey.sim.reports import Badge, Figure, Origin, Plot, Report, Section, Table, Tile

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


_GOOD = {Verdict.REACHED: True, Verdict.DIFFERS: False}
_DEFINITIONS = (
    ("reached", "The claim was measured here; of a factor, at least 90 % of the paper's."),
    ("same direction, smaller", "What the paper claims was measured to a smaller degree."),
    ("differs", "The claim was not measured here, or the opposite of it was."),
    (
        "undecided",
        "Too few events to compare, an interval that holds both no effect and the paper's, or an engine that "
        "did not load within the limit.",
    ),
    ("interval", "Of a mean over runs: 95 %, by Student's distribution."),
)


def page(report: PaperReport) -> Report:
    """Verdicts over all findings, then claim, verdict, plot and rows of each."""
    verdicts = [finding.verdict for finding in report.findings]
    tiles = [
        Tile(verdict.value, count, _GOOD.get(verdict) if count else None)
        for verdict in Verdict
        if (count := verdicts.count(verdict)) or verdict is not Verdict.UNDECIDED
    ]
    return Report(
        f"{report.paper.capitalize()}, measured again",
        conclusion(report),
        Origin(report.size, report.seeds),
        [_section(finding) for finding in report.findings],
        tiles,
        [report.citation, *report.notes],
        [*report.terms, *_DEFINITIONS],
    )


def conclusion(report: PaperReport) -> list[str]:
    """How many findings have which verdict, and which they are."""
    total = len(report.findings)
    by_verdict = {
        verdict: [finding.figure for finding in report.findings if finding.verdict is verdict]
        for verdict in Verdict
    }
    reached, smaller = by_verdict[Verdict.REACHED], by_verdict[Verdict.SMALLER]
    sentences = [
        f"Of {total} findings of {report.paper.capitalize()} et al., {len(reached)} "
        f"{'is' if len(reached) == 1 else 'are'} reached on this "
        "machine" + (f": {_listed(reached)}." if 0 < len(reached) < total else "."),
    ]
    if smaller:
        sentences.append(f"{_counted(smaller, 'has', 'have')} the same direction, with a smaller effect.")
    if differs := by_verdict[Verdict.DIFFERS]:
        sentences.append(f"{_counted(differs, 'differs', 'differ')}.")
    if undecided := by_verdict[Verdict.UNDECIDED]:
        sentences.append(f"{_counted(undecided, 'is', 'are')} undecided.")
    first = next((each for each in report.findings if each.verdict is not Verdict.UNDECIDED), None)
    if first is not None and not report.summary:
        sentences.append(f"{first.figure}: {first.conclusion}")
    if report.size != "full":
        sentences.append(f"This is the {report.size} size; the full one has more points and repetitions.")
    return [*report.summary, *sentences]


def _counted(figures: list[str], singular: str, plural: str) -> str:
    return f"{_listed(figures)} {singular if len(figures) == 1 else plural}"


def _listed(figures: list[str]) -> str:
    return figures[0] if len(figures) == 1 else f"{', '.join(figures[:-1])} and {figures[-1]}"


def _section(finding: PaperFinding) -> Section:
    columns = list(finding.rows[0]) if finding.rows else []
    return Section(
        f"{finding.figure}: {finding.title}",
        [f"The paper: {finding.claim}", f"Here: {finding.conclusion}"],
        [Figure(finding.plot, finding.title)] if finding.plot else [],
        [Table(columns, [list(row.values()) for row in finding.rows])] if finding.rows else [],
        badge=Badge(finding.verdict.value, _GOOD.get(finding.verdict)),
    )
