"""After thousands of changes every table of every broker and client has its former length."""

import random

import pytest
from core_network import Network
from draws import ALL
from tables import grown, tables

from covey.matcher.events.event_type import EventType
from covey.matcher.filters.filter import parse
from covey.overlay.core.client.session import ClientSession
from covey.sim.invariants import check

QUOTE = EventType("Quote", {"price": "float64", "volume": "int64"})
SHAPES = [
    parse(text, QUOTE)
    for text in (
        "price < $a",
        "price between $a and $b",
        "price > $a and volume == 3",
        "volume in (1, 2) or price < $a",
        "price >= $a and price < $b and volume > 5",
    )
]


@pytest.mark.parametrize(
    ("routing", "merging"),
    [
        pytest.param("parametric", "off", marks=pytest.mark.thorough),
        pytest.param("static", "off", marks=pytest.mark.thorough),
        pytest.param("parametric", "perfect", marks=pytest.mark.thorough),
        ("parametric", "budget"),
    ],
)
def test_thousands_of_changes_leave_tables_as_long_as_before(routing: str, merging: str) -> None:
    draw = random.Random(1)
    network = Network(routing=routing, merging=merging)
    for name in ("b1", "b2", "b3"):
        network.broker(f"broker/{name}")
    network.link("broker/b1", "broker/b2")
    network.link("broker/b2", "broker/b3")
    for name, broker in (("p", "b3"), ("c", "b1"), ("d", "b2")):
        session = ClientSession(f"client/{name}", routing=routing, engine="naive")
        network.client(f"client/{name}", f"broker/{broker}", session)
    network.advertise("client/p", QUOTE)
    network.run()

    def churn(changes: int, most: int) -> None:
        live: list[tuple[str, int]] = []
        for _ in range(changes):
            if live and draw.random() < 0.5:
                client, mine = live[draw.randrange(len(live))]
                if draw.random() < 0.5:
                    network.update(client, mine, {"a": draw.randrange(50)})
                else:
                    live.remove((client, mine))
                    network.unsubscribe(client, mine)
            else:
                client, filter = draw.choice(("client/c", "client/d")), draw.choice(SHAPES)
                values: dict[str, object] = {name: draw.randrange(50) for name in filter.variables}
                live.append((client, network.subscribe(client, filter, values)))
                if len(live) > most:
                    client, mine = live.pop(0)
                    network.unsubscribe(client, mine)
            network.run(steps=draw.randrange(8))
        for client, mine in live:
            network.unsubscribe(client, mine)
        # An event brings the engines up to date.
        everything = [(name, network.subscribe(name, parse("", QUOTE))) for name in ("client/c", "client/d")]
        network.run()
        network.publish("client/p", QUOTE, [{"price": 1.0}])
        network.run()
        for client, mine in everything:
            network.unsubscribe(client, mine)
        network.run()
        for each in network.clients.values():
            each.delivered.clear()

    def lengths() -> dict[str, dict[str, int]]:
        holders = {**network.brokers, **{name: client.session for name, client in network.clients.items()}}
        return {name: tables(holder) for name, holder in holders.items()}

    churn(1_000, most=60)  # tables of ids that are free again are as long as there ever were subscriptions
    before = lengths()
    churn(10_000 if ALL else 3_000, most=20)

    after = lengths()
    for name, found in after.items():
        assert found.pop(".tables.registry._free", 0) <= 150  # ids for as many as were ever there at once
        assert not grown(before[name], found), f"{name} has grown"
    for broker in network.brokers.values():
        check(broker)
        assert not broker.tables.registry.live
        assert not broker.tables.acks.pending()
