"""Reports: self-contained HTML files of text, plots and small tables."""

from covey.sim.reports.html import Figure, Report, ReportError, Section, Table, Tile, write_report
from covey.sim.reports.numbers import number
from covey.sim.reports.plots import bars, lines

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
