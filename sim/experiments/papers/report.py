"""The result of reproducing a paper: findings, one per figure or claim, as plain data, and their page. All
rows of a finding have the same keys; values are numbers, text, or None if not measured."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

from covey.sim.experiments.papers.verdicts import DEFINITIONS, LEAST_RUNS, Verdict
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

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(range(self.seed, self.seed + LEAST_RUNS))

    def pick(self, tiny: T, quick: T, full: T) -> T:
        return {"tiny": tiny, "quick": quick, "full": full}[self.size]


@dataclass(frozen=True, slots=True)
class PaperFinding:
    """One figure, section or claim of a paper, and its measurement; the `claim` is paraphrased."""

    figure: str
    title: str
    claim: str
    conclusion: str
    """From the rows, with figures of this run."""
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
    """All findings of one paper; `notes` are on the measurement, `terms` are (word, meaning)."""

    paper: str
    citation: str
    size: str
    findings: list[PaperFinding]
    notes: list[str] = field(default_factory=list)
    seeds: tuple[int, ...] = ()
    summary: list[str] = field(default_factory=list)
    """The joint conclusion of all findings, in a few sentences; empty where the first finding has it."""
    terms: list[tuple[str, str]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {
            "findings": [finding.as_json() for finding in self.findings],
            "seeds": list(self.seeds),
            "terms": [list(term) for term in self.terms],
        }


_GOOD = {Verdict.HOLDS: True, Verdict.NOT_HERE: False, Verdict.OPPOSITE: False}


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
        [*report.terms, *DEFINITIONS],
    )


def conclusion(report: PaperReport) -> list[str]:
    by_verdict = {
        verdict: [finding.figure for finding in report.findings if finding.verdict is verdict]
        for verdict in Verdict
    }
    counts = "; ".join(
        f"{len(figures)} {verdict} ({', '.join(figures)})"
        for verdict, figures in by_verdict.items()
        if figures
    )
    sentences = [f"Of {len(report.findings)} findings of {report.paper.capitalize()} et al. here: {counts}."]
    first = next((each for each in report.findings if each.verdict is not Verdict.UNDECIDED), None)
    if first is not None and not report.summary:
        sentences.append(f"{first.figure}: {first.conclusion}")
    if report.size != "full":
        sentences.append(f"This is the {report.size} size; the full one has more points and repetitions.")
    return [*report.summary, *sentences]


def _section(finding: PaperFinding) -> Section:
    columns = list(finding.rows[0]) if finding.rows else []
    return Section(
        f"{finding.figure}: {finding.title}",
        [f"The paper: {finding.claim}", f"Here: {finding.conclusion}"],
        [Figure(finding.plot, finding.title)] if finding.plot else [],
        [Table(columns, [list(row.values()) for row in finding.rows])] if finding.rows else [],
        badge=Badge(finding.verdict.value, _GOOD.get(finding.verdict)),
    )
