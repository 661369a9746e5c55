"""The third way to re-subscribe (Jayaram et al., section 4.2): what it misses, duplicates and keeps."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.messages import Message, Subscribe, Unsubscribe
from covey.sim.checkers import Findings, Judge, check_quiet, check_routes
from covey.sim.simulator.cancelling_session import CANCEL_LATE, CancellingSession
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.clock import NS_PER_S
from covey.sim.simulator.observer import Observer
from covey.sim.simulator.simulation import Simulation
from covey.sim.topology import make_topology

QUOTE = EventType("Quote", {"price": "float64"})
BELOW = parse("price < $limit", QUOTE)


class Sent(Observer):
    """The control messages of a client that its broker got, and the events that the client got."""

    def __init__(self) -> None:
        self.control: list[type[Message]] = []
        self.delivered_prices: list[float] = []
        self.spurious = 0

    def received(self, source: str, target: str, message: Message) -> None:
        if source == "client/me" and isinstance(message, Subscribe | Unsubscribe):
            self.control.append(type(message))

    def delivered(self, client: object, action: object) -> None:
        self.delivered_prices += action.batch.record_batch.column("price").to_pylist()  # type: ignore[attr-defined]
        self.spurious += action.spurious  # type: ignore[attr-defined]


@dataclass
class World:
    overlay: Simulation
    feed: SimulatedClient
    me: SimulatedClient
    mine: int
    sent: Sent
    judge: Judge
    findings: Findings

    def publish(self, *prices: float) -> None:
        """Each by itself, and until all is at rest."""
        for price in prices:
            self.feed.publish(EventBatch.from_pylist(QUOTE, [{"price": price}]))
            self.rest()

    def move(self, limit: float) -> None:
        self.me.update(self.mine, {"limit": limit})
        self.rest()

    def rest(self) -> None:
        self.overlay.run()
        check_quiet(self.overlay, self.findings)
        check_routes(self.overlay, self.findings)
        assert not self.findings

    @property
    def outdated(self) -> list[str]:
        assert isinstance(self.me.session, CancellingSession)
        return [*map(str, self.me.session.outdated)]


@pytest.fixture
def world() -> World:
    sent, findings = Sent(), Findings()
    overlay = Simulation(1, routing="static", resubscribe=CANCEL_LATE, engine="naive", observers=[sent])
    judge = Judge(findings, lambda: overlay.clock.now_ns)
    overlay.observers.append(judge)
    overlay.build(make_topology("line", 3))
    feed, me = overlay.join("client/feed", "broker/b1"), overlay.join("client/me", "broker/b3")
    feed.advertise(QUOTE)
    overlay.run()
    mine = me.subscribe(BELOW, {"limit": 10.0})
    made = World(overlay, feed, me, mine, sent, judge, findings)
    made.rest()
    sent.control.clear()
    return made


def test_an_event_that_the_outdated_subscription_does_not_match_cancels_it(world: World) -> None:
    world.move(20.0)
    assert world.outdated == ["price < 10.0"]
    world.publish(5.0)  # matches both: it may have come for the outdated one
    assert world.sent.control == [Subscribe]
    world.publish(15.0, 16.0, 5.0)
    assert world.sent.control == [Subscribe, Unsubscribe]
    assert world.outdated == []
    assert (world.sent.delivered_prices, world.sent.spurious) == ([5.0, 15.0, 16.0, 5.0], 0)


def test_what_overlaps_is_delivered_once_and_nothing_is_missed(world: World) -> None:
    for limit in (20.0, 5.0, 30.0, 10.0):
        world.me.update(world.mine, {"limit": limit})
        for price in (4.0, 8.0, 15.0, 25.0):
            world.feed.publish(EventBatch.from_pylist(QUOTE, [{"price": price}]))
        world.overlay.run(world.overlay.clock.now_ns + NS_PER_S // 50)
    world.rest()
    world.judge.quiet()
    assert (world.judge.missed_events, world.judge.lost_events) == (0, 0)
    assert world.judge.expected_events > 0
    assert not world.findings


def test_a_change_that_narrows_is_never_confirmed(world: World) -> None:
    """So events keep coming for the outdated subscription, until the next change."""
    world.move(5.0)
    world.publish(4.0, 7.0, 8.0, 9.0)
    assert world.outdated == ["price < 10.0"]
    assert (world.sent.delivered_prices, world.sent.spurious) == ([4.0], 3)
    world.move(4.0)
    assert world.outdated == ["price < 5.0"]
    assert world.sent.control == [Subscribe, Subscribe, Unsubscribe]
    world.publish(7.0)
    assert world.sent.spurious == 3


def test_the_end_of_a_subscription_is_that_of_its_outdated_one(world: World) -> None:
    world.move(5.0)
    world.me.unsubscribe(world.mine)
    world.rest()
    assert world.outdated == []
    assert world.sent.control == [Subscribe, Unsubscribe, Unsubscribe]


def test_after_a_move_the_outdated_subscription_is_void(world: World) -> None:
    world.move(5.0)
    world.overlay.move("client/me", "broker/b2")
    world.rest()
    assert world.outdated == []
    world.publish(4.0, 7.0)
    assert (world.sent.delivered_prices, world.sent.spurious) == ([4.0], 0)
