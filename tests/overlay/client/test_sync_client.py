"""Clients without an event loop: the names of `Client`, and the ends of waiting calls."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from unittest.mock import Mock

import pytest
from live_brokers import LiveBrokers, live_brokers
from running import eventually

from covey.matcher import EventType, VariableError
from covey.overlay import Client, ClosedError, ConnectError, RefusedError, SyncClient
from covey.testing import running_overlay

VEHICLE = EventType("Vehicle", {"id": "string", "x": "float64"}, key="id")


@pytest.fixture(scope="module")
def live() -> Iterator[LiveBrokers]:
    with live_brokers() as live:
        yield live


@pytest.fixture
def client(live: LiveBrokers) -> Iterator[SyncClient]:
    with Client.sync(live.far, "me") as client:
        yield client


def public(kind: type | object) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


def test_it_has_every_name_of_the_asynchronous_objects(client: SyncClient) -> None:
    client.advertise(VEHICLE)
    objects = client.subscribe("Vehicle"), client.view("Vehicle"), client.listeners("Vehicle")
    for blocking in (client, *objects):
        wrapped = blocking._wrapped
        assert public(type(blocking)) == public(wrapped) - {"session", "sync"}
        for name in public(type(blocking)):
            if not callable(getattr(wrapped, name)):
                assert getattr(blocking, name) == getattr(wrapped, name)
                with pytest.raises(AttributeError, match="expected no assignment"):
                    setattr(blocking, name, None)


def test_calls_and_iterators(live: LiveBrokers, client: SyncClient) -> None:
    quotes = client.subscribe("Quote", "price < $limit", limit=10.0)
    live.publish(("IBM", 9.0, 1), ("IBM", 11.0, 2), ("IBM", 8.0, 3))
    for event in quotes:
        quotes.update(limit=event["price"])
        if event["price"] == 8.0:
            break
    assert (quotes.values, quotes.delivered) == ({"limit": 8.0}, 2)
    live.publish(("HP", 7.0, 4), ("HP", 8.5, 5))
    assert next(quotes.batches()).to_pylist() == [{"firm": "HP", "price": 7.0, "volume": 4}]

    client.advertise(VEHICLE)
    listeners = client.listeners("Vehicle")
    view = client.view("Vehicle", "x < $most", most=5.0)
    eventually(lambda: bool(listeners))
    client.publish("Vehicle", {"x": 3.0}, id="a", confirm=True)
    change = next(view)
    assert (change.kind, change.event["id"]) == ("enter", "a")
    view.update(most=2.0)
    assert view.snapshot().num_rows == 0
    assert next(view.batches()).column("change").to_pylist() == ["leave"]
    view.close()
    view.close()  # as often as its user likes
    assert list(view) == []

    deliveries = client.deliveries()
    live.publish(("HP", 7.0, 4))
    matches = next(deliveries)
    assert matches.ids.tolist() == [quotes.id]
    assert client.subscription(quotes.id).values == {"limit": 8.0}
    assert client.inspect(listed=0)[1]["broker"] == client.broker == "b2"


def test_errors_have_their_types(live: LiveBrokers, client: SyncClient) -> None:
    with pytest.raises(RefusedError, match="Bond"):
        client.subscribe("Bond")
    quotes = client.subscribe("Quote", "price < $limit", limit=10.0)
    with pytest.raises(VariableError, match="value 'x', expected a number"):
        quotes.update(limit="x")
    with pytest.raises(ConnectError, match="no broker answers"):
        Client.sync("localhost:1", connect_timeout=0.1).open()
    with pytest.raises(ValueError, match="slow_consumer is 'x'"):
        Client.sync("localhost:1", slow_consumer="x")
    with pytest.raises(ClosedError, match="is not open: use it within"):
        Client.sync("localhost:1").flush()
    with pytest.raises(ClosedError, match="was opened before"):
        client.open()
    quotes.update(limit=9.0)  # it is still open


def test_closing_ends_what_other_threads_wait_for(live: LiveBrokers) -> None:
    before = set(threading.enumerate())
    client = Client.sync(live.far)
    client.open()
    quotes, others = client.subscribe("Quote"), client.subscribe("Quote", "price < 0")
    live.publish(("IBM", 9.0, 1), ("IBM", 8.0, 1))
    read: list[object] = []
    threads = [
        threading.Thread(target=lambda: read.extend(others)),
        threading.Thread(target=lambda: read.extend(others.batches())),
    ]
    for thread in threads:
        thread.start()
    assert next(quotes)["price"] == 9.0
    client.close()
    for thread in threads:
        thread.join(60)
    assert set(threading.enumerate()) == before
    assert read == []
    assert [event["price"] for event in quotes] == [8.0]  # as of `Client`, what had arrived
    for call in (quotes.update, client.flush, lambda: client.subscribe("Quote")):
        with pytest.raises(ClosedError, match=f"client {client.name} is closed"):
            call()
    client.close()


def test_a_second_close_does_not_cut_the_first_short() -> None:
    with running_overlay(event_types=[VEHICLE]) as brokers:
        client = Client.sync(brokers.address())
        client.open()
        client.advertise(VEHICLE)
        brokers.crash("b1")
        eventually(lambda: not client.connected)
        client.publish("Vehicle", id="a")
        threads = [threading.Thread(target=client.close, kwargs={"grace": 60.0}) for _ in range(2)]
        for thread in threads:
            thread.start()
        threads[1].join(0.3)
        brokers.restart("b1")
        for thread in threads:
            thread.join(60)
        assert client.pending == 0


def test_within_an_event_loop_it_says_that_it_blocks(live: LiveBrokers, client: SyncClient) -> None:
    async def main() -> None:
        client.flush()

    with pytest.raises(RuntimeError, match="client me is synchronous and was called within a running event"):
        asyncio.run(main())
    raised: list[str] = []

    def on_state(connected: bool, reason: str) -> None:
        try:
            other.flush()
        except RuntimeError as error:
            raised.append(str(error))

    other = Client.sync(live.far, "other", on_state=on_state)
    with other:
        assert raised == ["client other was called within its own callback, which it would wait for"]


def test_an_interrupt_ends_an_iteration_and_loses_nothing(
    live: LiveBrokers, client: SyncClient, request: pytest.FixtureRequest
) -> None:
    # A shell's background processes ignore interrupts.
    request.addfinalizer(partial(signal.signal, signal.SIGINT, signal.getsignal(signal.SIGINT)))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    quotes = client.subscribe("Quote")
    batches = quotes.batches()
    for waiting in (quotes, batches):
        timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(iter(waiting))
        timer.join()
    live.publish(("IBM", 9.0, 1), ("IBM", 8.0, 1))
    assert next(quotes)["price"] == 9.0
    assert next(batches).values("price") == [8.0]


PROGRAM = """
import os, sys
from covey.overlay import Client, ClosedError
client = Client.sync(sys.argv[1])
client.open()
quotes = client.subscribe("Quote")
if os.fork() == 0:
    try:
        client.flush()
    except ClosedError as error:
        print(error)
else:
    os.wait()
    print(client.connected)
"""


def test_an_interpreter_exits_whose_client_is_open_and_a_fork_has_none(live: LiveBrokers) -> None:
    command = [sys.executable, "-c", PROGRAM, live.far]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    before, connected = done.stdout.splitlines()
    assert before.endswith("was opened before a fork: expected a new one in each process")
    assert connected == "True"


def test_a_client_that_gets_no_thread_does_not_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client.sync("127.0.0.1:1")
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("no thread")))
        with pytest.raises(RuntimeError, match="no thread"):
            client.open()
    assert not client.connected
    client.close()
