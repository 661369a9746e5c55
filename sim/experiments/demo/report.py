"""Output of the demonstration: a live view while it runs, then a table, JSON or a page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from covey.sim.experiments.demo.run import DemoOutcome, Replay
from covey.sim.reports import Bars, Curves, Figure, Origin, Report, Section, Table, Tile, number

COUNTS = ("delivered", "missed", "duplicate", "spurious", "stray", "undecided", "excused")


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile, rounded to three decimals; None if there are no values."""
    return round(float(np.percentile(values, q)), 3) if values else None


def totals(outcome: DemoOutcome) -> dict[str, int]:
    return {name: sum(getattr(v, name) for v in outcome.verdicts.values()) for name in COUNTS}


def per_change(outcome: DemoOutcome) -> float | None:
    """Control messages received by brokers per change; None without changes."""
    changes = len(outcome.delays_ms)
    return round(sum(outcome.control_messages.values()) / changes, 2) if changes else None


def failed(outcomes: Sequence[DemoOutcome]) -> bool:
    """Whether parametric routing missed or repeated an event, or delivered one that matches no values."""
    return any(
        totals(outcome)[name]
        for outcome in outcomes
        if outcome.routing == "parametric"
        for name in ("missed", "duplicate", "stray")
    )


def as_json(outcomes: Sequence[DemoOutcome]) -> dict[str, Any]:
    return {outcome.routing: _outcome_json(outcome) for outcome in outcomes}


def _outcome_json(outcome: DemoOutcome) -> dict[str, Any]:
    result: dict[str, Any] = {
        **totals(outcome),
        "update_delay_ms": {
            "p50": percentile(outcome.delays_ms, 50),
            "p99": percentile(outcome.delays_ms, 99),
        },
        "control_messages": sum(outcome.control_messages.values()),
        "control_messages_per_broker": outcome.control_messages,
        "control_messages_per_change": per_change(outcome),
        "updates": len(outcome.delays_ms),
        "published": outcome.published,
        "seconds": round(outcome.seconds, 3),
        "subscribers": {
            name: {count: getattr(verdict, count) for count in COUNTS}
            for name, verdict in outcome.verdicts.items()
        },
    }
    if outcome.recovery is not None:
        result["recovery"] = asdict(outcome.recovery)
    return result


def summary(outcomes: Sequence[DemoOutcome]) -> RenderableType:
    table = RichTable(title="Verdict of the oracle")
    table.add_column("")
    for outcome in outcomes:
        table.add_column(outcome.routing, justify="right")
    counts = [totals(outcome) for outcome in outcomes]
    described = {
        "delivered": "delivered",
        "missed": "missed",
        "duplicate": "duplicate",
        "spurious": "spurious: matched until a change on its way",
        "stray": "stray: matched no values",
        "undecided": "crossed a change: correct either way",
    }
    for name, words in described.items():
        table.add_row(words, *(_count(count[name], bad=name in _BAD) for count in counts))
    if any(count["excused"] for count in counts):
        table.add_row("lost with the killed broker", *(f"{count['excused']:,}" for count in counts))
    table.add_section()
    table.add_row("changes of thresholds", *(f"{len(outcome.delays_ms):,}" for outcome in outcomes))
    for q in (50, 99):
        table.add_row(f"update delay p{q}", *(_milliseconds(percentile(o.delays_ms, q)) for o in outcomes))
    table.add_section()
    for broker in outcomes[0].control_messages:
        numbers = (f"{outcome.control_messages.get(broker, 0):,}" for outcome in outcomes)
        table.add_row(f"control messages to {broker}", *numbers)
    table.add_row("control messages, total", *(f"{sum(o.control_messages.values()):,}" for o in outcomes))
    quotients = (per_change(outcome) for outcome in outcomes)
    table.add_row("control messages per change", *("-" if q is None else f"{q:.1f}" for q in quotients))
    table.add_section()
    table.add_row("seconds", *(f"{outcome.seconds:.1f}" for outcome in outcomes))
    table.add_row(
        "quotes per second", *(f"{outcome.published / outcome.seconds:,.0f}" for outcome in outcomes)
    )
    return Group(table, *(Text(line) for line in _remarks(outcomes)))


_BAD = ("missed", "duplicate", "stray")


def _remarks(outcomes: Sequence[DemoOutcome]) -> list[str]:
    remarks = []
    for outcome in outcomes:
        if outcome.recovery is not None and outcome.recovery.recovered_s is not None:
            remarks.append(
                f"{outcome.routing}: {outcome.recovery.broker} was killed half-way; it served again after "
                f"{outcome.recovery.serving_s:.2f} s, and routing was restored after "
                f"{outcome.recovery.recovered_s:.2f} s."
            )
        for name, verdict in outcome.verdicts.items():
            if verdict.missed_positions:
                shown = ", ".join(map(str, verdict.missed_positions[:5]))
                more = ", ..." if len(verdict.missed_positions) > 5 else ""
                remarks.append(f"{outcome.routing}: '{name}' missed the quotes at {shown}{more}")
    return remarks + _guarantees(outcomes)


def _guarantees(outcomes: Sequence[DemoOutcome]) -> list[str]:
    if all(outcome.routing != "parametric" for outcome in outcomes):
        return []
    if failed(outcomes):
        return ["Parametric routing violated its guarantees."]
    return ["Parametric routing missed no event, repeated none, and delivered none that never matched."]


def _count(number: int, *, bad: bool) -> Text:
    return Text(f"{number:,}", style="bold red" if bad and number else "")


def _milliseconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} ms"


def live_view(replay: Replay) -> RenderableType:
    rate = replay.published / replay.seconds if replay.seconds > 0 else 0.0
    head = Text(
        f"{replay.routing} routing: {replay.published:,} of {replay.total:,} quotes, {rate:,.0f} per second"
    )
    traders = RichTable(title="subscribers", expand=True)
    for name in ("", "at", "filter", "values", "delivered", "changes", "delay p50"):
        traders.add_column(name, justify="left" if name in ("", "at", "filter", "values") else "right")
    for trader in replay.traders:
        traders.add_row(
            trader.strategy.name,
            trader.strategy.broker,
            Text(trader.strategy.filter),
            _values(trader.history.values),
            f"{len(trader.history.arrivals):,}",
            f"{len(trader.history.changes) - 1:,}",
            _milliseconds(percentile(trader.delays_ms[-200:], 50)),
        )
    brokers = RichTable(title="messages received", expand=True)
    kinds = ("Update", "Subscribe", "Unsubscribe", "Acknowledge")
    for name in ("", *(f"{kind}s" for kind in kinds), "events"):
        brokers.add_column(name, justify="right" if name else "left")
    for name, core in sorted(replay.brokers.items()):
        received = core["totals"]["received"]
        numbers = [f"{received.get(kind, 0):,}" for kind in kinds]
        brokers.add_row(name, *numbers, f"{core['totals']['events_received']:,}")
    lines: list[RenderableType] = [head, traders, brokers]
    if replay.recovery is not None:
        back = replay.recovery.recovered_s
        state = "is being restarted" if back is None else f"was killed; routing restored after {back:.2f} s"
        lines.append(Text(f"{replay.recovery.broker} {state}"))
    return Group(*lines)


def _values(values: Mapping[str, float]) -> str:
    return ", ".join(f"{name} = {value:,.10g}" for name, value in values.items())


async def show(replay: Replay, console: Console) -> None:
    """Display a run until cancelled: live on a terminal, else a line every two seconds."""
    if console.is_terminal:
        with Live(live_view(replay), console=console, auto_refresh=False) as live:
            try:
                while True:
                    await asyncio.sleep(0.2)
                    live.update(live_view(replay), refresh=True)
            finally:
                live.update(live_view(replay), refresh=True)
    while True:
        await asyncio.sleep(2.0)
        delivered = sum(len(trader.history.arrivals) for trader in replay.traders)
        changes = sum(len(trader.history.changes) - 1 for trader in replay.traders)
        console.print(
            f"{replay.routing}: {replay.published:,} of {replay.total:,} quotes published, "
            f"{delivered:,} delivered, thresholds changed {changes:,} times",
            highlight=False,
            soft_wrap=True,
        )


_PERCENTILES = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)
_DEFINITIONS = (
    ("missed", "A quote that matches a trader's filter throughout and was not delivered."),
    ("duplicate", "A quote that was delivered again."),
    ("spurious", "A delivered quote that matched older values of the thresholds."),
    ("stray", "A delivered quote that matched no values that the trader ever had."),
    ("undecided", "A quote that crossed a change: delivered or not, both are correct."),
    ("update delay", "From a change of thresholds until all affected brokers have applied it."),
    ("control messages", "Messages without quotes that brokers received."),
)


def page(outcomes: Sequence[DemoOutcome], parameters: Mapping[str, object]) -> Report:
    """`parameters` are the options of the command."""
    published = outcomes[0].published
    return Report(
        "The demonstration: real quotes, thresholds that move",
        conclusion(outcomes),
        Origin(f"{published:,} quotes, 5 brokers, 3 subscribers", (), parameters),
        [_deliveries(outcomes), _delays(outcomes), _control(outcomes)],
        [
            Tile(f"{name}, {outcome.routing}", count, good=count == 0)
            for outcome in outcomes
            for name in ("missed", "duplicate", "stray")
            for count in [totals(outcome)[name]]
        ],
        definitions=_DEFINITIONS,
    )


def conclusion(outcomes: Sequence[DemoOutcome]) -> list[str]:
    sentences = _guarantees(outcomes)
    for outcome in outcomes:
        counts, delay = totals(outcome), percentile(outcome.delays_ms, 50)
        sentences.append(
            f"{outcome.routing.capitalize()} routing delivered {counts['delivered']:,} quotes, missed "
            f"{counts['missed']:,} and delivered {counts['spurious']:,} spurious ones; "
            f"{len(outcome.delays_ms):,} changes took {number(delay)} ms in the median and "
            f"{number(per_change(outcome))} control messages each."
        )
        if outcome.recovery is not None and outcome.recovery.recovered_s is not None:
            sentences.append(
                f"{outcome.recovery.broker} was killed half-way; routing was restored after "
                f"{outcome.recovery.recovered_s:.2f} s."
            )
    return sentences


def _deliveries(outcomes: Sequence[DemoOutcome]) -> Section:
    rows = [
        [name, outcome.routing, *(getattr(verdict, count) for count in COUNTS)]
        for outcome in outcomes
        for name, verdict in outcome.verdicts.items()
    ]
    return Section("Deliveries by subscriber", tables=[Table(["subscriber", "routing", *COUNTS], rows)])


def _delays(outcomes: Sequence[DemoOutcome]) -> Section:
    series = {
        outcome.routing: [
            (q, value) for q in _PERCENTILES if (value := percentile(outcome.delays_ms, q)) is not None
        ]
        for outcome in outcomes
    }
    plot = Curves("percentile of the changes", "update delay, ms", series, log_y=True)
    return Section("Update delay", figures=[Figure(plot, "Update delay by percentile.")])


def _control(outcomes: Sequence[DemoOutcome]) -> Section:
    brokers = list(outcomes[0].control_messages)
    series = {
        outcome.routing: [float(outcome.control_messages.get(broker, 0)) for broker in brokers]
        for outcome in outcomes
    }
    plot = Bars("control messages received", brokers, series)
    return Section("Control messages", figures=[Figure(plot, "Control messages that each broker received.")])
