"""`covey sim fuzz`: random histories of whole overlays."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli.support.options import Json

if TYPE_CHECKING:
    from covey.sim.experiments.fuzz import FuzzOptions, HistoryOutcome

_SHOWN = 5


def fuzz(
    context: typer.Context,
    seeds: Annotated[int, typer.Option(min=1, help="Number of histories, one per seed.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Run this history alone and show all of its violations."),
    ] = None,
    routing: Annotated[str, typer.Option(help="parametric or static.")] = "parametric",
    resubscribe: Annotated[
        str, typer.Option(help="static routing: subscribe-first or unsubscribe-first.")
    ] = "subscribe-first",
    engine: Annotated[str, typer.Option(help="Matching engine of brokers and clients.")] = "naive",
    poset: Annotated[str, typer.Option(help="forest, naive, diagram or diagram-local.")] = "forest",
    steps: Annotated[int, typer.Option(min=1, help="Steps per history.")] = 60,
    crashes: Annotated[bool, typer.Option(help="Whether brokers crash.")] = True,
    gapless: Annotated[bool, typer.Option(help="Make half of the updates gapless.")] = False,
    damping: Annotated[float, typer.Option(min=0.0, help="Damping of the brokers, in typical steps.")] = 0.0,
    motion: Annotated[bool, typer.Option(help="Give half of the bounds a rate (Motion).")] = False,
    content: Annotated[bool, typer.Option(help="Add content filters to advertisements.")] = False,
    operators: Annotated[bool, typer.Option(help="Add filters with or, !=, prefix and the like.")] = False,
    calls: Annotated[
        bool,
        typer.Option(
            help="Add filters that call named operators, which some brokers lack and which fail now and then."
        ),
    ] = False,
    dense: Annotated[
        bool, typer.Option(help="Only intervals on one attribute, so that filters often cover each other.")
    ] = False,
    widen: Annotated[bool, typer.Option(help="Widen event types on the way.")] = False,
    merging: Annotated[str, typer.Option(help="off, perfect or budget.")] = "off",
    merging_budget: Annotated[int, typer.Option(min=1, help="Slots per link and type.")] = 3,
    defect: Annotated[
        str | None,
        typer.Option(
            help="Inject a defect into the brokers: drop-update, keep-slot, swap-order, echo-event, "
            "early-acknowledge, claim-newest, no-replay, repeat-event, wrong-results (with --calls), "
            "no-last-events, no-departures, early-answer (with --views)."
        ),
    ] = None,
    service: Annotated[
        str, typer.Option(help="Order of messages at brokers: broker, fifo, control-first or two-lanes.")
    ] = "broker",
    stalls: Annotated[
        bool,
        typer.Option(
            help="Clients that stop reading or publish what they read, and brokers that stop, beside "
            "uninvolved clients that must not notice. Of the other options only --steps applies."
        ),
    ] = False,
    durable: Annotated[
        bool, typer.Option(help="Make all types durable, and two sessions in three; crash often.")
    ] = False,
    moves: Annotated[
        bool, typer.Option(help="Durable sessions that move between brokers, with --durable.")
    ] = False,
    repair: Annotated[
        bool,
        typer.Option(
            help="Links that move around brokers that die, for a time or for good, and around splits of the "
            "network."
        ),
    ] = False,
    validity: Annotated[
        bool, typer.Option(help="Subscriptions with a validity period, some of which are renewed.")
    ] = False,
    views: Annotated[
        bool, typer.Option(help="Give event types keys, and clients views beside their subscriptions.")
    ] = False,
    faults: Annotated[
        str,
        typer.Option(
            help="all, or some of crashes, power, partitions, swizzles, clogs, connections, slow, clocks, "
            "damage, full, moves, with commas between them: histories with these faults and no others."
        ),
    ] = "",
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0 for one per core.")] = 0,
    json_output: Json = False,
) -> None:
    """Run random histories, judged by the checkers.

    Clients join, leave, vanish, move, advertise, subscribe, update and publish over wires that delay, lose
    and break, through brokers that crash. A failed history is shown with the command that replays it. With
    --defect the checkers must report violations. Exits with 1 if there is one.

    Example: covey sim fuzz --seeds 1000 --routing static
    """
    from covey.cli.support.output import print_json
    from covey.cli.support.progress import progress
    from covey.sim.experiments.fuzz import FuzzOptions, play_histories, play_history

    if routing == "static" and damping:
        raise typer.BadParameter("static routing has no damping", param_hint="--damping")
    if routing == "static" and merging != "off":
        raise typer.BadParameter("static routing has no merging", param_hint="--merging")
    options = FuzzOptions(**{name: context.params[name] for name in FuzzOptions.__dataclass_fields__})
    if seed is not None:
        outcomes = [play_history(seed, options)]
    else:
        outcomes = []
        with progress() as on_progress:
            for outcome in play_histories(
                range(first, first + seeds), options, jobs=jobs or os.cpu_count() or 1
            ):
                outcomes.append(outcome)
                on_progress("running histories", len(outcomes) / seeds)
    failed = [outcome for outcome in outcomes if outcome.failed]
    if json_output:
        print_json(_as_json(outcomes, failed, options))
    else:
        _print(outcomes, failed, options, 2 if seed is None else 20)
    raise typer.Exit(1 if failed else 0)


def _print(
    outcomes: list[HistoryOutcome], failed: list[HistoryOutcome], options: FuzzOptions, findings: int
) -> None:
    for outcome in failed[:_SHOWN]:
        print(f"seed {outcome.seed}: replay with {options.command(outcome.seed)}")
        for finding in outcome.findings[:findings]:
            print(f"  {finding}")
        if outcome.error:
            print(f"  {outcome.error}")
    if len(failed) > _SHOWN:
        print(f"and {len(failed) - _SHOWN} more: {', '.join(str(o.seed) for o in failed[_SHOWN:25])}")
    print(
        f"{len(outcomes)} histories, {sum(o.steps for o in outcomes):,} steps, "
        f"{sum(o.expected for o in outcomes):,} events expected, "
        f"{sum(o.delivered for o in outcomes):,} delivered: "
        + (f"{len(failed)} failed" if failed else "no violation")
    )
    if options.faults:
        counts = _faults(outcomes).items()
        print("faults: " + ", ".join(f"{name} {count:,}" for name, count in counts))


def _faults(outcomes: list[HistoryOutcome]) -> Counter[str]:
    """How often there was each fault."""
    total = Counter[str]()
    for outcome in outcomes:
        total.update(dict(outcome.faults))
    return total


def _as_json(
    outcomes: list[HistoryOutcome], failed: list[HistoryOutcome], options: FuzzOptions
) -> dict[str, Any]:
    return {
        "histories": len(outcomes),
        "steps": sum(outcome.steps for outcome in outcomes),
        "expected": sum(outcome.expected for outcome in outcomes),
        "delivered": sum(outcome.delivered for outcome in outcomes),
        "faults": _faults(outcomes),
        "defects": sum(outcome.fired for outcome in outcomes),
        "failed": [
            {
                "seed": outcome.seed,
                "replay": options.command(outcome.seed),
                "findings": [str(finding) for finding in outcome.findings],
                "error": outcome.error,
            }
            for outcome in failed
        ],
    }
