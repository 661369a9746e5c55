"""What follows from the metrics of runs, in three to five sentences, by plain rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from covey.sim.metrics.across import Group
from covey.sim.metrics.run_plots import METRICS, axis, label
from covey.sim.reports import number

_COMPARED = ("throughput_events_per_s", "delay_ms_p50", "control_per_change")
_SATURATED, _SAME = 0.9, 0.05
"""The busy share from which on a broker is saturated, and the difference below which values are the same."""


def conclusion(summaries: Sequence[Mapping[str, Any]], groups: Sequence[Group]) -> list[str]:
    """Correctness first; then the settings compared, or the figures of a single one; then the load."""
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
    """Rates, delay and cost of one setting."""
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
    """For each of `_COMPARED` the best setting and the worst, at the end of the axis."""
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
    """What the only series does from one end of the axis to the other."""
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
