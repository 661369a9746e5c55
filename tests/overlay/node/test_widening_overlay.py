"""Event types that are widened while events flow, over real connections."""

import asyncio

import pytest
from running import QUOTE, Brokers, on_a_loop

from covey.matcher import EventType, FilterError, VariableError
from covey.overlay import Client, RefusedError, Subscription

CHAIN = [("b1", "b2"), ("b2", "b3")]
ROUNDS, ROWS = 60, 20


def widened(**attributes: str) -> EventType:
    """The type with more attributes, placed before the others, since order has no meaning."""
    return EventType("Quote", {**attributes, **QUOTE.attributes})


async def volumes(subscription: Subscription, count: int) -> dict[str, list[int]]:
    """The volumes of the next events, by publisher."""
    by_publisher: dict[str, list[int]] = {}
    async for batch in subscription.batches():
        taken = by_publisher.setdefault(batch.publisher, [])
        taken += batch.record_batch.column("volume").to_pylist()
        count -= len(batch)
        if count <= 0:
            break
    return by_publisher


@on_a_loop
async def test_two_ends_widen_a_type_under_load_and_no_event_is_lost_or_repeated() -> None:
    async with Brokers(CHAIN) as overlay:
        first, second, third = (overlay.address(name) for name in ("b1", "b2", "b3"))
        async with (
            Client(first, "one") as one,
            Client(third, "other") as other,
            Client(second, "reader") as reader,
            Client(third, "upgraded") as upgraded,
        ):
            for feed in (one, other):
                await feed.advertise(QUOTE)
            narrow = await reader.subscribe("Quote", "volume >= 0")
            updated = await upgraded.subscribe("Quote", "volume >= $v", v=0)

            async def publish(feed: Client, attribute: str, kind: str, value: object) -> None:
                own: dict[str, object] = {}
                for step in range(ROUNDS):
                    start = ROWS * step
                    rows = [{"volume": start + row, "firm": "IBM", **own} for row in range(ROWS)]
                    publishing = asyncio.create_task(feed.publish_batch("Quote", rows))
                    if step == ROUNDS // 3:
                        await feed.widen(widened(**{attribute: kind}))
                        own = {attribute: value}
                    if step == ROUNDS // 2 and feed is one:
                        updated.update_nowait(v=-1)
                    await publishing

            reading = [asyncio.create_task(volumes(s, 2 * ROUNDS * ROWS)) for s in (narrow, updated)]
            await asyncio.gather(publish(one, "bid", "int64", 7), publish(other, "venue", "string", "XETRA"))
            for received in await asyncio.wait_for(asyncio.gather(*reading), 60):
                assert received == {
                    one.publisher: [*range(ROUNDS * ROWS)],
                    other.publisher: [*range(ROUNDS * ROWS)],
                }
            await overlay.quiet()
            both = {**QUOTE.attributes, "bid": "int64", "venue": "string"}
            for node in overlay.nodes.values():
                known = node.core.event_type("Quote")
                assert known.attributes == both
            # Filters over the new attributes, by name, beside one that was there before.
            bids = await reader.subscribe("Quote", "bid > 5 or volume == -1")
            at = await upgraded.subscribe("Quote", 'venue == "XETRA"')
            await one.publish("Quote", volume=1, bid=9)
            await other.publish("Quote", volume=-1, venue="XETRA")
            assert await volumes(bids, 2) == {one.publisher: [1], other.publisher: [-1]}
            assert await volumes(at, 1) == {other.publisher: [-1]}
            assert (await asyncio.wait_for(anext(narrow), 60))["bid"] == 9


@on_a_loop
async def test_a_client_gets_the_attributes_that_it_has_declared() -> None:
    async with (
        Brokers(CHAIN) as overlay,
        Client(overlay.address("b1")) as feed,
        Client(overlay.address("b3")) as reader,
    ):
        await feed.advertise(widened(bid="int64"))
        mine = await reader.subscribe(QUOTE, "volume > 0")
        with pytest.raises(FilterError, match="has no attribute 'ask'"):
            await reader.subscribe("Quote", "ask > 0")
        await feed.publish("Quote", volume=1, bid=2)
        assert dict(await anext(mine)) == {"firm": None, "price": None, "volume": 1}
        with pytest.raises(RefusedError, match="expected attributes as in EventType") as raised:
            await reader.widen(widened(bid="string"))
        assert raised.value.status == "ALREADY_EXISTS"
        await reader.widen(widened(bid="int64"))
        await feed.publish("Quote", volume=2, bid=3)
        assert dict(await anext(mine)) == {"firm": None, "price": None, "volume": 2, "bid": 3}
        with pytest.raises(RefusedError, match="'Trade': expected one that this client publishes") as raised:
            await reader.widen(EventType("Trade", {"size": "int64"}))
        assert raised.value.status == "FAILED_PRECONDITION"


@on_a_loop
async def test_a_refused_widening_leaves_what_was_advertised_before() -> None:
    async with (
        Brokers(CHAIN) as overlay,
        Client(overlay.address("b1")) as feed,
        Client(overlay.address("b3")) as other,
    ):
        await feed.advertise(QUOTE, "volume > 0")
        mine = await other.subscribe("Quote")
        theirs = await other.subscribe(widened(bid="string"), 'bid == "high"')
        with pytest.raises(RefusedError, match="attribute bid is string, not int64") as raised:
            await feed.widen(widened(bid="int64"))
        assert raised.value.status == "ALREADY_EXISTS"
        await feed.publish("Quote", volume=1)
        assert (await anext(mine))["volume"] == 1
        with pytest.raises(RefusedError, match="outside of what"):
            await feed.publish("Quote", volume=0, confirm=True)
        await feed.widen(EventType("Quote", {"bid": "string"}))  # the new attributes alone
        await feed.publish("Quote", volume=2, bid="high")
        assert (await anext(theirs))["bid"] == "high"
        with pytest.raises(VariableError, match="expected no variables"):
            await feed.advertise(widened(bid="string"), "volume > $v")
