"""Reports: self-contained HTML files of text, plots and small tables; plots as PNG."""

from covey.sim.reports.html import Figure, Report, ReportError, Section, Table, Tile, write_report
from covey.sim.reports.numbers import number
from covey.sim.reports.plot_data import Bars, Curves, Plot, Point, Value
from covey.sim.reports.png import png

__all__ = [
    "Bars",
    "Curves",
    "Figure",
    "Plot",
    "Point",
    "Report",
    "ReportError",
    "Section",
    "Table",
    "Tile",
    "Value",
    "number",
    "png",
    "write_report",
]
