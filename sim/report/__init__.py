"""Reports for people: one HTML file that needs nothing else, of text, plots and small tables."""

from covey.sim.report.html import Figure, Report, ReportError, Section, Table, Tile, write_report
from covey.sim.report.numbers import number
from covey.sim.report.plots import bars, lines

__all__ = [
    "Figure",
    "Report",
    "ReportError",
    "Section",
    "Table",
    "Tile",
    "bars",
    "lines",
    "number",
    "write_report",
]
