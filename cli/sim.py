"""`covey sim`: whole overlays in virtual time."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli.support.options import Json

if TYPE_CHECKING:
    from covey.sim.experiments.driver import Report
    from covey.sim.experiments.fuzz import Options, Outcome

sim = typer.Typer(help="Run whole overlays in virtual time, judged by checkers.")

_SHOWN = 5
_ONLY_WITH = {
    "types": ("load", ("trading", "market")),
    "speeds": ("load", ("detectors",)),
    "sensors": ("load", ("detectors",)),
    "resubscribe": ("routing", ("static",)),
}
"""Options that only some values of another field make use of."""


@sim.callback(invoke_without_command=True)
def run(
    context: typer.Context,
    scenario: Annotated[
        Path | None, typer.Option(help="A scenario file (YAML); what is given here goes before it.")
    ] = None,
    overlay: Annotated[
        Path | None,
        typer.Option(help="An overlay file to run: its brokers and links, with the delays that it names."),
    ] = None,
    load: Annotated[
        str | None,
        typer.Option(help="trading (AT), market (AT with one type), highway (HTM), quotes or detectors."),
    ] = None,
    topology: Annotated[
        str | None, typer.Option(help="A kind of `covey topology make`; the load's own if not given.")
    ] = None,
    brokers: Annotated[
        int | None, typer.Option(help="How many brokers; an overlay file and sensors have theirs.")
    ] = None,
    publishers: Annotated[int | None, typer.Option(help="How many publishers.")] = None,
    subscribers: Annotated[int | None, typer.Option(help="How many subscribers.")] = None,
    speeds: Annotated[
        str | None, typer.Option(help="detectors: a CSV file of speeds, a column for each detector.")
    ] = None,
    sensors: Annotated[
        str | None,
        typer.Option(help="detectors: a CSV file of their places (sensor_id, latitude, longitude)."),
    ] = None,
    types: Annotated[int | None, typer.Option(help="trading: how many event types.")] = None,
    duration_s: Annotated[float | None, typer.Option("--duration", help="Seconds of virtual time.")] = None,
    event_rate: Annotated[float | None, typer.Option(help="Events per second and publisher.")] = None,
    batch: Annotated[int | None, typer.Option(help="Events that are published together.")] = None,
    update_rate: Annotated[float | None, typer.Option(help="Updates per second and subscriber.")] = None,
    delay_ms: Annotated[
        float | None,
        typer.Option(
            help="Delay of a link, one way; beside an overlay file, of the clients' links alone, in place of "
            "its client_delay_ms."
        ),
    ] = None,
    jitter_ms: Annotated[float | None, typer.Option(help="Further delay, up to so much, at random.")] = None,
    loss: Annotated[float | None, typer.Option(help="Probability that a frame has to be sent again.")] = None,
    crashes: Annotated[int | None, typer.Option(help="How many brokers crash, for 0.2 s each.")] = None,
    parts: Annotated[int | None, typer.Option(help="How many links part, for 0.5 s each.")] = None,
    routing: Annotated[str | None, typer.Option(help="parametric or static.")] = None,
    resubscribe: Annotated[
        str | None, typer.Option(help="Under static routing: subscribe-first or unsubscribe-first.")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="The matching engine of brokers and clients; poset to walk the poset.")
    ] = None,
    poset: Annotated[str | None, typer.Option(help="forest, naive or diagram.")] = None,
    system: Annotated[
        str | None,
        typer.Option(
            help="A system to compare, such as siena-parametric: engine, poset, routing and order at once."
        ),
    ] = None,
    cpu: Annotated[
        str | None, typer.Option(help="What messages cost brokers: free, measured, or a calibration file.")
    ] = None,
    calibrate: Annotated[
        Path | None, typer.Option(help="With --cpu measured: the calibration file to write.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Everything random is drawn from it.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Trace to write: a folder of Parquet files.")] = None,
    json_output: Json = False,
) -> None:
    """Run whole overlays in virtual time, judged by independent checkers.

    Without a subcommand, runs a scenario: the AT benchmark of the paper, changed by a scenario file and the
    options. Brokers, clients and links are the ones that run over gRPC; what is simulated is time, the wires,
    and what befalls them. The same seed gives the same run and the same trace, byte for byte, unless real
    time is charged (--cpu measured). Ends with 1 if a checker found something wrong.

    Example: covey sim --brokers 1000 --subscribers 100000 --publishers 100 --seed 7
    """
    if context.invoked_subcommand is not None:
        early = [option.opts[0] for option in context.command.params if _is_given(context, option.name)]
        if early:
            raise typer.BadParameter(
                f"expected behind {context.invoked_subcommand}, which has options of its own",
                param_hint=", ".join(early),
            )
        return
    from covey.cli.support.progress import progress
    from covey.overlay.node.config import load_overlay
    from covey.sim.experiments.driver import Run
    from covey.sim.scenario.scenario import Scenario, load_scenario
    from covey.sim.scenario.systems import find_system
    from covey.sim.simulator import Measured
    from covey.sim.simulator.costs import fit
    from covey.sim.topology import of_overlay

    if overlay is not None and topology is not None:
        raise typer.BadParameter("the overlay file has its own links", param_hint="--topology")
    if overlay is not None and brokers is not None:
        raise typer.BadParameter("the overlay file has its own brokers", param_hint="--brokers")
    laid = None if overlay is None else load_overlay(overlay, {})
    base = Scenario() if laid is None else Scenario(delay_ms=laid.client_delay_ms)
    chosen = base if scenario is None else load_scenario(scenario, base)
    if system is not None:
        chosen = find_system(system).applied_to(chosen)
    options = {name: context.params.get(name) for name in Scenario.__dataclass_fields__}
    changes = {name: value for name, value in options.items() if value is not None}
    chosen = chosen.having(**changes)
    if brokers is not None and chosen.load == "detectors" and not chosen.topology:
        raise typer.BadParameter(
            "load detectors has the brokers of its sensors, unless a topology is given",
            param_hint="--brokers",
        )
    for name, (field, values) in _ONLY_WITH.items():
        if _is_given(context, name) and getattr(chosen, field) not in values:
            wanted = " or ".join(values)
            raise typer.BadParameter(
                f"{field} is {getattr(chosen, field)}, which has none: expected {field} {wanted}",
                param_hint=f"--{name}",
            )
    if calibrate is not None and chosen.cpu != "measured":
        raise typer.BadParameter("a calibration needs --cpu measured", param_hint="--calibrate")
    made = Run(chosen, topology=None if laid is None else of_overlay(laid))
    with progress() as say:
        report = made.play(trace, say)
    if calibrate is not None and isinstance(made.costs, Measured):
        fit(made.costs.samples).save(calibrate)
    if json_output:
        print(json.dumps(report.as_json(), indent=2))
    else:
        _say(report)
    raise typer.Exit(1 if report.counts else 0)


def _is_given(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name or "")
    return source is not None and source.name == "COMMANDLINE"


def _say(report: Report) -> None:
    scenario = report.scenario
    print(
        f"{scenario.load} on {report.brokers} brokers, {scenario.publishers} publishers, "
        f"{scenario.subscribers:,} subscribers, {scenario.routing} routing, seed {scenario.seed}"
    )
    rate = report.steps / report.real_s if report.real_s else 0.0
    print(
        f"  {report.virtual_s:.1f} s of virtual time in {report.real_s:.1f} s: {report.steps:,} simulated "
        f"events, {rate:,.0f} per second ({report.steps / max(report.cpu_s, 1e-9):,.0f} of processor time); "
        f"{report.memory_bytes / 2**30:.2f} GiB at most"
    )
    print(
        f"  {report.published:,} published, {report.delivered:,} delivered, {report.crossings:,} crossings "
        f"of links, {report.updates:,} updates"
    )
    if report.busiest_share:
        print(f"  the busiest broker worked {report.busiest_share:.1%} of the time")
    if report.trace_rows:
        print(f"  {report.trace_rows:,} rows of trace")
    print(f"  checkers: {report.verdict}")
    for finding in report.findings[:_SHOWN]:
        print(f"    {finding}")


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
        str, typer.Option(help="Under static routing: subscribe-first or unsubscribe-first.")
    ] = "subscribe-first",
    engine: Annotated[str, typer.Option(help="The matching engine of brokers and clients.")] = "naive",
    steps: Annotated[int, typer.Option(min=1, help="Steps of a history.")] = 60,
    crashes: Annotated[bool, typer.Option(help="Whether brokers crash.")] = True,
    gapless: Annotated[bool, typer.Option(help="Make half of the updates without gaps.")] = False,
    damping: Annotated[float, typer.Option(min=0.0, help="Damping of the brokers, in typical steps.")] = 0.0,
    motion: Annotated[bool, typer.Option(help="Have half of the bounds move by themselves.")] = False,
    content: Annotated[bool, typer.Option(help="Advertise content as well.")] = False,
    operators: Annotated[
        bool, typer.Option(help="Filters with or, !=, prefix and the like as well.")
    ] = False,
    merging: Annotated[str, typer.Option(help="off, perfect or budget.")] = "off",
    merging_budget: Annotated[int, typer.Option(min=1, help="Slots per link and type.")] = 3,
    defect: Annotated[
        str | None,
        typer.Option(
            help="Make brokers wrong: drop-update, keep-slot, swap-order, echo-event, early-acknowledge, "
            "claim-newest, no-replay, repeat-event."
        ),
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Processes; 0 for one per core.")] = 0,
    json_output: Json = False,
) -> None:
    """Play random histories and have checkers judge them; end with 1 if anything is wrong.

    Clients come, go, vanish and move, advertise, subscribe, update and publish over wires that delay, lose
    and break, through brokers that crash. The checkers know every event and change, and nothing of routing. A
    history that fails is shown with the command that plays it again. With --defect the brokers are wrong on
    purpose, which the checkers must find.

    Example: covey sim fuzz --seeds 1000 --routing static
    """
    from covey.cli.support.progress import progress
    from covey.sim.experiments.fuzz import Options, fuzz, play

    if routing == "static" and damping:
        raise typer.BadParameter("static routing has no damping", param_hint="--damping")
    if routing == "static" and merging != "off":
        raise typer.BadParameter("static routing has no merging", param_hint="--merging")
    options = Options(
        routing=routing,
        resubscribe=resubscribe,
        engine=engine,
        steps=steps,
        crashes=crashes,
        operators=operators,
        gapless=gapless,
        content=content,
        damping=damping,
        motion=motion,
        merging=merging,
        merging_budget=merging_budget,
        defect=defect,
    )
    if seed is not None:
        outcomes = [play(seed, options)]
    else:
        processes = jobs or os.cpu_count() or 1
        outcomes = []
        with progress() as say:
            for outcome in fuzz(range(first, first + seeds), options, jobs=processes):
                outcomes.append(outcome)
                say("playing", len(outcomes) / seeds)
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
