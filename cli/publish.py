"""`covey publish`: events from a CSV file, or typed in as JSON lines."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from covey.cli.support.options import Json
from covey.cli.support.waiting import CONNECT_S, Waiting, run_until_signal

if TYPE_CHECKING:
    import pyarrow as pa

    from covey.cli.counting import CountingSession
    from covey.matcher import EventType
    from covey.overlay import Client, RefusedError

_BATCH_EVENTS = 1_024
_UNDER_WAY = 8
_SHOWN = 5
_EVENT = re.compile(r"^event (\d+) of ")


def publish(
    type_name: Annotated[str, typer.Argument(metavar="TYPE", help="The event type.")],
    file: Annotated[
        str, typer.Argument(help="A CSV file with a header line; - for JSON lines from standard input.")
    ] = "-",
    broker: Annotated[str, typer.Option(help="Address of the broker, HOST:PORT.")] = "localhost:7001",
    schema: Annotated[
        str | None,
        typer.Option(
            help="Attributes as name:kind,...; kinds are int64, float64, string, bool, timestamp. "
            "The broker is asked if not given.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Events per second; as fast as they are taken if not given.")
    ] = None,
    name: Annotated[str | None, typer.Option(help="The client's name; made up if not given.")] = None,
    json_output: Json = False,
) -> None:
    """Publish events to an overlay.

    A line of JSON that is no event is reported with its number, and the rest goes on; the status is then 1.
    So it is with a row of a file that is refused; a file that cannot be read on ends the command.

    Example: covey publish --broker localhost:7005 Quote quotes.csv --schema
    firm:string,price:float64,volume:int64

    Example: echo '{"firm": "IBM", "price": 9.5}' | covey publish --broker localhost:7005 Quote
    """
    from covey.matcher.errors import CoveyError

    if rate is not None and not rate > 0:
        raise CoveyError(f"--rate is {rate:g}: expected a number of events per second above 0")
    if file != "-" and not Path(file).is_file():
        raise CoveyError(f"{file}: no such file")
    declared = schema_of(type_name, schema) if schema is not None else None
    published, bad, seconds = run_until_signal(_publish(type_name, declared, file, broker, rate, name))
    if json_output:
        print(json.dumps({"published": published, "refused": bad, "seconds": round(seconds, 3)}))
    else:
        refused = f", {bad} refused" if bad else ""
        print(f"published {published:,} events of {type_name} in {seconds:.2f} s{refused}")
    raise typer.Exit(1 if bad else 0)


async def known_type(client: Client, type_name: str) -> EventType:
    """The event type as the overlay knows it; the refusal otherwise says what to do about it."""
    from covey.overlay import RefusedError

    try:
        return await client.event_type(type_name)
    except RefusedError as error:
        if error.status != "NOT_FOUND":
            raise
        raise RefusedError(error.status, f"{error}; give its attributes with --schema") from None


def schema_of(type_name: str, text: str) -> EventType:
    from covey.matcher import EventType
    from covey.matcher.errors import EventTypeError

    attributes: dict[str, str] = {}
    for part in text.split(","):
        attribute, colon, kind = (word.strip() for word in part.partition(":"))
        if not colon:
            raise EventTypeError(f"--schema has {part.strip()!r}: expected name:kind, such as price:float64")
        if attribute in attributes:
            raise EventTypeError(f"--schema has attribute {attribute!r} twice")
        attributes[attribute] = kind
    return EventType(type_name, attributes)


async def _publish(
    type_name: str, declared: EventType | None, file: str, broker: str, rate: float | None, name: str | None
) -> tuple[int, int, float]:
    from covey.cli.counting import CountingSession
    from covey.overlay import Client

    name = name or f"client-{secrets.token_hex(6)}"
    session = CountingSession(f"{name}/{secrets.token_hex(6)}")
    async with Client(broker, name=name, connect_timeout=CONNECT_S, session=session) as client:
        event_type = declared or await known_type(client, type_name)
        await Waiting(client).settle(client.advertise(event_type))
        start = time.perf_counter()
        pace = _Pace(rate)
        if file == "-":
            published, bad = await _publish_lines(client, event_type, pace)
        else:
            rows = await _publish_csv(client, session, event_type, file, pace)
            published, bad = session.published, rows - session.published
        return published, bad, time.perf_counter() - start


class _Pace:
    """Lets events go at a rate; any number at once if there is none."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._start = time.perf_counter()
        self._gone = 0

    @property
    def batch(self) -> int:
        """Events that go together: what a hundredth of a second takes."""
        return _BATCH_EVENTS if self._rate is None else max(1, min(_BATCH_EVENTS, int(self._rate / 100)))

    async def go(self, events: int) -> None:
        if self._rate is not None:
            due = self._start + self._gone / self._rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        self._gone += events


async def _publish_csv(
    client: Client, session: CountingSession, event_type: EventType, file: str, pace: _Pace
) -> int:
    """How many rows the file has; what is refused of them takes no others with it, and is said."""
    import pyarrow as pa
    from pyarrow import csv

    from covey.matcher.errors import EventError
    from covey.matcher.events.event_type import Kind

    # Times are read as text: Arrow's reader wants to know beforehand whether they name a zone.
    types = {
        attribute: pa.string() if kind is Kind.TIMESTAMP else kind.arrow
        for attribute, kind in event_type.attributes.items()
    }
    rows = 0
    refusals: list[RefusedError] = []
    waiting: set[asyncio.Task[None]] = set()
    try:
        reader = csv.open_csv(file, convert_options=csv.ConvertOptions(column_types=types))
        for records in reader:
            records = _with_times(records, event_type)
            for start in range(0, records.num_rows, pace.batch):
                part = records.slice(start, pace.batch)
                await pace.go(part.num_rows)
                publishing = _publish_rows(client, event_type.name, part, rows, file, refusals)
                waiting.add(asyncio.create_task(publishing))
                rows += part.num_rows
                if len(waiting) >= _UNDER_WAY:
                    done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
                        waiting.remove(task)
        await asyncio.gather(*waiting)
    except (pa.ArrowException, EventError) as error:
        await asyncio.gather(*waiting, return_exceptions=True)
        before = f"; {session.published:,} events were published" if session.published else ""
        raise EventError(f"{file}: {' '.join(str(error).split())}{before}") from None
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    if len(refusals) > _SHOWN:
        print(f"covey: {file}: and more in {len(refusals) - _SHOWN:,} other places", file=sys.stderr)
    return rows


async def _publish_rows(
    client: Client, type_name: str, part: pa.RecordBatch, before: int, file: str, refusals: list[RefusedError]
) -> None:
    """Publish a part of a file that has so many rows before it."""
    from covey.matcher.errors import EventError
    from covey.overlay import RefusedError

    def by_row(error: Exception) -> str:
        return _EVENT.sub(lambda found: f"row {before + int(found[1]) + 1:,} of ", str(error))

    try:
        await client.publish_batch(type_name, part)
    except EventError as error:
        raise EventError(by_row(error)) from None
    except RefusedError as error:
        refusals.append(error)
        if len(refusals) <= _SHOWN:
            print(f"covey: {file}: {by_row(error)}", file=sys.stderr)


def _with_times(records: pa.RecordBatch, event_type: EventType) -> pa.RecordBatch:
    """Columns of times in ISO 8601 text as timestamps; without a zone they are UTC."""
    import pyarrow as pa

    from covey.matcher.events.event_type import Kind

    for position, name in enumerate(records.schema.names):
        if event_type.attributes.get(name) is Kind.TIMESTAMP:
            column = records.column(position)
            try:
                times = column.cast(pa.timestamp("us")).cast(Kind.TIMESTAMP.arrow)
            except pa.ArrowInvalid:
                times = column.cast(Kind.TIMESTAMP.arrow)
            records = records.set_column(position, name, times)
    return records


async def _publish_lines(client: Client, event_type: EventType, pace: _Pace) -> tuple[int, int]:
    from covey.cli.support.lines import stdin_lines

    if sys.stdin.isatty():
        example = ", ".join(f'"{attribute}": ...' for attribute in event_type.names)
        print(f"one event per line, as JSON: {{{example}}}; Ctrl-D ends", file=sys.stderr)
    outcome = {"published": 0, "bad": 0}
    room = asyncio.Semaphore(4 * _BATCH_EVENTS)
    number = 0
    try:
        async with asyncio.TaskGroup() as publishing:
            async for line in stdin_lines():
                number += 1
                if not line.strip():
                    continue
                await pace.go(1)
                await room.acquire()
                task = publishing.create_task(_publish_line(client, event_type, number, line, outcome))
                task.add_done_callback(lambda _: room.release())
    except BaseExceptionGroup as failed:  # of one cause: the client has ended
        raise failed.exceptions[0] from None
    return outcome["published"], outcome["bad"]


async def _publish_line(
    client: Client, event_type: EventType, number: int, line: str, outcome: dict[str, int]
) -> None:
    from covey.matcher.errors import EventError
    from covey.overlay import RefusedError

    try:
        event = _event(line)
        await client.publish(event_type.name, **event)
        outcome["published"] += 1
    except (EventError, RefusedError) as error:
        outcome["bad"] += 1
        print(f"line {number}: {str(error).removeprefix('event 0 of ')}", file=sys.stderr)


def _event(line: str) -> dict[str, Any]:
    from covey.matcher.errors import EventError

    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise EventError(f"no JSON: {error}") from None
    if not isinstance(event, dict):
        raise EventError(f'{line.strip()[:60]}: expected an object such as {{"price": 9.5}}')
    return event
