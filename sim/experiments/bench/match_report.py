"""What `covey bench match` measured, as tables in Markdown and as curves: throughput over subscriptions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import median

from covey.matcher.errors import CoveyError
from covey.sim.experiments.bench.match import Result
from covey.sim.extras import need

_COLUMNS: tuple[tuple[str, Callable[[Result], str]], ...] = (
    ("events/s", lambda r: f"{median(r.rates):,.0f}"),
    ("min", lambda r: f"{min(r.rates):,.0f}"),
    ("max", lambda r: f"{max(r.rates):,.0f}"),
    ("matches/event", lambda r: f"{r.matches_per_event:,.2f}"),
    ("load s", lambda r: f"{r.load_s:.2f}"),
    ("bytes each", lambda r: f"{r.bytes_per_subscription:.0f}"),
    ("update µs", lambda r: f"{r.update_us:.1f}"),
    ("of many µs", lambda r: f"{r.update_many_us:.2f}"),
)


def markdown(results: list[Result]) -> str:
    """An overview, engines by workloads, for every number of subscriptions; and every run in full."""
    lines: list[str] = []
    workloads = list(dict.fromkeys(result.workload for result in results))
    engines = list(dict.fromkeys(result.engine for result in results))
    for count in dict.fromkeys(result.subscriptions for result in results):
        found = {(r.engine, r.workload): r for r in results if r.subscriptions == count}
        lines += [
            f"Events per second (median), {count:,} subscriptions:",
            "",
            f"| engine | {' | '.join(workloads)} |",
            f"|---|{'---:|' * len(workloads)}",
        ]
        for engine in engines:
            cells = [_rate(found.get((engine, workload))) for workload in workloads]
            lines.append(f"| `{engine}` | {' | '.join(cells)} |")
        lines.append("")
    for workload in workloads:
        for count in dict.fromkeys(r.subscriptions for r in results if r.workload == workload):
            lines += [
                f"{workload}, {count:,} subscriptions:",
                "",
                f"| engine | {' | '.join(name for name, _ in _COLUMNS)} |",
                f"|---|{'---:|' * len(_COLUMNS)}",
            ]
            for r in results:
                if (r.workload, r.subscriptions) == (workload, count):
                    cells = [show(r) if r.complete else "" for _, show in _COLUMNS]
                    lines.append(f"| `{r.engine}` | {' | '.join(cells)} |")
            lines.append("")
    return "\n".join(lines)


def _rate(result: Result | None) -> str:
    if result is None:
        return ""
    return f"{median(result.rates):,.0f}" if result.complete else f"gave up at {result.loaded:,}"


def draw(results: list[Result], path: Path) -> None:
    """A panel per workload: events per second of each engine over the number of subscriptions, both
    logarithmic.

    The file's ending says its form (.svg, .png, .pdf); `CoveyError` for one that cannot be drawn or written.
    """
    need("--draw", "matplotlib")
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    workloads = list(dict.fromkeys(result.workload for result in results))
    engines = list(dict.fromkeys(result.engine for result in results))
    across = min(3, len(workloads))
    down = -(-len(workloads) // across)
    figure, panels = pyplot.subplots(down, across, figsize=(4.2 * across, 3.4 * down), squeeze=False)
    for panel, workload in zip(panels.flat, workloads, strict=False):
        for number, engine in enumerate(engines):
            points = sorted(
                (r.subscriptions, median(r.rates))
                for r in results
                if (r.workload, r.engine) == (workload, engine) and r.complete
            )
            if points:
                panel.plot(*zip(*points, strict=True), "o-", color=f"C{number}", markersize=3, label=engine)
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
