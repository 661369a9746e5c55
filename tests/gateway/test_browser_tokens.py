"""Browsers with tokens: the broker decides on rights, and a notice precedes a token's end."""

from typing import Any

import pytest
from gateways import BrokerClient, Browser, EventSource, gateway_to, token, token_rules
from made_certificates import overlay_files, tls_of
from running import QUOTE, Brokers, on_a_loop
from websockets.exceptions import ConnectionClosed

from covey.gateway import session, upstream
from covey.gateway.limits import Limits
from covey.gateway.messages import Hello
from covey.gateway.sessions import Holder, Sessions
from covey.gateway.upstream import Access
from covey.matcher import EventBatch, EventType
from covey.overlay import Client

HIDDEN = EventType("Hidden", {"x": "int64"})


@on_a_loop
async def test_each_browser_has_the_rights_of_its_token() -> None:
    async with (
        Brokers(tls=overlay_files(), clients=token_rules()) as overlay,
        Client(overlay.address("b1"), tls=tls_of(), token=token("exchange")) as exchange,
        gateway_to(overlay.address("b1"), tls=tls_of(), publish=["*"]) as address,
    ):
        await exchange.advertise(QUOTE)
        await exchange.advertise(HIDDEN)
        async with (
            Browser(address, token=token("alice")) as alice,
            Browser(address, token=token("exchange")) as master,
        ):
            assert (await alice.request("subscribe", subscription=1, type="Quote"))["kind"] == "answer"
            for answer in (
                await alice.request("subscribe", subscription=2, type="Hidden"),
                await alice.request("publish", type="Quote", events=[{"price": 1}]),
            ):
                assert (answer["kind"], answer["status"]) == ("error", "PERMISSION_DENIED")
            answer = await master.request("publish", type="Quote", events=[{"price": 1}])
            assert answer["kind"] == "answer"
            assert [event["price"] for event in await alice.events(1)] == [1]
            stolen = Browser(address, session=master.welcome["session"])  # without its token
            with pytest.raises(AssertionError, match="expected a token or a client's certificate"):
                await stolen.open()
        async with EventSource(address, "/events/Quote") as source:
            assert source.status == 401
            await source.open(f"Authorization: Bearer {token('bob')}")
            assert source.status == 200
        with pytest.raises(AssertionError, match="it has expired"):
            await Browser(address, token=token("alice", -5)).open()


@on_a_loop
async def test_a_token_is_taken_when_the_broker_has_accepted_it() -> None:
    async with (
        Brokers(tls=overlay_files(), clients=token_rules()) as overlay,
        Client(overlay.address("b1"), tls=tls_of(), token=token("exchange")) as exchange,
        gateway_to(overlay.address("b1"), tls=tls_of()) as address,
    ):
        await exchange.advertise(QUOTE)
        async with Browser(address, token=token("alice")) as alice:
            for number, wrong in enumerate(("garbage", token("alice", -5), token("bob")), 1):
                answer = await alice.request("authenticate", token=wrong)
                assert answer["kind"] == "error"
                assert answer["status"] in ("UNAUTHENTICATED", "PERMISSION_DENIED"), answer
                subscribed = await alice.request("subscribe", subscription=number, type="Quote")
                assert subscribed["kind"] == "answer"
            assert (await alice.request("authenticate", token=token("alice")))["kind"] == "answer"


@on_a_loop
async def test_the_end_of_a_token_is_told_and_another_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        Brokers(tls=overlay_files(), clients=token_rules()) as overlay,
        Client(overlay.address("b1"), tls=tls_of(), token=token("exchange")) as exchange,
        gateway_to(overlay.address("b1"), tls=tls_of()) as address,
    ):
        await exchange.advertise(QUOTE)
        for lifetime_s in (2.0, 6.0, 40.0):  # a machine may stand still for longer than a token lives
            try:
                await play_the_end(exchange, address, monkeypatch, lifetime_s)
                break
            except (AssertionError, ConnectionClosed):
                if lifetime_s == 40.0:
                    raise


async def play_the_end(
    exchange: Client, address: str, monkeypatch: pytest.MonkeyPatch, lifetime_s: float
) -> None:
    monkeypatch.setattr(session, "_TOLD_BEFORE_S", lifetime_s * 2 / 3)
    async with (
        Browser(address, token=token("alice", lifetime_s)) as ending,
        Browser(address, token=token("alice", lifetime_s)) as going_on,
    ):
        for browser in (ending, going_on):
            await browser.request("subscribe", subscription=1, type="Quote")
        for browser in (ending, going_on):
            assert 0 <= (await browser.until("expiry"))["expires_in_s"] <= lifetime_s * 2 / 3
        assert (await going_on.request("authenticate", token=token("alice", 100)))["kind"] == "answer"
        error = await ending.until("error")
        assert (error["status"], error.get("request")) == ("UNAUTHENTICATED", None)
        assert "the token has expired" in error["message"] or "it has expired" in error["message"]
        await ending.socket.wait_closed()
        assert ending.socket.close_code == 1008
        await going_on.until("connection", connected=True)  # the broker has ended the old token's connection
        await exchange.publish("Quote", firm="IBM", price=1.0, volume=1)
        assert [event["price"] for event in await going_on.events(1)] == [1.0]


@pytest.mark.parametrize("received", [0, 99])
@on_a_loop
async def test_a_session_keeps_its_token_where_a_hello_does_not_go_on_with_it(
    received: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream, "Client", lambda *_, **__: BrokerClient(EventBatch.from_pylist(HIDDEN, [])))
    sessions = Sessions(Access("localhost:1"), Limits(), ())

    async def opened(**hello: Any) -> tuple[session.Session, bool]:
        return await sessions.open(Hello(**hello), Holder(), "127.0.0.1")

    kept, _ = await opened(token="old")
    assert kept.token is not None
    other, goes_on = await opened(session=kept.id, received=received)
    assert (other is kept, goes_on, kept.token()) == (False, False, "old")
    other, goes_on = await opened(session=kept.id, received=received, token="new")
    assert (other is kept, goes_on) == (received == 0, received == 0)
    assert kept.token() == ("new" if received == 0 else "old")
    await sessions.close()
