"""Durable types in virtual time, step by step: absent publishers, and restarted brokers."""

import pytest
from simulated import JudgedOverlay, publish

from covey.matcher import EventType, parse
from covey.overlay.core.endpoint.limits import SessionLimits
from covey.overlay.core.endpoint.state import EndpointOptions
from covey.sim.simulator import WireOptions
from covey.sim.simulator.client import SimulatedClient
from covey.sim.simulator.clock import NS_PER_MS, NS_PER_S
from covey.sim.simulator.wire import Wire

ORDER = EventType("Order", {"number": "int64"})


class Overlay(JudgedOverlay):
    """b1 - b2 - ... in a row, with wires of 50 ms and leases of 2 s."""

    def __init__(self, brokers: int, sync_ns: int = NS_PER_MS) -> None:
        super().__init__(
            ("Order",),
            engine="naive",
            wire=WireOptions(delay_ns=50 * NS_PER_MS),
            options=EndpointOptions(sessions=SessionLimits(lease_s=2.0)),
            sync_ns=sync_ns,
        )
        self.build(brokers, 50.0)


def test_a_broker_that_starts_for_the_first_time_takes_no_events_before_it_is_linked() -> None:
    overlay = Overlay(2)
    overlay.simulation.partition("broker/b1", "broker/b2", 20 * NS_PER_S)
    publisher = overlay.client("publisher", "b1")
    publisher.advertise(ORDER)
    reader = overlay.client("reader", "b2", durable=True)
    reader.subscribe(parse("number >= 0", ORDER))
    overlay.run(1)
    publish(publisher, ORDER, 1, 2, 3)
    overlay.run(15)
    assert overlay.simulation.brokers["broker/b1"].endpoint.recovering
    assert overlay.simulation.brokers["broker/b1"].endpoint.drops.by_reason == {}
    overlay.run(30)
    assert not overlay.simulation.brokers["broker/b1"].endpoint.recovering
    overlay.check()


def test_a_publisher_that_was_away_for_longer_than_its_lease_loses_nothing() -> None:
    """Its events follow its advertisement at once, and interest outlives an advertisement."""
    overlay = Overlay(3)
    publisher = overlay.client("publisher", "b1")
    publisher.advertise(ORDER)
    reader = overlay.client("reader", "b3", durable=True)
    reader.subscribe(parse("number >= 0", ORDER))
    overlay.run(1.0)
    overlay.simulation.disconnect("client/publisher", 3 * NS_PER_S)
    publish(publisher, ORDER, 1, 2)
    overlay.run(2.5)
    assert "client/publisher" not in overlay.simulation.brokers["broker/b1"].endpoint.queues
    publish(publisher, ORDER, 3)
    overlay.run(2.0)
    assert overlay.judge.expected_events == overlay.judge.fulfilled_events == 3
    overlay.check()


def test_events_may_be_published_before_their_advertisement_has_spread() -> None:
    overlay = Overlay(3)
    reader = overlay.client("reader", "b3", durable=True)
    reader.subscribe(parse("number >= 0", ORDER))
    overlay.run(1.0)
    publisher = overlay.client("publisher", "b1")
    publisher.advertise(ORDER)
    publish(publisher, ORDER, 1)
    overlay.run(1.0)
    assert overlay.judge.expected_events == overlay.judge.fulfilled_events == 1
    overlay.check()


# --- how long a restarted broker waits ----------------------------------------------------------------------


def late(overlay: Overlay, seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Delay clients' messages where they dial from now on."""
    dial, clock = Wire.dial, overlay.simulation.clock

    def dial_late(self: Wire) -> None:
        if isinstance(self.dialer.owner, SimulatedClient):
            self.clogged_until_ns = clock.now_ns + round(seconds * NS_PER_S)
        dial(self)

    monkeypatch.setattr(Wire, "dial", dial_late)


def reading(overlay: Overlay, least: int) -> tuple[SimulatedClient, SimulatedClient, int]:
    """A publisher at b1, a durable session at b2, and its subscription, whose values are stored."""
    publisher = overlay.client("publisher", "b1")
    publisher.advertise(ORDER)
    reader = overlay.client("reader", "b2", durable=True)
    subscription = reader.subscribe(parse("number >= $least", ORDER), {"least": least})
    overlay.run(3.0)
    return publisher, reader, subscription


def test_a_restarted_broker_waits_for_no_client_whose_wishes_are_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overlay = Overlay(3)
    publisher, _, _ = reading(overlay, 0)
    third = overlay.client("third", "b3", durable=True)
    third.subscribe(parse("number >= 0", ORDER))
    overlay.run(2.0)
    late(overlay, 2.0, monkeypatch)
    overlay.simulation.crash("broker/b2", NS_PER_S)
    publish(publisher, ORDER, 1)
    overlay.run(1.0)
    assert overlay.simulation.brokers["broker/b2"].endpoint.recovering
    overlay.run(0.6)
    assert not overlay.simulation.brokers["broker/b2"].endpoint.recovering
    assert overlay.judge.fulfilled_events == 1  # at the third client
    overlay.run(3.0)
    assert overlay.judge.fulfilled_events == 2
    overlay.check()


@pytest.mark.parametrize("power", [False, True], ids=["killed", "without power"])
def test_a_restarted_broker_has_the_values_of_acknowledged_updates(
    power: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it loses power at the acknowledgement, and its client is not back."""
    overlay = Overlay(2)
    publisher, reader, subscription = reading(overlay, 10)
    late(overlay, 4.0, monkeypatch)
    reader.update(subscription, {"least": 0})
    while reader.session.settled < reader.session.epoch:
        overlay.run(0.001)
    overlay.simulation.crash("broker/b2", NS_PER_S // 10, power=power)
    publish(publisher, ORDER, 5)
    overlay.run(2.0)
    assert not overlay.simulation.brokers["broker/b2"].endpoint.recovering
    overlay.run(5.0)
    assert overlay.judge.fulfilled_events == overlay.judge.expected_events == 1
    overlay.check()


def test_an_update_in_a_durable_session_is_acknowledged_once_its_values_are_on_disk() -> None:
    overlay = Overlay(2, sync_ns=300 * NS_PER_MS)
    _, reader, subscription = reading(overlay, 10)
    passing = overlay.client("passing", "b2")
    other = passing.subscribe(parse("number >= $least", ORDER), {"least": 0})
    overlay.run(2.0)
    passing.update(other, {"least": 5})
    reader.update(subscription, {"least": 8})
    overlay.run(0.2)
    reader.update(subscription, {"least": 6})
    overlay.run(0.15)
    assert passing.session.settled == passing.session.epoch
    assert reader.session.settled == reader.session.epoch - 2
    overlay.run(0.2)
    assert reader.session.settled == reader.session.epoch - 1  # the other has waited for the next sync
    overlay.run(0.3)
    assert reader.session.settled == reader.session.epoch
    overlay.check()


def test_those_a_restarted_broker_waits_for_are_awaited_still_if_it_is_killed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overlay = Overlay(2)
    reading(overlay, 10)
    passing = overlay.client("passing", "b2")
    passing.subscribe(parse("number >= 0", ORDER))
    overlay.run(2.0)
    late(overlay, 5.0, monkeypatch)
    broker = overlay.simulation.brokers["broker/b2"]
    for _ in range(2):
        overlay.simulation.crash("broker/b2", NS_PER_S // 10)
        overlay.run(2.0)
        assert broker.endpoint.recovering
    overlay.run(4.0)
    assert not broker.endpoint.recovering
    overlay.run(5.0)
    overlay.check()


def test_a_restarted_broker_waits_for_clients_that_are_not_durable_until_they_are_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    overlay = Overlay(2)
    reading(overlay, 10)
    passing = overlay.client("passing", "b2")
    passing.subscribe(parse("number >= 0", ORDER))
    overlay.run(2.0)
    late(overlay, 1.5, monkeypatch)
    overlay.simulation.crash("broker/b2", NS_PER_S // 10)
    overlay.run(1.4)
    assert overlay.simulation.brokers["broker/b2"].endpoint.recovering
    overlay.run(0.7)
    assert not overlay.simulation.brokers["broker/b2"].endpoint.recovering
    overlay.run(3.0)
    overlay.check()
