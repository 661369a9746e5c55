"""docs/wire.md: its numbers are the code's, and its session in packets is an endpoint's. `python
tests/overlay/transport/test_wire_page.py` writes the packets anew."""

import re
from inspect import signature
from pathlib import Path
from typing import Any

from google.protobuf import text_format

from covey.matcher import EventType, parse
from covey.overlay.client import client as client_library
from covey.overlay.client import driver
from covey.overlay.client.driver import _PASSING
from covey.overlay.core import budget
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.endpoint import (
    broker_endpoint,
    client_endpoint,
    connections,
    ending,
    flow,
    interface_queue,
    interfaces,
    outbox,
    recovery,
)
from covey.overlay.core.endpoint.broker_endpoint import BrokerEndpoint
from covey.overlay.core.endpoint.client_endpoint import ClientEndpoint
from covey.overlay.core.endpoint.connections import ConnectRequest
from covey.overlay.core.endpoint.limits import Limits, SessionLimits
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.link import joining, link, size
from covey.overlay.core.link.link import ACKNOWLEDGE_AFTER_NS, Hello, Link
from covey.overlay.core.messages import Deliver
from covey.overlay.core.routing.broker import Broker
from covey.overlay.http2 import connection as http2_connection
from covey.overlay.http2 import rpc
from covey.overlay.http2.connection import Http2Connection
from covey.overlay.http2.frames import Http2Options
from covey.overlay.node import dialer, main, node_connection
from covey.overlay.node.overlay_file import LimitsSection
from covey.overlay.transport import calls, channel, event_loop, packets, rpc_server
from covey.overlay.transport.codec import decode_message
from covey.overlay.transport.packets import (
    Goodbye,
    Greeting,
    Role,
    decode_packet,
    encode_frame,
    encode_goodbye,
    encode_greeting,
)
from covey.proto import broker_pb2 as pb

PAGE = Path(__file__).resolve().parents[3] / "docs" / "wire.md"
NS_PER_S = 1_000_000_000


def s(seconds: float) -> str:
    return f"{seconds:g} s"


def of_ns(nanoseconds: int) -> str:
    return s(nanoseconds / NS_PER_S) if nanoseconds >= NS_PER_S else f"{nanoseconds / 1e6:g} ms"


def of_bytes(count: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count % unit == 0 and count // unit:
            return f"{count // unit} {name}"
    return f"{count:,}"


def rows(heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its head."""
    text = PAGE.read_text().partition(f"\n## {heading}\n")[2]
    table = re.search(r"(?m)^\|-.*\n((?:\|.*\n)+)", text)
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in table[1].splitlines()]


def test_its_methods_are_those_of_the_contract() -> None:
    methods = [name for first, *_ in rows("Connections") for name in re.findall(r"`(\w+)`", first)]
    assert methods == [method.name for method in pb.DESCRIPTOR.services_by_name["Broker"].methods]


def test_its_timers_are_those_of_the_code() -> None:
    options, limits = Http2Options(), SessionLimits()
    of_client = Http2Connection(client=True, now_ns=0).next_timer()
    assert of_client is not None
    first, longest = event_loop._FIRST_PAUSE_S, event_loop._LONGEST_PAUSE_S
    assert node_connection._HELLO_WITHIN_S == rpc_server._REQUEST_WITHIN_S
    expected = {
        "acknowledgement of a frame, at the latest": of_ns(ACKNOWLEDGE_AFTER_NS),
        "silence before a PING; Covey's client": f"{of_ns(options.keepalive_ns)}; {of_ns(of_client)}",
        "silence after the PING before the connection ends": of_ns(options.keepalive_timeout_ns),
        "pause before another attempt: first, longest": (
            f"{500 * first:g} to {1000 * first:g} ms, {longest / 2:g} to {longest:g} s"
        ),
        "connection that starts the pauses over": s(event_loop.HEALTHY_AFTER_S),
        "the peer's end of the call, after a Goodbye": s(calls._GOODBYE_S),
        "HTTP/2 preface; rest of a header block": of_ns(options.begin_ns),
        "Hello of a connection; request of a single call": s(node_connection._HELLO_WITHIN_S),
        "connection to a neighbour; its answer to a Hello": (
            f"{s(channel._CONNECT_WITHIN_S)}; {s(dialer._ANSWER_WITHIN_S)}"
        ),
        "answer of the holder of a name": of_ns(connections.PROBE_NS),
        "full queue of a disconnected interface holds publishers": of_ns(interfaces.BLOCK_WHILE_AWAY_NS),
        "lease of a disconnected session": s(limits.lease_s),
        "stall limit of a client": s(limits.stall_limit_s),
        "pause in reading a client while a neighbour has too much control": of_ns(
            broker_endpoint._CONGESTED_NS
        ),
        "recovery: clients, all; counted from its start": (
            f"{of_ns(recovery.CLIENTS_NS)}, {of_ns(recovery.RECOVERY_NS)}; {of_ns(recovery._STARTING_NS)}"
        ),
        "warning that a neighbour which should dial has not": of_ns(connections.NEVER_LINKED_NS),
        "end of a call that the peer does not read": of_ns(rpc._LINGER_NS),
        "draining; after an unexpected exception": f"{s(main.DRAIN_S)}; {s(main.FAILED_DRAIN_S)}",
        "connection; answer to a Hello": f"{s(channel._CONNECT_WITHIN_S)}; {s(driver._ANSWER_WITHIN_S)}",
        "frames of single events, while earlier ones are not acknowledged": (
            f"{round(1e9 / outbox._FRAME_EVERY_NS, -2):,.0f}/s after a burst of "
            f"{outbox._BURST_NS // outbox._FRAME_EVERY_NS}"
        ),
    }
    assert {timer: value for _, timer, value in rows("Timers")} == expected


def test_its_limits_are_those_of_the_overlay_file() -> None:
    def shown(name: str, value: float | None) -> str:
        if value is None:
            return "none"
        large = name.endswith("_bytes") and value > 65_536
        return of_bytes(int(value)) if large else f"{value:,g}" if value % 1 else f"{int(value):,}"

    defaults = {f"`{n}`": shown(n, field.default) for n, field in LimitsSection.model_fields.items()}
    assert {name: default for name, default, _ in rows("Limits")} == defaults


def test_its_other_numbers_are_those_of_the_code() -> None:
    options, ours = Http2Options(), EndpointOptions()
    events = link.FRAMES_IN_FLIGHT
    control = events + link.CONTROL_IN_FLIGHT
    largest = channel.max_message_bytes(Limits().max_frame_bytes)
    text = re.sub(r"\s+", " ", PAGE.read_text())
    for sentence in (
        f"version {packets.PROTOCOL} of the protocol",
        f"| {packets.PROTOCOL}, {packets.PROTOCOL} | {packets.PROTOCOL}, {packets.PROTOCOL} |",
        f"| {options.max_streams}; more are refused",
        f"`SETTINGS_MAX_FRAME_SIZE` | {of_bytes(options.max_frame_bytes)} |",
        f"| {of_bytes(options.stream_window)}, {of_bytes(options.connection_window)}; granted again",
        f"| {of_bytes(options.max_header_bytes)}, in HEADERS and at most {options.max_continuations} CONT",
        f"{options.permits:,} permits, which refill at {options.permits_per_s}/s",
        f"DATA of less than {budget.BRINGS_BYTES} bytes, or of less than {rpc._SMALL_PART} behind which",
        f"of which each DATA takes at least {http2_connection._DATA_PERMITS:g}",
        f"one more per {http2_connection._BYTES_OF_PERMIT} bytes of a frame that is no DATA",
        f"{http2_connection._RESET_PERMITS:g} more for the RST_STREAM of an open stream",
        f"and {budget.IDLE_FRAME:g} for a `Frame` of Covey that changes nothing",
        f"1 per {budget.BRINGS_BYTES} bytes, a call that it answers {budget.CALL:g}",
        f"Behind {http2_connection._TURN_PERMITS:g} permits in one turn",
        f"broker's time, {event_loop._SLICE_S * 1e3:g} ms at once",
        f"lets {of_bytes(options.max_answer_bytes)} of answers lie unread",
        f"not arrived whole, of more than {of_bytes(rpc._PARTIAL_BYTES)}",
        f"twice `max_frame_bytes`, at least {of_bytes(channel._SMALLEST_MESSAGE)}",
        f"twice `max_frame_bytes` ({of_bytes(largest)} by default",
        f"{events} frames are unacknowledged, and no control while {control} are",
        f"{events} frames of events and {control} with control",
        f"Publish {size.FIXED_BYTES} + payload Deliver {size.FIXED_BYTES} + payload + 4 · (count + 1) + 4 ·",
        f"Covey's client has {of_bytes(client_library._WINDOW_BYTES)}",
        f"grants a client {of_bytes(ours.windows.first)} at first",
        f"grants {of_bytes(ours.windows.publishers)} divided by",
        f"at least {of_bytes(ours.windows.least)} and at most {of_bytes(link.DEFAULT_WINDOW_BYTES)}",
        f"with up to {of_bytes(link.CONTROL_BYTES)} of control",
        f"while less than {of_bytes(calls._QUEUED_BYTES)} wait for the peer",
        f"at most {joining.INGRESS_SPAN_NS // 10**6} ms apart",
        f"at most {ours.turn_messages} messages of a client",
        f"as many as take {flow.TURN_NS // 10**6} ms, one at least",
        f"whose turns take {flow.DEAR_NS / 10**6:g} ms and more",
        f"more than {ending.PART} subscriptions, until these are withdrawn, {ending.PART} in "
        f"{ending.PAUSE_NS // 10**6} ms",
        f"more than {ours.max_queued_control:,} control messages wait for a neighbour",
        f"more than {ours.max_unsettled:,} unsettled changes",
        f"still taken, up to {of_bytes(ours.after_hold_bytes)} per client and type",
        f"more than {interface_queue.MAX_SESSION_CONTROL:,} control messages pending",
        f"{client_endpoint.MAX_CONTROL:,} in a client without a connection",
        f"{signature(Link).parameters['max_control'].default:,} for an interface out of reach",
        f"{outbox.OUTBOX_EVENTS:,} events and {of_bytes(outbox.OUTBOX_BYTES)} (`outbox_events`",
        f"{rpc_server._OTHER_DESCRIPTORS} descriptors of the process",
    ):
        assert sentence in text, sentence
    *names, last = re.search(r"any status but ([\w, ]+) and (\w+)\.", text).group(1, 2)
    assert {*names[0].split(", "), last} == _PASSING


def test_its_table_of_messages_and_fields_is_whole() -> None:
    kinds = {kind for cell, *_ in rows("Messages") for kind in re.findall(r"`(\w+)`", cell)}
    assert {kind.lower() for kind in kinds} == {
        name.replace("_", "") for name in pb.Message.DESCRIPTOR.fields_by_name
    }
    for heading, fields in (
        ("Hello", pb.Hello.DESCRIPTOR.fields_by_name),
        ("Frames", pb.Frame.DESCRIPTOR.fields_by_name),
        ("Events", pb.Events.DESCRIPTOR.fields_by_name),
    ):
        named = {field for cell, *_ in rows(heading) for field in re.findall(r"`(\w+)`", cell)}
        assert named == set(fields)


# --- the session in packets ---------------------------------------------------------------------------------

TICK = EventType("Tick", {"price": "float64", "firm": "string"})


class _Conversation:
    """A client and a broker, and their packets."""

    def __init__(self) -> None:
        self.packets: list[tuple[str, bytes]] = []
        self.core = Broker("b1")
        self.broker: BrokerEndpoint[Any] = BrokerEndpoint(
            self.core,
            [],
            EndpointOptions(),
            new_link=Link,
            life=1,
            decode=lambda wire, from_broker: decode_message(wire, self.core.event_type),
            warn=lambda *_: None,
            now_ns=0,
        )
        self.broker.clock.offset_ns = 1_700_000_000 * NS_PER_S
        self.client = ClientEndpoint(ClientSession("trader/1"), Link(7, window_bytes=1 << 20))
        self.now_ns = 0
        hello = self.client.hello()
        self.note("client", encode_greeting(Greeting(Role.CLIENT, "trader", hello)))
        self.broker.accept(ConnectRequest("client/trader", hello), self, 0)

    def opened(self, answer: Hello, resumed: bool) -> None:
        self.note("broker", encode_greeting(Greeting(Role.BROKER, "b1", answer, "example")))
        self.client.open(answer, Limits())

    def wake(self) -> None:
        pass

    def close(self, status: str, reason: str) -> None:
        raise AssertionError(reason)

    def charge(self, permits: float) -> None: ...

    def note(self, side: str, data: bytes) -> None:
        self.packets.append((side, data))

    def exchange(self) -> None:
        while True:
            to_broker = self.client.next_frame(self.now_ns)
            if to_broker is not None:
                data = encode_frame(to_broker, schemas=True)
                self.note("client", data)
                self.broker.receive("client/trader", self, [decode_packet(data)], self.now_ns)
                if self.broker.deferred:
                    self.broker.deliver()
            to_client = self.broker.next_frame("client/trader", self)
            if to_client is not None:
                data = encode_frame(to_client)
                self.note("broker", data)
                frame: Any = decode_packet(data)
                for wire in self.client.receive(frame, self.now_ns):
                    known = self.client.session.event_type
                    message = decode_message(wire, known) if isinstance(wire, pb.Message) else wire
                    self.client.handle(message)
                    if isinstance(message, Deliver):
                        self.client.link.consume(size.size_of(message))
                self.client.received()
            if to_broker is to_client is None:
                return

    def later(self) -> None:
        self.now_ns += ACKNOWLEDGE_AFTER_NS
        self.client.handle_timer(self.now_ns)
        self.broker.handle_timer(self.now_ns)
        self.exchange()


def conversation() -> str:
    both = _Conversation()
    client = both.client
    client.transmit(client.session.advertise(TICK))
    both.exchange()
    _, messages = client.session.subscribe(parse("price < $limit", TICK), {"limit": 10.0})
    client.transmit(messages)
    both.exchange()
    client.publish("Tick", {"price": 9.5, "firm": "IBM"})
    both.exchange()
    both.later()
    both.note("client", encode_goodbye(Goodbye("OK", "closed by the client")))
    lines = []
    for side, data in both.packets:
        packet = pb.Packet.FromString(data)
        text = text_format.MessageToString(packet, as_one_line=True)
        lines += [f"{side} → {'client' if side == 'broker' else 'broker'}, {len(data)} bytes", f"    {text}"]
        if packet.HasField("hello") and side == "client":
            lines += ["    " + data[i : i + 32].hex(" ") for i in range(0, len(data), 32)]
    return "\n".join(lines) + "\n"


_BLOCK = re.compile(r"(<!-- bytes: .*?-->\n\n```text\n)(.*?)(```\n\n<!-- end of bytes -->)", re.DOTALL)


def test_its_session_in_packets_is_what_the_endpoints_send() -> None:
    block = _BLOCK.search(PAGE.read_text())
    assert block[2] == conversation()


if __name__ == "__main__":
    page = PAGE.read_text()
    PAGE.write_text(_BLOCK.sub(lambda block: block[1] + conversation() + block[3], page))
