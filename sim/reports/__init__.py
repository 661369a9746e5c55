"""Reports: pages of one HTML file with text, figures and tables, and the figures alone as PNG."""

from covey.sim.reports.content import Badge, Figure, Report, Section, Table, Tile
from covey.sim.reports.html import ReportError, html, write_report
from covey.sim.reports.intervals import ESTIMATED, mean_interval
from covey.sim.reports.numbers import number
from covey.sim.reports.origin import Origin
from covey.sim.reports.plot_data import Bars, Curves, Plot, Point, Value
from covey.sim.reports.png import png

__all__ = [
    "ESTIMATED",
    "Badge",
    "Bars",
    "Curves",
    "Figure",
    "Origin",
    "Plot",
    "Point",
    "Report",
    "ReportError",
    "Section",
    "Table",
    "Tile",
    "Value",
    "html",
    "mean_interval",
    "number",
    "png",
    "write_report",
]
