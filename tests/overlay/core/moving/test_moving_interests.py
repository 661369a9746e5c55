"""Announcements wider than the subscription; motion in the core and at the client."""

import random
from typing import Any

import numpy as np
import pytest
from core_driven import Driven, sent
from core_posets import POINT
from named_operators import registered

from covey.matcher import EventBatch, EventType, parse
from covey.matcher.covering.covering import covers_region
from covey.matcher.errors import VariableError
from covey.matcher.operators.named_operator import NUMBERS, NamedOperator, Parameter
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.messages import Advertise, Deliver, Message, Refuse, Subscribe, Tick, Update
from covey.overlay.core.moving.motion import (
    HORIZON_NS,
    LATE_NS,
    MARGIN_NS,
    SECOND_NS,
    Announcement,
    Motion,
    check_values,
    directions,
    still,
)
from covey.overlay.core.routing.broker import Broker
from covey.sim.baselines.options import broker_options

CAR = EventType("Car", {"x": "float64", "lane": "int64", "road": "string"})
BELOW = parse("x < $limit", CAR)
AROUND = parse("x >= $x - 5 and x <= $x + 5 and lane == $lane", CAR)


def test_the_direction_that_widens_a_variable() -> None:
    assert directions(parse("x < $a and lane > $b and x between $c and $d and lane != $e", CAR)) == {
        "a": 1,
        "b": -1,
        "c": -1,
        "d": 1,
        "e": 0,
    }
    assert directions(parse("x < -2 * $a", CAR)) == {"a": -1}
    assert directions(AROUND) == {"x": 0, "lane": 0}
    assert directions(AROUND.lift()[0]) == {"1": -1, "2": 1, "3": 0}
    assert directions(parse("within(x, lane, $a, 0, $b) and x < $c", CAR)) == {"a": 0, "b": 0, "c": 1}
    steps = "steps_of_these_tests(x, ?n) and ?n > $a and ?n <= $b and ?n == $c"
    assert directions(parse(steps, POINT)) == {"a": -1, "b": 1, "c": 0}


def test_a_call_moves_under_damping() -> None:
    broker = Driven("client/a", "broker/y", damping=8.0)
    broker("broker/y", Advertise(1, CAR))
    filter = parse("within(x, lane, $a, 0, 5) and x < $c", CAR)
    broker("client/a", Subscribe(1, 1, filter, {"a": 1.0, "c": 2.0}))
    (update,) = sent(broker("client/a", Update(2, 1, {"a": 3.0})), Update)
    assert update == ("broker/y", Update(3, 1, {"1": 3.0}))


@pytest.mark.parametrize("seed", range(20))
def test_announced_bounds_always_cover_the_subscription(seed: int) -> None:
    draw = random.Random(seed)
    values: dict[str, object] = {"x": 0.0, "lane": 1}
    announcement = Announcement(AROUND, values, draw.choice((0.0, 1.0, 8.0)), 0)
    for _ in range(200):
        values = {
            "x": values["x"] + draw.choice((0.1, 3.0, 500.0)) * draw.uniform(-1, 1),
            "lane": draw.choice((1, 1, 2)),
        }
        announcement.move(values, 0)
        assert covers_region(announcement.region(), AROUND.region(values)), f"seed {seed}"


def test_slack_follows_the_typical_step() -> None:
    def changes(steps: list[float], damping: float = 8.0) -> int:
        announcement, at = Announcement(BELOW, {"limit": 100.0}, damping, 0), 100.0
        count = 0
        for step in steps:
            at += step
            count += announcement.move({"limit": at}, 0)
        return count

    swings = [5.0, -5.0] * 100
    assert changes(swings) <= 2
    assert changes(swings, damping=0.0) == 200
    assert changes([1.0] * 160) <= 20
    assert changes([-1.0] * 160) <= 20
    announcement = Announcement(BELOW, {"limit": 100.0}, 8.0, 0)
    for value in (200.0, 100.0, *(100.0 + i % 2 for i in range(200))):
        announcement.move({"limit": value}, 0)
    assert announcement.values["1"] < 120.0, "after large steps small ones reduce the slack"


def test_integers_stay_integers_and_infinities_get_no_slack() -> None:
    announcement = Announcement(parse("lane <= $n", CAR), {"n": 3}, 2.0, 0)
    announcement.move({"n": 5}, 0)
    assert announcement.values == {"1": 9}
    announcement.move({"n": 2**63 - 1}, 0)
    assert announcement.values == {"1": 2**63 - 1}
    announcement = Announcement(BELOW, {"limit": 1.0}, 2.0, 0)
    announcement.move({"limit": float("inf")}, 0)
    announcement.move({"limit": 3.0}, 0)
    assert announcement.values == {"1": 3.0}


def test_motions_are_checked() -> None:
    assert check_values(BELOW, {"limit": Motion(1.0, 2.0)}, now_ns=7) == {"limit": Motion(1.0, 2.0, 7)}
    assert still({"limit": Motion(1.0, 2.0, 7)}, 7 + SECOND_NS) == {"limit": 3.0}
    with pytest.raises(VariableError, match="moves, and stands in lane ==: expected a bound"):
        check_values(AROUND, {"x": 1.0, "lane": Motion(1.0, 1.0)})
    with pytest.raises(VariableError, match="moves, and stands in a call of within: expected a bound"):
        check_values(parse("within(x, lane, $a, 0, 5)", CAR), {"a": Motion(1.0, 1.0)})
    with (
        registered(NamedOperator("rises", (Parameter("value", NUMBERS),), lambda seen, x: x, state=list)),
        pytest.raises(VariableError, match="calls rises, which has state: expected values"),
    ):
        check_values(parse("x < $x and rises(x)", CAR), {"x": Motion(1.0, 1.0)})
    with pytest.raises(VariableError, match="moves with rate nan: expected a finite number"):
        check_values(BELOW, {"limit": Motion(1.0, float("nan"))})
    with pytest.raises(VariableError, match=r"\$limi is unknown"):
        check_values(BELOW, {"limi": Motion(1.0, 1.0)})


class Bench(Driven):
    """A broker with a client, and a neighbour that publishes."""

    def __init__(self, **options: object) -> None:
        super().__init__("client/s", "broker/n", **options)
        self("broker/n", Advertise(1, CAR))

    def forwarded(self, message: Message, now_s: float) -> list[dict[str, object]]:
        """The values of SUBs and UPDs to the neighbour."""
        source = "" if isinstance(message, Tick) else "client/s"
        messages = sent(self(source, message, now_ns=round(now_s * SECOND_NS)), Subscribe, Update)
        return [dict(request.values) for _, request in messages]


def test_a_motion_is_announced_for_a_minute_and_renewed_before_its_end() -> None:
    bench = Bench()
    motion = Motion(100.0, 2.0, 1000 * SECOND_NS)
    horizon_s, margin_s = HORIZON_NS / SECOND_NS, MARGIN_NS / SECOND_NS
    assert bench.forwarded(Subscribe(1, 1, BELOW, {"limit": motion}), 1000.0) == [
        {"1": 100.0 + 2 * horizon_s}
    ]
    assert bench.broker.next_timer() == 1001 * SECOND_NS
    renewals: list[tuple[float, object]] = []
    for second in range(1001, 1001 + int(horizon_s)):
        renewals += [(second, values) for values in bench.forwarded(Tick(), float(second))]
    again = 1000 + horizon_s - margin_s + 1
    assert renewals == [(again, {"1": 100.0 + 2 * (again - 1000 + horizon_s)})]
    falling = Motion(100.0, -2.0, 1100 * SECOND_NS)
    late_s = LATE_NS / SECOND_NS
    assert bench.forwarded(Update(2, 1, {"limit": falling}), 1100.0) == [{"1": 100.0 + 2 * late_s}]
    assert bench.forwarded(Update(3, 1, {"limit": 7.0}), 1101.0) == [{"1": 7.0}]
    assert bench.broker.next_timer() is None


def test_damping_absorbs_updates_and_acknowledges_at_once() -> None:
    bench = Bench(damping=4.0)
    bench("client/s", Subscribe(1, 1, BELOW, {"limit": 100.0}))
    assert bench.forwarded(Update(2, 1, {"limit": 110.0}), 0.0) == [{"1": 150.0}]
    for epoch, limit in enumerate((100.0, 110.0, 95.0, 120.0), start=3):
        assert bench.forwarded(Update(epoch, 1, {"limit": limit}), 0.0) == []
    interest = bench.broker.tables.peers["client/s"].subscriptions[1]
    assert interest.concrete() == "x < 120.0", "the edge matches without the slack"


@pytest.mark.parametrize("options", [{"routing": "static"}, broker_options("poset")])
def test_motion_is_refused_under_static_routing_and_with_a_factory_as_engine(options: dict[str, Any]) -> None:
    x = Driven("client/s", **options)
    done = x("client/s", Subscribe(1, 1, BELOW, {"limit": Motion(1.0, 1.0, 1)}))
    refusals = [refusal for _, refusal in sent(done, Refuse)]
    assert len(refusals) == 1
    assert "moves by itself: expected a number" in refusals[0].reason


def test_a_client_evaluates_motion_at_the_ingress_time_of_each_event() -> None:
    session = ClientSession("s", engine="naive")
    one, _ = session.subscribe(BELOW, {"limit": Motion(10.0, 1.0)}, now_ns=100 * SECOND_NS)

    def deliver(first: int, at_s: int, *xs: float) -> list[tuple[int, list[float], int]]:
        batch = EventBatch.from_pylist(CAR, [{"x": x} for x in xs])
        batch = batch.stamped(publisher="p", first_sequence=first, ingress_ns=at_s * SECOND_NS)
        message = Deliver(batch, np.arange(len(xs) + 1), np.full(len(xs), one), 1)
        return [
            (action.subscription_id, [row["x"] for row in action.batch.to_pylist()], action.spurious)
            for action in session.receive(message)
            if isinstance(action, DeliverTo)
        ]

    assert deliver(1, 100, 5.0, 10.5, 15.0) == [(one, [5.0], 2)]
    assert deliver(4, 103, 12.5, 13.5) == [(one, [12.5], 1)]
    session.update(one, {"limit": 3.0})
    assert deliver(6, 110, 2.0, 4.0) == [(one, [2.0], 1)]


def test_damping_is_refused_where_a_factory_replaces_the_engine() -> None:
    with pytest.raises(ValueError, match=r"damping 1\.0: expected 0"):
        Broker("b", **broker_options("poset"), damping=1.0)
