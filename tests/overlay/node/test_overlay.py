"""Brokers and clients over real connections."""

import asyncio
import random

import pytest
from running import QUOTE, Brokers, at_rest, on_a_loop, until

from covey.overlay import Client, ConnectError, NotSettledError, RefusedError, Subscription
from covey.overlay.core.endpoint.limits import LinkLimits, SessionLimits
from covey.overlay.core.introspection.inspection import render
from covey.overlay.transport import event_loop

CHAIN = [("b1", "b2"), ("b2", "b3")]


def quotes(first: int, count: int, firm: str = "IBM") -> list[dict[str, object]]:
    return [{"firm": firm, "price": float(i), "volume": i} for i in range(first, first + count)]


async def take(subscription: Subscription, count: int) -> list[int]:
    volumes: list[int] = []
    async for batch in subscription.batches():
        volumes += batch.record_batch.column("volume").to_pylist()
        if len(volumes) >= count:
            return volumes
    return volumes


async def nothing_more(subscription: Subscription, seconds: float = 0.2) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(subscription), seconds)


@on_a_loop
async def test_events_follow_a_threshold_through_a_chain() -> None:
    async with Brokers(CHAIN) as overlay:
        here, there = overlay.address("b1"), overlay.address("b3")
        async with Client(there, "feed") as feed, Client(here) as buyer:
            await feed.advertise(QUOTE)
            cheap = await buyer.subscribe("Quote", 'firm == "IBM" and price < $limit', limit=10.0)
            for price, limit in ((9.0, 5.0), (4.0, 2.0), (1.0, 1.0)):
                for offered in (price, limit + 1e9):
                    await feed.publish("Quote", firm="IBM", price=offered, volume=int(price))
                event = await asyncio.wait_for(anext(cheap), 60)
                assert (event["price"], event.publisher.split("/")[0]) == (price, "feed")
                await cheap.update(limit=limit)
            await feed.publish("Quote", firm="IBM", price=1.0, volume=0)
            await nothing_more(cheap)
            assert (cheap.delivered, cheap.values) == (3, {"limit": 1.0})
        await until(
            lambda: not any(node.core.tables.types for node in overlay.nodes.values()), "all is forgotten"
        )
        await overlay.quiet()
        assert [len(overlay.nodes[name].queues) for name in ("b1", "b2", "b3")] == [1, 2, 1]


@on_a_loop
@pytest.mark.parametrize("where", ["client", "link"])
async def test_a_connection_that_breaks_in_the_middle_loses_and_repeats_nothing(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loop, "HEALTHY_AFTER_S", 0.0)
    seed = random.Random(7)
    proxied = [CHAIN[0]] if where == "link" else []
    async with Brokers(CHAIN, proxied=proxied) as overlay:
        proxy = overlay.proxies[CHAIN[0]] if where == "link" else await overlay.proxy("b3")
        feed_at = proxy.address if where == "client" else overlay.address("b1")
        async with Client(feed_at, "feed") as feed, Client(overlay.address("b2"), "sub") as subscriber:
            reader = Client(proxy.address if where == "client" else overlay.address("b3"), "reader")
            async with reader:
                await feed.advertise(QUOTE)
                near = await subscriber.subscribe("Quote", "volume >= 0")
                far = await reader.subscribe("Quote", "volume >= $low", low=0)
                total = 10_000
                taken = asyncio.gather(take(near, total), take(far, total))
                cuts = 0
                for first in range(0, total, 250):
                    if proxy.cut_after is None and first % 1_000 == 0:
                        await overlay.linked()
                        proxy.cut_after = seed.randrange(1, 12_000)
                        cuts += 1
                    await feed.publish_batch("Quote", quotes(first, 250), confirm=True)

                proxy.cut_after = None
                got_near, got_far = await taken
                assert got_near == list(range(total))
                assert got_far == list(range(total))
                assert cuts > 3
                broken = overlay.nodes["b2"].queues["broker/b1"] if where == "link" else None
                if broken is not None:
                    assert broken.connections > 3
                await far.update(low=5)
                await overlay.quiet()


@on_a_loop
async def test_an_awaited_update_times_out_across_a_broken_link_and_names_the_missing_broker() -> None:
    async with (
        Brokers(CHAIN, proxied=[CHAIN[0]]) as overlay,
        Client(overlay.address("b1")) as feed,
        Client(overlay.address("b2")) as near,
        Client(overlay.address("b3")) as far,
    ):
        proxy = overlay.proxies[CHAIN[0]]
        await feed.advertise(QUOTE)
        mine = await far.subscribe("Quote", "price < $limit", limit=1.0)
        other = await near.subscribe("Quote", "price < $limit", limit=0.5)
        proxy.refusing = True
        proxy.cut()
        await until(lambda: not overlay.nodes["b2"].queues["broker/b1"].connected)
        with pytest.raises(NotSettledError, match=r"within 0.3 s: a broker upstream of b3 has not answered"):
            await mine.update(limit=5.0, timeout=0.3)
        with pytest.raises(NotSettledError, match=r"broker b1, next to b2, is out of reach"):
            await other.update(limit=7.0, timeout=0.3)
        waiting = asyncio.create_task(mine.update(limit=6.0))
        proxy.refusing = False
        await waiting
        await feed.publish_batch("Quote", quotes(0, 10))
        assert await take(mine, 6) == [0, 1, 2, 3, 4, 5]
        assert await take(other, 7) == [0, 1, 2, 3, 4, 5, 6]


@on_a_loop
async def test_a_restarted_broker_in_the_middle_is_resynchronised() -> None:
    async with (
        Brokers(CHAIN) as overlay,
        Client(overlay.address("b1"), "feed") as feed,
        Client(overlay.address("b2"), "middle") as middle,
        Client(overlay.address("b3"), "reader") as reader,
    ):
        await feed.advertise(QUOTE)
        far = await reader.subscribe("Quote", "price < $limit", limit=100.0)
        near = await middle.subscribe("Quote", "price >= $low", low=50.0)
        await feed.publish_batch("Quote", quotes(0, 60))
        assert await take(far, 60) == list(range(60))
        assert await take(near, 10) == list(range(50, 60))
        before = {name: render(overlay.nodes[name].core).split("interest of")[1:] for name in ("b1", "b3")}
        await overlay.crash("b2")
        far.update_nowait(limit=90.0)
        await until(lambda: "price < 90.0" in render(overlay.nodes["b3"].core))
        await overlay.start("b2")
        await overlay.linked()
        await until(lambda: middle.connected)
        await far.update(limit=80.0)
        await near.update(low=70.0)
        await feed.publish_batch("Quote", quotes(60, 40))
        assert await take(far, 20) == list(range(60, 80))
        assert await take(near, 30) == list(range(70, 100))
        await overlay.quiet()
        after = {name: render(overlay.nodes[name].core).split("interest of")[1:] for name in ("b1", "b3")}
        assert len(after["b1"]) == len(before["b1"])
        assert "price < 80.0" in after["b3"][0]
        asked = render(overlay.nodes["b2"].core)
        assert "price < 80.0" in asked
        assert "price >= 70.0" in asked
        assert "100.0" not in asked


# --- sessions -------------------------------------------------------------------------------------


@on_a_loop
async def test_a_client_resends_its_state_after_its_lease_has_expired() -> None:
    async with Brokers([("b1", "b2")], sessions=SessionLimits(lease_s=0.3)) as overlay:
        proxy = await overlay.proxy("b2")
        async with Client(overlay.address("b1")) as feed, Client(proxy.address, "reader") as reader:
            await feed.advertise(QUOTE)
            mine = await reader.subscribe("Quote", "price < $limit", limit=1.0)
            proxy.refusing = True
            proxy.cut()
            await until(lambda: "client/reader" not in overlay.nodes["b2"].queues)
            await until(lambda: "    slot " not in render(overlay.nodes["b2"].core))
            mine.update_nowait(limit=5.0)
            await feed.publish_batch("Quote", quotes(0, 10), confirm=True)
            proxy.refusing = False
            await mine.update(limit=6.0)
            await feed.publish_batch("Quote", quotes(0, 10))
            assert await take(mine, 6) == [0, 1, 2, 3, 4, 5]


@on_a_loop
async def test_a_name_in_use_is_refused_unless_its_client_does_not_answer() -> None:
    async with Brokers() as overlay:
        proxy = await overlay.proxy("b1")
        lost: list[str] = []
        first = Client(proxy.address, "me", on_state=lambda connected, why: lost.append(why))
        await first.open()
        with pytest.raises(ConnectError, match="a client named 'me' is connected already") as raised:
            await Client(overlay.address("b1"), "me").open()
        assert raised.value.status == "ALREADY_EXISTS"
        assert first.connected
        proxy.freeze()
        async with Client(overlay.address("b1"), "me") as second:
            assert second.connected
            proxy.thaw()
            await until(lambda: not first.connected)
            with pytest.raises(ConnectError, match="it did not answer when another claimed its name"):
                await first.settled()
            assert second.connected
        await first.close()
        await until(lambda: not overlay.nodes["b1"].queues)


# --- slow consumers -------------------------------------------------------------------------------

SMALL = SessionLimits(queue_events=2_000)


async def flood(feed: Client, batches: int, size: int = 500) -> None:
    for first in range(0, batches * size, size):
        await feed.publish_batch("Quote", quotes(first, size))
    await feed.flush()


@on_a_loop
async def test_a_slow_client_with_policy_block_blocks_publishers_and_loses_nothing() -> None:
    links = LinkLimits(queue_bytes=100_000, held_bytes=100_000)
    async with Brokers(CHAIN, sessions=SMALL, link_limits=links) as overlay:
        slow = Client(overlay.address("b3"), "slow", window_bytes=10_000)
        async with Client(overlay.address("b1"), outbox_events=4_000) as feed, slow:
            await feed.advertise(QUOTE)
            mine = await slow.subscribe("Quote", "volume >= $low", low=0)
            total = 100_000
            flooding = asyncio.create_task(flood(feed, total // 1_000, 1_000))
            await until(lambda: overlay.nodes["b3"].queues["client/slow"].full, "the queue fills up")
            queues = [queue for node in overlay.nodes.values() for queue in node.queues.values()]
            held = await at_rest(lambda: sum(queue.link.backlog_events for queue in queues))
            assert not flooding.done(), "nothing held the publisher back"
            assert held < total
            await mine.update(low=-1)  # control still flows
            assert await take(mine, total) == list(range(total))
            await flooding
            assert not overlay.nodes["b3"].queues["client/slow"].drops.by_reason


@on_a_loop
async def test_a_slow_client_with_policy_disconnect_is_disconnected() -> None:
    async with Brokers(sessions=SMALL) as overlay:
        slow = Client(overlay.address("b1"), "slow", window_bytes=1, slow_consumer="disconnect")
        async with Client(overlay.address("b1")) as feed, slow:
            await feed.advertise(QUOTE)
            mine = await slow.subscribe("Quote")
            await asyncio.wait_for(flood(feed, 20), 60)
            with pytest.raises(ConnectError, match="it does not keep up") as raised:
                await take(mine, 10_000)
            assert raised.value.status == "RESOURCE_EXHAUSTED"
            assert "client/slow" not in overlay.nodes["b1"].queues
            await feed.publish_batch("Quote", quotes(0, 10))


# --- what is refused ------------------------------------------------------------------------------


@on_a_loop
async def test_invalid_calls_change_nothing_and_name_the_expected_value() -> None:
    async with (
        Brokers([("b1", "b2")]) as overlay,
        Client(overlay.address("b1")) as feed,
        Client(overlay.address("b2")) as reader,
    ):
        with pytest.raises(
            RefusedError, match=r"broker b2 has no event type 'Quote'; it has none yet \(publishers advertise"
        ) as raised:
            await reader.subscribe("Quote")
        assert raised.value.status == "NOT_FOUND"
        with pytest.raises(RefusedError, match="'Quote' is not advertised by this client") as raised:
            await feed.publish("Quote", volume=1)
        assert raised.value.status == "FAILED_PRECONDITION"
        await feed.advertise(QUOTE)
        mine = await reader.subscribe("Quote", "price < $limit", limit=2.0)
        other = type(QUOTE)("Quote", {"firm": "string", "price": "int64"})
        with pytest.raises(RefusedError, match="attribute price is float64, not int64") as raised:
            await reader.advertise(other)
        assert raised.value.status == "ALREADY_EXISTS"
        outcomes = await asyncio.gather(
            feed.publish("Quote", volume=0, price=0.0),
            feed.publish("Quote", volume="many"),
            feed.publish("Quote", volume=1, price=1.0),
            feed.publish("Quote", firm="x" * 70_000),
            feed.publish("Quote", cost=1),
            return_exceptions=True,
        )
        assert [type(outcome).__name__ for outcome in outcomes] == [
            "NoneType",
            "EventError",
            "NoneType",
            "RefusedError",
            "EventError",
        ]
        assert "has 70020 bytes: expected at most 65536" in str(outcomes[3])
        with pytest.raises(RefusedError, match="bytes: expected at most 65536"):
            await feed.publish_batch(
                "Quote", [{"volume": 2, "firm": "x" * 70_000}, {"volume": 3, "price": 1.5}]
            )
        assert await take(mine, 3) == [0, 1, 3]
