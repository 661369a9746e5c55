"""The HTML report of runs: metrics, plots, broker load and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from covey.sim.metrics.across import Group
from covey.sim.metrics.flat import flat, varied
from covey.sim.metrics.run_plots import METRICS, axis, label, plots
from covey.sim.reports import Bars, Figure, Report, Section, Table, Tile

_SHOWN = 200
_BROKERS = 15
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
"""Column titles of tables, and the name of each metric in `flat`."""


def run_rows(summaries: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of the table of runs: name, parameters in which they differ, metrics."""
    fields = varied(summaries)
    rows = []
    for summary in summaries:
        metrics, scenario = flat(summary), summary["scenario"]
        name = summary["run"] if summary["complete"] else f"{summary['run']} (incomplete)"
        rows.append(
            [name, *(scenario.get(field) for field in fields), *(metrics[key] for _, key in _COLUMNS)]
        )
    return ["run", *fields, *(title for title, _ in _COLUMNS)], rows


def group_rows(groups: Sequence[Group]) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of the table of groups: parameters, number of runs, means."""
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
    """A report of runs, their groups (`compare`), and the traces that could not be read."""
    return Report(
        _title(summaries),
        [
            _curves(groups),
            _load(summaries),
            _runs(summaries, groups),
            _meaning(),
        ],
        lead=_lead(summaries, broken or {}),
        tiles=_tiles(summaries),
    )


def _title(summaries: Sequence[Mapping[str, Any]]) -> str:
    loads = dict.fromkeys(str(summary["scenario"].get("load", "events")) for summary in summaries)
    runs = f"{len(summaries)} runs" if len(summaries) > 1 else f"Run {summaries[0]['run']}"
    return f"{runs}: {', '.join(loads)}"


def _lead(summaries: Sequence[Mapping[str, Any]], broken: Mapping[str, str]) -> list[str]:
    scenario = summaries[0]["scenario"]
    fields = [field for field in varied(summaries) if field != "seed"]
    lead = []
    if scenario:
        same = [
            f"{scenario[field]:,} {field}"
            for field in ("brokers", "publishers", "subscribers")
            if field in scenario and field not in fields
        ]
        if same:
            lead.append(f"{', '.join(same)}; {scenario.get('duration_s', 0):g} s measured in each run.")
    if fields:
        lead.append(f"The runs differ in {', '.join(f'`{field}`' for field in fields)}.")
    steps = sum(summary["clock_steps"] for summary in summaries)
    if steps:
        lead.append(f"The clock was set back {steps} times; durations across a step are too short.")
    incomplete = [summary["run"] for summary in summaries if not summary["complete"]]
    if incomplete:
        lead.append(f"Incomplete: {', '.join(incomplete)}. Their missed deliveries are unknown.")
    lead += [f"Skipped: {reason}" for reason in broken.values()]
    return lead


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


def _curves(groups: Sequence[Group]) -> Section:
    over = axis(groups)
    text = []
    if over is not None:
        text.append(f"Each point is the mean over the runs of one setting. The horizontal axis is `{over}`.")
        text += _extremes(groups, over)
    return Section("Curves", text, list(plots(groups).values()))


def _extremes(groups: Sequence[Group], over: str) -> list[str]:
    """A sentence per series that compares both ends of the axis."""
    sentences = []
    series: dict[str, list[Group]] = {}
    for group in groups:
        series.setdefault(label(group, over), []).append(group)
    for name, members in series.items():
        ordered = sorted(members, key=lambda group: float(group.parameters[over]))
        first, last = ordered[0], ordered[-1]
        parts = []
        for metric in METRICS[:2]:
            old, new = first.metrics[metric.name], last.metrics[metric.name]
            if old and new and first is not last:
                parts.append(f"{metric.label} {_change(new / old)}")
        if parts:
            begin, end = first.parameters[over], last.parameters[over]
            sentences.append(f"{name}: from {over} {begin:g} to {end:g}, {'; '.join(parts)}.")
    return sentences


def _change(ratio: float) -> str:
    if 0.95 < ratio < 1.05:
        return "stays the same"
    return f"grows {ratio:.2g} times" if ratio > 1 else f"falls to {ratio:.0%}"


def _load(summaries: Sequence[Mapping[str, Any]]) -> Section:
    """The load of brokers in the busiest run."""
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
    columns, rows = run_rows(summaries[:_SHOWN])
    more = f", the first {_SHOWN} of {len(summaries)}" if len(summaries) > _SHOWN else ""
    tables.append(Table(columns, rows, caption=f"Runs{more}"))
    return Section("Tables", tables=tables)


def _meaning() -> Section:
    rows = [(metric.label, metric.caption) for metric in METRICS]
    text = ["Computed from the traces of the runs. A percentile is one of the measured values."]
    return Section("Definitions", text, tables=[Table(["metric", "definition"], rows)])
