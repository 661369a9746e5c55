"""Validity periods of browsers' subscriptions."""

import asyncio

from gateways import Browser, served
from running import QUOTE, Brokers, on_a_loop

from covey.gateway import Limits
from covey.gateway.messages import Hello, Subscribe
from covey.gateway.sessions import Sessions
from covey.gateway.upstream import Access
from covey.matcher import EventType
from covey.overlay import Client

SHIP = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")


async def end_of(browser: Browser, subscription: int) -> dict[str, object]:
    for message in browser.other:
        if message["kind"] == "ended" and message["subscription"] == subscription:
            browser.other.remove(message)
            return message
    return await browser.until("ended", subscription=subscription)


@on_a_loop
async def test_a_browser_is_told_the_end() -> None:
    """Behind the last event; others of the same client go on, and the number is free."""
    async with served(QUOTE) as (exchange, address), Browser(address) as browser, Browser(address) as other:
        for number, valid_for in ((1, 1_000), (2, 2_000), (3, 0.001), (4, None)):
            await browser.request("subscribe", subscription=number, type="Quote", valid_for=valid_for)
        await other.request("subscribe", subscription=2, type="Quote", valid_for=1_000)
        assert (await end_of(browser, 3))["reason"] == "its validity period is over"
        await exchange.publish("Quote", firm="IBM", price=1.0)
        assert len(await browser.events(3)) == 3
        assert (await browser.request("renew", subscription=2, valid_for=0.001))["kind"] == "answer"
        await end_of(browser, 2)
        await exchange.publish("Quote", firm="IBM", price=2.0)
        assert [each["price"] for each in await other.events(2)] == [1.0, 2.0]
        assert len(await browser.events(2)) == 2
        for kind, why in (
            ("renew", {"valid_for": 1}), ("update", {"values": {}}), ("unsubscribe", {})
        ):  # fmt: skip
            refused = await browser.request(kind, subscription=2, **why)
            assert refused["message"] == f"{kind}: subscription is 2: expected one of this session"
        again = await browser.request("subscribe", subscription=2, type="Quote")
        assert again["kind"] == "answer"
        assert (await browser.request("renew", subscription=4, valid_for=0.001))["kind"] == "answer"
        await end_of(browser, 4)


@on_a_loop
async def test_what_waits_for_its_rate_comes_before_the_end() -> None:
    async with served(SHIP) as (exchange, address), Browser(address) as browser:
        await browser.request("subscribe", subscription=1, type="Ship", max_rate=0.01, valid_for=1_000)
        await exchange.publish("Ship", id=1, x=1)
        await browser.events(1)
        await exchange.publish("Ship", id=1, x=2)
        await exchange.flush()
        await browser.request("renew", subscription=1, valid_for=0.001)
        await end_of(browser, 1)
        assert [event["x"] for event in await browser.events(1)] == [2]


class Nobody:
    """A subscriber that has opened a session, and is not called at its end."""

    def end(self, error: Exception) -> None: ...


@on_a_loop
async def test_a_subscription_that_ends_while_its_session_does() -> None:
    """The session's other subscriptions are cancelled, though the shared client has many."""
    async with Brokers() as overlay, Client(overlay.address("b1")) as exchange:
        await exchange.advertise(QUOTE)
        sessions = Sessions(Access(overlay.address("b1")), Limits(), ())
        session, _ = await sessions.open(Hello(), Nobody(), "127.0.0.1")
        peers = overlay.nodes["b1"].core.tables.peers
        for number in range(4):
            each = Subscribe(request=number, subscription=number, type="Quote", valid_for=1_000)
            await session.stream(each)
        assert sum(len(peer.subscriptions) for peer in peers.values()) == 4
        closing = asyncio.create_task(session.close())
        await asyncio.sleep(0)  # it waits for the broker now
        session.expire(2)
        await closing
        assert not any(peer.subscriptions for peer in peers.values())
        await sessions.close()


@on_a_loop
async def test_periods_that_are_wrong() -> None:
    async with served(SHIP) as (_, address), Browser(address) as browser:
        await browser.request("view", subscription=1, type="Ship")
        await browser.request("subscribe", subscription=2, type="Ship")
        for wrong, why in (
            ({"subscription": 1, "valid_for": 1}, "renew: subscription is 1, a view: expected none"),
            ({"subscription": 2, "valid_for": 0}, "renew: valid_for is 0: expected"),
            ({"subscription": 2, "valid_for": 1e12}, "renew: valid_for is 1000000000000.0: expected"),
            ({"subscription": 2, "valid_for": "x"}, "renew: valid_for is 'x': expected"),
            ({"subscription": 2}, "renew: valid_for is missing"),
        ):
            assert why in (await browser.request("renew", **wrong))["message"]
