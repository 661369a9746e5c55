"""`covey bench peers`: durable events in Covey beside NATS JetStream, RabbitMQ and Mosquitto."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli.support.options import Json, words


def peers(
    systems: Annotated[
        str | None,
        typer.Option(
            help="Of nats-server, rabbitmq-server, mosquitto; several separated by commas.",
            show_default="those on the PATH",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds through all systems; medians are shown.")] = 3,
    events: Annotated[int, typer.Option(min=100, help="Events of a round at full speed.")] = 3_000,
    json_output: Json = False,
) -> None:
    """Compare durable events in Covey and in other systems that are installed on this machine.

    One server each, one publisher and one reader in Python, events of 128 bytes. At full speed 256 events
    are in flight; latency is from publishing to arrival at 1,000 events per second; confirmed publishes are
    one after the other. "lost" are events of 1,000 that the server had confirmed before it was killed
    (kill -9) while their reader was away; "-" says that the reader did not come back within 30 s. Needs
    Covey's extra `bench`.

    Example: covey bench peers --systems nats-server,mosquitto
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import progress
    from covey.sim.experiments.bench.peers import PeerPlan, found, measure_peers

    chosen = found(None if systems is None else words(systems))
    plan = PeerPlan(rounds=rounds, events=events)
    with progress() as on_progress:
        results = asyncio.run(measure_peers(chosen, plan, on_progress))
    if json_output:
        print_json([asdict(each) for each in results])
        return

    def pair(times: tuple[float, float]) -> str:
        return f"{times[0]:.2f} / {times[1]:.2f}"

    columns = ["system", "version", "events per second", "latency p50 / p99 ms", "confirmed p50 / p99 ms"]
    rows: list[list[object]] = []
    for each in results:
        figures = [round(each.events_per_s), pair(each.latency_ms), pair(each.confirmed_ms)]
        counts = ["-" if count is None else count for count in (each.lost, each.repeated)]
        rows.append([each.label, each.version, *figures, *counts])
    print_table("Durable events, one server", [*columns, "lost", "repeated"], rows)
    for each in results:
        typer.echo(f"{each.label}: before it confirms, {each.storing}")
