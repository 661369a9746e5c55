"""Views of browsers, slow ones included."""

from typing import Any

import pyarrow as pa
import pytest
from gateways import Browser, gateway_to, served
from running import Brokers, on_a_loop

from covey.gateway import Limits
from covey.gateway import upstream as upstreams
from covey.gateway.messages import View
from covey.gateway.upstream import Access, Upstream
from covey.matcher import EventType
from covey.overlay import Client

SHIP = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")
BOX = {"type": "Ship", "filter": "x between $x0 and $x1"}


def ships(*places: tuple[int, int]) -> list[dict[str, object]]:
    return [{"id": ship, "x": x} for ship, x in places]


def taken(browser: Browser) -> list[tuple[str, int, int]]:
    """The received changes, in order."""
    messages = [each for each in browser.other if each["kind"] == "changes"]
    browser.other = [each for each in browser.other if each["kind"] != "changes"]
    return [
        (kind, event["id"], event["x"])
        for message in messages
        for kind, event in zip(message["changes"], message["events"], strict=True)
    ]


@on_a_loop
async def test_changes_come_before_the_answers_that_they_belong_to() -> None:
    async with Brokers([("b1", "b2")]) as overlay, Client(overlay.address("b2")) as exchange:
        await exchange.advertise(SHIP)
        await exchange.publish_batch("Ship", ships((1, 1), (2, 20), (3, 3)), confirm=True)
        async with gateway_to(overlay.address("b1")) as address, Browser(address) as browser:
            answer = await browser.request("view", subscription=1, values={"x0": 0, "x1": 9}, **BOX)
            assert (answer["key"], answer["attributes"]) == ("id", {"id": "int64", "x": "int64"})
            assert sorted(taken(browser)) == [("enter", 1, 1), ("enter", 3, 3)]
            places, inside = {1: 1, 2: 20, 3: 3}, {1, 3}
            for turn in range(20):
                low = (0, 15, 2)[turn % 3]
                await browser.request("update", subscription=1, values={"x0": low, "x1": low + 10})
                for kind, ship, _ in taken(browser):
                    assert (ship in inside) is (kind == "leave")
                    inside ^= {ship}
                assert inside == {ship for ship, x in places.items() if low <= x <= low + 10}
            await exchange.publish_batch("Ship", ships((3, 99)), confirm=True)
            await browser.request("update", subscription=1, values={"x0": 2, "x1": 25})
            taken(browser)
            await exchange.publish_batch("Ship", ships((2, 21)))
            await exchange.publish_batch("Ship", ships((2, 26)))
            await browser.until("changes", changes=["leave"])
            assert taken(browser) == [("change", 2, 21)]
            for wrong, why in (
                ({"values": {"x0": "a"}}, "variable $x0: value 'a', expected a number"),
                ({"values": {}, "gapless": True}, "update: gapless is true, and 1 is a view: expected false"),
            ):
                assert (await browser.request("update", subscription=1, **wrong))["message"] == why
            assert (await browser.request("unsubscribe", subscription=1))["kind"] == "answer"
            await exchange.publish_batch("Ship", ships((1, 5)), confirm=True)
            assert (await browser.request("view", subscription=1, type="Ship"))["kind"] == "answer"
            assert len(taken(browser)) == 3


@on_a_loop
async def test_keys_leave_later_than_they_enter() -> None:
    leave = "x between $x0 - 5 and $x1 + 5"
    async with Brokers() as overlay, Client(overlay.address("b1")) as exchange:
        await exchange.advertise(SHIP)
        await exchange.publish_batch("Ship", ships((1, 1), (2, 12)), confirm=True)
        async with gateway_to(overlay.address("b1")) as address, Browser(address) as browser:
            values = {"x0": 0, "x1": 9}
            await browser.request("view", subscription=1, leave=leave, values=values, **BOX)
            assert taken(browser) == [("enter", 1, 1)]
            for x, change in ((14, "change"), (15, "leave"), (14, None), (9, "enter"), (-5, "change")):
                await exchange.publish_batch("Ship", ships((1, x)), confirm=True)
                await browser.request("update", subscription=1, values={})
                assert taken(browser) == ([] if change is None else [(change, 1, x)])
            await browser.request("update", subscription=1, values={"x0": 1, "x1": 10})
            assert taken(browser) == [("leave", 1, -5)]
            for wrong, why in (
                ("x > $x0", "leave 'x > $x0': expected the variable $x1 of the filter in it"),
                ("x between $x0 and $x1 - 1", "expected a filter that accepts all that"),
                ("x between", "expected a number or a variable"),
                ("x > 0 or " * 1_000, "view: leave: max_filter_bytes is 4096"),
                (7, "view: leave is 7: expected"),
            ):
                refused = await browser.request("view", subscription=2, leave=wrong, values=values, **BOX)
                assert refused["kind"] == "error"
                assert why in refused["message"]


@on_a_loop
async def test_who_does_not_read_is_behind_and_never_wrong() -> None:
    """Nobody else is behind; a subscription beside the view drops events."""
    limits = Limits(queue_bytes=20_000, window_bytes=5_000)
    async with (
        served(SHIP, limits=limits) as (exchange, address),
        Browser(address) as slow,
        Browser(address) as quick,
    ):
        for browser in (slow, quick):
            await browser.request("view", subscription=1, type="Ship", filter="x >= 0")
        await slow.request("subscribe", subscription=2, type="Ship")
        inside: dict[str, dict[int, int]] = {"slow": {}, "quick": {}}
        newest: dict[int, int] = {}
        counts = {"changes": 0, "conflated": 0, "overflow": 0}
        for turn in range(60):
            batch = [(ship, turn if (ship + turn) % 7 else -1) for ship in range(100)]
            newest.update(batch)
            await exchange.publish_batch("Ship", ships(*batch), confirm=True)
        expected = {ship: x for ship, x in newest.items() if x >= 0}

        def take(name: str, message: dict[str, Any]) -> None:
            if message["kind"] == "changes":
                for kind, event in zip(message["changes"], message["events"], strict=True):
                    assert (event["id"] in inside[name]) is (kind != "enter")
                    if kind == "leave":
                        del inside[name][event["id"]]
                    else:
                        inside[name][event["id"]] = event["x"]
            if name == "slow" and message["kind"] == "changes":
                counts["changes"] += len(message["events"])
            elif name == "slow" and message["kind"] == "gap":
                counts[message["cause"]] += message["count"]

        for name, browser in (("quick", quick), ("slow", slow)):
            while inside[name] != expected:
                take(name, await browser.next())
                await browser.say("acknowledge", received=browser.received)
        await slow.say("update", request=90, subscription=1, values={})
        while (message := await slow.next()).get("request") != 90:
            take("slow", message)
            await slow.say("acknowledge", received=slow.received)
        assert inside["slow"] == expected
        assert counts["conflated"] > 0
        assert counts["overflow"] > 0


@on_a_loop
async def test_arrow_and_bounds() -> None:
    limits = Limits(max_views=2, max_view_keys=5)
    async with Brokers() as overlay, Client(overlay.address("b1")) as exchange:
        await exchange.advertise(SHIP)
        await exchange.advertise(EventType("Note", {"text": "string"}))
        await exchange.publish_batch("Ship", ships(*((ship, ship) for ship in range(5))), confirm=True)
        async with (
            gateway_to(overlay.address("b1"), limits=limits) as address,
            Browser(address, format="arrow") as browser,
        ):
            await browser.say("view", request=1, subscription=1, type="Ship", filter="x >= 3")
            message = await browser.until("changes")
            with pa.ipc.open_stream(message["arrow"]) as stream:
                assert sorted(stream.read_all().to_pylist(), key=str) == ships((3, 3), (4, 4))
            assert message["changes"] == ["enter", "enter"]
            await browser.until("answer", request=1)
            await browser.request("view", subscription=2, type="Ship")
            for wrong, why in (
                ({"subscription": 1}, "view: subscription is 1: expected one that is not in use"),
                ({"subscription": 3}, "view 3: max_views is 2"),
            ):
                assert (await browser.request("view", type="Ship", **wrong))["message"] == why
            await exchange.publish_batch("Ship", ships((5, 0)), confirm=True)
            ended = await browser.until("error")
            assert (ended["subscription"], ended["status"]) == (2, "RESOURCE_EXHAUSTED")
            assert ended["message"].startswith("the view has ended, max_view_keys is 5: ")
            refused = await browser.request("view", subscription=3, type="Note")
            assert "Note" in refused["message"]
            await browser.request("update", subscription=1, values={})
            again = await browser.request("view", subscription=2, type="Ship", filter="x < 2")
            assert again["kind"] == "answer"


@pytest.mark.parametrize("policy", ["block", "disconnect"])
@on_a_loop
async def test_other_policies(policy: str) -> None:
    """A browser that blocks has all changes."""
    limits = Limits(queue_bytes=20_000, window_bytes=5_000)
    async with (
        served(SHIP, limits=limits, allow_block=True) as (exchange, address),
        Browser(address, overflow=policy) as browser,
    ):
        await browser.request("view", subscription=1, type="Ship")
        for turn in range(30):
            await exchange.publish_batch("Ship", ships(*((each, turn) for each in range(100))))
        seen, got = {}, 0
        while seen != dict.fromkeys(range(100), 29):
            message = await browser.next()
            await browser.say("acknowledge", received=browser.received)
            if message["kind"] == "changes":
                seen.update({event["id"]: event["x"] for event in message["events"]})
                got += len(message["events"])
        assert got <= 3_000


@on_a_loop
async def test_a_browser_that_asks_for_more_attributes_changes_no_view_of_another() -> None:
    """Both views share a client, which requests the attributes of both from then on."""
    named = EventType("Ship", {"id": "int64", "x": "int64", "name": "string"}, key="id")
    async with served(SHIP) as (exchange, address), Browser(address) as first:
        await first.request("view", subscription=1, type="Ship", filter="x >= 0")
        await exchange.publish_batch("Ship", ships((1, 1)), confirm=True)
        await first.until("changes")
        await exchange.widen(named)
        async with Browser(address) as second:
            await second.request("view", subscription=1, type="Ship", filter="name == 'Ada'")
            await exchange.publish("Ship", id=1, x=2, name="Ada", confirm=True)
            change = await second.until("changes")
            assert change["events"] == [{"id": 1, "x": 2, "name": "Ada"}]
            change = await first.until("changes", changes=["change"])
            assert change["events"] == [{"id": 1, "x": 2}]


@on_a_loop
async def test_a_view_that_finds_no_broker_ends_no_view_of_another() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as exchange:
        await exchange.advertise(SHIP)
        async with gateway_to(overlay.address("b1")) as address, Browser(address) as first:
            await first.request("view", subscription=1, type="Ship")
            async with Browser(address) as second:
                await overlay.crash("b1")
                refused = await second.request("view", subscription=1, type="Truck")
                assert (refused["kind"], refused["status"]) == ("error", "UNAVAILABLE")
                await overlay.start("b1")
                await exchange.publish_batch("Ship", ships((1, 1)), confirm=True)
                change = await first.until("changes")
                assert change["events"] == [{"id": 1, "x": 1}]
                assert (await second.request("view", subscription=1, type="Ship"))["kind"] == "answer"


@on_a_loop
async def test_a_client_of_views_that_has_ended_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clients: list[Client] = []

    def opened(*arguments: Any, **named: Any) -> Client:
        clients.append(Client(*arguments, **named))
        return clients[-1]

    monkeypatch.setattr(upstreams, "Client", opened)
    async with Brokers() as overlay, Client(overlay.address("b1")) as exchange:
        await exchange.advertise(SHIP)
        upstream = Upstream(Access(overlay.address("b1")), block=False)
        await upstream.open()
        try:
            message = View(request=1, subscription=1, type="Ship", filter="x < 9")
            first, second = [await upstream.view(message, 10) for _ in range(2)]
            _, of_views = clients  # one for subscriptions, and one for both views
            await of_views.close()
            for view in (first, second):
                with pytest.raises(StopAsyncIteration):
                    await anext(view)
            third = await upstream.view(message, 10)
            assert len(clients) == 3
            await exchange.publish_batch("Ship", ships((1, 1)), confirm=True)
            assert (await anext(third)).event["id"] == 1
        finally:
            await upstream.close()
