"""The JavaScript client in Node, and on a page of a mounting application in headless Chromium."""

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from chromium import Page, chromium
from gateways import gateway_to, page_of, served, token, token_rules
from made_certificates import overlay_files, tls_of
from running import QUOTE, Brokers, Proxy, free_ports, on_a_loop
from starlette.applications import Starlette
from starlette.responses import FileResponse
from starlette.routing import Mount, Route

from covey.gateway import Limits, application, session
from covey.gateway.messages import REPLIES
from covey.matcher import EventType
from covey.overlay import Client

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "gateway" / "browser" / "covey.js"
TYPES = ROOT / "gateway" / "browser" / "covey.d.ts"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="Node is not installed (Debian: nodejs)")


class Node:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def __call__(self, *step: Any) -> Any:
        """The value of a step; `AssertionError` with its error."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(step).encode() + b"\n")
        answer = json.loads(await asyncio.wait_for(self._process.stdout.readline(), 60))
        assert "status" not in answer, f"{answer['status']}: {answer['message']}"
        return answer["value"]


@asynccontextmanager
async def node(address: str, token: str = "", form: str = "json") -> AsyncIterator[Node]:
    assert NODE is not None
    folder = Path(__file__).parent
    process = await asyncio.create_subprocess_exec(
        NODE, "--experimental-websocket", "--no-warnings", str(folder / "client_test.mjs"), SCRIPT.as_uri(),
        f"http://{address}", token, form, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        yield Node(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def two_gateways(
    event_type: EventType, form: str = "json"
) -> AsyncIterator[tuple[Client, Proxy, Node, list[int]]]:
    """A publisher, a proxy to the first of two gateways, the client behind it, and the ports of both."""
    async with (
        Brokers() as overlay,
        Client(overlay.address("b1")) as exchange,
        gateway_to(overlay.address("b1")) as first,
        gateway_to(overlay.address("b1")) as second,
    ):
        await exchange.advertise(event_type)
        ports = [int(address.rpartition(":")[2]) for address in (first, second)]
        proxy = await Proxy(ports[0]).start()
        async with node(proxy.address, form=form) as step:
            yield exchange, proxy, step, ports
        await proxy.stop()


def quotes(*prices: float) -> list[dict[str, object]]:
    return [{"firm": "IBM", "price": price} for price in prices]


@needs_node
def test_an_attempt_of_which_nothing_is_heard_is_given_up() -> None:
    """Node 20 raised no error where the peer had closed the connection at once."""
    script = """
        const later = setTimeout;
        globalThis.setTimeout = (call, ms) => later(call, ms / 100);
        const told = [];
        class Silent {
          constructor() { told.push("made"); }
          close() { told.push("closed"); }
        }
        const { Client } = await import(process.argv[1]);
        new Client("http://127.0.0.1:1", { WebSocket: Silent });
        setInterval(() => told.length > 4 && (console.log(told.join(" ")), process.exit()), 10);
    """
    command = (str(NODE), "--input-type=module", "--no-warnings", "--eval", script, SCRIPT.as_uri())
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()
    assert told[:4] == ["made", "closed", "made", "closed"]


@needs_node
def test_unsubscribing_from_what_ends_meanwhile_is_no_error() -> None:
    script = """
        class Gateway {
          readyState = 1;
          constructor() { setTimeout(() => this.onopen()); }
          send(text) {
            const { kind, request, subscription } = JSON.parse(text);
            const answers = {
              hello: [{ kind: "welcome", session: "s", window_bytes: 1e6, max_message_bytes: 1e6 }],
              subscribe: [{ kind: "answer", request, attributes: {} }],
              unsubscribe: [
                { kind: "ended", subscription, reason: "its period is over" },
                { kind: "error", request, status: "INVALID_ARGUMENT", message: "not of this session" },
              ],
            };
            const tell = (each) => this.onmessage({ data: JSON.stringify(each) });
            for (const each of answers[kind] ?? []) setTimeout(() => tell(each));
          }
          close() {}
        }
        const { Client } = await import(process.argv[1]);
        const client = new Client("http://127.0.0.1:1", { WebSocket: Gateway });
        const subscription = await client.subscribe("Quote", "", {}, () => {}, { validFor: 60 });
        await subscription.unsubscribe();
        console.log(subscription.expired);
        process.exit();
    """
    command = (str(NODE), "--input-type=module", "--no-warnings", "--eval", script, SCRIPT.as_uri())
    assert subprocess.run(command, capture_output=True, timeout=60, check=True).stdout == b"true\n"


@needs_node
@on_a_loop
async def test_the_client_in_node() -> None:
    async with (
        served(QUOTE, publish=["Quote"], limits=Limits(lease_s=1)) as (exchange, address),
        node(address) as step,
    ):
        await step("opened")
        assert await step("subscribe", "a", "Quote", "price < $limit", {"limit": 10}) == {
            "firm": "string", "price": "float64", "volume": "int64"
        }  # fmt: skip
        await exchange.publish_batch("Quote", quotes(9, 11))
        assert await step("got", 1) == [9]
        await step("update", "a", {"limit": 20})
        await step("publish", "Quote", quotes(19, 21))
        assert await step("got", 1) == [19]
        for wrong, why in (
            (("subscribe", "b", "Quote", "price <<", {}), "INVALID_ARGUMENT: expected a number"),
            (("update", "a", {"limit": "x"}), "INVALID_ARGUMENT: variable"),
            (("publish", "Quote", quotes(1) * 10_000), "RESOURCE_EXHAUSTED: a message of"),
        ):
            with pytest.raises(AssertionError, match=why):
                await step(*wrong)
        assert await step("values", "a") == {"limit": 20}
        some = [{"limit": "x"}, {"limit": 30}, {"limit": "y"}]
        assert await step("updates", "a", *some) == ["rejected", "fulfilled", "rejected"]
        assert await step("values", "a") == {"limit": 30}
        for mistake, why in (
            (("paced", "b", "Quote", 1, {"maxrate": 5}), "subscribe: option maxrate: expected maxRate"),
            (("wrong", "http://localhost", {"colour": 1}), "Client: option colour: expected token, over"),
            (("wrong", "foo bar", {}), 'url is "foo bar": expected "http://HOST:PORT"'),
            (("wrong", "localhost:8080", {}), 'url is "localhost:8080": expected'),
            (("wrong", "http://localhost", {}, True), "WebSocket is undefined: expected the option Web"),
        ):
            with pytest.raises(AssertionError, match=re.escape(f"INVALID_ARGUMENT: {why}")):
                await step(*mistake)
        await exchange.publish_batch("Quote", quotes(*range(10)) * 2_000)  # more than the window
        assert len(await step("got", 20_000)) == 20_000
        await step("unsubscribe", "a")
        await step("subscribe", "a", "Quote", "price < 1", {})
        await exchange.publish_batch("Quote", quotes(2, 0))
        assert await step("got", 1) == [0]
        await step("close")
        with pytest.raises(AssertionError, match="CANCELLED: the client is closed"):
            await step("publish", "Quote", quotes(1))
        assert await step("lost") == "the client is closed"


@needs_node
@on_a_loop
async def test_a_rate_of_a_subscription() -> None:
    ship = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")
    async with served(ship, QUOTE) as (exchange, address), node(address) as step:
        await step("paced", "a", "Ship", 0.01)
        await exchange.publish_batch("Ship", [{"id": 1, "x": x} for x in range(5)])
        assert await step("got", 1) == [4]
        (gap,) = await step("notices")
        assert (gap["kind"], gap["cause"], gap["count"]) == ("gap", "conflated", 4)
        with pytest.raises(AssertionError, match=r"FAILED_PRECONDITION: .* Quote has no key"):
            await step("paced", "b", "Quote", 1)


@needs_node
@on_a_loop
async def test_a_validity_period_over_two_gateways() -> None:
    """In a new session a subscription has the rest of its period, not all of it."""
    async with two_gateways(QUOTE) as (exchange, proxy, step, ports):
        await step("lasting", "a", "Quote", 1_000)
        await step("lasting", "b", "Quote", 1_000)
        await step("renew", "b", 500)
        for wrong in ({"validFor": 5}, "x"):
            with pytest.raises(AssertionError, match=r"INVALID_ARGUMENT: validFor is .*: expected"):
                await step("lasting", "c", "Quote", wrong)
        with pytest.raises(AssertionError, match="renew: valid_for is 0: expected"):
            await step("renew", "a", 0)
        await step("pass", 600)
        proxy.target = ports[1]
        proxy.cut()
        while not await step("expired", "b"):
            await asyncio.sleep(0.05)
        assert "ended" in [notice["kind"] for notice in await step("notices")]
        await step("update", "a", {})  # which is answered behind its subscription
        await exchange.publish_batch("Quote", quotes(1))
        assert await step("got", 1) == [1]
        assert not await step("expired", "a")


@needs_node
@on_a_loop
async def test_a_validity_period_begins_with_its_answer() -> None:
    """The time that a request waits for a connection does not count."""
    async with two_gateways(QUOTE) as (exchange, proxy, step, ports):
        for at, asked in enumerate((("lasting", "a", "Quote", 1_000), ("renew", "a", 2_000))):
            proxy.freeze()
            await step("begin", *asked)
            await step("pass", 3_000)
            proxy.thaw()
            await step("begun")
            proxy.target = ports[1 - at]  # where a new session begins
            proxy.cut()
            await step("update", "a", {})
            await exchange.publish_batch("Quote", quotes(at))
            assert await step("got", 1) == [at]
            assert not await step("expired", "a")


@needs_node
@on_a_loop
async def test_a_view_over_two_gateways() -> None:
    """Changes of a time without session arrive as changes."""
    ship = EventType("Ship", {"id": "int64", "x": "int64"}, key="id")

    def at(**places: int) -> list[dict[str, object]]:
        return [{"id": int(name[1:]), "x": x} for name, x in places.items()]

    async with two_gateways(ship) as (exchange, proxy, step, ports):
        await exchange.publish_batch("Ship", at(_1=1, _2=2, _3=13), confirm=True)
        assert await step("view", "v", "Ship", "x between $x0 and $x1", {"x0": 0, "x1": 9}) == "id"
        assert await step("got", 2) == [["enter", 1], ["enter", 2]]
        await step("update", "v", {"x0": 2, "x1": 19})
        assert sorted(await step("got", 2)) == [["enter", 3], ["leave", 1]]
        proxy.target = ports[1]
        proxy.cut()
        await exchange.publish_batch("Ship", at(_2=99, _3=14, _4=4), confirm=True)
        await step("update", "v", {"x1": 20})
        assert sorted(await step("inside", "v"), key=str) == at(_3=14, _4=4)
        assert [change for change in await step("got", 3) if change[1] != 3] == [["enter", 4], ["leave", 2]]
        box = "Ship", "x between $x0 and $x1", {"x0": 2, "x1": 9}
        await step("view", "w", *box, {"leave": "x between $x0 and $x1 + 5"})
        assert await step("got", 1) == [["enter", 4]]
        await step("update", "w", {"x1": 3})
        assert await step("inside", "w") == at(_4=4)
        await step("update", "w", {"x0": -9, "x1": -2})
        assert await step("got", 1) == [["leave", 4]]
        with pytest.raises(AssertionError, match="view: option leaves: expected leave"):
            await step("view", "x", *box, {"leaves": "x > 0"})


@needs_node
@on_a_loop
async def test_connections_that_break() -> None:
    async with served(QUOTE) as (exchange, address):
        proxy = await Proxy(int(address.rpartition(":")[2])).start()
        async with node(proxy.address) as step:
            await step("subscribe", "a", "Quote", "price >= $least", {"least": 0})
            seen: list[float] = []
            for turn in range(5):
                some = quotes(*range(turn * 10, turn * 10 + 10))
                await exchange.publish_batch("Quote", some, confirm=True)
                proxy.cut()
                await step("update", "a", {"least": turn - 1})  # sent again where it was lost
            while len(seen) < 50:
                seen += await step("got", 1)
            assert seen == [*range(50)]
            states = await step("states")
            assert [why for connected, why in states if connected] == ["afresh"] + ["resumed"] * 5
        await proxy.stop()


@needs_node
@on_a_loop
async def test_a_gateway_that_is_not_there_yet_and_is_away_for_a_time() -> None:
    async with served(QUOTE) as (exchange, address):
        proxy = Proxy(int(address.rpartition(":")[2]))
        (proxy.port,) = free_ports(1)
        async with node(proxy.address) as step:
            assert await step("attempts", 3) == 3  # one behind the other
            await proxy.start()
            await step("opened")
            await step("subscribe", "a", "Quote", "", {})
            before = await step("attempts", 0)
            await proxy.stop()
            await step("attempts", before + 2)
            await proxy.start()
            await exchange.publish_batch("Quote", quotes(1))
            assert await step("got", 1) == [1]
            assert [connected for connected, _ in await step("states")] == [False, True, False, True]
        await proxy.stop()


@needs_node
@on_a_loop
async def test_another_gateway_gets_the_subscriptions_again() -> None:
    async with two_gateways(QUOTE, form="arrow") as (exchange, proxy, step, ports):
        await step("subscribe", "a", "Quote", "price < $limit", {"limit": 10})
        await step("update", "a", {"limit": 20})
        proxy.target = ports[1]
        proxy.cut()
        await step("update", "a", {"limit": 30})
        await exchange.publish_batch("Quote", quotes(29, 31))
        assert await step("got", 1) == [[[1], 0]]
        assert (await step("states"))[-1] == [True, "afresh"]


@pytest.mark.thorough  # it waits for the end of a token
@needs_node
@on_a_loop
async def test_the_client_renews_its_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_TOLD_BEFORE_S", 10.0)
    async with (
        Brokers(tls=overlay_files(), clients=token_rules()) as overlay,
        Client(overlay.address("b1"), tls=tls_of(), token=token("exchange")) as exchange,
        gateway_to(overlay.address("b1"), tls=tls_of()) as address,
    ):
        await exchange.advertise(QUOTE)
        async with node(address, token("alice", 20)) as step:
            await step("token", token("alice", 100))  # for the next call
            await step("subscribe", "a", "Quote", "", {})
            while not any(notice.get("connected") for notice in await step("notices")):
                await asyncio.sleep(0.05)
            await exchange.publish_batch("Quote", quotes(1))
            assert await step("got", 1) == [1]
        async with node(address, token("nobody", -1)) as step:
            with pytest.raises(AssertionError, match=r"UNAUTHENTICATED: .*expired"):
                await step("opened")


def play(page: Page, address: str) -> None:
    """A user's view of the page, in a thread."""
    page.call("Page.navigate", url=f"http://{address}/")
    page.until("window.quotes?.attributes.price === 'float64' && window.streamed.length > 0")
    page.value("window.covey.publish('Quote', [{firm: 'IBM', price: 9}, {firm: 'IBM', price: 11}])")
    page.until("window.events.length === 1")
    page.value("window.quotes.update({limit: 20})")
    page.value("window.covey.publish('Quote', {firm: 'IBM', price: 19})")
    page.until("window.events.length === 2")
    assert page.value("window.events.map(event => event.price)") == [9, 19]
    assert "19" in page.value("document.getElementById('log').textContent")
    page.value("window.covey.publish('Quote', {firm: 'IBM', price: 2000})")
    page.until("window.streamed.some(message => message.kind === 'events')")
    assert page.value("window.streamed.at(-1).events[0].price") == 2000
    page.until("window.inside.get(1)?.x === 5")  # which was published before
    page.value("window.covey.publish('Ship', [{id: 1, x: 20}, {id: 2, x: 9}])")
    page.until("[...window.inside.keys()].join() === '2'")
    assert page.value("window.quotes.update({limit: 'x'}).catch(error => error.message)") == (
        "variable $limit: value 'x', expected a number"
    )
    assert page.logged == []


@on_a_loop
async def test_a_page_in_the_browser() -> None:
    async with Brokers([("b1", "b2")]) as overlay, Client(overlay.address("b2")) as exchange:
        await exchange.advertise(QUOTE)
        await exchange.advertise(EventType("Ship", {"id": "int64", "x": "int64"}, key="id"))
        await exchange.publish("Ship", id=1, x=5)
        limits = Limits()
        mounted = application(overlay.address("b1"), publish=["Quote", "Ship"], limits=limits)

        async def page(request: object) -> FileResponse:
            return FileResponse(Path(__file__).parent / "page.html")

        async def nothing(request: object) -> FileResponse:
            return FileResponse(SCRIPT)

        routes = [Route("/", page), Route("/favicon.ico", nothing), Mount("/covey", mounted)]
        app = Starlette(routes=routes, lifespan=mounted.router.lifespan_context)
        async with page_of(app, limits) as address:
            with chromium() as browser:
                await asyncio.to_thread(lambda: play(browser.new_page(), address))


def test_the_types_are_those_of_the_messages() -> None:
    """Each declared notice has its message's fields, and none is missing."""
    declared = dict(re.findall(r'\| \{ kind: "(\w+)"; (.*?) \}', TYPES.read_text()))
    for kind in {*REPLIES} - {"welcome", "answer", "events", "changes"}:
        fields = {field.rstrip("?") for field in re.findall(r"(\w+\??):", declared[kind])}
        assert fields == {*REPLIES[kind].model_fields} - {"request"}, kind
    exported = set(re.findall(r"^export class (\w+)", SCRIPT.read_text(), re.MULTILINE))
    assert exported == set(re.findall(r"^export class (\w+)", TYPES.read_text(), re.MULTILINE))
    for interface, kind in (("Batch", "events"), ("Changes", "changes")):
        (batch,) = re.findall(rf"interface {interface} \{{(.*?)\n\}}", TYPES.read_text(), re.DOTALL)
        fields = {*re.findall(r"^  (\w+)\??:", batch, re.MULTILINE)}
        assert fields == {*REPLIES[kind].model_fields} - {"events"}
