"""`covey sim fuzz`: random histories of overlays; `covey sim fuzz-frames`: hostile frames, packets and
filters."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli.support.options import Json, options_of, taking
from covey.sim.experiments.fuzz.options import FuzzOptions

if TYPE_CHECKING:
    from covey.sim.experiments.fuzz import HistoryOutcome

_SHOWN = 5

_LEAST = {"steps": 1, "merging_budget": 1, "damping": 0.0}


@taking("given", options_of(FuzzOptions, _LEAST))
def fuzz(
    *,
    seeds: Annotated[int, typer.Option(min=1, help="Number of histories, one per seed.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seed: Annotated[
        int | None, typer.Option(min=0, help="Run this history alone and show all of its violations.")
    ] = None,
    given: dict[str, Any],
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0 for one per core.")] = 0,
    json_output: Json = False,
) -> None:
    """Run random histories, judged by the checkers.

    Clients join, leave, vanish, move, advertise, subscribe, update and publish over wires that delay, lose
    and break, through brokers that crash. A failed history is shown with the command that replays it. With
    --defect the checkers must report violations. Exits with 1 if there is one.

    Example: covey sim fuzz --seeds 1000 --routing static
    """
    from covey.cli.support.output import print_json, progress
    from covey.sim.experiments.fuzz import play_history
    from covey.sim.experiments.processes import each

    options = FuzzOptions(**given)
    if options.routing == "static" and options.damping:
        raise typer.BadParameter("static routing has no damping", param_hint="--damping")
    if options.routing == "static" and options.merging != "off":
        raise typer.BadParameter("static routing has no merging", param_hint="--merging")
    if seed is not None:
        outcomes = [play_history(seed, options)]
    else:
        outcomes = []
        with progress() as on_progress:
            for _, future in each(partial(play_history, options=options), range(first, first + seeds), jobs):
                outcomes.append(future.result())
                on_progress("running histories", len(outcomes) / seeds)
        outcomes.sort(key=lambda outcome: outcome.seed)
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


class Input(StrEnum):
    FRAMES = "frames"
    PACKETS = "packets"
    FILTERS = "filters"


_FUZZERS = {
    Input.FRAMES: ("frames", "frames", "sending frames"),
    Input.PACKETS: ("packets", "packets", "sending packets"),
    Input.FILTERS: ("packets", "texts", "parsing filters"),
}
"""The module, the field of its result that counts the inputs, and the step for progress."""


def fuzz_frames(
    frames: Annotated[int, typer.Option(min=1, help="Frames, packets or filters to send.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the first connection.")] = 0,
    input: Annotated[
        Input, typer.Option(help="HTTP/2 frames, packets of clients with rights, or texts of filters.")
    ] = Input.FRAMES,
    json_output: Json = False,
) -> None:
    """Send random frames of hostile peers to brokers' and clients' ends of connections, without I/O.

    Each connection has a seed; frames with even ones are of brokers. Packets go to a broker's endpoint beside
    a reader and a publisher that have to go on, filters to the parser. Exits with 1 if an invariant is
    violated.

    Example: covey sim fuzz-frames --frames 1000000
    """
    from covey.cli.support.output import print_json, progress

    module, sent, doing = _FUZZERS[input]
    fuzz = getattr(import_module(f"covey.sim.experiments.fuzz.{module}"), f"fuzz_{input}")
    with progress() as on_progress:
        for result in fuzz(seed, frames):
            on_progress(doing, min(1.0, getattr(result, sent) / frames))
    violations = result.violations
    if json_output:
        print_json(asdict(result))
    else:
        for violation in violations[:_SHOWN]:
            print(violation)
        print(f"{result}; " + (f"{len(violations)} violations" if violations else "no violation"))
    raise typer.Exit(1 if violations else 0)
