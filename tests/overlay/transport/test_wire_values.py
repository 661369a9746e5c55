"""Results of operators survive the wire beside their events; invalid ones are refused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from covey.matcher import EventBatch, EventType
from covey.matcher.errors import EventError
from covey.matcher.events.results import Answers, Results
from covey.overlay.core.link.joining import join, pieces
from covey.overlay.core.link.link import Frame
from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import Deliver, Message, Publish
from covey.overlay.transport.codec import decode_message, event_bytes
from covey.overlay.transport.packets import decode_packet, encode_frame
from covey.overlay.transport.wire_values import MessageError
from covey.proto import broker_pb2 as pb

TRUCK = EventType("Truck", {"lat": "float64", "plate": "string"})
PAIRS = pa.struct([("camera", pa.string()), ("count", pa.int64())])


def batch(count: int = 3, *, first: int = 1, results: Results | None = None) -> EventBatch:
    rows = [{"lat": float(i), "plate": f"p{i}"} for i in range(count)]
    events = EventBatch.from_pylist(TRUCK, rows, publisher="p/1", first_sequence=first)
    events.results = results
    return events


def answers(rows: list[int], truths: list[bool], solutions: pa.Array | None = None) -> Answers:
    return Answers(np.array(rows, np.int64), np.array(truths), solutions)


def some_results() -> Results:
    return Results(
        {
            1: answers([0, 2], [True, False]),
            2**64 - 1: answers([1], [True], pa.array([[250, 7]], pa.list_(pa.int64()))),
            9: answers([0, 1], [False, True], pa.array([[], [{"camera": "c", "count": 3}]], pa.list_(PAIRS))),
        }
    )


def plain(results: Results | None) -> dict[int, Any]:
    return {
        key: (a.rows.tolist(), a.truths.tolist(), None if a.solutions is None else a.solutions.to_pylist())
        for key, a in (() if results is None else results.items())
    }


def to_wire(message: Message) -> pb.Message:
    frame = decode_packet(encode_frame(Frame(1, 0, 0, (message,))))
    assert isinstance(frame, Frame)
    wire: pb.Message = frame.messages[0]
    return wire


def decoded(wire: pb.Message) -> Publish | Deliver:
    message = decode_message(wire, {"Truck": TRUCK}.get, from_broker=True)
    assert isinstance(message, Publish | Deliver)
    return message


@pytest.mark.parametrize("count", [3, 40])
def test_results_survive_the_wire_and_have_one_size_at_both_ends(count: int) -> None:
    events = batch(count, results=some_results())
    for message in (Publish(events), Deliver(events, np.arange(count + 1), np.ones(count, np.int64), 4)):
        wire = to_wire(message)
        again = decoded(wire)
        assert plain(again.batch.results) == plain(some_results())
        assert size_of(again) == size_of(message) == event_bytes(wire)
        assert to_wire(again) == wire


def test_results_stay_with_their_events_when_messages_are_split_and_joined() -> None:
    whole = Publish(batch(4, results=Results({5: answers([0, 1, 3], [True, False, True])})))
    parts = pieces(whole, size_of(whole) - 1)
    assert [plain(p.batch.results) for p in parts if isinstance(p, Publish)] == [
        {5: ([0, 1], [True, False], None)},
        {5: ([1], [True], None)},
    ]
    (again,) = join(parts, 100, 1 << 20)
    assert isinstance(again, Publish)
    assert plain(again.batch.results) == plain(whole.batch.results)


def test_results_of_a_client_are_refused() -> None:
    wire = to_wire(Publish(batch(results=some_results())))
    with pytest.raises(MessageError, match="Truck: results of operators from a client, expected none"):
        decode_message(wire, {"Truck": TRUCK}.get)


def stream(array: pa.Array, compression: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    records = pa.record_batch([array], names=["solutions"])
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, records.schema, options=options) as writer:
        writer.write_batch(records)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def rows(*pairs: int) -> bytes:
    return np.array(pairs, "<u4").tobytes()


HOSTILE: dict[str, tuple[Callable[[Any], None], str]] = {
    "no rows": (lambda r: r.add(key=1), "rows of 0 bytes: expected a positive multiple of 4"),
    "half a row": (lambda r: r.add(key=1, rows=b"\0\0\0"), "rows of 3 bytes"),
    "a row out of range": (lambda r: r.add(key=1, rows=rows(6)), "rows 3: expected ascending ones below 3"),
    "the largest row": (lambda r: r.add(key=1, rows=rows(2**32 - 1)), "expected ascending ones below 3"),
    "rows twice": (lambda r: r.add(key=1, rows=rows(2, 3)), "rows 1, 1: expected ascending"),
    "rows descending": (lambda r: r.add(key=1, rows=rows(4, 2)), "rows 2, 1: expected ascending"),
    "many rows": (lambda r: r.add(key=1, rows=rows(*range(2000))), "rows 0, 0, 1, 1, ...: expected"),
    "a key twice": (
        lambda r: [r.add(key=255, rows=rows(1)) for _ in range(2)],
        "key 00000000000000ff twice: expected each key once",
    ),
    "no Arrow": (lambda r: r.add(key=1, rows=rows(1), solutions=b"x" * 40), "malformed solutions"),
    "a stream that ends": (
        lambda r: r.add(key=1, rows=rows(1), solutions=stream(pa.array([[1]]))[:200]),
        "malformed|expected",
    ),
    "no list": (
        lambda r: r.add(key=1, rows=rows(1), solutions=stream(pa.array([1]))),
        "solutions of type int64: expected one list of values",
    ),
    "a list of lists of lists": (
        lambda r: r.add(key=1, rows=rows(1), solutions=stream(pa.array([[[[1]]]]))),
        "expected one list of values",
    ),
    "more solutions than rows": (
        lambda r: r.add(key=1, rows=rows(1), solutions=stream(pa.array([[1], [2]]))),
        "2 solutions: expected one per row, 1",
    ),
    "a true call without a solution": (
        lambda r: r.add(key=1, rows=rows(1), solutions=stream(pa.array([[]], pa.list_(pa.int64())))),
        "a solution of a false call or a true call without: expected neither",
    ),
    "null": (
        lambda r: r.add(key=1, rows=rows(1), solutions=stream(pa.array([[None]], pa.list_(pa.int64())))),
        "solutions with null: expected values",
    ),
    "null in a struct": (
        lambda r: r.add(
            key=1, rows=rows(1), solutions=stream(pa.array([[{"camera": None, "count": 1}]], pa.list_(PAIRS)))
        ),
        "solutions with null: expected values",
    ),
    "a name that is not UTF-8": (
        lambda r: r.add(
            key=1, rows=rows(1), solutions=stream(pa.array([[1]])).replace(b"solutions", b"s\xd9lutions")
        ),
        "malformed solutions: 'utf-8' codec",
    ),
    "no schema": (
        lambda r: r.add(
            key=1, rows=rows(1), solutions=pa.record_batch([pa.array([[1]])], ["n"]).serialize().to_pybytes()
        ),
        "solutions begin with a message of type record batch: expected schema",
    ),
    "gigabytes in a few bytes": (
        lambda r: r.add(key=1, rows=rows(1), solutions=stream(pa.array([[0] * 100_000]), "zstd")),
        "solutions: a compressed record batch, expected an uncompressed one",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_results_that_make_no_sense_are_refused(what: str) -> None:
    fill, sentence = HOSTILE[what]
    wire = to_wire(Publish(batch()))
    fill(wire.publish.events.results)
    with pytest.raises(MessageError, match=sentence):
        decoded(wire)


def test_a_compressed_batch_is_refused_before_it_takes_memory() -> None:
    """48 bytes of zstd are 8 MB of zeros, which no limit on bytes of events would see."""
    number = EventType("Number", {"n": "int64"})
    records = pa.record_batch([pa.array([0] * 100_000)], schema=number.arrow_schema)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, records.schema, options=options) as writer:
        writer.write_batch(records)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    compressed = reader.read_next_message().serialize().to_pybytes()
    assert len(compressed) < 1000
    with pytest.raises(EventError, match="Number: a compressed record batch, expected an uncompressed one"):
        EventBatch.deserialize(number, compressed)
    assert EventBatch.deserialize(number, records.serialize().to_pybytes()).record_batch.equals(records)
