"""The clients of a demonstration, which leave together at its end, also when that is Ctrl-C."""

from __future__ import annotations

import asyncio
import logging
from types import TracebackType
from typing import Self

from covey.overlay import Client

END_S = 2.0
"""For what is still to be accepted at the end, and then for the brokers: an overloaded machine has more."""
_LOG = logging.getLogger("covey.client")


class Clients:
    """All that are opened within an `async with` block."""

    def __init__(self) -> None:
        self._opened: list[Client] = []

    async def open(self, client: Client) -> Client:
        """`ConnectError` as `Client.open`."""
        await client.open()
        self._opened.append(client)
        return client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        level = _LOG.level
        _LOG.setLevel(logging.ERROR)  # nobody misses what was published as the demonstration was ended
        try:
            await asyncio.gather(*(client.close(grace=END_S) for client in self._opened))
        finally:
            _LOG.setLevel(level)
