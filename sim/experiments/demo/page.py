"""The page of the demonstration: the oracle's verdicts, delays and control messages of each routing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from covey.sim.experiments.demo.report import COUNTS, failed, per_change, percentile, totals
from covey.sim.experiments.demo.run import DemoOutcome
from covey.sim.reports import Bars, Curves, Figure, Origin, Report, Section, Table, Tile, number

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
    """A page of all runs; `parameters` are the options of the command."""
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
    """Whether the guarantees hold, and what each routing costs."""
    sentences = []
    if any(outcome.routing == "parametric" for outcome in outcomes):
        sentences.append(
            "Parametric routing violated its guarantees."
            if failed(outcomes)
            else "Parametric routing missed no event, repeated none, and delivered none that never matched."
        )
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
