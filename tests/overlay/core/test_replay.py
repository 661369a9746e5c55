"""The ring of recent events: what is replayed to whom, once, and what happens past its bound."""

from __future__ import annotations

import numpy as np

from covey.matcher import EventBatch, EventType, parse
from covey.overlay.core.broker import Broker
from covey.overlay.core.client import ClientSession, DeliverTo
from covey.overlay.core.joining import INGRESS_SPAN_NS
from covey.overlay.core.messages import (
    Acknowledge,
    Advertise,
    Connect,
    Deliver,
    Message,
    Publish,
    Send,
    Subscribe,
    Update,
)
from covey.overlay.core.recent import KEPT, Recent

TICK = EventType("Tick", {"x": "int64"})
BELOW = parse("x < $limit", TICK)
SECOND = 1_000_000_000


def batch(first: int, *xs: int, at_s: int) -> EventBatch:
    made = EventBatch.from_pylist(TICK, [{"x": x} for x in xs])
    return made.stamped(publisher="p", first_sequence=first, ingress_ns=at_s * SECOND)


class Bench:
    """A broker with a publisher `client/p`, a subscriber `client/s`, and a neighbour `broker/n`."""

    def __init__(self, replay_events: int = 1000) -> None:
        self.broker = Broker("b", engine="naive", replay_events=replay_events)
        for source in ("client/p", "client/s", "broker/n"):
            self.broker.handle(Connect(), source, 0.0)
        self.say("client/p", Advertise(1, TICK))
        self.say("client/s", Subscribe(1, 7, BELOW, {"limit": 5}))
        self.say("broker/n", Subscribe(1, 1, BELOW, {"limit": 3}))

    def say(self, source: str, message: Message) -> list[Send]:
        done = [a for a in self.broker.handle(message, source, 0.0) if isinstance(a, Send)]
        self.broker.validate()
        return done

    def events(self, source: str, message: Message) -> list[tuple[str, bool, list[int]]]:
        """What goes where as events, and whether as a replay."""
        return [
            (send.interface, send.message.replayed, send.message.batch.sequences().tolist())
            for send in self.say(source, message)
            if isinstance(send.message, Publish | Deliver)
        ]


def test_an_update_without_gaps_replays_what_entered_since_and_was_not_sent() -> None:
    bench = Bench()
    assert bench.events("client/p", Publish(batch(1, 2, 4, 8, at_s=10))) == [
        ("broker/n", False, [1]),
        ("client/s", False, [1, 2]),
    ]
    bench.events("client/p", Publish(batch(4, 2, 4, 8, at_s=20)))
    assert bench.events("client/s", Update(2, 7, {"limit": 9}, 15 * SECOND)) == [("client/s", True, [6])]
    assert bench.events("client/s", Update(3, 7, {"limit": 10}, 15 * SECOND)) == [], "once is enough"
    assert bench.events("client/s", Update(4, 7, {"limit": 11}, 5 * SECOND)) == [("client/s", True, [3])]
    assert bench.events("broker/n", Update(2, 1, {"limit": 9}, 15 * SECOND)) == [("broker/n", True, [5, 6])]
    assert bench.events("broker/n", Update(3, 1, {"limit": 9}, 5 * SECOND)) == [("broker/n", True, [2, 3])]
    assert bench.events("broker/n", Update(4, 1, {}, SECOND)) == []
    assert bench.events("client/s", Update(5, 7, {"limit": 99})) == [], "an ordinary update replays nothing"


def test_it_reaches_the_brokers_beyond_also_where_another_filter_covers_it() -> None:
    bench = Bench()
    bench.say("broker/n", Advertise(2, TICK))
    bench.say("client/p", Subscribe(2, 1, BELOW, {"limit": 100}))
    sent = bench.say("client/s", Update(2, 7, {"limit": 9}, 15 * SECOND))
    asked = [send.message for send in sent if send.interface == "broker/n"]
    assert [(type(m), m.values, m.since_ns) for m in asked] == [(Update, {}, 15 * SECOND)]
    assert not [send for send in sent if isinstance(send.message, Acknowledge)], "it waits for the neighbour"


def test_what_was_replayed_to_a_broker_goes_on_as_a_replay_and_not_back() -> None:
    bench = Bench()
    bench.say("broker/n", Advertise(2, TICK))
    assert bench.events("broker/n", Publish(batch(1, 2, at_s=10), True)) == [("client/s", True, [1])]


def test_past_the_bound_events_are_forgotten_and_that_is_counted() -> None:
    bench = Bench(replay_events=4)
    for moment in range(10):
        bench.events("client/p", Publish(batch(2 * moment, 8, 8, at_s=moment + 1)))
    assert bench.events("client/s", Update(2, 7, {"limit": 9}, 10 * SECOND)) == [("client/s", True, [18, 19])]
    ring = bench.broker.inspect()["types"]["Tick"]["replay"]
    assert ring == {"held": 4, "bound": 4, "replayed": 2, "short": 0}
    assert bench.events("client/s", Update(3, 7, {"limit": 10}, SECOND)) == [("client/s", True, [16, 17])]
    assert bench.broker.inspect()["types"]["Tick"]["replay"]["short"] == 1


def test_a_client_hands_out_once_what_comes_both_ways() -> None:
    session = ClientSession("s", engine="naive")
    one, _ = session.subscribe(BELOW, {"limit": 5})
    other, _ = session.subscribe(BELOW, {"limit": 50})
    session.update(one, {"limit": 9}, since_ns=1)

    def deliver(first: int, *xs: int, ids: list[int], replayed: bool = False) -> list[tuple[int, list[int]]]:
        offsets = np.arange(len(xs) + 1) * len(ids)
        message = Deliver(
            batch(first, *xs, at_s=1), offsets, np.array(ids * len(xs)), session.epoch, replayed
        )
        return [
            (action.subscription_id, action.batch.sequences().tolist())
            for action in session.receive(message)
            if isinstance(action, DeliverTo)
        ]

    assert deliver(5, 1, 2, ids=[one, other]) == [(one, [5, 6]), (other, [5, 6])]
    assert deliver(3, 1, 2, 3, 4, ids=[one, other], replayed=True) == [(one, [3, 4])]
    assert deliver(3, 1, 2, ids=[one, other], replayed=True) == []
    assert deliver(7, 1, ids=[one]) == [(one, [7])]


def test_what_a_subscription_remembers_is_bounded() -> None:
    recent = Recent()
    assert recent.fresh("p", np.arange(10)).all()
    assert recent.fresh("p", np.array([3, 10, 9])).tolist() == [False, True, False]
    assert recent.fresh("q", np.array([3])).all()
    for start in range(100, 100 + 4 * KEPT, 1000):
        assert recent.fresh("p", np.arange(start, start + 1000)).all()
    assert not recent.fresh("p", np.arange(100 + 4 * KEPT - KEPT // 2, 100 + 4 * KEPT - 2000)).any()
    assert (
        sum(len(c) for kept in (recent._new, recent._old) for cs in kept.values() for c in cs)
        <= 2 * KEPT + 1000
    )
    assert INGRESS_SPAN_NS < SECOND
