"""`covey sim fuzz-frames`: hostile HTTP/2 peers of one connection."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from covey.cli.support.options import Json

_SHOWN = 5


def fuzz_frames(
    frames: Annotated[int, typer.Option(min=1, help="Frames to send.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the first connection.")] = 0,
    json_output: Json = False,
) -> None:
    """Send random frames of hostile peers to brokers' and clients' ends of connections, without I/O.

    Each connection has a seed; those with even ones are of brokers. Exits with 1 if an invariant is violated.

    Example: covey sim fuzz-frames --frames 1000000
    """
    from covey.cli.support.output import print_json
    from covey.cli.support.progress import progress
    from covey.sim.experiments.fuzz.frames import FrameFuzzResult
    from covey.sim.experiments.fuzz.frames import fuzz_frames as fuzz

    result = FrameFuzzResult()
    with progress() as on_progress:
        for result in fuzz(seed, frames):
            on_progress("sending frames", min(1.0, result.frames / frames))
    if json_output:
        print_json(asdict(result))
    else:
        for violation in result.violations[:_SHOWN]:
            print(violation)
        ended = ", ".join(f"{count:,} {code}" for code, count in sorted(result.closed.items()))
        print(
            f"{result.frames:,} frames on {result.connections:,} connections, {result.calls:,} calls, "
            f"{result.messages:,} messages; connections ended: {ended or 'none'}; "
            + (f"{len(result.violations)} violations" if result.violations else "no violation")
        )
    raise typer.Exit(1 if result.violations else 0)
