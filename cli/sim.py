"""`covey sim`: whole overlays in virtual time."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from covey.sim.fuzz import Options, Outcome

sim = typer.Typer(no_args_is_help=True, help="Run whole overlays in virtual time, judged by checkers.")

_SHOWN = 5


@sim.callback()
def group() -> None:
    """Run whole overlays in virtual time, judged by independent checkers.

    Example: covey sim fuzz --seeds 1000
    """


@sim.command("fuzz")
def fuzz_command(
    seeds: Annotated[int, typer.Option(min=1, help="How many histories, one for each seed.")] = 100,
    first: Annotated[int, typer.Option(min=0, help="The first seed.")] = 0,
    seed: Annotated[
        int | None,
        typer.Option(min=0, help="Play this one history again, and show all that is wrong with it."),
    ] = None,
    routing: Annotated[str, typer.Option(help="parametric or static.")] = "parametric",
    resubscribe: Annotated[
        str, typer.Option(help="Under static routing: new-first or old-first.")
    ] = "new-first",
    engine: Annotated[str, typer.Option(help="The matching engine of brokers and clients.")] = "naive",
    steps: Annotated[int, typer.Option(min=1, help="Steps of a history.")] = 60,
    crashes: Annotated[bool, typer.Option(help="Whether brokers crash.")] = True,
    operators: Annotated[
        bool, typer.Option(help="Filters with or, !=, prefix and the like as well.")
    ] = False,
    defect: Annotated[
        str | None,
        typer.Option(help="Make brokers wrong: drop-update, keep-slot, swap-order or echo-event."),
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0 for one per core.")] = 0,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON, for programs.")
    ] = False,
) -> None:
    """Play random histories and have checkers judge them; end with 1 if anything is wrong.

    Clients come, go, vanish and move, advertise, subscribe, update and publish over wires that delay, lose
    and break, through brokers that crash. The checkers know every event and change, and nothing of routing. A
    history that fails is shown with the command that plays it again. With --defect the brokers are wrong on
    purpose, which the checkers must find.

    Example: covey sim fuzz --seeds 1000 --routing static
    """
    from covey.sim.fuzz import Options, fuzz, play

    options = Options(
        routing=routing,
        resubscribe=resubscribe.replace("-", "_"),
        engine=engine,
        steps=steps,
        crashes=crashes,
        operators=operators,
        defect=defect,
    )
    if seed is not None:
        outcomes = [play(seed, options)]
    else:
        processes = jobs or os.cpu_count() or 1
        outcomes = _watched(fuzz(range(first, first + seeds), options, jobs=processes), seeds)
    failed = [outcome for outcome in outcomes if outcome.failed]
    if json_output:
        print(json.dumps(_as_json(outcomes, failed, options), indent=2))
    else:
        for outcome in failed[:_SHOWN]:
            print(f"seed {outcome.seed}: replay with {options.command(outcome.seed)}")
            shown = outcome.findings if seed is not None else outcome.findings[:2]
            for finding in shown:
                print(f"  {finding}")
            if outcome.error:
                print(f"  {outcome.error}")
        if len(failed) > _SHOWN:
            print(f"and {len(failed) - _SHOWN} more: {', '.join(str(o.seed) for o in failed[_SHOWN:25])}")
        print(
            f"{len(outcomes)} histories, {sum(o.steps for o in outcomes):,} steps, "
            f"{sum(o.owed for o in outcomes):,} events owed, "
            f"{sum(o.delivered for o in outcomes):,} delivered: "
            + (f"{len(failed)} failed" if failed else "no violation")
        )
    raise typer.Exit(1 if failed else 0)


def _watched(outcomes: Any, count: int) -> list[Outcome]:
    """All outcomes, with a progress bar where a person looks on."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    if not sys.stderr.isatty():
        return list(outcomes)
    return list(track(outcomes, "playing", total=count, console=console, transient=True))


def _as_json(outcomes: list[Outcome], failed: list[Outcome], options: Options) -> dict[str, Any]:
    return {
        "histories": len(outcomes),
        "steps": sum(outcome.steps for outcome in outcomes),
        "owed": sum(outcome.owed for outcome in outcomes),
        "delivered": sum(outcome.delivered for outcome in outcomes),
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
