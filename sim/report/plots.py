"""Plots in one style: lines over a parameter, and bars side by side, as figures of a report or PNG files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from covey.matcher.errors import CoveyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#e09f3e", "#6a4c93", "#5f6b73", "#8c564b", "#17a2a2")
_SIZE = (6.4, 3.6)
_DPI = 120


def lines(
    series: Mapping[str, Sequence[tuple[float, float | None]]],
    *,
    x: str,
    y: str,
    log_x: bool = False,
    log_y: bool = False,
) -> bytes:
    """A PNG of one line per series, each a sequence of (x, y) in any order; a y of None is left out.

    `CoveyError` where matplotlib is missing. The same data gives the same bytes.
    """
    figure, axes = _axes(x, y)
    for place, (label, points) in enumerate(series.items()):
        known = sorted((at, value) for at, value in points if value is not None)
        axes.plot(
            [at for at, _ in known],
            [value for _, value in known],
            marker="o",
            color=_COLOURS[place % len(_COLOURS)],
            linestyle=("-", "--", ":")[place // len(_COLOURS) % 3],
            markersize=4,
            label=label,
        )
    if log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25, which="both" if log_x or log_y else "major")
    return _png(figure, axes, len(series))


def bars(
    groups: Sequence[str], series: Mapping[str, Sequence[float | None]], *, y: str, x: str = ""
) -> bytes:
    """A PNG of bars: for each group one bar per series, side by side; None is left out.

    `CoveyError` where matplotlib is missing. The same data gives the same bytes.
    """
    figure, axes = _axes(x, y)
    width = 0.8 / max(len(series), 1)
    for place, (label, values) in enumerate(series.items()):
        at = [group - 0.4 + width * (place + 0.5) for group in range(len(groups))]
        heights = [0.0 if value is None else value for value in values]
        axes.bar(at, heights, width * 0.92, color=_COLOURS[place % len(_COLOURS)], label=label)
    crowded = sum(len(group) for group in groups) > 60
    axes.set_xticks(
        range(len(groups)), groups, rotation=60 if crowded else 0, ha="right" if crowded else "center"
    )
    axes.grid(alpha=0.25, axis="y")
    return _png(figure, axes, len(series))


def _axes(x: str, y: str) -> tuple[Any, Axes]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise CoveyError("plots need matplotlib: install covey[sim]") from None
    figure = Figure(figsize=_SIZE, dpi=_DPI, layout="constrained")
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
