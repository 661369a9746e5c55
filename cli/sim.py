"""`covey sim`: whole overlays in virtual time, or over real brokers."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from covey.cli.fuzz import fuzz, fuzz_frames
from covey.cli.support.options import Json, Master, check_output, option, taking

if TYPE_CHECKING:
    from covey.sim.experiments.runs.run import RunSummary


class _FileOrCommand(TyperGroup):
    """A group whose first word is a subcommand, or else the argument, a file."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if not args or args[0] not in self.commands:
            ctx.allow_interspersed_args = True
            return super().parse_args(ctx, args)
        params = self.params
        self.params = [param for param in params if param.param_type_name == "option"]
        try:
            return super().parse_args(ctx, args)
        finally:
            self.params = params


sim = typer.Typer(cls=_FileOrCommand, help="Run whole overlays in virtual time, judged by checkers.")

_SHOWN = 5
_SUBCOMMANDS = ("fuzz", "fuzz-frames")


_FIELDS = (
    option("load", str, "trading (AT), market (AT with one type), highway (HTM), quotes or detectors."),
    option("topology", str, "A kind of `covey topology make`; the load's own if not given."),
    option("brokers", int, "Number of brokers; not with an overlay file or sensors."),
    option("publishers", int, "Number of publishers."),
    option("subscribers", int, "Number of subscribers."),
    option("speeds", str, "detectors: a CSV file of speeds, one column per detector."),
    option("sensors", str, "detectors: a CSV file of their places (sensor_id, latitude, longitude)."),
    option("types", int, "trading, market: number of event types."),
    option("duration_s", float, "Seconds of virtual time.", "--duration"),
    option("warm_up_s", float, "Seconds of virtual time before those, not measured.", "--warm-up"),
    option("event_rate", float, "Events per second and publisher."),
    option("window", int, "Events that a publisher has under way at most; event_rate is its highest rate."),
    option("batch", int, "Events per batch."),
    option("update_rate", float, "Updates per second and subscriber."),
    option(
        "delay_ms",
        float,
        "One-way delay of a link; with an overlay file, of the clients' links only, in place of its "
        "client_delay_ms.",
    ),
    option("jitter_ms", float, "Further random delay, up to this."),
    option("loss", float, "Probability that a frame is retransmitted."),
    option("crashes", int, "Number of broker crashes, 0.2 s each."),
    option("partitions", int, "Number of link partitions, 0.5 s each."),
    option("routing", str, "parametric or static."),
    option("resubscribe", str, "static routing: subscribe-first, unsubscribe-first or cancel-late."),
    option("engine", str, "Matching engine of brokers and clients; poset to walk the poset."),
    option("poset", str, "forest, naive, diagram or diagram-local."),
    option("cpu", str, "Time that messages cost brokers: free, measured, or a calibration file."),
    option("service", str, "Order of messages at brokers: broker, fifo, control-first or two-lanes."),
    option("merge", bool, "Updates that wait for a link replace each other.", "--merge/--no-merge"),
    option("seed", int, "Seed of everything random."),
)
"""Fields of a scenario; the default is the file's value."""


@sim.callback(invoke_without_command=True)
@taking("fields", _FIELDS)
def run(
    *,
    context: typer.Context,
    scenario: Annotated[
        Path | None,
        typer.Argument(
            metavar="SCENARIO",
            help="A scenario file (YAML); options override its fields.",
            show_default=False,
        ),
    ] = None,
    overlay: Annotated[
        Path | None, typer.Option(help="An overlay file: run its brokers and links, with its delays.")
    ] = None,
    real: Annotated[
        bool, typer.Option("--real", help="Run over real brokers and clients on this machine.")
    ] = False,
    fields: dict[str, Any],
    system: Annotated[
        str | None,
        typer.Option(
            help="A system to compare, such as siena-parametric; sets engine, poset, routing and resubscribe."
        ),
    ] = None,
    calibrate: Annotated[
        Path | None, typer.Option(help="With --cpu measured: the calibration file to write.")
    ] = None,
    trace: Annotated[
        str | None, typer.Option(help="Trace to write: a folder, or a URI (file, s3, gs, hdfs).")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="HTML page of the run to write; its metrics are computed by Spark.")
    ] = None,
    master: Master = None,
    json_output: Json = False,
) -> None:
    """Run whole overlays in virtual time, judged by independent checkers.

    Without a subcommand, runs a scenario: the AT benchmark of the paper, changed by a scenario file and the
    options. Brokers, clients and links are those of production; time, wires and faults are simulated. A seed
    determines the run and the trace, byte for byte, except with --cpu measured. With --real the same schedule
    runs over broker processes and clients on this machine, with the same judge and trace. Exits with 1 if a
    checker reports a violation.

    Example: covey sim mine.yaml --routing static --seed 7 --report run.html
    """
    subcommand = context.invoked_subcommand or (str(scenario) if str(scenario) in _SUBCOMMANDS else None)
    if subcommand is not None:
        early = [
            param.opts[0]
            for param in context.command.params
            if _is_given(context, param.name) and context.params[param.name or ""] != Path(subcommand)
        ]
        if early:
            raise typer.BadParameter(
                f"expected after {subcommand}, which has its own options", param_hint=", ".join(early)
            )
        return
    from covey.cli.metrics import write_page
    from covey.cli.support.output import print_json, progress
    from covey.overlay.node.config import load_overlay
    from covey.sim.experiments.runs.real import RealRun
    from covey.sim.experiments.runs.simulated import SimulatedRun
    from covey.sim.extras import need
    from covey.sim.metrics.session import check_spark
    from covey.sim.scenario.scenario import (
        Scenario,
        cost_key,
        find_system,
        load_scenario,
        with_paths,
        without_effect,
    )
    from covey.sim.simulator import Measured
    from covey.sim.simulator.costs import save_costs
    from covey.sim.topology import of_overlay

    given = {name: value for name, value in fields.items() if value is not None}
    if overlay is not None and "topology" in given:
        raise typer.BadParameter("the overlay file has its own links", param_hint="--topology")
    if overlay is not None and "brokers" in given:
        raise typer.BadParameter("the overlay file has its own brokers", param_hint="--brokers")
    overlay_config = None if overlay is None else load_overlay(overlay, {})
    base = Scenario() if overlay_config is None else Scenario(delay_ms=overlay_config.client_delay_ms)
    chosen = base if scenario is None else load_scenario(scenario, base)
    if system is not None:
        chosen = find_system(system).applied_to(chosen)
    chosen = chosen.having(**with_paths(given, Path()))
    for name, reason in without_effect(chosen, given).items():
        raise typer.BadParameter(reason, param_hint=f"--{name.replace('_', '-')}")
    if calibrate is not None and (chosen.cpu != "measured" or real):
        raise typer.BadParameter(
            "a calibration needs simulated brokers and --cpu measured", param_hint="--calibrate"
        )
    if report is not None:
        need("a report", "bokeh", "pyspark")
        check_output("--report", report)
        check_spark(master)
    elif master is not None:
        raise typer.BadParameter(
            "expected with --report, whose metrics Spark computes", param_hint="--master"
        )
    tree = None if overlay_config is None else of_overlay(overlay_config)
    chosen_run = RealRun(chosen, topology=tree) if real else SimulatedRun(chosen, topology=tree)
    with ExitStack() as stack:
        if report is not None and trace is None:
            folder = stack.enter_context(TemporaryDirectory(prefix="covey-sim-"))
            trace = f"{folder}/{scenario.stem if scenario is not None else chosen.load}"
        with progress() as on_progress:
            summary = chosen_run.run(trace, on_progress)
            if report is not None and trace is not None:
                write_page(report, [trace], master, on_progress)
    if (
        calibrate is not None
        and isinstance(chosen_run, SimulatedRun)
        and isinstance(chosen_run.costs, Measured)
    ):
        system, shape = cost_key(chosen)
        note = f"covey sim --cpu measured, {chosen.name}, seed {chosen.seed}"
        save_costs(calibrate, {system: {shape: chosen_run.costs.curves()}}, note)
    if json_output:
        print_json(summary.as_json())
    else:
        _print(summary, real)
        if report is not None:
            print(f"  report: {report}")
    raise typer.Exit(1 if summary.counts else 0)


def _is_given(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name or "")
    return source is not None and source.name == "COMMANDLINE"


def _print(summary: RunSummary, real: bool) -> None:
    from covey.sim.scenario.scenario import FREE

    scenario = summary.scenario
    print(
        f"{scenario.load} on {summary.brokers} {'broker processes' if real else 'brokers'}, "
        f"{scenario.publishers} publishers, {scenario.subscribers:,} subscribers, {scenario.routing} "
        f"routing, seed {scenario.seed}"
    )
    if real:
        print(f"  {summary.virtual_s:.1f} s")
    else:
        rate = summary.steps / summary.real_s if summary.real_s else 0.0
        cpu_rate = summary.steps / max(summary.cpu_s, 1e-9)
        print(
            f"  {summary.virtual_s:.1f} s of virtual time in {summary.real_s:.1f} s: {summary.steps:,} "
            f"simulated steps, {rate:,.0f} per second ({cpu_rate:,.0f} of processor time); "
            f"{summary.memory_bytes / 2**30:.2f} GiB at most"
        )
    print(
        f"  {summary.published:,} published, {summary.delivered:,} delivered, {summary.spurious:,} spurious, "
        f"{summary.crossings:,} crossings of links, {summary.updates:,} updates"
    )
    if summary.control_per_update is not None:
        kinds = ", ".join(f"{count:,} {kind}" for kind, count in summary.control.items() if count)
        total, each = sum(summary.control.values()), summary.control_per_update
        print(f"  {total:,} control messages between brokers, {each:.1f} per update: {kinds}")
    if scenario.cpu == "free" and not real:
        print(f"  {FREE.replace('`', '')}")
    if summary.busiest_share:
        print(f"  the busiest broker worked {summary.busiest_share:.1%} of the time")
    if summary.trace_rows:
        print(f"  {summary.trace_rows:,} rows of trace")
    print(f"  checkers: {summary.verdict}")
    for finding in summary.findings[:_SHOWN]:
        print(f"    {finding}")


sim.command("fuzz")(fuzz)
sim.command("fuzz-frames")(fuzz_frames)
