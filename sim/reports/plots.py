"""Plots in one style, as PNG: lines over a parameter, and grouped bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from covey.sim.extras import need

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#1b6ca8", "#d1495b", "#2e8b57", "#e09f3e", "#6a4c93", "#5f6b73", "#8c564b", "#17a2a2")
_SIZE = (6.4, 3.6)
_DPI = 120
_ACROSS, _NAME = 60, 36
"""Maximum characters of group names below a plot in total, and beside a plot each."""


def lines(
    series: Mapping[str, Sequence[tuple[float, float | None]]],
    *,
    x: str,
    y: str,
    log_x: bool = False,
    log_y: bool = False,
) -> bytes:
    """A PNG with one line per series of (x, y) in any order; points with a y of None are skipped.

    Raises `CoveyError` if matplotlib is missing. The same data gives the same bytes.
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
    """A PNG of grouped bars, one per series and group; None has no bar. Long group names make the bars
    horizontal.

    Raises `CoveyError` if matplotlib is missing. The same data gives the same bytes.
    """
    horizontal = sum(len(group) for group in groups) > _ACROSS
    height = max(_SIZE[1], 0.8 + 0.22 * len(groups) * len(series)) if horizontal else _SIZE[1]
    figure, axes = _axes(y, x, height) if horizontal else _axes(x, y)
    width = 0.8 / max(len(series), 1)
    for place, (label, values) in enumerate(series.items()):
        at = [group - 0.4 + width * (place + 0.5) for group in range(len(groups))]
        sizes = [0.0 if value is None else value for value in values]
        draw = axes.barh if horizontal else axes.bar
        draw(at, sizes, width * 0.92, color=_COLOURS[place % len(_COLOURS)], label=label)
    if horizontal:
        axes.set_yticks(range(len(groups)), [_short(group) for group in groups])
        axes.invert_yaxis()
    else:
        axes.set_xticks(range(len(groups)), groups)
    axes.grid(alpha=0.25, axis="x" if horizontal else "y")
    return _png(figure, axes, len(series))


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
