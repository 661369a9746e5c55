"""Plots of runs: metrics over the parameter that a sweep varies most, or side by side where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from covey.sim.metrics.across import Group
from covey.sim.reports import Figure, bars, lines, number

UNITS = {
    "event_rate": "events per second and publisher",
    "update_rate": "changes per second and subscriber",
    "delay_ms": "delay of a link in ms",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric worth a plot: its name in `flat`, what it is called, and what its plot shows."""

    name: str
    words: str
    caption: str


METRICS = (
    Metric(
        "throughput_events_per_s",
        "events delivered per second",
        "Throughput: events that reached their subscribers while it was measured.",
    ),
    Metric(
        "delay_ms_p50",
        "delay of a change, median, ms",
        "Delay: from a change to the first event that only the new values want.",
    ),
    Metric("delay_ms_p99", "delay of a change, p99, ms", "Delay of the slowest of a hundred changes."),
    Metric(
        "latency_ms_p50",
        "latency of an event, median, ms",
        "Latency: from publishing an event to its delivery.",
    ),
    Metric(
        "spurious_per_s",
        "spurious events per second",
        "Spurious: events that clients got for values that they had changed by then.",
    ),
    Metric(
        "control_per_change",
        "control messages per change",
        "Control messages over all links, for each change of a subscription.",
    ),
    Metric("missed", "events missed", "Missed: events that were owed to a subscription and never came."),
    Metric(
        "busiest_share",
        "share of time at work",
        "How much of the time the busiest broker worked; at 1 it cannot keep up.",
    ),
)


def axis(groups: Sequence[Group]) -> str | None:
    """The parameter to draw metrics over: the number that takes most values; None if there is none."""
    counts = {}
    for field in groups[0].parameters if groups else ():
        values = {group.parameters[field] for group in groups}
        if len(values) > 1 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            counts[field] = len(values)
    return max(counts, key=lambda field: counts[field], default=None)


def label(group: Group, without: str | None = None) -> str:
    """What tells a setting from others, in short: the values of parameters that are text, and name and value
    of others."""
    words = [
        value if isinstance(value, str) and value else f"{field} {number(value)}"
        for field, value in group.parameters.items()
        if field != without
    ]
    return ", ".join(words) or "all"


def plots(groups: Sequence[Group]) -> dict[str, Figure]:
    """The plots of a sweep by the name of their metric; those of which there is nothing to see are left
    out: a metric that is nought or unknown everywhere."""
    over = axis(groups)
    made = {}
    for metric in METRICS:
        if not any(group.metrics.get(metric.name) for group in groups):
            continue
        if over is None:
            names = [label(group) for group in groups]
            png = bars(names, {metric.words: [g.metrics[metric.name] for g in groups]}, y=metric.words)
        else:
            series: dict[str, list[tuple[float, float | None]]] = {}
            for group in groups:
                point = (float(group.parameters[over]), group.metrics[metric.name])
                series.setdefault(label(group, over), []).append(point)
            ats = [point[0] for points in series.values() for point in points]
            wide = min(ats) > 0 and max(ats) / min(ats) >= 20
            png = lines(series, x=UNITS.get(over, over), y=metric.words, log_x=wide)
        made[metric.name] = Figure(png, metric.caption)
    return made
