"""Views over real brokers."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import pytest
from running import Brokers, on_a_loop, two_clients, until

from covey.matcher import EventBatch, EventType, FilterError, parse
from covey.matcher.errors import CapacityError, SubscriptionError, VariableError
from covey.overlay import Change, Client, ClosedError, Motion, RefusedError, View
from covey.overlay.client.event import Claim, Part
from covey.overlay.client.view import ViewSubscription
from covey.overlay.core.client.actions import DeliverTo
from covey.overlay.core.client.session import ClientSession
from covey.overlay.core.endpoint.quotas import Bounds

VEHICLE = EventType("Vehicle", {"id": "string", "x": "float64"}, key="id")
CHAIN = [("b1", "b2"), ("b2", "b3")]


async def told(view: View, count: int) -> list[tuple[str, str, float]]:
    """The next changes, those of one batch in order of keys."""
    changes: list[Change] = [await asyncio.wait_for(anext(view), 60) for _ in range(count)]
    return [(change.kind, change.event["id"], change.event["x"]) for change in changes]


async def rest(view: View) -> list[tuple[str, str, float]]:
    """The waiting changes, up to the last."""
    changes = []
    with suppress(TimeoutError):
        while True:
            change = await asyncio.wait_for(anext(view), 0.5)
            changes.append((change.kind, change.event["id"], change.event["x"]))
    return changes


def inside(view: View) -> dict[str, float]:
    rows: Sequence[dict[str, float]] = view.snapshot().to_pylist()
    return {str(row["id"]): row["x"] for row in rows}


@on_a_loop
async def test_a_view_tells_what_is_inside_and_how_it_changes_whoever_moves() -> None:
    async with two_clients(VEHICLE, CHAIN, "b3", "b1") as (_, feed, reader):
        await feed.publish("Vehicle", id="far", x=50.0)
        await feed.publish("Vehicle", id="near", x=5.0, confirm=True)
        view = await reader.view("Vehicle", "x between $low and $high", low=0, high=10)
        assert await told(view, 1) == [("enter", "near", 5.0)]
        await feed.publish("Vehicle", id="near", x=6.0)
        assert await told(view, 1) == [("change", "near", 6.0)]
        await feed.publish("Vehicle", id="near", x=70.0)
        assert await told(view, 1) == [("leave", "near", 70.0)]
        await view.update(low=45, high=75)
        first = await told(view, 1)
        rest = await asyncio.wait_for(anext(view.batches()), 60)  # goes on where the other has stopped
        both = [*first, *((each["change"], each["id"], each["x"]) for each in rest.to_pylist())]
        assert sorted(both) == [("enter", "far", 50.0), ("enter", "near", 70.0)]
        await view.update(low=60)
        assert await told(view, 1) == [("leave", "far", 50.0)]
        assert inside(view) == {"near": 70.0}
        await feed.publish("Vehicle", id="far", x=61.0, confirm=True)
        batch = await asyncio.wait_for(anext(view.batches()), 60)
        assert batch.to_pylist() == [{"id": "far", "x": 61.0, "change": "enter"}]
        await view.close()
        with pytest.raises(StopAsyncIteration):
            await anext(view)


@on_a_loop
async def test_an_update_returns_with_all_that_is_inside_even_if_that_is_more_than_the_credit() -> None:
    async with (
        Brokers(CHAIN) as overlay,
        Client(overlay.address("b3")) as feed,
        Client(overlay.address("b1"), window_bytes=100_000) as reader,
    ):
        await feed.advertise(VEHICLE)
        rows = [{"id": f"{number:0200}", "x": float(number)} for number in range(4_000)]
        await feed.publish_batch("Vehicle", rows, confirm=True)
        view = await reader.view("Vehicle", "x between $low and $high", low=0, high=9)
        assert len(inside(view)) == 10
        await asyncio.wait_for(view.update(low=5, high=3_999), 60)  # 800 kB
        assert len(inside(view)) == 3_995
        await asyncio.wait_for(view.update(low=3_990), 60)
        assert len(inside(view)) == 10


@on_a_loop
async def test_a_view_finds_again_what_is_inside_after_its_broker_or_one_on_the_way_has_restarted() -> None:
    async with two_clients(VEHICLE, CHAIN, "b3", "b1") as (overlay, feed, reader):
        for name, x in (("a", 1.0), ("b", 2.0), ("c", 30.0)):
            await feed.publish("Vehicle", id=name, x=x, confirm=True)
        view = await reader.view("Vehicle", "x <= $high", high=10)
        assert sorted(await told(view, 2)) == [("enter", "a", 1.0), ("enter", "b", 2.0)]
        for broker in ("b1", "b2"):
            await overlay.crash(broker)
            await overlay.start(broker)
            await feed.publish("Vehicle", id="a", x=40.0, confirm=True)
            await until(lambda: inside(view) == {"b": 2.0})
            await feed.publish("Vehicle", id="a", x=1.0, confirm=True)
            await until(lambda: inside(view) == {"a": 1.0, "b": 2.0})


@on_a_loop
async def test_what_waits_for_a_reader_of_snapshots_is_bounded_and_still_told() -> None:
    async with two_clients(VEHICLE, [("b1", "b2")], "b1", "b2") as (_, feed, reader):
        view = await reader.view("Vehicle", "x <= $high", high=10_000)
        for start in range(0, 3_000, 250):
            for x in range(start, start + 250):
                await feed.publish("Vehicle", id=f"v{x % 3}", x=float(x))
            await feed.publish("Vehicle", id="gone", x=float(start), confirm=True)
            await feed.publish("Vehicle", id="gone", x=20_000.0, confirm=True)
            least = start + 247
            await until(lambda least=least: inside(view).get("v0", 0) >= least and "gone" not in inside(view))
        now = inside(view)
        shown: dict[str, float] = {}
        changes = await rest(view)
        assert len(changes) <= 2 * 1024
        for kind, key, x in changes:
            assert (kind == "enter") == (key not in shown)
            shown[key] = x
            if kind == "leave":
                del shown[key]
        assert shown == now
        for high in range(5_000, 5_100):
            view.update_nowait(high=high)
        await view.update(high=-1)
        assert [kind for kind, _, _ in await rest(view)] == ["leave"] * 3


@on_a_loop
async def test_a_box_leaves_later_than_it_enters_if_asked() -> None:
    async with two_clients(VEHICLE, [("b1", "b2")], "b1", "b2") as (_, feed, reader):
        for name, x in (("in", 5.0), ("edge", 12.0), ("out", 30.0)):
            await feed.publish("Vehicle", id=name, x=x, confirm=True)
        box, wider = "x between $low and $high", "x between $low - 5 and $high + 5"
        view = await reader.view("Vehicle", box, leave=wider, low=0, high=10)
        assert str(view.filter) == box
        assert await told(view, 1) == [("enter", "in", 5.0)]
        assert inside(view) == {"in": 5.0}
        for x, kind in ((11.0, "change"), (15.0, "change"), (15.1, "leave"), (10.0, "enter")):
            await feed.publish("Vehicle", id="in", x=14.0 if kind == "enter" else x, confirm=True)
            if kind == "enter":  # not by what it would leave by
                await feed.publish("Vehicle", id="in", x=x, confirm=True)
            assert await told(view, 1) == [(kind, "in", x)]
        await view.update(high=12)
        assert await told(view, 1) == [("enter", "edge", 12.0)]
        await view.update(high=7)
        assert inside(view) == {"in": 10.0, "edge": 12.0}
        await view.update(high=6)
        assert await told(view, 1) == [("leave", "edge", 12.0)]
        narrower = "x between $low + 1 and $high"
        with pytest.raises(FilterError) as refused:
            await reader.view("Vehicle", box, leave=narrower, low=0, high=10)
        assert str(refused.value) == (
            "leave 'x between 1.0 and 10.0': expected a filter that accepts all that "
            "'x between 0.0 and 10.0' accepts"
        )
        with pytest.raises(FilterError) as refused:
            await reader.view("Vehicle", box, leave="x <= $high + 5", low=0, high=10)
        assert str(refused.value) == "leave 'x <= $high + 5': expected the variable $low of the filter in it"
        turns = await reader.view("Vehicle", "x <= $high", leave="x <= 2 * $high", high=10)
        with pytest.raises(FilterError, match=r"expected a filter that accepts all that 'x <= -10.0' "):
            await turns.update(high=-10)
        assert turns.values == {"high": 10}


@on_a_loop
async def test_a_key_without_an_event_for_too_long_leaves() -> None:
    async with two_clients(VEHICLE, CHAIN, "b3", "b1", key_max_age_s={"Vehicle": 0.3}) as (_, feed, reader):
        view = await reader.view("Vehicle", "x <= 10")
        await feed.publish("Vehicle", id="lost", x=1.0, confirm=True)
        assert await told(view, 2) == [("enter", "lost", 1.0), ("leave", "lost", 1.0)]
        await feed.publish("Vehicle", id="lost", x=2.0, confirm=True)
        assert await told(view, 2) == [("enter", "lost", 2.0), ("leave", "lost", 2.0)]


async def _read(view: View, way: str) -> None:
    if way == "snapshot":
        await until(lambda: view.snapshot() is None, "its end")
    async with asyncio.timeout(60):
        while True:
            await anext(view)


@on_a_loop
async def test_a_view_with_too_many_keys_ends_and_holds_up_nobody() -> None:
    async with (
        Brokers([("b1", "b2")]) as overlay,
        Client(overlay.address("b1"), "feed") as feed,
        Client(overlay.address("b2"), window_bytes=50_000) as reader,
    ):
        await feed.advertise(VEHICLE)
        for way in ("snapshot", "iteration"):
            view = await reader.view("Vehicle", max_keys=10)
            assert view.snapshot().num_rows <= 10
            for number in range(400):
                await feed.publish("Vehicle", id=f"{way} {'v' * 100} {number}", x=1.0)
            await feed.flush()
            with pytest.raises(CapacityError, match=r"a view of Vehicle has [0-9]+ .* expected at most 10"):
                await _read(view, way)
            for _ in range(2):
                with pytest.raises(CapacityError):
                    view.snapshot()
                with pytest.raises(CapacityError):
                    await anext(view)
            await feed.unadvertise("Vehicle")
            await feed.advertise(VEHICLE)
        plain = await reader.subscribe("Vehicle", "x > 1")
        for number in range(500):  # more than the credit, were some of it lost
            await feed.publish("Vehicle", id=f"{'v' * 100} {number}", x=2.0)
            assert (await asyncio.wait_for(anext(plain), 60))["x"] == 2.0


@on_a_loop
async def test_what_cannot_be_a_view_is_refused() -> None:
    plain = EventType("Plain", {"id": "string", "x": "float64"})
    async with Brokers([("b1", "b2")]) as overlay, Client(overlay.address("b1")) as client:
        await client.advertise(plain)
        with pytest.raises(FilterError, match="a view of event type Plain without a key"):
            await client.view("Plain", "x < 3")
        await client.advertise(VEHICLE)
        for wrong in (0, -1, "5", 2.5, True, None):
            with pytest.raises(ValueError, match=f"max_keys is {wrong!r}: expected an integer from 1"):
                await client.view("Vehicle", max_keys=wrong)
        with pytest.raises(VariableError, match=r"variable \$x of a view: value 1\+2\*t, expected"):
            await client.view("Vehicle", "x < $x", x=Motion(1.0, 2.0))
        view = await client.view("Vehicle", "x < $x", x=1.0)
        with pytest.raises(VariableError, match=r"variable \$x of a view"):
            await view.update(x=Motion(1.0, 2.0))
        assert view.values == {"x": 1.0}
        assert view.snapshot().num_rows == 0


@on_a_loop
async def test_updates_that_were_merged_and_refused_all_end() -> None:
    bounds = Bounds(session_updates_per_s=1)
    async with Brokers(bounds=bounds) as overlay, Client(overlay.address("b1")) as client:
        await client.advertise(VEHICLE)
        view = await client.view("Vehicle", "x < $limit", limit=0.0)
        other = await client.view("Vehicle", "x < $limit", limit=0.0)
        for number in range(4):  # of each round one message of `view`, the first
            updates = (each.update(limit=float(number)) for each in (view, other, view, view))
            ends = await asyncio.wait_for(asyncio.gather(*updates, return_exceptions=True), 60)
        first, *_ = ends
        assert isinstance(first, RefusedError)


@on_a_loop
async def test_a_view_of_a_widened_type_has_the_attributes_of_its_client_everywhere() -> None:
    named = EventType("Vehicle", {"id": "string", "x": "float64", "name": "string"}, key="id")
    async with two_clients(VEHICLE) as (_, feed, reader):
        view = await reader.view("Vehicle", "x <= $high", high=10)
        await feed.publish("Vehicle", id="old", x=1.0, confirm=True)
        await view.update(high=11)
        await feed.widen(named)
        await reader.widen(named)
        await feed.publish("Vehicle", id="new", x=2.0, name="Ada", confirm=True)
        await view.update(high=12)
        assert {row["id"]: row["name"] for row in view.snapshot().to_pylist()} == {"old": None, "new": "Ada"}
        await view.update(high=0)
        kinds = {}
        async for batch in view.batches():
            kinds |= {(row["change"], row["id"]): row.get("name") for row in batch.to_pylist()}
            if len(kinds) == 4:
                break
        assert kinds["enter", "new"] == kinds["leave", "new"] == "Ada"


@on_a_loop
async def test_a_view_with_too_many_keys_ends_alone_while_its_client_closes() -> None:
    """The client's connection ended with it, and unsent events were lost."""
    keyed = EventType("Keyed", {"id": "int64"}, key="id")
    core = ClientSession("p")
    subscription_id, _ = core.view(parse("id > 0", keyed))

    def unsubscribe(_: object) -> None:
        raise ClosedError("client me is closing")

    async def complete(*_: object) -> None:
        await asyncio.Event().wait()

    owner: Any = SimpleNamespace(core=core, unsubscribe=unsubscribe, complete=complete)
    view = ViewSubscription(owner, subscription_id, core.subscriptions[subscription_id], max_keys=1)
    update = asyncio.create_task(view.complete(None, "an update"))  # it waits for what is inside
    await asyncio.sleep(0)
    batch = EventBatch.from_pylist(keyed, [{"id": 1}, {"id": 2}], publisher="p", first_sequence=1)
    share = DeliverTo(subscription_id, batch, 0, replayed=True, for_views=True)
    view._put(Part(share, core.epoch, Claim(1, 1, lambda: None)))
    update.cancel()
    with pytest.raises(CapacityError):
        View(view).snapshot()


@on_a_loop
async def test_a_view_is_refused_where_deliveries_began_while_its_type_was_looked_up() -> None:
    async with two_clients(VEHICLE) as (_, _, reader):
        view = asyncio.create_task(reader.view("Vehicle", "x < 3"))
        await asyncio.sleep(0)
        reader.deliveries()
        with pytest.raises(SubscriptionError, match=r"with deliveries\(\): expected it without"):
            await asyncio.wait_for(view, 10)
