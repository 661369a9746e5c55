"""The broker's state for people (`render`) and for tools (`inspect`)."""

import json
import sys
from collections.abc import Callable
from functools import partial

import pytest
from core_driven import Driven

from covey.matcher import EventBatch, EventType, parse
from covey.matcher.errors import SubscriptionError
from covey.overlay.core.covering.interest import Interest
from covey.overlay.core.covering.poset import Forest, Poset
from covey.overlay.core.introspection.explanations import explain, follow
from covey.overlay.core.introspection.inspection import MAX_LISTED, inspect, render
from covey.overlay.core.messages import Advertise, Connect, Publish, Subscribe
from covey.overlay.core.routing.broker import Broker
from covey.sim.baselines.diagram import Diagram
from covey.sim.baselines.naive_poset import NaivePoset

QUOTE = EventType("Quote", {"firm": "string", "price": "float64"})
A, B, C, D = "broker/a", "broker/b", "client/c", "client/d"
BELOW = parse("price < $limit", QUOTE)


@pytest.fixture
def x() -> Driven:
    return Driven(A, B, C, D)


def test_render_and_inspect_show_the_whole_state(x: Driven) -> None:
    x(A, Advertise(1, QUOTE))
    x(C, Subscribe(1, 1, BELOW, {"limit": 10}))
    x(D, Subscribe(1, 1, parse("price < 5", QUOTE), {}))
    assert render(x.broker) == "\n".join(
        [
            "broker x, routing parametric, engine naive",
            "  broker/a: 0 subscriptions, epoch 1, unacknowledged: 1",
            "  broker/b: 0 subscriptions, epoch 0",
            "  client/c: 1 subscriptions, epoch 1, unacknowledged: 1",
            "  client/d: 1 subscriptions, epoch 1, unacknowledged: 1",
            "type Quote (firm string, price float64)",
            "  publishers: broker/a",
            "  interest of clients:",
            "    price < 10.0 <- client/c#1",
            "      price < 5.0 <- client/d#1",
            "  slots at broker/a:",
            "    slot 1: price < 10.0 <- client/c#1 (not yet acknowledged)",
        ]
    )
    state = json.loads(json.dumps(inspect(x.broker)))
    assert state["types"]["Quote"] == {
        "attributes": {"firm": "string", "price": "float64"},
        "key": None,
        "publishers": [A],
        "advertised_to": [B],
        "contents": {},
        "keys": {},
        "replay": {},
        "interests": 2,
        "interest": {C: {"1": "price < 10.0"}, D: {"1": "price < 5.0"}},
        "slots_in_use": {A: 1},
        "slots": {A: {"1": "price < 10.0"}},
        "not_listed": {},
    }
    assert state["interfaces"][A]["sent"] == {"SyncBegin": 1, "SyncEnd": 1, "Subscribe": 1}
    assert state["totals"]["control_received"] == 3


@pytest.mark.parametrize("listed", [1, 3, 4, 5])
def test_listed_bounds_the_items_and_counts_the_rest(x: Driven, listed: int) -> None:
    x(A, Advertise(1, QUOTE))
    for i in range(1, 5):
        x(C, Subscribe(i, i, parse(f'firm == "F{i}"', QUOTE), {}))
    lines = render(x.broker, listed).splitlines()
    assert sum(line.startswith("    firm") for line in lines) == min(4, listed)
    assert sum(line.startswith("    slot") for line in lines) == min(4, listed)
    assert lines.count(f"    and {4 - listed} more") == (2 if listed < 4 else 0)
    state = inspect(x.broker, listed)["types"]["Quote"]
    assert (state["interests"], state["slots_in_use"]) == (4, {A: 4})
    assert sum(map(len, state["interest"].values())) == len(state["slots"][A]) == min(4, listed)


def test_types_clients_publishers_and_long_filters_are_bounded_too(x: Driven) -> None:
    for i in range(3):
        x(A, Advertise(i + 1, EventType(f"T{i}", {"firm": "string"})))
    x(C, Advertise(1, QUOTE))
    x(D, Advertise(1, QUOTE))
    x(C, Subscribe(2, 1, parse("firm in (" + ", ".join(f"'F{i}'" for i in range(2_000)) + ")", QUOTE), {}))
    lines = render(x.broker, 1).splitlines()
    assert "  and 1 more" in lines, "clients"
    assert lines[-1] == "and 3 more", "types"
    state = inspect(x.broker, 1)
    assert state["not_listed"] == {"interfaces": 1, "types": 3}
    assert list(state["interfaces"]) == [A, B, C]
    quote = inspect(x.broker, 4)["types"]["Quote"]
    (text,) = quote["interest"][C].values()
    assert len(text) < 2_100
    assert text.endswith(" characters)")
    assert inspect(x.broker, 1)["types"]["T0"]["publishers"] == [A]
    everything = inspect(x.broker)
    assert len(everything["types"]) == 4
    assert len(everything["types"]["Quote"]["interest"][C]["1"]) > 10_000
    assert quote["publishers"] == [C, D]


def calls_of(action: Callable[[], object]) -> int:
    """The number of calls, with C functions and resumed generators."""
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(None)
    return calls


def test_what_is_left_off_costs_nothing() -> None:
    """Inspecting 100,000 subscriptions blocked a broker for 5 s."""
    cost = []
    for count in (200, 1_000):
        broker = Driven(A, B, C, D).broker
        broker.handle(Advertise(1, QUOTE), A, 0)
        broker.handle(Subscribe(1, 1, parse("price < 9", QUOTE), {}), D, 0)
        for i in range(1, count):
            broker.handle(Subscribe(2 * i, 2 * i, parse(f'firm == "F{i}"', QUOTE), {}), C, 0)  # roots
            broker.handle(Subscribe(2 * i + 1, 2 * i + 1, parse(f"price < {i % 9}", QUOTE), {}), C, 0)
        cost.append([calls_of(partial(view, broker, 20)) for view in (render, inspect)])
        with pytest.raises(SubscriptionError, match=r"it has 2, 3, .* more$") as raised:
            explain(broker, C, 0, {}, 0)
        assert len(str(raised.value)) < 200
    small, large = cost
    assert large[0] <= 1.2 * small[0]
    assert large[1] <= 1.2 * small[1]


@pytest.mark.parametrize("kind", [Forest, NaivePoset, Diagram])
def test_every_node_is_below_its_witness(kind: type[Poset]) -> None:
    poset = kind()
    poset.change([Interest(i, C, i, parse(f"price < {i % 7}", QUOTE), {}) for i in range(20)])
    for node in poset.nodes():
        for below in poset.witnessed_by(node):
            assert poset.witness_of(below) is node
    assert sum(len(list(poset.witnessed_by(node))) for node in poset.nodes()) == 20 - len(list(poset.roots()))


def test_follow_lists_some_of_the_subscriptions_that_an_event_went_to() -> None:
    broker = Broker("x", engine="naive", replay_events=10)
    for name in (C, D):
        broker.handle(Connect(), name, 0)
    broker.handle(Advertise(1, QUOTE), D, 0)
    everything = parse("", QUOTE)
    for i in range(1, MAX_LISTED + 201):
        broker.handle(Subscribe(i, i, everything, {}), C, 0)
    event = EventBatch.from_pylist(QUOTE, [{"price": 1.0}], publisher="p", first_sequence=7, ingress_ns=1)
    broker.handle(Publish(event), D, 1)
    step = follow(broker, "Quote", "p", 7)
    assert len(step["sessions"][C]) == MAX_LISTED
    assert step["not_listed"] == 200
