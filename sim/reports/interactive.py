"""Figures in pages, drawn by Bokeh, with hover values, zoom, and a legend whose clicks hide series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from textwrap import fill
from typing import TYPE_CHECKING, Any

from covey.sim.extras import need
from covey.sim.reports.colours import Style
from covey.sim.reports.content import Bars, Curves, Mark, Plot, number, widths

if TYPE_CHECKING:
    from bokeh.models import GlyphRenderer
    from bokeh.plotting import figure

_HEIGHT, _LEGEND_ROW, _BAR_ROW = 320, 27, 17
_SHORT = 20
"""Names up to this length fit side by side below a figure on a phone."""
_GROUP = 22
"""Characters per line of a group's name beside bars."""
_TOOLS = "pan,box_zoom,wheel_zoom,reset,save"

Drawn = list[Any]
"""The renderers of one series, which the legend hides together; the last one has the hover values."""


def scripts_and_places(plots: Sequence[tuple[Plot, Mapping[str, Style]]]) -> tuple[str, str, list[str]]:
    """BokehJS, the script that draws all plots, and the element of each to place in the page. Raises
    `CoveyError` if Bokeh is missing."""
    need("a page with figures", "bokeh.embed")
    from bokeh.document import Document
    from bokeh.embed import components
    from bokeh.resources import Resources

    library = "\n".join(Resources(mode="inline", components=["bokeh"], log_level="error").js_raw)
    figures = tuple(_figure(plot, style) for plot, style in plots)
    document = Document()
    with document.models.freeze():  # else each root costs a pass over all models
        for each in figures:
            document.add_root(each)
    drawing, places = components(figures, wrap_script=False)
    return library, drawing, list(places)


def _figure(plot: Plot, style: Mapping[str, Style]) -> figure:
    drawn = _curves(plot, style) if isinstance(plot, Curves) else _bars(plot, style)
    drawn.toolbar.logo = None
    drawn.toolbar.active_drag = None  # on a phone, a drag scrolls the page
    drawn.toolbar.autohide = True
    drawn.outline_line_color = None
    drawn.axis.axis_label_text_font_style = "normal"
    drawn.axis.axis_line_color = drawn.axis.major_tick_line_color = "#9aa5b1"
    drawn.axis.minor_tick_line_color = None
    drawn.grid.grid_line_color = "#e4e7eb"
    return drawn


def _curves(plot: Curves, style: Mapping[str, Style]) -> figure:
    from bokeh.models import DataRange1d
    from bokeh.plotting import figure

    drawn = figure(
        height=_HEIGHT + _legend_height(plot.series),
        sizing_mode="stretch_width",
        x_axis_type="log" if plot.log_x else "linear",
        y_axis_type="log" if plot.log_y else "linear",
        x_axis_label=plot.x_label,
        y_axis_label=plot.y_label,
        y_range=DataRange1d(only_visible=True),
        tools=_TOOLS,
        toolbar_location="above",
    )
    marks = {name: plot.marks(name) for name in plot.series}
    ys = [mark[1] for each in marks.values() for mark in each]
    if not plot.log_y and min(ys, default=0) >= 0:
        drawn.y_range.start = 0
    _format(drawn.xaxis[0], [mark[0] for each in marks.values() for mark in each], plot.log_x)
    _format(drawn.yaxis[0], ys, plot.log_y)
    series: dict[str, Drawn] = {}
    width = widths(plot)
    for name, each in marks.items():
        look = style[name]
        x, y = [mark[0] for mark in each], [mark[1] for mark in each]
        line = drawn.line(x, y, color=look.colour, line_dash=look.dash, line_width=width[name])
        series[name] = [line, *_whiskers(drawn, each, look.colour)]
        colours = [look.colour] * len(each)
        source = _source(name, [number(value) for value in x], each, x=x, y=y, colour=colours)
        series[name].append(_dots(drawn, source, look, 5 + width[name]))
    _legend(drawn, series)
    _hover(drawn, series, plot.x_label, plot.y_label)
    return drawn


def _bars(plot: Bars, style: Mapping[str, Style]) -> figure:
    from bokeh.models import DataRange1d, FixedTicker, Range1d
    from bokeh.plotting import figure

    names = [fill(group, _GROUP) for group in plot.groups]
    rows = max([len(plot.series), *(1 + name.count("\n") for name in names)])
    drawn = figure(
        height=90 + len(names) * (8 + _BAR_ROW * rows) + _legend_height(plot.series),
        sizing_mode="stretch_width",
        x_axis_type="log" if plot.log else "linear",
        x_axis_label=plot.value_label,
        x_range=DataRange1d(only_visible=True),
        y_range=Range1d(len(names) - 0.5, -0.5),
        tools=_TOOLS,
        toolbar_location="above",
    )
    drawn.yaxis[0].ticker = FixedTicker(ticks=list(range(len(names))))
    drawn.yaxis[0].major_label_overrides = dict(enumerate(names))
    drawn.ygrid.visible = plot.dots
    values = [mark[1] for name in plot.series for mark in plot.marks(name)]
    _format(drawn.xaxis[0], values, plot.log)
    origin = 10.0 ** floor(log10(min(values))) if plot.log and values else 0.0
    if not plot.dots:
        drawn.x_range.start = origin if min(values, default=0) >= 0 else None
    width = 0.8 / max(len(plot.series), 1)
    series: dict[str, Drawn] = {}
    for place, name in enumerate(plot.series):
        each = plot.marks(name)
        looks = [style[plot.groups[int(mark[0])] if plot.by_group else name] for mark in each]
        colours = [look.colour for look in looks]
        at = [mark[0] + width * (place + 0.5) - 0.4 for mark in each]
        source = _source(
            name,
            [plot.groups[int(mark[0])] for mark in each],
            each,
            x=[mark[1] for mark in each],
            y=at,
            colour=colours,
        )
        beside = [(there, *mark[1:]) for there, mark in zip(at, each, strict=True)]
        if plot.dots:
            series[name] = [
                *_whiskers(drawn, beside, "#333333", horizontal=True),
                *([_dots(drawn, source, looks[0], 9)] if looks else []),
            ]
        else:
            bar = drawn.hbar(
                y="y", left=origin, right="x", height=width * 0.92, color="colour", source=source
            )
            series[name] = [*_whiskers(drawn, beside, "#333333", horizontal=True, level="overlay"), bar]
    _legend(drawn, series)
    _hover(drawn, series, "", plot.value_label)
    return drawn


def _source(name: str, at: Sequence[str], marks: Sequence[Mark], **columns: list[Any]) -> Any:
    from bokeh.models import ColumnDataSource

    interval = ["" if low is None else f"{number(low)} to {number(high)}" for *_, low, high in marks]
    texts = {"series": [name] * len(marks), "at": list(at), "value": [number(mark[1]) for mark in marks]}
    return ColumnDataSource({**columns, **texts, "interval": interval})


def _dots(drawn: figure, source: Any, look: Style, size: float) -> GlyphRenderer:
    return drawn.scatter(
        "x",
        "y",
        source=source,
        marker=look.marker,
        size=size,
        line_color="colour",
        fill_color="colour",
        fill_alpha=0.75,
    )


def _whiskers(
    drawn: figure, marks: Sequence[Mark], colour: str, *, horizontal: bool = False, level: str = "glyph"
) -> Drawn:
    known = [(at, low, high) for at, _, low, high in marks if low is not None and high is not None]
    if not known:
        return []
    at, low, high = (list(values) for values in zip(*known, strict=True))
    ends = (low, at, high, at) if horizontal else (at, low, at, high)
    return [drawn.segment(*ends, color=colour, line_width=1.5, level=level)]


def _legend(drawn: figure, series: Mapping[str, Drawn]) -> None:
    from bokeh.models import Legend, LegendItem

    if len(series) < 2:
        return
    items = [LegendItem(label=name, renderers=renderers) for name, renderers in series.items()]
    legend = Legend(
        items=items, click_policy="hide", ncols=_legend_columns(series), border_line_color=None, padding=0
    )
    legend.location, legend.spacing, legend.margin = "left", 2, 4
    legend.label_text_font_size, legend.label_width = "12px", 80
    drawn.add_layout(legend, "below")


def _legend_columns(names: Mapping[str, Any]) -> int:
    return 1 if max(map(len, names), default=0) > _SHORT else 2


def _legend_height(names: Mapping[str, Any]) -> int:
    return 0 if len(names) < 2 else 8 + _LEGEND_ROW * -(-len(names) // _legend_columns(names))


def _hover(drawn: figure, series: Mapping[str, Drawn], at: str, value: str) -> None:
    from bokeh.models import HoverTool

    tips = [("series", "@series"), (at or "row", "@at"), (value, "@value")]
    shown = [renderers[-1] for renderers in series.values() if renderers]
    if any(text for renderer in shown for text in renderer.data_source.data["interval"]):
        tips.append(("whiskers", "@interval"))
    drawn.add_tools(HoverTool(tooltips=tips, renderers=shown))


def _format(axis: Any, values: Sequence[float], log: bool) -> None:
    """Ticks as numbers: 0.5, 20, 1.5k, 2m."""
    from bokeh.models import LogTicker, NumeralTickFormatter, PrintfTickFormatter

    positive = [abs(value) for value in values if value]
    least, most = min(positive, default=1), max(positive, default=1)
    if log:
        axis.ticker = LogTicker(mantissas=[1, 2, 5] if most / least < 500 else [1])
    tiny = (least if log else most) < 0.01
    axis.formatter = PrintfTickFormatter(format="%g") if tiny else NumeralTickFormatter(format="0.[000]a")
