"""`covey bench bounds`: what bounds of memory count, and what processes hold."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli.support.options import Json, choices


def bounds(
    mib: Annotated[int, typer.Option(min=1, help="Every bound, in MiB.")] = 16,
    of: Annotated[
        str,
        typer.Option(
            help="Of session_queue_bytes, link_queue_bytes, link_held_bytes, max_key_bytes, "
            "max_replay_bytes, outbox_bytes; several separated by commas. all: these."
        ),
    ] = "all",
    json_output: Json = False,
) -> None:
    """Fill each bound of memory by single events and by batches, and compare with the resident size.

    Each case has processes of its own: brokers, whose counters say what they count, and for the outbox a
    client. What is held is by how much the process has grown.

    Example: covey bench bounds --of session_queue_bytes,max_replay_bytes
    """
    from covey.cli.support.output import print_json, print_table
    from covey.cli.support.progress import compile_once, progress
    from covey.overlay.transport.event_loop import run
    from covey.sim.experiments.bench.bounds import BOUNDS, measure_bounds

    chosen = tuple(BOUNDS) if of == "all" else choices("of", of, tuple(BOUNDS))
    compile_once()
    with progress() as on_progress:
        results = run(measure_bounds(chosen, mib << 20, on_progress))
    if json_output:
        print_json([asdict(each) for each in results])
        return
    print_table(
        "MiB",
        ["bound", "filled by", "events", "configured", "counted", "held"],
        [
            [
                each.bound,
                each.filled_by,
                each.events,
                *(each_bytes / 2**20 for each_bytes in (each.configured, each.counted, each.held)),
            ]
            for each in results
        ],
    )
