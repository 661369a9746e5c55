"""Bounds on the state that clients create in a broker."""

from __future__ import annotations

import pytest
from core_driven import Driven

from covey.matcher import EventType, parse
from covey.overlay.core.endpoint.quotas import Bounds, Quotas, depth_of
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
    assert refusal is not None
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
    assert refusal is not None
    assert refusal.reason == "event type 'G' is one more than 4: expected no more (max_types)"


def test_filters(bounded: Bounded) -> None:
    assert bounded.subscribe(C, 1, "price < 1 or firm == 'IBM'") is None
    long = bounded.subscribe(C, 2, "firm in ('IBM', 'HP', 'DEC', 'SGI', 'Sun', 'Cray')")
    assert long is not None
    assert long.reason == ("a filter on 'Quote' has 50 bytes: expected at most 40 (max_filter_bytes)")
    deep = "price < 1 or (price > 2 and (price < 3 or price > 4))"
    assert depth_of(parse(deep, QUOTE).expression) == 4
    quotas = Quotas(bounded.driven.broker.tables, Bounds(filter_depth=3))
    refusal = quotas.refusal(Subscribe(1, 1, parse(deep, QUOTE), {}), C)
    assert refusal is not None
    assert refusal.reason == "a filter on 'Quote' is nested 4 deep: expected at most 3 (max_filter_depth)"
    advertised = bounded.quotas.refusal(
        Advertise(1, QUOTE, parse("price == 1" + 4 * " or price == 10", QUOTE)), C
    )
    assert advertised is not None


def test_sessions(bounded: Bounded) -> None:
    assert bounded.quotas.session_refusal(1) is None
    assert bounded.quotas.session_refusal(2) == (
        "the broker has 2 sessions: expected at most 2 (max_sessions)"
    )
