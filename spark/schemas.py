"""Event types as Spark schemas, and Arrow columns in the types that Spark expects. Kinds and types correspond
one to one; narrower types (int, float, date) widen to a kind where events are matched or published, and are
refused in the schema of a stream."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from covey.matcher import EventType, Filter, parse
from covey.matcher.errors import CoveyError, FilterSyntaxError, closest_of
from covey.matcher.events.event_type import Kind
from covey.overlay.client.errors import ConnectError
from covey.overlay.client.unary import event_type_at, inspect_broker
from covey.overlay.core.endpoint.limits import RefusedError
from covey.overlay.node.config import load_overlay
from covey.spark.options import SourceError

if TYPE_CHECKING:
    from covey.spark.options import BrokerOptions

SPARK_TYPES: dict[Kind, DataType] = {
    Kind.INT64: LongType(),
    Kind.FLOAT64: DoubleType(),
    Kind.STRING: StringType(),
    Kind.BOOL: BooleanType(),
    Kind.TIMESTAMP: TimestampType(),
    Kind.STRINGS: ArrayType(StringType()),
}
_KINDS = {each.simpleString(): kind for kind, each in SPARK_TYPES.items()}
_WIDENED = {
    **_KINDS,
    "tinyint": Kind.INT64,
    "smallint": Kind.INT64,
    "int": Kind.INT64,
    "float": Kind.FLOAT64,
    "date": Kind.TIMESTAMP,
    "timestamp_ntz": Kind.TIMESTAMP,
}


def spark_schema(event_type: EventType, extra: Iterable[tuple[str, Kind]] = ()) -> StructType:
    columns = [*event_type.attributes.items(), *extra]
    return StructType([StructField(name, SPARK_TYPES[kind]) for name, kind in columns])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of a data source."""
    named: dict[str, Any] = {}
    if "timezone" in inspect.signature(to_arrow_schema).parameters:  # from 4.1 on; UTC before
        named["timezone"] = "UTC"
    return to_arrow_schema(schema, **named)


def event_type_of(
    name: str, schema: StructType, *, widened: bool = False, complete: bool = True
) -> EventType:
    """The event type of a schema's columns, of narrower types too where `widened`. `SourceError` if no column
    can be an attribute and, unless `complete` is false, for a column that no kind fits."""
    kinds: dict[str, str] = {}
    for field in schema.fields:
        text = field.dataType.simpleString()
        kind = (_WIDENED if widened else _KINDS).get(text)
        if kind is not None:
            kinds[field.name] = kind
        elif complete:
            raise SourceError(
                f"schema column {field.name!r} is {text}: expected one of "
                + ", ".join(_WIDENED if widened else _KINDS)
            )
    if not kinds:
        columns = ", ".join(field.name for field in schema.fields) or "none"
        raise SourceError(f"columns are {columns}: expected one that can be an attribute")
    return EventType(name, kinds)


def parsed(what: str, text: str, event_type: EventType) -> Filter:
    """Parse a filter; `SourceError`, which begins with `what`, for invalid text."""
    try:
        return parse(text, event_type)
    except FilterSyntaxError as error:
        raise SourceError(f"{what} {text!r}: {error.message}, at column {error.column + 1}") from None
    except CoveyError as error:
        raise SourceError(f"{what} {text!r}: {error}") from None


def find_event_type(options: BrokerOptions, declared: StructType | None = None) -> EventType:
    """The event type of the option `type`: the overlay file's, else the broker's, else the declared one.
    `SourceError` if there is none, or a declared column does not fit it."""
    event_type = find_event_type_or_none(options)
    if event_type is None:
        if declared is None:
            raise _unknown_type(options)
        return event_type_of(options.type, declared)
    if declared is not None:
        check_columns(event_type, declared)
    return event_type


def find_event_type_or_none(options: BrokerOptions) -> EventType | None:
    try:
        return _of_file(options) if options.overlay else asyncio.run(_of_broker(options))
    except (ConnectError, RefusedError, TimeoutError) as error:
        raise unreachable(options.brokers[0], error) from None


def check_columns(event_type: EventType, schema: StructType, *, widened: bool = False) -> None:
    """`SourceError` for a column that is no attribute, or whose type does not fit."""
    for field in schema.fields:
        text = field.dataType.simpleString()
        kind = event_type.attributes.get(field.name)
        if kind is None:
            unknown = f"column {field.name!r} is no attribute of event type {event_type.name}"
            raise SourceError(f"{unknown}{closest_of(field.name, event_type.names)}")
        fits = _WIDENED.get(text) if widened else _KINDS.get(text)
        if fits is not kind and not (widened and (fits, kind) == (Kind.INT64, Kind.FLOAT64)):
            raise SourceError(
                f"column {field.name!r} is {text}: attribute {field.name!r} of {event_type.name} is {kind}, "
                f"expected {SPARK_TYPES[kind].simpleString()}"
            )


def unreachable(address: str, error: Exception) -> SourceError:
    return SourceError(f"option broker is {address!r}: {error}")


def _of_file(options: BrokerOptions) -> EventType | None:
    assert options.overlay is not None
    try:
        known = {each.name: each for each in load_overlay(options.overlay).event_types}
    except CoveyError as error:
        raise SourceError(f"option overlay is {options.overlay!r}: {error}") from None
    return known.get(options.type)


async def _of_broker(options: BrokerOptions) -> EventType | None:
    async with asyncio.timeout(options.timeout_s):
        try:
            return await event_type_at(options.brokers[0], options.type, options.credentials)
        except RefusedError as error:
            if error.status == "NOT_FOUND":
                return None
            raise


def _unknown_type(options: BrokerOptions) -> SourceError:
    where = f"overlay file {options.overlay}" if options.overlay else f"broker {options.brokers[0]}"
    return SourceError(
        f"option type is {options.type!r}: {where} has no such event type{_hint(options)}; "
        "expected a known one, or a schema"
    )


def _hint(options: BrokerOptions) -> str:
    if options.overlay:
        return ""
    try:
        _, state = asyncio.run(inspect_broker(options.brokers[0], tls=options.tls, token=options.bearer))
        close = get_close_matches(options.type, list(state["core"]["types"]), n=1)
    except (CoveyError, KeyError, TypeError):
        return ""
    return f", did you mean {close[0]!r}?" if close else ""
