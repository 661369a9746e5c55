"""The page of a reproduction: the conclusion over all findings, then a section per finding."""

from __future__ import annotations

from covey.sim.experiments.papers.report import PaperFinding, PaperReport, Verdict
from covey.sim.reports import Badge, Figure, Origin, Report, Section, Table, Tile

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
