"""Connections to neighbours that are opened again and again."""

from __future__ import annotations

import asyncio
from typing import Self

import grpc.aio
import pytest
from running import Brokers, on_a_loop

from covey.overlay.node import dialer
from covey.overlay.node.dialer import keep_connected
from covey.overlay.node.node import Node
from covey.overlay.transport.backoff import Backoff


class Broken:
    """A channel whose streams have ended before anything is written: each raises the next of some errors."""

    def __init__(self, errors: list[Exception], node: Node) -> None:
        self.errors = errors
        self.node = node

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...

    def stream_stream(self, method: str) -> object:
        return lambda: self

    async def write(self, data: bytes) -> None:
        error = self.errors.pop()
        self.node.draining = not self.errors
        raise error


@on_a_loop
async def test_a_stream_that_has_ended_before_it_began_is_dialled_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    node = Node(Brokers([("b1", "b2")]).overlay("b2"), "b2")
    errors: list[Exception] = [asyncio.InvalidStateError(), grpc.aio.UsageError(), ConnectionResetError()]
    monkeypatch.setattr(dialer, "open_channel", lambda *_: Broken(errors, node))
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
    monkeypatch.setattr(dialer, "open_channel", lambda *_: Broken([ConnectionResetError()], node))
    with caplog.at_level("INFO", "covey.broker"):
        await keep_connected(node, "b1")
    assert not caplog.records


def test_pauses_double_up_to_a_bound_and_begin_anew() -> None:
    backoff = Backoff()
    for longest_s in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0):
        assert longest_s / 2 <= backoff.pause_s() <= longest_s
    backoff.reset()
    assert backoff.pause_s() <= 0.05
