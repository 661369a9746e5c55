"""Requests for earlier events on a busy link, whose waiting Updates absorb later ones of their slots."""

from dataclasses import dataclass

import pytest
from core_driven import Driven, sent
from draws import examples
from hypothesis import given
from hypothesis import strategies as st

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.link.control_queue import ControlQueue
from covey.overlay.core.messages import (
    Acknowledge,
    Advertise,
    Answered,
    Connect,
    Deliver,
    Message,
    Publish,
    Subscribe,
    Unsubscribe,
    Update,
)

SECOND = 1_000_000_000
FRAME = 1 << 20
CLIENTS = ("a", "b", "c")


@dataclass(frozen=True)
class Arrival:
    client: str
    sequence: int


class BusyLink:
    """Clients `a`, `b` and `c` at a broker, and a publisher at its neighbour; `flush` empties the busy link
    between. Filters are closed ranges."""

    def __init__(self, key: str | None = None, **options: object) -> None:
        self.type = EventType("Tick", {"x": "int64", "id": "int64"}, key=key)
        self.filter = parse("x >= $low and x <= $high", self.type)
        self.near = Driven(*[f"client/{each}" for each in CLIENTS], replay_events=1000, **options)
        self.far = Driven("client/p", replay_events=1000, **options)
        self.up, self.down = ControlQueue(), ControlQueue()
        self.now_s = 10
        self.sequence = 0
        self.epochs = dict.fromkeys(CLIENTS, 0)
        self.arrived: list[Arrival] = []
        self.acknowledged = dict.fromkeys(CLIENTS, 0)
        self.answered = dict.fromkeys(CLIENTS, 0)
        for broker in (self.near, self.far):
            self._handle(broker, "broker/x", Connect())
        self._handle(self.far, "client/p", Advertise(1, self.type))
        self.flush()

    def _handle(self, broker: Driven, source: str, *messages: Message) -> None:
        actions = broker(source, *messages, now_ns=self.now_s * SECOND)
        for to, message in sent(actions):
            if to == "broker/x" and isinstance(message, Publish | Answered):
                self._handle(self.far if broker is self.near else self.near, "broker/x", message)
            elif to == "broker/x":
                (self.up if broker is self.near else self.down).append(message, FRAME)
            elif to != "client/p":
                self._take(to.removeprefix("client/"), message)

    def _take(self, client: str, message: Message) -> None:
        if isinstance(message, Acknowledge):
            self.acknowledged[client] = message.epoch
        elif isinstance(message, Answered):
            self.answered[client] = message.epoch
        elif isinstance(message, Deliver):
            self.arrived += [Arrival(client, each) for each in message.batch.sequences().tolist()]

    def flush(self) -> None:
        while self.up or self.down:
            for queue, broker in ((self.up, self.far), (self.down, self.near)):
                if queue:
                    self._handle(broker, "broker/x", *queue.take(FRAME)[0])

    def publish(self, x: int) -> None:
        self.sequence += 1
        events = EventBatch.from_pylist(self.type, [{"x": x, "id": self.sequence}])
        events = events.stamped(publisher="p", first_sequence=self.sequence, ingress_ns=self.now_s * SECOND)
        self._handle(self.far, "client/p", Publish(events))

    def subscribe(self, client: str, low: int, high: int, *, for_views: bool = False) -> None:
        values = {"low": low, "high": high}
        message = Subscribe(self._epoch(client), 1, self.filter, values, for_views=for_views)
        self._handle(self.near, f"client/{client}", message)

    def update(
        self, client: str, low: int, high: int, *, gapless: bool = False, for_views: bool = False
    ) -> None:
        epoch, since_ns = self._epoch(client), self.now_s * SECOND if gapless else 0
        values, view_epoch = {"low": low, "high": high}, epoch if for_views else 0
        self._handle(self.near, f"client/{client}", Update(epoch, 1, values, since_ns, for_views=view_epoch))

    def unsubscribe(self, client: str) -> None:
        self._handle(self.near, f"client/{client}", Unsubscribe(self._epoch(client), 1))

    def _epoch(self, client: str) -> int:
        self.epochs[client] += 1
        return self.epochs[client]

    def requests(self) -> int:
        outgoing = self.near.broker.tables.types["Tick"].outgoing["broker/x"]
        return sum(len(outgoing.requests.get(slot.slot_id, {})) for slot in outgoing.slots)


@pytest.mark.parametrize("first", ["b", "c"])
def test_a_replay_comes_where_another_slot_covers_what_has_asked(first: str) -> None:
    """`c` covers `a` at its request, and `b` when the request leaves."""
    link = BusyLink()
    for client in sorted("bc", reverse=first == "c"):
        link.subscribe(client, *((50, 60) if client == "b" else (0, 10)))
    link.subscribe("a", 5, 6)
    link.flush()
    for client in sorted("bc", reverse=first == "c"):
        link.update(client, *((20, 30) if client == "b" else (0, 26)))
    link.now_s += 1
    link.update("a", 24, 25, gapless=True)
    link.publish(24)
    link.update("c", 0, 22)
    assert link.acknowledged["a"] == 1
    link.flush()
    assert link.arrived.count(Arrival("a", 1)) == 1
    assert link.acknowledged == link.epochs


@pytest.mark.parametrize("first", ["b", "c"])
def test_keys_come_where_another_slot_covers_the_view_that_has_asked(first: str) -> None:
    link = BusyLink("id")
    for client in sorted("bc", reverse=first == "c"):
        link.subscribe(client, *((50, 60) if client == "b" else (0, 10)))
    link.subscribe("a", 5, 6, for_views=True)
    link.publish(24)
    link.flush()
    for client in sorted("bc", reverse=first == "c"):
        link.update(client, *((20, 30) if client == "b" else (0, 26)))
    link.update("a", 24, 25, for_views=True)
    link.update("c", 0, 22)
    assert link.answered["a"] == 1
    link.flush()
    assert link.arrived == [Arrival("a", 1)]
    assert link.acknowledged == link.epochs
    assert link.answered["a"] == link.epochs["a"]


def test_requests_that_were_answered_are_dropped() -> None:
    link = BusyLink()
    link.subscribe("b", 0, 100)
    for number in range(20):
        link.subscribe("a", 5, 6)
        for high in range(7, 10):
            link.update("a", 5, high, gapless=True)
        link.subscribe("c", number, number)
        link.update("c", number, number + 1, gapless=True)
        link.flush()
        link.unsubscribe("a")
        assert link.requests() <= 2
    link.update("b", 0, 99)
    assert not link.requests()


RANGES = st.tuples(st.integers(0, 12), st.integers(0, 8)).map(lambda pair: (pair[0], pair[0] + pair[1]))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(0, 20)),
        st.tuples(st.just("update"), st.sampled_from(CLIENTS), RANGES, st.booleans()),
        st.just(("flush",)),
    ),
    min_size=4,
    max_size=24,
)


@given(first=st.tuples(RANGES, RANGES, RANGES), steps=STEPS)
@examples(150)
def test_what_matches_since_the_last_gapless_update_comes_once(
    first: tuple[tuple[int, int], ...], steps: list[tuple[object, ...]]
) -> None:
    link = BusyLink()
    bounds = dict(zip(CLIENTS, first, strict=True))
    since: dict[str, int | None] = dict.fromkeys(CLIENTS)
    for client in CLIENTS:
        link.subscribe(client, *bounds[client])
    link.flush()
    events: list[tuple[int, int]] = []
    for kind, *rest in steps:
        link.now_s += 1
        if kind == "publish":
            (x,) = rest
            link.publish(x)
            events.append((link.now_s, x))
        elif kind == "flush":
            link.flush()
        else:
            client, (low, high), gapless = rest
            link.update(client, low, high, gapless=gapless)
            bounds[client], since[client] = (low, high), link.now_s if gapless else None
    link.flush()
    assert len(set(link.arrived)) == len(link.arrived)
    for client, moment in since.items():
        if moment is not None:
            low, high = bounds[client]
            for sequence, (at_s, x) in enumerate(events, 1):
                if at_s >= moment and low <= x <= high:
                    assert Arrival(client, sequence) in link.arrived
    assert link.acknowledged == link.epochs
