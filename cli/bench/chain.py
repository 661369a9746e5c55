"""`covey bench chain`: throughput, latency, CPU and memory through three brokers in a row."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from covey.cli.support.options import Json

_NAMES = {"covey": "three brokers", "grpc": "relays by grpc.aio", "tcp": "relays by TCP"}


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
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import compile_once, progress
    from covey.sim.experiments.bench.chain import ChainPlan, labels, measure_chain
    from covey.sim.reports import number

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
