"""`covey sim fuzz-frames`: hostile HTTP/2 peers of one connection, hostile packets and filters of clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli.support.options import Json

if TYPE_CHECKING:
    from covey.sim.progress import Progress

_SHOWN = 5


class Input(StrEnum):
    """What is sent."""

    FRAMES = "frames"
    PACKETS = "packets"
    FILTERS = "filters"


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

    run: Callable[..., tuple[dict[str, Any], str]] = {
        Input.FRAMES: _frames,
        Input.PACKETS: _packets,
        Input.FILTERS: _filters,
    }[input]
    with progress() as on_progress:
        result, summary = run(seed, frames, on_progress)
    violations = result["violations"]
    if json_output:
        print_json(result)
    else:
        for violation in violations[:_SHOWN]:
            print(violation)
        print(f"{summary}; " + (f"{len(violations)} violations" if violations else "no violation"))
    raise typer.Exit(1 if violations else 0)


def _frames(seed: int, count: int, on_progress: Progress) -> tuple[dict[str, Any], str]:
    from covey.sim.experiments.fuzz.frames import FrameFuzzResult
    from covey.sim.experiments.fuzz.frames import fuzz_frames as fuzz

    result = FrameFuzzResult()
    for result in fuzz(seed, count):
        on_progress("sending frames", min(1.0, result.frames / count))
    ended = ", ".join(f"{number:,} {code}" for code, number in sorted(result.closed.items()))
    return asdict(result), (
        f"{result.frames:,} frames on {result.connections:,} connections, {result.calls:,} calls, "
        f"{result.messages:,} messages; connections ended: {ended or 'none'}"
    )


def _packets(seed: int, count: int, on_progress: Progress) -> tuple[dict[str, Any], str]:
    from covey.sim.experiments.fuzz.packets import PacketFuzzResult, fuzz_packets

    result = PacketFuzzResult()
    for result in fuzz_packets(seed, count):
        on_progress("sending packets", min(1.0, result.packets / count))
    return asdict(result), (
        f"{result.packets:,} packets to {result.connections:,} brokers, {result.refused:,} messages refused, "
        f"{result.broken:,} connections ended by a breach"
    )


def _filters(seed: int, count: int, on_progress: Progress) -> tuple[dict[str, Any], str]:
    from covey.sim.experiments.fuzz.hostile_filters import FilterFuzzResult, fuzz_filters

    result = FilterFuzzResult()
    for result in fuzz_filters(seed, count):
        on_progress("parsing filters", result.texts / count)
    return asdict(result), f"{result.texts:,} texts, {result.filters:,} of them filters"
