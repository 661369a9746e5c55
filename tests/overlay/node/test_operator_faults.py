"""Faulty named operators in broker processes: other events and subscriptions go on, the subscriber gets a
notice, counters move."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import fault_operators
import pytest
from running import on_a_loop, until

from covey.matcher import EventType
from covey.overlay import Client, Subscription
from covey.overlay.client import inspect_broker
from covey.sim.experiments.local_overlay import LocalOverlay, chain

READING = EventType("Reading", {"x": "float64", "round": "int64"})
VALUES = range(12)
MATCHING = [x for x in VALUES if x > 5]
DEADLINE_MS = 300


@pytest.fixture(autouse=True)
def operators(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In this process, and in those of brokers."""
    monkeypatch.setenv("PYTHONPATH", str(Path(fault_operators.__file__).parent))
    monkeypatch.setenv("COVEY_BROKER_WITHOUT", "b2")
    fault_operators.register_all()
    yield
    fault_operators.unregister_all()


@asynccontextmanager
async def brokers() -> AsyncIterator[LocalOverlay]:
    """b1 - b2 - b3, whose b2 lacks the operator `known_elsewhere`."""
    operators = {"modules": ["fault_operators"], "deadline_ms": DEADLINE_MS, "first_suspension_s": 0.05}
    overlay = LocalOverlay(chain(3), event_types=[READING], operators=operators)
    async with overlay:
        pids = overlay.process_ids()
        yield overlay
        assert overlay.process_ids() == pids
        for broker in overlay.brokers:
            _, state = await inspect_broker(overlay.addresses[broker])
            assert state["process"] == pids[broker]


async def operators_at(overlay: LocalOverlay, broker: str) -> dict[str, Any]:
    _, state = await inspect_broker(overlay.addresses[broker])
    operators: dict[str, Any] = state["operators"]
    return operators


async def publish(client: Client, first: int, rounds: int) -> None:
    for number in range(first, first + rounds):
        await client.publish_batch("Reading", [{"x": float(x), "round": number} for x in VALUES])
        await client.flush()


async def read(subscription: Subscription, rounds: int) -> list[tuple[int, float]]:
    """(round, x) of all events up to the last round, which matches for x = 11."""
    events = []
    async for event in subscription:
        events.append((event["round"], event["x"]))
        if events[-1] == (rounds - 1, 11.0):
            break
    return events


def expected(rounds: int) -> list[tuple[int, float]]:
    return [(number, float(x)) for number in range(rounds) for x in MATCHING]


@pytest.mark.thorough  # three broker processes
@on_a_loop
async def test_operators_with_faults_in_broker_processes() -> None:
    async with (
        brokers() as overlay,
        Client(overlay.addresses["b1"], name="bystander") as bystander,
        Client(overlay.addresses["b3"], name="subscriber") as subscriber,
    ):
        for check in (check_mind, check_missing, check_faults):
            async with Client(overlay.addresses["b1"]) as publisher:
                await publisher.advertise(READING)
                await check(overlay, publisher, subscriber, bystander)


async def check_mind(overlay: LocalOverlay, publisher: Client, subscriber: Client, bystander: Client) -> None:
    """Each event is evaluated once by an operator that changes its answers."""
    subscription = await subscriber.subscribe(READING, "fickle(x)")
    await publish(publisher, 0, 20)
    async with asyncio.timeout(60):
        assert await read(subscription, 20) == expected(20)
    first, third = await operators_at(overlay, "b1"), await operators_at(overlay, "b3")
    assert (first["fickle"]["events"], third["fickle"]["events"]) == (20 * len(VALUES), 0)
    assert third["fickle"]["reused"] == 20 * len(MATCHING)
    assert "fickle" not in subscriber.operator_accounts()
    await subscription.unsubscribe()


async def check_missing(
    overlay: LocalOverlay, publisher: Client, subscriber: Client, bystander: Client
) -> None:
    """A broker without an operator passes events on, and sends a notice; one with it evaluates."""
    local = await bystander.subscribe(READING, "known_to_client(x)")
    async with Client(overlay.addresses["b2"]) as other:
        await other.advertise(READING)
        subscription = await subscriber.subscribe(READING, "known_elsewhere(x)")
        await publish(other, 0, 2)
        async with asyncio.timeout(60):
            assert await read(subscription, 2) == expected(2)
            assert await read(local, 2) == expected(2)
        second, third = await operators_at(overlay, "b2"), await operators_at(overlay, "b3")
        assert (second["known_elsewhere"]["missing"], third["known_elsewhere"]["missing"]) == ("unknown", "")
        assert second["known_elsewhere"]["undecided"] == 2 * len(VALUES)
        asked = third["known_elsewhere"]
        assert (asked["events"], asked["true"]) == (2 * len(VALUES), 2 * len(MATCHING))
        assert {(n.operator, n.broker, n.reason) for n in subscription.notices} == {
            ("known_elsewhere", "b2", "unknown")
        }
        assert {notice.broker for notice in local.notices} == {"b1", "b2"}
    asked = subscriber.operator_accounts().get("known_elsewhere", {"events": 0})
    assert asked["events"] == 0
    assert bystander.operator_accounts()["known_to_client"]["true"] == 2 * len(MATCHING)
    await subscription.unsubscribe()
    await local.unsubscribe()


async def check_faults(
    overlay: LocalOverlay, publisher: Client, subscriber: Client, bystander: Client
) -> None:
    """Each operator fails at every broker in its own way, and works at the client."""
    faulty = tuple(fault_operators.FAULTS)
    subscriptions = {name: await subscriber.subscribe(READING, f"{name}(x)") for name in (*faulty, "steady")}
    plain = await bystander.subscribe(READING, "x > 5")
    rounds = 0

    async def all_failed_and_told() -> bool:
        nonlocal rounds
        await publish(publisher, rounds, 1)
        rounds += 1
        first = await operators_at(overlay, "b1")
        return all(first[name]["failures"] and subscriptions[name].notices for name in faulty)

    await until(all_failed_and_told)
    async with asyncio.timeout(60):
        for name, subscription in subscriptions.items():
            assert await read(subscription, rounds) == expected(rounds), name
        assert await read(plain, rounds) == expected(rounds)
    for name in faulty:
        assert {notice.operator for notice in subscriptions[name].notices} == {name}
    # Beside a hung call there may be no time for it.
    assert all("another turn" in notice.reason for notice in subscriptions["steady"].notices)
    _, state = await inspect_broker(overlay.addresses["b1"])
    assert state["operators"]["raising"]["fault"].startswith("raised ValueError: no answer for")
    assert state["operators"]["sleeping"]["fault"] == f"did not answer within {DEADLINE_MS} ms"
    assert state["operators"]["wrong_type"]["fault"] == "returned str, expected an array of Booleans"
    text, _ = await inspect_broker(overlay.addresses["b1"])
    assert "operators\n  operator " in text


@pytest.mark.usefixtures("brokers_in_process")
@on_a_loop
async def test_what_is_over_its_share_is_evaluated_by_the_subscriber() -> None:
    operators = {"call_share": 1e-9}
    async with (
        LocalOverlay(chain(2), event_types=[READING], operators=operators) as overlay,
        Client(overlay.addresses["b1"], name="publisher") as publisher,
        Client(overlay.addresses["b2"], name="subscriber") as subscriber,
    ):
        await publisher.advertise(READING)
        subscription = await subscriber.subscribe(READING, "steady(x)")
        await publish(publisher, 0, 10)
        async with asyncio.timeout(60):
            assert await read(subscription, 10) == expected(10)
        for broker in overlay.brokers:
            steady = (await operators_at(overlay, broker))["steady"]
            assert (steady["failures"], steady["undecided"] > 0) == (0, True)
        assert "has used up its share of the time" in str(subscription.notices)
