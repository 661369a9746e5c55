"""Events from standard input: a closed client, and invalid lines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from covey.cli.publish import _Pace, _publish_lines
from covey.matcher import EventType
from covey.overlay import ConnectError

QUOTE = EventType("Quote", {"price": "float64"})


class ClosedClient:
    """A client whose broker has rejected it."""

    async def publish(self, type_name: str, values: object, /, *, confirm: bool) -> None:
        raise ConnectError("a client of this name is here already")


def test_a_closed_client_ends_the_command_while_it_waits_for_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def typed() -> AsyncIterator[str]:
        yield '{"price": 1}'
        await asyncio.Event().wait()

    monkeypatch.setattr("covey.cli.support.lines.stdin_lines", typed)
    publishing = _publish_lines(cast(Any, ClosedClient()), QUOTE, _Pace(None))
    with pytest.raises(ConnectError, match="is here already"):
        asyncio.run(asyncio.wait_for(publishing, 10))


def test_deeply_nested_json_is_refused_like_other_invalid_lines(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def typed() -> AsyncIterator[str]:
        yield "[" * 100_000

    monkeypatch.setattr("covey.cli.support.lines.stdin_lines", typed)
    assert asyncio.run(_publish_lines(cast(Any, ClosedClient()), QUOTE, _Pace(None))) == (0, 1)
    assert capsys.readouterr().err.startswith("line 1: not JSON: ")
