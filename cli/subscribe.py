"""`covey subscribe`: the events that match a filter, as they come; typing new values moves the filter."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli.support.waiting import CONNECT_S, Waiting, run_until_signal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from covey.matcher import EventBatch, EventType, Filter
    from covey.overlay import Subscription

_UNDER_WAY = 1_024
_NUMBER = r"[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?"
_MOTION = re.compile(rf"([-+]?{_NUMBER})([-+]{_NUMBER})\*t")


def subscribe(
    type_name: Annotated[str, typer.Argument(metavar="TYPE", help="The event type.")],
    filter: Annotated[str, typer.Argument(help="What to match; every event if not given.")] = "",
    broker: Annotated[str, typer.Option(help="Address of the broker, HOST:PORT.")] = "localhost:7001",
    set_values: Annotated[
        list[str] | None,
        typer.Option("--set", help="Value of a variable: limit=100, or limit=100+0.5*t. May be repeated."),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(
            help="Attributes as name:kind,...; the broker is asked if not given.", show_default=False
        ),
    ] = None,
    gapless: Annotated[
        bool,
        typer.Option("--gapless", help="With new values, also print what was published since."),
    ] = False,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many events.")] = None,
    name: Annotated[str | None, typer.Option(help="The client's name; made up if not given.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
) -> None:
    """Subscribe, and print matching events until Ctrl-C or --count.

    Typing limit=90 gives the variable a new value while events flow; several, as in low=1 high=5, change at
    once, and limit=90-0.5*t has it change by itself every second. The time until the whole overlay has
    applied it is shown. With --gapless brokers replay what was published meanwhile and only the new values
    match; such events come out of their order, and none twice.

    Example: covey subscribe --broker localhost:7001 Quote 'firm == "IBM" and price < $limit' --set limit=100
    """
    words = [word for given in set_values or [] for word in given.split() if word]
    run_until_signal(_subscribe(type_name, filter, broker, words, schema, count, name, json_output, gapless))


async def _subscribe(
    type_name: str,
    filter: str,
    broker: str,
    words: list[str],
    schema: str | None,
    count: int | None,
    name: str | None,
    json_output: bool,
    gapless: bool,
) -> None:
    from covey.cli.publish import known_type, schema_of
    from covey.matcher import parse
    from covey.overlay import Client

    def on_state(connected: bool, reason: str) -> None:
        if not connected:
            print(f"connection lost: {reason}; trying again", file=sys.stderr)
        elif seen:
            print(f"connected again, {reason}", file=sys.stderr)
        seen.append(connected)

    seen: list[bool] = []
    async with Client(broker, name=name, connect_timeout=CONNECT_S, on_state=on_state) as client:
        event_type: EventType = (
            schema_of(type_name, schema) if schema is not None else await known_type(client, type_name)
        )
        parsed = parse(filter, event_type)
        values = read_values(words, parsed)
        waiting = Waiting(client)
        subscription = await waiting.settle(client.subscribe(event_type, parsed, values=values))
        print(f"subscribed to {type_name}: {filter or 'every event'}", file=sys.stderr)
        moves = asyncio.create_task(_move(subscription, gapless, waiting))
        with suppress(asyncio.CancelledError):  # a signal is how this ends
            await _print_events(subscription, count, json_output)
        moves.cancel()
        await asyncio.wait({moves})
        if not moves.cancelled():
            moves.result()  # it ends with standard input, or fails by a defect


def read_values(words: list[str], filter: Filter) -> dict[str, Any]:
    """Values given as name=value: numbers, true and false as such where the filter takes them, else text;
    100+0.5*t, where a number may stand, for one that grows by 0.5 every second.
    """
    from covey.matcher.errors import VariableError
    from covey.overlay.core.moving.motion import Motion, check_values

    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().removeprefix("$")
        if not equals or not name:
            raise VariableError(f"{word!r}: expected name=value, such as limit=100")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            moving = _MOTION.fullmatch(text.strip())
            value = Motion(float(moving[1]), float(moving[2])) if moving else text
        try:
            check_values(filter, {name: value}, partial=True)
        except VariableError:
            value = text
            filter.check_values({name: value}, partial=True)
        values[name] = value
    return values


async def _move(subscription: Subscription, gapless: bool, waiting: Waiting) -> None:
    """Give variables new values as they are typed in, without waiting for those before."""
    from covey.cli.support.lines import stdin_lines

    room = asyncio.Semaphore(_UNDER_WAY)
    async with asyncio.TaskGroup() as moves:
        async for line in stdin_lines():
            if line.strip():
                await room.acquire()
                move = moves.create_task(_apply(subscription, line.strip(), gapless, waiting))
                move.add_done_callback(lambda _: room.release())


async def _apply(subscription: Subscription, line: str, gapless: bool, waiting: Waiting) -> None:
    from covey.matcher.errors import CoveyError

    try:
        values = read_values(line.split(), subscription.filter)
        start = time.perf_counter()
        await waiting.settle(subscription.update(values=values, gapless=gapless))
        took_ms = (time.perf_counter() - start) * 1e3
        print(f"{line}: applied in {took_ms:.1f} ms", file=sys.stderr, flush=True)
    except CoveyError as error:
        print(f"covey: {error}", file=sys.stderr, flush=True)


async def _print_events(subscription: Subscription, count: int | None, json_output: bool) -> None:
    left = count
    async for batch in subscription.batches():
        if left is not None:
            batch = batch.slice(0, left)
            left -= len(batch)
        sys.stdout.write("".join(_lines(batch, json_output)))
        sys.stdout.flush()
        if left == 0:
            return


def _lines(batch: EventBatch, json_output: bool) -> list[str]:
    if json_output:
        return [json.dumps(event, default=_plain) + "\n" for event in batch.to_pylist()]
    name = batch.event_type.name
    return [f"{name} {_words(event)}\n" for event in batch.to_pylist()]


def _words(event: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={_plain(value)}" for name, value in event.items() if value is not None)


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value
