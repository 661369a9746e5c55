"""Clients with tokens and certificates: admission, rights, and the end of a token."""

import asyncio
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from made_certificates import overlay_files, tls_of
from running import QUOTE, Brokers, on_a_loop, until
from test_strangers import stranger_at

from covey.matcher import EventBatch, EventType
from covey.overlay import Client, RefusedError
from covey.overlay.client import ConnectError, inspect_broker
from covey.overlay.client.unary import call_broker
from covey.overlay.core.access.rights import Permission, Rule
from covey.overlay.core.messages import Acknowledge, Advertise, Publish, Refuse
from covey.overlay.node.authentication import ClientRules, TokenOptions
from covey.overlay.node.broker_storage import Retention
from covey.overlay.transport.credentials import credentials
from covey.overlay.transport.packets import RELOAD

SECRET = "t" * 40
# A client's token expires after this time, in seconds: JWTs count whole ones, so three to four remain.
SOON = 4.0
HIDDEN = EventType("Hidden", {"x": "int64"})
RULES = (
    Rule(("exchange",), publish=(Permission("*"),), subscribe=(Permission("*"),)),
    Rule(("alice", "bob"), subscribe=(Permission("Quote"),)),
    Rule(("root",), administer=(Permission("*"),)),
    Rule(("clerk",), administer=(Permission("Quote"),)),
)


@cache
def _key() -> str:
    path = Path(tempfile.mkdtemp(prefix="covey-key-")) / "secret"
    path.write_text(SECRET)
    return str(path)


def rules(*others: Rule) -> ClientRules:
    return ClientRules(TokenOptions(_key()), RULES + others)


def token(subject: str, seconds: float = 600, **claims: Any) -> str:
    return jwt.encode({"sub": subject, "exp": time.time() + seconds, **claims}, SECRET, algorithm="HS256")


@on_a_loop
async def test_who_gets_in_and_what_it_may_do() -> None:
    async with Brokers([("b1", "b2")], tls=overlay_files(), clients=rules()) as overlay:
        near, far, tls = overlay.address("b1"), overlay.address("b2"), tls_of()
        for wrong, why in (
            ({}, "expected a token or a client's certificate"),
            ({"token": token("alice", -1)}, "the token is refused: it has expired"),
            ({"token": jwt.encode({"sub": "a", "exp": 9e9}, "w" * 40)}, "no key of this broker has"),
            ({"token": token("alice"), "name": "bob"}, "expected 'alice' or 'alice/...'"),
        ):
            with pytest.raises(ConnectError) as refusal:
                async with Client(near, tls=tls, **wrong):
                    pass
            assert why in str(refusal.value)
            assert refusal.value.status in ("UNAUTHENTICATED", "PERMISSION_DENIED")
        assert overlay.nodes["b1"].denials == {"authentication": 4}
        async with (
            Client(far, tls=tls, token=token("exchange")) as exchange,
            Client(near, tls=tls, token=lambda: token("alice")) as alice,
            Client(near, tls=tls_of("bob")) as bob,
        ):
            assert alice.name.startswith("alice/")
            assert bob.name.startswith("bob/")
            await exchange.advertise(QUOTE)
            await exchange.advertise(HIDDEN)
            sentences = set()
            for name in ("Hidden", "Nothing"):
                for refused in (
                    alice.subscribe(EventType(name, {"x": "int64"})),
                    alice.event_type(name),
                    alice.subscribe(name),
                ):
                    with pytest.raises(RefusedError) as denied:
                        await refused
                    assert denied.value.status == "PERMISSION_DENIED"
                    sentences.add(str(denied.value).replace(name, "T"))
            assert sentences == {"'alice' may not subscribe to events of type 'T'"}
            with pytest.raises(RefusedError, match="'alice' may not publish events of type 'Quote'"):
                await alice.advertise(QUOTE)
            mine = [await each.subscribe("Quote", "price < 5") for each in (alice, bob)]
            await exchange.publish("Quote", price=1.0)
            for subscription in mine:
                assert (await asyncio.wait_for(anext(subscription), 60))["price"] == 1.0
            for call in (alice.inspect(), bob.inspect()):
                with pytest.raises(RefusedError, match="may not inspect the broker"):
                    await call
            asking = credentials(tls, token("alice"))
            with pytest.raises(RefusedError, match="'alice' may not have the broker reload its overlay file"):
                await call_broker(near, RELOAD, RELOAD.request(leave=True), asking)
        denials = overlay.nodes["b1"].denials
        assert (denials["subscribe"], denials["publish"], denials["administer"]) == (6, 1, 3)
        _, state = await inspect_broker(near, tls=tls, token=token("root"))
        assert state["denied"] == dict(denials)
        assert SECRET not in str(state)


@on_a_loop
async def test_no_secret_is_in_a_log_an_error_or_a_repr(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    secret = token("alice", marker="x" * 40)
    parts = [secret, *secret.split(".")[1:]]
    async with Brokers(clients=rules()) as overlay:
        client = Client(overlay.address("b1"), token=secret, name="mallory")
        with pytest.raises(ConnectError) as refusal:
            await client.open()
        said = [caplog.text, str(refusal.value), repr(client), repr(vars(client))]
        assert not [part for part in parts for text in said if part in text]


@on_a_loop
async def test_a_token_that_ends_loses_no_event_and_takes_what_the_next_one_does_not_allow() -> None:
    """A client with another token continues within its lease, one with fewer rights loses subscriptions, one
    without another its session."""
    others = Rule(claims={"extra": True}, subscribe=(Permission("Hidden"),))
    async with Brokers(clients=rules(others)) as overlay:
        near, states = overlay.address("b1"), list[tuple[bool, str]]()
        first, once, given = ([token("alice", SOON, **more)] for more in ({}, {}, {"extra": True}))

        def fresh() -> str:
            return first.pop() if first else token("alice")

        async with (
            Client(near, token=token("exchange")) as exchange,
            Client(near, "alice/1", token=fresh, on_state=lambda *state: states.append(state)) as alice,
            Client(near, "alice/2", token=lambda: once.pop() if once else "no token") as asking,
            Client(near, "alice/3", token=token("alice", SOON)) as fixed,
            Client(near, "alice", token=lambda: given.pop() if given else token("alice")) as poorer,
        ):
            await exchange.advertise(QUOTE)
            await exchange.advertise(HIDDEN)
            mine, hidden = await alice.subscribe("Quote"), await poorer.subscribe(HIDDEN)
            await exchange.publish("Hidden", x=1)
            assert (await asyncio.wait_for(anext(hidden), 60))["x"] == 1
            sent = 0
            while sum(connected for connected, _ in states) < 2 or sent < 50:
                await exchange.publish("Quote", volume=sent, confirm=True)
                sent += 1
                await asyncio.sleep(0.005)
            got = [(await asyncio.wait_for(anext(mine), 60))["volume"] for _ in range(sent)]
            assert got == list(range(sent))
            assert (False, "the token or certificate has expired") in states
            assert (True, "resumed") in states
            with pytest.raises(RefusedError, match="may not subscribe"):
                await asyncio.wait_for(anext(hidden), 60)
            await until(lambda: None not in (asking.error, fixed.error))
            for error in (asking.error, fixed.error):
                assert isinstance(error, ConnectError)
                assert error.status == "UNAUTHENTICATED"


@on_a_loop
async def test_a_token_that_is_refused_once_or_not_to_be_had_ends_no_client_that_was_connected() -> None:
    """The connection broke for another reason than the token's expiry."""
    given: list[str | None] = []

    def asked() -> str:
        found = given.pop() if given else token("alice")
        if found is None:
            raise OSError("fetch failed")
        return found

    async with Brokers(clients=rules()) as overlay:
        proxy = await overlay.proxy("b1")
        async with Client(proxy.address, "alice", token=asked) as alice:
            for some in ([token("alice", -1)], [None] * 3):
                given.extend(some)
                proxy.cut()
                await until(lambda: not given and (alice.connected or alice.error is not None))
                assert alice.error is None


@on_a_loop
async def test_a_policy_holds_at_the_broker_of_the_client_and_through_updates() -> None:
    tenants = Rule(claims={"role": "trader"}, subscribe=(Permission("Quote", "firm == $tenant"),))
    async with Brokers([("b1", "b2")], clients=rules(tenants)) as overlay:
        secret = token("carol", role="trader", tenant="IBM")
        async with (
            Client(overlay.address("b1"), token=token("exchange")) as exchange,
            Client(overlay.address("b2"), token=secret) as carol,
        ):
            await exchange.advertise(QUOTE)
            mine = await carol.subscribe(QUOTE, "price < $limit or firm == $firm", limit=0.0, firm="HP")
            for limit, firm in ((100.0, "SUN"), (5.0, "IBM")):
                await mine.update(limit=limit, firm=firm)
                await carol.settled(timeout=60)
                for name in ("HP", "SUN", "IBM"):
                    await exchange.publish("Quote", firm=name, price=1.0)
            got = [(await asyncio.wait_for(anext(mine), 60))["firm"] for _ in range(2)]
            assert got == ["IBM", "IBM"]
            assert not overlay.nodes["b2"].endpoint.drops.by_reason
            (peer,) = (p for p in overlay.nodes["b1"].core.tables.peers.values() if p.is_broker)
            assert peer.counters.events_sent == 2, "no other event leaves for the broker of the client"


@on_a_loop
async def test_a_token_does_not_cross_a_network_in_the_clear() -> None:
    with pytest.raises(ConnectError, match="a token beyond this machine without TLS"):
        async with Client("192.0.2.1:7001", token=token("alice")):
            pass


@on_a_loop
async def test_an_event_under_the_name_of_another_publisher_does_not_silence_it() -> None:
    """Also on plain connections: sequence 2^62 of a publisher would make all later ones duplicates."""
    async with (
        Brokers() as overlay,
        Client(overlay.address("b1"), "exchange") as exchange,
        Client(overlay.address("b1")) as reader,
    ):
        await exchange.advertise(QUOTE)
        mine = await reader.subscribe("Quote")
        async with stranger_at(overlay) as stranger:
            await stranger.greet()
            await stranger.say(Advertise(1, QUOTE))
            await stranger.hear(Acknowledge)
            rows = [{"price": 9.0}]
            forged = EventBatch.from_pylist(QUOTE, rows, publisher=exchange.publisher, first_sequence=2**62)
            await stranger.say(Publish(forged))
            refusal = await stranger.hear(Refuse)
            assert refusal.status == "PERMISSION_DENIED"
            assert (refusal.first_sequence, refusal.count) == (2**62, 1)
        await exchange.publish("Quote", price=1.0)
        assert (await asyncio.wait_for(anext(mine), 60))["price"] == 1.0
        assert overlay.nodes["b1"].denials["publisher"] == 1


@on_a_loop
async def test_durable_sessions_are_of_subjects_that_may_have_all_they_have(tmp_path: Path) -> None:
    def allowed(*permissions: Permission) -> ClientRules:
        return rules(Rule(("keeper",), subscribe=permissions))

    durable = {"durable": {"Quote": Retention()}, "storage": str(tmp_path)}
    overlay = Brokers([("b1", "b2")], tls=overlay_files(), clients=allowed(Permission("Quote")), **durable)
    async with overlay, Client(overlay.address("b1"), tls=tls_of(), token=token("exchange")) as exchange:

        def keeper(subject: str = "keeper", *, kept: bool = True) -> Client:
            at = overlay.address("b2")
            return Client(at, "keeper", tls=tls_of(), token=token(subject), durable=kept, connect_timeout=20)

        async def refused(client: Client) -> ConnectError:
            with pytest.raises(ConnectError) as refusal:
                async with client:
                    pass
            return refusal.value

        async def restart(clients: ClientRules) -> None:
            await overlay.crash("b2")
            overlay.differing["b2"] = {"clients": clients}
            await overlay.start("b2")
            await overlay.linked()

        await exchange.advertise(QUOTE)
        async with keeper() as client:
            await client.subscribe("Quote", "price < $limit", limit=5)
        await exchange.publish_batch("Quote", [{"price": float(price)} for price in range(10)])
        await exchange.flush()
        assert (await refused(keeper("alice"))).status == "PERMISSION_DENIED"  # it is not hers

        await restart(allowed(Permission("Other")))
        refusal = await refused(keeper())
        assert (refusal.status, "Quote" in str(refusal)) == ("PERMISSION_DENIED", False)
        await restart(allowed(Permission("Quote", "price < 3")))
        assert "expected permissions to subscribe without policies" in str(await refused(keeper()))

        await restart(allowed(Permission("*")))
        async with keeper() as client:
            quotes = await client.subscribe("Quote", "price < $limit", limit=5)
            prices = [(await asyncio.wait_for(anext(quotes), 60))["price"] for _ in range(5)]
            assert prices == [0.0, 1.0, 2.0, 3.0, 4.0]
