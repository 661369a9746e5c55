"""Publishing where the advertisement ends meanwhile, or events are large."""

import asyncio

import pytest
from running import QUOTE, Brokers, on_a_loop, two_clients, until

from covey.matcher import EventError, EventType
from covey.overlay import Client, ClosedError, OutboxFullError, RefusedError
from covey.overlay.client.inbox import Listeners
from covey.overlay.core.endpoint.limits import Limits

NOTE = EventType("Note", {"text": "string"})


@on_a_loop
async def test_unadvertise_is_sent_after_events_published_before() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as client:
        await client.advertise(QUOTE)
        mine = await client.subscribe("Quote")
        await asyncio.gather(
            client.publish("Quote", volume=1),
            client.publish_batch("Quote", [{"volume": 2}, {"volume": 3}]),
            client.publish("Quote", volume=4),
            client.unadvertise("Quote"),
        )
        assert [(await anext(mine))["volume"] for _ in range(4)] == [1, 2, 3, 4]
        with pytest.raises(RefusedError, match="'Quote' is not advertised by this client"):
            await client.publish("Quote", volume=5)
        assert client.connected


async def changes(listeners: Listeners) -> list[bool]:
    return [any_ async for any_ in listeners]


@on_a_loop
async def test_an_advertisement_that_a_restarted_broker_refuses_ends_with_its_events_and_listeners() -> None:
    async with Brokers() as overlay:
        proxy = await overlay.proxy("b1")
        async with Client(proxy.address) as first:
            await first.advertise(QUOTE)
            reports = asyncio.create_task(changes(await first.listeners("Quote")))
            proxy.refusing = True
            proxy.cut()
            await overlay.crash("b1")
            await until(lambda: not first.connected)
            early = asyncio.create_task(first.publish("Quote", volume=1, confirm=True))
            await overlay.start("b1")
            async with Client(overlay.address("b1")) as second:
                await second.advertise(EventType("Quote", {"price": "int64"}))
                proxy.refusing = False
                with pytest.raises(RefusedError):
                    await asyncio.wait_for(early, 60)
                with pytest.raises(RefusedError, match="attribute price is int64, not float64"):
                    await asyncio.wait_for(reports, 60)
                with pytest.raises(RefusedError, match="'Quote' is not advertised by this client"):
                    await first.publish("Quote", volume=2)
                assert first.connected
                await first.advertise(NOTE)
                await first.publish("Note", text="still here", confirm=True)


def mixed(large: int, small: int) -> list[dict[str, object]]:
    return [{"text": "x" * 65_000}] * large + [{"text": "y"}] * small


@on_a_loop
@pytest.mark.parametrize("way", ["batch", "single"])
async def test_events_of_mixed_sizes_are_cut_to_fit_frames(way: str) -> None:
    rows = mixed(362, 3_734)
    broken: list[str] = []
    async with (
        Brokers() as overlay,
        Client(overlay.address("b1"), on_state=lambda connected, why: broken.append(why)) as client,
    ):
        broken.clear()
        await client.advertise(NOTE)
        mine = await client.subscribe("Note", 'text == "y"')
        if way == "batch":
            await client.publish_batch("Note", rows)
        else:
            await asyncio.gather(*(client.publish("Note", **row) for row in rows))
        got = 0
        async for batch in mine.batches():
            got += len(batch)
            if got == 3_734:
                break
        assert not broken


@on_a_loop
async def test_a_broker_with_large_frames_has_clients_with_large_frames() -> None:
    async with Brokers(limits=Limits(max_frame_bytes=32 << 20)) as overlay:
        at, broken = overlay.address("b1"), list[str]()
        heard = {"on_state": lambda connected, why: broken.append(why), "window_bytes": 64 << 20}
        async with Client(at, **heard) as feed, Client(at, **heard) as reader:
            broken.clear()
            await feed.advertise(NOTE)
            mine = await reader.subscribe("Note")
            await feed.publish_batch("Note", [{"text": "x" * 60_000}] * 250)
            assert len(await anext(mine.batches())) == 250
            assert not broken


@on_a_loop
async def test_a_data_frame_is_published_as_a_batch() -> None:
    pandas = pytest.importorskip("pandas")
    async with Brokers() as overlay, Client(overlay.address("b1")) as client:
        await client.advertise(QUOTE)
        mine = await client.subscribe("Quote", "volume > 1")
        await client.publish_batch("Quote", pandas.DataFrame({"firm": ["a", "b", "c"], "volume": [1, 2, 3]}))
        batch = await anext(mine.batches())
        assert batch.to_pandas()[["firm", "volume"]].values.tolist() == [["b", 2], ["c", 3]]


@on_a_loop
async def test_a_type_may_stand_for_its_name() -> None:
    async with two_clients(QUOTE) as (_, feed, me):
        quotes = await me.subscribe(QUOTE)
        await feed.publish(QUOTE, volume=1)
        feed.publish_nowait(QUOTE, volume=2)
        await feed.publish_batch(QUOTE, [{"volume": 3}])
        assert [(await anext(quotes))["volume"] for _ in range(3)] == [1, 2, 3]
        with pytest.raises(RefusedError, match="event type 'Other' is not advertised by this client"):
            await feed.publish(EventType("Other", {"x": "int64"}), x=1)


@on_a_loop
async def test_without_waiting_a_full_outbox_is_an_error() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1"), "me", outbox_events=3) as client:
        await client.advertise(QUOTE)
        mine = await client.subscribe("Quote")
        for volume in range(3):
            client.publish_nowait("Quote", {"volume": volume}, firm="IBM")
        full = "Quote: the outbox of client me is full, 3 events are not accepted: expected `publish`"
        with pytest.raises(OutboxFullError, match=full):
            client.publish_nowait("Quote", volume=3)
        with pytest.raises(EventError, match="attribute volume is int64, got 'x'"):
            client.publish_nowait("Quote", volume="x")  # with or without room
        assert [(await anext(mine))["volume"] for _ in range(3)] == [0, 1, 2]
        await client.flush()
        client.publish_nowait("Quote", volume=3)
        assert (await anext(mine))["volume"] == 3
        with pytest.raises(RefusedError, match="'Bond' is not advertised"):
            client.publish_nowait("Bond", volume=3)
    with pytest.raises(ClosedError, match="client me is closed"):
        client.publish_nowait("Quote", volume=4)
