"""Figures as PNG, drawn by matplotlib, for documents and `--plots`. The same data gives the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from covey.sim.extras import need
from covey.sim.reports.colours import Style, styles
from covey.sim.reports.content import Bars, Curves, Mark, Plot, widths

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE = (6.4, 3.6)
_DPI = 120
_ACROSS, _NAME = 60, 36
"""Maximum characters of group names below a plot in total, and beside a plot each."""
_MARKERS = {
    "circle": "o",
    "square": "s",
    "triangle": "^",
    "diamond": "D",
    "inverted_triangle": "v",
    "star": "*",
    "hex": "h",
    "plus": "P",
}
_DASHES = {"solid": "-", "dashed": "--", "dotted": ":", "dotdash": "-."}


def png(plot: Plot, style: Mapping[str, Style] | None = None) -> bytes:
    """`style` is by series, by default from `styles`. Raises `CoveyError` if matplotlib is missing."""
    style = style or styles(plot.styled)
    return _curves(plot, style) if isinstance(plot, Curves) else _bars(plot, style)


def _curves(plot: Curves, style: Mapping[str, Style]) -> bytes:
    figure, axes = _axes(plot.x_label, plot.y_label)
    width = widths(plot)
    for name in plot.series:
        marks, look = plot.marks(name), style[name]
        axes.plot(
            [mark[0] for mark in marks],
            [mark[1] for mark in marks],
            marker=_MARKERS[look.marker],
            color=look.colour,
            linestyle=_DASHES[look.dash],
            linewidth=0.8 * width[name],
            markersize=2.5 + width[name],
            label=name,
        )
        _whiskers(axes, marks, look.colour, horizontal=False)
    if plot.log_x:
        axes.set_xscale("log")
    if plot.log_y:
        axes.set_yscale("log")
    elif all(point[1] >= 0 for points in plot.series.values() for point in points):
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25, which="both" if plot.log_x or plot.log_y else "major")
    return _png(figure, axes, len(plot.series))


def _bars(plot: Bars, style: Mapping[str, Style]) -> bytes:
    """Horizontal for dots and where group names are long."""
    groups, count = plot.groups, len(plot.series)
    horizontal = plot.dots or sum(len(group) for group in groups) > _ACROSS
    height = max(_SIZE[1], 0.8 + 0.22 * len(groups) * count) if horizontal else _SIZE[1]
    label = plot.value_label
    figure, axes = _axes(label, "", height) if horizontal else _axes("", label)
    width = 0.8 / max(count, 1)
    for place, name in enumerate(plot.series):
        beside = width * (place + 0.5) - 0.4
        marks = [(group + beside, value, low, high) for group, value, low, high in plot.marks(name)]
        at, sizes = [mark[0] for mark in marks], [mark[1] for mark in marks]
        looks = [style[groups[round(mark[0])] if plot.by_group else name] for mark in marks]
        colours = [look.colour for look in looks]
        if plot.dots:
            marker = _MARKERS[looks[0].marker] if looks else ""
            axes.scatter(sizes, at, 25, colours, marker=marker, label=name)
        else:
            (axes.barh if horizontal else axes.bar)(at, sizes, width * 0.92, color=colours, label=name)
        _whiskers(axes, marks, "#333333", horizontal=horizontal)
    if horizontal:
        axes.set_yticks(range(len(groups)), [_short(group) for group in groups])
        axes.invert_yaxis()
        axes.set_xscale("log" if plot.log else "linear")
    else:
        axes.set_xticks(range(len(groups)), groups)
        axes.set_yscale("log" if plot.log else "linear")
    axes.grid(alpha=0.25, axis="x" if horizontal else "y")
    return _png(figure, axes, count)


def _whiskers(axes: Axes, marks: Sequence[Mark], colour: str, *, horizontal: bool) -> None:
    for at, _, low, high in marks:
        if low is not None and high is not None:
            (axes.hlines if horizontal else axes.vlines)(at, low, high, color=colour, linewidth=1.2)


def _short(name: str) -> str:
    return name if len(name) <= _NAME else f"{name[: _NAME - 3]}..."


def _axes(x: str, y: str, height: float = _SIZE[1]) -> tuple[Any, Axes]:
    need("a plot", "matplotlib.figure")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_SIZE[0], height), dpi=_DPI, layout="constrained")
    axes = figure.add_subplot()
    axes.set(xlabel=x, ylabel=y)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _png(figure: Any, axes: Axes, series: int) -> bytes:
    if series > 1:
        axes.legend(frameon=False, fontsize=8, ncols=1 if series < 6 else 2)
    out = BytesIO()
    figure.savefig(out, format="png", metadata={"Software": None})
    return out.getvalue()
