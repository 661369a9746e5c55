"""`covey bench`: how fast Covey is on this machine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated

import typer

from covey.cli.support.options import Json, Seed, counts, words

bench = typer.Typer(no_args_is_help=True, help="Measure how fast Covey is on this machine.")


@bench.callback()
def group() -> None:
    """Measure how fast Covey is on this machine."""


@bench.command("chain")
def chain(
    runs: Annotated[int, typer.Option(min=1, help="Runs of which the median is taken.")] = 5,
    events: Annotated[int, typer.Option(min=1, help="Events per run.")] = 1_000_000,
    batch: Annotated[int, typer.Option(min=1, max=4096, help="Events per published batch.")] = 1024,
    subscriptions: Annotated[int, typer.Option(min=0, help="Further subscriptions at each broker.")] = 1000,
    rate: Annotated[int, typer.Option(min=1, help="Events per second while latency is measured.")] = 1000,
    low_rate: Annotated[int, typer.Option(min=1, help="The same, for events that hardly ever meet.")] = 100,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long latency is measured, per rate.")] = 10.0,
    bare: Annotated[bool, typer.Option(help="Measure bare gRPC relays beside it.")] = True,
    json_output: Json = False,
) -> None:
    """Measure a chain: publisher, three brokers in a row, subscriber, each a process of its own.

    The subscriber wants every event. A further client holds parametric subscriptions at each broker, of which
    about 1 % match an event. Prints events per second from end to end (the median of several runs), and
    one-way latency at a steady rate of single events; and beside it the same of three relays that only parse,
    filter and pass on what comes, each event in a message of its own: what gRPC and the machine cost by
    themselves.

    Example: covey bench chain --runs 3 --json
    """
    from rich.console import Console
    from rich.table import Table

    from covey.cli.support.progress import compile_once
    from covey.sim.experiments.bench.chain import Plan, measure

    console = Console(stderr=True)
    compile_once()
    plan = Plan(runs, events, batch, subscriptions, rate, low_rate, seconds, bare)
    result = asyncio.run(measure(plan, lambda words: console.print(words, highlight=False)))
    if json_output:
        print(json.dumps(result.as_json(), indent=2))
        return
    table = Table("", "events/s", f"p50/p99 ms at {rate:,}/s", f"p50/p99 ms at {low_rate:,}/s", box=None)
    for name, figures in (("three brokers", result.covey), ("three bare relays", result.bare)):
        if figures is not None:
            latencies = (
                f"{each.p50_ms:.1f} / {each.p99_ms:.1f}" for each in (figures.latency, figures.low_latency)
            )
            table.add_row(name, f"{figures.events_per_s:,.0f}", *latencies)
    Console().print(table)
    print(f"{result.matches_per_event:.1f} of the crowd's subscriptions at each broker matched an event")


@bench.command("scenario")
def scenario(
    file: Annotated[Path, typer.Argument(help="A scenario file (YAML), as `covey sim --scenario` takes.")],
    system: Annotated[
        str | None, typer.Option(help="A system to compare, such as covey-parametric or siena-parametric.")
    ] = None,
    trace: Annotated[Path | None, typer.Option(help="Trace to write: a folder of Parquet files.")] = None,
    json_output: Json = False,
) -> None:
    """Play a scenario over real brokers and clients on this machine, link delays included.

    History, checkers and trace are those of `covey sim`, so that simulated and real runs can be compared.
    Ends with 1 if a checker found something wrong.

    Example: covey bench scenario mine.yaml --system covey-parametric --trace real.parquet
    """
    from covey.cli.support.progress import progress
    from covey.sim.experiments.bench.scenario import RealRun
    from covey.sim.scenario.scenario import load_scenario
    from covey.sim.scenario.systems import find_system

    chosen = load_scenario(file)
    if system is not None:
        chosen = find_system(system).applied_to(chosen)
    with progress() as say:
        report = RealRun(chosen).play(trace, say)
    if json_output:
        print(json.dumps(report.as_json(), indent=2))
    else:
        print(f"{chosen.load} over {report.brokers} broker processes, {report.virtual_s:.1f} s")
        print(
            f"  {report.published:,} published, {report.delivered:,} delivered, "
            f"{report.crossings:,} crossings of links, {report.updates:,} updates"
        )
        print(f"  the busiest broker worked {report.busiest_share:.1%} of the time")
        print(f"  checkers: {report.verdict}")
        for finding in report.findings[:5]:
            print(f"    {finding}")
    raise typer.Exit(1 if report.counts else 0)


@bench.command("match")
def match(
    workload: Annotated[
        str,
        typer.Option(
            help="Which: W0, W2, SYMBOLS, SYMBOLS-tail, VEHICLES, BOX, fabret; several with commas, or all "
            "of the first six."
        ),
    ] = "all",
    subscriptions: Annotated[str, typer.Option(help="How many; several with commas.")] = "100000",
    engines: Annotated[
        str,
        typer.Option(
            help="Which; several with commas, options behind a colon: search_tree:factoring=0. "
            "A ; between engines allows several options."
        ),
    ] = "cluster,scan",
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="A parameter of Fabret's generator, such as predicates=7 or domain=1..100."
        ),
    ] = None,
    events: Annotated[int, typer.Option(min=1, help="Events to match.")] = 10_000,
    batch: Annotated[int, typer.Option(min=1, help="Events per batch, unless event_batch is set.")] = 1_000,
    repetitions: Annotated[int, typer.Option(min=1, help="Measurements of which the median is taken.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.01, help="How long one measurement takes.")] = 0.5,
    load_limit: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which an engine that still loads is given up.")
    ] = 120.0,
    threads: Annotated[int, typer.Option(min=1, help="Threads, for engines that can use several.")] = 1,
    seed: Seed = 0,
    json_output: Json = False,
    markdown_output: Annotated[
        bool, typer.Option("--markdown", help="Print the results as tables for a document.")
    ] = False,
    drawing: Annotated[
        Path | None, typer.Option("--draw", help="Draw events/s over subscriptions into this file (.svg).")
    ] = None,
) -> None:
    """Measure matching engines side by side over the same subscriptions and events, and compare their
    answers.

    Example: covey bench match --workload W0,BOX --subscriptions 1000,100000 --engines cluster,scan,counting
    """
    from covey.cli.bench.match import run
    from covey.sim.experiments.bench.match_report import draw, markdown
    from covey.sim.extras import need

    if drawing is not None:
        need("--draw", "matplotlib")
    results = run(
        workload,
        parameters or [],
        subscriptions,
        engines,
        json_output or markdown_output,
        events=events,
        batch=batch,
        repetitions=repetitions,
        repetition_s=seconds,
        load_limit_s=load_limit,
        threads=threads,
        seed=seed,
    )
    if json_output:
        print(json.dumps([result.as_json() for result in results], indent=2))
    if markdown_output:
        print(markdown(results))
    if drawing is not None:
        draw(results, drawing)


@bench.command("drift")
def drift(
    drifts: Annotated[
        str, typer.Option(help="Which: attributes, skew; several with commas.")
    ] = "attributes,skew",
    subscriptions: Annotated[int, typer.Option(min=100, help="How many at any time.")] = 100_000,
    steps: Annotated[int, typer.Option(min=1, help="Steps in which all are replaced.")] = 8,
    events: Annotated[int, typer.Option(min=1_000, help="Events matched per measurement.")] = 20_000,
    repetitions: Annotated[int, typer.Option(min=1, help="Measurements of which the median is taken.")] = 5,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Measure how the cluster engine follows subscriptions and events that change: its dynamic configuration
    against one that stays as it was, and against the best for the new state.

    Example: covey bench drift --drifts skew --subscriptions 100000
    """
    from covey.cli.bench.drift import run

    results = run(
        words(drifts),
        json_output,
        subscriptions=subscriptions,
        steps=steps,
        events=events,
        repetitions=repetitions,
        seed=seed,
    )
    if json_output:
        print(json.dumps([result.as_json() for result in results], indent=2))


@bench.command("change")
def change(
    modes: Annotated[
        str, typer.Option(help="Which: parametric, subscribe-first, unsubscribe-first; several with commas.")
    ] = "parametric,subscribe-first,unsubscribe-first",
    filters: Annotated[
        str, typer.Option(help="Which: both, disjoint; several with commas.")
    ] = "both,disjoint",
    events: Annotated[str, typer.Option(help="Events per second; several with commas.")] = "200,2000",
    changes: Annotated[str, typer.Option(help="Changes per second; several with commas.")] = "10,100,1000",
    seconds: Annotated[float, typer.Option(min=0.1, help="How long each case takes.")] = 3.0,
    json_output: Json = False,
) -> None:
    """Change a subscription while events flow through three brokers, and count what is missed, repeated or
    stale.

    With the filter "both" every event matches before and after each change; with "disjoint" it is one or the
    other. subscribe-first and unsubscribe-first are the orders of a re-subscription under static routing. An
    event is owed if it matches from the last change that has taken effect, at the moment it is published, up
    to its delivery.

    Example: covey bench change --modes parametric --changes 100,1000 --json
    """
    from covey.cli.bench.change import run

    run(modes, filters, events, changes, seconds, json_output)


@bench.command("routing")
def routing(
    workload: Annotated[
        str, typer.Option(help="Which: SYMBOLS, VEHICLES and others; several with commas.")
    ] = "SYMBOLS,VEHICLES",
    filters: Annotated[str, typer.Option(help="Subscriptions; several with commas.")] = "1000,10000,100000",
    posets: Annotated[
        str, typer.Option(help="Which: forest, naive, diagram; several with commas.")
    ] = "forest,naive",
    updates: Annotated[int, typer.Option(min=1, help="Updates per case.")] = 5_000,
    scan_limit: Annotated[
        int, typer.Option(min=0, help="Posets that compare all filters are left out beyond so many.")
    ] = 1_000,
    merging: Annotated[str, typer.Option(help="off, perfect, budget; several with commas.")] = "off",
    merging_budget: Annotated[int, typer.Option(min=1, help="Slots, with merging within a budget.")] = 64,
    grpc: Annotated[
        bool, typer.Option("--grpc", help="Measure awaited updates through three broker processes, too.")
    ] = False,
    concurrent: Annotated[int, typer.Option(min=1, help="Updates awaited at a time over gRPC.")] = 512,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Measure what SUB, UPD and USUB cost a broker at the edge that holds many subscriptions.

    A broker core in process, with subscriptions of a workload that move as it says, and one neighbour that
    publishes. The poset "naive" compares each filter with every other.

    Example: covey bench routing --workload VEHICLES --filters 1000,100000 --grpc --json
    """
    from covey.cli.bench.routing import run
    from covey.sim.experiments.bench.routing import GrpcPlan, Plan

    plan = Plan(
        words(posets),
        counts("filters", filters),
        updates,
        mergings=words(merging),
        merging_budget=merging_budget,
        scan_limit=scan_limit,
        seed=seed,
    )
    run(workload, plan, GrpcPlan(concurrent=concurrent) if grpc else None, json_output)


@bench.command("control")
def control(
    loads: Annotated[
        str, typer.Option(help="Which: trading, highway, oscillating, cruising; several with commas.")
    ] = "trading,highway,oscillating,cruising",
    modes: Annotated[
        str, typer.Option(help="Which: static, parametric, damping, motion; several with commas.")
    ] = "static,parametric,damping,motion",
    brokers: Annotated[int, typer.Option(min=2, help="Brokers of the overlay.")] = 7,
    subscribers: Annotated[int, typer.Option(min=1, help="Subscribers; each changes once a second.")] = 40,
    seconds: Annotated[int, typer.Option(min=1, help="Virtual seconds.")] = 120,
    damping: Annotated[float, typer.Option(min=0.0, help="Typical steps of slack, for mode damping.")] = 8.0,
    seed: Seed = 0,
    json_output: Json = False,
) -> None:
    """Count the control messages that moving subscriptions cost, in virtual time.

    Example: covey bench control --loads oscillating --modes parametric,damping
    """
    from covey.cli.bench.control import run

    options = {
        "brokers": brokers,
        "subscribers": subscribers,
        "seconds": seconds,
        "damping": damping,
        "seed": seed,
    }
    run(loads, modes, json_output, **options)
