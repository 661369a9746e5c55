"""What commands that talk to an overlay share: signals end them wherever they wait, and who keeps them
waiting is said on stderr."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import typer

if TYPE_CHECKING:
    from covey.overlay import Client

T = TypeVar("T")

CONNECT_S = 5.0
PATIENCE_S = 3.0


def run_until_signal(doing: Coroutine[Any, Any, T]) -> T:
    """What `doing` comes to. SIGINT and SIGTERM cancel it, each time they come; unless it ends well for all
    that, the command then ends as a shell expects it, with 128 and the signal's number.
    """

    async def run() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.create_task(doing)
        signals: list[int] = []

        def stop(number: int) -> None:
            signals.append(number)
            task.cancel()

        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop, number)
        try:
            return await task
        except asyncio.CancelledError:
            if not signals:
                raise
            raise typer.Exit(128 + signals[0]) from None

    return asyncio.run(run())


class Waiting:
    """Says on stderr who has not answered a client, after a few seconds, and once for all calls that wait."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._calls = 0
        self._teller: asyncio.Task[None] | None = None

    async def settle(self, change: Awaitable[T]) -> T:
        """What a call of the client comes to that returns when the overlay has taken it up."""
        self._calls += 1
        if self._teller is None:
            self._teller = asyncio.create_task(self._tell())
        try:
            return await change
        finally:
            self._calls -= 1
            if not self._calls:
                self._teller.cancel()
                self._teller = None

    async def _tell(self) -> None:
        from covey.matcher.errors import CoveyError
        from covey.overlay import NotSettledError

        said = ""
        while True:
            try:
                await self._client.settled(timeout=PATIENCE_S)
            except NotSettledError as error:
                if str(error) != said:
                    print(f"covey: {error}; still waiting", file=sys.stderr, flush=True)
                said = str(error)
            except CoveyError:
                pass  # whoever made the call hears of it
            else:
                said = ""
            await asyncio.sleep(PATIENCE_S)
