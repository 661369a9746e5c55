"""Findings of `jayaram.py`: one per figure, and the processor time per message."""

from __future__ import annotations

from collections.abc import Sequence

from covey.sim.experiments.papers.jayaram_runs import (
    LABELS,
    METRICS,
    PARAMETRIC,
    STATIC,
    ExperimentResult,
    Ratio,
)
from covey.sim.experiments.papers.report import Cell, PaperFinding, Verdict
from covey.sim.reports import Bars, Curves

_MATCHERS = {"siena": "the poset matches, as in Siena", "rete": "a Rete engine matches, as in EventJava"}
_GAINS = {"throughput": "higher", "delay": "lower", "spurious": "fewer"}
_KINDS = ("Publish", "Subscribe", "Unsubscribe", "Update", "Acknowledge")


def table_1(results: Sequence[ExperimentResult]) -> PaperFinding:
    """All factors in one table."""
    ratios = [ratio for result in results for ratio in result.ratios]
    rows: list[dict[str, Cell]] = [
        {
            "load": ratio.experiment.upper(),
            "matcher": ratio.system,
            "gain": f"{ratio.metric}, times {_GAINS[ratio.metric]}",
            "figure": ratio.figure,
            "paper up to": ratio.claim,
            "here up to": ratio.factor,
            "at updates/s": ratio.rate,
        }
        for ratio in ratios
    ]
    verdicts = [Verdict.of_factor(ratio.factor, ratio.claim) for ratio in ratios]
    reached, smaller = (verdicts.count(each) for each in (Verdict.REACHED, Verdict.SMALLER))
    return PaperFinding(
        "Table 1",
        "what parametric subscriptions gain over re-subscription",
        "With the poset as matcher up to 8 and 4.4 times the throughput (HTM, AT), a sixth and a third of "
        "the delay, a sixth of the spurious events; less with an engine of its own.",
        f"{reached} of {len(ratios)} factors are reached to at least 90 %, {smaller} have the direction and "
        "are smaller; each has an explanation at its figure.",
        Verdict.of(reached == len(ratios), reached + smaller == len(ratios)),
        rows,
        Bars(
            "times better with updates",
            [f"{ratio.experiment.upper()} {ratio.system}, {ratio.metric}" for ratio in ratios],
            {"paper": [ratio.claim for ratio in ratios], "here": [ratio.factor for ratio in ratios]},
            dots=True,
            log=True,
        ),
    )


def figures(result: ExperimentResult) -> list[PaperFinding]:
    """The figures of one experiment, each with its claim."""
    findings = []
    for system, names in result.experiment.figures.items():
        for metric, name in zip(METRICS, names, strict=False):
            ratio = next(r for r in result.ratios if (r.system, r.metric) == (system, metric))
            findings.append(_figure(result, system, metric, f"Fig. {name}", ratio))
    return findings


def _figure(result: ExperimentResult, system: str, metric: str, name: str, ratio: Ratio) -> PaperFinding:
    e = result.experiment
    systems = [s for s in e.systems if s.startswith(f"{system}-")]
    if system == "rete":
        systems += [s for s in e.systems if s.startswith("covey-")]
    rows: list[dict[str, Cell]] = [
        {e.x: e.per * rate, **{s: result.value(s, rate, metric) for s in systems}} for rate in e.rates
    ]
    series = {s: result.series(metric, s) for s in systems}
    enough = all(len(points) > 1 for points in series.values())
    return PaperFinding(
        name,
        f"{e.title}: {LABELS[metric]}, where {_MATCHERS[system]}",
        f"Parametric subscriptions gain up to {ratio.claim:g} times.",
        _conclusion(result, ratio),
        Verdict.of_factor(ratio.factor if enough else None, ratio.claim),
        rows,
        Curves(e.x, LABELS[metric], series) if enough else None,
    )


def _conclusion(result: ExperimentResult, ratio: Ratio) -> str:
    if ratio.factor is None:
        return "Too few events of this kind to compare: not measured."
    e, top = result.experiment, result.experiment.rates[-1]
    pair = [f"{ratio.system}-{how}" for how in (STATIC, PARAMETRIC)]
    took = [result.ms_per_change(system, top) for system in pair]
    text = f"Up to {ratio.factor:.2f} times, at {ratio.rate:g}"
    if None not in took:
        text += (
            f". At the highest rate a change takes all brokers together {took[0]:.2f} ms as a "
            f"re-subscription and {took[1]:.2f} ms as an update; an event takes each broker "
            f"{result.us_per_event(pair[0], top):.0f} and {result.us_per_event(pair[1], top):.0f} µs"
        )
    if Verdict.of_factor(ratio.factor, ratio.claim) is not Verdict.REACHED:
        return f"{text}; changes are only a part of the total cost. {e.why}"
    return text + "."


def costs(result: ExperimentResult) -> PaperFinding:
    """Processor time per message at the highest rate, by kind."""
    e = result.experiment
    top = e.rates[-1]
    rows: list[dict[str, Cell]] = []
    for system in e.systems:
        by_kind = result.work(system, top)
        row: dict[str, Cell] = {"system": system}
        for kind in _KINDS:
            work = by_kind.get(kind)
            row[f"{kind} µs"] = (
                None
                if work is None
                else round(work["busy_ns"] / e.scenario.cpu_scale / work["messages"] / 1e3, 1)
            )
        row["changes ms each"] = result.ms_per_change(system, top)
        row["busiest broker"] = result.summaries[system, top]["busiest_share"]
        row["control per change"] = result.summaries[system, top]["control_per_change"]
        row["missed"] = result.summaries[system, top]["missed"]
        rows.append(row)
    scenario, pair = e.scenario, [f"{next(iter(e.claims))}-{how}" for how in (STATIC, PARAMETRIC)]
    took = [result.ms_per_change(system, top) or 0.0 for system in pair]
    series = {
        s: [(e.per * rate, ms) for rate in e.rates if (ms := result.ms_per_change(s, rate)) is not None]
        for s in e.systems
    }
    return PaperFinding(
        f"{e.key.upper()}, costs",
        f"{e.title}: processor time at {e.per * top:g} {e.x}",
        "A re-subscription takes a broker more time than an update.",
        f"A change takes all brokers together {took[0]:.2f} ms as a re-subscription and {took[1]:.2f} ms as "
        f"an update ({pair[0]}, {pair[1]}). Times are unscaled; the runs multiply them by "
        f"{scenario.cpu_scale:g}. {scenario.brokers} brokers, {scenario.publishers} publishers of "
        f"{scenario.event_rate:g} events/s, {scenario.subscribers} subscribers, {scenario.delay_ms:g} ms "
        "per link.",
        Verdict.of(took[0] > took[1]),
        rows,
        Curves(e.x, "processor time per change (ms)", series),
    )


def best(results: Sequence[ExperimentResult]) -> PaperFinding:
    """`covey-parametric` against the paper's systems, at the highest rate of each load."""
    rows: list[dict[str, Cell]] = []
    behind: list[str] = []
    total = 0
    for result in results:
        e, top = result.experiment, result.experiment.rates[-1]
        paper = [s for s in e.systems if not s.startswith("covey-")]
        for metric in METRICS:
            ours = result.value("covey-parametric", top, metric)
            others = [v for s in paper if (v := result.value(s, top, metric)) is not None]
            if ours is None or not others:
                continue
            total += 1
            theirs = max(others) if metric == "throughput" else min(others)
            better = ours >= theirs if metric == "throughput" else ours <= theirs
            if not better:
                behind.append(f"{e.key.upper()} {metric} ({ours:,.4g} to {theirs:,.4g})")
        for system in e.systems:
            numbers: dict[str, Cell] = {LABELS[m]: result.value(system, top, m) for m in METRICS}
            rows.append({"load": e.key.upper(), "system": system, **numbers})
    first = results[0]
    return PaperFinding(
        "Covey",
        "covey-parametric beside all systems, at the highest rate of each load",
        "Not in the paper: the forest of witnesses and the cluster engine.",
        f"Ahead of all of the paper's systems in {total - len(behind)} of {total} metrics"
        + (f"; behind the best of them in {', '.join(behind)}." if behind else "."),
        Verdict.of(not behind, len(behind) < total),
        rows,
        Curves(
            first.experiment.x,
            f"{first.experiment.key.upper()}: {LABELS['throughput']}",
            {s: first.series("throughput", s) for s in first.experiment.systems},
        ),
    )
