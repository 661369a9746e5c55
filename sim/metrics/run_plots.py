"""Plots of runs: metrics over the parameter with most values in a sweep, or bars side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from covey.sim.metrics.across import Group
from covey.sim.reports import Bars, Curves, Figure, Plot, number

UNITS = {
    "event_rate": "events per second and publisher",
    "update_rate": "changes per second and subscriber",
    "delay_ms": "delay of a link in ms",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """A plotted metric: its name in `flat`, its label, and the caption of its plot."""

    name: str
    label: str
    caption: str


METRICS = (
    Metric(
        "throughput_events_per_s",
        "events delivered per second",
        "Throughput: events delivered per second in the measured phase.",
    ),
    Metric(
        "delay_ms_p50",
        "delay of a change, median, ms",
        "Delay: from a change to the first event that matches only the new values.",
    ),
    Metric("delay_ms_p99", "delay of a change, p99, ms", "Delay that 1 % of the changes exceed."),
    Metric(
        "latency_ms_p50",
        "latency of an event, median, ms",
        "Latency: from publishing an event to its delivery.",
    ),
    Metric(
        "spurious_per_s",
        "spurious events per second",
        "Spurious: events that a client received for values it had already changed.",
    ),
    Metric(
        "control_per_change",
        "control messages per change",
        "Control messages over all links, for each change of a subscription.",
    ),
    Metric("missed", "events missed", "Missed: deliveries that were expected and did not happen."),
    Metric(
        "busiest_share",
        "busy share",
        "Share of the time in which the busiest broker was busy; at 1 it is saturated.",
    ),
)


def axis(groups: Sequence[Group]) -> str | None:
    """The numeric parameter with most values; None if no number varies."""
    counts = {}
    for field in groups[0].parameters if groups else ():
        values = {group.parameters[field] for group in groups}
        if len(values) > 1 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            counts[field] = len(values)
    return max(counts, key=lambda field: counts[field], default=None)


def label(group: Group, without: str | None = None) -> str:
    """A short name of a group: the values of its text parameters, and name and value of the others."""
    words = [
        value if isinstance(value, str) and value else f"{field} {number(value)}"
        for field, value in group.parameters.items()
        if field != without
    ]
    return ", ".join(words) or "all"


def plots(groups: Sequence[Group]) -> dict[str, Figure]:
    """The plots of a sweep by metric; a metric that is zero or unknown in all groups has none."""
    over = axis(groups)
    figures = {}
    for metric in METRICS:
        if not any(group.metrics.get(metric.name) for group in groups):
            continue
        if over is None:
            names = [label(group) for group in groups]
            values = [group.metrics[metric.name] for group in groups]
            plot: Plot = Bars(metric.label, names, {metric.label: values})
        else:
            series: dict[str, list[tuple[float, float]]] = {}
            for group in groups:
                points = series.setdefault(label(group, over), [])
                if (value := group.metrics[metric.name]) is not None:
                    points.append((float(group.parameters[over]), value))
            positions = [point[0] for points in series.values() for point in points]
            wide = min(positions) > 0 and max(positions) / min(positions) >= 20
            plot = Curves(UNITS.get(over, over), metric.label, series, log_x=wide)
        figures[metric.name] = Figure(plot, metric.caption)
    return figures
