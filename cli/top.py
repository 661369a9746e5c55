"""`covey top`: all brokers of an overlay in one table."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from covey.cli.support.options import BROKER, NO_ACCESS, Access, Json, with_access
from covey.cli.support.output import console, print_json
from covey.overlay.client.unary import BrokerRow, Overview, OverviewReader

_FIRST_RATE_S = 1.0
"""Between the two readings that give a single answer its rates."""
_COLUMNS = (
    "broker", "state", "links", "events in/s", "out/s", "updates/s", "sessions", "subscriptions",
    "waiting", "waiting bytes", "dropped", "update p99", "stored", "memory",
)  # fmt: skip


@with_access
def top(
    broker: Annotated[str, typer.Option(help="Address of any broker, HOST:PORT or unix:PATH.")] = BROKER,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two readings.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print one table, and exit.")] = False,
    json_output: Json = False,
    access: Access = NO_ACCESS,
) -> None:
    """Show all brokers of the overlay, what waits where, and what is wrong; Ctrl-C ends it.

    One broker leads to all others, by the addresses of the overlay file. Where standard output is no
    terminal, or with --json, one table is printed, with the rates of a second.

    Example: covey top --broker localhost:7001
    """
    reader = OverviewReader(broker, access.credentials)
    if once or json_output or not sys.stdout.isatty():
        overview = asyncio.run(_twice(reader))
        if json_output:
            print_json(asdict(overview))
        else:
            console().print(show(overview))
        return
    asyncio.run(_watch(reader, every))


async def _twice(reader: OverviewReader) -> Overview:
    await reader.read()
    await asyncio.sleep(_FIRST_RATE_S)
    return await reader.read()


async def _watch(reader: OverviewReader, every: float) -> None:
    with Live(show(await reader.read()), screen=True, auto_refresh=False) as live:
        while True:
            await asyncio.sleep(every)
            live.update(show(await reader.read()), refresh=True)


def show(overview: Overview) -> RenderableType:
    table = Table(box=None, header_style="bold")
    for place, column in enumerate(_COLUMNS):
        table.add_column(column, justify="left" if place < 2 else "right")
    for row in overview.brokers:
        style = "" if row.state == "serving" else "red" if row.state == "no answer" else "yellow"
        table.add_row(*map(Text, cells(row)), style=style)
    parts: list[RenderableType] = [table, Text()]
    if overview.others:
        read = len(overview.brokers)
        text = f"{read:,} brokers are read; others that they are linked with: {overview.others:,}"
        parts += [Text(text, style="yellow"), Text()]
    parts += [
        Text(f"{problem.broker}: {problem.text} (docs/{problem.page})", style="red")
        for problem in overview.problems
    ]
    if not overview.problems:
        parts.append(Text("nothing is wrong", style="green"))
    if overview.slowest:
        parts += [Text(), Text("most waits for", style="bold")]
        parts += [Text(f"  {_waiting(each)}") for each in overview.slowest]
    if overview.largest:
        parts += [Text(), Text("most subscriptions", style="bold")]
        parts += [Text(f"  {_subscribed(each)}") for each in overview.largest]
    return Group(*parts)


def cells(row: BrokerRow) -> list[str]:
    if row.state == "no answer":
        return [row.broker, f"{row.state} at {row.address}", *[""] * (len(_COLUMNS) - 2)]
    p99 = "" if row.update_p99_s is None else f"{row.update_p99_s * 1e3:g} ms"
    return [
        row.broker,
        row.state,
        row.links,
        *(f"{rate:,.0f}" for rate in (row.events_in, row.events_out, row.updates)),
        *(f"{count:,}" for count in (row.sessions, row.subscriptions, row.waiting_events)),
        size(row.waiting_bytes),
        f"{row.dropped:,}",
        p99,
        size(row.stored_bytes),
        size(row.resident_bytes),
    ]


def size(count: int | None) -> str:
    """Bytes in the largest unit of which there is at least one."""
    if count is None:
        return ""
    for unit, bytes_ in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= bytes_:
            return f"{count / bytes_:,.1f} {unit}"
    return str(count)


def _name(each: dict[str, Any]) -> str:
    kind, _, name = each["interface"].partition("/")
    return name if kind == "client" else f"{kind} {name}"


def _subscribed(each: dict[str, Any]) -> str:
    return f"{_name(each)} at {each['broker']}: {each['subscriptions']:,}"


def _waiting(each: dict[str, Any]) -> str:
    ends = "" if each["connected"] else ", disconnected"
    return f"{_name(each)} at {each['broker']}: {each['events']:,} events, {size(each['bytes'])}{ends}"
