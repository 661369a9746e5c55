"""Reconnections to neighbours."""

import time
from typing import Self

import pytest
from running import Brokers, on_a_loop, until

from covey.overlay.node import dialer
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
