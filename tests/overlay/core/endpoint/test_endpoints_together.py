"""Brokers and clients, endpoint to endpoint, over lossy connections: every event arrives, none twice while
links resume, and at rest no queue or count has anything left. Messages are encoded and decoded, so that both
ends count equal bytes. The driver does only what the endpoints request: it writes where it was woken, and
keeps one timer."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from itertools import pairwise

from core_endpoints import Noted, broker_endpoint
from draws import some_seeds

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.endpoint.client_endpoint import ClientEndpoint
from covey.overlay.core.endpoint.connections import ConnectRequest
from covey.overlay.core.endpoint.limits import Limits, LinkLimits, SessionLimits
from covey.overlay.core.endpoint.outbox import Confirmation
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.link.link import DEFAULT_WINDOW_BYTES, Frame, Hello, Link
from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import Acknowledge, Deliver, Gap, Message
from covey.overlay.transport.codec import WireMessage, decode_message
from covey.overlay.transport.packets import decode_packet, encode_frame

MS = 1_000_000
S = 1_000 * MS
LIMITS = Limits(max_event_bytes=4_096, max_batch_events=256, max_frame_bytes=16_384)


def type_of(client: str) -> EventType:
    return EventType(f"T{client}", {"number": "int64", "text": "string"})


class End:
    """One end of a wire: its writer, and its incoming bytes."""

    def __init__(self) -> None:
        self.arriving: deque[bytes] = deque()
        self.awake = False

    def wake(self) -> None:
        self.awake = True


class BrokerEnd(End, Noted):
    def __init__(self, broker: BrokerUnderTest, interface: str) -> None:
        End.__init__(self)
        Noted.__init__(self)
        self.broker, self.interface = broker, interface

    def write(self) -> bytes | None:
        frame = self.broker.endpoint.next_frame(self.interface, self)
        return None if frame is None else encode_frame(frame, schemas=self.interface.startswith("broker/"))

    def read(self, packets: list[bytes], now_ns: int) -> None:
        frames = [frame_of(packet) for packet in packets]
        handled: list[int] = []
        receive = self.broker.endpoint.receive
        self.broker.run(lambda: handled.append(receive(self.interface, self, frames, now_ns)))
        self.arriving.extendleft(reversed(packets[handled[0] :]))  # the client's next turn

    def lost(self, now_ns: int) -> None:
        self.broker.run(lambda: self.broker.endpoint.lost(self.interface, self, now_ns))


class ClientEnd(End):
    def __init__(self, client: ClientUnderTest) -> None:
        super().__init__()
        self.client = client

    def write(self) -> bytes | None:
        frame = self.client.endpoint.next_frame(self.client.world.now_ns)
        self.client.arm()
        return None if frame is None else encode_frame(frame, schemas=True)

    def read(self, packets: list[bytes], now_ns: int) -> None:
        self.client.read(packets, now_ns)
        if self.client.endpoint.ready:
            self.awake = True

    def lost(self, now_ns: int) -> None:
        self.client.end = None
        self.client.endpoint.lost()


class BrokerUnderTest:
    """As `Node`: it re-arms one timer, and serves sessions a turn later."""

    def __init__(self, world: World, name: str, neighbours: list[str], options: EndpointOptions) -> None:
        self.world, self.name = world, name
        self.timer_ns: int | None = None
        self.endpoint = broker_endpoint(
            name, neighbours=neighbours, options=options, max_frame_bytes=LIMITS.max_frame_bytes
        )

    def run(self, call: Callable[[], object]) -> None:
        call()
        due_ns = self.endpoint.next_timer()
        if due_ns is not None and (self.timer_ns is None or due_ns < self.timer_ns):
            self.timer_ns = due_ns

    def on_time(self) -> None:
        self.timer_ns = None
        self.run(lambda: self.endpoint.handle_timer(self.world.now_ns))


class ClientUnderTest:
    """It reads on command, and publishes numbered events of its own type."""

    def __init__(self, world: World, name: str, broker: str, window_bytes: int) -> None:
        self.world, self.name, self.broker = world, name, broker
        self.session = ClientSession(name)
        link = Link(world.random.getrandbits(40) + 1, window_bytes=window_bytes)
        self.endpoint = ClientEndpoint(self.session, link, outbox_events=500, outbox_bytes=64 << 10)
        self.end: ClientEnd | None = None
        self.timer_ns: int | None = None
        self.event_type = type_of(name)
        self.published = 0
        self.unread: deque[tuple[int, int]] = deque()
        self.got: dict[str, list[int]] = {}
        self.missed = 0
        self.confirmations: list[Confirmation] = []
        self.finished: list[Confirmation] = []

    def wake(self) -> None:
        if self.end is not None:
            self.end.awake = True

    def arm(self) -> None:
        due_ns = self.endpoint.next_timer()
        if due_ns is not None and (self.timer_ns is None or due_ns < self.timer_ns):
            self.timer_ns = due_ns

    def on_time(self) -> None:
        self.timer_ns = None
        self.endpoint.handle_timer(self.world.now_ns)
        self.arm()
        self.wake()

    def publish(self, count: int) -> None:
        if self.endpoint.outbox.full(self.event_type.name):
            return
        text = "x" * self.world.random.choice((0, 3, 200))
        rows = [{"number": self.published + i, "text": text} for i in range(count)]
        self.published += count
        if count > 20:
            self.endpoint.publish_batch(EventBatch.from_pylist(self.event_type, rows))
        else:
            for row in rows:
                self.endpoint.publish(self.event_type.name, row)
        if self.world.random.random() < 0.2:
            outbox = self.endpoint.outbox
            whole = self.world.random.random() < 0.5
            self.confirmations.append(
                outbox.flush() if whole else outbox.confirm(self.event_type.name, count)
            )
        self.wake()

    def read(self, packets: list[bytes], now_ns: int) -> None:
        for packet in packets:
            for wire in self.endpoint.receive(frame_of(packet), now_ns):
                message: Message = (
                    wire
                    if isinstance(wire, Acknowledge)
                    else decode_message(wire, lambda name: type_of(name[1:]))
                )
                if isinstance(message, Deliver):
                    assert self.session.matches(message) is not None
                    numbers = [event["number"] for event in message.batch]
                    self.got.setdefault(message.batch.event_type.name, []).extend(numbers)
                    self.unread.append((size_of(message), self.endpoint.resets))
                    continue
                for action in self.endpoint.handle(message):
                    assert isinstance(action, Gap) or type(action).__name__ == "Settled", action
        self.endpoint.received()
        self.finished += self.endpoint.take_finished()
        self.arm()

    def use(self, count: int) -> None:
        for _ in range(min(count, len(self.unread))):
            size, resets = self.unread.popleft()
            if resets == self.endpoint.resets:
                self.endpoint.link.consume(size)
        self.wake()


def frame_of(packet: bytes) -> Frame[WireMessage]:
    frame = decode_packet(packet)
    assert isinstance(frame, Frame)
    return frame


class World:
    """Three brokers in a chain and a client at each, or two at one."""

    def __init__(self, seed: int) -> None:
        self.random = rng = random.Random(seed)
        self.now_ns = 1
        self.resets = False
        options = EndpointOptions(
            turn_messages=rng.choice((1, 3, 128)),
            limits=LIMITS,
            sessions=SessionLimits(
                lease_s=1e6, queue_events=rng.choice((50, 5_000)), queue_bytes=64 << 10, stall_limit_s=1e6
            ),
            links=LinkLimits(queue_bytes=rng.choice((4_096, 1 << 20)), held_bytes=rng.choice((1, 4_096))),
            join_events=rng.choice((1, 64, 4_096)),
        )
        names = ["b1", "b2", "b3"][: rng.choice((2, 3))]
        self.brokers = {}
        for name in names:
            neighbours = [other for other in names if abs(int(other[1]) - int(name[1])) == 1]
            self.brokers[name] = BrokerUnderTest(self, name, neighbours, options)
        self.clients = [
            ClientUnderTest(self, f"c{i}", rng.choice(names), rng.choice((300, 20_000, 4 << 20)))
            for i in range(3)
        ]
        self.ends: dict[tuple[str, str], tuple[End, End] | None] = {}
        for one, other in pairwise(names):
            self.ends[f"broker/{one}", f"broker/{other}"] = None
        for client in self.clients:
            self.ends[f"client/{client.name}", f"broker/{client.broker}"] = None
        self._greeting: dict[tuple[str, str], Hello] = {}
        self._before: dict[tuple[str, str], tuple[int, int]] = {}
        """By interface and peer, bytes of events sent and processed before the last reset."""

    # --- connections ------------------------------------------------------------------------------

    def client(self, interface: str) -> ClientUnderTest:
        return self.clients[int(interface[-1])]

    def link(self, interface: str, peer: str) -> Link:
        """The other end of the link at an interface."""
        if interface.startswith("client/"):
            return self.client(interface).endpoint.link
        return self.brokers[interface[7:]].endpoint.queues[peer].link

    def event_bytes(self, interface: str, peer: str) -> tuple[int, int]:
        """The bytes of events that one end of a link has sent and processed since its reset."""
        link, (sent, processed) = self.link(interface, peer), self._before[interface, peer]
        return link.event_bytes_sent - sent, link.event_bytes_received - processed

    def resumed(self, interface: str, peer: str, resumed: bool) -> None:
        if not resumed:
            link = self.link(interface, peer)
            self._before[interface, peer] = link.event_bytes_sent, link.event_bytes_received

    def dial(self, link: tuple[str, str]) -> None:
        """The first end opens a connection; sometimes the answer is lost."""
        if self.ends[link] is not None:
            return
        dialer, acceptor = link
        broker = self.brokers[acceptor[7:]]
        answered = self.random.random() < 0.8
        far = BrokerEnd(broker, dialer)
        near: End
        if dialer.startswith("client/"):
            client = self.client(dialer)
            hello = client.endpoint.hello()
        else:
            hello = self.brokers[dialer[7:]].endpoint.hello_for(acceptor)
        broker.run(lambda: broker.endpoint.accept(ConnectRequest(dialer, hello), far, self.now_ns))
        assert far.answer is not None, "the holder of the name has gone"
        self.resumed(acceptor, dialer, far.resumed)
        if not answered:
            if dialer.startswith("client/"):
                client.endpoint.lost()
            else:
                self.brokers[dialer[7:]].endpoint.queues[acceptor].handshake = False
            far.lost(self.now_ns)
            return
        answer = far.answer
        if dialer.startswith("client/"):
            resumed = client.endpoint.open(answer, LIMITS)
            client.end = near = ClientEnd(client)
            near.awake = True
        else:
            mine = self.brokers[dialer[7:]]
            near = dialled = BrokerEnd(mine, acceptor)
            decisions: list[bool] = []
            mine.run(lambda: decisions.append(mine.endpoint.answer(acceptor, answer, dialled, self.now_ns)))
            resumed = decisions[0]
        assert resumed == far.resumed
        self.resumed(dialer, acceptor, resumed)
        self.ends[link] = near, far

    def cut(self, link: tuple[str, str]) -> None:
        ends = self.ends[link]
        if ends is not None:
            self.ends[link] = None
            for end in self.random.sample(ends, 2):
                assert isinstance(end, BrokerEnd | ClientEnd)
                end.lost(self.now_ns)

    def reset(self, link: tuple[str, str]) -> None:
        """One end loses its state of the other."""
        self.cut(link)
        self.resets = True
        if link[0].startswith("client/"):
            # Another incarnation would get another session, and miss what waits in this one.
            self.client(link[0]).endpoint.link.peer_incarnation = 0
        else:
            one, other = self.random.sample(link, 2)
            self.brokers[one[7:]].endpoint.queues[other].link.forget_peer()

    # --- steps ------------------------------------------------------------------------------------

    def write(self, link: tuple[str, str], side: int) -> bool:
        ends = self.ends[link]
        if ends is None or not ends[side].awake:
            return False
        end = ends[side]
        assert isinstance(end, BrokerEnd | ClientEnd)
        end.awake = False
        packet = end.write()
        if packet is not None:
            ends[1 - side].arriving.append(packet)
            if isinstance(end, ClientEnd) and end.client.endpoint.ready:
                end.awake = True
        return True

    def read(self, link: tuple[str, str], side: int, most: int) -> bool:
        ends = self.ends[link]
        if ends is None or not ends[side].arriving:
            return False
        end = ends[side]
        assert isinstance(end, BrokerEnd | ClientEnd)
        packets = [end.arriving.popleft() for _ in range(min(most, len(end.arriving)))]
        end.read(packets, self.now_ns)
        return True

    def serve(self) -> bool:
        """The turns in which brokers serve their sessions."""
        served = False
        for broker in self.brokers.values():
            if broker.endpoint.deferred:
                broker.run(broker.endpoint.deliver)
                served = True
        return served

    def elapse(self, step_ns: int) -> None:
        self.now_ns += step_ns
        for each in (*self.brokers.values(), *self.clients):
            if each.timer_ns is not None and each.timer_ns <= self.now_ns:
                each.on_time()

    def settle(self) -> None:
        """Run everything that is possible, to rest."""
        for _ in range(200_000):
            active = self.serve()
            for link in self.ends:
                self.dial(link)
                for side in (0, 1):
                    active |= self.write(link, side) | self.read(link, side, 3)
            for client in self.clients:
                if client.unread:
                    client.use(len(client.unread))
                    active = True
            timers = [t.timer_ns for t in (*self.brokers.values(), *self.clients) if t.timer_ns is not None]
            if not active and timers:
                self.elapse(max(0, min(timers) - self.now_ns))
            elif not active and all(self.ends.values()):
                return
        raise AssertionError("it never comes to rest")

    def step(self) -> None:
        rng = self.random
        link = rng.choice(list(self.ends))
        what = rng.choices(
            ("publish", "write", "read", "serve", "time", "use", "cut", "dial", "reset"),
            (10, 30, 30, 5, 3, 5, 1, 4, 0.3 if self.resets else 0),
        )[0]
        if what == "publish":
            rng.choice(self.clients).publish(rng.choice((1, 1, 1, 5, 30, 300)))
        elif what == "write":
            self.write(link, rng.randrange(2))
        elif what == "read":
            self.read(link, rng.randrange(2), rng.choice((1, 4)))
        elif what == "serve":
            self.serve()
        elif what == "time":
            self.elapse(rng.choice((0, MS // 10, 20 * MS)) if all(self.ends.values()) else MS // 10)
        elif what == "use":
            rng.choice(self.clients).use(rng.choice((1, 10)))
        elif what == "cut":
            self.cut(link)
        elif what == "dial":
            self.dial(link)
        else:
            self.reset(link)

    # --- what must hold ---------------------------------------------------------------------------

    def check(self) -> None:
        for client in self.clients:
            for other in self.clients:
                if other is client:
                    continue
                numbers = client.got.get(other.event_type.name, [])
                if not self.resets:
                    assert numbers == list(range(other.published)), (client.name, other.name)
                else:  # in order at first, whatever comes again
                    assert list(dict.fromkeys(numbers)) == list(range(other.published))
            outbox = client.endpoint.outbox
            assert (outbox.events, outbox.bytes, outbox.pending) == (0, 0, 0)
            assert not outbox.awaited
            assert all(c.finished and c.error is None for c in client.confirmations)
            assert client.endpoint.idle
        for broker in self.brokers.values():
            endpoint = broker.endpoint
            assert endpoint.holds.as_dict() == {}
            assert endpoint.drops.by_reason == {}
            assert endpoint.next_timer() is None
            for queue in endpoint.queues.values():
                assert (queue.full, queue.full_types, queue.drops.by_reason) == (False, [], {})
                assert queue.link.events.held_bytes() == 0
                assert queue.link.idle
        for (dialer, acceptor), ends in self.ends.items():
            assert ends is not None
            for here, there in ((dialer, acceptor), (acceptor, dialer)):
                one, other = self.link(here, there), self.link(there, here)
                (sent, _), (_, processed) = self.event_bytes(here, there), self.event_bytes(there, here)
                assert sent == processed, (here, there)
                granted, widest = other.hello().credit, max(other.window_bytes, DEFAULT_WINDOW_BYTES)
                assert 0 <= granted - one.credit < other.window_bytes // 4
                assert granted <= processed + widest
                assert (one.retained_bytes, one.retained_events, one.backlog_control) == (0, 0, 0)
                assert (one.events.bytes, one.events.count) == (0, 0)
                assert not one.events.aside


def play(seed: int) -> None:
    world = World(seed)
    for link in world.ends:
        while world.ends[link] is None:
            world.dial(link)
    for client in world.clients:
        client.endpoint.transmit(client.session.advertise(client.event_type))
        for other in world.clients:
            if other is not client:
                _, messages = client.session.subscribe(parse("number >= 0", other.event_type))
                client.endpoint.transmit(messages)
        client.wake()
    world.settle()
    world.resets = seed % 2 == 1
    for _ in range(world.random.choice((300, 1_500))):
        world.step()
    world.settle()
    world.check()


@some_seeds("endpoints together", 4)
def test_every_event_arrives_once_and_nothing_is_left(seeds: range) -> None:
    for seed in seeds:
        try:
            play(seed)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise


def test_a_client_gives_no_control_up_while_its_hello_is_under_way() -> None:
    """The broker resumed the link while the client began anew, and its events were taken for repetitions."""
    broker, first, second = broker_endpoint("b1"), Noted(), Noted()
    session = ClientSession("c")
    client = ClientEndpoint(session, Link(7, max_control=3))
    broker.accept(ConnectRequest("client/c", client.hello()), first, 0)
    assert first.answer is not None
    assert client.open(first.answer, LIMITS) is False
    client.lost()
    broker.lost("client/c", first, 1)
    hello = client.hello()
    for number in range(10):
        client.transmit(session.advertise(EventType(f"T{number}", {"x": "int64"})))
    broker.accept(ConnectRequest("client/c", hello), second, 2)
    assert second.answer is not None
    assert (second.resumed, client.open(second.answer, LIMITS)) == (True, True)
