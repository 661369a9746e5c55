"""`covey sim fuzz-frames`: hostile HTTP/2 peers of one connection, hostile packets and filters of clients."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from importlib import import_module
from typing import Annotated

import typer

from covey.cli.support.options import Json

_SHOWN = 5


class Input(StrEnum):
    """What is sent."""

    FRAMES = "frames"
    PACKETS = "packets"
    FILTERS = "filters"


_FUZZERS = {
    Input.FRAMES: ("frames", "frames", "sending frames"),
    Input.PACKETS: ("packets", "packets", "sending packets"),
    Input.FILTERS: ("hostile_filters", "texts", "parsing filters"),
}
"""The module, the field of its result that counts what was sent, and what is done."""


def fuzz_frames(
    frames: Annotated[int, typer.Option(min=1, help="Frames, packets or filters to send.")] = 100_000,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the first connection.")] = 0,
    input: Annotated[
        Input, typer.Option(help="HTTP/2 frames, packets of clients with rights, or texts of filters.")
    ] = Input.FRAMES,
    json_output: Json = False,
) -> None:
    """Send random frames of hostile peers to brokers' and clients' ends of connections, without I/O.

    Each connection has a seed; frames with even ones are of brokers. Packets go to a broker's endpoint beside
    a reader and a publisher that have to go on, filters to the parser. Exits with 1 if an invariant is
    violated.

    Example: covey sim fuzz-frames --frames 1000000
    """
    from covey.cli.support.output import print_json
    from covey.cli.support.progress import progress

    module, sent, doing = _FUZZERS[input]
    fuzz = getattr(import_module(f"covey.sim.experiments.fuzz.{module}"), f"fuzz_{input}")
    with progress() as on_progress:
        for result in fuzz(seed, frames):
            on_progress(doing, min(1.0, getattr(result, sent) / frames))
    violations = result.violations
    if json_output:
        print_json(asdict(result))
    else:
        for violation in violations[:_SHOWN]:
            print(violation)
        print(f"{result}; " + (f"{len(violations)} violations" if violations else "no violation"))
    raise typer.Exit(1 if violations else 0)
