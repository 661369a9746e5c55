"""A client's outbox: order and time of sending, and results of calls."""

from collections import deque
from dataclasses import dataclass, field

import pytest
from draws import examples
from hypothesis import given
from hypothesis import strategies as st
from tables import grown, tables

from covey.matcher import EventBatch, EventType
from covey.matcher.errors import EventError
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.endpoint.client_endpoint import MAX_CONTROL, ClientEndpoint
from covey.overlay.core.endpoint.limits import Limits, RefusedError
from covey.overlay.core.endpoint.outbox import BATCH_EVENTS, Confirmation
from covey.overlay.core.link.link import ACKNOWLEDGE_AFTER_NS, Frame, Link
from covey.overlay.core.link.size import size_of
from covey.overlay.core.messages import Hold, Message, Publish, Refuse

A = EventType("A", {"number": "int64", "bad": "bool"})
B = EventType("B", {"number": "int64", "bad": "bool"})
MS = 1_000_000


@dataclass
class World:
    """A client and its broker, which refuses bad events, and frames between them."""

    limits: Limits = field(default_factory=Limits)
    options: dict[str, int] = field(default_factory=dict)

    max_control: int = MAX_CONTROL

    def __post_init__(self) -> None:
        self.session = ClientSession("p/1")
        self.client = ClientEndpoint(self.session, Link(1, max_control=self.max_control), **self.options)
        self.now_ns = 0
        self.numbers = 0
        self.bad: set[int] = set()
        self.published: dict[str, list[int]] = {"A": [], "B": []}
        self.incarnation = 1
        self.arrived: dict[str, list[int]] = {}
        """By type, the events at the present broker, in order."""
        self.ever: set[int] = set()
        self.forgotten: set[int] = set()
        """Bad events of an ended broker, whose refusals may have been lost."""
        self.held: set[str] = set()
        self.batches = 0
        self.refusals = 0
        self.restart()
        for event_type in (A, B):
            self.client.transmit(self.session.advertise(event_type))
        self.settle()

    # --- calls ----------------------------------------------------------------------------------------------

    def numbered(self, type_name: str, bad: bool) -> dict[str, object]:
        self.numbers += 1
        self.published[type_name].append(self.numbers)
        if bad:
            self.bad.add(self.numbers)
        return {"number": self.numbers, "bad": bad}

    def publish(self, type_name: str, bad: bool = False) -> None:
        self.client.publish(type_name, self.numbered(type_name, bad))

    def publish_batch(self, event_type: EventType, *bad: bool) -> None:
        rows = [self.numbered(event_type.name, each) for each in bad]
        self.client.publish_batch(EventBatch.from_pylist(event_type, rows))

    # --- the broker, and the connection ---------------------------------------------------------------------

    def restart(self) -> None:
        self.incarnation += 1
        self.broker = Link(self.incarnation)
        self.forgotten |= self.bad & self.ever
        self.arrived = {"A": [], "B": []}
        self.held.clear()
        self.connect()

    def connect(self) -> None:
        self.to_broker: deque[Frame[Message]] = deque()
        self.to_client: deque[Frame[Message]] = deque()
        self.client.lost()
        from_client, from_broker = self.client.hello(), self.broker.hello()
        if not self.client.open(from_broker, self.limits):
            self.held.clear()
        self.broker.resume(from_client)

    def write(self) -> None:
        if (frame := self.client.next_frame(self.now_ns)) is not None:
            self.to_broker.append(frame)

    def answer(self) -> None:
        if (frame := self.broker.next_frame()) is not None:
            self.to_client.append(frame)

    def serve(self) -> None:
        if not self.to_broker:
            return
        for message in self.broker.receive(self.to_broker.popleft(), self.now_ns):
            if isinstance(message, Publish):
                self.broker.consume(size_of(message))
                self.batches += 1
                name, sequences = message.batch.event_type.name, message.batch.sequences().tolist()
                for sequence, row in zip(sequences, message.batch.to_pylist(), strict=True):
                    self.arrived[name].append(row["number"])
                    self.ever.add(row["number"])
                    if row["bad"]:
                        self.broker.send(Refuse(0, "INVALID_ARGUMENT", "bad", 0, name, sequence, 1))

    def read(self) -> None:
        if self.to_client:
            for message in self.client.receive(self.to_client.popleft(), self.now_ns):
                self.client.handle(message)
            self.client.received()

    def hold(self, type_name: str, held: bool) -> None:
        (self.held.add if held else self.held.discard)(type_name)
        self.broker.send(Hold(type_name, held))

    def wait(self, ms: float) -> None:
        self.now_ns += round(ms * MS)
        self.client.handle_timer(self.now_ns)
        self.broker.handle_timer(self.now_ns)

    def settle(self) -> None:
        quiet = 0
        while quiet < 3:
            quiet += 1
            for act in (self.write, self.serve, self.answer, self.read):
                before = (self.client.outbox.pending, len(self.to_broker), len(self.to_client))
                act()
                if before != (self.client.outbox.pending, len(self.to_broker), len(self.to_client)):
                    quiet = 0
            self.wait(20)


# --- a model of everything ------------------------------------------------------------------------

names = st.sampled_from("AB")
acts = st.one_of(
    st.tuples(st.just("publish"), names, st.booleans(), st.booleans()),
    st.tuples(st.just("batch"), names, st.lists(st.booleans(), max_size=5), st.booleans()),
    st.tuples(st.just("hold"), names, st.booleans()),
    st.tuples(st.sampled_from(["flush", "connect", "restart"])),
    *[st.tuples(st.sampled_from(["write", "serve", "answer", "read"]))] * 4,
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1, 60])),
)


@given(st.lists(acts, max_size=60))
@examples(500)
@pytest.mark.random
def test_events_arrive_in_order_once_and_callers_are_told_the_truth(script: list[tuple[object, ...]]) -> None:
    """Over breaks, restarts and holds: nothing is lost; nothing arrives twice at one broker; a confirmation
    fails exactly if one of its events is bad; flushes report every other bad event, once."""
    world = World()
    outbox = world.client.outbox
    confirmed: dict[Confirmation, list[int]] = {}
    flushed: dict[Confirmation, list[int]] = {}
    reported = 0

    def check() -> None:
        nonlocal reported
        for confirmation in world.client.take_finished():
            if confirmation in confirmed:
                numbers = confirmed.pop(confirmation)
                assert world.ever.issuperset(numbers)
                if world.bad.intersection(numbers) <= world.forgotten:
                    assert confirmation.error is None or world.bad.intersection(numbers)
                else:
                    assert confirmation.error is not None
            else:
                assert world.ever.issuperset(flushed.pop(confirmation))
                reported += count(confirmation.error)

    for kind, *arguments in script:
        if kind in ("publish", "batch"):
            name, bad, confirm = arguments
            before = world.numbers
            if kind == "publish":
                world.publish(name, bad)
            else:
                world.publish_batch(A if name == "A" else B, *bad)
            numbers = [*range(before + 1, world.numbers + 1)]
            if confirm and numbers:
                confirmed[outbox.confirm(name, len(numbers))] = numbers
        elif kind == "flush":
            confirmation = outbox.flush()
            if confirmation.finished:
                reported += count(confirmation.error)
                assert world.ever.issuperset(range(1, world.numbers + 1))
            else:
                flushed[confirmation] = [*range(1, world.numbers + 1)]
        else:
            getattr(world, str(kind))(*arguments)
        check()
        for name, arrived in world.arrived.items():
            assert arrived == sorted(set(arrived)), name
    for name in list(world.held):
        world.hold(name, False)
    world.settle()
    check()
    assert not confirmed
    assert not flushed
    assert (outbox.pending, outbox.events, outbox.bytes) == (0, 0, 0)
    assert world.ever == set(range(1, world.numbers + 1))
    reported += count(outbox.flush().error)
    assert reported == outbox.refused
    check_that_events_leave_at_once(world, 12)  # nothing counts as in flight any more


def count(error: Exception | None) -> int:
    """The number of events in a flush's error."""
    if error is None:
        return 0
    more = str(error).partition("(")[2]
    return int(more.split()[0].replace(",", "")) if more else 1


# --- single facts -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answers", [0, 1])
def test_a_hello_that_acknowledges_a_refused_event_does_not_confirm_it(answers: int) -> None:
    world = World()
    world.publish("A", bad=True)
    confirmation = world.client.outbox.confirm("A", 1)
    world.write()
    world.serve()
    for _ in range(answers):
        world.answer()  # and is lost
    world.connect()
    world.settle()
    assert confirmation.finished
    assert isinstance(confirmation.error, RefusedError)


def test_an_event_that_only_a_hello_acknowledged_is_accepted_when_the_broker_restarts() -> None:
    world = World()
    world.publish("A")
    confirmation = world.client.outbox.confirm("A", 1)
    world.write()
    world.serve()
    world.connect()
    world.restart()
    world.publish("A")
    world.settle()
    assert confirmation.finished
    assert (world.client.outbox.pending, world.client.outbox.events) == (0, 0)


def test_an_event_leaves_at_once_where_the_broker_has_all_others() -> None:
    world = World()
    for _ in range(20):
        world.publish("A")
        assert world.client.next_frame(world.now_ns) is not None
        world.connect()
        world.settle()


def test_events_gather_behind_some_that_left_one_by_one() -> None:
    world = World()
    left = []
    for _ in range(100):
        world.publish("A")
        world.write()
        left.append(len(world.to_broker))
    assert left[:8] == [*range(1, 9)]
    assert left[-1] < 12
    timer_ns = world.client.next_timer()
    assert timer_ns is not None
    assert timer_ns - world.now_ns < MS
    world.now_ns = timer_ns
    world.client.handle_timer(timer_ns)
    world.write()
    frame = world.to_broker[-1]
    assert [len(message.batch) for message in frame.messages if isinstance(message, Publish)] == [
        100 - left[-2]
    ]


def check_that_events_leave_at_once(world: World, count: int) -> None:
    for number in range(count):
        world.publish("A")
        world.write()
        assert len(world.to_broker) == 1, number
        world.serve()
        world.broker.handle_timer(world.now_ns + ACKNOWLEDGE_AFTER_NS)  # its time goes on alone
        world.answer()
        world.read()
        assert world.client.outbox.pending == 0


def test_a_full_batch_leaves_before_its_time() -> None:
    world = World()
    for _ in range(9):
        world.publish("A")
        world.write()
    for _ in range(BATCH_EVENTS - 1):
        world.publish("A")
    frames = len(world.to_broker)
    world.write()
    assert len(world.to_broker) == frames
    world.publish("A")
    world.write()
    assert len(world.to_broker) == frames + 1


def test_interleaved_types_gather_in_a_batch_each() -> None:
    world = World()
    for _ in range(100):
        world.publish("A")
        world.publish("B")
    world.settle()
    assert world.batches == 2


def test_a_held_type_keeps_its_events_and_its_bound_to_itself() -> None:
    world = World(options={"outbox_events": 10})
    outbox = world.client.outbox
    world.hold("A", True)
    world.settle()
    for _ in range(10):
        assert not outbox.full("A")
        world.publish("A")
    assert outbox.full("A")
    assert not outbox.full("B")
    world.publish("B")
    world.settle()
    assert (len(world.arrived["A"]), len(world.arrived["B"]), outbox.pending) == (0, 1, 10)
    flush = outbox.flush()
    world.settle()
    assert not flush.finished
    world.hold("A", False)
    world.settle()
    assert flush.finished
    assert len(world.arrived["A"]) == 10


def test_bytes_fill_the_outbox_as_events_do() -> None:
    world = World(options={"outbox_bytes": 10_000})
    published = 0
    while not world.client.outbox.full("A") and published < 100:
        world.publish("A")
        published += 1
    assert 10 < published < 30, "the events of 9 bytes take some 400 each in memory"


def test_an_event_that_does_not_fit_raises_at_the_call_and_leaves_nothing() -> None:
    world = World(limits=Limits(max_event_bytes=8))
    with pytest.raises(EventError, match=r"attribute number is int64, got 'x'"):
        world.client.publish("A", {"number": "x"})
    with pytest.raises(EventError, match="unknown attribute 'other'"):
        world.client.publish("A", {"other": 1})
    with pytest.raises(RefusedError, match="has 9 bytes: expected at most 8"):
        world.client.publish("A", {"number": 1})
    with pytest.raises(RefusedError, match="'C' is not advertised by this client: it advertises A, B"):
        world.client.publish("C", {"number": 1})
    assert world.client.outbox.pending == 0


def test_batches_are_split_as_the_broker_demands() -> None:
    world = World(limits=Limits(max_batch_events=10))
    world.publish_batch(A, *[False] * 95)
    for _ in range(30):
        world.publish("A")
    world.settle()
    assert world.arrived["A"] == [*range(1, 126)]
    assert world.batches == 10 + 3


def test_events_behind_the_end_of_their_advertisement_are_refused() -> None:
    world = World()
    world.connect()
    world.publish("A")
    world.publish("A")
    confirmation = world.client.outbox.confirm("A", 1)
    world.session.unadvertise("A")  # as a refusal of the broker does
    world.publish("B")
    world.settle()
    assert isinstance(confirmation.error, RefusedError)
    error = world.client.outbox.flush().error
    assert "event type 'A' is not advertised" in str(error)
    assert world.client.outbox.refused == 1
    assert len(world.arrived["B"]) == 1
    assert world.client.outbox.flush().error is None


def test_the_end_of_the_client_fails_all_that_wait() -> None:
    world = World()
    world.publish("A")
    waiting = [world.client.outbox.confirm("A", 1), world.client.outbox.flush()]
    world.client.outbox.fail(ConnectionError("gone"))
    assert world.client.take_finished() == waiting
    assert [str(each.error) for each in waiting] == ["gone", "gone"]
    assert world.client.outbox.pending == 1


def test_control_without_a_connection_is_bounded() -> None:
    world = World(max_control=1_000)
    world.client.lost()
    for number in range(1_200):
        event_type = EventType(f"T{number}", {"x": "int64"})
        world.client.transmit(world.session.advertise(event_type))
        assert world.client.link.queued_control <= 1_001
    world.connect()
    world.settle()
    assert len(world.session.advertised) == 1_202
    assert world.client.link.idle


def test_event_types_that_are_published_no_more_leave_nothing_behind() -> None:
    """A publisher of short-lived types grew, and each flush visited all of them."""
    world = World()
    before = tables(world.client)
    for number in range(20):
        event_type = EventType(f"T{number}", A.attributes)
        world.arrived[event_type.name] = []
        world.client.transmit(world.session.advertise(event_type))
        world.client.publish(event_type.name, {"number": number, "bad": number % 3 == 0})
        if number % 2:
            world.settle()
        world.client.unadvertise(event_type.name)
        again = world.client.outbox.flush()
        world.settle()
        assert again.finished
    assert world.client.outbox.pending == 0
    world.client.take_finished()
    assert not grown(before, tables(world.client))
