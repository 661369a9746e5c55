"""Figures of runs: metrics over the parameter with most values in a sweep, or bars side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from covey.sim.metrics.across import Group
from covey.sim.reports import Bars, Curves, Figure, Plot, Point, Value, number

_SERIES, _BARS = 24, 60
"""Settings in a figure at most: more cannot be told apart, and make the page large."""
UNITS = {
    "event_rate": "events per second and publisher",
    "update_rate": "changes per second and subscriber",
    "delay_ms": "delay of a link in ms",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of figures: its name in `flat`, its label, its definition, and whether less is better."""

    name: str
    label: str
    definition: str
    less: bool = True


METRICS = (
    Metric(
        "throughput_events_per_s",
        "events delivered per second",
        "Deliveries to users per second of the measured phase, over all subscribers.",
        less=False,
    ),
    Metric(
        "delay_ms_p50",
        "delay of a change, median, ms",
        "From a change of a subscription to the first event delivered that matches only the new values.",
    ),
    Metric("delay_ms_p99", "delay of a change, p99, ms", "The delay that 1 % of the changes exceed."),
    Metric(
        "latency_ms_p50",
        "latency of an event, median, ms",
        "From publishing an event to its first delivery to a subscription.",
    ),
    Metric(
        "spurious_per_s",
        "spurious events per second",
        "Events that a client received for values that it had already changed, and discarded.",
    ),
    Metric(
        "control_per_change",
        "control messages per change",
        "Messages without events, over all links, for each change of a subscription.",
    ),
    Metric("missed", "events missed", "Deliveries that were expected and did not happen."),
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
    return ", ".join(words) or group.system or "all runs"


def looks(groups: Sequence[Group]) -> dict[str, str]:
    """The system of each series, whose colour it has, where every series is of another system."""
    systems = {label(group, axis(groups)): group.system for group in groups if group.system}
    return systems if len(set(systems.values())) == len(systems) else {}


def plots(groups: Sequence[Group]) -> dict[str, Figure]:
    """The figures of a sweep by metric; a metric that is zero or unknown in all groups has none."""
    return {
        metric.name: Figure(_plot(groups, metric), _caption(groups, metric))
        for metric in METRICS
        if any(group.metrics.get(metric.name) for group in groups)
    }


def _caption(groups: Sequence[Group], metric: Metric) -> str:
    over = axis(groups)
    count = len({label(group, over) for group in groups})
    bound = _BARS if over is None else _SERIES
    left_out = f" The first {bound} of {count:,} settings; the table has all." if count > bound else ""
    return f"{metric.label.capitalize()}. {metric.definition}{left_out}"


def _plot(groups: Sequence[Group], metric: Metric) -> Plot:
    over = axis(groups)
    if over is None:
        values = [_value(group, metric.name) for group in groups[:_BARS]]
        names = [label(group) for group in groups[:_BARS]]
        return Bars(metric.label, names, {metric.label: values}, by_group=True)
    series: dict[str, list[Point]] = {}
    for group in groups:
        name = label(group, over)
        if len(series) == _SERIES and name not in series:
            continue
        points = series.setdefault(name, [])
        value = _value(group, metric.name)
        if value is not None:
            rest = value if isinstance(value, tuple) else (value,)
            points.append((float(group.parameters[over]), *rest))
    positions = [float(group.parameters[over]) for group in groups]
    wide = min(positions) > 0 and max(positions) / min(positions) >= 20
    return Curves(UNITS.get(over, over), metric.label, series, log_x=wide)


def _value(group: Group, metric: str) -> Value:
    mean, interval = group.metrics[metric], group.intervals[metric]
    return mean if mean is None or interval is None else (mean, *interval)
