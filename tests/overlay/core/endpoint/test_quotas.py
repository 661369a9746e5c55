"""Bounds on the state that clients create in a broker."""

import pytest
from core_driven import Driven
from core_endpoints import Noted, broker_endpoint

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.endpoint.connections import ConnectionRefusedError, Peer
from covey.overlay.core.endpoint.options import EndpointOptions
from covey.overlay.core.endpoint.quotas import Bounds, Quotas, depth_of
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
    """A broker whose clients are bounded."""

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
    assert not bounded.quotas._introduced.get(C)


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
    """One that opens names and leaves them to their leases keeps nobody else away."""
    endpoint = broker_endpoint("b1", options=EndpointOptions(bounds=Bounds(client_sessions=2)))

    def opens(name: str, principal: str) -> bool:
        try:
            endpoint.accept(Peer(f"client/{name}", Hello(7), principal=principal), Noted(), 0)
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
    assert endpoint._state.quotas._sessions == {"alice": 2, "bob": 1}
    why = "alice has 2 sessions: expected at most 2 of one client (max_client_sessions)"
    assert refusals == [f"RESOURCE_EXHAUSTED: {why}"] * 2


def test_a_session_that_was_restored_or_has_moved_here_counts_once_its_client_is_back() -> None:
    endpoint = broker_endpoint("b1")
    for _ in range(2):
        queue = endpoint._interfaces.restored("client/alice/1")
        queue.durable = True
        for principal in ("alice", "alice", "al"):
            endpoint.accept(Peer(queue.interface, Hello(7), durable=True, principal=principal), Noted(), 0)
            connection = queue.connection
            assert connection is not None
            endpoint.lost(queue.interface, connection, 0)
            assert endpoint._state.quotas._sessions == {principal: 1}
        endpoint._interfaces.end_session(queue, "it left", "OK")
        assert endpoint._state.quotas._sessions == {}


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
    """A second's worth at once, then the rate; of each session by itself, and whatever the clock does."""
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
