"""Reports: pages of one HTML file with text, figures and tables, and the figures alone as PNG."""

from covey.sim.reports.content import (
    ESTIMATED,
    Badge,
    Bars,
    Curves,
    Figure,
    Origin,
    Plot,
    Point,
    Report,
    Section,
    Table,
    Tile,
    Value,
    mean_interval,
    number,
)
from covey.sim.reports.html import html, write_report
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
