"""Validity periods in virtual time: who learns of a subscription's end, and when."""

from typing import Any

import pytest
from histories import play_all
from simulated import JudgedOverlay, publish

from covey.matcher import EventType, parse
from covey.overlay.core.endpoint.ending import Validity
from covey.overlay.core.endpoint.limits import SessionLimits
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.sim.experiments.fuzz.history import FuzzHistory
from covey.sim.experiments.fuzz.options import FuzzOptions
from covey.sim.simulator import WireOptions
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S
from covey.sim.simulator.observer import ObservedClient, Observer

TICK = EventType("Tick", {"number": "int64"})
ORDER = EventType("Order", {"number": "int64"})
LEAST = "number >= $least"
SECOND = NS_PER_S


class _Ends(Observer):
    def __init__(self) -> None:
        self.times_ns: list[int] = []

    def expired(self, client: ObservedClient, subscription_id: int) -> None:
        assert isinstance(client, SimulatedClient)
        self.times_ns.append(client.clock.now_ns)


class Row(JudgedOverlay):
    """b1 - b2 - b3, with wires of 10 ms and leases of 2 s, a publisher at b1 and a reader at b3."""

    def __init__(
        self, *, durable: bool = False, routing: str = "parametric", window_bytes: int = 1 << 20
    ) -> None:
        super().__init__(
            ("Order",) if durable else (),
            engine="naive",
            routing=routing,
            link={"window_bytes": window_bytes},
            wire=WireOptions(delay_ns=10 * NS_PER_MS),
            options=EndpointOptions(sessions=SessionLimits(lease_s=2.0)),
        )
        self.ends = _Ends()
        self.simulation.observers.append(self.ends)
        self.build(3)
        self.type = ORDER if durable else TICK
        self.publisher = self.client("p", "b1")
        self.publisher.advertise(self.type)
        self.reader = self.client("r", "b3", durable=durable)
        self.run(5)

    def run(self, seconds: float | None = None) -> None:
        until_ns = self.clock.now_ns + round((seconds or 0) * SECOND)
        super().run(seconds)
        self.clock.now_ns = max(self.clock.now_ns, until_ns)

    def subscribe(self, valid_for_s: float) -> int:
        filter = parse(LEAST, self.type)
        return self.reader.subscribe(filter, {"least": 0}, valid_for_ns=round(valid_for_s * SECOND))

    def publish(self, *numbers: int) -> None:
        publish(self.publisher, self.type, *numbers)

    def interests(self) -> list[int]:
        """The number of subscriptions at each broker."""
        return [len(broker.core.tables.registry) for broker in self.simulation.brokers.values()]


@pytest.mark.parametrize("routing", ["parametric", "static"])
def test_a_subscription_ends_everywhere_with_its_period(routing: str) -> None:
    row = Row(routing=routing)
    begun_ns = row.simulation.clock.now_ns
    row.subscribe(10)
    row.run(9.9)
    row.publish(1)
    row.run(0.05)
    assert row.interests() == [1, 1, 1]
    row.run(0.2)
    assert row.interests() == [0, 0, 0]
    row.publish(2)
    row.run(1)
    assert row.delivered.values() == [1]
    (ended_ns,) = row.ends.times_ns
    assert 10 * SECOND <= ended_ns - begun_ns <= 10 * SECOND + 30 * NS_PER_MS
    assert not row.reader.subscriptions
    assert not row.reader.session.subscriptions
    row.check()


@pytest.mark.parametrize("routing", ["parametric", "static"])
def test_a_renewal_counts_from_its_arrival_and_an_update_changes_no_period(routing: str) -> None:
    row = Row(routing=routing)
    mine = row.subscribe(10)
    row.run(8)
    row.reader.renew(mine, 10 * SECOND)
    row.run(8)
    row.reader.update(mine, {"least": 5})
    row.run(1.9)
    assert row.interests() == [1, 1, 1]
    row.run(0.2)
    assert row.interests() == [0, 0, 0]
    row.check()


def test_a_renewal_may_shorten_a_period_and_give_one() -> None:
    row = Row()
    long, endless = row.subscribe(1_000), row.subscribe(0)
    row.run(1)
    row.reader.renew(long, SECOND)
    row.reader.renew(endless, 2 * SECOND)
    row.run(1.5)
    assert list(row.reader.subscriptions) == [endless]
    row.run(1)
    assert row.interests() == [0, 0, 0]
    row.check()


def test_the_end_comes_behind_the_events_that_wait_for_the_client() -> None:
    row = Row(window_bytes=600)
    row.subscribe(2)
    row.run(0.5)
    row.reader.stop_reading()
    for number in range(40):
        row.publish(number)
        row.run(0.02)
    row.run(3)
    assert row.interests() == [0, 0, 0]
    assert not row.ends.times_ns
    row.reader.resume_reading()
    row.run(3)
    assert row.delivered.values() == [*range(40)]
    assert len(row.ends.times_ns) == 1
    row.check()


def test_a_session_that_was_lost_comes_back_with_the_rest_of_its_periods() -> None:
    row = Row()
    row.subscribe(20)
    over = row.subscribe(6)
    row.run(4)
    row.simulation.crash("broker/b3", 3 * SECOND)
    row.run(8)
    assert over not in row.reader.subscriptions, "ended while its broker was down"
    assert row.interests() == [1, 1, 1]
    row.run(7.8)
    assert row.interests() == [1, 1, 1]
    row.run(0.4)
    assert row.interests() == [0, 0, 0]
    row.check()


# --- durable sessions ---------------------------------------------------------------------------------------


def test_a_durable_subscription_ends_although_its_client_and_its_broker_were_away() -> None:
    row = Row(durable=True)
    row.subscribe(20)
    row.subscribe(10)
    row.subscribe(0)
    row.run(1)
    row.simulation.disconnect("client/r", 30 * SECOND)
    row.simulation.crash("broker/b3", 12 * SECOND)
    row.run(13)
    broker = row.simulation.brokers["broker/b3"]
    peer = broker.core.tables.peers.get("client/r")
    assert list(peer.subscriptions) == [1, 3], "the second has ended at once"
    row.run(7)
    assert list(peer.subscriptions) == [3]
    row.run(20)
    assert list(row.reader.subscriptions) == [3]
    assert [each.subscription_id for each in stored(row)] == [3]
    row.check()


def behind(monkeypatch: pytest.MonkeyPatch, period_s: float, *, away: bool = False) -> Row:
    """A durable session, silent or away, with 100 logged events of an expired subscription. Another
    subscription retains the session."""
    monkeypatch.setattr("covey.overlay.core.endpoint.durability.QUEUED_BYTES", 2_000)
    row = Row(durable=True, window_bytes=600)
    row.subscribe(period_s)
    row.reader.subscribe(parse("number < 0", row.type), {})
    row.run(0.5)
    if away:
        row.simulation.disconnect("client/r", 8 * SECOND)
    else:
        row.reader.stop_reading()
    for number in range(100):
        row.publish(number)
        row.run(0.02)
    row.run(4)
    assert not row.ends.times_ns
    return row


@pytest.mark.parametrize("away", [False, True])
@pytest.mark.parametrize("period_s", [4.0, 0.0])
def test_the_end_comes_behind_the_events_that_are_in_the_log(
    away: bool, period_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = behind(monkeypatch, period_s, away=away)
    broker = row.simulation.brokers["broker/b3"]
    assert len(broker.core.tables.registry) == 1 + (period_s == 0.0)
    row.publish(*range(100, 105))
    row.publish(*range(105, 110))
    row.run(0.1)
    row.reader.resume_reading()
    row.run(10)
    assert row.delivered.values() == [*range(100 if period_s else 110)]
    assert len(row.ends.times_ns) == (period_s > 0.0)
    assert not broker.endpoint.queues["client/r"].ends
    row.check()


def test_a_renewal_that_comes_too_late_brings_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end waits behind stored events at the renewal, and the broker then has to announce it anew."""
    row = behind(monkeypatch, 4.0)
    row.reader.renew(1, 600 * SECOND)
    row.run(1)
    row.simulation.crash("broker/b3", 3 * SECOND)
    row.run(1)
    row.reader.resume_reading()
    row.run(10)
    assert len(row.ends.times_ns) == 1
    assert len(row.simulation.brokers["broker/b3"].core.tables.registry) == 1
    row.check()


def stored(row: Row, broker: str = "broker/b3") -> list[object]:
    storage = row.simulation.brokers[broker].storage
    session = storage.open.sessions().get("client/r")
    return [] if session is None else [*session.subscriptions]


def test_a_renewal_is_stored_before_it_is_acknowledged() -> None:
    row = Row(durable=True)
    mine = row.subscribe(5)
    row.run(4)
    row.reader.renew(mine, 60 * SECOND)
    epoch = row.reader.session.epoch
    while row.reader.session.settled < epoch:
        row.run(0.001)
    row.simulation.crash("broker/b3", 3 * SECOND)
    row.run(20)
    assert list(row.reader.subscriptions) == [mine]
    row.run(60)
    assert row.interests() == [0, 0, 0]
    row.check()


def test_a_durable_session_that_nobody_comes_back_for_ends_with_its_last_subscription() -> None:
    row = Row(durable=True)
    row.subscribe(5)
    row.run(1)
    row.simulation.vanish("client/r")
    row.publish(1, 2, 3)
    row.run(3.5)
    broker = row.simulation.brokers["broker/b3"]
    assert "client/r" in broker.endpoint.queues
    row.run(3)
    assert "client/r" not in broker.endpoint.queues
    assert not stored(row)
    assert len(broker.endpoint.validity) == 0
    row.check()


def test_a_period_moves_with_its_session() -> None:
    row = Row(durable=True)
    row.subscribe(10)
    row.subscribe(0)
    row.run(4)
    row.simulation.move("client/r", "broker/b1")
    row.run(5.5)
    assert [len(broker.endpoint.validity) for broker in row.simulation.brokers.values()] == [1, 0, 0]
    assert len(stored(row, "broker/b1")) == 2
    assert not row.ends.times_ns
    row.run(1)
    assert list(row.reader.subscriptions) == [2]
    assert len(row.ends.times_ns) == 1
    row.run(2)
    row.check()


# --- the oracle ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("factor", "words"), [(0.4, "before its period was over"), (0, "has not ended when all is at rest")]
)
def test_the_fuzzer_finds_periods_that_end_early_or_never(
    monkeypatch: pytest.MonkeyPatch, factor: float, words: str
) -> None:
    whole = Validity.set

    def other(self: Validity, interface: str, subscription_id: int, valid_for_ns: int) -> None:
        if factor:
            whole(self, interface, subscription_id, round(valid_for_ns * factor))

    monkeypatch.setattr(Validity, "set", other)
    outcomes = [FuzzHistory(seed, FuzzOptions(validity=True)).play() for seed in range(8)]
    assert any(words in finding.sentence for outcome in outcomes for finding in outcome.findings)


@pytest.mark.parametrize("changes", [{}, {"durable": True}, {"routing": "static"}], ids=str)
def test_histories_with_periods_are_as_the_checkers_want_them(changes: dict[str, Any]) -> None:
    play_all(range(12), FuzzOptions(validity=True, **changes))
