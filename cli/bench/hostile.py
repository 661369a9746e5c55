"""`covey bench hostile`: what hostile clients cost the others."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli.support.options import Json, choices, counts


def hostile(
    rate: Annotated[int, typer.Option(min=1, help="Events per second of the others.")] = 200,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="Of each of the three measurements of an attack.")
    ] = 10.0,
    subscriptions: Annotated[
        int, typer.Option(min=1, help="Of the attacks subscriptions and end.")
    ] = 100_000,
    attacks: Annotated[
        str,
        typer.Option(
            help="Of subscriptions, churn, end, updates, filters, batches, connections, "
            "malformed, packets, or a flood; several separated by commas. all: these and all floods. "
            "floods: those alone."
        ),
    ] = "all",
    connections: Annotated[str, typer.Option(help="Of a flood at once: numbers, each tried.")] = "3,100",
    json_output: Json = False,
) -> None:
    """Measure the latency of clients while another one is hostile to their broker.

    Single events pass from b2 to subscribers at b1 and b2; the hostile client is a process that attacks b1.
    Before each attack its process is silent, and then computes: what any process costs on the same
    processors. Floods are frames that bring nothing: window_update, priority, unknown and others.

    Example: covey bench hostile --attacks floods --seconds 5

    Example: covey bench hostile --attacks subscriptions,end --subscriptions 1000000 --seconds 60
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import compile_once, progress
    from covey.overlay.transport.event_loop import run
    from covey.sim.experiments.bench.floods import FLOODS
    from covey.sim.experiments.bench.hostile import ATTACKS, HostilePlan, measure_hostile

    groups = {"all": tuple(ATTACKS), "floods": tuple(FLOODS)}
    chosen = groups.get(attacks) or choices("attacks", attacks, tuple(ATTACKS))
    plan = HostilePlan(rate, seconds, subscriptions, chosen, counts("connections", connections))
    compile_once()
    with progress() as on_progress:
        results = run(measure_hostile(plan, on_progress))
    if json_output:
        print_json([asdict(each) | {"ratio": each.ratio} for each in results])
        return
    rows = []
    for each in results:
        p99 = [each.silent.p99, each.computing.p99, each.attacked.p99]
        at_b2 = [each.neighbour_silent.p99, each.neighbour_computing.p99, each.neighbour.p99]
        most = [each.attacked.p50, each.attacked.max]
        attack = f"{each.attack} x{each.connections}" if each.attack in FLOODS else each.attack
        closed = ", ".join(f"{count:,} {name}" for name, count in each.closed.items())
        ends = [each.memory_mb, each.ended_s]
        rows.append([attack, each.done, closed, *p99, each.ratio, *most, *at_b2, *ends])
    near = ["connections ended", "p99", "p99 computing", "p99 attacked"]
    near += ["ratio", "p50 attacked", "max attacked"]
    far = ["p99 at b2", "computing", "attacked"]
    print_table(
        f"{rate:,} events per second of others, ms from publishing to arrival",
        ["attack", "done", *near, *far, "memory MB", "ended s"],
        rows,
    )
