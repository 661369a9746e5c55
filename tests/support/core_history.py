"""Random histories of a whole overlay, and the checkers that judge them.

A history is drawn from one seed: brokers in a random tree, clients that come, go, advertise, publish,
subscribe, update and cancel, brokers that crash; in between messages arrive in an order that reliable links
allow. The judges know every event and every change and nothing of routing:

- STRICTNESS: what a client delivers matches the values that are newest at that moment.
- COVERAGE: an event that matches every version of a subscription from the last one settled before it was
  published on is delivered to it: values that settled are in force, and a change loses nothing that is asked
  for before and after (make before break).
- No event twice for one subscription.
- When all is quiet: every epoch has settled, the brokers' invariants hold, and the links carry what
  `core_implied` computes.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from core_implied import check_links
from core_network import Client, Network

from covey.matcher.events.batch import EventBatch
from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import Filter, parse
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.introspection.invariants import check

TYPES = (
    EventType("T", {"x": "int64", "y": "float64", "s": "string"}),
    EventType("U", {"x": "int64", "flag": "bool"}),
)
CONJUNCTIONS = {
    "T": (
        "x < $a",
        "x >= $a",
        "x == $a",
        "x between $a and $b",
        "x < $a and y > $b",
        "x < $a + 1 and y > $b and y <= 8",
        's == "p" and x < $a',
        "s == $n and x > $a",
        "x > 2 and x < 5",
        "",
    ),
    "U": ("x < $a", "x > $a and flag == true", "flag == false", "x == 3"),
}
OTHERS = {
    "T": (
        "x < $a or x > $b",
        "s prefix $n or x == $a",
        's contains "p" and x < $a',
        "x != $a",
        "x in (1, $a, 5)",
    ),
    "U": ("x < $a or flag == true", "not (x == $a)"),
}
DENSE = ("x < $a", "x < $a", "x >= $a", "x between $a and $b", "x >= $a and x < $b")


@dataclass
class Version:
    """A subscription's values, the epoch that carried them, and when they were set."""

    values: dict[str, object]
    epoch: int
    time: int


@dataclass
class Wanted:
    """A subscription as the judge knows it."""

    client: str
    filter: Filter
    versions: list[Version]
    settled: int = -1
    """The version that has settled last."""


@dataclass
class Published:
    batch: EventBatch
    rows: list[dict[str, object]]
    time: int
    due: list[tuple[tuple[str, int], int, int]] = field(default_factory=list)
    """(subscription, row, version that had settled) for each delivery that may be owed."""


class History:
    """One history; `run` plays it and raises `AssertionError` when a judge objects."""

    def __init__(
        self,
        seed: int,
        *,
        routing: str = "parametric",
        resubscribe: str = "subscribe-first",
        poset: str = "forest",
        engine: str = "naive",
        steps: int = 60,
        crashes: bool = True,
        conjunctions_only: bool = True,
        dense: bool = False,
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.steps, self.crashes = steps, crashes
        self.resubscribe = resubscribe
        self.filters = {
            name: texts if conjunctions_only else texts + OTHERS[name] for name, texts in CONJUNCTIONS.items()
        }
        if dense:  # intervals on one attribute, so that each change touches what others ask for
            self.filters = {"T": DENSE}
        self.types = [event_type for event_type in TYPES if event_type.name in self.filters]
        weights = {"_come": 3, "_go": 2, "_advertise": 8, "_unadvertise": 2, "_subscribe": 14, "_update": 24}
        weights |= {"_cancel": 6, "_publish": 30, "_crash": 2 if crashes else 0, "_quiet": 4}
        if dense:
            weights |= {"_go": 1, "_unadvertise": 1, "_update": 60, "_publish": 60, "_quiet": 6}
        self.weights = weights
        self.network = Network(
            routing=routing, engine=engine, poset=poset, on_deliver=self._delivered, on_settled=self._settled
        )
        self.engine, self.routing = engine, routing
        self.time = 0
        self.wanted: dict[tuple[str, int], Wanted] = {}
        self.published: list[Published] = []
        self.seen: dict[tuple[str, int, str, int], int] = {}
        self.made = 0
        self.unsure = False
        """A broker has crashed and not all is settled again: until then nothing is owed."""
        count = self.random.randint(1, 5)
        for i in range(count):
            self.network.broker(f"broker/b{i}")
            if i:
                self.network.link(f"broker/b{self.random.randrange(i)}", f"broker/b{i}")

    # --- what happens ---------------------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(3):
            self._come()
        for _ in range(self.steps):
            self.time += 1
            what = self.random.choices(list(self.weights), list(self.weights.values()))[0]
            getattr(self, what)()
            if self.random.random() < 0.7:
                self.network.run(self.random, self.random.choice((1, 2, 5, 20)))
        self._quiet()
        self.network.run()

    def _come(self) -> None:
        self.made += 1
        name = f"client/c{self.made}"
        session = ClientSession(name, routing=self.routing, resubscribe=self.resubscribe, engine=self.engine)
        self.network.client(name, self.random.choice(list(self.network.brokers)), session)

    def _go(self) -> None:
        if len(self.network.clients) > 1:
            name = self.random.choice(list(self.network.clients))
            self.network.leave(name)
            self.wanted = {key: wanted for key, wanted in self.wanted.items() if key[0] != name}

    def _someone(self) -> str:
        return self.random.choice(list(self.network.clients))

    def _advertise(self) -> None:
        self.network.advertise(self._someone(), self.random.choice(self.types))

    def _unadvertise(self) -> None:
        name = self._someone()
        advertised = list(self.network.clients[name].session.advertised)
        if advertised:
            self.network.unadvertise(name, self.random.choice(advertised))

    def _values(self, filter: Filter) -> dict[str, object]:
        draw = self.random
        drawn = {"a": draw.randint(0, 7), "b": draw.choice((0, 2.5, 4, 7)), "n": draw.choice("pq")}
        return {name: drawn[name] for name in filter.variables}

    def _subscribe(self) -> None:
        name = self._someone()
        event_type = self.random.choice(self.types)
        filter = parse(self.random.choice(self.filters[event_type.name]), event_type)
        values = self._values(filter)
        subscription = self.network.subscribe(name, filter, values)
        epoch = self.network.clients[name].session.epoch
        self.wanted[name, subscription] = Wanted(name, filter, [Version(values, epoch, self.time)])

    def _update(self) -> None:
        if self.wanted:
            key = self.random.choice(list(self.wanted))
            wanted = self.wanted[key]
            values = self._values(wanted.filter)
            kept = [name for name in values if self.random.random() < 0.8]
            changes = {name: values[name] for name in kept}
            self.network.update(*key, changes)
            epoch = self.network.clients[key[0]].session.epoch
            wanted.versions.append(Version({**wanted.versions[-1].values, **changes}, epoch, self.time))

    def _cancel(self) -> None:
        if self.wanted:
            key = self.random.choice(list(self.wanted))
            self.network.unsubscribe(*key)
            del self.wanted[key]

    def _publish(self) -> None:
        senders = [c for c in self.network.clients.values() if c.session.advertised]
        if not senders:
            return
        client = self.random.choice(senders)
        said = self.random.choice(list(client.session.advertised.values()))
        event_type, epoch = said.event_type, said.epoch
        rows = [self._event(event_type) for _ in range(self.random.randint(1, 4))]
        batch = self.network.publish(client.name, event_type, rows)
        published = Published(batch, rows, self.time)
        if not self.unsure and client.session.settled >= epoch:
            for key, wanted in self.wanted.items():
                if wanted.filter.event_type == event_type and wanted.settled >= 0:
                    published.due += [(key, row, wanted.settled) for row in range(len(rows))]
        self.published.append(published)

    def _event(self, event_type: EventType) -> dict[str, object]:
        draw = self.random
        row: dict[str, object] = {"x": draw.randint(0, 8)}
        if event_type.name == "T":
            row |= {"y": draw.choice((None, 1.5, 4.0, 7.5, 9.0)), "s": draw.choice(("p", "q", "pq", None))}
        else:
            row["flag"] = draw.choice((True, False, None))
        return row

    def _crash(self) -> None:
        self.network.crash(self.random.choice(list(self.network.brokers)))
        self.unsure = True
        for published in self.published:
            published.due.clear()  # it may have been lost with the broker

    # --- the judges -----------------------------------------------------------------------------------------

    def _delivered(self, client: Client, action: DeliverTo) -> None:
        wanted = self.wanted.get((client.name, action.subscription_id))
        for row, sequence in zip(action.batch.to_pylist(), action.batch.sequences().tolist(), strict=True):
            identity = (client.name, action.subscription_id, action.batch.publisher, sequence)
            assert identity not in self.seen, f"seed {self.seed}: {identity} was delivered twice"
            self.seen[identity] = self.time
            assert wanted is not None, f"seed {self.seed}: {identity} was delivered after it was cancelled"
            values = wanted.versions[-1].values
            assert wanted.filter.matches(row, values), (
                f"seed {self.seed}: {row} was delivered to {wanted.filter} with {values}"
            )

    def _settled(self, client: Client, epoch: int) -> None:
        for (name, _), wanted in self.wanted.items():
            if name == client.name:
                for i, version in enumerate(wanted.versions):
                    if version.epoch <= epoch:
                        wanted.settled = max(wanted.settled, i)

    def _quiet(self) -> None:
        """Let everything arrive, and judge what is there."""
        self.network.run(self.random)
        self.unsure = False
        for published in self.published:
            for key, row, since in published.due:
                wanted = self.wanted.get(key)
                if wanted is None:
                    continue
                versions = wanted.versions[since:]
                if self.resubscribe == "unsubscribe-first" and self.routing == "static" and len(versions) > 1:
                    continue  # that order is known to lose events; it exists to be measured
                if all(wanted.filter.matches(published.rows[row], v.values) for v in versions):
                    sequence = int(published.batch.sequences()[row])
                    identity = (*key, published.batch.publisher, sequence)
                    assert identity in self.seen, (
                        f"seed {self.seed}: {identity}, {published.rows[row]}, was not delivered to "
                        f"{wanted.filter} with {[v.values for v in versions]}"
                    )
        self.published.clear()
        for client in self.network.clients.values():
            session = client.session
            assert session.settled == session.epoch, (
                f"seed {self.seed}: {client.name} has said {session.epoch}, settled is {session.settled}"
            )
            assert not client.refused, f"seed {self.seed}: {client.name} was refused {client.refused}"
        for name, broker in self.network.brokers.items():
            check(broker)
            assert not broker.tables.acks.pending(), (
                f"seed {self.seed}: {name} still owes {broker.tables.acks.pending()}"
            )
            assert not broker.tables.acks.awaited(), (
                f"seed {self.seed}: {name} still awaits {broker.tables.acks.awaited()}"
            )
        check_links(self.network)
        dropped = [drop for drop in self.network.drops if drop.reason != "not connected"]
        assert not dropped or self.network.crashes, f"seed {self.seed}: dropped {dropped}"
