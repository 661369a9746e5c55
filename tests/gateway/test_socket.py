"""Browsers at a gateway: requests, events, resumed sessions, and slow browsers."""

import pyarrow as pa
import pytest
from gateways import Browser, gateway_to, no_session_left, served, with_short
from running import QUOTE, Brokers, on_a_loop

from covey.gateway import Limits
from covey.matcher import EventType
from covey.overlay import Client


def below(limit: float) -> dict[str, object]:
    return {"type": "Quote", "filter": 'firm == "IBM" and price < $limit', "values": {"limit": limit}}


def quotes(*prices: float) -> list[dict[str, object]]:
    return [{"firm": "IBM", "price": price, "volume": 1} for price in prices]


def prices(events: list[dict[str, object]]) -> list[object]:
    return [event["price"] for event in events]


@on_a_loop
async def test_requests_are_answered_when_they_hold() -> None:
    async with Brokers([("b1", "b2")]) as overlay, Client(overlay.address("b2")) as exchange:
        await exchange.advertise(QUOTE)
        async with (
            gateway_to(overlay.address("b1"), publish=["Quo*"]) as address,
            Browser(address) as browser,
        ):
            answer = await browser.request("subscribe", subscription=7, **below(10))
            assert answer["attributes"] == {"firm": "string", "price": "float64", "volume": "int64"}
            await exchange.publish_batch("Quote", quotes(9.5, 11.0, -1.0))
            batch = await browser.until("events")
            assert (batch["subscription"], batch["sequences"]) == (7, [1, 3])
            assert prices(batch["events"]) == [9.5, -1.0]
            assert batch["publisher"] == exchange.publisher
            answer = await browser.request("update", subscription=7, values={"limit": 20})
            assert answer == {"kind": "answer", "request": 2}
            await exchange.publish_batch("Quote", quotes(11.0, 21.0))
            assert prices(await browser.events(1)) == [11.0]
            await browser.request("update", subscription=7, values={"limit": {"value": 30, "rate": 0.5}})
            published = await browser.request("publish", type="Quote", events=quotes(29.0, 1e6))
            assert published["kind"] == "answer"
            assert prices(await browser.events(1)) == [29.0]
            await browser.request("unsubscribe", subscription=7)
            await exchange.publish_batch("Quote", quotes(1.0), confirm=True)
            again = await browser.request("subscribe", subscription=7, type="Quote")
            assert again["kind"] == "answer"
            assert not browser.other


@on_a_loop
async def test_browsers_publish_what_a_type_was_widened_by() -> None:
    wider = EventType("Quote", {**QUOTE.attributes, "venue": "string"})
    async with served(QUOTE, publish=["Quote"]) as (exchange, address), Browser(address) as browser:
        (narrow,) = quotes(1.0)
        await browser.request("publish", type="Quote", events=[narrow])
        refused = await browser.request("publish", type="Quote", events=[{"venue": "N"}])
        assert "venue" in refused["message"]
        await exchange.widen(wider)
        sold = await exchange.subscribe("Quote", "exists(venue)")
        answer = await browser.request("publish", type="Quote", events=[narrow, {"venue": "N"}])
        assert answer["kind"] == "answer"
        assert (await anext(sold))["venue"] == "N"


@on_a_loop
async def test_requests_that_are_not_awaited_take_effect_in_order() -> None:
    async with served(QUOTE) as (exchange, address), Browser(address) as browser:
        await browser.say("subscribe", request=1, subscription=1, **below(0))
        for number in range(2, 40):
            await browser.say("update", request=number, subscription=1, values={"limit": number})
        await browser.say("unsubscribe", request=40, subscription=1)
        await browser.say("subscribe", request=41, subscription=1, **below(5))
        assert (await browser.until("answer", request=41))["attributes"]
        answered = [each["request"] for each in browser.other]
        assert sorted(answered) == [*range(1, 41)]
        await exchange.publish_batch("Quote", quotes(6.0, 4.0))
        assert prices(await browser.events(1)) == [4.0]


@on_a_loop
async def test_arrow_on_request() -> None:
    async with served(QUOTE) as (exchange, address), Browser(address, format="arrow") as browser:
        await browser.request("subscribe", subscription=3, type="Quote", filter="price < 10")
        await exchange.publish_batch("Quote", quotes(9.5, float("nan"), 8.5))
        message = await browser.until("events", subscription=3)
        with pa.ipc.open_stream(message["arrow"]) as stream:
            table = stream.read_all()
        assert table.schema.equals(QUOTE.arrow_schema)
        assert (table["price"].to_pylist(), message["sequences"]) == ([9.5, 8.5], [1, 3])


@on_a_loop
async def test_browsers_with_the_same_subscription_share_a_client_and_the_text() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as exchange:
        await exchange.advertise(QUOTE)
        async with (
            gateway_to(overlay.address("b1"), allow_block=True) as address,
            Browser(address) as one,
            Browser(address) as other,
            Browser(address, overflow="block") as alone,
        ):
            for browser in (one, other, alone):
                above = {"filter": "price > $least", "values": {"least": 1}}
                await browser.request("subscribe", subscription=1, type="Quote", **above)
            clients = [name for name in overlay.nodes["b1"].queues if name.startswith("client/")]
            assert len(clients) == 3  # the exchange, the shared one, and that of the one that blocks
            await other.request("update", subscription=1, values={"least": 5})
            await exchange.publish_batch("Quote", quotes(3.0, 6.0))
            got = [prices(await each.events(1)) for each in (one, other, alone)]
            assert got == [[3.0, 6.0], [6.0], [3.0, 6.0]]


@on_a_loop
async def test_a_session_goes_on_behind_a_broken_connection() -> None:
    async with served(QUOTE) as (exchange, address), Browser(address) as browser:
        await browser.request("subscribe", subscription=1, **below(100))
        seen: list[object] = []
        for turn in range(5):
            first = turn * 10
            await exchange.publish_batch("Quote", quotes(*range(first, first + 5)), confirm=True)
            seen += prices(await browser.events(1)) if turn % 2 else []
            browser.socket.transport.abort()
            await exchange.publish_batch("Quote", quotes(*range(first + 5, first + 10)), confirm=True)
            await browser.resume()
            assert browser.welcome["resumed"]
            assert browser.welcome["request"] == 1
            if turn == 2:
                await browser.say("acknowledge", received=browser.received)
        while len(seen) < 50:
            seen += prices(await browser.events(1))
        assert seen == [*range(50)]
        await browser.socket.close(1000)
        await browser.resume()
        assert not browser.welcome["resumed"]  # which 1000 has ended


@on_a_loop
async def test_a_second_connection_takes_a_session_and_a_lease_ends_it() -> None:
    limits = Limits()
    async with (
        Brokers() as overlay,
        gateway_to(overlay.address("b1"), limits=limits) as address,
        Browser(address) as first,
    ):
        second = Browser(address, session=first.welcome["session"])
        await second.open()
        assert second.welcome["resumed"]
        error = await first.until("error", status="ABORTED")
        assert error["message"] == "another connection goes on with this session"
        await first.socket.wait_closed()
        with_short(limits, lease_s=0)
        second.socket.transport.abort()
        await no_session_left(address)
        await second.resume()
        assert not second.welcome["resumed"]


SMALL = Limits(queue_bytes=20_000, window_bytes=20_000)


@pytest.mark.parametrize("policy", ["drop_oldest", "drop_newest", "disconnect", "block"])
@on_a_loop
async def test_who_does_not_acknowledge(policy: str) -> None:
    """It delays nobody else, and gets gaps; with `block` it loses nothing while it reads on."""
    async with (
        served(QUOTE, limits=SMALL, allow_block=True) as (exchange, address),
        Browser(address, overflow=policy) as slow,
        Browser(address) as quick,
    ):
        for browser in (slow, quick):
            await browser.request("subscribe", subscription=1, type="Quote", filter="volume >= 0")
        total, seen = 0, 0
        for start in range(0, 6_000, 100):
            await exchange.publish_batch("Quote", quotes(*range(start, start + 100)))
            total += 100
            while seen < total:
                seen += len(await quick.events(1))
                await quick.say("acknowledge", received=quick.received)
        assert seen == 6_000
        if policy == "disconnect":
            error = await slow.until("error")
            assert error["message"] == "the browser does not keep up: queue_bytes is 20000"
            await slow.socket.wait_closed()
            assert slow.socket.close_code == 1013
            return
        got: list[float] = []
        lost = 0
        while len(got) + lost < 6_000:
            message = await slow.next()
            await slow.say("acknowledge", received=slow.received)
            if message["kind"] == "events":
                got += [event["price"] for event in message["events"]]
            elif message["kind"] == "gap":
                assert message["cause"] == "overflow"
                assert message["first_ms"] <= message["last_ms"]
                lost += message["count"]
            else:
                assert (message["kind"], message["policy"]) == ("overflow", policy)
        assert len(set(got)) == len(got)
        assert got == sorted(got)
        assert (lost == 0) is (policy == "block")
        assert (got[-1] == 5_999) is (policy != "drop_newest")


@on_a_loop
async def test_a_broker_that_comes_back() -> None:
    async with Brokers() as overlay:
        proxy = await overlay.proxy("b1")
        async with (
            Client(overlay.address("b1")) as exchange,
            gateway_to(proxy.address) as address,
            Browser(address) as browser,
        ):
            await exchange.advertise(QUOTE)
            await browser.request("subscribe", subscription=1, type="Quote")
            proxy.cut()
            lost = await browser.until("connection")
            assert not lost["connected"]
            await exchange.publish_batch("Quote", quotes(1.0))
            assert prices(await browser.events(1)) == [1.0]
            assert {"kind": "connection", "connected": True, "message": "resumed"} in browser.other
