"""Cancelled and timed-out calls leave nothing behind: no task, no future, no event, no growing traceback."""

import asyncio
import re
import traceback
from typing import Any

import pytest
from running import QUOTE, Brokers, on_a_loop, until
from tables import grown, tables

from covey.matcher import EventType
from covey.overlay import Client, ClosedError, NotSettledError

CLIENT = "covey.overlay.client"
CLIENT_LOG = "covey.client"


@on_a_loop
async def test_a_client_that_is_cancelled_while_it_connects_leaves_no_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("covey.overlay.client.driver._GOODBYE_S", 0.1)

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    before = asyncio.all_tasks()
    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(Client(f"{host}:{port}").open(), 0.2)
        left = [task for task in asyncio.all_tasks() - before if "covey client" in task.get_name()]
        assert not left


@on_a_loop
async def test_a_client_that_is_cancelled_while_the_broker_answers_ends_its_session() -> None:
    async with Brokers() as overlay:
        sessions = overlay.nodes["b1"].queues
        opening = asyncio.create_task(Client(overlay.address("b1"), "me").open())
        while "client/me" not in sessions:
            await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        await until(lambda: "client/me" not in sessions, seconds=2.0)


@pytest.mark.parametrize("turns", range(6))
@on_a_loop
async def test_a_close_that_is_cancelled_ends_the_session_all_the_same(turns: int) -> None:
    async with Brokers() as overlay:
        client = Client(overlay.address("b1"), "me")
        await client.open()
        await client.advertise(QUOTE)
        await client.publish("Quote", volume=1)
        closing = asyncio.create_task(client.close())
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.gather(closing, return_exceptions=True)
        await until(lambda: turns == 0 or "client/me" not in overlay.nodes["b1"].queues, seconds=2.0)
        await client.close()
        await until(lambda: "client/me" not in overlay.nodes["b1"].queues, seconds=2.0)


@on_a_loop
async def test_a_client_without_a_broker_logs_what_it_waits_for_and_that_it_came(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.overlay.client.client._SILENT_S", 0.05)
    async with Brokers() as overlay:
        address = overlay.address("b1")
        await overlay.crash("b1")
        client = Client(address, "me", connect_timeout=50)
        opening = asyncio.create_task(client.open())
        await until(lambda: bool(caplog.messages))
        await overlay.start("b1")
        await opening
        await client.close()
    waits, came = caplog.messages
    why = f"no broker answers at {address}"
    assert re.fullmatch(rf"client me waits for a broker at {address}, for another [\d.]+ s: {why}", waits)
    assert re.fullmatch(rf"client me is connected to {address}, after [\d.]+ s", came)


@on_a_loop
async def test_a_call_that_waits_logs_what_it_waits_for_once_for_all(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("covey.overlay.client.driver._SILENT_S", 0.05)
    async with (
        Brokers([("b1", "b2")]).unlinked("b1") as overlay,
        Client(overlay.address("b1"), "me") as me,
    ):
        calls = [asyncio.create_task(me.subscribe(QUOTE, f"price < {limit}")) for limit in (2, 3)]
        await until(lambda: any(record.name == CLIENT_LOG for record in caplog.records))
        await asyncio.sleep(0.2)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
    (waits,) = [record.getMessage() for record in caplog.records if record.name == CLIENT_LOG]
    assert waits.startswith("client me: the subscription 'price < 2")
    why = "broker b2, next to b1, is out of reach; still waiting"
    assert waits.endswith(f" has not taken effect everywhere within 0.05 s: {why}")


@on_a_loop
async def test_calls_that_were_cancelled_leave_neither_futures_nor_events() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1"), "me", outbox_events=10) as me:
        await me.advertise(QUOTE)
        mine = await me.subscribe(QUOTE, "volume >= $least", least=0)
        await overlay.crash("b1")
        await until(lambda: not me.connected)
        before = tables(me, CLIENT)
        for least in range(1, 4):
            with pytest.raises(NotSettledError):
                await mine.update(least=least, timeout=0.01)
        assert not grown(before, tables(me, CLIENT))
        for volume in range(10):
            await me.publish("Quote", volume=volume)
        before = tables(me, CLIENT)
        for volume in range(3_000):
            one = asyncio.create_task(me.publish("Quote", volume=volume))
            many = asyncio.create_task(me.publish_batch("Quote", [{"volume": volume}]))
            await asyncio.sleep(0)
            for given_up in (one, many):
                given_up.cancel()
        await asyncio.sleep(0)
        assert me.pending == 10
        assert not grown(before, tables(me, CLIENT))
        last = asyncio.create_task(me.publish("Quote", volume=7_000))
        await overlay.start("b1")
        await last
        assert [(await anext(mine))["volume"] for _ in range(8)] == [*range(3, 10), 7_000]


@pytest.mark.parametrize("call", ["subscribe", "view"])
@on_a_loop
async def test_a_call_that_is_cancelled_while_its_client_closes_is_cancelled(call: str) -> None:
    keyed = EventType("Keyed", {"id": "int64"}, key="id")
    async with Brokers() as overlay, Client(overlay.address("b1"), "me") as client:
        subscribing = asyncio.create_task(getattr(client, call)(keyed, "id > 5"))
        await asyncio.sleep(0)
        closing = asyncio.create_task(client.close())
        await asyncio.sleep(0)
        subscribing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await subscribing
        await closing


@on_a_loop
async def test_the_traceback_of_a_repeated_error_does_not_grow() -> None:
    async with Brokers() as overlay:
        client = Client(overlay.address("b1"))
        async with client:
            await client.advertise(QUOTE)
        lengths = set()
        for _ in range(3):
            with pytest.raises(ClosedError) as raised:
                await client.publish("Quote", volume=1)
            lengths.add(len(traceback.extract_tb(raised.value.__traceback__)))
        assert len(lengths) == 1


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"window_bytes": 0}, "window_bytes is 0: expected an integer from 1 to"),
        ({"window_bytes": 1 << 64}, "window_bytes is 18446744073709551616: expected an integer"),
        ({"outbox_events": 1.5}, "outbox_events is 1.5: expected an integer"),
        ({"outbox_bytes": "1"}, "outbox_bytes is '1': expected an integer"),
        ({"name": 5}, "name is 5: expected text"),
        ({"durable": True}, "expected a name"),
        ({"address": None}, "address is None: expected text"),
    ],
)
def test_wrong_arguments_of_a_client_are_refused(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        Client(**{"address": "127.0.0.1:1", **arguments})


@on_a_loop
async def test_a_client_whose_task_is_cancelled_fails_its_calls() -> None:
    """As when all tasks of a loop are cancelled."""
    async with Brokers() as overlay, Client(overlay.address("b1"), "me") as me:
        await me.advertise(QUOTE)
        mine = await me.subscribe(QUOTE)
        reading = asyncio.ensure_future(anext(mine))
        await asyncio.sleep(0)
        for task in asyncio.all_tasks():
            if task.get_name() == "covey client me":
                task.cancel()
        with pytest.raises(ClosedError, match="was cancelled"):
            await reading
        with pytest.raises(ClosedError, match="was cancelled"):
            await me.publish("Quote", volume=1)


@on_a_loop
async def test_a_client_belongs_to_the_loop_that_it_was_opened_on() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1"), "me") as me:
        await me.advertise(QUOTE)
        other = asyncio.to_thread(asyncio.run, me.publish("Quote", volume=1))
        with pytest.raises(ClosedError, match="expected the one that it was opened on"):
            await other
        await me.publish("Quote", volume=1, confirm=True)


@on_a_loop
async def test_an_on_state_that_raises_ends_no_client(caplog: pytest.LogCaptureFixture) -> None:
    def on_state(connected: bool, reason: str) -> None:
        raise RuntimeError(reason)

    async with Brokers() as overlay, Client(overlay.address("b1"), "me", on_state=on_state) as me:
        await me.advertise(QUOTE)
        await overlay.crash("b1")
        await until(lambda: not me.connected)
        await overlay.start("b1")
        await until(lambda: me.connected)
        await me.publish("Quote", volume=1, confirm=True)
    assert caplog.text.count("on_state failed") >= 2


@on_a_loop
async def test_a_negative_length_of_lists_is_refused() -> None:
    async with Brokers() as overlay, Client(overlay.address("b1")) as me:
        with pytest.raises(ValueError, match="listed is -1: expected 0 to"):
            await me.inspect(listed=-1)
