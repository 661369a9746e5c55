"""`Client.update_many`: many subscriptions move in one frame, independently."""

import pytest
from running import QUOTE, Brokers, on_a_loop, two_clients, until
from tables import grown, tables

from covey.overlay import Client, ClosedError, NotSettledError, UpdateError

CLIENT = "covey.overlay.client"


@on_a_loop
async def test_all_move_in_one_frame_and_have_taken_effect() -> None:
    async with (
        Brokers([("b1", "b2")]) as overlay,
        Client(overlay.address("b1")) as feed,
        Client(overlay.address("b2"), "me") as me,
    ):
        await feed.advertise(QUOTE)
        quotes = [await me.subscribe(QUOTE, "price < $limit", limit=i) for i in range(50)]
        link = overlay.nodes["b2"].queues["client/me"].link
        await overlay.quiet()
        frames = link.received
        await me.update_many({each: {"limit": 100 + each.id} for each in quotes})
        assert link.received == frames + 1
        held = overlay.nodes["b2"].core.tables.peers["client/me"].subscriptions
        assert {i: interest.values["limit"] for i, interest in held.items()} == {
            each.id: 100 + each.id for each in quotes
        }
        await feed.publish("Quote", price=100.5)
        for each in quotes:
            assert (await anext(each))["price"] == 100.5
        await me.update_many({})
        await me.update_many({quotes[0]: quotes[0].values})  # nothing differs
        await overlay.quiet()
        assert link.received == frames + 1


@on_a_loop
async def test_it_names_those_that_have_failed_and_the_others_stand() -> None:
    async with two_clients(QUOTE) as (_, me, other):
        good, wrong, ended = [await me.subscribe(QUOTE, "price < $limit", limit=1) for _ in range(3)]
        await ended.unsubscribe()
        with pytest.raises(UpdateError) as raised:
            await me.update_many({good: {"limit": 5}, wrong: {"limit": "x"}, ended: {"limit": 2}})
        assert str(raised.value).startswith(
            f"2 of 3 updates failed: subscription {wrong.id}: variable $limit: value 'x', expected a number; "
            f"subscription {ended.id}: "
        )
        assert list(raised.value.failed) == [wrong.id, ended.id]
        assert (good.values, wrong.values) == ({"limit": 5.0}, {"limit": 1.0})
        with pytest.raises(ValueError, match="update of 3: expected a subscription of client"):
            await me.update_many({good: {"limit": 6}, 3: {}})
        with pytest.raises(ValueError, match="to 6: expected values by variable"):
            await me.update_many({good: 6})
        with pytest.raises(ValueError, match="expected a subscription of client"):
            await other.update_many({good: {"limit": 6}})
        assert good.values == {"limit": 5.0}


@on_a_loop
async def test_it_times_out_and_ends_with_the_client() -> None:
    link = ("b1", "b2")
    async with Brokers([link], proxied=[link]) as overlay, Client(overlay.address("b1")) as feed:
        await feed.advertise(QUOTE)
        me = Client(overlay.address("b2"))
        await me.open()
        quotes = await me.subscribe("Quote", "price < $limit", limit=1)
        proxy = overlay.proxies[link]
        proxy.refusing = True
        proxy.cut()
        await until(lambda: not overlay.nodes["b2"].queues["broker/b1"].connected)
        before = tables(me, CLIENT)
        with pytest.raises(NotSettledError, match=r"one of 1 updates has not taken effect .* within 0.1 s"):
            await me.update_many({quotes: {"limit": 2}}, timeout=0.1)
        assert not grown(before, tables(me, CLIENT))
        proxy.refusing = False
        await me.settled()
        await me.close()
        with pytest.raises(ClosedError, match="is closed"):
            await me.update_many({quotes: {"limit": 3}})
