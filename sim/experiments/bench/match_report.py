"""The results of `covey bench match` as tables, Markdown and curves of the rate of ids over subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from covey.matcher.errors import CoveyError
from covey.sim.experiments.bench.match import MatchResult
from covey.sim.extras import need
from covey.sim.reports import number
from covey.sim.reports.colours import styles

_COLUMNS: tuple[tuple[str, Callable[[MatchResult], float | None]], ...] = (
    ("ids/s", lambda r: r.rate("ids")),
    ("min", lambda r: min(r.rates["ids"])),
    ("max", lambda r: max(r.rates["ids"])),
    ("ordered", lambda r: r.rate("ordered")),
    ("counts", lambda r: r.rate("counts")),
    ("interfaces", lambda r: r.rate("interfaces")),
    ("ids/scan", lambda r: r.ratios.get("ids")),
    ("counts/scan", lambda r: r.ratios.get("counts")),
    ("matches", lambda r: r.matches_per_event),
    ("load s", lambda r: r.load_s),
    ("bytes each", lambda r: r.bytes_per_subscription),
    ("update µs", lambda r: r.update_us),
    ("of many µs", lambda r: r.update_many_us),
)


def table(results: list[MatchResult]) -> tuple[list[str], list[list[str | float | None]]]:
    """Columns and rows, one per engine; an engine that did not load has its name and no figures."""
    rows: list[list[str | float | None]] = [
        [result.engine, *(value(result) for _, value in _COLUMNS)]
        if result.complete
        else [f"{result.engine} (stopped loading at {result.loaded:,})", *(None for _ in _COLUMNS)]
        for result in results
    ]
    return ["engine", *(title for title, _ in _COLUMNS)], rows


def markdown(results: list[MatchResult]) -> str:
    """Throughput of engines by workloads for every number of subscriptions, then each table in full."""
    lines: list[str] = []
    workloads = list(dict.fromkeys(result.workload for result in results))
    engines = list(dict.fromkeys(result.engine for result in results))
    for count in dict.fromkeys(result.subscriptions for result in results):
        by_engine = {(r.engine, r.workload): r for r in results if r.subscriptions == count}
        lines += [
            f"Events per second with their ids (median), {count:,} subscriptions:",
            "",
            f"| engine | {' | '.join(workloads)} |",
            f"|---|{'---:|' * len(workloads)}",
        ]
        for engine in engines:
            cells = [_rate(by_engine.get((engine, workload))) for workload in workloads]
            lines.append(f"| `{engine}` | {' | '.join(cells)} |")
        lines.append("")
    for workload in workloads:
        for count in dict.fromkeys(r.subscriptions for r in results if r.workload == workload):
            columns, rows = table([r for r in results if (r.workload, r.subscriptions) == (workload, count)])
            lines += [
                f"{workload}, {count:,} subscriptions:",
                "",
                f"| {' | '.join(columns)} |",
                f"|---|{'---:|' * len(_COLUMNS)}",
                *(f"| `{name}` | {' | '.join(map(number, figures))} |" for name, *figures in rows),
                "",
            ]
    return "\n".join(lines)


def _rate(result: MatchResult | None) -> str:
    if result is None:
        return ""
    return f"{result.rate():,.0f}" if result.complete else f"gave up at {result.loaded:,}"


def draw(results: list[MatchResult], path: Path) -> None:
    """A panel per workload: events per second of each engine over the number of subscriptions, on logarithmic
    axes.

    The suffix of the file selects the format (.svg, .png, .pdf). Raises `CoveyError` if writing fails.
    """
    need("--draw", "matplotlib")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    workloads = list(dict.fromkeys(result.workload for result in results))
    engines = list(dict.fromkeys(result.engine for result in results))
    look = styles(engines)
    across = min(3, len(workloads))
    down = -(-len(workloads) // across)
    figure, panels = pyplot.subplots(down, across, figsize=(4.2 * across, 3.4 * down), squeeze=False)
    for panel, workload in zip(panels.flat, workloads, strict=False):
        for engine in engines:
            points = sorted(
                (r.subscriptions, r.rate())
                for r in results
                if (r.workload, r.engine) == (workload, engine) and r.complete
            )
            if points:
                colour = look[engine].colour
                panel.plot(*zip(*points, strict=True), "o-", color=colour, markersize=3, label=engine)
        panel.set(title=workload, xscale="log", yscale="log", xlabel="subscriptions", ylabel="events/s")
        panel.grid(alpha=0.3, which="both")
    for panel in panels.flat[len(workloads) :]:
        panel.axis("off")
    handles, labels = panels.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=min(len(labels), 6), frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    try:
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
    except (OSError, ValueError) as error:
        raise CoveyError(f"drawing {path}: {error}") from None
    finally:
        pyplot.close(figure)
