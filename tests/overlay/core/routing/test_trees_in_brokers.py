"""Deep and long trees in brokers: subscribed, updated, merged, delivered, against an independent oracle."""

import random

import pytest
from core_network import Network
from draws import ALL
from random_trees import T, Truth, bushy, deep, events

from covey.matcher import parse
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.introspection.explanations import explain

BIG = " and ".join(f"(a == {i} or b < {i} and c > $x)" for i in range(30))


def _big(event: dict[str, object], values: dict[str, int]) -> bool:
    a, b, c = (event.get(name) for name in "abc")
    return all(
        (isinstance(a, int) and a == i)
        or (isinstance(b, int) and isinstance(c, int) and b < i and c > values["x"])
        for i in range(30)
    )


@pytest.mark.parametrize("merging", [pytest.param("off", marks=pytest.mark.thorough), "perfect"])
def test_trees_are_delivered_through_brokers(merging: str) -> None:
    choose = random.Random(11)
    network = Network(merging=merging, options=lambda _: {"engine": "cluster"})
    for broker in ("broker/1", "broker/2", "broker/3"):
        network.broker(broker, [T])
    network.link("broker/1", "broker/2")
    network.link("broker/2", "broker/3")
    for name, broker in (("client/p", "broker/1"), ("client/s", "broker/3"), ("client/t", "broker/3")):
        network.client(name, broker, ClientSession(name))
    network.advertise("client/p", T)
    network.run()
    trees = [deep(choose, 50), bushy(choose, 500 if ALL else 100), bushy(choose, 20), (BIG, _big)]
    live: dict[tuple[str, int], tuple[Truth, dict[str, int], list[str]]] = {}
    for text, truth in trees * 2:
        filter = parse(text, T)
        client, values = (
            choose.choice(["client/s", "client/t"]),
            {"x": choose.randrange(4), "y": choose.randrange(8)},
        )
        mine: dict[str, object] = {name: values[name] for name in filter.variables}
        live[client, network.subscribe(client, filter, mine)] = truth, values, list(filter.variables)
    network.run()
    for _ in range(2 if ALL else 1):
        rows = [{k: v for k, v in row.items() if v is not None} for row in events(choose, 300)]
        rows.append({"a": 99, "b": -1, "c": 9, "d": "x"})
        before = {name: len(client.delivered) for name, client in network.clients.items()}
        network.publish("client/p", T, rows)
        network.run()
        expected = sorted(
            (client, number, repr(sorted(row.items())))
            for (client, number), (truth, values, _) in live.items()
            for row in rows
            if truth(row, values)
        )
        got = sorted(
            (name, number, repr(sorted((k, v) for k, v in row.items() if v is not None)))
            for name in ("client/s", "client/t")
            for number, batch in network.clients[name].delivered[before[name] :]
            for row in batch.to_pylist()
        )
        assert got == expected
        for (client, number), (_, values, names) in live.items():
            changed: dict[str, object] = {name: choose.randrange(8) for name in names}
            network.update(client, number, changed)
            values.update({name: int(str(value)) for name, value in changed.items()})
        network.run()
    client, number = next(key for key, (truth, *_) in live.items() if truth is _big)
    network.publish("client/p", T, [{"a": 1}] * 300)
    network.run()
    step = explain(network.brokers["broker/3"], client, number, {"a": 1}, 0)
    assert step["form"].startswith("matched as a tree: its normal form of 1,073,741,824 conjunctions")
