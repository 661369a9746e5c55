"""The page of a reproduction: a section per finding."""

from __future__ import annotations

from covey.sim import reports as pages
from covey.sim.experiments.papers.report import PaperFinding, PaperReport, Verdict


def page(report: PaperReport) -> pages.Report:
    """Verdict counts, then claim, verdict, plot and rows of each finding."""
    verdicts = [finding.verdict for finding in report.findings]
    good = {Verdict.REACHED: True, Verdict.DIFFERS: False}
    return pages.Report(
        f"{report.paper.capitalize()}, measured again",
        [_section(finding) for finding in report.findings],
        [report.citation, *report.notes],
        [
            pages.Tile(verdict.value, count, good.get(verdict) if count else None)
            for verdict in Verdict
            if (count := verdicts.count(verdict)) or verdict is not Verdict.UNMEASURED
        ],
    )


def _section(finding: PaperFinding) -> pages.Section:
    columns = list(finding.rows[0]) if finding.rows else []
    drawn = finding.plot is not None and not finding.plot.empty
    return pages.Section(
        f"{finding.figure}: {finding.title}",
        [f"The paper: {finding.claim}", f"{finding.verdict.value.capitalize()}: {finding.conclusion}"],
        [pages.Figure(finding.plot, finding.title)] if finding.plot and drawn else [],
        [pages.Table(columns, [list(row.values()) for row in finding.rows])] if finding.rows else [],
    )
