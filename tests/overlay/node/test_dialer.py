"""Connections to neighbours that are opened again and again."""

import asyncio
import time
from typing import Self

import pytest
from running import QUOTE, Brokers, on_a_loop, two_clients, until

from covey.overlay.node import dialer
from covey.overlay.node import server as node_server
from covey.overlay.node.dialer import keep_connected
from covey.overlay.node.node import Node
from covey.overlay.transport.address import CallError
from covey.overlay.transport.event_loop import Backoff


class Broken:
    """A channel that does not open: each attempt raises the next of some errors."""

    def __init__(self, errors: list[Exception], node: Node) -> None:
        self.errors = errors
        self.node = node

    async def __aenter__(self) -> Self:
        error = self.errors.pop()
        self.node.endpoint.draining = not self.errors
        raise error

    async def __aexit__(self, *_: object) -> None: ...


@on_a_loop
async def test_a_stream_that_has_ended_before_it_began_is_dialled_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(Brokers([("b1", "b2")]).overlay("b2"), "b2")
    errors: list[Exception] = [CallError("UNAVAILABLE", "the connection broke") for _ in range(3)]
    monkeypatch.setattr(dialer, "Channel", lambda *_, **__: Broken(errors, node))
    with caplog.at_level("INFO", "covey.broker"):
        await keep_connected(node, "b1")
    assert not errors
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "the connection broke; retrying"
    ], "said once"


@on_a_loop
async def test_a_link_that_breaks_at_once_is_dialled_with_growing_pauses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []

    class Told(Backoff):
        def pause_s(self) -> float:
            pauses.append(super().pause_s())
            return 0.0

    monkeypatch.setattr(dialer, "Backoff", Told)
    async with Brokers([("b1", "b2")]) as overlay:
        dialled = overlay.nodes["b2"].queues["broker/b1"]
        for broken in range(9):
            await until(lambda: dialled.connection is not None)
            dialled.connection.close("INTERNAL", "cannot take this")
            await until(lambda broken=broken: len(pauses) > broken)
        assert pauses[-1] >= 0.5
        assert sorted(pauses)[0] == pauses[0]


@on_a_loop
async def test_a_frame_that_a_neighbour_cannot_take_is_no_reconnect_every_25_ms(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """808 reconnects in 56 s."""
    caplog.set_level("INFO", "covey.broker")
    async with two_clients(QUOTE, [("b1", "b2")], "b2", "b1") as (overlay, feed, reader):
        mine = await reader.subscribe("Quote")
        await reader.settled(timeout=60)
        await overlay.crash("b1")
        with monkeypatch.context() as patched:  # of which b2 does not know
            patched.setattr(node_server, "max_message_bytes", lambda max_frame_bytes: 10_000)
            await overlay.start("b1")
        await overlay.linked()
        await until(lambda: reader.connected)
        await reader.settled(timeout=60)
        link = overlay.nodes["b2"].queues["broker/b1"]
        connections, began = link.connections, time.monotonic()
        await feed.publish("Quote", firm="x" * 50_000)
        await until(lambda: link.connections >= connections + 5)
        assert time.monotonic() > began + 0.3
        assert "expected at most 10000; retrying" in caplog.text
        await overlay.crash("b1")
        await overlay.start("b1")
        assert len((await asyncio.wait_for(anext(mine), 60))["firm"]) == 50_000


@on_a_loop
async def test_a_broker_that_stops_does_not_retry(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(Brokers([("b1", "b2")]).overlay("b2"), "b2")
    monkeypatch.setattr(dialer, "Channel", lambda *_, **__: Broken([CallError("UNAVAILABLE", "no")], node))
    with caplog.at_level("INFO", "covey.broker"):
        await keep_connected(node, "b1")
    assert not caplog.records


def test_pauses_double_up_to_a_bound_and_start_over_after_a_connection_that_lasted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    backoff = Backoff()
    for longest_s in (0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        backoff.connected()
        now_s += 4.9
        assert longest_s / 2 <= backoff.pause_s() <= longest_s
    backoff.connected()
    now_s += 5.0
    assert backoff.pause_s() <= 0.05
    now_s += 100
    assert backoff.pause_s() >= 0.05, "an attempt that did not connect"
