"""Views over whole overlays, under random schedules, against the newest event of each key."""

import random
from typing import Any

import numpy as np
import pytest
from core_driven import Driven, sent
from core_network import Client, Network
from draws import ALL

from covey.matcher import EventBatch, EventType, Filter, parse
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.client.view_reader import KINDS, Changes, ViewState
from covey.overlay.core.messages import Advertise, Connect, Deliver, Message, Publish, Subscribe, Update
from covey.overlay.core.moving.motion import Motion
from covey.overlay.core.routing import advertisements, connecting, event_routing, keyed
from covey.overlay.core.routing.broker import Broker
from covey.overlay.core.routing.key_table import KeyTable
from covey.sim.invariants import check

VEHICLE = EventType("Vehicle", {"id": "string", "x": "int64", "n": "int64"}, key="id")
BOX = parse("x between $low and $high", VEHICLE)
WIDER = parse("x between $low - 2 and $high + 2", VEHICLE)
KEYS = [f"v{i}" for i in range(8)]


class Reader:
    """A view and its reader's state, after every change or after several together."""

    def __init__(
        self, session: ClientSession, subscription_id: int, filter: Filter, together: int = 0
    ) -> None:
        self.together = together
        self.waiting: list[Changes] = []
        self.session, self.id = session, subscription_id
        self.leave = filter is WIDER
        enters = self._enters if self.leave else None
        self.state = ViewState(filter.event_type, self._inside, enters=enters)
        self.shown: dict[str, int] = {}
        self.newest: dict[str, int] = {}

    def _inside(self, batch: EventBatch) -> Any:
        inside = np.ones(len(batch), np.bool_)
        rows = self.session.strict_reader(self.id)(batch, -1)
        if rows is not None:
            inside[:] = False
            inside[rows] = True
        return inside

    def _enters(self, batch: EventBatch) -> Any:
        values = self.session.values(self.id)
        return np.array([values["low"] <= row["x"] <= values["high"] for row in batch.to_pylist()])

    def take(self, all_changes: list[Changes]) -> None:
        self.waiting += all_changes
        if self.together:
            self.waiting = self.state.net(self.waiting)
            assert sum(len(changes.batch) for changes in self.waiting) <= 2 * len(KEYS)
        if len(self.waiting) > self.together:
            self.tell()

    def tell(self) -> None:
        all_changes, self.waiting = self.waiting, []
        self._told(all_changes)

    def _told(self, all_changes: list[Changes]) -> None:
        """Each change follows from those before: nothing twice, and no departure of a key outside."""
        for changes in all_changes:
            for row, code in zip(changes.batch.to_pylist(), changes.codes.tolist(), strict=True):
                key, number, kind = str(row["id"]), int(row["n"]), KINDS[code]
                assert (key in self.shown) == (kind != "enter"), (kind, row, self.shown)
                if kind == "leave":
                    del self.shown[key]
                else:
                    assert number > self.newest.get(key, -1) or kind == "enter", (kind, row)
                    self.shown[key] = number
                assert number >= self.newest.get(key, -1), (kind, row, "older than what was told before")
                self.newest[key] = number


class World:
    """Brokers in a chain or a star; publishers, views and plain subscribers at random ones of them."""

    def __init__(self, seed: int) -> None:
        self.crashes = seed % 2 == 1
        self.random = random.Random(seed)
        choose = self.random
        merging = choose.choice(["off", "perfect", "budget"])
        self.network = Network(on_deliver=self._delivered, merging=merging)
        self.brokers = [f"broker/b{i}" for i in range(choose.randint(1, 4))]
        for i, name in enumerate(self.brokers[1:], 1):
            parent = choose.randrange(i)
            self.network.links.append((name, self.brokers[parent]))
        for name in self.brokers:
            self.network.broker(name, [VEHICLE] if choose.random() < 0.5 else [])
        links, self.network.links = self.network.links, []
        for a, b in links:
            self.network.link(a, b)
        self.network.run()
        self.owner = {key: f"client/p{i % 2}" for i, key in enumerate(KEYS)}
        for i in range(2):
            name = f"client/p{i}"
            self.network.client(name, choose.choice(self.brokers), ClientSession(name))
            self.network.advertise(name, VEHICLE)
        self.readers: dict[tuple[str, int], Reader] = {}
        self.truth: dict[str, tuple[int, int]] = {}
        self.number = 0
        for i in range(3):
            name = f"client/s{i}"
            self.network.client(name, choose.choice(self.brokers), ClientSession(name))
        self.network.run()
        self.network.subscribe("client/s2", BOX, self._bounds())

    def _bounds(self) -> dict[str, object]:
        low = self.random.randrange(20)
        return {"low": low, "high": low + self.random.randrange(8)}

    def _delivered(self, client: Client, action: DeliverTo) -> None:
        reader = self.readers.get((client.name, action.subscription_id))
        if reader is None:
            assert not action.for_views
            return
        departed = action.for_views and not action.replayed
        reader.take(reader.state.arrived(action.batch, replayed=action.replayed, departed=departed))

    def step(self) -> None:
        """One action of a user, and a few messages."""
        kind = self.random.random()
        if self.crashes and kind < 0.04:
            self._crash()
        elif kind < 0.6:
            self._publish()
        elif kind < 0.8 and self.readers:
            self._move(self.random.choice(list(self.readers.values())))
        elif len(self.readers) < 4:
            self._view(f"client/s{self.random.randrange(2)}")
        else:
            self._plain()
        self.network.run(self.random, self.random.choice([0, 0, 1, 3, 10, 30]))

    def _publish(self) -> None:
        publisher = f"client/p{self.random.randrange(2)}"
        keys = [key for key in KEYS if self.owner[key] == publisher]
        rows: list[dict[str, object]] = []
        for _ in range(self.random.choice([1, 1, 2, 5, 20])):
            key, x, self.number = self.random.choice(keys), self.random.randrange(28), self.number + 1
            self.truth[key] = x, self.number
            rows.append({"id": key, "x": x, "n": self.number})
        self.network.publish(publisher, VEHICLE, rows)

    def _view(self, name: str) -> None:
        client = self.network.clients[name]
        filter, enters = self.random.choice([(BOX, None), (WIDER, BOX)])
        uid, messages = client.session.view(filter, self._bounds(), enters=enters)
        self.readers[name, uid] = Reader(client.session, uid, filter, len(self.readers) % 3 * 3)
        self.network.send(name, client.broker, messages)

    def _move(self, reader: Reader) -> None:
        name = next(name for (name, uid), each in self.readers.items() if each is reader)
        client = self.network.clients[name]
        self.network.send(name, client.broker, client.session.update(reader.id, self._bounds()))
        reader.take(reader.state.moved())

    def _crash(self) -> None:
        """A broker loses its state, and with it the keys that are published there."""
        self.judge()
        name = self.random.choice(self.brokers)
        self.network.crash(name)
        for client in self.network.clients.values():
            lost = [k for k, owner in self.owner.items() if owner == client.name and client.broker == name]
            for key in lost:
                self.truth.pop(key, None)
        behind = [r for (c, _), r in self.readers.items() if self.network.clients[c].broker == name]
        for reader in behind:
            reader.state.unconfirm()
        self.network.run(self.random)
        for reader in behind:
            reader.take(reader.state.confirmed())
        self.judge()

    def _plain(self) -> None:
        client = self.network.clients["client/s2"]
        for uid in list(client.session.subscriptions)[:1]:
            self.network.update("client/s2", uid, self._bounds())

    def judge(self) -> None:
        """At rest each view has the newest event of each matching key, and nothing else."""
        self.network.run(self.random)
        for broker in self.network.brokers.values():
            check(broker)
        for reader in self.readers.values():
            values = reader.session.values(reader.id)
            inside = {
                key: number for key, (x, number) in self.truth.items() if values["low"] <= x <= values["high"]
            }
            reader.tell()
            if reader.leave:
                low, high = values["low"] - 2, values["high"] + 2
                between = {key: number for key, (x, number) in self.truth.items() if low <= x <= high}
                assert inside.items() <= reader.shown.items() <= between.items()
                inside = reader.shown
            assert reader.shown == inside
            held = {str(row["id"]): row["n"] for row in reader.state.batch().to_pylist()}
            assert held == inside

    def run(self, steps: int) -> None:
        for i in range(steps):
            self.step()
            if i % 15 == 14:
                self.judge()
        self.judge()


@pytest.mark.random
@pytest.mark.parametrize("seed", range(400 if ALL else 16))
def test_a_view_has_the_newest_event_of_each_key_that_matches(seed: int) -> None:
    World(seed).run(60)


@pytest.mark.parametrize(
    "mechanism",
    ["_depart_links", "_depart_views", "on_departures", "retire_source", "everything", "not_at"],
)
def test_it_fails_without_each_of_its_mechanisms(mechanism: str, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = np.zeros(0, np.int64) if hasattr(KeyTable, mechanism) else None
    places = (keyed, event_routing, advertisements, connecting, KeyTable)
    for place in [each for each in places if hasattr(each, mechanism)]:
        monkeypatch.setattr(place, mechanism, lambda *_, **__: nothing)
    with pytest.raises(AssertionError):
        [World(seed).run(60) for seed in range(40)]


def test_a_subscription_with_the_number_of_a_view_is_none() -> None:
    """A client's process was restarted under the same name."""
    ship = EventType("Ship", {"id": "string", "x": "int64"}, key="id")
    filter = parse("x between $low and $high", ship)
    broker = Broker("b")

    def handle(message: Message, source: str = "client/c") -> list[Message]:
        actions = broker.handle(message, source, 1)
        return [each.message for each in actions if getattr(each, "interface", None) == "client/c"]

    def connect(session: ClientSession) -> None:
        handle(Connect())
        for message in session.sync():
            for reply in handle(message):
                session.receive(reply)

    handle(Connect(), "client/p")
    handle(Advertise(1, ship), "client/p")
    before, after = ClientSession("c"), ClientSession("c")
    before.view(filter, {"low": 0, "high": 5})
    connect(before)
    after.subscribe(filter, {"low": 0, "high": 5})
    connect(after)
    got = []
    for sequence, x in enumerate((1, 99, 2), 1):
        batch = EventBatch.from_pylist(ship, [{"id": "a", "x": x}], publisher="p", first_sequence=sequence)
        for message in handle(Publish(batch), "client/p"):
            for delivery in after.receive(message):
                got += [event["x"] for event in delivery.batch.to_pylist()]
    assert got == [1, 2]


def test_an_older_event_that_an_update_without_gaps_has_asked_for_moves_no_view() -> None:
    ship = EventType("Ship", {"id": "string", "x": "int64"}, key="id")
    filter = parse("x between $low and $high", ship)
    x = Driven("broker/n", "client/v")
    x("broker/n", Advertise(1, ship))
    viewer = ClientSession("v")
    viewer.view(filter, {"low": 0, "high": 5})
    x("client/v", *viewer.sync())

    def publish(sequence: int, at: int, *, replayed: bool) -> list[tuple[str, Message]]:
        batch = EventBatch.from_pylist(ship, [{"id": "a", "x": at}], publisher="p", first_sequence=sequence)
        return sent(x("broker/n", Publish(batch, replayed=replayed)), Deliver)

    assert [name for name, _ in publish(2, 3, replayed=False)] == ["client/v"]
    assert publish(1, 99, replayed=True) == []


def test_a_view_that_has_moved_by_itself_gets_all_that_is_inside_at_its_next_update() -> None:
    """The client library has no such view."""
    x = Driven("client/p", "client/s")
    x("client/p", Advertise(1, VEHICLE))
    x("client/p", Publish(EventBatch.from_pylist(VEHICLE, [{"id": "v", "x": 4}], publisher="p")))
    values = {"low": Motion(0.0, 1.0, 0), "high": 9}
    assert len(sent(x("client/s", Subscribe(1, 1, BOX, values, for_views=True)), Deliver)) == 1
    done = x("client/s", Update(2, 1, {"low": 1}, for_views=2, after_epoch=1))
    assert [each.batch.to_pylist()[0]["id"] for _, each in sent(done, Deliver)] == ["v"]
