"""The page of runs: what follows from them, metrics, load of brokers, and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from covey.sim.metrics.across import Group, parameters
from covey.sim.metrics.flat import flat, varied
from covey.sim.metrics.run_conclusion import conclusion
from covey.sim.metrics.run_plots import METRICS, axis, looks, plots
from covey.sim.reports import ESTIMATED, Bars, Figure, Origin, Report, Section, Table, Tile, number
from covey.sim.scenario.systems import FREE

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
"""Column titles of tables, and the name of each metric in `flat`."""


def run_rows(summaries: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[Any]]]:
    """Columns and rows of the table of runs: name, parameters in which they differ, metrics."""
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
    """What the named choices of a sweep set, a sentence per dimension."""
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
    """What the whiskers are."""
    estimated = "95 % intervals of the mean over the seeds, by Student's distribution, cut at zero"
    spans = f"the least and the greatest value: an interval takes {ESTIMATED} seeds"
    few = [group for group in groups if group.runs < ESTIMATED]
    if not few:
        return f"Whiskers are {estimated}."
    if len(few) == len(groups):
        return f"Whiskers are {spans}."
    return f"Whiskers are {estimated}; of settings with fewer than {ESTIMATED} runs, {spans}."


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
    tables.append(Table(*run_rows(summaries), caption="Runs"))
    return Section("Tables", tables=tables)


def _definitions() -> list[tuple[str, str]]:
    return [
        *((metric.label, metric.definition) for metric in METRICS),
        ("measured phase", "From when all subscriptions are in effect to when clients stop publishing."),
        ("percentile", "One of the measured values, by the nearest rank."),
    ]
