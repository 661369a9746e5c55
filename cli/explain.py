"""`covey explain`: where an event would stop before a subscription; `covey follow`: one event's way."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Annotated, Any

import typer

from covey.cli.support.options import BROKER, NO_ACCESS, Access, Json, numbered, with_access
from covey.cli.support.waiting import CONNECT_S, run_until_signal
from covey.matcher import EventBatch
from covey.matcher.errors import EventError
from covey.overlay import Client
from covey.overlay.client import unary


@with_access
def explain(
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="Attributes as JSON, or as name=value words.")
    ],
    subscription: Annotated[str, typer.Argument(metavar="SUBSCRIPTION_ID", help="CLIENT#NUMBER.")],
    broker: Annotated[str, typer.Option(help="Broker of the subscriber, HOST:PORT or unix:PATH.")] = BROKER,
    json_output: Json = False,
    access: Access = NO_ACCESS,
) -> None:
    """Walk the overlay from a subscription to the publishers, and show where an event would stop and why.

    Shows for each broker the filter with its values, its slots at neighbours, and the epoch of the last
    update. Publishes nothing. covey inspect lists clients and their subscriptions.

    Example: covey explain --broker localhost:7001 'firm=IBM price=9.5' trader-1#1
    """
    client, number = numbered("subscription", subscription, "CLIENT#NUMBER", "trader-1#1")
    steps, verdicts = asyncio.run(
        unary.explain(broker, client, number, attributes(event), access.credentials)
    )
    if json_output:
        print(json.dumps({"steps": steps, "verdicts": verdicts}, indent=2))
        return
    for step in steps:
        _print(step)
    for verdict in verdicts:
        print(verdict)


def attributes(text: str) -> dict[str, Any]:
    """Parse an event: a JSON object, or name=value words whose values are JSON or else text. `EventError` for
    any other text, and for no attributes."""
    values: dict[str, Any] = {}
    if text.lstrip().startswith("{"):
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise EventError(f"no JSON: {error}") from None
    else:
        for word in text.split():
            name, equals, value = word.partition("=")
            if not equals or not name:
                raise EventError(f"{word!r}: expected name=value, such as price=9.5")
            try:
                values[name] = json.loads(value)
            except ValueError:
                values[name] = value
    if not values:
        raise EventError(f"event {text!r}: expected at least one attribute, such as price=9.5")
    return values


def _print(step: dict[str, Any]) -> None:
    slot = f"{step['interface']}#{step['subscription']}"
    print(f"{step['broker']}: {slot} subscribes to {step['filter']} (epoch {step['epoch']})")
    passes_on = "  undecided: the event is passed on" if step["undecided"] else "  matches"
    print(passes_on if step["matches"] else "  does not match")
    if step["form"]:
        print(f"    {step['form']}")
    for reason in step["failing"] or step["calls"]:
        print(f"    {reason}")
    for way in step["upstream"]:
        if way["slot"] is None:
            print(f"  no slot at {way['neighbour']}, which promises {way['promised']}")
        else:
            state = "in effect" if way["acknowledged"] else "not yet acknowledged"
            slot = f"slot {way['slot']} at {way['neighbour']}: {way['filter']}"
            print(f"  {slot} (epoch {way['epoch']}, {state})")
    for publisher in step["publishers"]:
        print(f"  {publisher} publishes here")


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
    ] = BROKER,
    json_output: Annotated[bool, typer.Option("--json", help="Print JSON lines, for programs.")] = False,
    access: Access = NO_ACCESS,
) -> None:
    """Publish an event and follow it from broker to broker: where it came from, went, and was delivered.

    With --event, follow an event that was published before, while brokers keep it (replay_events); exits with
    1 where no broker has it.

    Example: covey follow --broker localhost:7005 Quote 'firm=IBM price=9.5'
    """
    if (event is None) == (identity is None):
        raise typer.BadParameter("expected an event to publish, or --event with a published one, not both")

    async def follow_it(publisher: str, sequence: int) -> bool:
        """Print each step; returns whether any broker has the event."""
        started = time.perf_counter()
        seen = False
        async for step in unary.follow(broker, type_name, publisher, sequence, access.credentials):
            step["after_ms"] = round((time.perf_counter() - started) * 1e3, 1)
            seen = seen or bool(step.get("seen"))
            print(json.dumps(step) if json_output else _words(step), flush=True)
        return seen

    async def publish_and_follow(values: dict[str, Any]) -> None:
        async with Client(broker, connect_timeout=CONNECT_S, tls=access.tls, token=access.token) as client:
            event_type = await client.event_type(type_name)
            batch = EventBatch.from_pylist(event_type, [values])
            await client.advertise(event_type)
            await client.publish_batch(type_name, batch, confirm=True)
            await follow_it(client.publisher, 1)

    if event is not None:
        run_until_signal(publish_and_follow(attributes(event)))
        return
    publisher, sequence = numbered("--event", identity or "", "PUBLISHER:SEQUENCE", "feed/1a2b:7")
    if not asyncio.run(follow_it(publisher, sequence)):
        raise typer.Exit(1)


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
