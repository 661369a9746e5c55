"""Brokers that lose their state: acknowledgements before and after, and the other brokers' reactions."""

import random
from itertools import pairwise

import pytest
from core_driven import Driven
from core_network import Network
from core_routes import check_links

from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import parse
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.introspection.inspection import inspect, render
from covey.overlay.core.messages import (
    Acknowledge,
    Advertise,
    Connect,
    Disconnect,
    Send,
    Subscribe,
    SyncBegin,
    SyncEnd,
)
from covey.sim.invariants import check

POINT = EventType("Point", {"x": "int64"})
BELOW = parse("x < $a", POINT)
STRUCTURE = parse("x < $1", POINT)
A, B, C = "broker/a", "broker/b", "client/c"


def test_a_restarted_broker_sends_sync_end_after_its_other_neighbours_have_synced() -> None:
    x = Driven(neighbours=["a", "b"])
    assert x(A, Connect()) == [Send(A, SyncBegin())]
    assert x(B, Connect()) == [Send(B, SyncBegin())]
    assert x(A, SyncBegin(), Advertise(1, POINT)) == [Send(B, Advertise(1, POINT))]
    assert x(A, SyncEnd(2)) == [Send(B, SyncEnd(2))]
    assert x(B, SyncBegin(), SyncEnd(1)) == [Send(A, SyncEnd(1)), Send(B, Acknowledge(1))]
    assert x(B, Acknowledge(1)) == []
    assert x(B, Acknowledge(2)) == [Send(A, Acknowledge(2))]


def test_a_restarted_broker_acknowledges_nothing_before_its_neighbours_have_synced() -> None:
    """The neighbour may publish a type of the client, and then has to be updated first."""
    x = Driven(neighbours=["a"])
    x(A, Connect())
    x(C, Connect())
    assert x(C, Subscribe(1, 1, BELOW, {"a": 5})) == []
    assert "broker/a: not synced yet, acknowledgements wait for it" in render(x.broker)
    assert inspect(x.broker)["unsynced"] == [A]
    assert x(A, SyncBegin(), Advertise(1, POINT)) == [
        Send(A, Subscribe(2, 1, STRUCTURE, {"1": 5})),
        Send(A, Acknowledge(1)),
    ]
    assert x(A, SyncEnd(2)) == [Send(A, Acknowledge(2))]
    assert x(A, Acknowledge(2)) == [Send(C, Acknowledge(1))]


def test_a_neighbour_that_never_connects_is_not_awaited_once_removed() -> None:
    x = Driven(neighbours=["a", "b"])
    x(A, Connect())
    x(B, Connect())
    x(C, Connect())
    x(C, Subscribe(1, 1, BELOW, {"a": 5}))
    x(A, SyncBegin(), SyncEnd(1))
    assert x(B, Disconnect()) == [Send(A, SyncEnd(1)), Send(C, Acknowledge(1)), Send(A, Acknowledge(1))]


def test_new_slots_do_not_replace_old_ones_before_the_sync_ends() -> None:
    """A restarted neighbour numbers its slots anew: slot 1 is another filter, and the old one comes later."""
    x = Driven(A, B)
    x(A, Subscribe(1, 1, STRUCTURE, {"1": 9}))
    x(B, Advertise(1, POINT))
    x(B, Acknowledge(2))
    x(A, Connect(), SyncBegin())
    assert x(A, Subscribe(1, 1, STRUCTURE, {"1": 3})) == [Send(A, Acknowledge(1))]
    assert x(A, Subscribe(2, 2, STRUCTURE, {"1": 9})) == [Send(A, Acknowledge(2))]
    assert x(A, SyncEnd(3)) == [Send(A, Acknowledge(3))]
    assert sorted(x.broker.tables.peers[A].subscriptions) == [1, 2]


@pytest.mark.parametrize("routing", ["parametric", "static"])
@pytest.mark.parametrize("seed", range(40))
def test_an_update_that_settles_across_a_restart_is_in_force(seed: int, routing: str) -> None:
    """COVERAGE: whichever brokers crash while an update travels, the next matching event arrives once it has
    settled. Fails if a restarted broker acknowledges before it has synced."""
    draw = random.Random(seed)
    network = Network(routing=routing)
    names = [f"broker/b{i}" for i in range(5)]
    for name in names:
        network.broker(name)
    for a, b in pairwise(names):
        network.link(a, b)
    for client, broker in (("client/c", 0), ("client/d", 0), ("client/e", 2), ("client/p", 4)):
        network.client(client, names[broker], ClientSession(client, routing=routing, engine="naive"))
    network.advertise("client/p", POINT)
    for client in ("client/d", "client/e"):
        for _ in range(2):
            network.subscribe(client, BELOW, {"a": draw.randint(0, 5)})
    mine = network.subscribe("client/c", BELOW, {"a": 1})
    network.run(draw)
    session = network.clients["client/c"].session
    for limit in range(10, 80, 10):
        if draw.random() < 0.5:  # the neighbour next to the client's broker crashes while that waits for it
            network.update("client/c", mine, {"a": limit})
            while not network.brokers[names[0]].tables.acks.awaited():
                network.step(draw)
            network.run(draw, draw.randint(0, 6))
            if not network.brokers[names[0]].tables.acks.awaited():
                network.update("client/c", mine, {"a": limit + 1})
                network.run(draw, 1)
            network.crash(names[1])
        else:  # brokers crash, and the update meets them while they start
            for crashed in draw.sample(names[1:4], draw.randint(1, 2)):
                network.crash(crashed)
                network.run(draw, draw.randint(0, 10))
            network.update("client/c", mine, {"a": limit})
        while session.settled < session.epoch:
            network.step(draw)
        batch = network.publish("client/p", POINT, [{"x": limit - 1}])
        network.run(draw)
        delivered = [b for i, b in network.clients["client/c"].delivered if i == mine]
        assert delivered, f"seed {seed}: nothing arrived at {limit}"
        assert delivered[-1] == batch, f"seed {seed}: {limit} was lost"
        check_links(network)
        for broker in network.brokers.values():
            check(broker)
