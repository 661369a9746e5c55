"""`covey plan`: what a load will cost each broker of an overlay."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli.support.options import Json

if TYPE_CHECKING:
    from covey.sim.experiments.planning import BrokerFigures

_COLUMNS = (
    "broker", "figures", "events in/s", "out/s", "updates/s", "delay p50 ms", "p99 ms", "memory MiB", "cores",
)  # fmt: skip
_PLAYED = 0.9
_BUSY = 0.7
"""The share of a core above which queues grow in bursts."""


def plan(
    overlay: Annotated[Path, typer.Argument(metavar="OVERLAY", help="The overlay file.")],
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="The load: a scenario file.")],
    measure: Annotated[
        bool, typer.Option("--measure", help="Play the load over real brokers here, too.")
    ] = False,
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="Calibration of the machine: read if it is there, else written.", show_default=False
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Predict rates, delay, memory and cores of each broker of an overlay under a load.

    The simulator plays the load over the overlay's tree. What a message costs is calibrated first, in ten
    seconds of brokers on this machine; with --calibration by a file, such as that of another machine.

    Example: covey plan overlay.yaml mine.yaml --measure
    """
    from covey.cli.support.output import load_kernels, print_json, print_table, progress
    from covey.overlay.node.config import load_overlay
    from covey.sim.experiments import planning
    from covey.sim.topology import of_overlay

    loaded = load_overlay(overlay)
    load, tree = planning.load_plan(scenario, loaded), of_overlay(loaded)
    for sentence in planning.overridden(scenario, loaded):
        print(f"covey: {scenario}: {sentence}", file=sys.stderr)
    load_kernels()
    with progress() as on_progress:
        if calibration is not None and calibration.exists():
            machine = planning.Calibration.read(calibration)
        else:
            machine = planning.calibrate(on_progress)
            if calibration is not None:
                machine.write(calibration)
        figures = {"predicted": planning.predict(load, tree, machine, on_progress)}
        if measure:
            figures["measured"] = planning.measure(load, tree, on_progress)
    played = planning.share_played(figures["predicted"], figures["measured"]) if measure else None
    left_out = planning.not_predicted(loaded)
    if json_output:
        by_kind: dict[str, Any] = {kind: [asdict(each) for each in found] for kind, found in figures.items()}
        costs = {"calibration": machine.model_dump(), "not_predicted": left_out}
        print_json(by_kind | costs | ({} if played is None else {"share_played": round(played, 4)}))
        return
    rows = [
        _row(kind, each) for of_broker in zip(*figures.values(), strict=True)
        for kind, each in zip(figures, of_broker, strict=True)
    ]  # fmt: skip
    print_table(f"{scenario} on {overlay}", _COLUMNS, rows, names=2)
    _conclude(figures["predicted"])
    if played is not None and played < _PLAYED:
        print(f"only {played:.0%} of the load was played: this machine is too slow for it, or busy")
    if left_out:
        print(f"not part of the prediction: {', '.join(left_out)} of {overlay}")


def _row(kind: str, each: BrokerFigures) -> list[Any]:
    return [
        each.broker,
        kind,
        each.events_in,
        each.events_out,
        each.updates,
        "" if each.delay_p50_ms is None else each.delay_p50_ms,
        "" if each.delay_p99_ms is None else each.delay_p99_ms,
        round(each.memory_bytes / 2**20, 1),
        each.cores,
    ]


def _conclude(predicted: Sequence[BrokerFigures]) -> None:
    busiest = max(predicted, key=lambda each: each.cores)
    memory_bytes = sum(each.memory_bytes for each in predicted)
    cores = sum(each.cores for each in predicted)
    print(f"together {cores:.2f} cores and {memory_bytes / 2**20:,.0f} MiB; a broker uses one core at most")
    if busiest.cores > _BUSY:
        print(
            f"{busiest.broker} needs {busiest.cores:.0%} of its core: publish in batches, or spread its "
            "clients over more brokers (docs/how-to-size.md)"
        )
