"""The third way to re-subscribe (Jayaram et al., section 4.2): misses, duplicates and remaining
subscriptions."""

import pytest
from simulated import JudgedOverlay, publish

from covey.matcher import EventType, parse
from covey.overlay.core.messages import Message, Subscribe, Unsubscribe
from covey.sim.simulator.cancelling_session import CANCEL_LATE, CancellingSession
from covey.sim.simulator.observer import Observer

QUOTE = EventType("Quote", {"price": "float64"})
BELOW = parse("price < $limit", QUOTE)


class Sent(Observer):
    """A client's control messages at its broker."""

    def __init__(self) -> None:
        self.control: list[type[Message]] = []

    def received(self, source: str, target: str, message: Message) -> None:
        if source == "client/me" and isinstance(message, Subscribe | Unsubscribe):
            self.control.append(type(message))


class World(JudgedOverlay):
    """b1 - b2 - b3 with a publisher at b1, and with a subscriber at b3 below 10."""

    def __init__(self) -> None:
        super().__init__(routing="static", resubscribe=CANCEL_LATE, engine="naive")
        self.sent = Sent()
        self.simulation.observers.append(self.sent)
        self.build(3)
        self.feed, self.me = self.client("feed", "b1"), self.client("me", "b3")
        self.feed.advertise(QUOTE)
        self.run()
        self.mine = self.me.subscribe(BELOW, {"limit": 10.0})
        self.rest()
        self.sent.control.clear()

    def publish(self, *prices: float) -> None:
        """Each event alone, to rest."""
        for price in prices:
            publish(self.feed, QUOTE, price)
            self.rest()

    def move(self, limit: float) -> None:
        self.me.update(self.mine, {"limit": limit})
        self.rest()

    def rest(self) -> None:
        self.run()
        self.check()

    @property
    def outdated(self) -> list[str]:
        assert isinstance(self.me.session, CancellingSession)
        return [*map(str, self.me.session.outdated)]

    @property
    def prices(self) -> tuple[list[float], int]:
        """The delivered prices, and the number of spurious events."""
        return self.delivered.values(), self.delivered.spurious


@pytest.fixture
def world() -> World:
    return World()


def test_an_event_that_the_outdated_subscription_does_not_match_cancels_it(world: World) -> None:
    world.move(20.0)
    assert world.outdated == ["price < 10.0"]
    world.publish(5.0)  # matches both: it may have come for the outdated one
    assert world.sent.control == [Subscribe]
    world.publish(15.0, 16.0, 5.0)
    assert world.sent.control == [Subscribe, Unsubscribe]
    assert world.outdated == []
    assert world.prices == ([5.0, 15.0, 16.0, 5.0], 0)


def test_what_overlaps_is_delivered_once_and_nothing_is_missed(world: World) -> None:
    for limit in (20.0, 5.0, 30.0, 10.0):
        world.me.update(world.mine, {"limit": limit})
        for price in (4.0, 8.0, 15.0, 25.0):
            publish(world.feed, QUOTE, price)
        world.run(0.02)
    world.rest()
    assert (world.judge.missed_events, world.judge.lost_events) == (0, 0)
    assert world.judge.expected_events > 0


def test_a_change_that_narrows_is_never_confirmed(world: World) -> None:
    """So the outdated subscription draws events until the next change."""
    world.move(5.0)
    world.publish(4.0, 7.0, 8.0, 9.0)
    assert world.outdated == ["price < 10.0"]
    assert world.prices == ([4.0], 3)
    world.move(4.0)
    assert world.outdated == ["price < 5.0"]
    assert world.sent.control == [Subscribe, Subscribe, Unsubscribe]
    world.publish(7.0)
    assert world.delivered.spurious == 3


def test_the_end_of_a_subscription_is_that_of_its_outdated_one(world: World) -> None:
    world.move(5.0)
    world.me.unsubscribe(world.mine)
    world.rest()
    assert world.outdated == []
    assert world.sent.control == [Subscribe, Unsubscribe, Unsubscribe]


def test_after_a_move_the_outdated_subscription_is_void(world: World) -> None:
    world.move(5.0)
    world.simulation.move("client/me", "broker/b2")
    world.rest()
    assert world.outdated == []
    world.publish(4.0, 7.0)
    assert world.prices == ([4.0], 0)
