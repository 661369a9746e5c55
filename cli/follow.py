"""`covey follow`: one event on its way through the overlay."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated, Any

import typer

from covey.cli.support.access import NO_ACCESS, Access, with_access
from covey.cli.support.options import numbered
from covey.cli.support.waiting import CONNECT_S, Waiting, run_until_signal


@with_access
def follow(
    type_name: Annotated[str, typer.Argument(metavar="TYPE", help="The event type.")],
    event: Annotated[
        str | None,
        typer.Argument(
            metavar="EVENT",
            help="Event to publish: attributes as JSON, or as name=value words.",
            show_default=False,
        ),
    ] = None,
    identity: Annotated[
        str | None,
        typer.Option("--event", help="Published event to follow: PUBLISHER:SEQUENCE.", show_default=False),
    ] = None,
    broker: Annotated[
        str, typer.Option(help="Broker where the event enters or entered, HOST:PORT or unix:PATH.")
    ] = "localhost:7001",
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON lines, for programs.")] = False,
    access: Access = NO_ACCESS,
) -> None:
    """Publish an event and follow it from broker to broker: where it came from, went, and was delivered.

    With --event, follow an event that was published before, while brokers keep it (replay_events).

    Example: covey follow --broker localhost:7005 Quote 'firm=IBM price=9.5'
    """
    from covey.cli.explain import attributes

    if (event is None) == (identity is None):
        raise typer.BadParameter("expected an event to publish, or --event with a published one, not both")
    if event is not None:
        run_until_signal(_publish(broker, type_name, attributes(event), json_output, access))
        return
    publisher, sequence = numbered("--event", identity or "", "PUBLISHER:SEQUENCE", "feed/1a2b:7")
    asyncio.run(_follow(broker, type_name, publisher, sequence, json_output, access))


async def _publish(
    broker: str, type_name: str, values: dict[str, Any], json_output: bool, access: Access
) -> None:
    from covey.matcher import EventBatch
    from covey.overlay import Client

    async with Client(broker, connect_timeout=CONNECT_S, tls=access.tls, token=access.token) as client:
        event_type = await client.event_type(type_name)
        batch = EventBatch.from_pylist(event_type, [values])
        await Waiting(client).settle(client.advertise(event_type))
        await client.publish_batch(type_name, batch, confirm=True)
        await _follow(broker, type_name, client.publisher, 1, json_output, access)


async def _follow(
    broker: str, type_name: str, publisher: str, sequence: int, json_output: bool, access: Access
) -> None:
    from covey.overlay.client.unary import follow as walk

    started = time.perf_counter()
    async for step in walk(broker, type_name, publisher, sequence, access.credentials):
        step["after_ms"] = round((time.perf_counter() - started) * 1e3, 1)
        print(json.dumps(step) if json_output else _words(step), flush=True)


def _words(step: dict[str, Any]) -> str:
    if "error" in step:
        return f"{step['broker']}: {step['error']}"
    if not step["seen"]:
        return f"{step['broker']}: no such event, or evicted"
    links = ", ".join(step["links"]) or "no other broker"
    sessions = ", ".join(
        f"{name.removeprefix('client/')}#{i}" for name, ids in step["sessions"].items() for i in ids
    )
    if step["not_listed"]:
        sessions += f" and {step['not_listed']:,} more"
    calls = "".join(f"\n  {call}: {truth}" for call, truth in step["calls"].items())
    return (
        f"{step['broker']}: from {step['source']} to {links}; delivered to {sessions or 'no client'} "
        f"({step['after_ms']} ms){calls}"
    )
