"""Durable sessions that move between real brokers, and their tickets."""

from pathlib import Path

import pytest
import yaml
from running import on_a_loop

from covey.matcher import EventType
from covey.overlay import Client, ConnectError
from covey.overlay.core.access.identity import Ticket, Tickets
from covey.overlay.documents import ConfigError
from covey.overlay.node.authentication import read_ticket_keys
from covey.overlay.node.config import check_tickets, load_overlay
from covey.sim.experiments.local_overlay import LocalOverlay, chain

ORDER = EventType("Order", {"number": "int64", "text": "string"})


async def publish(overlay: LocalOverlay, numbers: range) -> None:
    async with Client(overlay.addresses["b1"]) as client:
        await client.advertise(ORDER)
        for number in numbers:
            await client.publish("Order", number=number, text="x")
        await client.flush()


async def take(client: Client, count: int) -> list[int]:
    """The next events of this client's subscription, which an earlier process has made."""
    before = len(client.session.subscriptions)
    subscription = await client.subscribe(ORDER, "number >= $least", least=0)
    assert len(client.session.subscriptions) == max(1, before)
    numbers: list[int] = []
    async for event in subscription:
        numbers.append(event["number"])
        if len(numbers) == count:
            break
    return numbers


@on_a_loop
async def test_a_client_goes_on_at_another_broker_with_what_has_waited(local_brokers: None) -> None:
    async with LocalOverlay(chain(3), event_types=[ORDER], durable=["Order"], compiled=False) as overlay:
        async with Client(overlay.addresses["b3"], "reader", durable=True) as reader:
            await reader.subscribe(ORDER, "number >= $least", least=0)
            ticket = reader.ticket
        await publish(overlay, range(2_000))
        async with Client(overlay.addresses["b2"], "reader", durable=True, ticket=ticket) as reader:
            assert await take(reader, 2_000) == [*range(2_000)]
            assert reader.ticket != ticket
            core = reader.session
            moved = reader.ticket
        await publish(overlay, range(2_000, 2_100))
        async with Client(
            overlay.addresses["b1"], "reader", durable=True, ticket=moved, session=core
        ) as reader:
            (subscription_id,) = core.subscriptions
            numbers = []
            async for event in reader.subscription(subscription_id):
                numbers.append(event["number"])
                if len(numbers) == 100:
                    break
            assert numbers == [*range(2_000, 2_100)]
            await reader.close(end=True)


@pytest.mark.thorough
@on_a_loop
async def test_a_session_of_a_broker_that_is_dead_comes_when_it_is_back(local_brokers: None) -> None:
    async with LocalOverlay(chain(3), event_types=[ORDER], durable=["Order"], compiled=False) as overlay:
        async with Client(overlay.addresses["b3"], "reader", durable=True) as reader:
            await reader.subscribe(ORDER, "number >= $least", least=0)
            ticket = reader.ticket
        async with Client(overlay.addresses["b1"]) as publisher:
            await publisher.advertise(ORDER)
            for number in range(100):
                if number == 50:
                    await publisher.flush()
                    await overlay.kill("b3")
                await publisher.publish("Order", number=number, text="x")
            await publisher.flush()
        elsewhere = Client(
            overlay.addresses["b2"], "reader", durable=True, ticket=ticket, connect_timeout=1.0
        )
        with pytest.raises(ConnectError, match="broker b3 has yet to hand the session over"):
            await elsewhere.open()
        await overlay.start("b3")
        async with Client(overlay.addresses["b2"], "reader", durable=True, ticket=ticket) as reader:
            assert await take(reader, 100) == [*range(100)]


@on_a_loop
async def test_with_a_key_a_session_is_resumed_by_who_has_its_ticket_alone(
    local_brokers: None, tmp_path: Path
) -> None:
    key = tmp_path / "tickets.key"
    key.write_bytes(b"k" * 40)
    async with LocalOverlay(
        chain(2), event_types=[ORDER], durable=["Order"], compiled=False, tickets=[str(key)]
    ) as overlay:
        async with Client(overlay.addresses["b2"], "reader", durable=True) as reader:
            await reader.subscribe(ORDER, "number >= $least", least=0)
            ticket = reader.ticket
        async with Client(overlay.addresses["b2"], "other", durable=True) as other:
            await other.subscribe(ORDER)
            others = other.ticket
        identity = Tickets("local").read("client/reader", ticket)
        assert identity is not None
        forged = [
            Tickets("local").issue("client/reader", identity),
            Tickets("local", [b"x" * 40]).issue("client/reader", identity),
            Tickets("local", [b"k" * 40]).issue("client/reader", Ticket("b2", "b2/1")),
        ]
        for broker in ("b1", "b2"):
            for shown in ("nonsense", others, *forged[:2]):
                with pytest.raises(ConnectError, match="ticket") as refused:
                    await Client(overlay.addresses[broker], "reader", durable=True, ticket=shown).open()
                assert refused.value.status == "UNAUTHENTICATED"
        for shown in ("", forged[2]):
            with pytest.raises(ConnectError, match="expected its ticket"):
                await Client(overlay.addresses["b2"], "reader", durable=True, ticket=shown).open()
        async with Client(overlay.addresses["b1"]) as client:
            _, state = await client.inspect()
            assert state["denied"]["ticket"] == 4
        await publish(overlay, range(10))
        async with Client(overlay.addresses["b1"], "reader", durable=True, ticket=ticket) as reader:
            assert await take(reader, 10) == [*range(10)]


def overlay_file(folder: Path, tickets: object) -> Path:
    file = folder / "overlay.yaml"
    content = {"overlay": "one", "brokers": {"b1": {"address": "127.0.0.1:7001"}}, "tickets": tickets}
    file.write_text(yaml.safe_dump(content))
    return file


def test_keys_are_files_of_32_bytes_or_more(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("secret\n")
    (tmp_path / "good").write_text("s" * 32 + "\n")
    check_tickets(load_overlay(overlay_file(tmp_path, ["good", "good"]), {}))
    with pytest.raises(ConfigError, match=r"short has a key of 6 bytes: expected at least 32"):
        check_tickets(load_overlay(overlay_file(tmp_path, "short"), {}))
    with pytest.raises(ConfigError, match=r"none cannot be read: No such file"):
        check_tickets(load_overlay(overlay_file(tmp_path, ["good", "none"]), {}))
    with pytest.raises(ConfigError, match="tickets"):
        load_overlay(overlay_file(tmp_path, ["good", "good", "good"]), {})


def test_keys_of_text_have_no_white_space_around_them_and_others_are_taken_whole(tmp_path: Path) -> None:
    text, random, of_random = tmp_path / "text", tmp_path / "random", b" \n" + bytes(range(200, 228)) + b"\t "
    text.write_bytes(b" " + b"k" * 40 + b"\n")
    random.write_bytes(of_random)
    assert read_ticket_keys([str(text), str(random)]) == (b"k" * 40, of_random)
