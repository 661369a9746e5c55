"""`covey bench`: how fast Covey is on this machine. Other measurements are in `benchmarks/`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from covey.cli.support.options import Json, Seed, counts, words
from covey.cli.support.output import compile_once, load_kernels, print_json, print_table, progress
from covey.sim.experiments.bench.chain import ChainPlan, labels, measure_chain
from covey.sim.experiments.bench.match import (
    MatchPlan,
    MatchResult,
    compare_engines,
    draw,
    make_engine,
    markdown,
    table,
)
from covey.sim.extras import need
from covey.sim.progress import labelled
from covey.sim.reports import number
from covey.sim.workload import TEXT_TESTS, WORKLOADS, Fabret
from covey.sim.workload.options import find_workload

bench = typer.Typer(no_args_is_help=True, help="Measure how fast Covey is on this machine.")

_NAMES = {"covey": "three brokers", "grpc": "relays by grpc.aio", "tcp": "relays by TCP"}


@bench.command("chain")
def chain(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each rate in a round.")] = 1.5,
    subscriptions: Annotated[
        int, typer.Option(min=0, help="Additional subscriptions at each broker.")
    ] = 1000,
    bare: Annotated[bool, typer.Option(help="Measure bare relays as baselines.")] = True,
    json_output: Json = False,
) -> None:
    """Measure a chain: publisher, three brokers in a row, subscriber, each in its own process.

    The subscriber's filter matches every event. Another client has parametric subscriptions at each broker;
    about 1 % of them match an event. The baselines are chains of three relays that only parse, filter and
    forward each message, by grpc.aio and by TCP; all are measured in turns. Prints medians of the rounds,
    and the least and the most.

    Example: covey bench chain --rounds 3 --json
    """
    compile_once()
    plan = ChainPlan(rounds=rounds, seconds=seconds, subscriptions=subscriptions, bare=bare)
    with progress() as on_progress:
        result = asyncio.run(measure_chain(plan, on_progress))
    if json_output:
        print_json(result.as_json())
        return
    rows = []
    for figure, label in labels(plan).items():
        row = [label]
        for figures in result.figures.values():
            spread = figures.get(figure)
            if spread is None:
                row += ["", ""]
            elif len(spread.rounds) == 1:
                row += [number(spread.median), ""]
            else:
                row += [
                    number(spread.median),
                    f"{number(min(spread.rounds))} to {number(max(spread.rounds))}",
                ]
        rows.append(row)
    columns = ["", *(heading for name in result.figures for heading in (_NAMES[name], "rounds"))]
    print_table("From end to end", columns, rows)
    print(f"{result.matches_per_event:.1f} of the additional subscriptions at each broker match an event")


@bench.command("match")
def match(
    workload: Annotated[
        str,
        typer.Option(
            help="W0, W2, SYMBOLS, SYMBOLS-tail, VEHICLES, BOX, fabret, PREFIXES, MEMBERS; several separated "
            "by commas. all: the first six. The last two are SYMBOLS-tail with tests on strings beside."
        ),
    ] = "all",
    subscriptions: Annotated[str, typer.Option(help="Numbers, separated by commas.")] = "100000",
    engines: Annotated[
        str,
        typer.Option(
            help="Engines, separated by commas, with options after a colon: search_tree:factoring=0. "
            "Separate engines by ; to give one several options."
        ),
    ] = "cluster,scan",
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="A parameter of Fabret's generator, such as predicates=7 or domain=1..100; or, of PREFIXES "
            "and MEMBERS, operator, tests, constants (of a list) or words.",
        ),
    ] = None,
    events: Annotated[int, typer.Option(min=1, help="Events to match.")] = 10_000,
    batch: Annotated[int, typer.Option(min=1, help="Events per batch, unless event_batch is set.")] = 1_000,
    repetitions: Annotated[int, typer.Option(min=1, help="Measurements; the median counts.")] = 5,
    seconds: Annotated[float, typer.Option(min=0.01, help="Duration of one measurement.")] = 0.5,
    load_limit: Annotated[
        float, typer.Option(min=0.1, help="Seconds after which loading an engine is abandoned.")
    ] = 120.0,
    threads: Annotated[int, typer.Option(min=1, help="Threads, for engines that support several.")] = 1,
    seed: Seed = 0,
    json_output: Json = False,
    markdown_output: Annotated[
        bool, typer.Option("--markdown", help="Print the results as Markdown tables.")
    ] = False,
    drawing: Annotated[
        Path | None, typer.Option("--draw", help="Plot events/s over subscriptions to this file (.svg).")
    ] = None,
) -> None:
    """Measure matching engines over the same subscriptions and events, and compare their answers.

    Example: covey bench match --workload W0,BOX --subscriptions 1000,100000 --engines cluster,scan,counting
    """
    if drawing is not None:
        need("--draw", "matplotlib")
    names = WORKLOADS if workload == "all" else words(workload)
    known = {**WORKLOADS, "fabret": Fabret(), **TEXT_TESTS}
    workloads = [find_workload(name, known, parameters or []) for name in names]
    sizes = counts("subscriptions", subscriptions)
    plan = MatchPlan(
        words(engines, ";" if ";" in engines else ","),
        events=events,
        batch=batch,
        repetitions=repetitions,
        repetition_s=seconds,
        load_limit_s=load_limit,
        threads=threads,
        seed=seed,
    )
    load_kernels()
    for engine in plan.engines:
        make_engine(engine, workloads[0], plan.threads)  # compiled, or refused, before anything is measured
    results: list[MatchResult] = []
    for each in workloads:
        for size in sizes:
            with progress() as on_progress:
                latest = compare_engines(each, size, plan, labelled(on_progress, f"{each.name} {size:,}"))
            results += latest
            if not json_output and not markdown_output:
                print_table(f"{each.name}, {size:,} subscriptions: {each.description}", *table(latest))
    if json_output:
        print_json([result.as_json() for result in results])
    if markdown_output:
        print(markdown(results))
    if drawing is not None:
        draw(results, drawing)
