"""Event types, trace contexts and operator results on the wire.

Invariant: undecodable bytes raise a `CoveyError`; malformed traceparents are ignored, as W3C demands, and a
batch has at most `MOST_CONTEXTS`. Results decode to equal ones of as many bytes, so both ends of a link count
alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pyarrow as pa
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
from google.protobuf.message import DecodeError

from covey.matcher import EventType
from covey.matcher.errors import CoveyError, EventError, EventTypeError
from covey.matcher.events.arrow_columns import MALFORMED, read_record_batch
from covey.matcher.events.event_type import Kind
from covey.matcher.events.results import RESULT_BYTES, Answers, Results
from covey.matcher.events.trace_contexts import MOST_CONTEXTS, TraceContext, TraceContexts
from covey.overlay.core.messages import Refuse
from covey.proto import broker_pb2 as pb

_TRACEPARENT = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_MOST_SEQUENCE = 1 << 63
WireResults = RepeatedCompositeFieldContainer[pb.OperatorResult]
_ITEMS = frozenset(kind.arrow for kind in Kind)
TypeLookup = Callable[[str], EventType | None]
_KINDS = {kind: pb.Kind.Value(f"KIND_{kind.name}") for kind in Kind}
_KIND_OF = {wire: kind for kind, wire in _KINDS.items()}
WIRE = "wire"
"""The key of a type's wire bytes in its cache."""
_SCHEMAS, _CACHED_LENGTH = 1024, 16_384
"""Cached schemas, and the bytes of the longest one."""


class MalformedPacketError(CoveyError):
    """Bytes that are no packet of this protocol."""


class MessageError(CoveyError):
    """`refuse` is the answer to the sender."""

    def __init__(self, refuse: Refuse) -> None:
        super().__init__(refuse.reason)
        self.refuse = refuse


class UnknownTypeError(CoveyError):
    """The name of an event type that this process does not have."""


def fill_contexts(wire: pb.Events, contexts: TraceContexts) -> None:
    for first, last, traceparent in contexts:
        wire.contexts.add(traceparent=traceparent, first_sequence=first, last_sequence=last)


def contexts_of(wire: pb.Events) -> TraceContexts:
    return tuple(
        TraceContext(each.first_sequence, each.last_sequence, each.traceparent)
        for each in wire.contexts[:MOST_CONTEXTS]
        if traceparent_of(each.traceparent) and each.first_sequence <= each.last_sequence < _MOST_SEQUENCE
    )


def traceparent_of(text: str) -> str:
    """The text if it is a traceparent, else ""."""
    return text if _TRACEPARENT.fullmatch(text) else ""


def fill_results(wire: pb.Events, results: Results) -> None:
    for key, answers in results.items():
        result = wire.results.add()
        result.key = key
        result.rows = (answers.rows << 1 | answers.truths).astype("<u4").tobytes()
        if answers.solutions is not None:
            result.solutions = answers.serialized_solutions()


def results_of(wire: WireResults, count: int) -> Results:
    answers: dict[int, Answers] = {}
    for result in wire:
        if result.key in answers:
            raise EventError(f"results with key {result.key:016x} twice: expected each key once")
        answers[result.key] = _answers_of(result, count)
    return Results(answers)


def bytes_of_results(wire: WireResults) -> int:
    """As `Results.nbytes`, for results that cannot be decoded."""
    return sum(RESULT_BYTES + len(result.rows) + len(result.solutions) for result in wire)


def _answers_of(result: pb.OperatorResult, count: int) -> Answers:
    if len(result.rows) % 4 or not result.rows:
        raise EventError(f"results with rows of {len(result.rows)} bytes: expected a positive multiple of 4")
    pairs = np.frombuffer(result.rows, dtype="<u4")
    rows = (pairs >> 1).astype(np.int64)
    if rows[-1] >= count or (rows[1:] <= rows[:-1]).any():
        raise EventError(f"results with rows {_shown(rows)}: expected ascending ones below {count}")
    truths = (pairs & 1).astype(np.bool_)
    if not result.solutions:
        return Answers(rows, truths)
    solutions = _solutions_of(result.solutions)
    if len(solutions) != len(rows):
        raise EventError(f"results with {len(solutions)} solutions: expected one per row, {len(rows)}")
    lengths = solutions.value_lengths().to_numpy(zero_copy_only=False)
    if ((lengths > 0) != truths).any():
        raise EventError("results with a solution of a false call or a true call without: expected neither")
    return Answers(rows, truths, solutions, result.solutions)


def _solutions_of(data: bytes) -> pa.ListArray:
    try:
        return _column_of(data)
    except EventError:
        raise
    except (*MALFORMED, StopIteration) as error:
        raise EventError(f"malformed solutions: {error}") from None


def _column_of(data: bytes) -> pa.ListArray:
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(data))
    head = reader.read_next_message()
    if head.type != "schema":  # which pyarrow would read as one, and end the process
        raise EventError(f"solutions begin with a message of type {head.type}: expected schema")
    schema = pa.ipc.read_schema(head)
    message = reader.read_next_message()
    if len(schema) != 1 or not _is_solutions(schema.field(0).type):
        types = ", ".join(map(str, schema.types))
        raise EventError(f"solutions of type {types}: expected one list of values")
    batch = read_record_batch(message, schema, "solutions")
    column = batch.column(0)
    items = column.values
    fields = items.flatten() if pa.types.is_struct(items.type) else []
    if any(array.null_count for array in (column, items, *fields)):
        raise EventError("solutions with null: expected values")
    return column


def _is_solutions(type: pa.DataType) -> bool:
    if not pa.types.is_list(type):
        return False
    item = type.value_type
    if pa.types.is_struct(item):
        fields = [item.field(i) for i in range(item.num_fields)]
        names = {field.name for field in fields}  # decoded: UTF-8
        return 0 < len(fields) == len(names) and all(field.type in _ITEMS for field in fields)
    return item in _ITEMS


def _shown(rows: np.ndarray) -> str:
    shown = ", ".join(map(str, rows[:4].tolist()))
    return shown if len(rows) <= 4 else f"{shown}, ..."


def encode_event_type(event_type: EventType) -> bytes:
    wire = pb.EventType()
    fill_event_type(wire, event_type)
    return wire.SerializeToString()


def decode_event_type(data: bytes) -> EventType:
    try:
        return event_type_of(pb.EventType.FromString(data))
    except DecodeError as error:
        raise MalformedPacketError(f"{len(data)} bytes are no event type: {error}") from None


def fill_event_type(wire: pb.EventType, event_type: EventType) -> None:
    wire.name = event_type.name
    wire.key = event_type.key or ""
    for name, kind in event_type.attributes.items():
        wire.attributes.add(name=name, kind=_KINDS[kind])


def schema_bytes(event_type: EventType) -> bytes:
    data = event_type.cache[WIRE] = encode_event_type(event_type)
    return data


@lru_cache(_SCHEMAS)
def _schema_of(data: bytes) -> EventType:
    return decode_event_type(data)


def schema_of(data: bytes, known: EventType) -> EventType:
    if data == (known.cache.get(WIRE) or schema_bytes(known)):
        return known
    schema = _schema_of(data) if len(data) <= _CACHED_LENGTH else decode_event_type(data)
    if schema.name != known.name:
        raise EventTypeError(f"events of {known.name!r} with a schema of {schema.name!r}: expected one name")
    return schema


def event_type_of(wire: pb.EventType) -> EventType:
    attributes: dict[str, str | Kind] = {}
    for attribute in wire.attributes:
        kind = _KIND_OF.get(attribute.kind)
        if kind is None:
            raise EventTypeError(
                f"event type {wire.name!r}, attribute {attribute.name!r}: kind number {attribute.kind}, "
                f"expected one of {', '.join(Kind)}"
            )
        if attribute.name in attributes:
            raise EventTypeError(f"event type {wire.name!r}: attribute {attribute.name!r} is declared twice")
        attributes[attribute.name] = kind
    return EventType(wire.name, attributes, wire.key or None)
