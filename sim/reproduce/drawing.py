"""Plots of findings: one small picture each (PNG), in one style."""

from __future__ import annotations

from io import BytesIO

from covey.matcher.errors import CoveyError
from covey.sim.reproduce.report import Finding


def png(finding: Finding) -> bytes | None:
    """A finding's plot as PNG; None where it has none. Raises `CoveyError` where matplotlib is missing."""
    curves = finding.plot
    if curves is None or not any(curves.series.values()):
        return None
    try:
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot
    except ImportError:
        raise CoveyError("drawing needs matplotlib: install covey[sim]") from None
    figure, axes = pyplot.subplots(figsize=(5.6, 3.6), dpi=90)
    for name, points in curves.series.items():
        if points:
            xs, ys = zip(*sorted(points), strict=True)
            axes.plot(xs, ys, marker="o", markersize=3, linewidth=1.4, label=name)
    axes.set(title=f"{finding.figure}: {finding.title}", xlabel=curves.x_label, ylabel=curves.y_label)
    axes.title.set_fontsize(9)
    if curves.log_x:
        axes.set_xscale("log")
    if curves.log_y:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize=7, frameon=False)
    figure.tight_layout()
    target = BytesIO()
    figure.savefig(target, format="png", metadata={"Software": None})
    pyplot.close(figure)
    return target.getvalue()
