"""`lone`: what one event costs that comes alone, in Covey, in systems without content, and in a bare relay.

    publisher -> server -> readers

Each is a process. A round starts the systems one after the other: events at low rates, which never meet each
other, and then a loop of publish. The medians of the rounds are shown. Nothing is stored. Covey's way of one
event and of one update is traced besides, call by call.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from benchmarks.lone_clients import Phase, Published, Received, phases, publish_phases, read_phases
from benchmarks.lone_systems import SYSTEMS
from benchmarks.lone_trace import Trace, trace_ways
from covey.cli.support.options import Json, choices
from covey.cli.support.output import print_json, print_table
from covey.cli.support.progress import compile_once, progress
from covey.matcher.errors import CoveyError
from covey.sim.progress import Progress, silent

_NEEDS = {"nats": ("nats-server", "nats"), "mosquitto": ("mosquitto", "gmqtt")}
_PATIENCE_S = 150.0


@dataclass(frozen=True, slots=True)
class LonePlan:
    """Rounds through the systems; events per second, for so many seconds each; events of a loop; readers
    beside which the loop is repeated.
    """

    systems: tuple[str, ...]
    rounds: int = 3
    rates: tuple[int, ...] = (100, 1_000)
    seconds: float = 4.0
    loop: int = 50_000
    readers: tuple[int, ...] = (1, 4)


@dataclass(frozen=True, slots=True)
class LoneResult:
    """Medians of one system, by name of the figure."""

    label: str
    figures: dict[str, float]


def installed() -> list[str]:
    """The systems whose server is on the PATH and whose client is installed."""
    return [
        name
        for name in SYSTEMS
        if name not in _NEEDS or (shutil.which(_NEEDS[name][0]) and find_spec(_NEEDS[name][1]))
    ]


async def measure_lone(plan: LonePlan, progress: Progress = silent) -> list[LoneResult]:
    """A result per system. `CoveyError` where events do not arrive."""
    figures: dict[str, list[dict[str, float]]] = {name: [] for name in plan.systems}
    steps = plan.rounds * len(plan.systems)
    for step in range(steps):
        number, at = divmod(step, len(plan.systems))
        name = plan.systems[at]
        progress(f"round {number + 1}: {SYSTEMS[name].label}", step / steps)
        figures[name].append(await _round(name, plan))
    return [
        LoneResult(
            SYSTEMS[name].label,
            {figure: float(np.median([each[figure] for each in rounds])) for figure in rounds[0]},
        )
        for name, rounds in figures.items()
    ]


async def _round(name: str, plan: LonePlan) -> dict[str, float]:
    figures: dict[str, float] = {}
    for readers in plan.readers:
        alone = readers == plan.readers[0]
        todo = phases(plan.rates if alone else (), plan.seconds, plan.loop)
        published, received = await _run(name, todo, readers)
        for at, phase in enumerate(todo):
            if phase.rate and at:
                figures |= _of_rate(phase.rate, published[at], received[0][at])
        first_ns = min(each[-1].first_ns for each in received)
        last_ns = max(each[-1].last_ns for each in received)
        figures[f"delivered/s, {readers}"] = readers * plan.loop / (last_ns - first_ns) * 1e9
        figures[f"loop us, {readers}"] = published[-1].publisher_us
    return figures


def _of_rate(rate: int, published: Published, received: Received) -> dict[str, float]:
    p50, p99 = np.percentile(received.latencies, (50, 99), method="higher") / 1e6
    return {
        f"server us, {rate}/s": published.server_us,
        f"server %, {rate}/s": published.server_cpu * 100,
        f"publisher us, {rate}/s": published.publisher_us,
        f"subscriber us, {rate}/s": received.reader_us,
        f"p50 ms, {rate}/s": float(p50),
        f"p99 ms, {rate}/s": float(p99),
    }


async def _run(name: str, todo: list[Phase], readers: int) -> tuple[list[Published], list[list[Received]]]:
    """One server with a publisher and its readers."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="covey-")))
        address, server = await SYSTEMS[name].serve(stack, folder)
        reading = [_process(stack, read_phases, name, address, todo) for _ in range(readers)]
        for reader in reading:
            await _received(reader)
        publisher = _process(stack, publish_phases, name, address, server, todo)
        await _received(publisher)
        publisher.send(None)
        for phase in todo:
            if not phase.rate:
                await _received(publisher)
            for reader in reading:
                await _received(reader)
            if not phase.rate:
                publisher.send(None)
        received = [await _received(reader) for reader in reading]
        return await _received(publisher), received


def _process(stack: AsyncExitStack, function: Any, *arguments: Any) -> Connection:
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=function, args=(*arguments, there), daemon=True)
    process.start()
    there.close()
    stack.callback(process.join, 10)
    return here


async def _received(connection: Connection) -> Any:
    if not await asyncio.to_thread(connection.poll, _PATIENCE_S):
        raise CoveyError(f"a process of the benchmark did not respond within {_PATIENCE_S:g} s")
    try:
        return connection.recv()
    except EOFError:
        raise CoveyError("a process of the benchmark has ended early") from None


def lone(
    systems: Annotated[
        str | None,
        typer.Option(
            help=f"Of {', '.join(SYSTEMS)}; several separated by commas.",
            show_default="those that are installed",
        ),
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds through all systems; medians are shown.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of each rate in a round.")] = 4.0,
    loop: Annotated[int, typer.Option(min=100, help="Events of a loop of publish.")] = 50_000,
    json_output: Json = False,
) -> None:
    """Measure what one event costs that comes alone, beside NATS, mosquitto and a bare relay of bytes.

    User time per event of the server, the publisher and the subscriber, and latency, at 100 and 1,000
    events per second; events delivered per second by a loop of publish, with one subscriber and with four.
    Then the calls of functions that one publish and one update make in Covey, over two brokers. Needs
    Covey's extra `bench`.

    Example: python -m benchmarks lone --systems covey,nats
    """
    compile_once()
    chosen = installed() if systems is None else list(choices("systems", systems, tuple(SYSTEMS)))
    plan = LonePlan(tuple(chosen), rounds=rounds, seconds=seconds, loop=loop)
    with progress() as on_progress:
        results = asyncio.run(measure_lone(plan, on_progress))
        traces = asyncio.run(trace_ways()) if "covey" in chosen else {}
    if json_output:
        print_json(
            {
                "systems": [asdict(each) for each in results],
                "trace": {way: asdict(each) for way, each in traces.items()},
            }
        )
        return
    rows = [[figure, *(_shown(each.figures[figure]) for each in results)] for figure in results[0].figures]
    print_table("One event at a time", ["", *(each.label for each in results)], rows)
    if traces:
        _print_traces(traces)


def _print_traces(traces: dict[str, Trace]) -> None:
    folders = sorted({folder for trace in traces.values() for folder in trace.folders})
    rows: list[list[object]] = [
        [field, *(getattr(trace, field) for trace in traces.values())]
        for field in ("calls", "functions", "files", "crossings")
    ]
    rows += [[folder, *(trace.folders.get(folder, 0) for trace in traces.values())] for folder in folders]
    print_table("Calls over two brokers", ["", *traces], rows)


def _shown(figure: float) -> str:
    return f"{figure:,.0f}" if figure >= 100 else f"{figure:.2f}"
