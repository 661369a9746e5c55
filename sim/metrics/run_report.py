"""The page of runs: metrics over the parameter with most values in a sweep, or bars side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from covey.sim.metrics.across import Group, flat, parameters, varied
from covey.sim.reports import (
    ESTIMATED,
    Bars,
    Curves,
    Figure,
    Origin,
    Plot,
    Point,
    Report,
    Section,
    Table,
    Tile,
    Value,
    number,
)
from covey.sim.scenario.scenario import FREE

_SERIES, _BARS = 24, 60
"""Maximum settings in a figure of curves and of bars: more cannot be told apart."""
UNITS = {
    "event_rate": "events per second and publisher",
    "update_rate": "changes per second and subscriber",
    "delay_ms": "delay of a link in ms",
}


@dataclass(frozen=True, slots=True)
class Metric:
    """`name` is that in `flat`; `less` means that less is better."""

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
    """The values of text parameters, and names and values of the others."""
    words = [
        value if isinstance(value, str) and value else f"{field} {number(value)}"
        for field, value in group.parameters.items()
        if field != without
    ]
    return ", ".join(words) or group.system or "all runs"


def looks(groups: Sequence[Group]) -> dict[str, str]:
    """The system of each series, which gives it its colour; empty unless each series has another system."""
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


_COMPARED = ("throughput_events_per_s", "delay_ms_p50", "control_per_change")
_SATURATED, _SAME = 0.9, 0.05
"""Busy share from which a broker is saturated; relative difference below which values are the same."""


def conclusion(summaries: Sequence[Mapping[str, Any]], groups: Sequence[Group]) -> list[str]:
    """Correctness first; then the settings compared, or the numbers of a single one; then the load."""
    sentences = [_correctness(summaries)]
    sentences += _compared(groups) if len(groups) > 1 else _single(summaries, groups[0])
    busiest = max(summaries, key=lambda each: each["busiest_share"] or 0.0)
    if share := busiest["busiest_share"]:
        where = f" in run {busiest['run']}" if len(summaries) > 1 else ""
        state = "it is saturated, and rates are bounded by it" if share >= _SATURATED else "it has reserves"
        sentences.append(f"The busiest broker is busy {share:.0%} of the time{where}: {state}.")
    return sentences


def _correctness(summaries: Sequence[Mapping[str, Any]]) -> str:
    missed, lost, duplicate = (_total(summaries, name) for name in ("missed", "lost", "duplicate"))
    expected, excused = _total(summaries, "expected"), _total(summaries, "excused")
    sums = f"{expected:,} expected deliveries" + (f", {excused:,} of them excused" if excused else "")
    runs = f"{len(summaries):,} runs" if len(summaries) > 1 else "the run"
    incomplete = sum(not summary["complete"] for summary in summaries)
    unknown = f"; {incomplete:,} incomplete, whose missed deliveries are unknown" if incomplete else ""
    if missed or duplicate:
        with_faults = sum(bool(summary["missed"] or summary["duplicate"]) for summary in summaries)
        where = f" in {with_faults:,} of {runs}" if len(summaries) > 1 else ""
        changes = f", {lost:,} of them where a change may lose events" if lost else ""
        return (
            f"Of {expected:,} expected deliveries {missed:,} were missed{changes}, and {duplicate:,} "
            f"happened twice{where}{unknown}."
        )
    if incomplete == len(summaries):
        ends = "none of which has ended" if incomplete > 1 else "which has not ended"
        where = f"{runs}, {ends}"
        return f"How many events were missed in {where}, is unknown ({sums}); none was delivered twice."
    return f"No event was missed or delivered twice in {runs} ({sums}{unknown})."


def _total(summaries: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(summary[name] or 0 for summary in summaries)


def _single(summaries: Sequence[Mapping[str, Any]], group: Group) -> list[str]:
    values = group.metrics
    first = summaries[0]
    sentences = []
    if (rate := values["throughput_events_per_s"]) is not None:
        published = _total(summaries, "published")
        sentences.append(
            f"{published:,} events were published, and {number(rate)} per second delivered to "
            f"{first['subscribers']:,} subscribers."
        )
    if (median := values["delay_ms_p50"]) is not None:
        sentences.append(
            f"A change shows in deliveries after {number(median)} ms in the median and "
            f"{number(values['delay_ms_p99'])} ms at p99; an event takes "
            f"{number(values['latency_ms_p50'])} ms in the median."
        )
    if (control := values["control_per_change"]) is not None:
        sentences.append(
            f"A change costs {number(control)} control messages over all links; "
            f"{number(values['spurious_per_s'] or 0.0)} spurious events per second reached clients."
        )
    return sentences


def _compared(groups: Sequence[Group]) -> list[str]:
    """For each of `_COMPARED` the best and the worst setting, at the end of the axis."""
    over = axis(groups)
    shown, at = groups, ""
    if over is not None:
        end = max(float(group.parameters[over]) for group in groups)
        shown = [group for group in groups if float(group.parameters[over]) == end]
        at = f"At {over} {number(end)}, "
    by_name = {metric.name: metric for metric in METRICS}
    if len(shown) < 2:
        return _trends(groups, over) if over else []
    same, differing = [], []
    for metric in (by_name[name] for name in _COMPARED):
        known = [(value, group) for group in shown if (value := group.metrics[metric.name]) is not None]
        known.sort(key=lambda each: each[0], reverse=not metric.less)
        if len(known) < 2:
            continue
        (best, first), (worst, last) = known[0], known[-1]
        if abs(best - worst) <= _SAME * max(abs(best), abs(worst)):
            same.append(f"{metric.label} ({number(best)})")
            continue
        differing.append(
            _sentence(
                f"{at}{metric.label}: {label(first, over)} is best with {number(best)}, "
                f"{label(last, over)} last with {number(worst)}{_factor(first, last, metric.name)}"
            )
        )
    if same:
        differing.append(_sentence(f"{at}all settings have the same {'; '.join(same)}"))
    return differing


def _factor(first: Group, last: Group, metric: str) -> str:
    best, worst = first.metrics[metric] or 0.0, last.metrics[metric] or 0.0
    if min(best, worst) <= 0:
        return ""
    clear = "" if _apart(first, last, metric) else "; their whiskers overlap"
    return f" ({max(best, worst) / min(best, worst):.2g} times{clear})"


def _apart(first: Group, second: Group, metric: str) -> bool:
    a, b = first.intervals[metric], second.intervals[metric]
    return a is None or b is None or a[1] < b[0] or b[1] < a[0]


def _trends(groups: Sequence[Group], over: str) -> list[str]:
    ordered = sorted(groups, key=lambda group: float(group.parameters[over]))
    first, last = ordered[0], ordered[-1]
    sentences = []
    for metric in METRICS[:2]:
        old, new = first.metrics[metric.name], last.metrics[metric.name]
        if old and new:
            begin, end = number(first.parameters[over]), number(last.parameters[over])
            sentences.append(f"From {over} {begin} to {end}, {metric.label} {_change(new / old)}.")
    return sentences


def _change(ratio: float) -> str:
    if 1 - _SAME < ratio < 1 + _SAME:
        return "stay the same"
    return f"grow {ratio:.2g} times" if ratio > 1 else f"fall to {ratio:.0%}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


_BROKERS = 15
_CHOICES = 12
_COLUMNS = (
    ("events/s", "throughput_events_per_s"),
    ("delay p50 ms", "delay_ms_p50"),
    ("delay p99 ms", "delay_ms_p99"),
    ("latency p50 ms", "latency_ms_p50"),
    ("spurious/s", "spurious_per_s"),
    ("missed", "missed"),
    ("duplicate", "duplicate"),
    ("control per change", "control_per_change"),
    ("busiest broker", "busiest_share"),
)


def run_rows(summaries: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    values = parameters(summaries)
    seeds = "seed" in varied(summaries)
    fields = [*(values[0] if values else ()), *(["seed"] if seeds else [])]
    rows = []
    for summary, value in zip(summaries, values, strict=True):
        metrics = flat(summary)
        if seeds:
            value = value | {"seed": summary["scenario"].get("seed")}
        name = summary["run"] if summary["complete"] else f"{summary['run']} (incomplete)"
        rows.append([name, *value.values(), *(metrics[key] for _, key in _COLUMNS)])
    return ["run", *fields, *(title for title, _ in _COLUMNS)], rows


def group_rows(groups: Sequence[Group]) -> tuple[list[str], list[list[Any]]]:
    fields = list(groups[0].parameters) if groups else []
    rows = [
        [
            *(group.parameters[field] for field in fields),
            group.runs,
            *(group.metrics[key] for _, key in _COLUMNS),
        ]
        for group in groups
    ]
    return [*fields, "runs", *(title for title, _ in _COLUMNS)], rows


def report_of(
    summaries: Sequence[Mapping[str, Any]], groups: Sequence[Group], broken: Mapping[str, str] | None = None
) -> Report:
    """`groups` are from `compare`; `broken` has a reason for each trace that could not be read."""
    return Report(
        _title(summaries),
        conclusion(summaries, groups),
        _origin(summaries, groups),
        [_metrics(groups), _load(summaries), _runs(summaries, groups)],
        tiles=_tiles(summaries),
        notes=_notes(summaries, broken or {}),
        definitions=_definitions(),
        looks=looks(groups),
    )


def _title(summaries: Sequence[Mapping[str, Any]]) -> str:
    loads = dict.fromkeys(str(summary["scenario"].get("load", "events")) for summary in summaries)
    runs = f"{len(summaries)} runs" if len(summaries) > 1 else f"Run {summaries[0]['run']}"
    return f"{runs}: {', '.join(loads)}"


def _origin(summaries: Sequence[Mapping[str, Any]], groups: Sequence[Group]) -> Origin:
    scenario, differing = summaries[0]["scenario"], varied(summaries)
    same = {field: value for field, value in scenario.items() if field not in (*differing, "name", "seed")}
    seeds = sorted({summary["scenario"]["seed"] for summary in summaries if "seed" in summary["scenario"]})
    runs = f"{len(summaries):,} run{'s' if len(summaries) > 1 else ''}"
    size = f"{runs} of {len(groups):,} settings" if 1 < len(groups) < len(summaries) else runs
    for field in ("brokers", "publishers", "subscribers"):
        if field in same:
            size += f", {same[field]:,} {field}"
    if "duration_s" in same:
        size += f", {same['duration_s']:g} s measured in each"
    return Origin(size, seeds, {field: value for field, value in same.items() if value != ""})


def _notes(summaries: Sequence[Mapping[str, Any]], broken: Mapping[str, str]) -> list[str]:
    fields = list(parameters(summaries)[0])
    notes = []
    if fields:
        notes.append(f"The runs differ in {', '.join(f'`{field}`' for field in fields)}.")
        notes += _choices(summaries, fields)
    if all(each["scenario"].get("cpu") == "free" and not each["busiest_share"] for each in summaries):
        notes.append(FREE)
    steps = sum(summary["clock_steps"] for summary in summaries)
    if steps:
        notes.append(f"The clock was set back {steps} times; durations across a step are too short.")
    incomplete = [summary["run"] for summary in summaries if not summary["complete"]]
    if incomplete:
        notes.append(f"Incomplete: {', '.join(incomplete)}. Their missed deliveries are unknown.")
    return notes + [f"Skipped: {reason}" for reason in broken.values()]


def _choices(summaries: Sequence[Mapping[str, Any]], dimensions: Sequence[str]) -> list[str]:
    sentences = []
    for dimension in dimensions:
        fields: dict[str, Mapping[str, Any]] = {}
        for summary in summaries:
            if choice := summary.get("choices", {}).get(dimension):
                fields[choice["name"]] = choice["fields"]
        meanings = [
            f"{name} is {', '.join(f'{field} {number(value)}' for field, value in values.items())}"
            for name, values in fields.items()
        ]
        if meanings:
            more = "; and others" if len(meanings) > _CHOICES else ""
            sentences.append(f"Of `{dimension}`, {'; '.join(meanings[:_CHOICES])}{more}.")
    return sentences


def _tiles(summaries: Sequence[Mapping[str, Any]]) -> list[Tile]:
    def total(name: str) -> int:
        return sum(summary[name] or 0 for summary in summaries)

    missed, twice = total("missed"), total("duplicate")
    return [
        Tile("events published", total("published")),
        Tile("delivered", total("delivered")),
        Tile("changes of subscriptions", total("changes")),
        Tile("missed", missed, good=missed == 0),
        Tile("delivered twice", twice, good=twice == 0),
        Tile("spurious", total("spurious")),
    ]


def _metrics(groups: Sequence[Group]) -> Section:
    over = axis(groups)
    text = []
    if over is not None:
        text.append(f"Each point is the mean over the runs of one setting. The horizontal axis is `{over}`.")
    if any(group.runs > 1 for group in groups):
        text.append(_whiskers(groups))
    if not any(group.metrics.get("missed") for group in groups):
        text.append("No event was missed in any run, so there is no figure of missed events.")
    return Section("Metrics", text, list(plots(groups).values()))


def _whiskers(groups: Sequence[Group]) -> str:
    estimated = "95 % intervals of the mean over the seeds, by Student's distribution, cut at zero"
    spans = f"the least and the greatest value: an interval takes {ESTIMATED} seeds"
    few = [group for group in groups if group.runs < ESTIMATED]
    if not few:
        return f"Whiskers are {estimated}."
    if len(few) == len(groups):
        return f"Whiskers are {spans}."
    return f"Whiskers are {estimated}; of settings with fewer than {ESTIMATED} runs, {spans}."


def _load(summaries: Sequence[Mapping[str, Any]]) -> Section:
    run = max(summaries, key=lambda each: (each["busiest_share"] or 0.0, each["control_messages"]))
    brokers = sorted(
        run["brokers"].items(), key=lambda item: (-item[1]["events"] - item[1]["control_messages"], item[0])
    )
    shown = brokers[:_BROKERS]
    figures, tables = [], []
    if shown:
        series = {
            "events": [float(load["events"]) for _, load in shown],
            "control messages": [float(load["control_messages"]) for _, load in shown],
        }
        plot = Bars("messages that arrived", [name for name, _ in shown], series)
        figures.append(Figure(plot, "Messages received by the most loaded brokers."))
    if run["control_by_kind"]:
        rows = sorted(run["control_by_kind"].items(), key=lambda item: -item[1])
        tables.append(Table(["control message", "number"], rows))
    text = [
        f"Run {run['run']}: {run['control_messages']:,} control messages, "
        f"{run['control_between_brokers']:,} of them between brokers, at most "
        f"{run['control_busiest_link']:,} in one direction of a link."
    ]
    if run["busiest_share"]:
        text.append(f"The busiest broker was busy {run['busiest_share']:.1%} of the time.")
    return Section("Load of brokers", text, figures, tables)


def _runs(summaries: Sequence[Mapping[str, Any]], groups: Sequence[Group]) -> Section:
    tables = []
    if 1 < len(groups) < len(summaries):
        tables.append(Table(*group_rows(groups), caption="Settings: means over their runs"))
    tables.append(Table(*run_rows(summaries), caption="Runs"))
    return Section("Tables", tables=tables)


def _definitions() -> list[tuple[str, str]]:
    return [
        *((metric.label, metric.definition) for metric in METRICS),
        ("measured phase", "From when all subscriptions are in effect to when clients stop publishing."),
        ("percentile", "One of the measured values, by the nearest rank."),
    ]
