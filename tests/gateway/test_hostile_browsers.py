"""Hostile browsers: one clear message each, bounded memory, and no effect on others."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from unittest.mock import patch

import pytest
from gateways import Browser, EventSource, gateway_to, page_of, served, with_short
from running import QUOTE, Brokers, on_a_loop, until
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from covey.gateway import Limits, application, browser_queue
from covey.gateway.application import hosts_of
from covey.gateway.upstream import Upstream
from covey.matcher.errors import InputError

SUBSCRIBE = {"kind": "subscribe", "request": 4, "subscription": 9, "type": "Quote"}
UPDATE = {"kind": "update", "request": 4, "subscription": 1}
PUBLISH = {"kind": "publish", "request": 4, "type": "Quote"}
X = {**SUBSCRIBE, "filter": "price < $x"}
WRONG = [
    ("{", "the message is no JSON: unexpected end of data"),
    ("[" * 5_000, "the message is no JSON: "),
    ("[]", "the message is a JSON array: expected an object"),
    ("7", "the message is a JSON number: expected an object"),
    ("{}", "the message has no kind: expected one of hello, subscribe, view, update,"),
    ('{"kind": "subscrib"}', "kind is 'subscrib': did you mean subscribe?"),
    ('{"kind": ["x"]}', "kind is ['x']: expected one of hello, subscribe,"),
    ({"kind": "subscribe"}, "subscribe: request is missing"),
    ({**SUBSCRIBE, "filtr": ""}, "subscribe: filtr is unknown: did you mean filter?"),
    ({**SUBSCRIBE, "request": "4"}, "subscribe: request is '4': expected a valid integer"),
    ({**SUBSCRIBE, "subscription": -1}, "subscribe: subscription is -1: expected a number greater than"),
    ({**SUBSCRIBE, "filter": "price << 3"}, "expected a number or a variable after <\n  price << 3\n  "),
    ({**SUBSCRIBE, "filter": "prize < 3"}, "prize"),
    (X, "$x"),
    ({**X, "values": {"x": "y"}}, "variable $x: value 'y', expected a number"),
    ({**X, "values": {"x": {"value": 1}}}, "expected a value, or {value, rate}"),
    ({**SUBSCRIBE, "type": "Nope"}, "has no event type 'Nope'; it has Quote"),
    ({**SUBSCRIBE, "subscription": 1}, "subscribe: subscription is 1: expected one that is not in use"),
    ({**UPDATE, "subscription": 5, "values": {}}, "subscription is 5: expected one of this session"),
    ({**UPDATE, "values": {"y": 1}}, "y"),
    ({**UPDATE, "kind": "unsubscribe", "subscription": 5}, "subscription is 5: expected one of this session"),
    ({"kind": "acknowledge", "received": 10**9}, "received is 1000000000: expected the number of a message"),
    ({"kind": "hello"}, "hello: expected as the first message alone"),
    ({"kind": "authenticate", "request": 4, "token": "x"}, "the session has no token: expected one in hello"),
    ({**PUBLISH, "type": "Order", "events": []}, "expected one that browsers may publish (Q*)"),
    ({**PUBLISH, "events": [{"price": "x"}]}, "event 0 of Quote: attribute price is float64, got 'x' (str)"),
    ({**PUBLISH, "events": [{"prize": 1}]}, "prize"),
    (b"\x00" * 10, "a binary message of 10 bytes: expected text, which is JSON"),
    ('{"kind": ' + "[" * 1_000 + "]" * 1_000 + "}", "the message is nested too deeply"),
    ({**SUBSCRIBE, "type": "x" * 60_000}, "has no event type 'xxx"),
    ({**SUBSCRIBE, "filter": "not " * 15_000 + "price < 3"}, "subscribe: filter: max_filter_bytes is 4096"),
]


STATUSES = ("RESOURCE_EXHAUSTED", "INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "FAILED_PRECONDITION")


@asynccontextmanager
async def everybody_else(limits: Limits | None = None, **options: object) -> AsyncIterator[str]:
    """A gateway's address; at the end another of its browsers still gets events."""
    async with (
        served(QUOTE, limits=limits, publish=["Q*"], **options) as (exchange, address),
        Browser(address) as other,
    ):
        await other.request("subscribe", subscription=1, type="Quote", filter="firm == 'other'")
        yield address
        await exchange.publish("Quote", firm="other", price=1.0, volume=1)
        assert (await other.events(1))[0]["firm"] == "other"


@on_a_loop
async def test_messages_that_are_wrong_are_answered_and_change_nothing() -> None:
    async with everybody_else() as address, Browser(address) as browser:
        x = {"filter": "price < $x", "values": {"x": 10}}
        await browser.request("subscribe", subscription=1, type="Quote", **x)
        for message, why in WRONG:
            raw = json.dumps(message) if isinstance(message, dict) else message
            await browser.socket.send(raw)
            error = await browser.next()
            assert error["kind"] == "error"
            assert why in error["message"], message
            number = message.get("request") if isinstance(message, dict) else None
            assert error.get("request") == (4 if number == 4 else None)
            assert error["status"] in STATUSES
            assert len(error["message"]) < 600
        assert (await browser.request("update", subscription=1, values={"x": 5}))["kind"] == "answer"


@on_a_loop
async def test_a_message_of_100_mb_ends_its_connection_before_it_is_read() -> None:
    async with everybody_else() as address, Browser(address) as browser:
        part = b"x" * 1_000_000
        with suppress(ConnectionClosed):
            await browser.socket.send(part for _ in range(100))
        await browser.socket.wait_closed()
        assert browser.socket.close_code == 1009
        assert "65536" in (browser.socket.close_reason or "")


@on_a_loop
async def test_a_message_that_is_too_large_costs_no_session_where_the_server_has_no_bound() -> None:
    """The mounted gateway gets the whole message. Its error must have no number, which the next connection
    would give to another message."""
    async with Brokers(event_types=(QUOTE,)) as overlay:
        app = application(overlay.address("b1"))
        async with page_of(app) as address, Browser(address) as browser:
            await browser.request("subscribe", subscription=1, type="Quote")
            await browser.socket.send("x" * 70_000)
            with suppress(ConnectionClosed):
                while True:
                    await browser.next()
            assert (browser.socket.close_code, "65536" in browser.socket.close_reason) == (1009, True)
            await browser.resume()
            assert browser.welcome["resumed"]


@on_a_loop
async def test_who_acknowledges_behind_many_requests_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway stops reading while many answers wait; these wait for the acknowledgement that it would
    read next."""
    monkeypatch.setattr(browser_queue, "_MOST_CONTROL", 100)
    limits = Limits(window_bytes=2_000, max_messages_per_s=100_000)
    async with served(QUOTE, limits=limits) as (_, address), Browser(address) as browser:
        answered: list[int] = []
        codes = []
        while len(answered) < 300:
            with suppress(ConnectionClosed):
                for number in range(browser.welcome.get("request", 0) + 1, 301):
                    await browser.say("update", request=number, subscription=9, values={})
            with suppress(ConnectionClosed):
                while len(answered) < 300:
                    answered.append((await browser.next())["request"])
                    with suppress(ConnectionClosed):  # what has come is read all the same
                        await browser.say("acknowledge", received=browser.received)
                break
            codes.append(browser.socket.close_code)
            await browser.resume()
            assert browser.welcome["resumed"]
        assert answered == [*range(1, 301)]
        assert codes == [1013] * len(codes) != []


@on_a_loop
async def test_sockets_of_one_address_are_bounded() -> None:
    async with everybody_else(Limits(max_connections_per_address=6)) as address:
        host, _, port = address.rpartition(":")
        silent = [await asyncio.open_connection(host, int(port)) for _ in range(5)]  # and the other browser
        for _ in range(50):
            with pytest.raises(InvalidStatus) as refusal:
                await connect(f"ws://{address}/socket")
            assert refusal.value.response.status_code == 429
            why = b"max_connections_per_address is 6, and 127.0.0.1 has them"
            assert why in (refusal.value.response.body or b"")
        for _, writer in silent:
            writer.close()

        async def is_let_in() -> bool:
            try:
                async with Browser(address):
                    return True
            except InvalidStatus:
                return False

        await until(is_let_in)
        health = EventSource(address, "/health")
        await health.open()
        assert (await health.body())["refused_connections"] >= 50
        health.writer.close()


@on_a_loop
async def test_bounds_of_one_browser() -> None:
    limits = Limits(max_subscriptions=2, max_sessions=2, max_messages_per_s=50)
    async with everybody_else(limits) as address, Browser(address) as browser:
        for number in (1, 2):
            assert (await browser.request("subscribe", subscription=number, type="Quote"))["kind"] == "answer"
        error = await browser.request("subscribe", subscription=3, type="Quote")
        assert error["status"] == "RESOURCE_EXHAUSTED"
        assert error["message"] == "subscription 3: max_subscriptions is 2"
        async with connect(f"ws://{address}/socket") as socket:
            await socket.send('{"kind": "hello"}')
            assert "max_sessions is 2, and the gateway has them" in str(await socket.recv())
        loop = asyncio.get_running_loop()
        start = loop.time()
        for number in range(80):
            await browser.say("update", request=100 + number, subscription=1, values={})
        await browser.until("answer", request=179)
        assert loop.time() - start > 0.4  # 50 at once, or in a second


@pytest.mark.thorough
@on_a_loop
async def test_a_browser_that_sends_and_never_reads_is_read_no_more() -> None:
    """Errors are answers that are never dropped, so their sender has to read them."""
    limits = Limits(max_messages_per_s=1_000_000, window_bytes=1_000)
    async with everybody_else(limits) as address, Browser(address) as browser:
        sent = 0

        async def flood() -> None:
            nonlocal sent
            while True:
                await browser.socket.send("?" * 4_000)
                sent += 1

        flooding = asyncio.create_task(flood())
        while True:
            before = sent
            await asyncio.sleep(0.3)
            if sent == before:
                break
        flooding.cancel()
        assert sent < 10_000
        browser.socket.transport.abort()


@on_a_loop
async def test_pages_from_elsewhere() -> None:
    async with everybody_else(origins=["https://app.example"]) as address:
        for origin in ("https://app.example", f"http://{address}"):
            async with connect(f"ws://{address}/socket", origin=origin):
                pass
        for origin in ("https://evil.example", "null", "http://[::1"):
            with pytest.raises(InvalidStatus) as refusal:
                await connect(f"ws://{address}/socket", origin=origin)
            assert refusal.value.response.status_code == 403
            assert f"origin is {origin!r}" in (refusal.value.response.body or b"").decode()


@contextmanager
def counted_attempts() -> Iterator[list[int]]:
    """How often a gateway begins to connect."""
    found, begin = [0], Upstream.open

    async def open_one(upstream: Upstream) -> None:
        found[0] += 1
        await begin(upstream)

    with patch.object(Upstream, "open", open_one):
        yield found


def test_the_names_of_a_gateway() -> None:
    assert set(hosts_of("127.0.0.1:80", ("app.example",))) == {"localhost", "127.0.0.1", "::1", "app.example"}
    assert "127.0.0.2" in hosts_of("127.0.0.2:80", ())
    assert hosts_of("10.0.0.1:80", ()) == hosts_of("unix:/tmp/x", ()) == ()
    assert hosts_of("10.0.0.1:80", ("app.example",)) == ("app.example",)


@on_a_loop
async def test_pages_whose_name_was_made_that_of_this_machine() -> None:
    """DNS rebinding: the origin of such a page is the host that it names."""
    async with everybody_else(hosts=hosts_of("127.0.0.1:8080", ("App.example",))) as address:
        port = address.rpartition(":")[2]
        for host in (f"localhost:{port}", f"[::1]:{port}", "APP.example", f"app.example:{port}"):
            assert (await reply(address, host, "/socket", *UPGRADE)).startswith("HTTP/1.1 101 ")
            assert (await reply(address, host, "/health")).startswith("HTTP/1.1 200 ")
        for host in (f"evil.example:{port}", "", "localhost.evil.example", "[::1"):
            known = "127.0.0.1, ::1, app.example, localhost"
            for path, headers in (("/socket", UPGRADE), ("/health", ())):
                refusal = await reply(address, host, path, f"Origin: http://{host}", *headers)
                assert refusal.startswith("HTTP/1.1 403 ")
                assert refusal.endswith(f"\r\n\r\nhost is {host!r}: expected one of {known} (--host)\n")


UPGRADE = (
    "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
)  # fmt: skip


async def reply(address: str, host: str, path: str, *headers: str) -> str:
    """The bytes until the end, or until a WebSocket is open."""
    name, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(name, int(port))
    lines = (f"GET {path} HTTP/1.1", f"Host: {host}", *(headers or ("Connection: close",)), "", "")
    writer.write("\r\n".join(lines).encode())
    text = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    if b" 101 " not in text:
        length = re.search(rb"(?i)content-length: (\d+)", text)
        text += b"" if length is None else await asyncio.wait_for(reader.readexactly(int(length[1])), 60)
    writer.close()
    return text.decode()


@on_a_loop
async def test_a_broker_that_is_away() -> None:
    async with (
        gateway_to("127.0.0.1:1", limits=Limits(timeout_s=1)) as address,
        AsyncExitStack() as stack,
    ):
        # All share one attempt: in turns the last would wait for all others.
        sockets = [await stack.enter_async_context(connect(f"ws://{address}/socket")) for _ in range(20)]
        with counted_attempts() as attempts:
            for socket in sockets:
                await socket.send('{"kind": "hello"}')
            for socket in sockets:
                error = json.loads(await socket.recv())
                assert (error["kind"], error["status"]) == ("error", "UNAVAILABLE")
                await socket.wait_closed()
                assert socket.close_code == 1013
        assert attempts[0] < 10


def test_bounds_that_are_none() -> None:
    for wrong in (0, -1, True, 1.5, "7", None):
        with pytest.raises(InputError, match=r"queue_bytes is .*: expected an integer from 1 to"):
            Limits(queue_bytes=wrong)


NO_TOKEN, UNKNOWN, MINE = "UNAUTHENTICATED", "INVALID_ARGUMENT", "PERMISSION_DENIED"
FIRST: list[tuple[str | bytes | dict[str, object], str, str]] = [
    ({"kind": "acknowledge", "received": 0}, UNKNOWN, "the first message is acknowledge: expected"),
    ({"kind": "hello", "overflow": "keep"}, UNKNOWN, "hello: overflow is 'keep': expected one of"),
    ("x", UNKNOWN, "the message is no JSON"),
    (b"x", UNKNOWN, "a binary message of 1 bytes"),
    ({"kind": "hello", "overflow": "block"}, MINE, "expected another policy, or a token (or --allow-block"),
    ({"kind": "hello", "token": "a\nb"}, NO_TOKEN, "the token is no printable ASCII text"),
    ({"kind": "hello", "token": "\u00fc"}, NO_TOKEN, "the token is no printable ASCII text"),
    ({"kind": "hello", "token": ""}, NO_TOKEN, "the token is empty"),
    # Its header block would end the connection to the broker.
    ({"kind": "hello", "token": "x" * 60_000}, NO_TOKEN, "the token has 60000 bytes: expected at most 8192"),
]


@on_a_loop
async def test_the_first_message_is_a_hello_that_holds_and_comes_soon() -> None:
    async def expect_end(first: str | bytes | None, status: str | None, why: str, code: int) -> None:
        async with connect(f"ws://{address}/socket") as socket:
            if first is not None:
                await socket.send(first)
            error = json.loads(await socket.recv())
            assert why in error["message"]
            assert status in (None, error["status"])
            await socket.wait_closed()
            assert (socket.close_code, why in (socket.close_reason or "")) == (code, True)

    async with gateway_to("127.0.0.1:1", limits=with_short(Limits(), timeout_s=0.1)) as address:
        await expect_end(None, None, "no hello came within 0.1 s", 1013)
    async with everybody_else() as address:
        for first, status, why in FIRST:
            await expect_end(json.dumps(first) if isinstance(first, dict) else first, status, why, 1008)
