"""`covey subscribe`: prints matching events; new values from standard input update the filter."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from covey.cli.publish import known_type, schema_of
from covey.cli.support.options import BROKER, NO_ACCESS, Access, Broker, Modules, import_modules, with_access
from covey.cli.support.waiting import CONNECT_S, run_until_signal, stdin_lines
from covey.matcher import EventBatch, Filter, parse
from covey.matcher.dialects import translate
from covey.matcher.errors import CoveyError, VariableError
from covey.overlay import Client, Gap, Notice, Subscription
from covey.overlay.client.subscription import validity_ns
from covey.overlay.core.moving.motion import Motion, check_values

_IN_FLIGHT = 1_024
_NUMBER = r"[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?"
_NEXT = re.compile(r"\s+(?=[^\s=\"'\[\](){}]+=)")
_MOTION = re.compile(rf"([-+]?{_NUMBER})([-+]{_NUMBER})\*t")


@with_access
def subscribe(
    type_name: Annotated[str, typer.Argument(metavar="TYPE", help="The event type.")],
    filter: Annotated[str, typer.Argument(help="The filter; by default every event matches.")] = "",
    broker: Broker = BROKER,
    set_values: Annotated[
        list[str] | None,
        typer.Option("--set", help="Value of a variable: limit=100, or limit=100+0.5*t. Repeatable."),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option(help="Attributes as name:kind,.... Default: the broker's.", show_default=False),
    ] = None,
    language: Annotated[
        str, typer.Option(help="Of the filter: covey, sql or eventbridge (docs/dialects.md).")
    ] = "covey",
    modules: Modules = None,
    gapless: Annotated[
        bool, typer.Option("--gapless", help="Replay events published while new values take effect.")
    ] = False,
    valid_for: Annotated[
        float | None,
        typer.Option(help="Seconds after which the broker ends the subscription, and the command with it."),
    ] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Exit after this number of events.")] = None,
    name: Annotated[str | None, typer.Option(help="The client's name; random by default.")] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print events as JSON lines.")] = False,
    access: Access = NO_ACCESS,
) -> None:
    """Subscribe, and print matching events until Ctrl-C, --count or the end of --valid-for.

    A line limit=90 updates the variable while events flow. low=1 high=5 updates several at once, and
    limit=90-0.5*t lets the value change continuously, by -0.5 per second. The time until the whole overlay
    has applied the update is printed. With --gapless, brokers replay the events published meanwhile that only
    the new values match; replayed events are out of order, and none is repeated.

    docs/filters.md describes the filter language, docs/operators.md the operators that a filter may call.

    Example: covey subscribe --broker localhost:7001 Quote 'firm == "IBM" and price < $limit' --set limit=100
    """
    import_modules(modules or ())
    if valid_for is not None:
        check_validity(valid_for)
    filter = translate(filter, language)
    words = [word for option in set_values or [] for word in split_words(option)]
    run_until_signal(
        _subscribe(
            type_name, filter, broker, words, schema, count, name, json_output, gapless, access, valid_for
        )
    )


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
    access: Access,
    valid_for: float | None = None,
) -> None:
    def on_state(connected: bool, reason: str) -> None:
        if not connected:
            print(f"connection lost: {reason}; reconnecting", file=sys.stderr)
        elif seen:
            print(f"reconnected, {reason}", file=sys.stderr)
        seen.append(connected)

    def on_gap(gap: Gap) -> None:
        first, last = (datetime.fromtimestamp(ns / 1e9, UTC).time() for ns in (gap.first_ns, gap.last_ns))
        print(
            f"{gap.count:,} events of {gap.type_name} from {first} to {last} were dropped: not read in time",
            file=sys.stderr,
        )

    def on_notice(notice: Notice) -> None:
        print(notice, file=sys.stderr)

    seen: list[bool] = []
    options: dict[str, Any] = {"on_state": on_state, "on_gap": on_gap, "on_notice": on_notice}
    options |= {"tls": access.tls, "token": access.token}
    async with Client(broker, name=name, connect_timeout=CONNECT_S, **options) as client:
        event_type = (
            schema_of(type_name, schema) if schema is not None else await known_type(client, type_name)
        )
        parsed = parse(filter, event_type)
        values = read_values(words, parsed)
        subscription = await client.subscribe(event_type, parsed, values=values, valid_for=valid_for)
        print(f"subscribed to {type_name}: {filter or 'every event'}", file=sys.stderr)
        moves = asyncio.create_task(_move(subscription, gapless))
        with suppress(asyncio.CancelledError):  # by a signal
            await _print_events(subscription, count, json_output)
            if subscription.expired:
                print(f"the subscription has ended after {valid_for:g} s", file=sys.stderr)
        moves.cancel()
        await asyncio.wait({moves})
        if not moves.cancelled():
            moves.result()  # it ends with standard input, or raises


def check_validity(valid_for: float) -> None:
    """`BadParameter` for a period that a subscription may not have."""
    try:
        validity_ns(valid_for)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--valid-for") from None


def split_words(text: str) -> list[str]:
    """The name=value words of a line; a value, such as a polygon's, may contain spaces."""
    return _NEXT.split(text.strip())


def read_values(words: list[str], filter: Filter) -> dict[str, Any]:
    """Values from name=value words: numbers and booleans where the filter accepts them, else text. 100+0.5*t,
    where a number is accepted, is a motion of 0.5 per second."""
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().removeprefix("$")
        if not equals or not name:
            raise VariableError(f"{word!r}: expected name=value, such as limit=100")
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            motion = _MOTION.fullmatch(text.strip())
            value = Motion(float(motion[1]), float(motion[2])) if motion else text
        try:
            check_values(filter, {name: value}, partial=True)
        except VariableError as error:
            try:
                filter.check_values({name: text}, partial=True)
            except VariableError as as_text:
                raise (error if isinstance(value, Motion) else as_text) from None
            value = text
        values[name] = value
    return values


async def _move(subscription: Subscription, gapless: bool) -> None:
    """Update variables from standard input, without waiting for earlier updates."""
    room = asyncio.Semaphore(_IN_FLIGHT)
    async with asyncio.TaskGroup() as moves:
        async for line in stdin_lines():
            if line.strip():
                await room.acquire()
                move = moves.create_task(_apply(subscription, line.strip(), gapless))
                move.add_done_callback(lambda _: room.release())


async def _apply(subscription: Subscription, line: str, gapless: bool) -> None:
    try:
        values = read_values(split_words(line), subscription.filter)
        start = time.perf_counter()
        await subscription.update(values=values, gapless=gapless)
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
