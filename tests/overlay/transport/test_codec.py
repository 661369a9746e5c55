"""Every message survives the wire, and a peer's bytes raise at most the codec's two errors."""

from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from draws import examples
from hypothesis import example, given
from hypothesis import strategies as st

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.endpoint.limits import Limits, SlowConsumer
from covey.overlay.core.link.link import Frame, Hello
from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import (
    MAX_VALIDITY_NS,
    Advertise,
    Answered,
    Deliver,
    Expired,
    Gap,
    Hold,
    ListenersReport,
    Message,
    MoveStep,
    Notice,
    Publish,
    Refuse,
    SessionMove,
    Subscribe,
    SyncBegin,
    SyncEnd,
    Unadvertise,
    Unsubscribe,
    Update,
)
from covey.overlay.core.moving.motion import Motion
from covey.overlay.transport.codec import decode_message, event_bytes, fill_events
from covey.overlay.transport.packets import (
    Goodbye,
    Greeting,
    Role,
    decode_packet,
    encode_frame,
    encode_goodbye,
    encode_greeting,
)
from covey.overlay.transport.wire_values import (
    MalformedPacketError,
    MessageError,
    decode_event_type,
    encode_event_type,
    fill_event_type,
)
from covey.proto import broker_pb2 as pb

QUOTE = EventType(
    "Quote", {"firm": "string", "price": "float64", "volume": "int64", "open": "bool", "at": "timestamp"}
)
TYPES = {"Quote": QUOTE}
MOMENT = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
FILTER = parse(
    "firm == $firm and price < 1.5 * $limit - 2 and volume > $low and open == $open and at > $at", QUOTE
)
VALUES = {"at": MOMENT, "firm": "IBM\u20ac\U0001f600", "limit": 1e300, "low": -(2**63), "open": True}
BATCH = EventBatch.from_pylist(
    QUOTE,
    [
        {"firm": "IBM", "price": 9.5, "volume": 100, "open": True, "at": MOMENT},
        {},
        {"firm": "", "price": -0.0},
    ],
    publisher="exchange/1",
    first_sequence=17,
    ingress_ns=1_700_000_000_000_000_000,
)
ARROW = EventBatch.from_arrow(
    QUOTE, BATCH.record_batch, publisher="exchange/1", first_sequence=17, ingress_ns=1_700_000_000_000_000_000
)

MESSAGES: list[Message] = [
    Advertise(1, QUOTE),
    Unadvertise(2, "Quote"),
    Subscribe(3, 4, FILTER, VALUES),
    Subscribe(3, 4, parse("", QUOTE), {}),
    Subscribe(3, 4, parse("", QUOTE), {}, 60_000_000_000),
    Subscribe(3, 4, FILTER, VALUES, for_views=True),
    Subscribe(
        3,
        4,
        parse("nowhere(price, $a, $b, 5, ?n) and ?n > $c and price > 1", QUOTE, unknown_operators=True),
        {"a": 1, "b": "x", "c": 2.5},
    ),
    Unsubscribe(2**63, 2**32 - 1),
    Update(5, 6, {"limit": 2, "ref": -0.5, "up": float("inf")}),
    Update(5, 6, {}),
    Advertise(1, QUOTE, parse("price > 1.5 and volume < 3", QUOTE), True),
    ListenersReport("Quote", True),
    Update(5, 6, {"limit": Motion(1.5, -2.0, 1_700_000_000_000_000_000)}),
    Update(5, 6, {}, 1_700_000_000_000_000_000),
    Update(5, 6, {"limit": 2}, for_views=4, after_epoch=2**40),
    Update(5, 6, {"limit": 2}, 0, f"00-{7:032x}-{9:016x}-01"),
    Hold("Quote", True),
    Gap("Quote", 1, 2, 3),
    Expired(2**32 - 1, "Quote"),
    Answered("Quote", 2**63),
    Update(5, 6, {}, valid_for_ns=MAX_VALIDITY_NS),
    Notice("within", "b2", "unknown", 7, (1, 2**32 - 1)),
    Notice("within", "b2", "unknown"),
    SyncBegin(),
    SyncEnd(8),
    Publish(BATCH),
    Publish(BATCH, True),
    Publish(BATCH, for_views=True),
    Publish(BATCH, for_views=True, live=True),
    Publish(BATCH.filter(np.array([True, False, True]))),
    Publish(ARROW),
    Publish(ARROW.filter(np.array([True, False, True]))),
    Publish(EventBatch.from_pylist(QUOTE, [])),
    SessionMove("b1", "b9", "client/c", 2**62, MoveStep.READ, "9", "Quote", -1),
    SessionMove("b9", "b1", "client/c", 7, MoveStep.FLUSHED, offsets={"Quote": -7, "T": 2**40}),
    SessionMove("b9", "b1", "client/c", 7, MoveStep.REFUSED, reason="moved", moved_to="b5"),
    SessionMove(
        "b9", "b1", "client/c", 7, MoveStep.STATE, "9", subscriptions=(Subscribe(3, 4, FILTER, VALUES),)
    ),
    Refuse(9, "NOT_FOUND", "event type 'x' is not known", 3, "x", 40, 2),
]
DELIVERIES = [
    Deliver(BATCH, np.array([0, 1, 2, 3]), np.array([5, 5, 5]), 4),
    Deliver(BATCH, np.array([0, 1, 2, 3]), np.array([5, 5, 5]), 4, True),
    Deliver(BATCH, np.array([0, 1, 2, 3]), np.array([5, 5, 5]), 4, True, for_views=True),
    Deliver(BATCH, np.array([0, 1, 2, 3]), np.array([5, 5, 5]), 4, for_views=True, live=True),
    Deliver(BATCH, np.array([0, 2, 4, 6]), np.array([5, 7, 5, 7, 5, 7]), 4),
    Deliver(ARROW, np.array([0, 2, 4, 6]), np.array([5, 7, 5, 7, 5, 7]), 4),
    Deliver(BATCH.slice(0, 1), np.array([0, 2]), np.array([5, 7]), 4),
    Deliver(BATCH, np.array([0, 1, 3, 4]), np.array([5, 5, 6, 2**32 - 1]), 4),
    Deliver(BATCH, np.array([0, 0, 0, 0]), np.array([], dtype=np.int64), 4),
    Deliver(EventBatch.from_pylist(QUOTE, []), np.array([0]), np.array([], dtype=np.int64), 4),
]


def of_the_wire(message: Message, *, schemas: bool = False) -> pb.Message:
    """The message of an arrived frame."""
    frame = decode_packet(encode_frame(Frame(3, 2, 1 << 40, (message,), probe=True), schemas=schemas))
    assert (frame.sequence, frame.received, frame.credit, frame.probe) == (3, 2, 1 << 40, True)
    return frame.messages[0]


def over_the_wire(message: Message) -> Message:
    return decode_message(of_the_wire(message), TYPES.get)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_round_trip(message: Message) -> None:
    assert over_the_wire(message) == message


@pytest.mark.parametrize("message", DELIVERIES)
def test_round_trip_of_deliveries(message: Deliver) -> None:
    again = over_the_wire(message)
    assert again.batch == message.batch
    assert again.offsets.tolist() == message.offsets.tolist()
    assert again.ids.tolist() == message.ids.tolist()
    assert (again.epoch, again.replayed) == (message.epoch, message.replayed)


def test_round_trip_of_records_that_move_through_a_broker_without_their_type() -> None:
    records = tuple(DELIVERIES[:4])
    begin = ("b9", "b1", "client/c", 7, MoveStep.RECORDS, "", "Quote", 9, {"Quote": 5})
    message = SessionMove(*begin, (), records)
    again = decode_message(of_the_wire(message), {}.get)
    assert [each.batch for each in again.records] == [each.batch for each in records]
    assert [each.ids.tolist() for each in again.records] == [each.ids.tolist() for each in records]
    assert replace(again, records=()) == replace(message, records=())


@pytest.mark.parametrize("message", [m for m in (*MESSAGES, *DELIVERIES) if isinstance(m, Publish | Deliver)])
def test_undecodable_events_release_their_credit(message: Publish | Deliver) -> None:
    """As of a cancelled subscription, whose type the client has forgotten."""
    assert event_bytes(of_the_wire(message)) == size_of(message)


def test_every_message_that_travels_has_a_round_trip_here() -> None:
    travels = {field.name for field in pb.Message.DESCRIPTOR.fields}
    tested = {"".join(f"_{c.lower()}" if c.isupper() else c for c in type(m).__name__)[1:] for m in MESSAGES}
    assert tested | {"deliver"} == travels


def test_the_bytes_of_a_batch_pass_through_unchanged() -> None:
    again = over_the_wire(Publish(ARROW))
    assert again.batch.serialized() == ARROW.serialized()
    again = over_the_wire(Publish(BATCH))
    assert again.batch.columns.packed() == BATCH.columns.packed()


def test_events_have_the_schema_that_they_were_made_with() -> None:
    other = EventType("Quote", {"venue": "string", "price": "float64"})
    batch = EventBatch.from_pylist(other, [{"venue": "XETRA", "price": 1.0}])
    assert over_the_wire(Publish(batch)) == Publish(batch)
    bare = pb.Message.FromString(publish().SerializeToString())  # of a peer that sends no schema
    again = decode_message(bare, TYPES.get, from_broker=True)
    assert again.batch.event_type is QUOTE


def test_ids_that_all_events_share_are_written_once() -> None:
    many = EventBatch.from_pylist(QUOTE, [{}] * 1000)
    shared = Deliver(many, np.arange(1001) * 2, np.tile([5, 7], 1000), 0)
    assert len(encode_frame(Frame(1, 0, 0, (shared,)))) < len(many.serialized()) + 200


def test_a_subscription_may_bring_its_schema() -> None:
    message = Subscribe(3, 4, FILTER, VALUES)
    assert decode_message(of_the_wire(message, schemas=True), lambda _: None) == message


@pytest.mark.parametrize("role", Role)
@pytest.mark.parametrize("policy", SlowConsumer)
def test_round_trip_of_greetings(role: Role, policy: SlowConsumer) -> None:
    hello = Hello(1, 2, 3, 4, "ticket")
    greeting = Greeting(role, "b1", hello, "five", policy, Limits(10, 20, 30), {"a": "b"})
    assert decode_packet(encode_greeting(greeting)) == greeting


def test_round_trip_of_a_frame_without_anything() -> None:
    assert decode_packet(encode_frame(Frame(0, 0, 0))) == Frame(0, 0, 0)


def test_round_trip_of_goodbyes() -> None:
    goodbye = Goodbye("UNAVAILABLE", "broker b1 is shutting down")
    assert decode_packet(encode_goodbye(goodbye)) == goodbye


def test_round_trip_of_event_types() -> None:
    keyed = EventType("Quote", QUOTE.attributes, key=next(iter(QUOTE.attributes)))
    assert decode_event_type(encode_event_type(QUOTE)) == QUOTE
    assert decode_event_type(encode_event_type(keyed)) == keyed != QUOTE


# --- what makes no sense --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\xff\xff", "2 bytes are no packet of covey.v1.Broker"),
        (b"", "an empty packet: expected a hello, a frame or a goodbye"),
        (pb.Packet(hello=pb.Hello(protocol=9)).SerializeToString(), "with protocol 9: this side speaks 2"),
        (
            pb.Packet(hello=pb.Hello(protocol=9, oldest_protocol=3)).SerializeToString(),
            "with protocol 3 to 9: this side speaks 2",
        ),
        (pb.Packet(hello=pb.Hello(protocol=2)).SerializeToString(), "hello with role 0"),
        (
            pb.Packet(hello=pb.Hello(protocol=2, role=pb.Hello.ROLE_CLIENT, id="a\n")).SerializeToString(),
            r"hello with id 'a\\n': expected 1 to 200 printable characters",
        ),
        (
            pb.Packet(hello=pb.Hello(protocol=2, role=pb.Hello.ROLE_CLIENT, id="a")).SerializeToString(),
            "incarnation 0: expected a positive number",
        ),
        (  # A batch of 0 events at most would be split for ever.
            encode_greeting(Greeting(Role.BROKER, "b1", Hello(1, 2, 3, 4), limits=Limits(10, 0, 30))),
            "max_batch_events=0.*: expected at least 1 of each",
        ),
    ],
)
def test_malformed_packets(data: bytes, complaint: str) -> None:
    with pytest.raises(MalformedPacketError, match=complaint):
        decode_packet(data)


def subscribe(**fields: object) -> pb.Message:
    given = {"epoch": 5, "subscription_id": 6, "type_name": "Quote", "filter": "price < 1", **fields}
    return pb.Message(subscribe=pb.Subscribe(**given))


def advertise(attributes: list[pb.Attribute]) -> pb.Message:
    return pb.Message(
        advertise=pb.Advertise(epoch=7, event_type=pb.EventType(name="Q", attributes=attributes))
    )


def publish(**fields: object) -> pb.Message:
    given = {"type_name": "Quote", "count": 3, "first_sequence": 17, "record_batch": BATCH.serialized()}
    return pb.Message(publish=pb.Publish(events=pb.Events(**{**given, **fields})))


def packed(**fields: object) -> pb.Message:
    return publish(**{"record_batch": b"", "packed_columns": BATCH.columns.packed(), **fields})


EVENTS = {"epoch": 0, "type_name": "Quote", "first_sequence": 17, "count": 3}


@pytest.mark.parametrize(
    ("wire", "reason", "about"),
    [
        (pb.Message(), "a message of no known kind", {"epoch": 0}),
        (
            subscribe(type_name="Nope"),
            "'Nope' is not known",
            {"status": "NOT_FOUND", "type_name": "Nope", "epoch": 5},
        ),
        (
            subscribe(filter="price << 3"),
            "expected a number or a variable after <\n  price << 3\n         ^",
            {"epoch": 5, "subscription_id": 6, "type_name": "Quote"},
        ),
        (subscribe(filter="prize < 3"), "prize", {"epoch": 5}),
        (subscribe(filter="price < $x"), "$x has no value", {"epoch": 5}),
        (subscribe(values={"x": pb.Value(int64=1)}), "$x is unknown", {"epoch": 5}),
        (
            subscribe(filter="price < $x", values={"x": pb.Value(string="a")}),
            "expected a number",
            {"epoch": 5},
        ),
        (subscribe(filter="price < $x", values={"x": pb.Value(float64=float("nan"))}), "NaN", {"epoch": 5}),
        (subscribe(filter="price < $x", values={"x": pb.Value()}), "$x has no value", {}),
        (subscribe(subscription_id=0), "subscription id 0", {"epoch": 5}),
        (subscribe(subscription_id=2**32), "subscription id 4294967296", {"epoch": 5}),
        (
            subscribe(event_type=pb.EventType(name="Other", attributes=[pb.Attribute(name="a", kind=1)])),
            "carries the schema of 'Other'",
            {"epoch": 5},
        ),
        (advertise([]), "at least one attribute", {"epoch": 7, "type_name": "Q"}),
        (advertise([pb.Attribute(name="a", kind=1)] * 2), "attribute 'a' is declared twice", {}),
        (advertise([pb.Attribute(name="a")]), "kind number 0", {}),
        (
            pb.Message(update=pb.Update(epoch=8, valid_for_ns=2**64 - 1)),
            "a validity period of 18446744073709551615 ns: expected at most",
            {"epoch": 8},
        ),
        (
            pb.Message(update=pb.Update(epoch=8, values={"at": pb.Value(timestamp=2**62)})),
            "years 1 to 9999",
            {"epoch": 8},
        ),
        (publish(type_name="Nope"), "Nope", {**EVENTS, "status": "NOT_FOUND", "type_name": "Nope"}),
        (
            publish(schema=encode_event_type(EventType("Other", {"a": "int64"}))),
            "events of 'Quote' with a schema of 'Other'",
            EVENTS,
        ),
        (publish(schema=b"garbage"), "7 bytes are no event type", EVENTS),
        (publish(record_batch=b"garbage"), "malformed record batch", EVENTS),
        (packed(packed_columns=b"garbage"), "malformed packed columns", EVENTS),
        (packed(count=4), "malformed packed columns", {**EVENTS, "count": 4}),
        (packed(count=0), "packed columns of 0 events", {**EVENTS, "count": 0}),
        (packed(sequence_offsets=b"abcd"), "sequence_offsets, expected", EVENTS),
        (
            packed(record_batch=BATCH.serialized()),
            "packed columns and a record batch: expected one of them",
            EVENTS,
        ),
        (publish(count=4), "of 3 events says that it has 4", {**EVENTS, "count": 4}),
        (publish(sequence_offsets=b"abc"), "expected a multiple of 4", EVENTS),
        (publish(sequence_offsets=b"abcd"), "sequence_offsets, expected", EVENTS),
        (
            pb.Message(deliver=pb.Deliver(events=publish().publish.events, offsets=b"\1\0\0\0")),
            "expected 4 rising from 0",
            EVENTS,
        ),
    ],
)
def test_invalid_messages(wire: pb.Message, reason: str, about: dict[str, object]) -> None:
    with pytest.raises(MessageError) as raised:
        decode_message(wire, TYPES.get)
    refuse = raised.value.refuse
    assert reason in refuse.reason
    for field, value in {"status": "INVALID_ARGUMENT", **about}.items():
        assert getattr(refuse, field) == value


def test_a_client_may_not_send_what_brokers_send() -> None:
    """A Deliver of 4,096 events with 1 MB of ids would take 8 GB once its ids are repeated for each event."""
    events = EventBatch.from_pylist(EventType("Flag", {"up": "bool"}), [{}] * 4_096)
    wire = pb.Message()
    fill_events(wire.deliver.events, events)
    wire.deliver.ids = bytes(1 << 20)
    for each in (
        wire,
        pb.Message(refuse=pb.Refuse(epoch=3)),
        pb.Message(gap=pb.Gap()),
        pb.Message(expired=pb.Expired()),
        pb.Message(notice=pb.Notice()),
        pb.Message(listeners_report=pb.ListenersReport()),
    ):
        with pytest.raises(MessageError, match=f"of kind {each.WhichOneof('kind')} from a client"):
            decode_message(each, {"Flag": events.event_type}.get, filter_bytes=100)


def test_a_long_filter_is_refused_before_it_is_parsed() -> None:
    for wire, about in (
        (pb.Message(subscribe=pb.Subscribe(epoch=3, subscription_id=4, type_name="Quote")), (3, 4)),
        (pb.Message(advertise=pb.Advertise(epoch=5, event_type=pb.EventType(name="Quote"))), (5, 0)),
    ):
        getattr(wire, wire.WhichOneof("kind")).filter = "é <<" * 8
        with pytest.raises(MessageError) as raised:
            decode_message(wire, TYPES.get, filter_bytes=39)
        assert raised.value.refuse == Refuse(
            about[0],
            "RESOURCE_EXHAUSTED",
            "a filter on 'Quote' has 40 bytes: expected at most 39 (max_filter_bytes)",
            about[1],
            "Quote",
        )
        with pytest.raises(MessageError, match="expected"):
            decode_message(wire, TYPES.get, filter_bytes=40)


def test_long_texts_among_values_are_refused() -> None:
    subscribe = pb.Subscribe(epoch=3, subscription_id=4, type_name="Quote", filter="firm == $firm")
    for wire in (pb.Message(subscribe=subscribe), pb.Message(update=pb.Update(epoch=3, subscription_id=4))):
        body = getattr(wire, wire.WhichOneof("kind"))
        body.values["firm"].string = "é" * 100
        decode_message(wire, TYPES.get, filter_bytes=200)
        with pytest.raises(MessageError) as raised:
            decode_message(wire, TYPES.get, filter_bytes=199)
        refuse = raised.value.refuse
        assert (refuse.epoch, refuse.status, refuse.subscription_id) == (3, "RESOURCE_EXHAUSTED", 4)
        assert refuse.reason == "values with 200 bytes of text: expected at most 199 (max_filter_bytes)"
        decode_message(wire, TYPES.get, from_broker=True)


def test_what_no_bound_of_bytes_counts_has_one_of_its_own() -> None:
    """A queue of 16 MiB had room for 65,536 events, each with a publisher of megabytes; types are bounded by
    their number."""
    quote = TYPES["Quote"]
    for length, fits in ((400, True), (401, False)):
        batch = EventBatch.from_pylist(quote, [{}], publisher="a/".ljust(length, "x"), first_sequence=1)
        wire = pb.Message()
        fill_events(wire.publish.events, batch)
        assert decode_message(wire, TYPES.get, from_broker=True).batch.publisher == batch.publisher
        with nullcontext() if fits else pytest.raises(MessageError, match="publisher of 401 characters"):
            decode_message(wire, TYPES.get, filter_bytes=100)
    wide = EventType("Wide", {f"attribute{number}": "int64" for number in range(8_000)})
    advertise, subscribe, publish = pb.Message(), pb.Message(), pb.Message()
    fill_event_type(advertise.advertise.event_type, wide)
    subscribe.subscribe.subscription_id, subscribe.subscribe.type_name = 1, "Wide"
    fill_event_type(subscribe.subscribe.event_type, wide)
    known = EventType("Wide", {**wide.attributes, "other": "int64"})
    fill_events(publish.publish.events, EventBatch.from_pylist(wide, [{}]))
    for wire in (advertise, subscribe, publish):
        decode_message(wire, {"Wide": known}.get, from_broker=True)
        with pytest.raises(MessageError, match="expected at most 65536"):
            decode_message(wire, {"Wide": known}.get, filter_bytes=100)


WHOLE = encode_frame(Frame(3, 2, 1, (*MESSAGES, *DELIVERIES)), schemas=True)


@examples(500)
@given(at=st.integers(0, len(WHOLE) - 1), value=st.integers(0, 255), end=st.integers(0, len(WHOLE)))
@example(at=0, value=0, end=len(WHOLE))
def test_damaged_frames_raise_nothing_else(at: int, value: int, end: int) -> None:
    data = bytearray(WHOLE)
    data[at] = value
    with suppress(MalformedPacketError):
        frame = decode_packet(bytes(data[:end]))
        for wire in frame.messages if isinstance(frame, Frame) else ():
            with suppress(MessageError):
                decode_message(wire, TYPES.get)
