"""Subscriptions with a maximal rate over real brokers: the newest of each key, and counts of the rest."""

import asyncio
from collections import defaultdict

import pytest
from running import QUOTE, Brokers, on_a_loop

from covey.matcher import EventBatch, EventType
from covey.matcher.errors import SubscriptionError
from covey.overlay import Client, Gap, Subscription
from covey.overlay.client import subscription
from covey.overlay.client.event import Claim, Part
from covey.overlay.core.client.actions import DeliverTo

SHIP = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")


def ships(count: int, x: int) -> list[dict[str, int]]:
    return [{"id": ship, "x": x} for ship in range(count)]


async def until_newest(subscription: Subscription, count: int, newest: int) -> int:
    """Read until every ship is at its newest place; returns the number of events read."""
    seen: defaultdict[int, list[int]] = defaultdict(list)
    while sum(places[-1] == newest for places in seen.values()) < count:
        event = await asyncio.wait_for(anext(subscription), 60)
        seen[event["id"]].append(event["x"])
    assert all(places == sorted(set(places)) for places in seen.values())
    return sum(map(len, seen.values()))


@pytest.mark.parametrize("reads", [True, False])
def test_what_comes_is_the_newest_and_what_is_skipped_is_told(
    reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for a reader with more keys than may wait without credit; a silent reader delays no other
    subscription of its client."""
    if reads:
        monkeypatch.setattr(subscription, "_MOST_BYTES", 500)

    @on_a_loop
    async def run() -> None:
        gaps: list[Gap] = []
        async with (
            Brokers() as overlay,
            Client(overlay.address("b1")) as exchange,
            Client(overlay.address("b1"), on_gap=gaps.append, window_bytes=20_000) as reader,
        ):
            await exchange.advertise(SHIP)
            paced = await reader.subscribe("Ship", "x >= $least", least=0, max_rate=5)
            every = await reader.subscribe("Ship", "id == 0")
            reading = asyncio.create_task(until_newest(paced, 20, 199)) if reads else None
            for x in range(200):
                await exchange.publish_batch("Ship", ships(20, x))
                if x == 100:  # it has not read so far
                    await paced.update(least=-1)
                    await until_newest(every, 1, 100)
            await until_newest(every, 1, 199)
            got = await (reading or until_newest(paced, 20, 199))
            assert got + paced.conflated == 20 * 200 == paced.delivered + paced.conflated
            assert paced.conflated == sum(gap.count for gap in gaps) > 0
            assert all(gap.conflated and gap.type_name == "Ship" for gap in gaps)
            assert reader.gaps == gaps[-100:]
            assert reader.dropped == 0

    run()


@on_a_loop
async def test_what_waits_is_handed_out_at_the_end() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as exchange:
        await exchange.advertise(SHIP)
        reader = Client(overlay.address("b1"))
        await reader.open()
        paced = await reader.subscribe("Ship", max_rate=0.001)
        every = await reader.subscribe("Ship", "x >= 0")
        for x in range(3):
            await exchange.publish_batch("Ship", ships(1, x), confirm=True)
            assert await until_newest(every, 1, x) == 1
        assert (await asyncio.wait_for(anext(paced), 60))["x"] == 0
        await reader.close()
        assert [event["x"] async for event in paced] == [2]
        assert paced.conflated == 1


@on_a_loop
async def test_what_waits_leaves_to_a_reader_whom_another_was_ahead_of() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        paced = await me.subscribe(SHIP, max_rate=1_000)
        readers = [asyncio.create_task(anext(paced.batches())) for _ in range(2)]
        await asyncio.sleep(0)
        for ship in (1, 2):
            batch = EventBatch.from_pylist(SHIP, [{"id": ship, "x": 0}])
            paced._put(Part(DeliverTo(paced.id, batch, 0), 1, Claim(ship, 1, lambda: None)))
        batches = await asyncio.wait_for(asyncio.gather(*readers), 10)
        assert [event["id"] for batch in batches for event in batch.to_pylist()] == [1, 2]


@on_a_loop
async def test_mistakes() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as client:
        await client.advertise(SHIP)
        await client.advertise(QUOTE)
        for rate in (0, -1, float("nan"), "5", True, 1e9):
            with pytest.raises(ValueError, match=r"max_rate is .*: expected events per second and key"):
                await client.subscribe("Ship", max_rate=rate)
        with pytest.raises(ValueError, match="expected an event type with a key, Quote has none"):
            await client.subscribe("Quote", max_rate=5)
        paced = await client.subscribe("Ship", max_rate=5)
        with pytest.raises(SubscriptionError, match=r"deliveries\(\) of client .* with max_rate"):
            client.deliveries()
        await paced.unsubscribe()
        client.deliveries()
        with pytest.raises(SubscriptionError, match=r"max_rate of client .* with deliveries\(\)"):
            await client.subscribe("Ship", max_rate=5)
