"""`explain` and `follow` over real connections, and their commands."""

import grpc
import grpc.aio
import pytest
from grpcio import grpcio_channel
from running import QUOTE, Brokers, on_a_loop, until

from covey.cli.explain import _words, attributes
from covey.matcher.errors import EventError
from covey.overlay import Client, ConnectError, RefusedError
from covey.overlay.client.unary import explain, follow
from covey.overlay.transport.packets import EXPLAIN

CHAIN = [("b1", "b2"), ("b2", "b3")]


@on_a_loop
async def test_explain_walks_to_the_publishers_and_names_the_broker_that_stops_an_event() -> None:
    async with (
        Brokers(CHAIN) as overlay,
        Client(overlay.address("b3"), "feed") as feed,
        Client(overlay.address("b1"), "buyer") as buyer,
    ):
        here = overlay.address("b1")
        await feed.advertise(QUOTE)
        cheap = await buyer.subscribe("Quote", 'firm == "IBM" and price < $limit', limit=5.0)
        await cheap.update(limit=10.0)
        steps, verdicts = await explain(here, "buyer", cheap.id, {"firm": "IBM", "price": 9.0})
        assert [step["broker"] for step in steps] == ["b1", "b2", "b3"]
        assert all(step["matches"] for step in steps)
        assert verdicts == ["from feed at b3: it is delivered"]
        assert steps[0]["upstream"][0]["filter"] == 'firm == "IBM" and price < 10.0'
        assert steps[0]["upstream"][0]["acknowledged"]
        assert steps[0]["epoch"] == 3
        _, verdicts = await explain(here, "buyer", cheap.id, {"firm": "IBM", "price": 12.0})
        (verdict,) = verdicts
        assert verdict.startswith("from feed at b3: it stops at b3: b2#1 (epoch ")
        assert verdict.endswith("does not match, price < 10.0: the event has price 12.0")
        _, verdicts = await explain(here, "buyer", cheap.id, {"price": 12.0})
        assert 'firm == "IBM": the event has no firm; price < 10.0' in verdicts[0]
        await feed.advertise(QUOTE, "price < 8")
        _, verdicts = await explain(here, "buyer", cheap.id, {"firm": "IBM", "price": 9.0})
        assert verdicts == ["from feed at b3: it is refused at b3: outside of price < 8.0"]
        await feed.unadvertise("Quote")
        await until(lambda: not overlay.nodes["b1"].core.tables.types["Quote"].publishers)
        _, verdicts = await explain(here, "buyer", cheap.id, {})
        assert verdicts == ["no client publishes the type"]
        with pytest.raises(RefusedError, match="client/buyer has no subscription 99; it has 1"):
            await explain(here, "buyer", 99, {})
        with pytest.raises(RefusedError, match="no interface client/nobody"):
            await explain(here, "nobody", 1, {})
        with pytest.raises(RefusedError, match="price"):
            await explain(here, "buyer", cheap.id, {"price": "much"})


@on_a_loop
async def test_follow_yields_one_step_per_broker_on_the_way() -> None:
    async with (
        Brokers(CHAIN) as overlay,
        Client(overlay.address("b3"), "feed") as feed,
        Client(overlay.address("b2"), "near") as near,
        Client(overlay.address("b1"), "far") as far,
    ):
        await feed.advertise(QUOTE)
        first, second = (
            await near.subscribe("Quote", "volume > 0"),
            await far.subscribe("Quote", "volume > 5"),
        )
        await feed.publish("Quote", volume=9)
        await feed.publish("Quote", volume=1)
        steps = [step async for step in follow(overlay.address("b3"), "Quote", feed.publisher, 1)]
        assert [(s["broker"], s["source"], s["links"], s["sessions"]) for s in steps] == [
            ("b3", "client/feed", ["b2"], {}),
            ("b2", "broker/b3", ["b1"], {"client/near": [first.id]}),
            ("b1", "broker/b2", [], {"client/far": [second.id]}),
        ]
        assert _words(steps[1] | {"after_ms": 1.0}) == (
            "b2: from broker/b3 to b1; delivered to near#1 (1.0 ms)"
        )
        assert steps[0]["event"]["volume"] == "9"
        steps = [step async for step in follow(overlay.address("b3"), "Quote", feed.publisher, 2)]
        assert [(step["broker"], step["links"]) for step in steps] == [("b3", ["b2"]), ("b2", [])]
        (step,) = [s async for s in follow(overlay.address("b3"), "Quote", "nobody", 2, seconds=0.0)]
        assert not step["seen"]


@on_a_loop
async def test_a_broker_that_does_not_answer_ends_only_its_own_branch() -> None:
    async with (
        Brokers([("b1", "b2"), ("b1", "b3")]) as overlay,
        Client(overlay.address("b1"), "feed") as feed,
        Client(overlay.address("b2")) as lost,
        Client(overlay.address("b3"), "near") as near,
    ):
        await feed.advertise(QUOTE)
        await lost.subscribe("Quote")
        mine = await near.subscribe("Quote")
        await feed.publish("Quote", volume=1)
        assert (await anext(mine))["volume"] == 1
        await overlay.crash("b2")
        steps = [step async for step in follow(overlay.address("b1"), "Quote", feed.publisher, 1)]
        assert steps[0]["broker"] == "b1"
        steps.sort(key=lambda step: step["broker"])  # b1 lists neighbours as they connected
        assert [(step["broker"], step["seen"]) for step in steps] == [
            ("b1", True),
            ("b2", False),
            ("b3", True),
        ]
        assert _words(steps[1]) == f"b2: no broker answers at {overlay.address('b2')}"
        with pytest.raises(ConnectError, match="no broker answers"):
            await anext(follow(overlay.address("b2"), "Quote", feed.publisher, 1))


def test_attributes_are_json_or_words() -> None:
    assert attributes('{"price": 9.5}') == {"price": 9.5}
    assert attributes("firm=IBM price=9.5 open=true") == {"firm": "IBM", "price": 9.5, "open": True}
    with pytest.raises(EventError, match="expected name=value"):
        attributes("price")


@on_a_loop
@pytest.mark.parametrize("text", ["", "{", "[1]", "[" * 100_000], ids=["empty", "cut", "list", "deep"])
async def test_an_event_that_is_no_json_object_is_refused_by_name(text: str) -> None:
    async with Brokers() as overlay, grpcio_channel(overlay.address("b1")) as channel:
        request = EXPLAIN.request(interface="client/buyer", subscription_id=1, event=text)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await channel.unary_unary(EXPLAIN.path)(request.SerializeToString())
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert raised.value.details() == f"event {text[:60]!r}: expected a JSON object"
