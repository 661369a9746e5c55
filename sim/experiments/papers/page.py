"""The page and the plots of a reproduction: a section per finding."""

from __future__ import annotations

from covey.sim import reports as pages
from covey.sim.experiments.papers.report import PaperFinding, PaperReport

_MARKS = {True: "Holds here: ", False: "Differs here: ", None: "Not measured here: "}


def plot(finding: PaperFinding) -> bytes | None:
    """A finding's plot as PNG, or None. Raises `CoveyError` if matplotlib is missing."""
    curves = finding.plot
    if curves is None or not any(curves.series.values()):
        return None
    return pages.lines(
        curves.series, x=curves.x_label, y=curves.y_label, log_x=curves.log_x, log_y=curves.log_y
    )


def page(report: PaperReport) -> pages.Report:
    """Verdict counts, then claim, verdict, plot and rows of each finding."""
    verdicts = [finding.holds for finding in report.findings]
    return pages.Report(
        f"{report.paper.capitalize()}, measured again",
        [_section(finding) for finding in report.findings],
        [report.citation, *report.notes],
        [
            pages.Tile("claims hold", verdicts.count(True), True),
            pages.Tile("differ", verdicts.count(False), False if False in verdicts else None),
            pages.Tile("not measured", verdicts.count(None)),
        ],
    )


def _section(finding: PaperFinding) -> pages.Section:
    png = plot(finding)
    columns = list(finding.rows[0]) if finding.rows else []
    return pages.Section(
        f"{finding.figure}: {finding.title}",
        [f"The paper: {finding.claim}", _MARKS[finding.holds] + finding.verdict],
        [pages.Figure(png, finding.title)] if png else [],
        [pages.Table(columns, [list(row.values()) for row in finding.rows])] if finding.rows else [],
    )
