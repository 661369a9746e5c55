"""Hostile packets of clients against one broker's endpoint and core, without I/O, and hostile texts of
filters.

A hostile client has rights with policies; a reader and a publisher are connected too. Its packets have
extreme numbers, hostile filters and Arrow columns with false lengths; some are mutated, cut, repeated and out
of order. The judge: only `LinkError` and `MalformedPacketError` are raised, the state of one client is
bounded, and after each connection the reader gets what the publisher publishes, in order, and what its policy
permits.

Texts of filters follow the grammar and are then nested, repeated, cut or mutated. A text is a filter or
raises `CoveyError`, and a filter's own text is a filter again.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from covey.matcher import EventBatch, EventType, parse
from covey.matcher.errors import CoveyError
from covey.overlay.core.access.rights import Action, Permission, Rights
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.connections import ConnectionRefusedError, ConnectRequest
from covey.overlay.core.endpoint.limits import Undecodable
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.link.link import Frame, Hello, Link, LinkError
from covey.overlay.core.messages import Advertise, Deliver, Message, Publish, Subscribe
from covey.overlay.core.routing.broker import Broker
from covey.overlay.transport.codec import WireMessage, decode_message, event_bytes, fill_events
from covey.overlay.transport.packets import Goodbye, decode_packet, encode_frame
from covey.overlay.transport.wire_values import MalformedPacketError, MessageError, fill_event_type
from covey.proto import broker_pb2 as pb
from covey.sim.invariants import check

HOSTILE_TYPE = EventType(
    "Quote",
    {
        **{"firm": "string", "price": "float64", "volume": "int64"},
        **{"up": "bool", "at": "timestamp", "tags": "list<string>"},
    },
)
_ATTRIBUTES = (*HOSTILE_TYPE.names, "colour", "$x", "é", "_", "and", "")
_OPERATORS = ("==", "!=", "<", "<=", ">", ">=", "in", "not in", "prefix", "suffix", "contains", "=", "<<")
_OPERANDS = (
    *("1", "-1", "0", "1e308", "1e999", "-0.0", "9223372036854775807", "9" * 400, "0x10", "1_0", "nan"),
    *("'IBM'", '"a"', "'", "'" + "x" * 300 + "'", "'\\u0000'", "'\ud800'", "'é\U0001f600'", "true", "null"),
    *("$x", "$y - 5", "1.01 * $ref", "$x * $y", "$", "$1", "$x + 1e308", "(1, 2)", "('a', 'b')", "()"),
    *("2026-01-31T12:00:00Z", "'2026-01-31'", "'9999-12-31T23:59:59.999999Z'", "[1]", "{}"),
)
_PLAIN = ("volume in (1, 2, 3)", "firm prefix 'I'", "price != 3", "up == true", "firm contains 'x'")
_CALLS = (
    *("matches(firm, 'a+')", "matches(firm, '(((((')", "matches(firm, $x)", "weekday(at)", "no_such(price)"),
    *("within(price, price, $x, $y, 500)", "matches()", "weekday(at) == 1", "matches(firm, 'a', 'b')"),
)
_MARKS = "()'\"$,.<>=!-+* \t\n\0[]{}#;\\é\U0001f600aA09"


def hostile_filter(draw: random.Random) -> str:
    """A text for `HOSTILE_TYPE`; about a third are filters."""
    text = _expression(draw, draw.randrange(4))
    chance = draw.random()
    if chance < 0.01:
        text = _blown_up(draw, text)
    elif chance < 0.20:
        where = draw.randrange(len(text) + 1)
        text = text[:where] + draw.choice(_MARKS) + text[where + draw.randrange(2) :]
    elif chance < 0.25:
        text = text[: draw.randrange(len(text) + 1)]
    elif chance < 0.28:
        text = "".join(draw.choices(_MARKS, k=draw.randrange(1, 60)))
    elif chance < 0.30:
        text = text * draw.choice((2, 30))
    return text


def _expression(draw: random.Random, depth: int) -> str:
    if depth and draw.random() < 0.6:
        parts = [_expression(draw, depth - 1) for _ in range(draw.randint(1, 3))]
        joined = f"({draw.choice((' and ', ' or ')).join(parts)})"
        return f"not {joined}" if draw.random() < 0.2 else joined
    chance = draw.random()
    name = draw.choice(_ATTRIBUTES if chance < 0.2 else HOSTILE_TYPE.names)
    if chance < 0.1:
        return draw.choice(_CALLS)
    if chance < 0.15:
        return f"exists({name})" if draw.random() < 0.5 else f"{name} exists"
    if chance < 0.25:
        return f"{name} between {draw.choice(_OPERANDS)} and {draw.choice(_OPERANDS)}"
    if chance < 0.7:  # well-formed, so that engines get some
        return draw.choice(("price < $p", "price >= $q", *_PLAIN))
    return f"{name} {draw.choice(_OPERATORS)} {draw.choice(_OPERANDS)}"


def _blown_up(draw: random.Random, text: str) -> str:
    many = draw.choice((50, 199, 201, 1_000, 5_000))
    return draw.choice(
        (
            "(" * many + text + ")" * many,
            "(" * many,
            "not " * many + text,
            "not (" * many + text + ")" * many,
            " and ".join([text] * (many // 10)),
            " or ".join(f"price == {i}" for i in range(many)),
            " and ".join(f"(price == {i} or volume == {i})" for i in range(many // 5)),
            f"volume in ({', '.join(map(str, range(many)))})",
            f"firm == '{'x' * 40 * many}'",
            "price < " + "-" * many + "1",
            f"price < ${'v' * many}",
            "(price > 1 and " * many + "up == true" + " or volume < 2)" * many,
        )
    )


@dataclass(slots=True)
class FilterFuzzResult:
    """`violations` name the seed and the number of each text."""

    texts: int = 0
    filters: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.texts:,} texts, {self.filters:,} of them filters"


def fuzz_filters(seed: int, count: int) -> Iterator[FilterFuzzResult]:
    """Parse `count` texts; yields the accumulated result every 500 texts."""
    draw = random.Random(seed)
    result = FilterFuzzResult()
    for number in range(1, count + 1):
        text = hostile_filter(draw)
        result.texts = number
        place = f"seed {seed}, text {number}: {text[:200]!r}"
        try:
            filter = parse(text, HOSTILE_TYPE, unknown_operators=draw.random() < 0.5)
            written = str(filter)
            if number % 16 == 0 and str(parse(written, HOSTILE_TYPE, unknown_operators=True)) != written:
                result.violations.append(f"{place} is written in two ways")
            result.filters += 1
        except CoveyError:
            pass
        except Exception as error:
            result.violations.append(f"{place}: {type(error).__name__}: {error}")
        if number % 500 == 0 or number == count:
            yield result


_HOSTILE, _READER, _PUBLISHER = "client/mallory", "client/reader", "client/market"
_TICK = EventType("Tick", {"number": "int64", "region": "string"})
_BOUNDS = Bounds(
    sessions=8, session_subscriptions=6, session_types=5, types=10, filter_bytes=20_000, client_sessions=3
)
_NUMBERS = (0, 1, 2, 3, 5, 7, 255, 4_096, 1 << 31, (1 << 32) - 1, (1 << 62) + 1, (1 << 64) - 1)
_SMALL = tuple(number for number in _NUMBERS if number < 1 << 32)
_NAMES = ("Quote", "Quote", "Quote", "Tick", "Other", "New1", "New2", "", "é" * 50, "x" * 5_000)
_PACKETS = 200
_NS = 1_000_000_000


@dataclass(slots=True)
class PacketFuzzResult:
    """`violations` name the seed of their connection."""

    packets: int = 0
    connections: int = 0
    refused: int = 0
    broken: int = 0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"{self.packets:,} packets to {self.connections:,} brokers, {self.refused:,} messages refused, "
            f"{self.broken:,} connections ended by a breach"
        )


class _End:
    def opened(self, answer: Hello, resumed: bool) -> None:
        pass

    def wake(self) -> None:
        pass

    def close(self, status: str, reason: str) -> None:
        pass

    def charge(self, permits: float) -> None:
        pass


class PacketDrawer:
    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._sequence = 0
        self._epoch = 0
        self._sent: list[bytes] = []

    def restart(self) -> None:
        """A new connection numbers its frames anew."""
        self._sequence = self._epoch = 0

    def packet(self) -> bytes:
        draw = self._draw
        if self._sent and draw.random() < 0.03:
            return draw.choice(self._sent)
        packet = pb.Packet()
        frame = packet.frame
        self._sequence += 1
        odd = draw.random() < 0.005
        frame.sequence = draw.choice(_NUMBERS) if odd else self._sequence
        frame.credit = draw.choice(_NUMBERS) if draw.random() < 0.1 else 1 << 40
        if draw.random() < 0.005:
            frame.received, frame.settled = draw.choice(_NUMBERS), draw.choice(_NUMBERS)
        frame.probe = draw.random() < 0.1
        for _ in range(draw.choice((1, 1, 1, 2, 5))):
            self._fill(frame.messages.add())
        data: bytes = packet.SerializeToString(deterministic=True)  # equal seeds, equal bytes of maps
        self._sent = [*self._sent[-20:], data]
        chance = draw.random()
        if chance < 0.02:
            for _ in range(draw.choice((1, 1, 3, 20))):
                where = draw.randrange(len(data))
                data = data[:where] + draw.randbytes(1) + data[where + 1 :]
        elif chance < 0.025:
            data = data[: draw.randrange(len(data))]
        elif chance < 0.03:
            data = draw.randbytes(draw.randrange(100))
        return data

    def _fill(self, message: pb.Message) -> None:
        draw = self._draw
        fill = draw.choices(
            (self._subscribe, self._update, self._publish, self._advertise, self._small, self._foreign),
            (6, 5, 6, 3, 4, 1),
        )[0]
        fill(message)

    def _next_epoch(self) -> int:
        if self._draw.random() < 0.005:
            return self._draw.choice(_NUMBERS)
        self._epoch += 1
        return self._epoch

    def _id(self) -> int:
        return self._draw.choice(_NUMBERS) if self._draw.random() < 0.1 else self._draw.randrange(1, 9)

    def _name(self) -> str:
        return self._draw.choice(_NAMES) if self._draw.random() < 0.3 else "Quote"

    def _type(self, wire: pb.EventType) -> None:
        draw = self._draw
        chance = draw.random()
        if chance < 0.3:  # whose kinds and key differ each time
            wire.name = self._new_name()
            wire.attributes.add(name="k", kind=draw.choice((1, 3)))
            wire.attributes.add(name="a", kind=draw.choice((1, 2)))
            wire.key = draw.choice(("", "k"))
            return
        if chance < 0.9:
            fill_event_type(wire, HOSTILE_TYPE)
            wire.name = self._name()
            return
        wire.name = self._name()
        for _ in range(draw.choice((0, 1, 3, 2_000))):
            name = draw.choice(("price", "firm", "", "a b", "é", "z" * 200, f"a{draw.randrange(9_999)}"))
            wire.attributes.add(name=name, kind=draw.choice((0, 1, 2, 3, 4, 5, 6, 7, 99)))

    def _new_name(self) -> str:
        return self._draw.choice(("New1", "New2"))

    def _values(self, wire: MutableMapping[str, pb.Value]) -> None:
        draw = self._draw
        for _ in range(draw.choice((0, 1, 2, 2, 3))):
            value = wire[draw.choice(("p", "q", "x", "y", "limit", "region", ""))]
            kind = draw.choice((*("float64",) * 3, "int64", "string", "bool", "timestamp", "motion"))
            number = draw.choice((0, 1, -1, 5, 2**62, -(2**63), 2**63 - 1))
            if kind == "float64":
                value.float64 = draw.choice((0.0, 1.5, -0.0, float("nan"), float("inf"), 1e308, 3.0))
            elif kind == "motion":
                value.motion.value = draw.choice((0.0, 1.0, float("nan"), 1e308))
                value.motion.rate = draw.choice((0.0, 1.0, -1e308, float("inf")))
                value.motion.since_ns = number
            elif kind == "string":
                value.string = draw.choice(("", "eu", "é", "x" * 3_000))
            else:
                setattr(value, kind, bool(number) if kind == "bool" else number)

    def _subscribe(self, message: pb.Message) -> None:
        draw, subscribe = self._draw, message.subscribe
        subscribe.epoch, subscribe.subscription_id = self._next_epoch(), self._id()
        if draw.random() < 0.5:
            subscribe.type_name, subscribe.filter = "Quote", "price < $p or volume > 3"
            subscribe.values["p"].float64 = float(draw.randrange(9))
            return
        subscribe.for_views = draw.random() < 0.3
        if draw.random() < 0.4:
            self._type(subscribe.event_type)
            subscribe.type_name, subscribe.filter = subscribe.event_type.name, "a < $x"
            self._values(subscribe.values)
            return
        subscribe.type_name = self._name()
        subscribe.filter = hostile_filter(draw).encode(errors="replace").decode()
        self._values(subscribe.values)
        if draw.random() < 0.3:
            self._type(subscribe.event_type)

    def _update(self, message: pb.Message) -> None:
        update = message.update
        update.epoch, update.subscription_id = self._next_epoch(), self._id()
        update.since_ns = self._draw.choice((0, 0, 0, 1, -1, 2**62, -(2**63)))
        if self._draw.random() < 0.3:
            update.for_views, update.after_epoch = (
                update.epoch,
                self._draw.choice((0, max(0, update.epoch - 1))),
            )
        self._values(update.values)

    def _advertise(self, message: pb.Message) -> None:
        advertise = message.advertise
        advertise.epoch = self._next_epoch()
        self._type(advertise.event_type)
        advertise.report_listeners = self._draw.random() < 0.3
        if self._draw.random() < 0.3:
            advertise.filter = hostile_filter(self._draw).encode(errors="replace").decode()

    def _small(self, message: pb.Message) -> None:
        kind = self._draw.choice(("unadvertise", "unsubscribe", "hold", "sync_begin", "sync_end"))
        if kind == "unadvertise":
            name = self._name() if self._draw.random() < 0.3 else self._new_name()
            message.unadvertise.epoch, message.unadvertise.type_name = self._next_epoch(), name
        elif kind == "unsubscribe":
            message.unsubscribe.epoch, message.unsubscribe.subscription_id = self._next_epoch(), self._id()
        elif kind == "hold":
            message.hold.type_name, message.hold.held = self._name(), True
        elif self._draw.random() < 0.2:
            getattr(message, kind).SetInParent()

    def _foreign(self, message: pb.Message) -> None:
        """A message that only brokers send, or an empty one."""
        kind = self._draw.choice(("deliver", "refuse", "listeners_report", "gap", "notice", ""))
        if kind:
            getattr(message, kind).SetInParent()
        if kind == "deliver":
            self._events(message.deliver.events)
            message.deliver.ids = bytes(4 * self._draw.choice((1, 100, 50_000)))

    def _publish(self, message: pb.Message) -> None:
        self._events(message.publish.events)
        message.publish.replayed = self._draw.random() < 0.05

    def _events(self, wire: pb.Events) -> None:
        draw = self._draw
        count = draw.choice((1, 2, 16, 17, 100))
        kinds = draw.random()
        if kinds < 0.2:
            wire.record_batch = self._foreign_arrow(count)
            wire.type_name, wire.count = "Quote", count
        else:
            names = [name for name in HOSTILE_TYPE.names if name != "tags" or kinds > 0.6]
            some = EventType("Quote", {name: HOSTILE_TYPE.attributes[name] for name in names})
            firm = draw.choice(("IBM", "é", "", "x" * 2_000))
            row = {"firm": firm, "price": 1.5, "volume": draw.randrange(9)}
            batch = EventBatch.from_pylist(some, [row] * count, publisher="mallory/1", first_sequence=1)
            fill_events(wire, batch)
        wire.publisher = draw.choice(("mallory", "mallory/1", "market/1", "", "é" * 300))
        wire.first_sequence = draw.choice(_NUMBERS) if draw.random() < 0.3 else draw.randrange(1, 9_999)
        chance = draw.random()
        if chance < 0.1:
            wire.count = draw.choice(_SMALL)
        elif chance < 0.2:
            wire.sequence_offsets = draw.choice((b"\xff", bytes(4 * count), draw.randbytes(4 * count)))
        elif chance < 0.25:
            wire.type_name = self._name()
        elif chance < 0.3:
            wire.schema = draw.choice((b"", b"\xff", draw.randbytes(20)))
        elif chance < 0.35:
            wire.results.add(key=1, rows=draw.randbytes(8), solutions=draw.randbytes(30))
        elif chance < 0.6:
            name = "packed_columns" if wire.packed_columns else "record_batch"
            data = bytearray(getattr(wire, name))
            for _ in range(draw.choice((1, 2, 8))):
                where = draw.randrange(len(data))
                if draw.random() < 0.5 and where + 8 <= len(data):  # a length, or an offset
                    huge = draw.choice((-1, 2**31 - 1, 2**40, 2**62, -(2**63)))
                    data[where : where + 8] = huge.to_bytes(8, "little", signed=True)
                else:
                    data[where] = draw.randrange(256)
            setattr(wire, name, bytes(data))

    def _foreign_arrow(self, count: int) -> bytes:
        """A message of Arrow that is not a batch of the type: nested, dictionaries, compressed, a schema."""
        draw = self._draw
        nested: pa.DataType = pa.int64()
        for _ in range(draw.choice((1, 10, 60))):
            nested = pa.list_(nested) if draw.random() < 0.5 else pa.struct([("a", nested)])
        words = pa.array(["a"] * count).dictionary_encode()
        column = draw.choice((pa.nulls(count), pa.nulls(count, nested), words))
        batch = pa.RecordBatch.from_arrays([column], names=["c"])
        chance = draw.random()
        if chance < 0.2:
            return bytes(batch.schema.serialize())
        if chance < 0.4:
            return _compressed(draw.choice(("lz4", "zstd")))
        return bytes(batch.serialize())


@cache
def _compressed(codec: str) -> bytes:
    """A record batch of 8 MB of zeros, in some kilobytes."""
    zeros = pa.RecordBatch.from_arrays([pa.array(np.zeros(1 << 20, np.int64))], names=["c"])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, zeros.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as writer:
        writer.write_batch(zeros)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    reader.read_next_message()
    return bytes(reader.read_next_message().serialize())


class FuzzedBroker:
    """One broker, with a hostile client from its seed."""

    def __init__(self, seed: int, result: PacketFuzzResult) -> None:
        self._seed = seed
        self._result = result
        draw = self._draw = random.Random(seed)
        self._packets = PacketDrawer(draw)
        self._core = Broker("b1", event_types=[_TICK, HOSTILE_TYPE])
        self._now_ns = _NS
        self._broker: BrokerEndpoint[WireMessage] = BrokerEndpoint(
            self._core,
            [],
            EndpointOptions(bounds=_BOUNDS),
            new_link=Link,
            life=1,
            decode=self._decode,
            warn=lambda *_: None,
            now_ns=self._now_ns,
        )
        self._ends: dict[str, _End] = {}
        self._frames: dict[str, int] = {}
        self._rights: dict[str, Rights] = {}
        self._delivered: list[int] = []

    def play(self) -> None:
        result, draw = self._result, self._draw
        result.connections += 1
        try:
            read, own = Permission("Tick", "region == $tenant"), Permission("*")
            mixed = (Permission("Quote", "price > $floor"), Permission("New*"))
            claims = {"tenant": "eu", "floor": 0.5}
            for interface, publish, subscribe in (
                (_READER, (), (read,)),
                (_PUBLISHER, (own,), ()),
                (_HOSTILE, mixed, mixed),
            ):
                permissions = {Action.PUBLISH: publish, Action.SUBSCRIBE: subscribe, Action.ADMINISTER: ()}
                self._rights[interface] = Rights(interface.partition("/")[2], permissions, None, claims)
                self._open(interface)
            self._say(_PUBLISHER, Advertise(1, _TICK))
            self._say(_READER, Subscribe(1, 1, parse("number >= 0", _TICK), {}))
            for _ in range(_PACKETS):
                result.packets += 1
                self._receive(self._packets.packet())
                if draw.random() < 0.3:
                    self._drain(_HOSTILE, draw.random() < 0.7)
                if draw.random() < 0.05:
                    self._now_ns += draw.choice((10**6, 10**8, 4 * _NS))
                    self._broker.handle_timer(self._now_ns)
            self._judge()
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}:{place.lineno}"
            self._violation(f"{type(error).__name__} at {where}: {str(error)[:200]}")
        result.refused += sum(self._broker.refused.values())

    def _decode(self, wire: WireMessage, from_broker: bool) -> Message | Undecodable:
        try:
            return decode_message(wire, self._core.event_type, filter_bytes=_BOUNDS.filter_bytes)
        except MessageError as error:
            return Undecodable(error.refuse, event_bytes(wire))

    def _open(self, interface: str) -> None:
        rights = self._rights[interface]
        self._ends[interface], self._frames[interface] = _End(), 0
        hello = Hello(self._draw.randrange(1, 1 << 60), credit=1 << 40)
        peer = ConnectRequest(interface, hello, rights=rights, principal=rights.subject)
        with suppress(ConnectionRefusedError):
            self._broker.accept(peer, self._ends[interface], self._now_ns)

    def _receive(self, data: bytes) -> None:
        """A packet of the hostile client, which connects again if the packet ends its connection."""
        end = self._ends[_HOSTILE]
        try:
            packet = decode_packet(data)
            if isinstance(packet, Frame):
                self._hand_over(_HOSTILE, packet)
                return
            if isinstance(packet, Goodbye):
                self._broker.goodbye(_HOSTILE, end, self._now_ns)
        except (LinkError, MalformedPacketError):
            pass
        self._result.broken += 1
        self._broker.lost(_HOSTILE, end, self._now_ns)
        self._packets.restart()
        self._open(_HOSTILE)

    def _say(self, interface: str, *messages: Message) -> None:
        self._frames[interface] += 1
        frame = Frame(self._frames[interface], 0, 1 << 40, messages)
        packet = decode_packet(encode_frame(frame, schemas=True))
        assert isinstance(packet, Frame)
        self._hand_over(interface, packet)

    def _hand_over(self, interface: str, frame: Frame[WireMessage]) -> None:
        end = self._ends[interface]
        while not self._broker.receive(interface, end, [frame], self._now_ns):
            pass
        if self._broker.deferred:
            self._broker.deliver()

    def _drain(self, interface: str, acknowledges: bool = True) -> None:
        """Read all due frames and record the events of the reader."""
        end = self._ends[interface]
        while (frame := self._broker.next_frame(interface, end)) is not None:
            encode_frame(frame)
            if interface == _READER:
                for message in frame.messages:
                    if isinstance(message, Deliver):
                        column = message.batch.record_batch.column("number")
                        self._delivered += column.to_pylist()
            if acknowledges:
                answer: Frame[WireMessage] = Frame(0, frame.sequence, 1 << 40)
                self._broker.receive(interface, end, [answer], self._now_ns)

    def _judge(self) -> None:
        """The other clients continue, and the state of the hostile client is bounded."""
        rows = [{"number": i, "region": ("eu", "us", None)[i % 3]} for i in range(30)]
        batch = EventBatch.from_pylist(_TICK, rows, publisher="market/1", first_sequence=1)
        for interface in (_READER, _PUBLISHER):
            self._drain(interface)
        self._say(_PUBLISHER, Publish(batch))
        self._drain(_READER)
        expected = [i for i in range(30) if i % 3 == 0]
        if self._delivered != expected:
            self._violation(f"the reader has {self._delivered}: expected {expected}")
        check(self._core)
        tables = self._core.tables
        peer = tables.peers.get(_HOSTILE)
        subscriptions = 0 if peer is None else len(peer.subscriptions)
        if subscriptions > _BOUNDS.session_subscriptions:
            self._violation(f"{subscriptions} subscriptions of one client")
        if len(tables.types) > _BOUNDS.types:
            self._violation(f"{len(tables.types)} event types")

    def _violation(self, what: str) -> None:
        self._result.violations.append(f"seed {self._seed}: {what}")


def fuzz_packets(seed: int, count: int) -> Iterator[PacketFuzzResult]:
    """Brokers from `seed` on until they got `count` packets; yields the accumulated result after each."""
    result = PacketFuzzResult()
    while result.packets < count:
        FuzzedBroker(seed, result).play()
        seed += 1
        yield result
