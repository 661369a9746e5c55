"""Connections to neighbours that are opened again and again."""

from __future__ import annotations

from typing import Self

import pytest
from running import Brokers, on_a_loop

from covey.overlay.node import dialer
from covey.overlay.node.dialer import keep_connected
from covey.overlay.node.node import Node
from covey.overlay.transport.backoff import Backoff
from covey.overlay.transport.errors import CallError


class Broken:
    """A channel that does not open: each attempt raises the next of some errors."""

    def __init__(self, errors: list[Exception], node: Node) -> None:
        self.errors = errors
        self.node = node

    async def __aenter__(self) -> Self:
        error = self.errors.pop()
        self.node.draining = not self.errors
        raise error

    async def __aexit__(self, *_: object) -> None: ...


@on_a_loop
async def test_a_stream_that_has_ended_before_it_began_is_dialled_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(Brokers([("b1", "b2")]).overlay("b2"), "b2")
    errors: list[Exception] = [CallError("UNAVAILABLE", "the connection broke") for _ in range(3)]
    monkeypatch.setattr(dialer, "Channel", lambda *_: Broken(errors, node))
    with caplog.at_level("INFO", "covey.broker"):
        await keep_connected(node, "b1")
    assert not errors
    assert [record.getMessage().partition(": ")[2] for record in caplog.records] == [
        "the connection broke; retrying"
    ], "said once"


@on_a_loop
async def test_a_broker_that_stops_does_not_retry(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(Brokers([("b1", "b2")]).overlay("b2"), "b2")
    monkeypatch.setattr(dialer, "Channel", lambda *_: Broken([CallError("UNAVAILABLE", "no")], node))
    with caplog.at_level("INFO", "covey.broker"):
        await keep_connected(node, "b1")
    assert not caplog.records


def test_pauses_double_up_to_a_bound_and_begin_anew() -> None:
    backoff = Backoff()
    for longest_s in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0):
        assert longest_s / 2 <= backoff.pause_s() <= longest_s
    backoff.reset()
    assert backoff.pause_s() <= 0.05
