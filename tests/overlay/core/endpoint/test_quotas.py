"""Bounds on the state that clients create in a broker."""

import pytest
from core_driven import Driven
from core_endpoints import Noted, broker_endpoint, frame_of, stored_session
from tables import grown, tables

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.endpoint.connections import ConnectionRefusedError, ConnectRequest
from covey.overlay.core.endpoint.quotas import Bounds, Quotas, depth_of
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.overlay.core.link.link import Hello
from covey.overlay.core.messages import (
    Advertise,
    Message,
    Refuse,
    Subscribe,
    Unadvertise,
    Unsubscribe,
    Update,
)

C, D = "client/c", "client/d"
QUOTE = EventType("Quote", {"firm": "string", "price": "float64"})
BOUNDS = Bounds(2, 2, 2, 4, 40, 3)


class Bounded:
    def __init__(self) -> None:
        self.driven = Driven(C, D)
        self.quotas = Quotas(self.driven.broker.tables, BOUNDS)
        self.epochs = {C: 0, D: 0}

    def __call__(self, source: str, message: Message) -> Refuse | None:
        refusal = self.quotas.refusal(message, source)
        if refusal is None:
            self.driven(source, message)
        return refusal

    def epoch(self, source: str) -> int:
        self.epochs[source] += 1
        return self.epochs[source]

    def advertise(self, source: str, name: str) -> Refuse | None:
        return self(source, Advertise(self.epoch(source), EventType(name, {"a": "int64"})))

    def subscribe(self, source: str, number: int, text: str = "price < 1") -> Refuse | None:
        return self(source, Subscribe(self.epoch(source), number, parse(text, QUOTE), {}))


@pytest.fixture
def bounded() -> Bounded:
    return Bounded()


def test_subscriptions_of_a_session(bounded: Bounded) -> None:
    assert bounded.subscribe(C, 1) is bounded.subscribe(C, 2) is None
    assert bounded.subscribe(C, 3) == Refuse(
        3,
        "RESOURCE_EXHAUSTED",
        "client/c has 2 subscriptions: expected no more (max_session_subscriptions)",
        3,
        "Quote",
    )
    assert bounded.subscribe(C, 2, "price < 2") is None, "it replaces one"
    assert bounded.subscribe(D, 1) is None
    assert bounded(C, Update(5, 1, {})) is None
    assert bounded(C, Unsubscribe(6, 1)) is None
    bounded.epochs[C] = 6
    assert bounded.subscribe(C, 3) is None


def test_types_of_a_session(bounded: Bounded) -> None:
    assert bounded.advertise(C, "A") is bounded.subscribe(C, 1) is bounded.advertise(C, "A") is None
    refusal = bounded.advertise(C, "B")
    assert (refusal.epoch, refusal.status, refusal.type_name) == (4, "RESOURCE_EXHAUSTED", "B")
    assert refusal.reason == (
        "event type 'B' is one more than the 2 that client/c has introduced: expected no more "
        "(max_session_types)"
    )
    assert bounded.advertise(D, "B") is None
    assert bounded.advertise(C, "B") is None, "it is known"
    bounded(C, Unadvertise(bounded.epoch(C), "A"))
    assert bounded.advertise(C, "E") is None, "it has withdrawn another"
    bounded.quotas.forget(C)
    assert bounded.advertise(C, "F") is None, "its next session has introduced none"


def test_types_of_a_broker(bounded: Bounded) -> None:
    for source, name in ((C, "A"), (C, "B"), (D, "E"), (D, "F")):
        assert bounded.advertise(source, name) is None
    bounded.quotas.forget(C)
    refusal = bounded.advertise(C, "G")
    assert refusal.reason == "event type 'G' is one more than 4: expected no more (max_types)"


def test_views_of_a_type(bounded: Bounded) -> None:
    ship = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")
    bounded.quotas.bounds = Bounds(type_views=2)

    def view(source: str, number: int, text: str = "x > 1") -> Refuse | None:
        epoch = bounded.epoch(source)
        return bounded(source, Subscribe(epoch, number, parse(text, ship), {}, for_views=True))

    assert view(C, 1) is view(D, 1) is None
    reason = "event type 'Ship' has 2 views at the broker: expected at most 2 (max_type_views)"
    assert view(C, 2) == Refuse(2, "RESOURCE_EXHAUSTED", reason, 2, "Ship")
    assert view(C, 1) is view(C, 1, "x > 2") is None, "it has it already"
    plain = Subscribe(bounded.epoch(C), 3, parse("x > 1", ship), {})
    assert bounded(C, plain) is None, "it is no view"
    assert bounded(D, Unsubscribe(bounded.epoch(D), 1)) is None
    assert view(C, 2) is None


def test_filters(bounded: Bounded) -> None:
    assert bounded.subscribe(C, 1, "price < 1 or firm == 'IBM'") is None
    deep = "price < 1 or (price > 2 and (price < 3 or price > 4))"
    assert depth_of(parse(deep, QUOTE).expression) == 4
    quotas = Quotas(bounded.driven.broker.tables, Bounds(filter_depth=3))
    refusal = quotas.refusal(Subscribe(1, 1, parse(deep, QUOTE), {}), C)
    assert refusal.reason == "a filter on 'Quote' is nested 4 deep: expected at most 3 (max_filter_depth)"
    assert quotas.refusal(Advertise(1, QUOTE, parse(deep, QUOTE)), C) is not None


def test_sessions(bounded: Bounded) -> None:
    assert bounded.quotas.session_refusal(1, "c") is None
    assert bounded.quotas.session_refusal(2, "c") == (
        "the broker has 2 sessions: expected at most 2 (max_sessions)"
    )


def test_sessions_of_one_principal_whatever_their_names() -> None:
    """Names left to their leases keep no other principal out."""
    endpoint = broker_endpoint("b1", options=EndpointOptions(bounds=Bounds(client_sessions=2)))

    def opens(name: str, principal: str) -> bool:
        try:
            endpoint.accept(ConnectRequest(f"client/{name}", Hello(7), principal=principal), Noted(), 0)
        except ConnectionRefusedError as error:
            refusals.append(f"{error.status}: {error}")
            return False
        return True

    refusals: list[str] = []
    assert [opens(f"alice/{number}", "alice") for number in (1, 2)] == [True, True]
    assert not opens("alice/3", "alice")
    assert all(opens(name, principal) for name, principal in (("bob", "bob"), *((n, "") for n in "xyz")))
    first = endpoint.queues["client/alice/1"].connection
    assert first is not None
    endpoint.lost("client/alice/1", first, 0)
    assert not opens("alice/3", "alice"), "the first is within its lease"
    assert opens("alice/1", "alice"), "it comes back"
    again = endpoint.queues["client/alice/1"].connection
    assert again is not None
    endpoint.goodbye("client/alice/1", again, 0)
    assert opens("alice/3", "alice")
    assert not opens("alice/4", "alice"), "it has two again"
    assert opens("bob/2", "bob")
    assert not opens("bob/3", "bob")
    why = "has 2 sessions: expected at most 2 of one client (max_client_sessions)"
    assert refusals == [f"RESOURCE_EXHAUSTED: {name} {why}" for name in ("alice", "alice", "alice", "bob")]


def test_a_session_that_was_restored_counts_once_its_client_is_back() -> None:
    interface = "client/alice/1"
    endpoint = broker_endpoint(
        "b1",
        storage=stored_session(interface),
        options=EndpointOptions(bounds=Bounds(client_sessions=0, sessions=5)),
    )

    def sessions() -> dict[str, str | None]:
        return {name: endpoint.quotas.session_refusal(1, name) for name in ("alice", "al")}

    def counts(alice: int, al: int) -> dict[str, str | None]:
        why = "sessions: expected at most 0 of one client (max_client_sessions)"
        return {"alice": f"alice has {alice} {why}", "al": f"al has {al} {why}"}

    queue = endpoint.queues[interface]
    assert queue.durable
    assert sessions() == counts(0, 0)
    before = tables(endpoint.quotas, "covey.overlay.core.endpoint")
    for principal in ("alice", "alice", "al"):
        connection = Noted()
        peer = ConnectRequest(interface, Hello(7), durable=True, principal=principal)
        endpoint.accept(peer, connection, 0)
        assert endpoint.queues[interface] is queue
        endpoint.lost(interface, connection, 0)
        assert sessions() == (counts(1, 0) if principal == "alice" else counts(0, 1))
    connection = Noted()
    endpoint.accept(peer, connection, 0)
    endpoint.receive(interface, connection, [frame_of(1, Unsubscribe(9, 1))], 0)
    assert endpoint.goodbye(interface, connection, 0)
    assert interface not in endpoint.queues
    assert sessions() == counts(0, 0)
    assert not grown(before, tables(endpoint.quotas, "covey.overlay.core.endpoint"))


def test_the_size_of_a_normal_form() -> None:
    quotas = Quotas(Driven(C).broker.tables, Bounds(filter_conjunctions=4))
    pairs = [f"(price == {i} or firm == 'f{i}')" for i in range(2_000)]
    for count, text in ((4, " and ".join(pairs[:2])), (8, " and ".join(pairs[:3]))):
        refusal = quotas.refusal(Subscribe(1, 1, parse(text, QUOTE), {}), C)
        assert (refusal is None) is (count <= 4)
    assert refusal.reason == (
        "a filter on 'Quote' has a normal form of 8 conjunctions: expected at most 4 "
        "(max_filter_conjunctions)"
    )
    refusal = quotas.refusal(Subscribe(1, 1, parse(" and ".join(pairs), QUOTE), {}), C)
    assert "a normal form of over 2^60 conjunctions" in refusal.reason


def test_updates_and_events_keep_their_rates() -> None:
    """A second's worth at once, then the rate, per session, even if the clock jumps."""
    bounds = Bounds(session_updates_per_s=3, session_events_per_s=10, session_event_bytes_per_s=1_000)
    quotas = Quotas(Driven(C, D).broker.tables, bounds)

    def updates(now_s: float, source: str = C) -> int:
        refusals = [quotas.refusal(Update(i, 1, {}), source, round(now_s * 1e9)) for i in range(1, 10)]
        reasons = {(each.status, each.reason) for each in refusals if each is not None}
        expected = f"an update: expected at most 3/s of {source} (max_session_updates_per_s)"
        assert reasons == {("RESOURCE_EXHAUSTED", expected)}
        return refusals.count(None)

    assert (updates(100), updates(100), updates(101), updates(99), updates(99.7)) == (3, 0, 3, 0, 3)
    assert (updates(500), updates(500, D)) == (3, 3)
    quotas.forget(C)
    assert updates(500) == 3

    def events(count: int, size: int, now_s: float) -> str | None:
        batch = EventBatch.from_pylist(QUOTE, [{"price": 1.0}] * count, publisher="c/1", first_sequence=7)
        refusal = quotas.events_refusal(batch, size, C, round(now_s * 1e9))
        if refusal is None:
            return None
        assert (refusal.status, refusal.first_sequence, refusal.count) == ("RESOURCE_EXHAUSTED", 7, count)
        return refusal.reason

    assert events(25, 10, 0) is None
    for now_s in (0, 1.4):
        assert events(1, 10, now_s) == (
            "1 events of 'Quote': expected at most 10 events/s of client/c (max_session_events_per_s)"
        )
    assert events(1, 2_500, 3) is None
    reason = events(1, 1, 4)
    assert reason is not None
    assert "at most 1000 event bytes/s of client/c (max_session_event_bytes_per_s)" in reason
    assert events(1, 1, 7) is None
