"""Durable sessions that move between brokers: each event once, in order."""

import sqlite3
from collections.abc import Callable
from typing import Any, Literal

import pytest
from core_endpoints import Noted
from simulated import JudgedOverlay, publish

from covey.matcher import EventType, parse
from covey.overlay.core.access.identity import Ticket, Tickets
from covey.overlay.core.endpoint import interface_queue, session_moves
from covey.overlay.core.endpoint.connections import ConnectionRefusedError, ConnectRequest
from covey.overlay.core.endpoint.quotas import Bounds
from covey.overlay.core.link.link import Hello
from covey.overlay.core.messages import MoveStep, SessionMove
from covey.overlay.core.warnings import WarningKind
from covey.sim.simulator.clock import NS_PER_MS
from covey.sim.simulator.disk import SimulatedCrash
from covey.sim.simulator.wire import Packet, Port, Wire

T = EventType("T", {"x": "int64"})
SECOND = 1_000 * NS_PER_MS


class Row(JudgedOverlay):
    """Brokers b0 to b3 in a row, a publisher at b3, and a reader with a durable session at b0."""

    def __init__(self, sync_ns: int = NS_PER_MS) -> None:
        super().__init__(("T",), sync_ns=sync_ns)
        self.build(4, first=0)
        self.publisher = self.client("p", "b3")
        self.publisher.advertise(T)
        self.reader = self.client("r", "b0", durable=True)
        self.subscription = self.reader.subscribe(parse("x >= $least", T), {"least": 0})
        self.published = 0
        self.run()

    def publish(self, count: int = 1) -> None:
        for _ in range(count):
            publish(self.publisher, T, self.published)
            self.published += 1

    def move(self, broker: str) -> None:
        self.simulation.move("client/r", f"broker/{broker}")

    def away(self, events: int) -> None:
        """Cut the reader off, and publish so many events."""
        self.reader.port.wire.cut()
        self.publish(events)
        self.run(0.3)

    def sessions(self, client: str = "client/r") -> list[str]:
        """The brokers with a session of a client."""
        return [name for name, each in self.simulation.brokers.items() if client in each.endpoint.queues]

    def check(self) -> None:
        self.run()
        super().check()
        assert self.delivered.values() == [*range(self.published)]


def watch(monkeypatch: pytest.MonkeyPatch, see: Callable[[SessionMove, Port], None]) -> None:
    """Call `see` with every message of a move that has left a port."""
    transmit = Wire.transmit

    def transmitted(self: Wire, port: Port, packet: Packet) -> None:
        transmit(self, port, packet)
        for message in getattr(packet, "messages", ()):
            if isinstance(message, SessionMove):
                see(message, port)

    monkeypatch.setattr(Wire, "transmit", transmitted)


def test_a_session_moves_on_and_back_while_events_flow() -> None:
    row = Row()
    row.simulation.clients["client/r"].stop_reading()
    row.publish(3)
    row.run()
    row.simulation.clients["client/r"].resume_reading()
    for broker in ("b1", "b3", "b0", "b2", "b0"):
        row.publish(7)
        row.move(broker)
        row.publish(7)
        row.run(0.02)
    row.check()
    assert row.sessions() == ["broker/b0"]
    assert row.reader.endpoint.ticket


@pytest.mark.parametrize(("down_s", "dead"), [(3, True), (40, True), (20, False)])
def test_while_the_old_broker_is_dead_or_out_of_reach_events_wait_for_it(down_s: int, dead: bool) -> None:
    row = Row()
    row.publish(5)
    row.run(0.045)
    if dead:
        row.simulation.crash("broker/b0", down_s * SECOND)
    else:
        row.simulation.partition("broker/b0", "broker/b1", down_s * SECOND)
    row.publish(5)
    row.move("b2")
    row.run(down_s - 1)
    assert row.delivered.values() == [*range(len(row.delivered.rows))]
    assert not row.reader.port.open
    row.check()
    assert row.sessions() == ["broker/b2"]


@pytest.mark.parametrize("power", [False, True], ids=["killed", "without power"])
@pytest.mark.parametrize("sync_ms", [1, 50])
def test_values_that_were_acknowledged_move_although_the_old_broker_is_killed(
    power: bool, sync_ms: int
) -> None:
    """The client continues elsewhere before the broker is back, and events match the new values."""
    row = Row(sync_ms * NS_PER_MS)
    row.reader.update(row.subscription, {"least": 1_000})
    row.run()
    row.reader.update(row.subscription, {"least": 0})
    while row.reader.session.settled < row.reader.session.epoch:
        row.run(0.001)
    row.simulation.crash("broker/b0", 3 * SECOND, power=power)
    row.move("b2")
    row.publish(5)
    row.check()
    assert row.sessions() == ["broker/b2"]


def test_a_client_that_comes_back_to_the_old_broker_has_its_session() -> None:
    row = Row()
    row.simulation.partition("broker/b0", "broker/b1", 20 * SECOND)
    row.move("b3")
    row.run(1)
    row.move("b0")
    row.publish(3)
    row.check()
    assert row.sessions() == ["broker/b0"]


def test_a_client_that_left_before_the_answer_has_one_session_alone() -> None:
    row = Row()
    early = row.simulation.join("client/q", "broker/b3", durable=True)
    row.run(0.015)  # its hello is there, the answer is not
    row.simulation.move("client/q", "broker/b2")
    row.run(1)
    early.subscribe(parse("x >= 0", T))
    row.run(1)
    row.simulation.move("client/q", "broker/b3")
    row.run(5)
    assert row.sessions("client/q") == ["broker/b3"]


def test_a_broker_that_nobody_asks_any_more_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row()
    clock = row.simulation.clock
    asked_ns: list[int] = []
    warned: list[tuple[str, WarningKind]] = []
    endpoint = row.simulation.brokers["broker/b3"].endpoint
    monkeypatch.setattr(endpoint, "warn", lambda interface, kind, _: warned.append((interface, kind)))
    watch(monkeypatch, lambda _, port: asked_ns.append(clock.now_ns))
    row.simulation.crash("broker/b0", 0)
    row.move("b3")
    row.run(1)
    row.simulation.vanish("client/r")
    vanished_ns = clock.now_ns
    row.run(20)
    assert warned == [("client/r", WarningKind.SESSION_NOT_MOVED)]
    assert vanished_ns < max(asked_ns) < vanished_ns + 11 * SECOND


@pytest.mark.parametrize("step", [step for step in MoveStep if step is not MoveStep.REFUSED])
@pytest.mark.parametrize("victim", ["origin", "destination", "between"])
@pytest.mark.parametrize("arrived", [False, True], ids=["sent", "arrived"])
def test_a_crash_at_each_step_loses_and_repeats_nothing(
    step: MoveStep, victim: str, arrived: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash when a message of the step is on its way to the broker between, or has arrived there."""
    row = Row(sync_ns=20 * NS_PER_MS)
    clock, crashed = row.simulation.clock, []

    def crash(message: SessionMove, port: Port) -> None:
        name = {"origin": "broker/b0", "destination": "broker/b2", "between": "broker/b1"}[victim]
        if message.step is step and not crashed:
            crashed.append(name)
            at_ns = port.last_arrival_ns + 1 if arrived else clock.now_ns
            clock.at(at_ns, row.simulation.crash, name, SECOND)

    watch(monkeypatch, crash)
    row.away(5)
    row.move("b2")
    row.publish(5)
    row.run(0.3)
    row.publish(5)
    row.check()
    assert crashed
    assert row.sessions() == ["broker/b2"]


def test_what_a_session_has_brought_outlives_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The destination crashes when it has the session and its client has got nothing yet."""
    row = Row()

    def crash() -> None:
        assert row.sessions() == ["broker/b2"]
        assert not row.delivered.rows
        row.simulation.crash("broker/b2", SECOND)

    def see(message: SessionMove, port: Port) -> None:
        if message.step is MoveStep.COMMITTED and port.interface == "broker/b2":
            row.simulation.clock.at(port.last_arrival_ns + 1, crash)

    watch(monkeypatch, see)
    row.away(20)
    row.move("b2")
    row.check()
    assert row.simulation.brokers["broker/b2"].incarnation == 2
    assert row.sessions() == ["broker/b2"]


def test_a_session_whose_end_is_known_nowhere_begins_anew() -> None:
    row = Row()
    row.reader.unsubscribe(row.subscription)
    row.run()
    row.away(0)
    row.run(60)
    assert row.sessions() == []
    row.move("b1")
    row.run()
    assert row.reader.port.open
    assert row.sessions() == ["broker/b1"]


def test_a_session_of_many_subscriptions_moves_in_messages_that_fit_into_frames(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One frame with all of them would exceed neighbours' limit, and be repeated for ever."""
    monkeypatch.setattr(session_moves, "READ_BYTES", 1_000)
    row = Row()
    for least in range(1, 50):
        row.reader.subscribe(parse("x >= $least", T), {"least": least})
    row.run()
    sent: list[int] = []

    def count(message: SessionMove, port: Port) -> None:
        if port.owner is row.simulation.brokers["broker/b0"]:
            sent.append(len(message.subscriptions))

    watch(monkeypatch, count)
    row.move("b2")
    row.publish(3)
    row.run()
    assert row.sessions() == ["broker/b2"]
    assert len(row.simulation.brokers["broker/b2"].endpoint.core.tables.peers["client/r"].subscriptions) == 50
    assert sum(sent) == 50
    assert max(sent) <= 10


def test_a_flush_follows_the_subscriptions_that_have_taken_effect(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row()
    steps: list[MoveStep] = []
    watch(monkeypatch, lambda message, _: steps.append(message.step))
    row.simulation.partition("broker/b2", "broker/b3", 6 * SECOND)
    row.reader.subscribe(parse("x >= $least", T), {"least": -5})
    row.run(1)
    row.move("b2")
    row.run(4)
    assert MoveStep.STATE in steps
    assert MoveStep.FLUSH not in steps
    row.run()
    assert MoveStep.FLUSH in steps
    assert row.sessions() == ["broker/b2"]


class Database(sqlite3.Connection):
    """The state of a broker that crashes after so many transactions."""

    transactions = 0
    crash_after = 0

    def __exit__(self, *raised: Any) -> Literal[False]:
        super().__exit__(*raised)
        self.transactions += 1
        if self.transactions == self.crash_after:
            raise SimulatedCrash
        return False


def watched_databases(monkeypatch: pytest.MonkeyPatch) -> list[Database]:
    """The databases of the brokers made from now on, in order."""
    databases: list[Database] = []
    connect = sqlite3.connect

    def connected(*arguments: Any, **named: Any) -> Database:
        databases.append(connect(*arguments, **named, factory=Database))
        return databases[-1]

    monkeypatch.setattr(sqlite3, "connect", connected)
    return databases


def test_what_a_subscription_costs_on_disk_does_not_grow_with_their_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    databases = watched_databases(monkeypatch)
    row = Row()
    for least in range(100):
        subscription = row.reader.subscribe(parse("x >= $least", T), {"least": least})
        row.run()
        row.reader.update(subscription, {"least": -1})
        row.run(2)
    assert 200 < sum(each.total_changes for each in databases) < 400
    row.reader.unsubscribe(row.subscription)
    row.simulation.crash("broker/b0", SECOND)
    row.run()
    peer = row.simulation.brokers["broker/b0"].endpoint.core.tables.peers["client/r"]
    assert [each.values["least"] for each in peer.subscriptions.values()] == [-1] * 100


@pytest.mark.parametrize("at", [0, 2], ids=["origin", "destination"])
def test_a_crash_between_transactions_loses_and_repeats_nothing(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stored one after the other, session and events would give the session to two brokers."""

    databases = watched_databases(monkeypatch)

    def moved(crash_after: int) -> int:
        """The number of transactions of a move, with a crash after so many."""
        databases.clear()
        row = Row()
        simulation, stopped = row.simulation, []

        def restart(broker: str, error: BaseException | None) -> None:
            stopped.append(broker)
            simulation.clock.after(SECOND, simulation.restart, broker)

        simulation.on_stop = restart
        row.away(5)
        before = databases[at].transactions
        databases[at].crash_after = before + crash_after
        row.move("b2")
        row.check()
        assert row.sessions() == ["broker/b2"]
        assert stopped == [f"broker/b{at}"] * (crash_after > 0)
        return databases[at].transactions - before

    count = moved(0)
    assert count > 1
    for number in range(1, count + 1):
        moved(number)


def test_a_session_comes_to_where_another_client_has_held_its_name() -> None:
    """The ticket's client got a new session instead of its own, whose events were lost."""
    row = Row()
    endpoint = row.simulation.brokers["broker/b2"].endpoint
    endpoint.accept(ConnectRequest("client/r", Hello(99)), Noted(), row.simulation.clock.now_ns)
    row.away(5)
    row.move("b2")
    row.publish(5)
    row.check()
    assert row.sessions() == ["broker/b2"]


def test_a_session_that_ends_while_another_broker_asks_for_it_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next session of its name could be handed over instead."""
    row = Row()
    answers: list[MoveStep] = []
    b1 = row.simulation.brokers["broker/b1"]

    def see(message: SessionMove, port: Port) -> None:
        if port.owner is row.simulation.brokers["broker/b0"]:
            answers.append(message.step)

    def send(step: MoveStep) -> None:
        b1.endpoint.queues["broker/b0"].send(SessionMove("b2", "b0", "client/r", 1, step, identity=identity))
        b1.ports["broker/b0"].pump()
        row.run(0.1)

    watch(monkeypatch, see)
    identity = row.simulation.brokers["broker/b0"].endpoint.queues["client/r"].identity
    row.reader.unsubscribe(row.subscription)
    row.run()
    row.away(0)
    send(MoveStep.ASK)
    row.run(60)
    assert row.sessions() == []
    row.simulation.redial("client/r")
    row.run(1)
    row.reader.subscribe(parse("x >= 0", T))
    row.run(1)
    row.away(0)
    assert row.sessions() == ["broker/b0"]
    send(MoveStep.FLUSH)
    assert answers == [MoveStep.STATE, MoveStep.REFUSED]


def test_sessions_on_their_way_count_as_their_clients() -> None:
    """Brokers search the whole overlay for each, twice a second."""
    row = Row()
    endpoint, now_ns = row.simulation.brokers["broker/b2"].endpoint, row.simulation.clock.now_ns
    endpoint.quotas.bounds = Bounds(client_sessions=1)
    ticket = Tickets("").issue("client/x", Ticket("b9", "b9/1"))

    def refusal(name: str, principal: str, after_ns: int = 0) -> str:
        peer = ConnectRequest(name, Hello(5, ticket=ticket), durable=True, principal=principal)
        with pytest.raises(ConnectionRefusedError) as refused:
            endpoint.accept(peer, Noted(), now_ns + after_ns)
        return refused.value.status

    assert [refusal("client/x", "one"), refusal("client/x", "one")] == ["UNAVAILABLE"] * 2
    assert refusal("client/y", "one") == "RESOURCE_EXHAUSTED"
    assert refusal("client/z", "other") == "UNAVAILABLE"
    endpoint.handle_timer(now_ns + 30 * SECOND)
    assert refusal("client/y", "one", 30 * SECOND) == "UNAVAILABLE"


@pytest.mark.parametrize("ends", [False, True])
def test_what_a_session_has_brought_leaves_nothing_behind(ends: bool) -> None:
    """The read positions of its copies stayed in memory for every session that had ever moved."""
    row = Row()
    row.away(20)
    row.move("b2")
    storage = row.simulation.brokers["broker/b2"].endpoint.durability.storage
    while (session := storage.sessions().get("client/r")) is None or session.arrival is None:
        row.run(0.001)
    receiver = session.arrival.receiver
    while not storage.cursor(receiver, "T"):
        row.run(0.001)
    if ends:
        storage.forget_sessions(["client/r"])
    else:
        row.check()
    assert storage.cursor(receiver, "T") == 0


def test_a_durable_session_of_many_subscriptions_outlives_what_ends_while_its_client_learns_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker's own messages were counted as unread by the client."""
    monkeypatch.setattr(interface_queue, "MAX_SESSION_CONTROL", 20)
    row = Row()
    for least in range(30):
        row.reader.subscribe(parse("x >= $least", T), {"least": least})
    row.run()
    endpoint, now_ns = row.simulation.brokers["broker/b0"].endpoint, row.simulation.clock.now_ns
    endpoint.validity.set("client/r", row.subscription, SECOND)
    row.simulation.vanish("client/r")
    ticket = row.reader.endpoint.ticket
    peer = ConnectRequest("client/r", Hello(99, ticket=ticket), durable=True)
    endpoint.lost("client/r", endpoint.queues["client/r"].connection, now_ns)
    endpoint.accept(peer, Noted(), now_ns)
    endpoint.handle_timer(now_ns + 2 * SECOND)
    assert "client/r" in endpoint.queues
    assert len(endpoint.core.tables.peers["client/r"].subscriptions) == 30
