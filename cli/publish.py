"""`covey publish`: events from a CSV file, or as JSON lines from standard input."""

from __future__ import annotations

import asyncio
import csv
import json
import math
import re
import secrets
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer
from pyarrow import csv as arrow_csv

from covey.cli.support.options import BROKER, NO_ACCESS, Access, Broker, Json, with_access
from covey.cli.support.output import print_json
from covey.cli.support.waiting import CONNECT_S, run_until_signal, stdin_lines
from covey.matcher import EventBatch, EventType
from covey.matcher.errors import EventError, EventTypeError, InputError
from covey.matcher.events.event_type import Kind
from covey.overlay import Client, RefusedError
from covey.overlay.core.client.actions import ClientAction
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import Message, Publish, Refuse

_BATCH_EVENTS = 1_024
_IN_FLIGHT = 8
_SHOWN = 5
_EVENT = re.compile(r"^event (\d+) of ")


@with_access
def publish(
    type_name: Annotated[str, typer.Argument(metavar="TYPE", help="The event type.")],
    file: Annotated[
        str, typer.Argument(help="A CSV file with a header line; - for JSON lines from standard input.")
    ] = "-",
    broker: Broker = BROKER,
    schema: Annotated[
        str | None,
        typer.Option(
            help="Attributes as name:kind,...; kinds are int64, float64, string, bool, timestamp, "
            "list<string>. Those that the broker's type lacks widen it. Default: the broker's.",
            show_default=False,
        ),
    ] = None,
    rate: Annotated[float | None, typer.Option(help="Events per second; unlimited by default.")] = None,
    name: Annotated[str | None, typer.Option(help="The client's name; random by default.")] = None,
    json_output: Json = False,
    access: Access = NO_ACCESS,
) -> None:
    """Publish events to an overlay.

    A JSON line that is not an event, or a row that the broker refuses, is reported with its number and
    skipped, and the exit status is 1. An error in a CSV file ends the command.

    Example: covey publish --broker localhost:7005 Quote quotes.csv --schema
    firm:string,price:float64,volume:int64

    Example: echo '{"firm": "IBM", "price": 9.5}' | covey publish --broker localhost:7005 Quote
    """
    if rate is not None and not 0 < rate < math.inf:
        raise InputError(f"--rate is {rate:g}: expected a number of events per second above 0")
    if file != "-" and not Path(file).is_file():
        raise InputError(f"{file}: no such file")
    declared = schema_of(type_name, schema) if schema is not None else None

    async def publish_all() -> tuple[int, int, float]:
        sender = name
        if sender is None:
            owner = await access.credentials.owner()
            sender = f"{owner}/{secrets.token_hex(6)}" if owner else f"client-{secrets.token_hex(6)}"
        session = CountingSession(f"{sender}/{secrets.token_hex(6)}")
        async with Client(
            broker, sender, connect_timeout=CONNECT_S, session=session, tls=access.tls, token=access.token
        ) as client:
            event_type = declared or await known_type(client, type_name)
            await client.advertise(event_type)
            start = time.perf_counter()
            pace = _Pace(rate)
            if file == "-":
                published, refused = await _publish_lines(client, event_type, pace)
            else:
                rows = await _publish_csv(client, session, event_type, file, pace)
                published, refused = session.published, rows - session.published
            return published, refused, time.perf_counter() - start

    published, refused, seconds = run_until_signal(publish_all())
    if json_output:
        print_json({"published": published, "refused": refused, "seconds": round(seconds, 3)})
    else:
        suffix = f", {refused} refused" if refused else ""
        print(f"published {published:,} events of {type_name} in {seconds:.2f} s{suffix}")
    raise typer.Exit(1 if refused else 0)


async def known_type(client: Client, type_name: str) -> EventType:
    """The overlay's event type. A refusal suggests --schema."""
    try:
        return await client.event_type(type_name)
    except RefusedError as error:
        if error.status != "NOT_FOUND":
            raise
        raise RefusedError(error.status, f"{error}; give its attributes with --schema") from None


def schema_of(type_name: str, text: str) -> EventType:
    attributes: dict[str, str] = {}
    for part in text.split(","):
        attribute, colon, kind = (word.strip() for word in part.partition(":"))
        if not colon:
            raise EventTypeError(f"--schema has {part.strip()!r}: expected name:kind, such as price:float64")
        if attribute in attributes:
            raise EventTypeError(f"--schema has attribute {attribute!r} twice")
        attributes[attribute] = kind
    return EventType(type_name, attributes)


class CountingSession(ClientSession):
    """`published` excludes the events that the broker refused; it is final once all batches are
    acknowledged."""

    published = 0

    def publish(self, batch: EventBatch) -> Publish:
        sent = super().publish(batch)
        self.published += len(batch)
        return sent

    def receive(self, message: Message) -> list[ClientAction]:
        actions = super().receive(message)
        self.published -= sum(action.count for action in actions if isinstance(action, Refuse))
        return actions


class _Pace:
    """Limits events to a rate; None is no limit."""

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._start = time.perf_counter()
        self._sent = 0

    @property
    def batch(self) -> int:
        """Events per batch: 10 ms of the rate, at most `_BATCH_EVENTS`."""
        return _BATCH_EVENTS if self._rate is None else max(1, min(_BATCH_EVENTS, int(self._rate / 100)))

    async def wait(self, events: int) -> None:
        if self._rate is not None:
            due = self._start + self._sent / self._rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
        self._sent += events


def _with_column(error: str, file: str) -> str:
    """An error of Arrow's reader in one line, with the column's name in place of its number."""
    text = " ".join(error.split())
    found = re.match(r"In CSV column #(\d+): ", text)
    if found is None:
        return text
    with open(file, newline="") as lines:
        names = next(csv.reader(lines))
    return f"column {names[int(found[1])]!r}: {text[found.end() :]}"


async def _publish_csv(
    client: Client, session: CountingSession, event_type: EventType, file: str, pace: _Pace
) -> int:
    """Publish the rows of a file, report refused ones, and return the number of rows."""
    # As text: Arrow's reader must know in advance whether times name a zone, and reads no lists.
    types = {
        attribute: pa.string() if kind in (Kind.TIMESTAMP, Kind.STRINGS) else kind.arrow
        for attribute, kind in event_type.attributes.items()
    }
    rows = 0
    refusals: list[RefusedError] = []
    pending: set[asyncio.Task[None]] = set()
    try:
        reader = arrow_csv.open_csv(file, convert_options=arrow_csv.ConvertOptions(column_types=types))
        for records in reader:
            records = _with_texts_parsed(records, event_type)
            for start in range(0, records.num_rows, pace.batch):
                part = records.slice(start, pace.batch)
                await pace.wait(part.num_rows)
                publishing = _publish_rows(client, event_type.name, part, rows, file, refusals)
                pending.add(asyncio.create_task(publishing))
                rows += part.num_rows
                if len(pending) >= _IN_FLIGHT:
                    done, _ = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                    for task in done:
                        task.result()
                        pending.remove(task)
        await asyncio.gather(*pending)
    except (pa.ArrowException, EventError) as error:
        await asyncio.gather(*pending, return_exceptions=True)
        before = f"; {session.published:,} events were published" if session.published else ""
        raise EventError(f"{file}: {_with_column(str(error), file)}{before}") from None
    finally:
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
    if len(refusals) > _SHOWN:
        print(f"covey: {file}: {len(refusals) - _SHOWN:,} more refusals", file=sys.stderr)
    return rows


async def _publish_rows(
    client: Client, type_name: str, rows: pa.RecordBatch, first: int, file: str, refusals: list[RefusedError]
) -> None:
    """`first` is the position of the first row in the file, from 0."""

    def with_row(error: Exception) -> str:
        return _EVENT.sub(lambda match: f"row {first + int(match[1]) + 1:,} of ", str(error))

    try:
        await client.publish_batch(type_name, rows, confirm=True)
    except EventError as error:
        raise EventError(with_row(error)) from None
    except RefusedError as error:
        refusals.append(error)
        if len(refusals) <= _SHOWN:
            print(f"covey: {file}: {with_row(error)}", file=sys.stderr)


def _with_texts_parsed(records: pa.RecordBatch, event_type: EventType) -> pa.RecordBatch:
    """Parse ISO 8601 text in timestamp columns, as UTC without a zone, and JSON text in list columns; a list
    without text is absent."""
    columns, names = list(records.columns), records.schema.names
    for position, name in enumerate(names):
        if event_type.attributes.get(name) is Kind.TIMESTAMP:
            column = columns[position]
            try:
                columns[position] = column.cast(pa.timestamp("us")).cast(Kind.TIMESTAMP.arrow)
            except pa.ArrowInvalid:
                columns[position] = column.cast(Kind.TIMESTAMP.arrow)
        elif event_type.attributes.get(name) is Kind.STRINGS:
            lists = [_strings(name, text) for text in columns[position].to_pylist()]
            columns[position] = pa.array(lists, Kind.STRINGS.arrow)
    return pa.RecordBatch.from_arrays(columns, names=names)


def _strings(column: str, text: str | None) -> list[str] | None:
    if not text:
        return None
    try:
        strings = json.loads(text)
        "".join(strings).encode()  # strings, without surrogates
        if isinstance(strings, list):
            return strings
    except (ValueError, TypeError, RecursionError):
        pass
    shown = repr(text if len(text) <= 60 else f"{text[:57]}...")
    raise EventError(f'column {column!r}: {shown}, expected a list of strings such as ["a", "b"]')


async def _publish_lines(client: Client, event_type: EventType, pace: _Pace) -> tuple[int, int]:
    if sys.stdin.isatty():
        example = ", ".join(f'"{attribute}": ...' for attribute in event_type.names)
        print(f"one JSON event per line: {{{example}}}; Ctrl-D ends", file=sys.stderr)
    counts = {"published": 0, "refused": 0}
    room = asyncio.Semaphore(4 * _BATCH_EVENTS)
    number = 0
    try:
        async with asyncio.TaskGroup() as publishing:
            async for line in stdin_lines():
                number += 1
                if not line.strip():
                    continue
                await pace.wait(1)
                await room.acquire()
                task = publishing.create_task(_publish_line(client, event_type, number, line, counts))
                task.add_done_callback(lambda _: room.release())
    except BaseExceptionGroup as failed:  # with one cause: the client is closed
        raise failed.exceptions[0] from None
    return counts["published"], counts["refused"]


async def _publish_line(
    client: Client, event_type: EventType, number: int, line: str, counts: dict[str, int]
) -> None:
    try:
        event = _event(line)
        await client.publish(event_type.name, event, confirm=True)
        counts["published"] += 1
    except (EventError, RefusedError) as error:
        counts["refused"] += 1
        print(f"line {number}: {str(error).removeprefix('event 0 of ')}", file=sys.stderr)


def _event(line: str) -> dict[str, Any]:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise EventError(f"not JSON: {error}") from None
    if not isinstance(event, dict):
        raise EventError(f'{line.strip()[:60]}: expected an object such as {{"price": 9.5}}')
    return event
