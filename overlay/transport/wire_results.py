"""Results of named operators on the wire, beside the events of a batch.

Invariant: what was encoded decodes to equal results of the same size; results that make no sense raise
`EventError`. A decoded batch has as many bytes of results as its message had, so both ends of a link count
alike.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from google.protobuf.internal.containers import RepeatedCompositeFieldContainer

from covey.matcher.errors import EventError
from covey.matcher.events.arrow_columns import MALFORMED, read_record_batch
from covey.matcher.events.event_type import Kind
from covey.matcher.events.results import RESULT_BYTES, Answers, Results
from covey.proto import broker_pb2 as pb

WireResults = RepeatedCompositeFieldContainer[pb.OperatorResult]

_ITEMS = frozenset(kind.arrow for kind in Kind)
"""The types of values that a free variable may have."""


def fill_results(wire: pb.Events, results: Results) -> None:
    for key, answers in results.items():
        result = wire.results.add()
        result.key = key
        result.rows = (answers.rows << 1 | answers.truths).astype("<u4").tobytes()
        if answers.solutions is not None:
            result.solutions = answers.serialized_solutions()


def results_of(wire: WireResults, count: int) -> Results:
    """The results of a batch of so many events."""
    answers: dict[int, Answers] = {}
    for result in wire:
        if result.key in answers:
            raise EventError(f"results with key {result.key:016x} twice: expected each key once")
        answers[result.key] = _answers_of(result, count)
    return Results(answers)


def bytes_of_results(wire: WireResults) -> int:
    """What `Results.nbytes` would be of results that cannot be decoded."""
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
