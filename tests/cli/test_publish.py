"""Events typed in as lines, where the client does not last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from covey.cli.publish import _Pace, _publish_lines
from covey.matcher import EventType
from covey.overlay import ConnectError

QUOTE = EventType("Quote", {"price": "float64"})


class Ended:
    """A client that its broker has turned away for good."""

    async def publish(self, type_name: str, /, **attributes: object) -> None:
        raise ConnectError("a client of this name is here already")


def test_a_client_that_has_ended_ends_the_command_also_while_nothing_is_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def typed() -> AsyncIterator[str]:
        yield '{"price": 1}'
        await asyncio.Event().wait()

    monkeypatch.setattr("covey.cli.support.lines.stdin_lines", typed)
    publishing = _publish_lines(cast(Any, Ended()), QUOTE, _Pace(None))
    with pytest.raises(ConnectError, match="is here already"):
        asyncio.run(asyncio.wait_for(publishing, 10))


def test_a_line_of_json_that_is_nested_without_end_is_refused_as_others_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def typed() -> AsyncIterator[str]:
        yield "[" * 100_000

    monkeypatch.setattr("covey.cli.support.lines.stdin_lines", typed)
    assert asyncio.run(_publish_lines(cast(Any, Ended()), QUOTE, _Pace(None))) == (0, 1)
    assert capsys.readouterr().err.startswith("line 1: no JSON: ")
