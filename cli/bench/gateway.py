"""`covey bench gateway`: what browsers that never read cost the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from statistics import median
from typing import Annotated

import typer

from covey.cli.support.options import Json, choices


def gateway(
    browsers: Annotated[int, typer.Option(min=2, help="WebSockets of each gateway.")] = 1_000,
    silent: Annotated[int, typer.Option(min=1, help="Of those of the second one, never read.")] = 100,
    overflow: Annotated[
        str,
        typer.Option(
            help="What these ask for, in turn: drop_oldest, drop_newest, conflate, disconnect; several "
            "separated by commas."
        ),
    ] = "drop_oldest,drop_newest,conflate",
    rate: Annotated[int, typer.Option(min=1, help="Batches per second.")] = 10,
    batch: Annotated[int, typer.Option(min=1, help="Events of a batch.")] = 10,
    share: Annotated[
        float, typer.Option(help="Of each batch in the bounds of a browser, which are its own below 1.")
    ] = 1.0,
    seconds: Annotated[float, typer.Option(min=0.1, help="Of each round, for each gateway.")] = 8.0,
    rounds: Annotated[int, typer.Option(min=1, help="Of the first and then the second gateway.")] = 3,
    json_output: Json = False,
) -> None:
    """Measure browsers on one gateway, with and without some that never read.

    One broker, two gateways and a process with all browsers. At the first gateway all browsers read; at the
    second some never do, and their queues are full before the first round. The figures are medians over the
    rounds, of the browsers that read. In the end the others read, too, and the second table says what they
    got and were told.

    Example: covey bench gateway --share 0.3 --batch 100
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import compile_once, progress
    from covey.overlay.transport.event_loop import run
    from covey.sim.experiments.bench.gateway import POLICIES, GatewayPlan, measure_gateway

    policies = choices("overflow", overflow, POLICIES)
    plan = GatewayPlan(browsers, silent, policies, rate, batch, share, seconds, rounds)
    compile_once()
    with progress() as on_progress:
        results = run(measure_gateway(plan, on_progress))
    if json_output:
        print_json(asdict(results))
        return
    print_table(
        f"{browsers:,} browsers, of which {silent:,} never read at the second gateway; {rate} batches of "
        f"{batch} events per second: ms from publishing to the socket",
        ["gateway", "frames/s", "p50", "p99", "worst p99", "max", "missing", "cores", "peak MB"],
        [
            [
                each.name,
                *(round(median(values), 1) for values in (each.frames_per_s, each.p50_ms, each.p99_ms)),
                *(round(max(values), 1) for values in (each.p99_ms, each.max_ms)),
                each.missing,
                round(median(each.cores), 2),
                round(each.peak_mb, 1),
            ]
            for each in results.runs
        ],
    )
    print_table(
        "what those that never read got and were told, once they did",
        ["overflow", "browsers", "events", "in gaps", "notices and ends", "neither"],
        [
            [each.policy, each.browsers, each.got, _words(each.gaps), _words(each.notices), each.untold]
            for each in results.told
        ],
    )


def _words(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())) or "-"
