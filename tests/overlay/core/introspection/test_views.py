"""The broker's state for people (`render`) and for tools (`inspect`)."""

from __future__ import annotations

import json

import pytest
from core_driven import Driven

from covey.matcher import EventType, parse
from covey.overlay.core.introspection.views import inspect, render
from covey.overlay.core.messages import Advertise, Subscribe

QUOTE = EventType("Quote", {"firm": "string", "price": "float64"})
A, B, C, D = "broker/a", "broker/b", "client/c", "client/d"
BELOW = parse("price < $limit", QUOTE)


@pytest.fixture
def x() -> Driven:
    """A broker with two neighbours and two clients."""
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
        "publishers": [A],
        "advertised_to": [B],
        "contents": {},
        "replay": {},
        "interests": 2,
        "interest": {C: {"1": "price < 10.0"}, D: {"1": "price < 5.0"}},
        "slots_in_use": {A: 1},
        "slots": {A: {"1": "price < 10.0"}},
    }
    assert state["interfaces"][A]["sent"] == {"SyncBegin": 1, "SyncEnd": 1, "Subscribe": 1}
    assert state["totals"]["control_received"] == 3


@pytest.mark.parametrize("listed", [0, 1, 3, 4, 5])
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
