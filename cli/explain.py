"""`covey explain`: where an event would stop on its way to a subscription, and why."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

import typer

from covey.cli.support.access import NO_ACCESS, Access, with_access
from covey.cli.support.options import Json, numbered


@with_access
def explain(
    event: Annotated[
        str, typer.Argument(metavar="EVENT", help="Attributes as JSON, or as name=value words.")
    ],
    subscription: Annotated[str, typer.Argument(metavar="SUBSCRIPTION_ID", help="CLIENT#NUMBER.")],
    broker: Annotated[
        str, typer.Option(help="Broker of the subscriber, HOST:PORT or unix:PATH.")
    ] = "localhost:7001",
    json_output: Json = False,
    access: Access = NO_ACCESS,
) -> None:
    """Walk the overlay from a subscription to the publishers, and show where an event would stop and why.

    Shows for each broker the filter with its values, its slots at neighbours, and the epoch of the last
    update. Publishes nothing. covey inspect lists clients and their subscriptions.

    Example: covey explain --broker localhost:7001 'firm=IBM price=9.5' trader-1#1
    """
    from covey.overlay.client.unary import explain as walk

    client, number = numbered("subscription", subscription, "CLIENT#NUMBER", "trader-1#1")
    steps, verdicts = asyncio.run(walk(broker, client, number, attributes(event), access.credentials))
    if json_output:
        print(json.dumps({"steps": steps, "verdicts": verdicts}, indent=2))
        return
    for step in steps:
        _print(step)
    for verdict in verdicts:
        print(verdict)


def attributes(text: str) -> dict[str, Any]:
    """The attributes of an event: a JSON object, or name=value words whose values are JSON or else text.

    `EventError` for any other text, or no attributes.
    """
    from covey.matcher.errors import EventError

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
